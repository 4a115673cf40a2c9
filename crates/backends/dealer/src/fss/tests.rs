//! Runs both parties over a link that changes one bit of one message, or with a changed bit in a
//! half. Either the server fails before it sends its share of the result, or the change has no
//! effect.

mod halves;

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tacit_arith::prg::{Prg, Seed};
use tacit_graph::Function;
use tacit_graph::geometry::Window;
use tacit_mpc::codec::Reader;
use tacit_mpc::{Role, Session};
use tacit_net::{Channel, MemTransport, Transport};
use zeroize::Zeroizing;

use super::client::{RESULT, TAGS};
use super::masked_walk::INPUT;
use super::plan::Plan;
use super::{Fss, Level, Options, material_format};
use crate::session::masked_weights::{self, MaskedWeights};
use crate::session::{
    ClientOffline, ClientPhases, Correlation, HalfReceiver, Run, ServerOffline, ServerPhases, Source, StoredHalf,
    check_half, with_digest,
};
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::Stop;
use tacit_ring::fixtures::spec;
use tacit_ring::reference;
use tacit_ring::{FixedPoint, LayerWeights, Linear, Lines, Node, Op, RingGraph, Table, WeightFacts, Weights};

/// Bytes of a frame's header.
const HEADER: usize = 10;
/// Tag of the seed of a check's subsets.
const SUBSETS: u16 = 0x363;
/// Tag of the combined high bits.
const HIGHS: u16 = 0x364;
/// Tag of the coins of a check of both parties.
const COIN: u16 = 0x369;

/// Changes one bit of the payload of one frame, corrects the checksum, and records all frames.
struct Flipping {
    inner: MemTransport,
    pending: Vec<u8>,
    frame: u64,
    /// Frame and bit to change.
    target: Option<(u64, usize)>,
    /// Tags and lengths of the frames so far.
    seen: Arc<Mutex<Vec<(u16, usize)>>>,
}

impl Read for Flipping {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buf)
    }
}

impl Write for Flipping {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(buf);
        while self.pending.len() >= HEADER {
            let word = u32::from_le_bytes(*self.pending[2..].first_chunk().unwrap());
            let end = HEADER + (word & 0x7fff_ffff) as usize;
            if self.pending.len() < end {
                break;
            }
            let rest = self.pending.split_off(end);
            let mut frame = std::mem::replace(&mut self.pending, rest);
            let tag = u16::from_le_bytes([frame[0], frame[1]]);
            self.seen.lock().unwrap().push((tag, frame.len() - HEADER));
            if let Some((target, bit)) = self.target
                && target == self.frame
            {
                frame[HEADER + bit / 8] ^= 1 << (bit % 8);
                let mut crc = crc32fast::Hasher::new();
                [&self.frame.to_le_bytes()[..], &frame[..6], &frame[HEADER..]].iter().for_each(|part| crc.update(part));
                frame[6..10].copy_from_slice(&crc.finalize().to_le_bytes());
            }
            self.frame += 1;
            self.inner.write_all(&frame)?;
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Transport for Flipping {
    fn peer(&self) -> String {
        "a changed line".into()
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.set_stall_timeout(timeout)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.inner.set_deadline(deadline);
    }
}

/// A model at client, server and dealer.
struct Case {
    plan: Plan,
    weights: Weights,
    keys: Vec<Seed>,
    masked_weights: MaskedWeights,
    input: Vec<i64>,
    halves: [Vec<u8>; 2],
}

/// A sink that keeps all bytes.
fn append_to(out: &mut Vec<u8>) -> impl FnMut(&[u8]) -> Result<(), BackendError> {
    move |bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    }
}

fn deal_half(role: Role, plan: &Plan, keys: &[Seed], dealing: u8) -> Vec<u8> {
    let mut half = Vec::new();
    Fss::deal(role, plan, keys, &Seed([dealing; 16]), &mut append_to(&mut half)).expect("a half");
    half
}

fn read_stored<'a>(plan: &Plan, role: Role, bytes: &'a [u8]) -> Result<StoredHalf<'a>, BackendError> {
    let content = check_half(plan, role, bytes, Fss::half_bytes(plan, role).stored)?;
    Ok(StoredHalf { made_for: plan.binding(), source: Source::Memory(Reader::new(content)) })
}

struct Outcome {
    /// Frames by sender, client first.
    frames: [Vec<(u16, usize)>; 2],
    answer: Result<Vec<i64>, BackendError>,
    server: Result<(), BackendError>,
}

impl Case {
    fn new(level: Level, nodes: Vec<Node>) -> Self {
        Self::with_batch(level, nodes, 1)
    }

    fn with_batch(level: Level, nodes: Vec<Node>, batch: usize) -> Self {
        let graph = RingGraph::new(spec(nodes)).expect("a valid graph");
        let mut random = Prg::from_seed(Seed([1; 16]));
        let mut layers = Vec::new();
        for (node, Node { op, shape, inputs, .. }) in graph.nodes().iter().enumerate() {
            if let Op::Linear(_) = op {
                let count = shape[0] * graph.nodes()[inputs[0]].elements();
                let weights = (0..count).map(|_| (random.next_u64() % 15) as i32 - 7).collect();
                layers.push(LayerWeights { node, weights, bias: vec![3; shape[0]] });
            }
        }
        let input = (0..batch * graph.input().elements()).map(|_| (random.next_u64() % 61) as i64 - 30).collect();
        let single = Plan::compile(graph, Options { level, ..Options::default() }).expect("a plan");
        let (plan, weights) = (single.batched(batch), Weights { layers });
        let keys = masked_weights::keys(&plan, &weights, &[7; 32]);
        let mut masked = Vec::new();
        masked_weights::write(&plan, &weights, &keys, &mut append_to(&mut masked)).unwrap();
        let mut receiver = masked_weights::MaskedWeightsReceiver::new(&plan);
        receiver.push(&masked).unwrap();
        let masked_weights = receiver.finish(&masked_weights::digest(&plan, &weights, &keys).unwrap()).unwrap();
        let halves = [Role::Client, Role::Server].map(|role| deal_half(role, &plan, &keys, 5));
        Self { plan, weights, keys, masked_weights, input, halves }
    }

    /// Runs all phases, the client with `material`. `flip`: the bit to change in each party's
    /// messages, client first.
    fn run(&self, material: &[u8], flip: [Option<(u64, usize)>; 2]) -> Outcome {
        let ends = MemTransport::pair();
        let seen = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
        let end = |inner, party: usize| {
            let seen = Arc::clone(&seen[party]);
            Channel::new(Box::new(Flipping { inner, pending: Vec::new(), frame: 0, target: flip[party], seen }))
        };
        let (client_channel, mut server_channel) = (end(ends.0, 0), end(ends.1, 1));
        let Self { plan, weights, keys, masked_weights, input, halves } = self;
        let mut prgs = [8, 9].map(|seed| Prg::from_seed(Seed([seed; 16])));
        let [client_prg, server_prg] = &mut prgs;
        let (answer, server) = std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                let (stop, mut material_bytes) = (Stop::default(), Vec::new());
                let (half, _) = Self::receive_half(plan, Role::Server, &halves[1])?;
                let half = Source::Memory(Reader::new(&half));
                let mut session = Session { role: Role::Server, channel: &mut server_channel, prg: server_prg };
                <Fss as ServerPhases>::offline(
                    Run { plan, session: &mut session, stop: &stop },
                    ServerOffline { weights, keys, client_keys: None, half, sink: &mut append_to(&mut material_bytes) },
                )?;
                let stored_half = read_stored(plan, Role::Server, &material_bytes)?;
                <Fss as ServerPhases>::online(Run { plan, session: &mut session, stop: &stop }, stored_half, weights)
            });
            // Dropped before the server is waited for.
            let answer = Self::ask(plan, masked_weights, material, input, client_channel, client_prg);
            (answer, server.join().expect("no panic"))
        });
        Outcome { frames: seen.map(|seen| seen.lock().unwrap().clone()), answer, server }
    }

    /// Receives a half in arbitrarily cut pieces, as over a network. Returns content and head.
    fn receive_half(plan: &Plan, role: Role, half: &[u8]) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), BackendError> {
        let (mut receiver, mut content) =
            (HalfReceiver::new(Fss::half_bytes(plan, role), Fss::half_digest(plan, role)), Vec::new());
        half.chunks(1000).try_for_each(|piece| receiver.push(piece, &mut append_to(&mut content)))?;
        Ok((content, receiver.finish()?.0))
    }

    fn ask(
        plan: &Plan,
        masked_weights: &MaskedWeights,
        half: &[u8],
        input: &[i64],
        mut channel: Channel,
        prg: &mut Prg,
    ) -> Result<Vec<i64>, BackendError> {
        let stop = Stop::default();
        let half = with_digest(plan, Role::Client, half);
        let (mut material, head) = Self::receive_half(plan, Role::Client, &half)?;
        let mut session = Session { role: Role::Client, channel: &mut channel, prg };
        let inputs = ClientOffline { masked_weights, keys: None, head: &head };
        let run = Run { plan, session: &mut session, stop: &stop };
        material.extend_from_slice(&<Fss as ClientPhases>::offline(run, inputs)?);
        let material = with_digest(plan, Role::Client, &material);
        let run = Run { plan, session: &mut session, stop: &stop };
        <Fss as ClientPhases>::online(run, read_stored(plan, Role::Client, &material)?, input)
    }

    /// The client's half, without its digest.
    fn material(&self) -> &[u8] {
        &self.halves[0][..Fss::half_bytes(&self.plan, Role::Client).dealt]
    }

    /// Runs honest parties. The answer equals the reference up to local truncations.
    fn run_honest(&self, exact: bool) -> Outcome {
        let outcome = self.run(self.material(), [None; 2]);
        let graph = self.plan.graph();
        let inputs = self.input.chunks(graph.input().elements());
        let reference =
            inputs.map(|input| reference::run(graph, &self.weights, input).unwrap()).collect::<Vec<_>>().concat();
        let answer = outcome.answer.as_ref().expect("honest parties");
        assert!(outcome.server.is_ok() && answer.len() == reference.len());
        let max_error = if exact { 0 } else { 20 };
        assert!(answer.iter().zip(&reference).all(|(a, b)| a.abs_diff(*b) <= max_error), "{answer:?}, {reference:?}");
        outcome
    }
}

fn node(op: Op, inputs: Vec<usize>, shape: &[usize], width: u32) -> Node {
    Node { name: op.name().into(), op, inputs, shape: shape.to_vec(), fixed: FixedPoint { width, frac_bits: 4 } }
}

fn dense(out_features: usize) -> Op {
    Op::Linear(Linear { out_features, weights: WeightFacts { frac_bits: 0, magnitude_bits: 4, norm_bits: 8 } })
}

/// A table with negative entries.
fn table() -> Op {
    let entries = (0..64).map(|i| (7 * i * i + 3 * i) % 23 - 9).collect();
    Op::LookUp(Table { function: Function::Sigmoid, entries, lines: None, frac_bits: 4, error: 1 })
}

/// Eight pieces of lines.
fn lines() -> Op {
    let lines = Some(Lines { low: 3, shift: 1, slopes: vec![0, -1, -1, 0, 1, 1, 1, 0] });
    let entries = vec![8, 6, 4, 1, 0, 2, 5, 7];
    Op::LookUp(Table { function: Function::Tanh, entries, lines, frac_bits: 4, error: 1 })
}

/// Every operation with a protocol of its own, and batches of two inputs.
fn cases(level: Level) -> Vec<Case> {
    let cut = |mut node: Node| {
        node.fixed.frac_bits = 1;
        node
    };
    let window = Window { kernel: [2, 2], stride: [1, 1], pads: [0; 4] };
    let mut index = node(Op::ArgMax, vec![1], &[1], 6);
    index.fixed.frac_bits = 0;
    let layers = vec![
        node(Op::Input, vec![], &[5], 13),
        node(dense(4), vec![0], &[4], 13),
        node(Op::Relu, vec![1], &[4], 25),
        node(dense(2), vec![2], &[2], 25),
        cut(node(Op::Truncate { bits: 3 }, vec![3], &[2], 22)),
    ];
    vec![
        Case::new(level, layers.clone()),
        Case::new(
            level,
            vec![
                node(Op::Input, vec![], &[4], 14),
                node(dense(3), vec![0], &[3], 14),
                node(Op::Widen, vec![1], &[3], 24),
            ],
        ),
        Case::new(
            level,
            vec![node(Op::Input, vec![], &[1, 3, 3], 10), node(Op::MaxPool(window), vec![0], &[1, 2, 2], 10)],
        ),
        Case::new(level, vec![node(Op::Input, vec![], &[4], 14), node(dense(3), vec![0], &[3], 14), index]),
        Case::with_batch(level, layers, 2),
        Case::new(level, vec![node(Op::Input, vec![], &[3], 6), node(table(), vec![0], &[3], 9)]),
        // A table in the middle of a network, for two inputs at once.
        Case::with_batch(
            level,
            vec![
                node(Op::Input, vec![], &[3], 6),
                node(dense(2), vec![0], &[2], 6),
                node(Op::Relu, vec![1], &[2], 6),
                node(table(), vec![2], &[2], 9),
                node(dense(2), vec![3], &[2], 9),
            ],
            2,
        ),
        Case::new(level, vec![node(Op::Input, vec![], &[2], 6), node(lines(), vec![0], &[2], 9)]),
    ]
}

/// Whether a net has neither local truncations nor lines, whose results depend on masks.
fn is_exact(number: usize) -> bool {
    ![3, 7].contains(&number)
}

/// Whether messages with a tag are checked: the input is the client's choice, and the server is
/// honest.
fn is_checked(tag: u16) -> bool {
    ![INPUT, RESULT].iter().any(|unchecked| unchecked.id() == tag)
}

/// A changed bit of a message.
struct Flip {
    /// The sender: 0 for the client, 1 for the server.
    party: usize,
    tag: u16,
    name: String,
}

/// Runs all cases with each bit of the messages with a `checked` tag changed, and calls `check`.
fn check_flips(level: Level, checked: impl Fn(u16) -> bool, check: impl Fn(&Flip, &Outcome)) {
    for (net, case) in cases(level).iter().enumerate() {
        let honest = case.run_honest(is_exact(net));
        for (party, frames) in honest.frames.iter().enumerate() {
            for (frame, &(tag, len)) in frames.iter().enumerate().filter(|(_, (tag, _))| checked(*tag)) {
                // The combined high bits and digests are long, so only some bits are tried.
                let step = if len > 40 { 61 } else { 1 };
                for bit in (0..8 * len).step_by(step) {
                    let name = format!("net {net}, party {party}, tag {tag:#x}, bit {bit}");
                    let mut target = [None; 2];
                    target[party] = Some((frame as u64, bit));
                    let outcome = case.run(case.material(), target);
                    let chooses_subsets = match level {
                        Level::L1 => tag == SUBSETS,
                        Level::L2 => tag == COIN && party == 0,
                    };
                    let same = outcome.answer.as_ref().is_ok_and(|answer| answer == honest.answer.as_ref().unwrap());
                    if chooses_subsets && same {
                        // Subsets of no words are all equally good.
                        assert!(case.plan.widths()[0].is_empty(), "{name}");
                    } else if tag == HIGHS && same {
                        // A sum of high bits is no value: the check subtracts it. If wrong by `2^j`, it
                        // passes if `2^(41 - j)` divides the key of the words. So at most the last bits
                        // can pass.
                        assert!(bit % 41 > 34, "{name}");
                    } else {
                        check(&Flip { party, tag, name }, &outcome);
                    }
                }
            }
        }
    }
}

impl Outcome {
    fn server_has_sent_its_share(&self) -> bool {
        self.frames[1].iter().any(|(tag, _)| *tag == RESULT.id())
    }
}

#[test]
fn detects_changed_bits_of_messages_l1() {
    check_flips(Level::L1, is_checked, |flip, outcome| {
        assert!(outcome.server.is_err(), "{}", flip.name);
        assert!(!outcome.server_has_sent_its_share(), "{}", flip.name);
        assert!(outcome.answer.is_err(), "{}", flip.name);
    });
}

/// At level `l2` no change of a bit in either party's messages, the input included, makes the
/// client end with another result. The server does not send its share after a wrong message of
/// either party.
#[test]
fn detects_changed_bits_of_both_parties_l2() {
    check_flips(
        Level::L2,
        |_| true,
        |flip, outcome| {
            assert!(outcome.answer.is_err(), "{}", flip.name);
            let is_last = flip.party == 1 && [RESULT.id(), TAGS.id()].contains(&flip.tag);
            assert!(is_last || (!outcome.server_has_sent_its_share() && outcome.server.is_err()), "{}", flip.name);
        },
    );
}

/// The server uses weights or biases that differ in one entry from those that were masked.
#[test]
fn detects_server_with_another_model() {
    let mut case = cases(Level::L2).swap_remove(0);
    let check = |case: &Case, changed: &str, layer: usize| {
        let outcome = case.run(case.material(), [None; 2]);
        assert!(outcome.answer.is_err() && outcome.server.is_err(), "{changed} of layer {layer}");
    };
    for layer in 0..2 {
        case.weights.layers[layer].weights[3] += 1;
        check(&case, "weights", layer);
        case.weights.layers[layer].weights[3] -= 1;
        case.weights.layers[layer].bias[1] -= 1;
        check(&case, "biases", layer);
        case.weights.layers[layer].bias[1] += 1;
    }
    case.run_honest(true);
}

#[test]
fn server_material_change_is_detected_or_harmless() {
    for (number, mut case) in cases(Level::L2).into_iter().enumerate() {
        let answer = case.run_honest(is_exact(number)).answer.unwrap();
        let len = Fss::half_bytes(&case.plan, Role::Server).dealt;
        let (original, mut detected, mut tried) = (case.halves[1][..len].to_vec(), 0, 0);
        for bit in (0..8 * len).filter(|bit| bit % 19 == 0 && *bit >= 128) {
            let mut changed = original.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            case.halves[1] = with_digest(&case.plan, Role::Server, &changed).to_vec();
            let outcome = case.run(case.material(), [None; 2]);
            tried += 1;
            match outcome.answer {
                Err(_) => detected += 1,
                // An unused bit, padding, or the highest bits of what a check subtracts.
                Ok(changed) => assert_eq!(changed, answer, "net {number}, bit {bit}"),
            }
        }
        assert!(detected > tried / 5, "{detected} of {tried}");
    }
}

#[test]
fn client_material_change_is_detected_or_harmless() {
    let levels = [Level::L1, Level::L2].map(cases);
    for (number, case) in levels.iter().flat_map(|cases| cases.iter().enumerate()) {
        let answer = case.run_honest(is_exact(number)).answer.unwrap();
        let (mut material, mut detected) = (case.material().to_vec(), 0);
        let bits = 8 * material.len();
        // At level `l2` a third seed makes the input's mask: changing it changes the input.
        let head = 8 * material_format::head_bytes(&case.plan, Role::Client);
        for bit in (0..bits).filter(|bit| *bit < 256 || (*bit >= head && bit % 13 == 0)) {
            material[bit / 8] ^= 1 << (bit % 8);
            let outcome = case.run(&material, [None; 2]);
            material[bit / 8] ^= 1 << (bit % 8);
            match outcome.server {
                Err(_) => {
                    assert!(!outcome.server_has_sent_its_share(), "net {number}, bit {bit}");
                    detected += 1;
                }
                // An unused correction word.
                Ok(()) => assert_eq!(outcome.answer.unwrap(), answer, "net {number}, bit {bit}"),
            }
        }
        // The seeds, and about every second word.
        let min_detected = if case.plan.level() == Level::L1 && number == 1 { 128 } else { 250 };
        assert!(detected >= min_detected, "{detected} of {bits}");
    }
}
