//! Which job starts next: walk the heads of the classes from the best score up, start the first that fits.
//!
//! A head that does not fit and would be overtaken gets the one **reservation** (the oldest first).
//! While it stands, another job may start only if
//! (a) all jobs started since the reservation, this one included, leave the room that the holder needs: then the holder starts at the latest when the jobs
//!     that ran at the time of the reservation have ended, however wrong the estimates are; or
//! (b) it is expected to end before those jobs do (easy backfilling).

use super::state::{GroupId, Job, Reservation, Stage};
use super::{LOAD_WINDOW, Scheduler};
use crate::ids::{JobId, MaterialId, ModelId, Phase};
use crate::message::{Action, Rejected, Start};
use crate::policy::{Choice, ClassFacts, Policy, ThreadOption};
use crate::pool::PoolKey;
use crate::queue::InputKey;
use crate::resources::Resources;
use crate::time::Time;

/// What can be done with the head of a class now.
enum Verdict {
    /// The options in the scratch list fit.
    Fits,
    /// Not enough cores, memory or disk, or they are reserved.
    Blocked,
    /// Would fit if stock were burnt to free disk.
    NeedsDisk,
    /// Its group holds its share of the cores.
    AtShare,
    /// Needs more than there will ever be.
    Unfit(Resources),
}

/// What one walk over the heads decided.
enum Pick {
    Start(InputKey, ThreadOption),
    Park(InputKey),
    Evict(u64),
    Unfit(InputKey, Rejected),
    Reserve(InputKey),
    Refill(PoolKey, ThreadOption),
    Nothing,
}

impl<P: Policy> Scheduler<P> {
    /// Starts at most one job.
    pub(super) fn dispatch(&mut self) {
        if !self.dirty {
            return;
        }
        loop {
            match self.pick() {
                Pick::Start(key, option) => return self.start(key, option),
                Pick::Park(key) => self.park(key),
                Pick::Evict(disk) => {
                    self.evict(disk);
                }
                Pick::Unfit(key, reason) => return self.reject_unfit(key, reason),
                Pick::Reserve(key) => self.reserve(key),
                Pick::Refill(pool, option) => return self.start_refill(pool, option),
                Pick::Nothing => {
                    self.dirty = false;
                    return;
                }
            }
        }
    }

    fn pick(&mut self) -> Pick {
        let mut options = std::mem::take(&mut self.scratch);
        let mut blocked = Vec::new();
        let pick = self.walk(&mut options, &mut blocked);
        self.scratch = options;
        let overtakes = match pick {
            Pick::Start(key, _) => self.reservation.is_none_or(|r| r.input != key),
            Pick::Refill(..) => true,
            _ => false,
        };
        let oldest = |blocked: Vec<InputKey>| blocked.into_iter().min_by_key(|key| (self.inputs[key].entered, *key));
        match if overtakes && self.reservation.is_none() { oldest(blocked) } else { None } {
            Some(key) => Pick::Reserve(key),
            None => pick,
        }
    }

    fn walk(&self, options: &mut Vec<ThreadOption>, blocked: &mut Vec<InputKey>) -> Pick {
        if self.free().cores == 0 {
            return Pick::Nothing;
        }
        let mut declined = false;
        let holder = self.reservation.and_then(|r| Some((self.inputs.get(&r.input)?.slot?.class, r.input)));
        for (class, key) in holder.into_iter().chain(self.queues.heads()) {
            let facts = &self.queues.class(class).facts;
            match self.assess(facts, key, options) {
                Verdict::Fits => {
                    if let Some(option) = self.choose(facts, key, options) {
                        return Pick::Start(key, option);
                    }
                    declined = true;
                }
                Verdict::Blocked => blocked.push(key),
                Verdict::NeedsDisk => return Pick::Evict(facts.disk),
                Verdict::AtShare => return Pick::Park(key),
                Verdict::Unfit(need) => {
                    let reason = Rejected::NeverFits { phase: facts.phase, need, have: self.capacity };
                    return Pick::Unfit(key, reason);
                }
            }
        }
        // Last in order: stock. Not while a job waits for more threads: it wants the cores that are idle.
        match if declined { None } else { self.next_refill() } {
            Some((pool, option)) => Pick::Refill(pool, option),
            None => Pick::Nothing,
        }
    }

    /// Fills `options` with the ways in which this job may start now.
    fn assess(&self, facts: &ClassFacts, key: InputKey, options: &mut Vec<ThreadOption>) -> Verdict {
        let disk = if facts.phase == Phase::Pre { facts.disk } else { 0 };
        if let Some(need) = self.never_fits(&facts.options, disk) {
            return Verdict::Unfit(need);
        }
        let free = self.free();
        let reservation = self.reservation.filter(|r| r.input != key);
        let group = &self.groups[&self.inputs[&key].group];
        let window = self.window();
        let share = (window / group.active.max(1)).max(1);
        let least = facts.options.first().map_or(1, |o| o.threads);
        if window != u32::MAX && group.threads > 0 && group.threads.saturating_add(least) > window {
            return Verdict::AtShare;
        }
        options.clear();
        let mut short_of_disk = false;
        for option in &facts.options {
            let need = Resources { cores: option.threads, memory: option.memory, disk };
            let room = Resources { disk: u64::MAX, ..free };
            let within_share = option.threads == least
                || (option.threads <= share && group.threads.saturating_add(option.threads) <= window);
            if !within_share || !need.fits(&room) || reservation.is_some_and(|r| !self.may_overtake(&r, &need, option))
            {
                continue;
            }
            if disk > free.disk {
                short_of_disk = true;
            } else {
                options.push(*option);
            }
        }
        match (options.is_empty(), short_of_disk) {
            (false, _) => Verdict::Fits,
            (true, true) if self.could_evict(disk, &self.inputs[&key].group) => Verdict::NeedsDisk,
            (true, _) => Verdict::Blocked,
        }
    }

    pub(super) fn may_overtake(&self, reservation: &Reservation, need: &Resources, option: &ThreadOption) -> bool {
        let spare_disk = self.free().disk.saturating_sub(reservation.need.disk);
        if need.disk > spare_disk {
            return false;
        }
        let room = self.capacity.minus(&reservation.need).minus(&reservation.overtakers);
        let leaves_room = need.cores <= room.cores && need.memory <= room.memory;
        leaves_room || self.now + option.time <= reservation.shadow
    }

    /// Stock gives way to requests, not to notices.
    fn could_evict(&self, disk: u64, group: &GroupId) -> bool {
        let Some(pools) = &self.pools else {
            return false;
        };
        let held: u64 = pools
            .keys()
            .iter()
            .map(|key| pools.get(key).map_or(0, |p| p.stock.len() as u64 * self.disk(key.model)))
            .sum();
        matches!(group, GroupId::Request(_)) && self.free().disk.saturating_add(held) >= disk
    }

    /// One-thread work that arrived lately, per second and core.
    pub(super) fn recent_load(&self) -> f64 {
        let per_second = self.load.per_second(self.now, Time::ZERO, LOAD_WINDOW);
        per_second / f64::from(self.capacity.cores.max(1))
    }

    fn choose(&self, facts: &ClassFacts, key: InputKey, options: &[ThreadOption]) -> Option<ThreadOption> {
        let threads = self.policy.threads(&Choice {
            class: facts,
            options,
            free: self.free(),
            running: self.jobs.len(),
            queued: self.queues.len(),
            load: self.recent_load(),
            arrivals: self.arrivals.per_second(self.now, Time::ZERO, LOAD_WINDOW),
            waited: self.now.since(self.inputs[&key].entered),
        })?;
        // A policy that answers with something it was not offered gets the largest offer below it.
        options.iter().rev().find(|o| o.threads <= threads).or(options.first()).copied()
    }

    /// Keeps room for this job from now on.
    fn reserve(&mut self, key: InputKey) {
        let Some(slot) = self.inputs.get(&key).and_then(|i| i.slot) else {
            return;
        };
        let facts = &self.queues.class(slot.class).facts;
        let disk = if facts.phase == Phase::Pre { facts.disk } else { 0 };
        let Some(option) = facts.options.first() else {
            return;
        };
        let need = Resources { cores: option.threads, memory: option.memory, disk };
        let shadow = self.shadow(&need);
        for job in self.jobs.values_mut() {
            job.overtook = false;
        }
        self.reservation = Some(Reservation { input: key, need, shadow, overtakers: Resources::default() });
    }

    /// When the running jobs are expected to have made room for `need`.
    fn shadow(&self, need: &Resources) -> Time {
        let mut ends: Vec<(Time, Resources)> =
            self.jobs.values().map(|j| ((j.started + j.estimate).max(self.now), j.holds)).collect();
        ends.sort_by_key(|&(end, _)| end);
        let mut used = self.used;
        for (end, holds) in ends {
            used.sub(&holds);
            let free = self.capacity.minus(&used);
            if need.cores <= free.cores && need.memory <= free.memory {
                return end;
            }
        }
        self.now
    }

    /// Takes an input out of the queues because its group holds its share of the cores.
    fn park(&mut self, key: InputKey) {
        self.dequeue(key);
        let input = self.inputs[&key].clone();
        let pre = u8::from(input.stage == Stage::WaitPre);
        self.edit_group(input.group, |group| _ = group.parked.insert((pre, key)));
        self.mark_needy(key, &input);
    }

    pub(super) fn new_material(&mut self, model: ModelId) -> MaterialId {
        let material = MaterialId(self.next_material);
        self.next_material += 1;
        self.materials.insert(material, model);
        self.used.disk += self.disk(model);
        material
    }

    /// Puts a job on the machine.
    pub(super) fn launch(&mut self, mut job: Job) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.used.add(&job.holds);
        if let Some(reservation) = &mut self.reservation {
            job.overtook = true;
            reservation.overtakers.add(&job.holds);
        }
        self.jobs.insert(id, job);
        id
    }

    fn start(&mut self, key: InputKey, option: ThreadOption) {
        debug_assert!(self.waits(key));
        self.dequeue(key);
        let input = self.inputs[&key].clone();
        let group = &self.groups[&input.group];
        let (model, batch) = (group.model, group.batch);
        let (phase, material) = match input.stage {
            Stage::WaitOn(material) => (Phase::On, material),
            _ => (Phase::Pre, self.new_material(model)),
        };
        let id = self.launch(Job {
            phase,
            model,
            batch,
            owner: Some(key),
            refill: None,
            material,
            holds: Resources { cores: option.threads, memory: option.memory, disk: 0 },
            started: self.now,
            estimate: option.time,
            overtook: false,
        });
        self.edit_group(input.group, |group| {
            group.active += 1;
            group.threads += option.threads;
        });
        let now = self.now;
        self.edit(key, |input| {
            let stamp = if phase == Phase::Pre { &mut input.pre } else { &mut input.on };
            stamp.started = Some(now);
            stamp.threads = option.threads;
            input.stage = if phase == Phase::Pre { Stage::RunPre(id) } else { Stage::RunOn(id) };
        });
        self.out.push_back(Action::Start(Start {
            job: id,
            phase,
            model,
            input: self.input_id(key),
            client: self.bound_client(model, input.group),
            threads: option.threads,
            memory: option.memory,
            material,
            estimate: option.time,
        }));
    }
}
