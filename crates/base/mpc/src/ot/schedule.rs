//! The schedule of a supply of COTs: when to expand trees, to start the next extension, or to
//! bootstrap. Both parties decide alike; the traffic follows from it.

use tacit_net::TrafficModel;

use super::output::GROUP;
use super::params::{COTS_PER_DELTA, LpnParams, SMALL};
use super::{POINT_BYTES, iknp};

/// Outputs computed between two messages, so that both parties compute at the same time.
const BATCH_OUTPUTS: usize = 1 << 17;

pub(super) const BOOTSTRAP: usize = SMALL.base();

/// Trees that are expanded together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trees {
    /// Number of the first tree.
    pub(super) first: usize,
    /// Trees whose outputs all go into the draw.
    pub(super) whole: usize,
    /// One more tree, whose outputs are stored.
    pub(super) extra: bool,
}

/// The next step of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Use this many groups of the newest tree, starting at group `start`.
    Left { groups: usize, start: usize },
    /// Expand these trees.
    Batch(Trees),
    /// Start the next extension, with this set.
    Extend(LpnParams),
    /// Bootstrap a new `delta`.
    Refresh,
}

pub(super) struct Schedule {
    params: LpnParams,
    /// COTs of the extensions since the bootstrap, the newest included, and their bound.
    extended_cots: u64,
    bound: u64,
    next_tree: usize,
    /// Groups of the newest tree, and the number of used groups.
    ready: usize,
    used: usize,
    reserved: usize,
}

impl Schedule {
    /// A fresh supply that makes at most `bound` COTs of one `delta`.
    pub(super) fn new(bound: u64) -> Self {
        let extended_cots = SMALL.outputs() as u64;
        Self { params: SMALL, extended_cots, bound, next_tree: 0, ready: 0, used: 0, reserved: 0 }
    }

    pub(super) fn params(&self) -> LpnParams {
        self.params
    }

    /// Announces `n` OTs of later draws, so that the next extension is large enough.
    pub(super) fn reserve(&mut self, n: usize) {
        self.reserved = self.reserved.saturating_add(n);
    }

    pub(super) fn begin(&mut self, groups: usize) {
        self.reserved = self.reserved.saturating_sub(groups.saturating_mul(GROUP));
    }

    /// The next step of a draw that lacks `groups` groups (not zero). After [`Step::Extend`] and
    /// [`Step::Refresh`] call [`feed`](Self::feed) and [`record_extension`](Self::record_extension), or
    /// [`record_refresh`](Self::record_refresh).
    pub(super) fn step(&mut self, groups: usize) -> Step {
        if self.used < self.ready {
            let (now, start) = ((self.ready - self.used).min(groups), self.used);
            self.used += now;
            return Step::Left { groups: now, start };
        }
        let params = self.params;
        let left = params.trees - self.next_tree;
        let demand = self.reserved.saturating_add(groups.saturating_mul(GROUP));
        let spare = match params.upgrade(demand) {
            Some(larger) if self.needed_trees(larger) <= left => return self.next(larger),
            _ if self.needed_trees(params) < left => left - self.needed_trees(params),
            _ => return self.next(params),
        };
        let per_tree = params.leaves() / GROUP;
        let trees = spare.min(BATCH_OUTPUTS / params.leaves()).min(groups.div_ceil(per_tree));
        let whole = trees.min(groups / per_tree);
        let (first, extra) = (self.next_tree, trees > whole);
        self.next_tree += trees;
        (self.ready, self.used) = if extra { (per_tree, 0) } else { (self.ready, self.ready) };
        Step::Batch(Trees { first, whole, extra })
    }

    /// Returns the number of trees in use that feed an extension with set `next`.
    fn needed_trees(&self, next: LpnParams) -> usize {
        next.base().div_ceil(self.params.leaves())
    }

    /// The step that starts an extension with set `next`, or a new `delta` if the bound is reached.
    fn next(&self, next: LpnParams) -> Step {
        if self.extended_cots + next.outputs() as u64 > self.bound { Step::Refresh } else { Step::Extend(next) }
    }

    /// Trees that feed an extension with set `next`, in batches: first tree and number of trees.
    pub(super) fn feed(&mut self, next: LpnParams) -> Vec<(usize, usize)> {
        let leaves = self.params.leaves();
        let (mut trees, mut batches) = (next.base().div_ceil(leaves), Vec::new());
        while trees > 0 {
            let now = trees.min(BATCH_OUTPUTS / leaves);
            batches.push((self.next_tree, now));
            self.next_tree += now;
            trees -= now;
        }
        batches
    }

    /// Records the start of the extension with set `next`.
    pub(super) fn record_extension(&mut self, next: LpnParams) {
        self.params = next;
        self.extended_cots += next.outputs() as u64;
        (self.next_tree, self.ready, self.used) = (0, 0, 0);
    }

    pub(super) fn record_refresh(&mut self) {
        let reserved = self.reserved;
        *self = Self { reserved, ..Self::new(self.bound) };
    }
}

/// Both directions of a connection's supply as message traffic only: models draws without making
/// OTs.
pub struct PlannedOts {
    /// Direction with the client as receiver.
    to_client: Schedule,
    /// Direction with the server as receiver.
    to_server: Schedule,
}

impl PlannedOts {
    /// A fresh connection that expects these numbers of OTs: with the client and with the server as
    /// receiver.
    #[must_use]
    pub fn new(client_receives: usize, server_receives: usize) -> Self {
        Self { to_client: schedule_for(client_receives), to_server: schedule_for(server_receives) }
    }

    /// Draws `n` OTs with the client as receiver.
    pub fn client_receives(&mut self, n: usize, traffic: &mut TrafficModel) {
        draw(&mut self.to_client, n, traffic, TrafficModel::down, TrafficModel::up);
    }

    /// Draws `n` OTs with the server as receiver.
    pub fn server_receives(&mut self, n: usize, traffic: &mut TrafficModel) {
        draw(&mut self.to_server, n, traffic, TrafficModel::up, TrafficModel::down);
    }
}

fn schedule_for(n: usize) -> Schedule {
    let mut schedule = Schedule::new(COTS_PER_DELTA);
    schedule.reserve(n);
    schedule
}

type Say = fn(&mut TrafficModel, usize);

/// `sends` adds a message of the OT sender, `receives` one of the OT receiver.
fn draw(schedule: &mut Schedule, n: usize, traffic: &mut TrafficModel, sends: Say, receives: Say) {
    let mut groups = n.div_ceil(GROUP);
    schedule.begin(groups);
    while groups > 0 {
        let params = schedule.params();
        let corrections = 16 * params.corrections();
        match schedule.step(groups) {
            Step::Left { groups: now, .. } => groups -= now,
            Step::Batch(Trees { whole, extra, .. }) => {
                sends(traffic, corrections * (whole + usize::from(extra)));
                groups -= whole * (params.leaves() / GROUP);
            }
            Step::Extend(next) => {
                schedule.feed(next).into_iter().for_each(|(_, trees)| sends(traffic, corrections * trees));
                schedule.record_extension(next);
            }
            Step::Refresh => {
                receives(traffic, POINT_BYTES);
                sends(traffic, iknp::BASE_OTS * POINT_BYTES);
                sends(traffic, 16);
                receives(traffic, iknp::column_bytes(BOOTSTRAP));
                schedule.record_refresh();
            }
        }
    }
}
