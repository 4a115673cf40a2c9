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
pub mod parties;

use std::collections::BTreeSet;
use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

use models::{Case, STEEP, cases, first_model, largest_model};
use parties::{Models, resources};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tacit_backends::{
    Backend, BackendError, ClientModel, ConnectionResources, Material, Options, PhaseCost, Plan, Preparation, Registry,
    ServerModel, Setup, Support,
};
use tacit_graph::rng::SplitMix;
use tacit_mpc::run_pair;
use tacit_net::{Phase, Traffic};

/// All back ends, the toy of the tests included.
fn registry() -> Registry {
    let registry = Registry::standard();
    assert!(registry.get("toy").is_ok());
    registry
}

/// Options with which `dealt` has at most 300 bytes of masked weights, and lattices for the largest layers.
const SPLIT: &str = "linear=auto,e_limit=0.0003";

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
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

const PHASES: [Phase; 3] = [Phase::Setup, Phase::Offline, Phase::Online];

/// One party's traffic in [`PHASES`], and the bytes of its material.
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

/// One party's phases, in the order and under the conditions that [`Preparation`] and [`Setup`] state.
/// With `reads_spooled`, spooled material can also be read as a whole.
macro_rules! phases {
    ($model:ident, $resources:expr, $channel:ident, $reads_spooled:expr, |$side:ident, $material:ident| $online:expr) => {{
        let mut $side = $model.clone().connect($resources)?;
        if $model.setup() != Setup::Nothing {
            $side.setup($channel)?;
            $channel.flush()?;
        }
        $channel.set_phase(Phase::Offline);
        let ($material, size) = match ($model.preparation(), $model.spooled_bytes()) {
            (Preparation::Nothing, _) => (Material::nothing(), 0),
            (_, None) => {
                let material = $side.offline($channel)?;
                $channel.flush()?;
                write_and_read(&material, |bytes| $side.read_material(bytes))?
            }
            (_, Some(bytes)) => {
                let mut place = Cursor::new(Vec::new());
                $side.offline_into($channel, &mut place)?;
                $channel.flush()?;
                let place = place.into_inner();
                assert_eq!(place.len() as u64, bytes, "as announced");
                if $reads_spooled {
                    write_and_read(&$side.read_material(&place)?, |bytes| $side.read_material(bytes))?;
                }
                assert!($side.spooled_material(bytes - 1, Box::new(Cursor::new(vec![]))).is_err());
                ($side.spooled_material(bytes, Box::new(Cursor::new(place)))?, bytes)
            }
        };
        $channel.set_phase(Phase::Online);
        let result = $online?;
        $channel.flush()?;
        let traffic = PHASES.map(|phase| $channel.traffic(phase));
        Ok::<_, BackendError>((result, PartyRun { traffic, material: size }))
    }};
}

/// Runs both parties on an input. Returns the answer, and both parties' runs.
fn infer(server: &Arc<dyn ServerModel>, client: &Arc<dyn ClientModel>, input: &[f32]) -> (Vec<f64>, [PartyRun; 2]) {
    let [client_resources, server_resources] = resources();
    let (client_result, server_result) = run_pair(
        |channel| {
            phases!(client, &client_resources, channel, true, |side, material| side.online(channel, material, input))
        },
        |channel| phases!(server, &server_resources, channel, false, |side, material| side.online(channel, material)),
    );
    let (answer, client_run) = client_result.unwrap();
    let ((), server_run) = server_result.unwrap();
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
    text.join(",").parse().unwrap()
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
    let input: Vec<f32> = rng.floats(server.batch() * inputs, -1.0, 1.0);
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
    for (i, cost) in [costs.setup, costs.offline, costs.online].into_iter().enumerate() {
        check_phase(case, PHASES[i], cost, client_run.traffic[i], server_run.traffic[i]);
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

fn refuses(backend: &dyn Backend, (name, model): &Case) -> bool {
    model.graph.nodes.iter().any(|node| match backend.support(&node.op) {
        Support::Full => false,
        Support::Approximate => *name == STEEP,
        Support::Missing => true,
    })
}

fn names_another_back_end(registry: &Registry, refusal: &str, case: &Case) -> bool {
    registry.iter().any(|backend| refusal.contains(&format!("`{}` has", backend.id())) && !refuses(&**backend, case))
}

fn run_rounds(rounds: Range<u64>) -> Refusals {
    let registry = registry();
    let mut refusals = Refusals::default();
    let mut runner = TestRunner::deterministic();
    for round in 0..rounds.end {
        let cases = cases().new_tree(&mut runner).unwrap().current();
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

/// Client's and server's half of one input's material, as bytes.
fn halves(models: &Models, resources: &[ConnectionResources; 2]) -> [Vec<u8>; 2] {
    let Models { server, client } = models;
    macro_rules! make_half {
        ($model:expr, $resources:expr) => {
            |channel| {
                let mut side = $model.clone().connect($resources).unwrap();
                if $model.setup() != Setup::Nothing {
                    side.setup(channel).unwrap();
                    channel.flush().unwrap();
                }
                channel.set_phase(Phase::Offline);
                let material = side.offline(channel).unwrap();
                channel.flush().unwrap();
                material.to_bytes().unwrap().to_vec()
            }
        };
    }
    run_pair(make_half!(client, &resources[0]), make_half!(server, &resources[1])).into()
}

/// Damaged material of the right length gives an error or a wrong answer, without a panic or a wait.
#[test]
fn damaged_material_neither_panics_nor_hangs() {
    let mut rng = SplitMix::new(11);
    let model = largest_model();
    let registry = registry();
    for (backend, options) in registry.iter().flat_map(|b| variants(&**b).into_iter().map(move |o| (b, o))) {
        let server = match backend.lower(&model, &options) {
            Err(BackendError::Unsupported { .. }) => continue,
            lowered => lowered.unwrap(),
        };
        if server.preparation() == Preparation::Nothing {
            continue;
        }
        let models = Models::open(&**backend, server);
        let Models { server, client } = &models;
        let (resources, input) = (resources(), vec![0.1; model.interface.input_len()]);
        for round in 0..24 {
            let mut halves = halves(&models, &resources);
            let damaged = &mut halves[usize::from(round % 3 > 0)];
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
        let [client_half, server_half] = halves(&models, &resources);
        let client_side = client.clone().connect(&resources[0]).unwrap();
        let server_side = server.clone().connect(&resources[1]).unwrap();
        for cut in [0, 1] {
            assert!(client_side.read_material(&client_half[..cut]).is_err(), "{}: {cut} bytes", backend.id());
            assert!(server_side.read_material(&server_half[..cut]).is_err(), "{}: {cut} bytes", backend.id());
        }
        assert!(client_side.read_material(&client_half[..client_half.len() - 1]).is_err(), "{}", backend.id());
        assert!(server_side.read_material(&server_half[..server_half.len() - 1]).is_err(), "{}", backend.id());
    }
}

/// The limit leaves some layers of a network to the dealer, and others to lattices.
#[test]
fn linear_layers_are_split_between_dealer_and_lattices() {
    let model = first_model("network");
    let registry = registry();
    let backend = registry.get("dealt").unwrap();
    let lower = |text: &str| backend.lower(&model, &text.parse().unwrap()).unwrap();
    let servers = ["", "linear=he", SPLIT].map(lower);
    let [dealt, he, split] = servers.each_ref().map(|server| {
        let costs = server.costs();
        let keys = server.order().unwrap().part.len() / 16;
        (keys, costs.setup.down_bytes, costs.offline.server.work.ntts, costs.dealing.work.macs)
    });
    assert!(dealt.0 > 2, "{dealt:?}");
    assert_eq!(dealt.2, 0);
    assert!(dealt.1 > 300, "{dealt:?}");
    assert_eq!((he.0, he.1, he.3), (0, 0, 0));
    assert!((1..dealt.0).contains(&split.0), "{split:?}");
    assert!((1..he.2).contains(&split.2), "{split:?}");
    // The bytes of `E` and a header.
    assert!((1..320).contains(&split.1), "{split:?}");
    assert!((1..dealt.3).contains(&split.3), "{split:?}");
    let digests = servers.each_ref().map(|server| server.digest());
    assert!(digests[0] != digests[1]);
    assert!(digests[1] != digests[2]);
    assert!(digests[0] != digests[2]);
}

#[test]
fn an_input_that_does_not_fit_is_an_error_before_anything_is_sent() {
    let model = first_model("conv");
    for backend in registry().iter() {
        let client = Models::lower(&**backend, &model, &Options::default()).client;
        let n = model.interface.input_len();
        for input in [vec![0.0; n + 1], vec![f32::NAN; n], vec![1e9; n]] {
            let ((result, sent), ()) = run_pair(
                |channel| {
                    let mut side = client.clone().connect(&ConnectionResources::default()).unwrap();
                    (side.online(channel, Material::nothing(), &input), channel.total_traffic().sent)
                },
                |_| (),
            );
            assert!(result.is_err(), "{}", backend.id());
            assert_eq!(sent, 0, "{}", backend.id());
        }
    }
}

#[test]
fn unknown_options_and_back_ends_are_named() {
    let model = first_model("conv");
    for backend in registry().iter() {
        let mut options = Options::default();
        options.set("no_such_option", 1);
        let error = backend.lower(&model, &options).err().unwrap().to_string();
        assert!(error.contains("no_such_option"), "{error}");
        assert!(error.contains(backend.id()), "{error}");
    }
    let error = registry().get("nobody").err().unwrap().to_string();
    assert!(error.contains("nobody"), "{error}");
    assert!(error.contains("cheetah"), "{error}");
    assert!(error.contains("clear"), "{error}");
}

#[test]
fn foreign_public_parts_are_errors() {
    let model = first_model("conv");
    for backend in registry().iter() {
        let server = backend.lower(&model, &Options::default()).unwrap();
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
            let error = backend.open(&later).err().unwrap();
            assert!(matches!(error, BackendError::Version { .. }), "{error}");
        }
    }
}
