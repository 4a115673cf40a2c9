//! Profile files: measured job times and memory of one back end on one machine.

use crate::error::SimError;
use serde::Deserialize;
use std::collections::BTreeMap;
use tacit_sched::profile::{Sample, Speedup};
use tacit_sched::{BoundTo, ModelSpec, PhaseSpec, Span};

/// A profile file (such as `shark-1thread.json`). Ignores fields that the simulator does not use.
#[derive(Clone, Debug, Deserialize)]
pub struct ProfileFile {
    backend: String,
    link: String,
    models: BTreeMap<String, Model>,
}

#[derive(Clone, Debug, Deserialize)]
struct Model {
    pre: JobPhase,
    on: JobPhase,
    key_bytes_server: u64,
    key_bytes_client: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct JobPhase {
    wall_s: f64,
    #[serde(default)]
    load_s: f64,
    peak_rss_bytes: u64,
}

impl JobPhase {
    /// Reading the material is part of the job.
    fn spec(&self, speedup: Speedup) -> PhaseSpec {
        let time = Span::from_secs(self.wall_s + self.load_s);
        PhaseSpec { first: Sample { time, memory: self.peak_rss_bytes }, speedup }
    }
}

impl ProfileFile {
    /// The profile of the public SHARK code, one thread a party, measured on a machine with two cores.
    pub fn shark() -> Self {
        Self::parse(include_str!("../profiles/shark-1thread.json")).expect("the shipped profile has been tested")
    }

    /// Reads a profile file's text.
    ///
    /// # Errors
    /// [`SimError::BadFile`] with the line and the reason.
    pub fn parse(text: &str) -> Result<Self, SimError> {
        let refuse = |line, why| SimError::BadFile { what: "profile", line, why };
        let file: Self = serde_json::from_str(text).map_err(|e| refuse(e.line(), e.to_string()))?;
        for (name, model) in &file.models {
            for secs in [model.pre.wall_s, model.pre.load_s, model.on.wall_s, model.on.load_s] {
                if !(0.0..1e6).contains(&secs) {
                    return Err(refuse(0, format!("{name}: {secs} is no time in seconds")));
                }
            }
        }
        Ok(file)
    }

    /// A model in the scheduler's form, with material bound to the client, and with assumed
    /// speed-ups of T_pre and T_on.
    ///
    /// # Errors
    /// [`SimError::UnknownModel`] if the profile lacks the model.
    pub(crate) fn model(
        &self,
        name: &str,
        pre_speedup: Speedup,
        online_speedup: Speedup,
    ) -> Result<ModelSpec, SimError> {
        let model = self.models.get(name).ok_or_else(|| SimError::UnknownModel(name.to_owned()))?;
        Ok(ModelSpec {
            name: name.to_owned(),
            backend: self.backend.clone(),
            link: self.link.clone(),
            binding: BoundTo::Client,
            // A dealer writes both parties' halves to the same disk.
            material_bytes: model.key_bytes_server + model.key_bytes_client,
            dealt: false,
            pre: Some(model.pre.spec(pre_speedup)),
            on: model.on.spec(online_speedup),
        })
    }
}
