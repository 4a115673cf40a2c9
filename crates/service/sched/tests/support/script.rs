//! Random scripts: all events of a scheduler, in any order.

use proptest::prelude::*;

/// A step of a script. A pick is taken modulo the number of candidates, so every script is valid. A model
/// is a place in the driver's list, whose model changes when models are added and removed.
#[derive(Clone, Debug)]
pub enum Op {
    Request {
        client: u64,
        model: usize,
        inputs: u32,
        notice: Option<usize>,
        timeout: Option<u64>,
        deadline: u8,
        lanes: Option<u32>,
        kept: usize,
    },
    Notice {
        client: u64,
        model: usize,
        inputs: u32,
        lanes: Option<u32>,
        keep: bool,
        /// Seconds until the request is expected, and the time to live in seconds.
        life: Option<(u64, u64)>,
    },
    Finish {
        pick: usize,
        percent: u64,
    },
    Fail(usize),
    /// A job could not start. If `lanes` is 0, its request loses its lanes first.
    NotStarted {
        pick: usize,
        lanes: u32,
    },
    /// A stopping job stops (0), fails (1) or succeeds (2).
    Stopped {
        pick: usize,
        how: u8,
    },
    Lanes {
        request: bool,
        pick: usize,
        lanes: u32,
    },
    Gone(u64),
    Revoke(u64),
    Cancel(usize),
    Capacity {
        cores: u32,
        memory: u64,
    },
    /// Milliseconds pass.
    Advance(u64),
    Found {
        material: u64,
        model: usize,
        client: Option<u64>,
    },
    /// Kept material is gone or, without `kept`, material that may be in stock or in use.
    Lose {
        pick: usize,
        kept: bool,
    },
    /// Inputs of another model use this model's stock.
    Demand {
        model: usize,
        inputs: u32,
    },
    AddModel(usize),
    RemoveModel(usize),
    Policy(usize),
    StaleEnd(u64),
    /// At once, or after the accepted requests.
    Shutdown(bool),
}

/// Places of models; the last one has no model.
const MODELS: usize = 7;

fn lanes() -> impl Strategy<Value = Option<u32>> {
    prop::option::weighted(0.4, 0..4u32)
}

fn arrival() -> impl Strategy<Value = Op> {
    let batch = || prop_oneof![6 => Just(1u32), 3 => 2..4u32, 1 => 4..10u32];
    let notice = prop::option::weighted(0.5, 0..64usize);
    let timeout = prop::option::weighted(0.3, 0..60_000u64);
    let kept = prop_oneof![2 => Just(0usize), 1 => 1..4usize];
    let life = prop::option::weighted(0.3, (0..20u64, 0..40u64));
    prop_oneof![
        2 => (0..4u64, 0..MODELS, batch(), notice, timeout, 0..3u8, lanes(), kept).prop_map(
            |(client, model, inputs, notice, timeout, deadline, lanes, kept)| {
                Op::Request { client, model, inputs, notice, timeout, deadline, lanes, kept }
            }
        ),
        1 => (0..4u64, 0..MODELS, batch(), lanes(), prop::bool::weighted(0.3), life).prop_map(
            |(client, model, inputs, lanes, keep, life)| Op::Notice { client, model, inputs, lanes, keep, life }
        ),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let capacity = (prop_oneof![4 => 1..7u32, 1 => Just(0u32)], prop_oneof![3 => 80..140u64, 1 => 30..80u64]);
    prop_oneof![
        24 => arrival(),
        28 => (0..64usize, 50..200u64).prop_map(|(pick, percent)| Op::Finish { pick, percent }),
        4 => (0..64usize).prop_map(Op::Fail),
        3 => (0..64usize, 0..2u32).prop_map(|(pick, lanes)| Op::NotStarted { pick, lanes }),
        6 => (0..64usize, 0..3u8).prop_map(|(pick, how)| Op::Stopped { pick, how }),
        6 => (any::<bool>(), 0..64usize, 0..4u32).prop_map(|(request, pick, lanes)| Op::Lanes { request, pick, lanes }),
        2 => (0..5u64).prop_map(Op::Gone),
        1 => (0..5u64).prop_map(Op::Revoke),
        2 => (0..64usize).prop_map(Op::Cancel),
        2 => capacity.prop_map(|(cores, memory)| Op::Capacity { cores, memory }),
        8 => (0..8_000u64).prop_map(Op::Advance),
        2 => found_material(),
        1 => (0..64usize, any::<bool>()).prop_map(|(pick, kept)| Op::Lose { pick, kept }),
        1 => (0..MODELS, 1..3u32).prop_map(|(model, inputs)| Op::Demand { model, inputs }),
        1 => (0..MODELS).prop_map(Op::AddModel),
        1 => (0..MODELS).prop_map(Op::RemoveModel),
        1 => (0..64usize).prop_map(Op::Policy),
        2 => (0..400u64).prop_map(Op::StaleEnd),
    ]
}

/// Material from an earlier run. Names from 1000 on may also be names of this run.
fn found_material() -> impl Strategy<Value = Op> {
    (0..1_100u64, 0..MODELS, prop::option::of(0..4u64)).prop_map(|(material, model, client)| Op::Found {
        material,
        model,
        client,
    })
}

/// A script of fewer than `len` steps after material from an earlier run. One in four has a shutdown in its
/// second half.
pub fn script(len: usize) -> impl Strategy<Value = Vec<Op>> {
    let end = prop::option::weighted(0.25, (0..len / 2, any::<bool>()));
    let start = prop::collection::vec(found_material(), 0..8);
    (start, prop::collection::vec(op(), 1..len), end).prop_map(|(mut ops, middle, end)| {
        ops.extend(middle);
        if let Some((ops_after, now)) = end {
            let index = ops.len() - ops_after.min(ops.len());
            ops.insert(index, Op::Shutdown(now));
        }
        ops
    })
}
