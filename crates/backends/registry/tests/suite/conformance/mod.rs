//! The conformance suite: runs every registered back end on every operation and shape, as two parties over a
//! channel, through the seam alone.
//!
//! For each model, lowering, loading and opening agree. Writing and reading does not change material. Answers
//! are within `Plan::error_bound` of the reference, and traffic and stored bytes are those of `Plan::costs`.
//! Batches (`batches`) take the exchanges of one input. A back end refuses only operations that it declares
//! not to compute (`Backend::support`), and names a back end that computes them.

mod batches;
mod helped;
pub mod models;

use std::collections::BTreeSet;
use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

use models::{Case, STEEP, cases};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tacit_arith::prg::Prg;
use tacit_backends::dealer::{Dealings, InProcessDealer};
use tacit_backends::{
    Backend, BackendError, ClientModel, ClientSide, ConnectionResources, Material, Options, PhaseCost, Plan,
    Preparation, Registry, ServerModel, ServerSide, Setup, Support,
};
use tacit_graph::rng::SplitMix;
use tacit_mpc::run_pair;
use tacit_net::{Channel, Phase, Traffic};

/// All back ends, the toy of the tests included.
fn registry() -> Registry {
    let registry = Registry::standard();
    assert!(registry.get("toy").is_ok(), "the tests are built with the toy");
    registry
}

/// Options with which `dealt` has at most 300 bytes of masked weights, and lattices for the largest layers.
const SPLIT: &str = "linear=auto,e_limit=0.0003";

/// The options that a back end is tried with.
fn variants(backend: &dyn Backend) -> Vec<Options> {
    let texts: &[&str] = match backend.id() {
        // Level `l2` uses lines in place of tables.
        "fss" => &["", "level=l2,table_bits=6"],
        // Lattices for all linear layers, and for some.
        "dealt" => &["", "linear=he", SPLIT],
        // Errors change the classes of random networks, so only the errors are checked.
        "ckks" => &["agreement=0"],
        _ => &[""],
    };
    texts.iter().map(|text| text.parse().expect("options")).collect()
}

/// One party's traffic by phase, and the size of its material.
struct PartyRun {
    traffic: [Traffic; 3],
    material: u64,
}

/// Hands material to `read` as bytes, and checks that it does not change. Returns it with its length.
fn write_and_read(
    material: &Material,
    read: impl Fn(&[u8]) -> Result<Material, BackendError>,
) -> Result<(Material, u64), BackendError> {
    let bytes = material.to_bytes().unwrap();
    let reread = read(&bytes)?;
    assert!(*reread.to_bytes().unwrap() == *bytes, "material changes when it is written and read");
    assert!(bytes.is_empty() || read(&bytes[..bytes.len() - 1]).is_err(), "material that was cut off is taken");
    Ok((reread, bytes.len() as u64))
}

fn record_run(channel: &Channel, material: u64) -> PartyRun {
    PartyRun { traffic: [Phase::Setup, Phase::Offline, Phase::Online].map(|phase| channel.traffic(phase)), material }
}

/// One party's phases, in the order and under the conditions that [`Preparation`] and [`Setup`] state.
macro_rules! phases {
    ($plan:expr, $side:expr, $channel:expr, $offline:expr, $online:expr) => {{
        let (side, channel) = (&mut $side, &mut *$channel);
        if $plan.setup() != Setup::Nothing {
            side.setup(channel)?;
            channel.flush()?;
        }
        channel.set_phase(Phase::Offline);
        let (material, size) = match $plan.preparation() {
            Preparation::TwoParty | Preparation::Dealt => $offline(side, channel)?,
            Preparation::Nothing => (Material::nothing(), 0),
        };
        channel.set_phase(Phase::Online);
        let result = $online(side, channel, material)?;
        channel.flush()?;
        Ok::<_, BackendError>((result, record_run(channel, size)))
    }};
}

/// The resources of both parties: a dealer.
fn resources() -> [ConnectionResources; 2] {
    let dealings = Arc::new(Dealings::new(registry(), Prg::from_os().expect("randomness"), 1));
    [1, 2].map(|party| ConnectionResources {
        dealer: Some(Arc::new(InProcessDealer::new(Arc::clone(&dealings), [party; 32]))),
        ..ConnectionResources::default()
    })
}

type MaterialResult = Result<(Material, u64), BackendError>;

/// Runs both parties on an input. Returns the answer, and both parties' runs.
fn infer(server: &Arc<dyn ServerModel>, client: &Arc<dyn ClientModel>, input: &[f32]) -> (Vec<f64>, [PartyRun; 2]) {
    let [client_resources, server_resources] = resources();
    let client_offline = |side: &mut Box<dyn ClientSide>, channel: &mut Channel| -> MaterialResult {
        let Some(bytes) = client.spooled_bytes() else {
            let material = side.offline(channel)?;
            channel.flush()?;
            return write_and_read(&material, |bytes| side.read_material(bytes));
        };
        let mut place = Cursor::new(Vec::new());
        side.offline_into(channel, &mut place)?;
        channel.flush()?;
        let place = place.into_inner();
        assert_eq!(place.len() as u64, bytes, "as announced");
        write_and_read(&side.read_material(&place)?, |bytes| side.read_material(bytes))?;
        assert!(side.spooled_material(bytes - 1, Box::new(Cursor::new(vec![]))).is_err());
        Ok((side.spooled_material(bytes, Box::new(Cursor::new(place)))?, bytes))
    };
    let server_offline = |side: &mut Box<dyn ServerSide>, channel: &mut Channel| -> MaterialResult {
        let Some(bytes) = server.spooled_bytes() else {
            let material = side.offline(channel)?;
            channel.flush()?;
            return write_and_read(&material, |bytes| side.read_material(bytes));
        };
        let mut place = Cursor::new(Vec::new());
        side.offline_into(channel, &mut place)?;
        channel.flush()?;
        let place = place.into_inner();
        assert_eq!(place.len() as u64, bytes, "as announced");
        assert!(side.spooled_material(bytes - 1, Box::new(Cursor::new(vec![]))).is_err());
        Ok((side.spooled_material(bytes, Box::new(Cursor::new(place)))?, bytes))
    };
    let (client_result, server_result) = run_pair(
        |channel| {
            let mut side = client.clone().connect(&client_resources)?;
            let online =
                |side: &mut Box<dyn ClientSide>, channel, material: Material| side.online(channel, material, input);
            phases!(client, side, channel, client_offline, online)
        },
        |channel| {
            let mut side = server.clone().connect(&server_resources)?;
            let online = |side: &mut Box<dyn ServerSide>, channel, material: Material| side.online(channel, material);
            phases!(server, side, channel, server_offline, online)
        },
    );
    let (answer, client_run) = client_result.expect("the client");
    let ((), server_run) = server_result.expect("the server");
    (answer, [client_run, server_run])
}

/// Checks that traffic is as stated: bytes exactly, with headers of frames, and exchanges. The client
/// turns to reading once in each exchange, and once more where it has the last word.
fn check_phase(case: &str, phase: Phase, cost: PhaseCost, client: Traffic, server: Traffic) {
    let stated = (cost.up_bytes, cost.down_bytes);
    assert_eq!((client.sent, server.sent), stated, "{case}, {phase:?}: bytes up and down, and as stated");
    // In the setup of OTs both parties send before they read, so turns are no exchanges.
    if phase != Phase::Setup {
        let last_word = client.rounds.wrapping_sub(cost.exchanges);
        assert!(last_word <= 1, "{case}, {phase:?}: {} turns, {} exchanges stated", client.rounds, cost.exchanges);
    }
}

/// Switches audits off: material that is audited is ordered anew, so its traffic is not that of one material.
fn without_audits(backend: &dyn Backend, options: &Options) -> Options {
    let mut text: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if ["dealt", "fss"].contains(&backend.id()) {
        text.push("audit=0".into());
    }
    text.join(",").parse().expect("options that were read before, and one more")
}

fn check(backend: &dyn Backend, options: &Options, (name, model): &Case, seed: u64) -> Result<(), BackendError> {
    let case = format!("{} ({options:?}) on {name}", backend.id());
    let lowered = backend.lower(model, &without_audits(backend, options))?;
    let server = backend.load(lowered.public_bytes(), &lowered.private_bytes()?)?;
    let client = backend.open(server.public_bytes())?;
    assert_eq!(server.public_bytes(), lowered.public_bytes(), "{case}");
    for plan in [&*server as &dyn Plan, &*client] {
        assert_eq!(plan.digest(), lowered.digest(), "{case}: the parties compile different plans");
        assert_eq!(plan.interface(), &model.interface, "{case}");
        assert_eq!(plan.costs(), lowered.costs(), "{case}");
        assert_eq!(plan.numerics(), lowered.numerics(), "{case}");
    }
    let single_rounds = check_run(&case, &server, &client, seed)?;
    // Each round tries one size of batches.
    let batch = batches::SIZES[seed as usize % batches::SIZES.len()];
    if batch <= server.max_batch() {
        // A client of another process, so that the setup runs again.
        let (several, client) = (server.batched(batch)?, backend.open(server.public_bytes())?.batched(batch)?);
        let rounds = check_run(&format!("{case}, {batch} inputs at once"), &several, &client, seed)?;
        batches::check_models(&case, &*server, &*several, &*client);
        assert_eq!(rounds, single_rounds, "{case}: online a batch of {batch} takes as many turns as one input");
    }
    assert!(backend.open(&server.public_bytes()[..server.public_bytes().len() - 1]).is_err(), "{case}");
    Ok(())
}

/// Runs both parties on a batch and checks answers and costs. Returns the online turns of both.
fn check_run(
    case: &str,
    server: &Arc<dyn ServerModel>,
    client: &Arc<dyn ClientModel>,
    seed: u64,
) -> Result<[u64; 2], BackendError> {
    let mut rng = SplitMix::new(seed);
    let (inputs, outputs) = (server.interface().input_len(), server.interface().output_len());
    let input: Vec<f32> = (0..server.batch() * inputs).map(|_| rng.range(-1.0, 1.0) as f32).collect();
    let (answer, [client_run, server_run]) = infer(server, client, &input);
    assert_eq!(answer.len(), server.batch() * outputs, "{case}");
    for (input, answer) in input.chunks(inputs).zip(answer.chunks(outputs)) {
        let reference = server.reference(input)?;
        let bound = server.error_bound(&reference);
        for (got, expected) in answer.iter().zip(&reference) {
            assert!((got - expected).abs() <= bound, "{case}: {got}, reference {expected}, declared bound {bound}");
        }
    }
    let costs = server.costs();
    assert_eq!(
        [client_run.material, server_run.material],
        [costs.offline.client, costs.offline.server].map(|c| c.stored_bytes),
        "{case}"
    );
    for (i, (phase, cost)) in
        [(Phase::Setup, costs.setup), (Phase::Offline, costs.offline), (Phase::Online, costs.online)]
            .into_iter()
            .enumerate()
    {
        check_phase(case, phase, cost, client_run.traffic[i], server_run.traffic[i]);
    }
    Ok([&client_run, &server_run].map(|run| run.traffic[2].rounds))
}

/// Models per case of the suite.
const ROUNDS: u64 = 4;

#[test]
fn every_back_end_conforms_on_every_operation_once() {
    let Refusals { declared, made } = run_rounds(0..1);
    assert_eq!(made, declared, "a back end refuses what it declares not to compute");
}

#[test]
fn every_back_end_conforms_on_other_shapes() {
    assert!(!run_rounds(1..ROUNDS).made.is_empty());
}

/// The refusals that back ends declare, and those that they made: (back end, case).
#[derive(Default)]
struct Refusals {
    declared: BTreeSet<(&'static str, &'static str)>,
    made: BTreeSet<(&'static str, &'static str)>,
}

/// Whether a back end declares that it refuses a case.
fn refuses(backend: &dyn Backend, (name, model): &Case) -> bool {
    model.graph.nodes.iter().any(|node| match backend.support(&node.op) {
        Support::Full => false,
        Support::Approximate => *name == STEEP,
        Support::Missing => true,
    })
}

/// Whether a refusal names a back end that declares to compute the case.
fn names_another_back_end(registry: &Registry, refusal: &str, case: &Case) -> bool {
    registry.iter().any(|backend| refusal.contains(&format!("`{}` has", backend.id())) && !refuses(&**backend, case))
}

/// Runs every case of these rounds on every back end.
fn run_rounds(rounds: Range<u64>) -> Refusals {
    let registry = registry();
    let mut refusals = Refusals::default();
    let mut runner = TestRunner::deterministic();
    for round in 0..rounds.end {
        let cases = cases().new_tree(&mut runner).expect("a strategy without filters").current();
        for case in cases.iter().filter(|_| rounds.contains(&round)) {
            for backend in registry.iter() {
                if refuses(&**backend, case) {
                    refusals.declared.insert((backend.id(), case.0));
                }
                for options in variants(&**backend) {
                    match check(&**backend, &options, case, round) {
                        Ok(()) => {}
                        Err(error @ BackendError::Unsupported { .. }) => {
                            let text = error.to_string();
                            assert!(
                                names_another_back_end(&registry, &text, case),
                                "it should say which back end can: {text}"
                            );
                            refusals.made.insert((backend.id(), case.0));
                        }
                        Err(error) => panic!("{} ({options:?}) on {}: {error}", backend.id(), case.0),
                    }
                }
            }
        }
    }
    refusals
}

/// Both halves of one input's material, as bytes.
fn halves(
    server: &Arc<dyn ServerModel>,
    client: &Arc<dyn ClientModel>,
    resources: &[ConnectionResources; 2],
) -> [Vec<u8>; 2] {
    macro_rules! make_half {
        ($model:expr, $resources:expr) => {
            |channel| {
                let mut side = $model.clone().connect($resources).expect("a connection");
                if $model.setup() != Setup::Nothing {
                    side.setup(channel).expect("the setup");
                    channel.flush().expect("the peer is there");
                }
                channel.set_phase(Phase::Offline);
                let material = side.offline(channel).expect("the offline phase");
                channel.flush().expect("the peer is there");
                material.to_bytes().expect("it is in memory").to_vec()
            }
        };
    }
    let (client_half, server_half) = run_pair(make_half!(client, &resources[0]), make_half!(server, &resources[1]));
    [client_half, server_half]
}

/// Damaged material of the right length gives an error or a wrong answer, without a panic or a wait.
#[test]
fn damaged_material_neither_panics_nor_hangs() {
    let mut rng = SplitMix::new(11);
    let tree = cases().new_tree(&mut TestRunner::deterministic()).expect("a strategy without filters");
    let (_, model) =
        tree.current().into_iter().max_by_key(|(_, model)| model.graph.nodes.len()).expect("there are cases");
    let registry = registry();
    for (backend, options) in registry.iter().flat_map(|b| variants(&**b).into_iter().map(move |o| (b, o))) {
        let server = match backend.lower(&model, &options) {
            Err(BackendError::Unsupported { .. }) => continue,
            lowered => lowered.expect("the other back ends take it"),
        };
        let client = backend.open(server.public_bytes()).expect("what was lowered");
        if server.preparation() == Preparation::Nothing {
            continue;
        }
        let (resources, input) = (resources(), vec![0.1; model.interface.input_len()]);
        for round in 0..24 {
            let mut halves = halves(&server, &client, &resources);
            let party = usize::from(round % 3 > 0);
            let damaged = &mut halves[party];
            let byte = (rng.next_u64() % damaged.len() as u64) as usize;
            damaged[byte] ^= 1 << (round % 8);
            let (answer, _) = run_pair(
                |channel| {
                    let mut side = client.clone().connect(&resources[0])?;
                    if client.setup() == Setup::BeforeOnline {
                        side.setup(channel)?;
                    }
                    let material = side.read_material(&halves[0])?;
                    side.online(channel, material, &input)
                },
                |channel| {
                    let mut side = server.clone().connect(&resources[1])?;
                    if server.setup() == Setup::BeforeOnline {
                        side.setup(channel)?;
                    }
                    let material = side.read_material(&halves[1])?;
                    side.online(channel, material)?;
                    Ok::<_, BackendError>(channel.flush()?)
                },
            );
            assert!(answer.is_err() || answer.is_ok_and(|answer| answer.len() == model.interface.output_len()));
        }
        let [client_half, server_half] = halves(&server, &client, &resources);
        for (bytes, reader) in [(&client_half, 0), (&server_half, 1)] {
            for cut in [0, 1, bytes.len() - 1] {
                let is_refused = match reader {
                    0 => client.clone().connect(&resources[0]).unwrap().read_material(&bytes[..cut]).is_err(),
                    _ => server.clone().connect(&resources[1]).unwrap().read_material(&bytes[..cut]).is_err(),
                };
                assert!(is_refused, "{}: {cut} of {} bytes are taken", backend.id(), bytes.len());
            }
        }
    }
}

/// The limit leaves some layers of a network to the dealer, and others to lattices.
#[test]
fn linear_layers_are_split_between_dealer_and_lattices() {
    let tree = cases().new_tree(&mut TestRunner::deterministic()).expect("a strategy without filters");
    let (_, model) = tree.current().into_iter().find(|(name, _)| *name == "network").expect("there is one");
    let registry = registry();
    let backend = registry.get("dealt").expect("it is registered");
    let lower = |text: &str| backend.lower(&model, &text.parse().expect("options")).expect("it is supported");
    let servers = ["", "linear=he", SPLIT].map(lower);
    let [dealt, he, split] = servers.each_ref().map(|server| {
        let costs = server.costs();
        let keys = server.order().expect("it is dealt").part.len() / 16;
        (keys, costs.setup.down_bytes, costs.offline.server.work.ntts, costs.dealing.work.macs)
    });
    assert!(dealt.0 > 2, "{dealt:?}");
    assert!(dealt.2 == 0, "{dealt:?}");
    assert!(dealt.1 > 300, "{dealt:?}");
    assert_eq!((he.0, he.1, he.3), (0, 0, 0));
    assert!(0 < split.0, "{split:?}");
    assert!(split.0 < dealt.0, "{split:?}");
    assert!(0 < split.2, "{split:?}");
    assert!(split.2 < he.2, "{split:?}");
    // The bytes of `E` and a header.
    assert!(0 < split.1, "{split:?}");
    assert!(split.1 < 320, "{split:?}");
    assert!(0 < split.3, "{split:?}");
    assert!(split.3 < dealt.3, "{split:?}");
    let digests = servers.each_ref().map(|server| server.digest());
    assert!(digests[0] != digests[1]);
    assert!(digests[1] != digests[2]);
    assert!(digests[0] != digests[2]);
}

fn first_case() -> Case {
    let tree = cases().new_tree(&mut TestRunner::deterministic()).expect("a strategy without filters");
    tree.current().swap_remove(0)
}

#[test]
fn an_input_that_does_not_fit_is_an_error_before_anything_is_sent() {
    let (_, model) = &first_case();
    for backend in registry().iter() {
        let server = backend.lower(model, &Options::default()).unwrap();
        let client = backend.open(server.public_bytes()).unwrap();
        let n = model.interface.input_len();
        for input in [vec![0.0; n + 1], vec![f32::NAN; n], vec![1e9; n]] {
            let (result, sent) = run_pair(
                |channel| {
                    let result = client.clone().connect(&ConnectionResources::default()).unwrap().online(
                        channel,
                        Material::nothing(),
                        &input,
                    );
                    (result.map(|_| ()), channel.total_traffic().sent)
                },
                |_| (),
            )
            .0;
            assert!(result.is_err(), "{}", backend.id());
            assert!(sent == 0, "{}", backend.id());
        }
    }
}

#[test]
fn unknown_options_and_back_ends_are_named() {
    let (_, model) = &first_case();
    for backend in registry().iter() {
        let mut options = Options::default();
        options.set("no_such_option", 1);
        let error = backend.lower(model, &options).err().expect("an unknown option").to_string();
        assert!(error.contains("no_such_option"), "{error}");
        assert!(error.contains(backend.id()), "{error}");
    }
    let error = registry().get("nobody").err().expect("no such back end").to_string();
    assert!(error.contains("nobody"), "{error}");
    assert!(error.contains("cheetah"), "{error}");
    assert!(error.contains("clear"), "{error}");
}

#[test]
fn foreign_public_parts_are_errors() {
    let (_, model) = &first_case();
    for backend in registry().iter() {
        let server = backend.lower(model, &Options::default()).unwrap();
        assert!(backend.open(&[]).is_err());
        assert!(backend.open(&[0xff; 64]).is_err());
        assert!(backend.load(server.public_bytes(), &[]).is_err(), "{}: no private part", backend.id());
        for foreign in registry().iter().filter(|foreign| foreign.id() != backend.id()) {
            assert!(foreign.open(server.public_bytes()).is_err(), "{} opens what is {}'s", foreign.id(), backend.id());
        }
        // The toy has one version only.
        if backend.id() != "toy" {
            let mut later = server.public_bytes().to_vec();
            later[1 + backend.id().len()] += 1;
            let error = backend.open(&later).err().expect("of another version");
            assert!(matches!(error, BackendError::Version { .. }), "{error}");
        }
    }
}
