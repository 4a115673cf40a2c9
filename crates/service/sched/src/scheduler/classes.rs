//! Facts about classes of jobs, kept in step with the profile table and the machine.

use super::Scheduler;
use super::state::Stage;
use crate::ids::{JobPhase, ModelId, Origin, Owner};
use crate::message::Rejected;
use crate::policy::{JobFacts, Policy, Score};
use crate::queue::{ClassIdx, ClassKey, InputKey, Slot};
use crate::time::Span;

impl<P: Policy> Scheduler<P> {
    /// The class of a waiting input, created on first use.
    pub(super) fn class_for(&mut self, key: InputKey) -> ClassIdx {
        let (input, group) = (self.work.input(key), self.work.group_of(key));
        let origin = match input.group {
            Owner::Notice(_) => Origin::Notice,
            Owner::Request(_) => Origin::Request,
        };
        let phase = if input.stage == Stage::WaitPre { JobPhase::Pre } else { JobPhase::On };
        let key = ClassKey { model: group.model, phase, batch: group.batch, origin, deadline: group.deadline };
        if let Some(class) = self.queues.find(&key) {
            return class;
        }
        let facts = self.catalog.facts(&key, self.machine.capacity());
        let rank = self.policy.rank(&facts);
        self.queues.add_class(facts, key, rank)
    }

    pub(super) fn refresh_model(&mut self, model: ModelId) {
        for class in self.queues.classes_of(model) {
            self.refresh_class(class);
        }
        self.out.stir();
    }

    pub(super) fn refresh_all(&mut self) {
        for class in self.queues.all_classes() {
            self.refresh_class(class);
        }
        self.out.stir();
    }

    /// Requeues every queued job after the policy changed.
    pub(super) fn refile(&mut self) {
        let queued = self.work.backlogs();
        for &(key, slot, _) in &queued {
            self.queues.remove(slot, key, self.work.group_of(key).client);
        }
        for class in self.queues.all_classes() {
            let facts = self.queues.class(class).facts.clone();
            let rank = self.policy.rank(&facts);
            self.queues.set_facts(class, facts, rank);
        }
        for (key, slot, backlog) in queued {
            let slot = Slot { tag: self.tag(key, backlog), ..slot };
            self.work.set_slot(key, Some(slot));
            self.queues.insert(slot, key, self.work.group_of(key).client);
        }
        self.out.stir();
    }

    /// The fixed part of a waiting input's score.
    pub(super) fn tag(&self, key: InputKey, backlog: Span) -> Score {
        let input = self.work.input(key);
        self.policy.tag(&JobFacts {
            arrived: input.since,
            entered: input.entered,
            backlog,
            clients: self.work.clients() as u32,
            cores: self.machine.capacity().cores.max(1),
        })
    }

    fn refresh_class(&mut self, class: ClassIdx) {
        let facts = self.catalog.facts(&self.queues.class(class).key, self.machine.capacity());
        if facts != self.queues.class(class).facts {
            let rank = self.policy.rank(&facts);
            self.queues.set_facts(class, facts, rank);
        }
    }

    pub(super) fn check_fits(&self, model: ModelId, batch: u32) -> Result<(), Rejected> {
        let have = self.machine.capacity();
        for (phase, disk) in [(JobPhase::Pre, self.catalog.disk(model)), (JobPhase::On, 0)] {
            if phase == JobPhase::Pre && !self.catalog.has_pre(model) {
                continue;
            }
            let options = self.catalog.options(model, phase, batch, have.cores);
            if let Some(need) = self.machine.never_fits(&options, self.catalog.deals(model, phase), disk) {
                return Err(Rejected::NeverFits { phase, need, have });
            }
        }
        Ok(())
    }
}
