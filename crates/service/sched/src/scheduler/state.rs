//! The records of the state machine.

use crate::ids::{ClientId, DeadlineClass, InputId, JobId, MaterialId, ModelId, Owner};
use crate::message::{self, Source, Stamp};
use crate::queue::{InputKey, Slot};
use crate::time::{Span, Time};
use std::collections::BTreeSet;

/// Stage of an input. T_pre is its offline phase and T_on its online phase, as in [SS26]. There are
/// no final stages: an ended input is reported and removed. A model without T_pre has no material.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// T_pre not started.
    WaitPre,
    /// T_pre running.
    RunPre(JobId),
    /// T_pre done, request not arrived (inputs of a notice only).
    Held(Option<MaterialId>),
    /// T_on not started.
    WaitOn(Option<MaterialId>),
    /// T_on running.
    RunOn(JobId),
}

#[derive(Clone, Debug)]
pub(super) struct Input {
    pub group: Owner,
    pub index: u32,
    pub stage: Stage,
    /// Its place in the class queues; `None` while it runs, is held, or is parked.
    pub slot: Option<Slot>,
    /// T_pre attempts that failed.
    pub failures: u32,
    pub source: Source,
    /// Entry into the queue of its present phase; age counts from then.
    pub entered: Time,
    /// Key of the arrival order: arrival of the request, or of the notice that announced it.
    pub since: Time,
    pub pre: Stamp,
    pub on: Stamp,
    /// One-thread work that the input adds to its client's backlog.
    pub length: Span,
}

/// What the inputs of a group take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    /// Inputs in the class queues or running.
    pub active: u32,
    /// Running jobs, and their threads.
    pub jobs: u32,
    pub threads: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub client: ClientId,
    pub model: ModelId,
    pub batch: u32,
    pub deadline: DeadlineClass,
    pub arrived: Time,
    pub live: BTreeSet<InputKey>,
    /// Inputs outside the class queues because the group has used up its share or its lanes: (0 for
    /// T_on, 1 for T_pre; input).
    pub parked: BTreeSet<(u8, InputKey)>,
    pub places: Places,
    /// Timeout of a request, expiry of a notice.
    pub ends: Option<Time>,
    /// Most of its inputs that may be in the class queues or running.
    pub lanes: Option<u32>,
    /// Whether the notice's material goes to the client's stock: a refill, or an offline phase that
    /// the client started for no input.
    pub keeps: bool,
    /// Whether such a notice has already made its material.
    pub kept: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// Inputs that have not ended, announced ones included.
    pub unfinished: u32,
    pub backlog: Span,
    /// Threads of its running jobs.
    pub threads: u32,
    pub groups: BTreeSet<Owner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifecycle {
    Open,
    Draining,
    Stopped,
}

/// Queue lengths: the four of [SS26], and running jobs. T_pre is the offline phase of an input,
/// T_on its online phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Q_pre: T_pre queued, except those that a request already waits for through its notice.
    pub pre: u32,
    /// Q_waiting: requests' inputs whose T_pre, started for a notice, is queued or running.
    pub waiting: u32,
    /// Q_transit: T_pre done, request not arrived.
    pub transit: u32,
    /// Q_ready: T_on queued.
    pub ready: u32,
    /// T_pre running for an input, except those in `waiting`; refills do not count.
    pub running_pre: u32,
    /// T_on running.
    pub running_on: u32,
}

impl Input {
    pub fn id(&self) -> Option<InputId> {
        match self.group {
            Owner::Request(request) => Some(InputId { request, index: self.index }),
            Owner::Notice(_) => None,
        }
    }

    pub fn work(&self) -> message::Work {
        match self.group {
            Owner::Request(request) => message::Work::Request(InputId { request, index: self.index }),
            Owner::Notice(notice) => message::Work::Notice(notice),
        }
    }

    pub fn waits(&self) -> bool {
        matches!(self.stage, Stage::WaitPre | Stage::WaitOn(_))
    }
}

impl Group {
    /// `window` is the group's share of the cores.
    pub fn has_place(&self, window: u32) -> bool {
        self.places.active < self.lanes.unwrap_or(u32::MAX).min(window)
    }

    /// Number of its queued inputs beyond its lanes.
    pub fn beyond_lanes(&self) -> u32 {
        let Places { active, jobs, .. } = self.places;
        active.saturating_sub(self.lanes.unwrap_or(u32::MAX)).min(active - jobs)
    }
}

impl Counts {
    pub(super) fn counter_for(&mut self, input: &Input) -> &mut u32 {
        let waits = input.source == Source::Notice && matches!(input.group, Owner::Request(_));
        match input.stage {
            Stage::WaitPre | Stage::RunPre(_) if waits => &mut self.waiting,
            Stage::WaitPre => &mut self.pre,
            Stage::RunPre(_) => &mut self.running_pre,
            Stage::Held(_) => &mut self.transit,
            Stage::WaitOn(_) => &mut self.ready,
            Stage::RunOn(_) => &mut self.running_on,
        }
    }
}
