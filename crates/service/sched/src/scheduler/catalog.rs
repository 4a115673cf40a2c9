//! The models, the expected costs of their jobs, and the thread counts of these jobs.

use crate::config::{BoundTo, ModelSpec};
use crate::error::SchedError;
use crate::ids::{ClientId, JobPhase, ModelId};
use crate::message::Usage;
use crate::policy::{ClassFacts, ThreadOption};
use crate::profile::{Measured, ProfileTable, Sample};
use crate::queue::ClassKey;
use crate::resources::Resources;
use crate::scheduler::machine::Job;
use crate::time::Span;

#[derive(Clone, Debug)]
struct Served {
    spec: ModelSpec,
    removed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Catalog {
    models: Vec<Served>,
    /// Number of served models whose T_pre is a dealing.
    dealt: usize,
    profile: ProfileTable,
    pre_threads: Vec<u32>,
    on_threads: Vec<u32>,
}

impl Catalog {
    /// Thread counts ascending, at least one for each phase.
    pub fn new(models: Vec<ModelSpec>, pre_threads: Vec<u32>, on_threads: Vec<u32>) -> Self {
        let mut catalog = Self { models: Vec::new(), dealt: 0, profile: ProfileTable::new(), pre_threads, on_threads };
        for spec in models {
            catalog.add(spec);
        }
        catalog
    }

    /// Adds a model; its id is its index.
    pub fn add(&mut self, spec: ModelSpec) -> ModelId {
        let id = self.profile.add_model(spec.pre, spec.on);
        self.dealt += usize::from(spec.dealt);
        self.models.push(Served { spec, removed: false });
        id
    }

    pub fn remove(&mut self, model: ModelId) {
        let served = &mut self.models[model.0 as usize];
        self.dealt -= usize::from(served.spec.dealt && !served.removed);
        served.removed = true;
    }

    pub fn is_removed(&self, model: ModelId) -> bool {
        self.models[model.0 as usize].removed
    }

    fn spec(&self, model: ModelId) -> &ModelSpec {
        &self.models[model.0 as usize].spec
    }

    /// Replaces the learned values by those of an earlier run for the same models.
    pub fn restore(&mut self, profile: ProfileTable) -> Result<(), SchedError> {
        if profile.models() != self.models.len() {
            return Err(SchedError::OutOfRange {
                what: "models in the saved profile",
                value: profile.models().to_string(),
                allowed: "the number of models served",
            });
        }
        let measured = |model, phase| profile.estimate(model, phase, 1, 1).is_some();
        let lacking = self
            .ids()
            .find(|&model| !measured(model, JobPhase::On) || self.has_pre(model) && !measured(model, JobPhase::Pre));
        if let Some(ModelId(model)) = lacking {
            return Err(SchedError::OutOfRange {
                what: "measurements in the saved profile",
                value: format!("none for a phase of model {model}"),
                allowed: "at least one for each phase",
            });
        }
        self.profile = profile;
        Ok(())
    }

    pub fn profile(&self) -> &ProfileTable {
        &self.profile
    }

    /// The ids of all models, removed ones included.
    pub fn ids(&self) -> impl Iterator<Item = ModelId> + use<> {
        (0..self.models.len() as u32).map(ModelId)
    }

    /// Whether a model id that a peer named is served.
    pub fn serves(&self, model: ModelId) -> bool {
        self.models.get(model.0 as usize).is_some_and(|served| !served.removed)
    }

    pub fn has_pre(&self, model: ModelId) -> bool {
        self.spec(model).pre.is_some()
    }

    pub fn binding(&self, model: ModelId) -> BoundTo {
        self.spec(model).binding
    }

    pub fn deals_at_all(&self) -> bool {
        self.dealt > 0
    }

    pub fn deals(&self, model: ModelId, phase: JobPhase) -> bool {
        phase == JobPhase::Pre && self.spec(model).dealt
    }

    pub fn disk(&self, model: ModelId) -> u64 {
        self.spec(model).material_bytes
    }

    /// The client that must take part in a job of this model.
    pub fn bound_client(&self, model: ModelId, client: ClientId) -> Option<ClientId> {
        match self.binding(model) {
            BoundTo::Unbound => None,
            BoundTo::Client => Some(client),
        }
    }

    fn thread_counts(&self, phase: JobPhase) -> &[u32] {
        match phase {
            JobPhase::Pre => &self.pre_threads,
            JobPhase::On => &self.on_threads,
        }
    }

    /// Ways to run a phase on a machine of `cores` cores, by threads. A dealing has one way.
    pub fn options(&self, model: ModelId, phase: JobPhase, batch: u32, cores: u32) -> Vec<ThreadOption> {
        let mut options: Vec<ThreadOption> = Vec::new();
        for &threads in self.thread_counts(phase) {
            // Thread counts above the machine's are left out, but one option always remains.
            if (threads > cores || self.deals(model, phase)) && !options.is_empty() {
                break;
            }
            if let Some(e) = self.profile.estimate(model, phase, batch, threads) {
                options.push(ThreadOption { threads, time: e.time, memory: e.memory });
            }
        }
        options
    }

    /// Time of a phase on the fewest threads; zero for a T_pre that the model lacks.
    pub fn length(&self, model: ModelId, phase: JobPhase) -> Span {
        let threads = self.thread_counts(phase)[0];
        self.profile.estimate(model, phase, 1, threads).map_or(Span::ZERO, |estimate| estimate.time)
    }

    /// Time of the phases that take cores, on the fewest threads.
    pub fn work(&self, model: ModelId) -> Span {
        let pre = if self.deals(model, JobPhase::Pre) { Span::ZERO } else { self.length(model, JobPhase::Pre) };
        pre + self.length(model, JobPhase::On)
    }

    pub fn facts(&self, key: &ClassKey, capacity: Resources) -> ClassFacts {
        let later = match key.phase {
            JobPhase::Pre => self.options(key.model, JobPhase::On, key.batch, capacity.cores),
            JobPhase::On => Vec::new(),
        };
        ClassFacts {
            model: key.model,
            phase: key.phase,
            batch: key.batch,
            origin: key.origin,
            deadline: key.deadline,
            options: self.options(key.model, key.phase, key.batch, capacity.cores),
            later,
            disk: self.disk(key.model),
            dealing: self.deals(key.model, key.phase),
            capacity,
        }
    }

    /// Returns whether an estimate of the job's model may have changed.
    pub fn learn(&mut self, job: &Job, client: Option<ClientId>, usage: Usage) -> bool {
        let actual = Measured { sample: Sample { time: usage.time, memory: usage.peak_memory }, from: client };
        self.profile.learn(job.model, job.task.phase(), job.batch, job.threads, actual, job.estimate)
    }
}
