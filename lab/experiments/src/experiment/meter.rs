//! The meter of a campaign: its sources, idle baselines, and each party's energy.
use super::spec::ExperimentSpec;
use crate::LabError;
use crate::campaign;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tacit_measure::device::DeviceProfile;
use tacit_meter::energy::{self, Baseline, Coefficients};
use tacit_meter::record::EnergyFigure;
use tacit_meter::sampler::Stopped;
use tacit_meter::source::{self, Provenance, Roots, SelfTest, Source, ThisMachine, self_test};
use tacit_meter::{MeterError, Sampler, SamplerConfig};

pub(super) struct Meter {
    sources: Vec<Box<dyn Source>>,
    /// Name of the first source, if it is a sensor.
    primary: Option<String>,
    coefficients: Option<Coefficients>,
    baselines: BTreeMap<String, Baseline>,
    interval: Duration,
    machine: BTreeMap<String, String>,
}

impl Meter {
    /// Opens the experiment's sources and tests each sensor under load; without a sensor, uses the
    /// model of the device. A source found by `auto` that does not respond to load is skipped, and
    /// `tell` gets the reason.
    pub(super) fn open(
        spec: &ExperimentSpec,
        machine: BTreeMap<String, String>,
        tell: &mut dyn FnMut(String),
    ) -> Result<Self, LabError> {
        let roots = Roots::system();
        let mut sources: Vec<Box<dyn Source>> = vec![];
        for name in &spec.sources {
            if name == "auto" {
                for detected in source::detect(&roots).into_iter().filter(source::Detected::is_usable) {
                    let mut detected = detected.into_source()?;
                    match check_load(detected.as_mut(), tell) {
                        Ok(()) => sources.push(detected),
                        Err(error) => tell(format!("left out: {error}")),
                    }
                }
            } else {
                let mut source_named = source::open(name, &roots)?;
                check_load(source_named.as_mut(), tell)?;
                sources.push(source_named);
            }
        }
        let first = sources.first().map(|s| s.info());
        let primary = first.filter(|i| i.provenance != Provenance::Modelled).map(|i| i.name.clone());
        let coefficients = spec.device.as_deref().map(coefficients).transpose()?;
        if let (None, Some(device)) = (&primary, &spec.device) {
            // For the course of power over time.
            sources.push(source::open(&format!("model:{device}"), &roots)?);
        }
        let interval = Duration::from_secs_f64(spec.interval_s);
        Ok(Self { sources, primary, coefficients, baselines: BTreeMap::new(), interval, machine })
    }

    pub(super) fn describe(&self) -> String {
        let names: Vec<&str> = self.sources.iter().map(|s| s.info().name.as_str()).collect();
        match (&self.primary, &self.coefficients) {
            (Some(_), _) => format!("joules from {}", names.join(", ")),
            (None, Some(_)) => format!("no power sensor: joules are modelled ({})", names.join(", ")),
            (None, None) => "no power sensor and no device profile: no joules (see `tacit lab sensors`)".into(),
        }
    }

    /// Starts sampling into `output`. The sampler has the sources until [`Self::take_back`].
    pub(super) fn start(
        &mut self,
        output: PathBuf,
        labels: BTreeMap<String, String>,
        facts: &BTreeMap<String, String>,
        interval: Option<Duration>,
    ) -> Result<Sampler, LabError> {
        campaign::remove(&output).map_err(LabError::io(&output))?;
        let mut machine = self.machine.clone();
        machine.extend(facts.clone());
        let config = SamplerConfig {
            interval: interval.unwrap_or(self.interval),
            sources: std::mem::take(&mut self.sources),
            machine,
            labels,
            output: Some(output),
            keep_samples: interval.is_some(),
            ..SamplerConfig::default()
        };
        Ok(Sampler::start(config)?)
    }

    pub(super) fn take_back(&mut self, stopped: &mut Stopped) {
        self.sources = std::mem::take(&mut stopped.sources);
    }

    /// Interval for an idle baseline of this length: the usual one, shortened for at least ten samples.
    pub(super) fn idle_interval(&self, length: Duration) -> Duration {
        self.interval.min(length / 10).max(Duration::from_millis(1))
    }

    /// Sets the baselines from an idle record; sources with too few samples retain theirs.
    pub(super) fn set_baselines(&mut self, stopped: &Stopped) -> BTreeMap<String, Baseline> {
        let new = stopped.baselines();
        self.baselines.extend(new.iter().map(|(k, v)| (k.clone(), *v)));
        new
    }

    /// Adds the energy of the record and of each party to its summary. A sensor's energy is divided
    /// among the parties; without a sensor, each party's is modelled as if on its own device.
    /// `bytes`: network bytes by party, if the sampler saw none. `others_s`: processor seconds
    /// outside the parties.
    pub(super) fn settle(
        &self,
        stopped: &mut Stopped,
        bytes: &BTreeMap<String, f64>,
        others_s: f64,
    ) -> BTreeMap<String, EnergyFigure> {
        stopped.subtract_idle(&self.baselines);
        if let Some(primary) = &self.primary {
            stopped.attribute(primary, others_s);
        } else if let Some(coefficients) = &self.coefficients {
            let duration = stopped.summary.duration_s;
            let parties = &stopped.summary.parties;
            let figures = parties.iter().map(|(name, p)| {
                let counted = stopped.party_bytes.get(name).map(|b| *b as f64);
                let bytes_moved = counted.or_else(|| bytes.get(name).copied()).unwrap_or(0.0);
                (name.clone(), energy::modelled(p.user_s + p.system_s, bytes_moved, duration, coefficients))
            });
            stopped.summary.party_energy = figures.collect();
        }
        stopped.summary.party_energy.clone()
    }
}

/// Self-tests a sensor; computed and replayed sources need no test.
fn check_load(source: &mut dyn Source, tell: &mut dyn FnMut(String)) -> Result<(), LabError> {
    let info = source.info();
    if info.provenance == Provenance::Modelled {
        return Ok(());
    }
    tell(format!("testing power source {} at rest and under load", info.name));
    self_test(source, &mut ThisMachine::new()?, &SelfTest::default())?;
    Ok(())
}

/// Coefficients of `PROFILE` or `PROFILE/MODE`.
fn coefficients(device: &str) -> Result<Coefficients, LabError> {
    let (profile, mode) = DeviceProfile::load_with_mode(device).map_err(MeterError::from)?;
    Ok(profile.mode(mode).map_err(MeterError::from)?.into())
}
