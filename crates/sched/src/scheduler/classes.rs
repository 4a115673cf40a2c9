//! Facts about classes of jobs, kept in step with the profile table and the machine.

use super::Scheduler;
use super::state::{GroupId, Input};
use crate::ids::{ModelId, Origin, Phase};
use crate::message::Rejected;
use crate::policy::{ClassFacts, Policy, ThreadOption};
use crate::queue::{ClassIdx, ClassKey};
use crate::resources::Resources;
use crate::time::Span;

impl<P: Policy> Scheduler<P> {
    /// Ways to run a phase on this machine, by threads.
    pub(super) fn options(&self, model: ModelId, phase: Phase, batch: u32) -> Vec<ThreadOption> {
        let mut options: Vec<ThreadOption> = Vec::new();
        for &threads in self.thread_counts(phase) {
            // Thread counts above the machine's are left out, but one option always remains.
            if threads > self.capacity.cores && !options.is_empty() {
                break;
            }
            if let Some(e) = self.profile.estimate(model, phase, batch, threads) {
                options.push(ThreadOption { threads, time: e.time, memory: e.memory });
            }
        }
        options
    }

    /// Time of a phase on the fewest threads.
    pub(super) fn length(&self, model: ModelId, phase: Phase) -> Span {
        let threads = self.thread_counts(phase)[0];
        self.profile.estimate(model, phase, 1, threads).map(|e| e.time).unwrap_or_default()
    }

    pub(super) fn disk(&self, model: ModelId) -> u64 {
        self.models[model.0 as usize].material_bytes
    }

    fn facts(&self, key: &ClassKey) -> ClassFacts {
        let later = match key.phase {
            Phase::Pre => self.options(key.model, Phase::On, key.batch),
            Phase::On => Vec::new(),
        };
        ClassFacts {
            model: key.model,
            phase: key.phase,
            batch: key.batch,
            origin: key.origin,
            deadline: key.deadline,
            options: self.options(key.model, key.phase, key.batch),
            later,
            disk: self.disk(key.model),
            capacity: self.capacity,
        }
    }

    /// The class that an input belongs to in this phase; made on first use.
    pub(super) fn class_for(&mut self, input: &Input, phase: Phase) -> ClassIdx {
        let group = &self.groups[&input.group];
        let origin = match input.group {
            GroupId::Notice(_) => Origin::Notice,
            GroupId::Request(_) => Origin::Request,
        };
        let key = ClassKey { model: group.model, phase, batch: group.batch, origin, deadline: group.deadline };
        if let Some(class) = self.queues.find(&key) {
            return class;
        }
        let facts = self.facts(&key);
        let rank = self.policy.rank(&facts);
        self.queues.add_class(facts, key, rank)
    }

    /// Brings a model's classes up to date after its estimates changed.
    pub(super) fn refresh_model(&mut self, model: ModelId) {
        for class in self.queues.classes_of(model) {
            self.refresh_class(class);
        }
        self.dirty = true;
    }

    /// Brings every class up to date after the machine changed.
    pub(super) fn refresh_all(&mut self) {
        for class in self.queues.all_classes() {
            self.refresh_class(class);
        }
        self.dirty = true;
    }

    fn refresh_class(&mut self, class: ClassIdx) {
        let facts = self.facts(&self.queues.class(class).key);
        if facts != self.queues.class(class).facts {
            let rank = self.policy.rank(&facts);
            self.queues.set_facts(class, facts, rank);
        }
    }

    /// The least that a phase needs, where that is more than there will ever be.
    ///
    /// A machine with no cores at all is paused, not too small.
    pub(super) fn never_fits(&self, options: &[ThreadOption], disk: u64) -> Option<Resources> {
        let paused = self.capacity.cores == 0;
        let fits = |o: &ThreadOption| {
            let need = Resources { cores: o.threads, memory: o.memory, disk };
            let have = Resources { cores: if paused { u32::MAX } else { self.capacity.cores }, ..self.capacity };
            need.fits(&have)
        };
        if options.iter().any(fits) {
            return None;
        }
        let least = options.iter().min_by_key(|o| (o.memory, o.threads));
        Some(least.map_or_else(Resources::default, |o| Resources { cores: o.threads, memory: o.memory, disk }))
    }

    /// Refuses a model that this machine cannot run.
    pub(super) fn check_fits(&self, model: ModelId, batch: u32) -> Result<(), Rejected> {
        for (phase, disk) in [(Phase::Pre, self.disk(model)), (Phase::On, 0)] {
            let options = self.options(model, phase, batch);
            if let Some(need) = self.never_fits(&options, disk) {
                return Err(Rejected::NeverFits { phase, need, have: self.capacity });
            }
        }
        Ok(())
    }
}
