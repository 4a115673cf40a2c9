//! Models that are added and withdrawn, and estimates from their jobs.
use super::{Effect, InputOrigin, Job, Queue, Refused, ScheduledModel};
use crate::jobs::estimates;
use crate::models::catalog::Offered;
use crate::ops::state::Learned;
use std::collections::BTreeSet;
use tacit_backends::Preparation;
use tacit_sched::{Event, ModelId, Span};

impl Queue {
    /// Returns the scheduler's model, adding it if it is new.
    pub(super) fn model(&mut self, origin: &InputOrigin) -> Result<ModelId, Refused> {
        let device = estimates::device_class(origin.device);
        let key = (origin.offered.plan, device);
        if let Some(&model) = self.models.ids.get(&key) {
            return Ok(model);
        }
        let model = ModelId(self.models.by_id.len() as u32);
        let max_memory = self.settings.job_memory;
        let spec =
            estimates::model_spec(&origin.offered, device, &self.models.learned, self.settings.threads, max_memory);
        self.handle(Event::ModelAdded(spec)).map_err(|e| e.to_string())?;
        self.models.ids.insert(key, model);
        let dealt = estimates::only_waits(&*origin.offered.model);
        self.models.by_id.push(ScheduledModel::new(&origin.offered, device, dealt));
        self.make_room(self.memory_of(model));
        self.open_pool(&origin.offered);
        Ok(model)
    }

    /// Whether the duration of any of a model's phases is unknown, for a client on a machine like
    /// this one.
    pub(crate) fn is_cold(&self, offered: &Offered) -> bool {
        let has_offline = offered.model.preparation() != Preparation::Nothing;
        !self.knows(offered, "online") || has_offline && !self.knows(offered, "offline")
    }

    fn knows(&self, offered: &Offered, phase: &str) -> bool {
        let device = estimates::class_name(estimates::LOCAL_DEVICE);
        self.models.learned.get(offered.plan, &device, phase, self.settings.threads).is_some()
    }

    /// Adds the expected duration of a phase, until a job of it has run.
    pub(crate) fn expect(&mut self, learned: Learned) {
        self.models.learned.add(learned);
    }

    /// Withdraws plans and their batches: waiting inputs end, running jobs continue, ready material
    /// is burnt.
    pub(crate) fn withdraw(&mut self, plans: &BTreeSet<[u8; 32]>) {
        let kinds = &self.models.by_id;
        let is_gone = |model: &ModelId| plans.contains(&kinds[model.0 as usize].single_plan);
        let withdrawn: Vec<ModelId> = self.models.ids.values().copied().filter(is_gone).collect();
        self.models.ids.retain(|_, model| !is_gone(model));
        for model in withdrawn {
            self.handle_or_ignore(Event::ModelRemoved { model });
        }
        self.close_pools(plans);
    }

    pub(super) fn is_served(&self, model: ModelId) -> bool {
        let kind = &self.models.by_id[model.0 as usize];
        self.models.ids.get(&(kind.plan, kind.device)) == Some(&model)
    }

    /// Records the new estimate after a job, for later runs. `took` is its duration if that may be
    /// compared with the expected one.
    pub(super) fn record_estimate(&mut self, job: &Job, took: Option<Span>) {
        let estimate = self.scheduler.profile().estimate(job.model, job.phase, 1, job.threads);
        let Some((estimate, kind)) = estimate.zip(self.models.by_id.get(job.model.0 as usize)) else { return };
        if let Some(took) = took.filter(|took| *took > Span::ZERO) {
            let offer = kind.offer();
            self.effects.push(Effect::Compared { offer, phase: job.phase, expected: job.expected, took });
        }
        self.effects.push(Effect::Learned(Learned {
            plan: kind.plan,
            device: estimates::class_name(kind.device),
            phase: estimates::phase_name(job.phase),
            threads: job.threads,
            seconds: estimate.time.secs(),
            memory: estimate.memory,
        }));
    }
}
