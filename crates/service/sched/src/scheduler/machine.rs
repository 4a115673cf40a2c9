//! The machine: capacity, running jobs, and the room reserved for one job.

use super::same::check_equal;
use crate::ids::{JobId, JobPhase, MaterialId, ModelId};
use crate::policy::ThreadOption;
use crate::pool::PoolKey;
use crate::queue::InputKey;
use crate::resources::Resources;
use crate::time::{Span, Time};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Pre(InputKey),
    Refill(PoolKey),
    /// T_on of an input, with the material that it consumes, if it needs any.
    On(InputKey, Option<MaterialId>),
}

impl Task {
    pub fn phase(&self) -> JobPhase {
        match self {
            Self::Pre(_) | Self::Refill(_) => JobPhase::Pre,
            Self::On(..) => JobPhase::On,
        }
    }

    pub fn input(&self) -> Option<InputKey> {
        match *self {
            Self::Pre(key) | Self::On(key, _) => Some(key),
            Self::Refill(_) => None,
        }
    }

    pub fn material(&self) -> Option<MaterialId> {
        match *self {
            Self::On(_, material) => material,
            Self::Pre(_) | Self::Refill(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub task: Task,
    pub model: ModelId,
    pub batch: u32,
    /// Cores, or a dealing, and memory; for a T_pre also the disk of its material.
    pub holds: Resources,
    pub threads: u32,
    pub started: Time,
    pub estimate: Span,
    /// Started while the present reservation stood.
    overtook: bool,
}

/// A job that was asked to stop and still holds its resources.
#[derive(Clone, Copy, Debug)]
struct Stopping {
    holds: Resources,
    /// Started while the present reservation stood.
    overtook: bool,
}

/// Room reserved for the oldest job that lacked memory, disk or a large thread count.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    input: InputKey,
    need: Resources,
    /// When the jobs running at the time of the reservation are expected to have made room.
    shadow: Time,
    /// Resources of the jobs that started since.
    overtakers: Resources,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    capacity: Resources,
    /// Resources of running jobs, of stopping jobs, and of live material.
    used: Resources,
    jobs: BTreeMap<JobId, Job>,
    stopping: BTreeMap<JobId, Stopping>,
    next_job: u64,
    reservation: Option<Reservation>,
}

impl Machine {
    pub fn new(capacity: Resources) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub fn capacity(&self) -> Resources {
        self.capacity
    }

    /// Running jobs continue; the reservation was computed for the old capacity and ends.
    pub fn set_capacity(&mut self, capacity: Resources) {
        self.capacity = capacity;
        self.reservation = None;
        self.forget_overtakers();
    }

    pub fn used(&self) -> Resources {
        self.used
    }

    pub fn free(&self) -> Resources {
        self.capacity.minus(&self.used)
    }

    /// Most cores that one group may hold.
    pub fn window(&self, share: f64) -> u32 {
        if share >= 1.0 {
            return u32::MAX;
        }
        ((f64::from(self.capacity.cores) * share) as u32).max(1)
    }

    /// The least resources that a job needs, if these exceed the capacity. A machine without cores
    /// counts as paused.
    pub fn never_fits(&self, options: &[ThreadOption], dealing: bool, disk: u64) -> Option<Resources> {
        let paused = self.capacity.cores == 0;
        let have = Resources { cores: if paused { u32::MAX } else { self.capacity.cores }, ..self.capacity };
        if options.iter().any(|o| o.holds(dealing, disk).fits(&have)) {
            return None;
        }
        let smallest = options.iter().min_by_key(|o| (o.memory, o.threads));
        Some(smallest.map_or_else(Resources::default, |o| o.holds(dealing, disk)))
    }

    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    pub fn jobs(&self) -> impl ExactSizeIterator<Item = &Job> {
        self.jobs.values()
    }

    /// Number of running and stopping jobs.
    pub fn busy(&self) -> usize {
        self.jobs.len() + self.stopping.len()
    }

    /// The machine must have `holds` free.
    pub fn launch(
        &mut self,
        task: Task,
        model: ModelId,
        batch: u32,
        holds: Resources,
        option: ThreadOption,
        now: Time,
    ) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.used.add(&holds);
        if let Some(reservation) = &mut self.reservation {
            reservation.overtakers.add(&holds);
        }
        let overtook = self.reservation.is_some();
        let ThreadOption { threads, time: estimate, .. } = option;
        self.jobs.insert(id, Job { task, model, batch, holds, threads, started: now, estimate, overtook });
        id
    }

    pub fn take(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        self.give_back(&job.holds, job.overtook);
        Some(job)
    }

    /// The job holds its resources until it has stopped.
    pub fn stop(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        self.stopping.insert(id, Stopping { holds: job.holds, overtook: job.overtook });
        Some(job)
    }

    /// False if no such job was stopping.
    pub fn remove_stopped(&mut self, id: JobId) -> bool {
        let Some(job) = self.stopping.remove(&id) else { return false };
        self.give_back(&job.holds, job.overtook);
        true
    }

    fn give_back(&mut self, holds: &Resources, overtook: bool) {
        self.used.sub(holds);
        if overtook && let Some(reservation) = &mut self.reservation {
            reservation.overtakers.sub(holds);
        }
    }

    /// Changes the task of a running T_pre. Returns its resources, its threads and its start.
    pub fn reassign(&mut self, id: JobId, task: Task) -> (Resources, u32, Time) {
        let job = self.jobs.get_mut(&id).expect("only a running job is given to another");
        debug_assert!(job.task.phase() == JobPhase::Pre);
        debug_assert!(task.phase() == JobPhase::Pre);
        job.task = task;
        (job.holds, job.threads, job.started)
    }

    pub fn hold_disk(&mut self, bytes: u64) {
        self.used.disk += bytes;
    }

    pub fn free_disk(&mut self, bytes: u64) {
        self.used.disk -= bytes;
    }

    pub fn holder(&self) -> Option<InputKey> {
        self.reservation.map(|r| r.input)
    }

    pub fn reserve(&mut self, input: InputKey, need: Resources, now: Time) {
        let shadow = self.shadow(&need, now);
        self.forget_overtakers();
        self.reservation = Some(Reservation { input, need, shadow, overtakers: Resources::default() });
    }

    /// False if this input had no reservation.
    pub fn unreserve(&mut self, input: InputKey) -> bool {
        let is_holder = self.holder() == Some(input);
        if is_holder {
            self.reservation = None;
        }
        is_holder
    }

    /// Clears the marks of overtakers, which are valid only for the reservation under which they
    /// started.
    fn forget_overtakers(&mut self) {
        self.jobs.values_mut().for_each(|job| job.overtook = false);
        self.stopping.values_mut().for_each(|job| job.overtook = false);
    }

    /// When the running jobs are expected to have made room for `need`. Stopping jobs, whose end is
    /// unknown, count as stopped.
    fn shadow(&self, need: &Resources, now: Time) -> Time {
        let mut ends: Vec<(Time, Resources)> =
            self.jobs.values().map(|j| ((j.started + j.estimate).max(now), j.holds)).collect();
        ends.sort_by_key(|&(end, _)| end);
        let mut used = self.used;
        self.stopping.values().for_each(|job| used.sub(&job.holds));
        for (end, holds) in ends {
            used.sub(&holds);
            let free = self.capacity.minus(&used);
            if (Resources { disk: 0, ..*need }).fits(&free) {
                return end;
            }
        }
        now
    }

    /// Whether a job with this need and duration leaves the reserved room free. `input` is the
    /// job's input, if any.
    pub fn may_overtake(&self, input: Option<InputKey>, need: &Resources, time: Span, now: Time) -> bool {
        let Some(reservation) = self.reservation.filter(|r| Some(r.input) != input) else { return true };
        let spare_disk = self.free().disk.saturating_sub(reservation.need.disk);
        if need.disk > spare_disk {
            return false;
        }
        let room = self.capacity.minus(&reservation.need).minus(&reservation.overtakers);
        let leaves_room = (Resources { disk: 0, ..*need }).fits(&room);
        leaves_room || now + time <= reservation.shadow
    }

    /// Checks the sums against the jobs and `disk` bytes of live material.
    pub fn audit(&self, disk: u64) -> Result<(), String> {
        let mut used = Resources { disk, ..Resources::default() };
        let mut overtakers = Resources::default();
        let running = self.jobs.values().map(|job| (job.holds, job.overtook));
        for (holds, overtook) in running.chain(self.stopping.values().map(|job| (job.holds, job.overtook))) {
            used.add(&holds);
            if overtook {
                overtakers.add(&holds);
            }
        }
        check_equal("used resources", used, self.used)?;
        match &self.reservation {
            Some(reservation) => check_equal("overtakers", overtakers, reservation.overtakers),
            None => Ok(()),
        }
    }
}
