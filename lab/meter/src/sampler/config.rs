//! Settings and results of a sampler.
use crate::MeterError;
use crate::energy::{self, Baseline};
use crate::record::{Line, Mark, Note, Sample, Summary};
use crate::record_file::RecordWriter;
use crate::source::Source;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tacit_measure::usage::Roots;

/// What to sample, and the file of the record.
pub struct SamplerConfig {
    /// Name of the measured host, for the header.
    pub host: String,
    /// Sampling interval, at least 1 ms. Default 1 s ([PM24]).
    pub interval: Duration,
    /// Power sources, the primary one first. May be empty: then joules are absent.
    pub sources: Vec<Box<dyn Source>>,
    /// Facts about the machine, for the header.
    pub machine: BTreeMap<String, String>,
    /// Labels, for the header.
    pub labels: BTreeMap<String, String>,
    /// File of the record; `None` writes none.
    pub output: Option<PathBuf>,
    /// Whether `Stopped` returns samples and marks.
    pub keep_samples: bool,
    /// Interfaces whose bytes a model counts, by their name in samples. `None`: all except `lo` and
    /// tunnels, of the parties' own network namespaces if there are any, else of the host.
    pub counted_interfaces: Option<Vec<String>>,
    /// Paths of `/proc` and `/sys`.
    pub roots: Roots,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            host: "local".into(),
            interval: Duration::from_secs(1),
            sources: Vec::new(),
            machine: BTreeMap::new(),
            labels: BTreeMap::new(),
            output: None,
            keep_samples: false,
            counted_interfaces: None,
            roots: Roots::default(),
        }
    }
}

/// A sampler that has stopped. [`finish`](Self::finish) completes its record.
pub struct Stopped {
    /// Gross energy by source, the parties' processor time and peak memory, the duration. Add
    /// results, net and party energy ([`subtract_idle`](Self::subtract_idle)) before `finish`.
    pub summary: Summary,
    /// All samples, with `keep_samples`.
    pub samples: Vec<Sample>,
    /// All marks, with `keep_samples`.
    pub marks: Vec<Mark>,
    /// Notes: failed sources, missed deadlines, lost lines.
    pub notes: Vec<Note>,
    /// The sources, for the next sampler.
    pub sources: Vec<Box<dyn Source>>,
    /// Bytes over each party's own network namespace, both ways; absent for parties in the host's.
    pub party_bytes: BTreeMap<String, u64>,
    /// Processor time of the sampling thread, seconds.
    pub sampler_cpu_s: f64,
    /// Samples taken.
    pub sample_count: u64,
    /// Lines that could not be written (full disk).
    pub lost_lines: u64,
    /// Seconds of observation, by source.
    pub(super) covered: BTreeMap<String, f64>,
    pub(super) writer: Option<RecordWriter>,
}

impl Stopped {
    /// Computes net energy for every source with a baseline, for the time that it was observed.
    pub fn subtract_idle(&mut self, baselines: &BTreeMap<String, Baseline>) {
        for (name, figure) in &mut self.summary.energy {
            if let Some(baseline) = baselines.get(name) {
                let seconds = self.covered.get(name).copied().unwrap_or(self.summary.duration_s);
                *figure = energy::net(figure.gross_j, baseline, seconds, figure.provenance);
            }
        }
    }

    /// Idle baselines by source; requires a run on an idle host with `keep_samples`.
    #[must_use]
    pub fn baselines(&self) -> BTreeMap<String, Baseline> {
        let baselines = self.sources.iter().filter_map(|source| {
            let info = source.info();
            let counted: Vec<bool> = info.rails.iter().map(|r| r.counted).collect();
            Some((info.name.clone(), Baseline::from_samples(&self.samples, &info.name, &counted)?))
        });
        baselines.collect()
    }

    /// Divides the energy of the host's primary source among the parties
    /// ([`energy::attribute`]). `others_s`: processor seconds of work only for the measurement.
    pub fn attribute(&mut self, primary: &str, others_s: f64) {
        if let Some(host) = self.summary.energy.get(primary) {
            let cpu_s = self.summary.parties.iter().map(|(name, p)| (name.clone(), p.user_s + p.system_s)).collect();
            self.summary.party_energy = energy::attribute(host, &cpu_s, CPU_SD_S, others_s);
        }
    }

    /// Writes the summary as the record's last line and makes the record durable.
    ///
    /// # Errors
    /// [`MeterError::io`] if the summary cannot be written; all earlier lines stay.
    pub fn finish(self) -> Result<Summary, MeterError> {
        if let Some(mut writer) = self.writer {
            writer.append(&Line::Summary(self.summary.clone()))?;
            writer.sync()?;
        }
        Ok(self.summary)
    }
}

/// Standard uncertainty of the processor time of a running party: a thread lags up to a scheduler's
/// tick, 10 ms at most, at both ends: 10 ms / sqrt(12), twice.
const CPU_SD_S: f64 = 0.0041;
