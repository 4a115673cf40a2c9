//! Compares every operation with the fixed-point reference, node by node. The tests tap both parties'
//! shares of each node, and run the reference on the reconstructed inputs. Results are equal, or within
//! the declared bound.

use super::net::{Net, half_size, same_size};
use proptest::prelude::*;
use std::sync::Arc;
use tacit_arith::prg::{Prg, Seed};
use tacit_backends::BackendError;
use tacit_backends::cheetah::{
    Cheetah, ClientMaterial, ClientParty, Leaves, Options, Plan, ServerMaterial, ServerParty, batched, compile, costs,
    online_bytes,
};
use tacit_backends::ring::fixed::to_signed;
use tacit_backends::ring::reference::{self, Reference};
use tacit_backends::ring::{Op, Weights};
use tacit_backends::seam::MaterialSeed;
use tacit_graph::Interpreter;
use tacit_graph::geometry::{ConvGeometry, Window};
use tacit_mpc::ot::PlannedOts;
use tacit_mpc::session::run_sessions;
use tacit_mpc::{Ots, Session};
use tacit_net::{HEADER_BYTES, Phase, TrafficModel};

type Shares = Vec<Vec<u64>>;

struct Outcome {
    output: Vec<i64>,
    client: Shares,
    server: Shares,
    /// Payload bytes with frame headers, by the sender: [offline up, offline down, online up, online down].
    sent: [u64; 4],
    /// Turns of the online phase, of the client and the server.
    rounds: [u64; 2],
}

fn prg(seed: u8) -> Prg {
    Prg::from_seed(Seed([seed; 16]))
}

/// A model as both parties hold it.
struct Model {
    plan: Arc<Plan>,
    weights: Arc<Weights>,
}

impl Model {
    /// Compiles a model that ends with `output`. Returns it with a random input.
    fn compile(net: Net, output: usize, options: Options, seed: u64) -> (Self, Vec<i64>) {
        let (graph, weights, input) = net.finish(output, seed);
        (Self { plan: Arc::new(compile(graph, options).unwrap()), weights: Arc::new(weights) }, input)
    }

    fn batched(&self, batch: usize) -> Self {
        Self { plan: Arc::new(batched(&self.plan, batch)), weights: self.weights.clone() }
    }

    fn client(&self) -> ClientParty {
        ClientParty::new(self.plan.clone(), prg(3))
    }

    fn server(&self) -> ServerParty {
        ServerParty::new(self.plan.clone(), self.weights.clone(), prg(4))
    }
}

/// A model of a convolution and a ReLU, with a random input.
fn small_model() -> (Model, Vec<i64>) {
    let mut net = Net::new(vec![2, 5, 5], 30, 9);
    let c = net.conv(0, same_size(4, 3), 30);
    let t = net.truncate(c, 6);
    let r = net.relu(t, 30);
    Model::compile(net, r, Options::default(), 9)
}

/// Runs all phases on the inputs of a batch, with the material written and read back between them.
fn run(model: &Model, input: &[i64], seed: u64) -> Outcome {
    let plan = &model.plan;
    let nodes = plan.graph().nodes().len();
    let stored = costs(plan).offline;
    let (client, server) = run_sessions(
        seed,
        |s, ots| {
            let mut party = model.client();
            party.setup_with(s.channel, ots).unwrap();
            s.channel.set_phase(Phase::Offline);
            let bytes = party.offline(s.channel).unwrap().to_bytes();
            assert_eq!(bytes.len() as u64, stored.client.stored_bytes);
            let material = ClientMaterial::from_bytes(plan, &bytes).unwrap();
            s.channel.set_phase(Phase::Online);
            let mut taps = vec![Vec::new(); nodes];
            let mut tap = |id: usize, share: &[u64]| taps[id] = share.to_vec();
            let output = party.online(s.channel, material, input, &mut tap).unwrap();
            (output, taps, [Phase::Offline, Phase::Online].map(|phase| s.channel.traffic(phase)))
        },
        |s, ots| {
            let mut party = model.server();
            party.setup_with(s.channel, ots).unwrap();
            s.channel.set_phase(Phase::Offline);
            let bytes = party.offline(s.channel).unwrap().to_bytes();
            assert_eq!(bytes.len() as u64, stored.server.stored_bytes);
            let material = ServerMaterial::from_bytes(plan, &bytes).unwrap();
            s.channel.set_phase(Phase::Online);
            let mut taps = vec![Vec::new(); nodes];
            let mut tap = |id: usize, share: &[u64]| taps[id] = share.to_vec();
            party.online(s.channel, material, &mut tap).unwrap();
            (taps, [Phase::Offline, Phase::Online].map(|phase| s.channel.traffic(phase)))
        },
    );
    let sent = [client.2[0], server.1[0], client.2[1], server.1[1]].map(|traffic| traffic.sent);
    let rounds = [client.2[1], server.1[1]].map(|traffic| traffic.rounds);
    Outcome { output: client.0, client: client.1, server: server.0, sent, rounds }
}

/// Random OTs of one input with the client and with the server as receiver: an OT costs its receiver two AES
/// blocks, its sender three.
fn rots(costs: &tacit_backends::Costs) -> (u64, u64) {
    let work = costs.offline.client.work;
    let client_sends = work.aes_blocks - 2 * work.ots;
    (work.ots - client_sends, client_sends)
}

/// Lowest and highest allowed difference from the reference at one node, where its input is `before`.
fn bound(plan: &Plan, id: usize, before: i64) -> (i64, i64) {
    // Approximate resharing.
    let linear = |id: usize| i64::from(plan.linear_error(id));
    let node = &plan.graph().nodes()[id];
    match &node.op {
        // The client does not store the bits that a truncation drops.
        Op::Conv2d(_) | Op::Linear(_) => (-linear(id) - (1 << plan.unread(id)) + 1, linear(id)),
        Op::Truncate { .. } if plan.truncates_exactly(id) => (0, 0),
        // floor(c) + floor(s + 1/2) differs from the floor of the sum by at most one.
        // Where `before` is the reference's value, the parties' value may be off.
        Op::Truncate { bits } => {
            let off = if plan.unread(node.inputs[0]) > 0 { linear(node.inputs[0]) } else { 0 };
            let shift = |error: i64| ((before + error) >> bits) - (before >> bits);
            (shift(-off) - 1, shift(off) + 1)
        }
        _ => (0, 0),
    }
}

/// Checks every node's reconstructed tensor of input `index` of a batch, given the reconstructed inputs.
fn check(plan: &Plan, weights: &Weights, index: usize, input: &[i64], outcome: &Outcome) {
    let graph = plan.graph();
    let select = |tensor: &[u64]| tensor.chunks(tensor.len() / plan.batch()).nth(index).unwrap().to_vec();
    let mut reference = Reference::new(graph, weights, input).unwrap();
    let mut values: Vec<Vec<i64>> = Vec::new();
    for (id, node) in graph.nodes().iter().enumerate() {
        let width = node.fixed.width;
        let pairs = select(&outcome.client[id]).into_iter().zip(select(&outcome.server[id]));
        let got: Vec<i64> = pairs.map(|(c, s)| to_signed(c.wrapping_add(s), width)).collect();
        let inputs: Vec<&Vec<i64>> = node.inputs.iter().map(|&i| &values[i]).collect();
        let expected = reference.node(id, node, &inputs).unwrap();
        assert_eq!(got.len(), expected.len(), "node {id} ({})", node.op.name());
        for (i, (g, w)) in got.iter().zip(&expected).enumerate() {
            let before = inputs.first().and_then(|input| input.get(i)).copied().unwrap_or_default();
            let (low, high) = bound(plan, id, before);
            assert!((low..=high).contains(&(g - w)), "node {id} ({}), element {i}: {g}, reference {w}", node.op.name());
        }
        // A truncation of shares without low bits is compared with that of the whole tensor.
        values.push(if plan.unread(id) > 0 { expected } else { got });
    }
    let outputs = graph.output().elements();
    assert_eq!(outcome.output[index * outputs..][..outputs], values[graph.spec().output]);
}

/// Options by number: 0 to 3 have direct comparison leaves of 1 to 4 bits, 4 to 7 masked ones, 8 and 9
/// digits by weight.
fn options(kind: u32) -> Options {
    let leaves = match kind {
        0..4 => Leaves::Direct(kind + 1),
        4..8 => Leaves::Masked(kind - 3),
        _ => Leaves::Weighed([1, 6][kind as usize - 8]),
    };
    Options { leaves, ..Options::default() }
}

/// Checks one input, and for some seeds a batch.
fn conform(net: Net, output: usize, options: Options, seed: u64) {
    let (model, input) = Model::compile(net, output, options, seed);
    let single = conform_batch(&model, &input, options, seed);
    let batch = [1, 2, 5][seed as usize % 3];
    if batch > 1 {
        let inputs: Vec<i64> = (0..batch).flat_map(|index| vary_input(&input, index)).collect();
        let several = conform_batch(&model.batched(batch), &inputs, options, seed);
        assert_eq!(several.rounds, single.rounds, "a batch takes as many exchanges as one input");
    }
}

/// Another input of a batch, from its first.
fn vary_input(input: &[i64], index: usize) -> Vec<i64> {
    (0..input.len()).map(|i| (1 - (index as i64 & 2)) * input[(i + index) % input.len()]).collect()
}

fn conform_batch(model: &Model, inputs: &[i64], options: Options, seed: u64) -> Outcome {
    let Model { plan, weights } = model;
    let outcome = run(model, inputs, seed % 1000);
    for (index, input) in inputs.chunks(inputs.len() / plan.batch()).enumerate() {
        check(plan, weights, index, input, &outcome);
    }
    let cost = costs(plan);
    let (offline, online) = (cost.offline, cost.online);
    if plan.batch() == 1 {
        let price = online_bytes::<Cheetah>(plan.graph(), &options).unwrap();
        let headers = online.bytes() - price;
        assert!(headers > 0);
        assert!(headers.is_multiple_of(HEADER_BYTES as u64));
    }
    assert_eq!(outcome.sent[2..], [online.up_bytes, online.down_bytes]);
    // Ideal OTs send nothing; the stated bytes include the messages of real OTs.
    let (client_rots, server_rots) = rots(&cost);
    let (mut ots, mut traffic) = (PlannedOts::new(client_rots as usize, server_rots as usize), TrafficModel::default());
    ots.client_receives(client_rots as usize, &mut traffic);
    ots.server_receives(server_rots as usize, &mut traffic);
    for (sent, stated) in
        outcome.sent.iter().zip([offline.up_bytes - traffic.up_bytes(), offline.down_bytes - traffic.down_bytes()])
    {
        // Each draw of OTs takes whole groups of 64, and has its own message.
        let slack = 10_000 * plan.graph().nodes().len() as u64;
        assert!((*sent..=sent + slack).contains(&stated), "{sent} sent, {stated} stated");
    }
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn convolutions_conform(ch in 1usize..7, out in 1usize..9, h in 3usize..12, w in 3usize..12, k in 1usize..4, s in 1usize..4,
                    d in 1usize..3, pads in prop::array::uniform4(0usize..2), groups in 1usize..3, width in 26u32..38, seed in any::<u64>()) {
        let d = if d * (k - 1) + 1 > h.min(w) { 1 } else { d };
        let mut net = Net::new(vec![ch * groups, h, w], width, seed);
        let geometry = ConvGeometry {
            out_channels: out * groups, kernel: [k, k], stride: [s, s], dilation: [d, d], pads, groups,
        };
        let y = net.conv(0, geometry, width);
        conform(net, y, Options::default(), seed);
    }

    #[test]
    fn fully_connected_layers_conform(features in 1usize..200, out in 1usize..40, width in 26u32..38, seed in any::<u64>()) {
        let mut net = Net::new(vec![features], width, seed);
        let y = net.linear(0, out, width);
        conform(net, y, Options::default(), seed);
    }

    #[test]
    fn relus_conform(ch in 1usize..5, h in 1usize..9, w in 1usize..9, width in 26u32..38, extra in 0u32..4, kind in 0u32..10, seed in any::<u64>()) {
        let mut net = Net::new(vec![ch, h, w], width, seed);
        let y = net.conv(0, same_size(3, 1), width);
        let t = net.truncate(y, 6);
        let r = net.relu(t, (width + extra).min(40));
        conform(net, r, options(kind), seed);
    }

    #[test]
    fn max_pools_conform(ch in 1usize..4, h in 4usize..11, w in 4usize..11, k in 1usize..4, s in 1usize..4, before in 0usize..2, after in 0usize..2, seed in any::<u64>()) {
        let (before, after) = (before.min(k - 1), after.min(k - 1));
        let mut net = Net::new(vec![ch, h, w], 24, seed);
        let pool = Op::MaxPool(Window { kernel: [k, k], stride: [s, s], pads: [before, before, after, after] });
        let y = net.pool(0, pool);
        conform(net, y, Options::default(), seed);
    }

    #[test]
    fn arg_max_conforms(n in 1usize..70, kind in 0u32..10, seed in any::<u64>()) {
        let mut net = Net::new(vec![n], 20, seed);
        let y = net.arg_max(0, 12);
        conform(net, y, options(kind), seed);
    }

    #[test]
    fn revealed_truncations_conform(n in 1usize..80, width in 14u32..40, bits in 1u32..11, after in 0u32..3, kind in 0u32..10, seed in any::<u64>()) {
        let mut net = Net::new(vec![n], width, seed);
        let wide = net.mul_const(0, vec![(seed >> 40 & 0x7f) as i64 - 63], 6);
        let t = net.truncate(wide, bits);
        let y = match after {
            0 => t,
            1 => net.add_const(t, -3),
            _ => net.widen(t, width),
        };
        conform(net, y, options(kind), seed);
    }

    #[test]
    fn widening_without_a_known_sign_conforms(n in 1usize..100, width in 12u32..20, extra in 1u32..12, seed in any::<u64>()) {
        let mut net = Net::new(vec![n], width, seed);
        let y = net.widen(0, width + extra);
        let z = net.linear(y, 3, width + extra);
        conform(net, z, Options::default(), seed);
    }
}

/// A fire module: one tensor feeds two convolutions, whose outputs are joined and pooled; the sum of two
/// branches, a strided slice with channel padding (CIFAR ResNet shortcut), average pool and classifier.
#[test]
fn a_network_of_all_operations_conforms() {
    for (seed, radix) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 0)] {
        let mut net = Net::new(vec![3, 13, 11], 36, seed);
        let c = net.conv(0, half_size(8, 3), 34);
        let t = net.truncate(c, 6);
        let squeezed = net.relu(t, 33);
        let e1 = net.conv(squeezed, same_size(6, 1), 32);
        let e3 = net.conv(squeezed, same_size(6, 3), 33);
        let (t1, t3) = (net.truncate(e1, 8), net.truncate(e3, 8));
        let (r1, r3) = (net.relu(t1, 33), net.relu(t3, 33));
        let joined = net.concat(vec![r1, r3]);
        let short = net.slice_pad(joined, 2, 2);
        let wide = net.conv(joined, ConvGeometry { groups: 2, ..half_size(16, 3) }, 33);
        let t = net.truncate(wide, 10);
        let sum = net.add(t, short);
        let r = net.relu(sum, 32);
        let pooled = net.pool(r, Op::SumPool(Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] }));
        let turned = net.transpose(pooled, vec![1, 2, 0]);
        let flat = net.flatten(turned);
        let logits = net.linear(flat, 10, 31);
        let class = net.arg_max(logits, 10);
        conform(net, class, options(radix), seed);
    }
}

/// Tensors that are so large that each material has its own keys. The encryption chooses the masks of
/// the input and of a ReLU's result, here for layers of two strides, but not those of a sum.
#[test]
fn masks_chosen_by_the_encryption_conform() {
    let mut net = Net::new(vec![4, 72, 70], 33, 1);
    let c = net.conv(0, same_size(8, 3), 33);
    let t = net.truncate(c, 6);
    let r = net.relu(t, 33);
    let near = net.conv(r, same_size(4, 3), 33);
    let far = net.conv(r, half_size(4, 1), 32);
    let (near, far) = (net.truncate(near, 6), net.truncate(far, 6));
    let sum = net.add(near, near);
    let last = net.conv(sum, half_size(2, 1), 27);
    let last = net.truncate(last, 6);
    let out = net.concat(vec![last, far]);
    let flat = net.flatten(out);
    let logits = net.linear(flat, 3, 21);
    let cut = net.truncate(logits, 6);
    let costs = costs(&Model::compile(net.clone(), cut, Options::default(), 1).0.plan);
    assert!(costs.setup.up_bytes < 435_000 + 25_616, "the setup has no lattice keys: {}", costs.setup.up_bytes);
    assert!(costs.online.client.work.ntts > 0);
    conform(net, cut, Options::default(), 1);
}

/// Clip to [0, 6] as a difference of two ReLUs, a leaky ReLU, and an average with a divisor for each
/// position.
#[test]
fn public_constants_conform() {
    for seed in 1..6 {
        let mut net = Net::new(vec![2, 4, 5], 30, seed);
        let c = net.conv(0, same_size(3, 3), 30);
        let t = net.truncate(c, 6);
        let shifted = net.add_const(t, -(6 << 6));
        let (low, high) = (net.relu(t, 24), net.relu(shifted, 24));
        let clipped = net.sub(low, high);
        let pooled = net.pool(clipped, Op::SumPool(Window { kernel: [2, 2], stride: [1, 1], pads: [1, 1, 0, 0] }));
        let factors = (0..20).map(|i| 16 << (i % 3)).collect();
        let average = net.mul_const(pooled, factors, 6);
        let average = net.truncate(average, 6);
        let positive = net.relu(average, 18);
        let slope = net.mul_const(average, vec![-13], 0);
        let leaky = net.add(slope, positive);
        conform(net, leaky, Options::default(), seed);
    }
}

#[test]
fn several_inputs_over_one_session_use_fresh_material() {
    let (model, _) = small_model();
    let batch: Vec<Vec<i64>> = (0..3).map(|b| (0..50).map(|i| (i * 7 + b * 13) % 50 - 25).collect()).collect();
    let (outputs, materials) = run_sessions(
        5,
        |s, ots| {
            let mut party = model.client();
            party.setup_with(s.channel, ots).unwrap();
            let run = batch.iter().map(|x| {
                let m = party.offline(s.channel).unwrap();
                party.online(s.channel, m, x, &mut |_, _| {}).unwrap()
            });
            run.collect::<Vec<_>>()
        },
        |s, ots| {
            let mut party = model.server();
            party.setup_with(s.channel, ots).unwrap();
            let run = batch.iter().map(|_| {
                let m = party.offline(s.channel).unwrap();
                let bytes = m.to_bytes();
                party.online(s.channel, m, &mut |_, _| {}).unwrap();
                bytes
            });
            run.collect::<Vec<_>>()
        },
    );
    assert!(materials[0] != materials[1]);
    assert!(materials[1] != materials[2]);
    for (x, got) in batch.iter().zip(outputs) {
        let expected = reference::run(model.plan.graph(), &model.weights, x).unwrap();
        assert!(got.iter().zip(&expected).all(|(g, w)| (g - w).abs() <= 2), "{got:?} {expected:?}");
    }
}

/// All other randomness is equal.
#[test]
fn a_helpers_rest_and_the_devices_seed_are_the_devices_own_material() {
    let (model, _) = small_model();
    let seed = || MaterialSeed::new(&mut [9; 16]);
    let make_material = |seed: MaterialSeed| {
        let client_side = |s: &mut Session<'_>, ots: Ots| {
            let mut party = model.client();
            party.setup_with(s.channel, ots).unwrap();
            party.offline_from(s.channel, seed).unwrap()
        };
        let server_side = |s: &mut Session<'_>, ots: Ots| {
            let mut party = model.server();
            party.setup_with(s.channel, ots).unwrap();
            party.offline(s.channel).unwrap();
        };
        run_sessions(5, client_side, server_side).0
    };
    let (alone, helped) = (make_material(seed()).to_bytes(), make_material(seed()).rest_to_bytes());
    let joined = ClientMaterial::from_seed(&model.plan, seed(), &helped).unwrap();
    assert!(*joined.to_bytes() == *alone);
    assert!(*make_material(MaterialSeed::new(&mut [8; 16])).to_bytes() != *alone);
}

/// Neither party's shares of any tensor are equal.
#[test]
fn equal_inputs_of_a_batch_are_shared_apart() {
    let (model, input) = small_model();
    let outcome = run(&model.batched(4), &input.repeat(4), 7);
    for tensor in outcome.client.iter().chain(&outcome.server) {
        let shares: Vec<&[u64]> = tensor.chunks(tensor.len() / 4).collect();
        let apart = (0..4).all(|a| (0..a).all(|b| shares[a].iter().zip(shares[b]).filter(|(a, b)| a == b).count() < 4));
        assert!(apart, "two inputs of a batch share a mask");
    }
}

#[test]
fn misuse_and_foreign_material_are_errors() {
    let mut net = Net::new(vec![4], 20, 1);
    let y = net.arg_max(0, 8);
    let (model, input) = Model::compile(net.clone(), y, Options::default(), 1);
    assert!(ClientMaterial::from_bytes(&model.plan, &[0; 5]).is_err());
    assert!(ServerMaterial::from_bytes(&model.plan, &vec![0; 1 << 16]).is_err());
    let (other_model, _) = Model::compile(net, y, options(3), 1);
    assert_ne!(model.plan.digest(), other_model.plan.digest(), "plans with other options must not share material");
    fn is_misuse<T>(result: Result<T, BackendError>) -> bool {
        matches!(result, Err(BackendError::Misuse(_)))
    }
    let refused = run_sessions(
        1,
        |s, ots| {
            let mut party = model.client();
            assert!(is_misuse(party.offline(s.channel)), "the setup comes first");
            party.setup_with(s.channel, ots).unwrap();
            let material = party.offline(s.channel).unwrap();
            is_misuse(other_model.client().online(s.channel, material, &input, &mut |_, _| {}))
        },
        |s, ots| {
            let mut party = model.server();
            assert!(is_misuse(party.offline(s.channel)), "the setup comes first");
            party.setup_with(s.channel, ots).unwrap();
            let material = party.offline(s.channel).unwrap();
            is_misuse(other_model.server().online(s.channel, material, &mut |_, _| {}))
        },
    );
    assert_eq!(refused, (true, true));
}

/// The exact truncation of the result adds one batch of gates to a model. With a local truncation the model
/// took 350 bytes up and 160 down online in one exchange, and no OT.
#[test]
fn a_revealed_truncation_costs_a_batch_of_gates() {
    let cost = |bits: u32| {
        let mut net = Net::new(vec![100], 28, 2);
        let y = net.linear(0, 64, 28);
        let t = if bits > 0 { net.truncate(y, bits) } else { y };
        costs(&Model::compile(net, t, Options::default(), 2).0.plan)
    };
    let (plain, cut) = (cost(0), cost(8));
    let online = |c: &tacit_backends::Costs| (c.online.up_bytes, c.online.down_bytes, c.online.exchanges);
    assert_eq!(online(&plain), (10 + 350, 10 + 224, 1));
    // Of 64 elements, in bits: digits of 3, 3 and 2 bits, values of 20. Up: openings 4, D 1, difference 20.
    // Down: leaves 8, openings 4, D 1; and the result itself in 20 bits. Each message has a header of ten
    // bytes.
    assert_eq!(online(&cut), (5 * 10 + 350 + 8 * 25, 5 * 10 + 8 * (8 + 4 + 1) + 160, 1 + 2));
    assert_eq!((rots(&plain), rots(&cut)), ((0, 0), (64 * 3, 64 * 10)));
    // Trees of 128 leaves, with 96 bytes of corrections each.
    assert_eq!(cut.offline.up_bytes - plain.offline.up_bytes, 10 + 8 * (12 + 16 + 5) + 5 * (10 + 96));
    assert_eq!(cut.offline.down_bytes - plain.offline.down_bytes, 10 + 8 * 20 + 2 * (10 + 96));
    assert_eq!((plain.comparisons, cut.comparisons), (0, 64));
    // Coefficients of the leaves 22, of which 2 constants are within those of the tree, the server's masks 8,
    // tree 6, lambda 1, and the multiplexer's strings.
    assert_eq!(cut.offline.client.stored_bytes - plain.offline.client.stored_bytes, 8 * (20 + 6 + 1 + 20));
    assert_eq!(cut.offline.server.stored_bytes - plain.offline.server.stored_bytes, 8 * (20 + 8 + 6 + 1 + 20));
}
