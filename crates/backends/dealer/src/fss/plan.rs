//! What compiling a graph decides, and the sizes of what is dealt.

use std::collections::BTreeSet;

use serde::Serialize;
use tacit_arith::ring::ConvSpec;
use tacit_mpc::dealt::{LookUp, Value};
use tacit_mpc::fss::gate::{FssCost, FssGate, FssLookUp, FssWiden};
use tacit_mpc::gate::WrapSpec;

use super::mac_matmul;
use super::{Fss, Level, Options, linear_check};
use crate::session::{self, Choices, Scheme};
use tacit_backend_api::BackendError;
use tacit_ring::share::{self, Added, StepTypes};
use tacit_ring::{Node, RingGraph, Table};

pub(super) type Plan = session::Plan<Fss>;
pub(super) type Step = share::Step<Fss>;

impl StepTypes for Fss {
    type Linear = ConvSpec;
    type Gate = FssGate;
    type Widen = FssWiden;
}

impl Scheme for Fss {
    const NAME: &'static str = super::options::NAME;
    const VERSION: u32 = super::VERSION;
    type Options = Options;

    fn gate(options: &Options, n: usize, width: u32, drop: u32, values: Vec<Value>) -> FssGate {
        FssGate::new(n, width, drop, values, options.level.checked_parties())
    }

    fn widen(options: &Options, WrapSpec { n, width, extra }: WrapSpec) -> FssWiden {
        FssWiden { n, width, extra, checked: options.level.checked_parties() }
    }

    fn check_look_up(options: &Options, look_up: &LookUp, table: &Table) -> Result<(), String> {
        let (name, bits) = (table.function.name(), table.index_bits());
        FssLookUp::new(look_up, options.level.checked_parties()).map(drop).map_err(|_| {
            format!(
                "{name} in a table of 2^{bits} entries: a table with tags has 2^12 at most; lower it with \
                 table_bits=12 or less, or take the back end `dealt`"
            )
        })
    }

    fn added(step: &Step, node: &Node, options: &Options) -> Added {
        let level = options.level;
        let gates = batches(step, level).map(|cost| cost.server_material as u128).sum::<u128>();
        let material = gates + LinearBytes::for_step(step, node, level, 1).dealt_bytes() as u128;
        let macs = match step {
            Step::Linear(conv) if level == Level::L2 => linear_check::work(conv).iter().map(|n| u128::from(*n)).sum(),
            _ => 0,
        };
        Added { material, macs }
    }

    /// There is nothing to choose, but the tags of linear layers must fit.
    fn choose(graph: &RingGraph, steps: &[Step], _: &Options) -> Result<Choices, BackendError> {
        for (id, (step, node)) in steps.iter().zip(graph.nodes()).enumerate() {
            if let Step::Linear(conv) = step
                && let Err(what) = mac_matmul::check(conv, node.fixed.width)
            {
                return Err(BackendError::Unsupported { node: id, name: node.name.clone(), op: node.op.name(), what });
            }
        }
        Ok(Choices::default())
    }

    fn canonical_gate(gate: &FssGate) -> impl Serialize {
        let cost = gate.cost();
        [gate.n(), cost.up, cost.down, cost.client_material, cost.server_material]
    }

    fn masks_biases(options: &Options) -> bool {
        options.level == Level::L2
    }
}

impl Plan {
    pub(super) fn level(&self) -> Level {
        self.options().level
    }

    /// Widths of the words that the client sends offline, and online.
    pub(super) fn widths(&self) -> [BTreeSet<u32>; 2] {
        let (mut offline, mut online) = (BTreeSet::new(), BTreeSet::new());
        for (step, node) in self.steps.iter().zip(self.graph.nodes()) {
            match step {
                Step::Linear(_) => drop(offline.insert(node.fixed.width)),
                Step::Widen(_) | Step::LookUp(_) => drop(online.insert(node.fixed.width)),
                _ => {
                    let gates = step.gates().filter(|gate| gate.n() > 0);
                    online.extend(gates.flat_map(|gate| gate.values().iter().map(|v| v.width())));
                }
            }
        }
        [offline, online]
    }
}

/// The costs of a step's batches of gates, widenings and look-ups.
pub(super) fn batches(step: &Step, level: Level) -> impl Iterator<Item = FssCost> {
    let extra = match step {
        Step::Widen(spec) => Some(spec.cost()),
        Step::LookUp(table) => Some(tagged_look_up(table, level).cost()),
        _ => None,
    };
    step.gates().filter(|gate| gate.n() > 0).map(|gate| gate.cost()).chain(extra)
}

/// The look-up with tags of the parties that `level` checks.
pub(super) fn tagged_look_up(table: &LookUp, level: Level) -> FssLookUp {
    FssLookUp::new(table, level.checked_parties()).expect("tables are checked when a plan is made")
}

/// Bytes of a linear layer in the server's half, for a batch of inputs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinearBytes {
    /// `A r - t`.
    pub(super) words: usize,
    /// Values that check the client's words, or the server's own shares. Not needed online.
    pub(super) checked: usize,
    /// Values that check the layer's result, at level `l2`.
    pub(super) projected: usize,
}

impl LinearBytes {
    /// The sizes for a step; zeros for a step other than a linear layer.
    pub(super) fn for_step(step: &Step, node: &Node, level: Level, batch: usize) -> Self {
        let Step::Linear(conv) = step else { return Self::default() };
        let (n, width) = (batch * node.elements(), node.fixed.width);
        let words = tacit_mpc::codec::Packed::len_bytes(n, width);
        let share_bytes = (batch * conv.in_len() + n) * mac_matmul::word_bytes(mac_matmul::ring(width));
        match level {
            Level::L1 => Self { words, checked: share_bytes, projected: 0 },
            Level::L2 => Self { words, checked: 2 * share_bytes, projected: linear_check::bytes(conv, width, batch) },
        }
    }

    /// Bytes that the dealer gives the server.
    pub(super) fn dealt_bytes(&self) -> usize {
        self.words + self.checked + self.projected
    }
}
