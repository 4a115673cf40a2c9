//! When a supply of COTs expands how many trees, goes to the next extension, or bootstraps: what both parties
//! decide alike, and what follows for their traffic.

use tacit_net::TrafficModel;

use super::output::GROUP;
use super::params::{COTS_PER_DELTA, LpnParams, SMALL};
use super::{POINT_BYTES, iknp};

/// Outputs worked on between two messages, so that both parties compute at the same time.
const BATCH: usize = 1 << 17;

/// COTs that a bootstrap makes.
pub(super) const BOOTSTRAP: usize = SMALL.base();

/// What comes next for a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// So many groups of the newest tree, from group `from` of it on.
    Left { groups: usize, from: usize },
    /// So many trees from `first` on go into the draw whole, and with `extra` one more is kept.
    Batch { first: usize, whole: usize, extra: bool },
    /// The next extension, with this set.
    Extend(LpnParams),
    /// A new `delta`.
    Refresh,
}

/// Where a supply stands.
pub(super) struct Schedule {
    params: LpnParams,
    /// COTs that the extensions since the bootstrap make, the newest included, and how many there may be.
    made: u64,
    bound: u64,
    next_tree: usize,
    /// Groups of the newest tree, and of these, those that are used.
    ready: usize,
    taken: usize,
    reserved: usize,
}

impl Schedule {
    pub(super) fn new(bound: u64) -> Self {
        let made = SMALL.outputs() as u64;
        Self { params: SMALL, made, bound, next_tree: 0, ready: 0, taken: 0, reserved: 0 }
    }

    /// The set in use.
    pub(super) fn params(&self) -> LpnParams {
        self.params
    }

    pub(super) fn reserve(&mut self, n: usize) {
        self.reserved = self.reserved.saturating_add(n);
    }

    /// A draw of so many groups begins.
    pub(super) fn begin(&mut self, groups: usize) {
        self.reserved = self.reserved.saturating_sub(groups.saturating_mul(GROUP));
    }

    /// The next step of a draw that lacks so many groups (not zero). After [`Step::Extend`] and
    /// [`Step::Refresh`] follow [`feed`](Self::feed) and [`extended`](Self::extended), or
    /// [`refreshed`](Self::refreshed).
    pub(super) fn step(&mut self, groups: usize) -> Step {
        if self.taken < self.ready {
            let (now, from) = ((self.ready - self.taken).min(groups), self.taken);
            self.taken += now;
            return Step::Left { groups: now, from };
        }
        let params = self.params;
        let left = params.trees - self.next_tree;
        let needed = |next: LpnParams| next.base().div_ceil(params.leaves());
        let demand = self.reserved.saturating_add(groups.saturating_mul(GROUP));
        let spare = match params.upgrade(demand) {
            Some(larger) if needed(larger) <= left => return self.next(larger),
            _ if needed(params) < left => left - needed(params),
            _ => return self.next(params),
        };
        let per_tree = params.leaves() / GROUP;
        let trees = spare.min(BATCH / params.leaves()).min(groups.div_ceil(per_tree));
        let whole = trees.min(groups / per_tree);
        let (first, extra) = (self.next_tree, trees > whole);
        self.next_tree += trees;
        (self.ready, self.taken) = if extra { (per_tree, 0) } else { (self.ready, self.ready) };
        Step::Batch { first, whole, extra }
    }

    fn next(&self, next: LpnParams) -> Step {
        if self.made + next.outputs() as u64 > self.bound { Step::Refresh } else { Step::Extend(next) }
    }

    /// Trees that feed an extension with set `next`, in batches: the first of each and how many.
    pub(super) fn feed(&mut self, next: LpnParams) -> Vec<(usize, usize)> {
        let leaves = self.params.leaves();
        let (mut trees, mut batches) = (next.base().div_ceil(leaves), Vec::new());
        while trees > 0 {
            let now = trees.min(BATCH / leaves);
            batches.push((self.next_tree, now));
            self.next_tree += now;
            trees -= now;
        }
        batches
    }

    /// The extension with set `next` has begun.
    pub(super) fn extended(&mut self, next: LpnParams) {
        self.params = next;
        self.made += next.outputs() as u64;
        (self.next_tree, self.ready, self.taken) = (0, 0, 0);
    }

    /// A new `delta` serves from now on.
    pub(super) fn refreshed(&mut self) {
        let reserved = self.reserved;
        *self = Self { reserved, ..Self::new(self.bound) };
    }
}

/// Both directions of a connection's supply, as far as messages go: what a draw says, without drawing.
pub struct PlannedOts {
    /// The client receives.
    to_client: Schedule,
    /// The server receives.
    to_server: Schedule,
}

impl PlannedOts {
    /// Of a connection that has just been set up, and that was told that so many OTs are coming: with the
    /// client and with the server as receiver.
    #[must_use]
    pub fn reserved(client_receives: usize, server_receives: usize) -> Self {
        let with = |n| {
            let mut schedule = Schedule::new(COTS_PER_DELTA);
            schedule.reserve(n);
            schedule
        };
        Self { to_client: with(client_receives), to_server: with(server_receives) }
    }

    /// `n` OTs with the client as receiver.
    pub fn client_receives(&mut self, n: usize, talk: &mut TrafficModel) {
        draw(&mut self.to_client, n, talk, (TrafficModel::down, TrafficModel::up));
    }

    /// `n` OTs with the server as receiver.
    pub fn server_receives(&mut self, n: usize, talk: &mut TrafficModel) {
        draw(&mut self.to_server, n, talk, (TrafficModel::up, TrafficModel::down));
    }
}

type Say = fn(&mut TrafficModel, usize);

/// `sends` is how the sender of the OTs says something, `receives` how their receiver does.
fn draw(schedule: &mut Schedule, n: usize, talk: &mut TrafficModel, (sends, receives): (Say, Say)) {
    let mut groups = n.div_ceil(GROUP);
    schedule.begin(groups);
    while groups > 0 {
        let params = schedule.params();
        let corrections = |trees: usize| 16 * params.corrections() * trees;
        match schedule.step(groups) {
            Step::Left { groups: now, .. } => groups -= now,
            Step::Batch { whole, extra, .. } => {
                sends(talk, corrections(whole + usize::from(extra)));
                groups -= whole * (params.leaves() / GROUP);
            }
            Step::Extend(next) => {
                schedule.feed(next).into_iter().for_each(|(_, trees)| sends(talk, corrections(trees)));
                schedule.extended(next);
            }
            Step::Refresh => {
                receives(talk, POINT_BYTES);
                sends(talk, iknp::BASE * POINT_BYTES);
                sends(talk, 16);
                receives(talk, iknp::column_bytes(BOOTSTRAP));
                schedule.refreshed();
            }
        }
    }
}
