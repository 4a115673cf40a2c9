//! Profile files: measured job times and memory of one back end on one machine.

use crate::config::{Binding, ModelSpec, PhaseSpec};
use crate::error::SchedError;
use crate::profile::{Sample, Speedup};
use crate::time::Span;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A profile file (`shark-1thread.json` and its like). Fields that the simulator does not use are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct ProfileFile {
    /// Back end that was measured.
    pub backend: String,
    /// Link class.
    pub link: String,
    /// Models by name.
    pub models: BTreeMap<String, FileModel>,
}

/// One model of a profile file.
#[derive(Clone, Debug, Deserialize)]
pub struct FileModel {
    /// T_pre.
    pub pre: FilePhase,
    /// T_on.
    pub on: FilePhase,
    /// The server's material, in bytes.
    pub key_bytes_server: u64,
    /// The client's material, in bytes; a dealer writes it to the same disk.
    pub key_bytes_client: u64,
}

/// One phase of a model in a profile file.
#[derive(Clone, Debug, Deserialize)]
pub struct FilePhase {
    /// Seconds of computing.
    pub wall_s: f64,
    /// Seconds of reading material; part of the job.
    #[serde(default)]
    pub load_s: f64,
    /// Peak memory.
    pub peak_rss_bytes: u64,
}

impl FilePhase {
    fn sample(&self) -> Sample {
        Sample { time: Span::from_secs(self.wall_s + self.load_s), memory: self.peak_rss_bytes }
    }
}

impl ProfileFile {
    /// Reads a profile file's text.
    ///
    /// # Errors
    /// [`SchedError::BadFile`] with the line and the reason.
    pub fn parse(text: &str) -> Result<ProfileFile, SchedError> {
        let file: ProfileFile = serde_json::from_str(text).map_err(|e| SchedError::BadFile {
            what: "profile",
            line: e.line(),
            why: e.to_string(),
        })?;
        for (name, model) in &file.models {
            for secs in [model.pre.wall_s, model.pre.load_s, model.on.wall_s, model.on.load_s] {
                if !(0.0..1e6).contains(&secs) {
                    let why = format!("{name}: {secs} is no time in seconds");
                    return Err(SchedError::BadFile { what: "profile", line: 0, why });
                }
            }
        }
        Ok(file)
    }

    /// The models named, in that order, as the scheduler takes them.
    ///
    /// # Errors
    /// [`SchedError::UnknownModel`].
    pub fn specs(
        &self,
        names: &[&str],
        binding: Binding,
        pre: Speedup,
        on: Speedup,
    ) -> Result<Vec<ModelSpec>, SchedError> {
        let spec = |name: &&str| {
            let model = self.models.get(*name).ok_or_else(|| SchedError::UnknownModel((*name).to_owned()))?;
            Ok(ModelSpec {
                name: (*name).to_owned(),
                backend: self.backend.clone(),
                link: self.link.clone(),
                binding,
                material_bytes: model.key_bytes_server + model.key_bytes_client,
                pre: PhaseSpec { first: model.pre.sample(), speedup: pre },
                on: PhaseSpec { first: model.on.sample(), speedup: on },
            })
        };
        names.iter().map(spec).collect()
    }
}
