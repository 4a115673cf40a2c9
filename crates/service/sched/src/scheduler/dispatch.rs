//! Choice of the next job: walk the heads of the classes from the best score up, start the first
//! that fits.
//!
//! A head that does not fit and would be overtaken gets the one **reservation** (the oldest first).
//! While the reservation stands, another job may start in two cases only:
//!
//! - All jobs started since the reservation, this one included, leave the room that the holder
//!   needs. The holder then starts at the latest when the jobs that ran at the time of the
//!   reservation have ended, however wrong the estimates are.
//! - The job is expected to end before those jobs do (EASY backfilling).
//!
//! Policies that ask for [`Discipline::TwoQueues`] choose in `two_queues.rs` instead.

use super::Scheduler;
use super::machine::Task;
use super::state::Stage;
use crate::ids::{ClientId, JobId, JobPhase, Owner};
use crate::message::{Action, Rejected, Start, Work};
use crate::policy::{Choice, ClassFacts, Discipline, Policy, ThreadOption};
use crate::pool::PoolKey;
use crate::queue::{ClassIdx, ClassQueues, Heads, InputKey, Scored};
use crate::resources::Resources;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

/// Whether the head of a class can start now.
pub(super) enum Verdict {
    /// At least one option fits; `assess` has put those that fit into `options`.
    Fits,
    /// Cores, memory or disk are short or reserved.
    Blocked {
        /// Whether only cores (for a dealing: a free dealing) are missing.
        lacks_only_cores: bool,
    },
    /// Would fit if stock were burnt to free disk.
    NeedsDisk,
    /// Lacks only disk, and may not have stock burnt for it.
    LacksDisk,
    /// Its group holds its share of the cores.
    AtShare,
    /// Its client is above its share and leaves the last room to others.
    LeavesRoom,
    /// Needs more than the capacity of the machine.
    Unfit(Resources),
}

pub(super) enum Pick {
    Start(InputKey, ThreadOption),
    Park(InputKey),
    /// Burns stock to free this much disk.
    Evict {
        disk_bytes: u64,
    },
    Unfit(InputKey, Rejected),
    Reserve(InputKey),
    Unreserve(InputKey),
    Refill(PoolKey, ThreadOption),
    Nothing,
}

struct Overtaken {
    key: InputKey,
    dealing: bool,
    /// Whether only cores, or a free dealing, are missing.
    lacks_only_cores: bool,
}

/// Candidates to start: the holder of the reservation first, then by score. These are the heads of
/// the classes, and jobs behind a head whose client leaves room.
struct Candidates<'a> {
    queues: &'a ClassQueues,
    holder: Option<(ClassIdx, InputKey)>,
    heads: Peekable<Heads<'a>>,
    /// Jobs behind heads that were passed over.
    behind: BTreeSet<Scored>,
    /// Clients whose jobs of a class are passed over.
    passed: BTreeMap<ClassIdx, Vec<ClientId>>,
}

impl<'a> Candidates<'a> {
    fn new<P: Policy>(scheduler: &'a Scheduler<P>) -> Self {
        let Scheduler { queues, machine, work, .. } = scheduler;
        let holder = machine.holder().and_then(|key| Some((work.input(key).slot?.class, key)));
        Self { queues, holder, heads: queues.heads().peekable(), behind: BTreeSet::new(), passed: BTreeMap::new() }
    }

    fn next(&mut self) -> Option<(ClassIdx, InputKey)> {
        if let Some(holder) = self.holder.take() {
            return Some(holder);
        }
        let is_behind = match (self.heads.peek(), self.behind.first()) {
            (Some(head), Some(behind)) => behind < head,
            (head, _) => head.is_none(),
        };
        let (_, key, class) = if is_behind { self.behind.pop_first()? } else { self.heads.next()? };
        Some((class, key))
    }

    fn pass_over(&mut self, class: ClassIdx, client: ClientId) {
        let passed = self.passed.entry(class).or_default();
        passed.push(client);
        self.behind.extend(self.queues.first_except(class, passed));
    }
}

fn job_disk(facts: &ClassFacts) -> u64 {
    if facts.phase == JobPhase::Pre { facts.disk } else { 0 }
}

impl<P: Policy> Scheduler<P> {
    /// Starts at most one job.
    pub(super) fn dispatch(&mut self) {
        while !self.out.is_settled() {
            match self.pick() {
                Pick::Start(key, option) => return self.start(key, option),
                Pick::Park(key) => self.park(key),
                Pick::Evict { disk_bytes } => self.evict(disk_bytes),
                Pick::Unfit(key, reason) => return self.reject_unfit(key, reason),
                Pick::Reserve(key) => self.reserve(key),
                Pick::Unreserve(key) => drop(self.machine.unreserve(key)),
                Pick::Refill(pool, option) => return self.start_refill(pool, option),
                Pick::Nothing => self.out.settle(),
            }
        }
    }

    /// Chooses the next job, or a reservation for a job that this choice would overtake.
    fn pick(&self) -> Pick {
        if let Discipline::TwoQueues { exclusive } = self.policy.discipline() {
            return self.pick_by_phase(exclusive);
        }
        let mut blocked = Vec::new();
        let pick = self.walk(&mut blocked);
        let model = match pick {
            Pick::Start(key, _) if self.machine.holder() != Some(key) => self.work.group_of(key).model,
            Pick::Refill(pool, _) => pool.model,
            _ => return pick,
        };
        if self.machine.holder().is_some() {
            return pick;
        }
        // A dealing takes no cores from jobs that wait for cores, and other jobs take no dealings.
        let phase = match pick {
            Pick::Start(key, _) if self.work.input(key).stage != Stage::WaitPre => JobPhase::On,
            _ => JobPhase::Pre,
        };
        let dealing = self.catalog.deals(model, phase);
        let overtaken = blocked.into_iter().filter(|b: &Overtaken| b.dealing == dealing || !b.lacks_only_cores);
        let oldest = overtaken.map(|b| b.key).min_by_key(|&key| (self.work.input(key).entered, key));
        oldest.map_or(pick, Pick::Reserve)
    }

    /// Walks the candidates by score until one can start. Collects jobs that lack room in `blocked`.
    fn walk(&self, blocked: &mut Vec<Overtaken>) -> Pick {
        let free = self.machine.free();
        if free.cores == 0 && (free.dealings == 0 || !self.catalog.deals_at_all()) {
            return Pick::Nothing;
        }
        let mut options = Vec::new();
        let mut declined = false;
        let mut candidates = Candidates::new(self);
        while let Some((class, key)) = candidates.next() {
            let facts = &self.queues.class(class).facts;
            match self.assess(facts, key, &mut options) {
                Verdict::Fits => {
                    if let Some(option) = self.choose(facts, key, &options) {
                        return Pick::Start(key, option);
                    }
                    declined = true;
                }
                Verdict::Blocked { lacks_only_cores } => {
                    blocked.push(Overtaken { key, dealing: facts.dealing, lacks_only_cores })
                }
                // The holder may wait long for disk or for its client's own jobs; meanwhile others can
                // start.
                Verdict::LacksDisk | Verdict::LeavesRoom if self.machine.holder() == Some(key) => {
                    return Pick::Unreserve(key);
                }
                Verdict::LacksDisk => {}
                Verdict::LeavesRoom => candidates.pass_over(class, self.work.group_of(key).client),
                misfit => {
                    if let Some(pick) = self.pick_for_misfit(&misfit, key, facts) {
                        return pick;
                    }
                }
            }
        }
        // Stock is last. No refill starts while a job waits for more threads: that job needs the
        // idle cores.
        match if declined { None } else { self.next_refill() } {
            Some((pool, option)) => Pick::Refill(pool, option),
            None => Pick::Nothing,
        }
    }

    /// Returns what must be done about a head before others are looked at; `None` if it can wait.
    pub(super) fn pick_for_misfit(&self, verdict: &Verdict, key: InputKey, facts: &ClassFacts) -> Option<Pick> {
        match *verdict {
            Verdict::NeedsDisk => Some(Pick::Evict { disk_bytes: facts.disk }),
            Verdict::AtShare => Some(Pick::Park(key)),
            Verdict::Unfit(need) => {
                let reason = Rejected::NeverFits { phase: facts.phase, need, have: self.machine.capacity() };
                Some(Pick::Unfit(key, reason))
            }
            Verdict::Fits | Verdict::Blocked { .. } | Verdict::LacksDisk | Verdict::LeavesRoom => None,
        }
    }

    /// Fills `options` with the ways in which this job may start now.
    pub(super) fn assess(&self, facts: &ClassFacts, key: InputKey, options: &mut Vec<ThreadOption>) -> Verdict {
        let disk = job_disk(facts);
        if let Some(need) = self.machine.never_fits(&facts.options, facts.dealing, disk) {
            return Verdict::Unfit(need);
        }
        let (free, now) = (self.machine.free(), self.clock.now());
        let owner = self.work.input(key).group;
        let group = self.work.group_of(key);
        let window = self.window();
        let share = (window / group.places.active.max(1)).max(1);
        let min_threads = facts.options.first().map_or(1, |o| o.threads);
        if window != u32::MAX && group.places.threads > 0 && group.places.threads.saturating_add(min_threads) > window {
            return Verdict::AtShare;
        }
        options.clear();
        let (mut short_of_disk, mut leaves_room) = (false, false);
        for option in &facts.options {
            let need = option.holds(facts.dealing, disk);
            let room = Resources { disk: u64::MAX, ..free };
            let within_share = option.threads == min_threads
                || (option.threads <= share && group.places.threads.saturating_add(option.threads) <= window);
            if !within_share || !need.fits(&room) || !self.machine.may_overtake(Some(key), &need, option.time, now) {
                continue;
            }
            if !facts.dealing && self.takes_last_room(group.client, option.threads, min_threads) {
                leaves_room = true;
            } else if disk > free.disk {
                short_of_disk = true;
            } else {
                options.push(*option);
            }
        }
        match (options.is_empty(), short_of_disk) {
            (false, _) => Verdict::Fits,
            (true, false) if leaves_room => Verdict::LeavesRoom,
            (true, true) if self.could_evict(disk, key) => Verdict::NeedsDisk,
            (true, true) if matches!(owner, Owner::Notice(_)) => Verdict::LacksDisk,
            (true, _) => Verdict::Blocked { lacks_only_cores: self.lacks_only_cores(facts, key) },
        }
    }

    /// Whether a job lacks only cores, or a free dealing.
    fn lacks_only_cores(&self, facts: &ClassFacts, key: InputKey) -> bool {
        let (free, now) = (self.machine.free(), self.clock.now());
        facts.options.iter().any(|option| {
            let other_resources = Resources { cores: 0, dealings: 0, ..option.holds(facts.dealing, job_disk(facts)) };
            other_resources.fits(&free) && self.machine.may_overtake(Some(key), &other_resources, option.time, now)
        })
    }

    /// Whether a job would take the last room for one job of `min_threads` threads, although its
    /// client is then above its share and others have asked recently.
    fn takes_last_room(&self, client: ClientId, threads: u32, min_threads: u32) -> bool {
        let (have, free) = (self.machine.capacity().cores, self.machine.free().cores);
        // No room is reserved where one job fills it.
        if !self.policy.keeps_room()
            || have < min_threads.saturating_mul(2)
            || free >= threads.saturating_add(min_threads)
        {
            return false;
        }
        let other_clients = self.work.recent().count_others(client);
        let share = (have / other_clients.saturating_add(1)).max(min_threads);
        other_clients > 0 && self.work.threads(client).saturating_add(threads) > share
    }

    /// Whether burning stock could free the disk. Stock gives way to requests only.
    fn could_evict(&self, disk: u64, key: InputKey) -> bool {
        matches!(self.work.input(key).group, Owner::Request(_)) && self.disk_without_stock() >= disk
    }

    /// Asks the policy for an option; `None` if the job should wait.
    pub(super) fn choose(&self, facts: &ClassFacts, key: InputKey, options: &[ThreadOption]) -> Option<ThreadOption> {
        let now = self.clock.now();
        let threads = self.policy.threads(&Choice {
            class: facts,
            options,
            free: self.machine.free(),
            running: self.machine.busy(),
            queued: self.queues.len(),
            load: self.load.per_core(now, self.machine.capacity().cores),
            arrivals: self.load.inputs(now),
            waited: now.since(self.work.input(key).entered),
        })?;
        // A count that was not offered means the largest offer below it.
        options.iter().rev().find(|o| o.threads <= threads).or(options.first()).copied()
    }

    fn reserve(&mut self, key: InputKey) {
        let slot = self.work.input(key).slot.expect("only queued jobs are blocked");
        let facts = &self.queues.class(slot.class).facts;
        let option = facts.options.first().expect("a class without options never fits");
        let need = option.holds(facts.dealing, job_disk(facts));
        self.machine.reserve(key, need, self.clock.now());
    }

    fn start(&mut self, key: InputKey, option: ThreadOption) {
        self.dequeue(key);
        let stage = self.work.input(key).stage;
        let group = self.work.group_of(key);
        let (model, batch, client) = (group.model, group.batch, group.client);
        let (task, disk) = match stage {
            Stage::WaitOn(material) => (Task::On(key, material), 0),
            _ => (Task::Pre(key), self.catalog.disk(model)),
        };
        let now = self.clock.now();
        let phase = task.phase();
        let holds = option.holds(self.catalog.deals(model, phase), disk);
        let job = self.machine.launch(task, model, batch, holds, option, now);
        let client = self.catalog.bound_client(model, client);
        self.work.occupy(key, holds.cores);
        self.work.edit(key, |input| {
            let stamp = if phase == JobPhase::Pre { &mut input.pre } else { &mut input.on };
            stamp.started = Some(now);
            stamp.threads = option.threads;
            input.stage = if phase == JobPhase::Pre { Stage::RunPre(job) } else { Stage::RunOn(job) };
        });
        self.order_start(job, self.work.input(key).work(), client);
    }

    /// Asks the caller to run a job that was launched.
    pub(super) fn order_start(&mut self, id: JobId, work: Work, client: Option<ClientId>) {
        let job = self.machine.job(id).expect("a job is ordered right after its launch");
        self.out.push(Action::Start(Start {
            job: id,
            phase: job.task.phase(),
            model: job.model,
            work,
            client,
            threads: job.threads,
            memory: job.holds.memory,
            material: job.task.material(),
            estimate: job.estimate,
        }));
    }
}
