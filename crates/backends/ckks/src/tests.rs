//! Two-party runs on small networks, and errors for a peer that breaks the protocol.

use std::sync::Arc;

use tacit_floats::{largest_distance, largest_magnitude};
use tacit_graph::float::{FloatGraph, FloatOp};
use tacit_graph::rng::SplitMix;
use tacit_graph::{Function, Interval, Model, Watch};
use tacit_mpc::run_pair;
use tacit_net::{Channel, HEADER_BYTES, NetError, Phase};

use super::Ckks;
use super::keyset::{Budget, Design, Goal, PRESETS, Wish, design};
use super::networks_for_tests::{activated, draw, imported, input, relu, residual, telling_the_class};
use super::public::{Port, Public};
use super::wire::{HELLO, Hello, INPUT, KEY, WELCOME, WELCOME_BYTES, Welcome};
use tacit_backend_api::{
    Backend, BackendError, ClientModel, ClientSide, ConnectionResources, Costs, Material, Options, ServerModel,
    check::check,
};

pub(super) fn both(model: &Model, options: &str) -> (Arc<dyn ServerModel>, Arc<dyn ClientModel>) {
    let server = Ckks.lower(model, &options.parse::<Options>().unwrap()).unwrap();
    let client = Ckks.open(server.public_bytes()).unwrap();
    (server, client)
}

/// Connects a client and runs its setup.
pub(super) fn set_up(
    client: &Arc<dyn ClientModel>,
    resources: &ConnectionResources,
    channel: &mut Channel,
) -> Result<Box<dyn ClientSide>, BackendError> {
    let mut side = client.clone().connect(resources)?;
    side.setup(channel)?;
    Ok(side)
}

/// Connects a server, runs its setup and answers `count` inputs.
pub(super) fn serve(
    server: &Arc<dyn ServerModel>,
    resources: &ConnectionResources,
    channel: &mut Channel,
    count: usize,
) -> Result<(), BackendError> {
    let mut side = server.clone().connect(resources)?;
    side.setup(channel)?;
    channel.flush()?;
    (0..count).try_for_each(|_| side.online(channel, Material::nothing()))
}

/// Runs a setup and inputs on one connection; returns answers and the setup's uploaded bytes.
fn answers(server: &Arc<dyn ServerModel>, client: &Arc<dyn ClientModel>, inputs: &[Vec<f32>]) -> (Vec<Vec<f64>>, u64) {
    let resources = ConnectionResources::default();
    let ask = |channel: &mut Channel| {
        let mut side = set_up(client, &resources, channel)?;
        let sent = channel.total_traffic().sent;
        let all = inputs.iter().map(|x| side.online(channel, Material::nothing(), x));
        Ok::<_, BackendError>((all.collect::<Result<Vec<_>, _>>()?, sent))
    };
    let (asked, served) = run_pair(ask, |channel| serve(server, &resources, channel, inputs.len()));
    served.unwrap();
    asked.unwrap()
}

/// Asserts that a text has all words.
pub(super) fn assert_words(text: &str, words: &[&str]) {
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
}

/// Asserts that an answer is within the stated bound of the reference.
pub(super) fn assert_near(server: &Arc<dyn ServerModel>, x: &[f32], answer: &[f64]) {
    let (off, bound) = (largest_distance(&server.reference(x).unwrap(), answer), server.error_bound(&[]));
    assert!(off <= bound, "off by {off}, {bound} is stated");
}

#[test]
fn residual_network_answers_within_bound() {
    let model = residual();
    for options in ["", "rotations=chained", "rotations=powers"] {
        let (server, client) = both(&model, options);
        let inputs = [input(&model, 1), input(&model, 2)];
        let (result, first) = answers(&server, &client, &inputs);
        for (x, result) in inputs.iter().zip(&result) {
            assert_near(&server, x, result);
            let (expected, float) = (server.reference(x).unwrap(), model.run(x).unwrap());
            assert!(largest_distance(&expected, &float) < 1e-4, "{options}: {expected:?} {float:?}");
        }
        // The server has the keys already.
        let (again, second) = answers(&server, &client, &inputs[..1]);
        assert_eq!(again.len(), 1);
        assert!(second < 200 && first > 1 << 20, "{first} bytes first, {second} then");
    }
}

/// Digits below the error never reach the caller, and rounding costs what is stated.
#[test]
fn answers_are_rounded_to_stated_error() {
    let model = residual();
    let (server, client) = both(&model, "rotations=chained");
    let (fine, open) = both(&model, "rotations=chained,round=false");
    let step = server.error_bound(&[]);
    assert_eq!(step, 2.0 * fine.error_bound(&[]));
    assert_eq!([&client, &open].map(|model| model.waives()), [None, Some(("round", "false"))]);
    let inputs = [input(&model, 6), input(&model, 7)];
    let is_round = |v: &f64| (v / step).fract() == 0.0 && !(*v == 0.0 && v.is_sign_negative());
    let (rounded, _) = answers(&server, &client, &inputs);
    assert!(rounded.iter().flatten().all(is_round), "{rounded:?}");
    let (exact, _) = answers(&fine, &open, &inputs);
    assert!(!exact.iter().flatten().all(is_round));
    for (x, result) in inputs.iter().zip(&exact) {
        let off = largest_distance(&fine.reference(x).unwrap(), result);
        // The bound is not far above the actual error.
        assert!(off <= step / 2.0 && off > step / 400.0, "off by {off}, {} is stated", step / 2.0);
    }
    assert!(server.simulate(&inputs[0]).unwrap().iter().all(is_round));
}

/// The stated memory covers the encoded weights, and is not much more.
#[test]
fn stated_memory_covers_weights() {
    let options = super::options::Options::default();
    let plan = super::plan::plan(&residual(), &options, 0.0, &Watch::default()).unwrap();
    let weights = super::circuit::Circuit::new(&plan).unwrap().memory_bytes() as u64;
    let stated = super::key_requirements::Draft::new(&plan, &options, None).unwrap().weights;
    assert!((weights..=2 * weights).contains(&stated), "{weights} bytes, {stated} stated");
    let (keys, online) = (plan.public.costs.setup.server.stored_bytes, plan.public.costs.online.server);
    assert!(online.peak_memory_bytes > keys + weights);
}

#[test]
fn protocol_violations_are_errors() {
    let model = residual();
    let (server, client) = both(&model, "rotations=chained");
    let hello = Hello { name: [7; 32], lasts: false }.to_bytes();
    // A key of another length, a truncated key set, an invalid input: the server reports an error
    // and stores none of it.
    let resources = ConnectionResources::default();
    let serve = |channel: &mut Channel| serve(&server, &resources, channel, 1);
    let damage = |channel: &mut Channel| -> Result<(), NetError> {
        channel.send(HELLO, &hello)?;
        channel.flush()?;
        assert_eq!(Welcome::from_bytes(&channel.recv(WELCOME, WELCOME_BYTES)?), Ok(Welcome::Send { there: 0 }));
        channel.send(KEY, &[1; 100])?;
        channel.flush()
    };
    let (_, refused) = run_pair(damage, serve);
    assert!(matches!(refused, Err(BackendError::Net(_))));
    let leave = |channel: &mut Channel| {
        channel.send(HELLO, &hello).unwrap();
        channel.flush().unwrap();
        channel.recv(WELCOME, WELCOME_BYTES).unwrap();
    };
    let (_, refused) = run_pair(leave, serve);
    assert!(matches!(refused, Err(BackendError::Net(_))));
    let wrong_level = |channel: &mut Channel| {
        set_up(&client, &resources, channel).unwrap();
        let len = client.costs().online.up_bytes as usize - HEADER_BYTES;
        channel.send(INPUT, &vec![0; len]).unwrap();
        channel.flush().unwrap();
    };
    let (_, refused) = run_pair(wrong_level, serve);
    assert!(refused.unwrap_err().to_string().contains("version"));
    let early = |channel: &mut Channel| {
        let mut side = client.clone().connect(&resources).unwrap();
        side.online(channel, Material::nothing(), &input(&model, 1))
    };
    assert!(matches!(run_pair(early, |_: &mut Channel| ()).0, Err(BackendError::Misuse(_))));
}

#[test]
fn damaged_public_parts_do_not_panic() {
    let model = residual();
    let (server, _) = both(&model, "");
    let bytes = server.public_bytes().to_vec();
    let mut rng = SplitMix::new(3);
    for _ in 0..200 {
        let mut damaged = bytes.clone();
        let index = (rng.next_u64() % damaged.len() as u64) as usize;
        damaged[index] ^= 1 << (rng.next_u64() % 8);
        // The read succeeds or fails, but never panics.
        drop(Ckks.open(&damaged));
    }
    assert!(Ckks.open(&bytes[..bytes.len() - 1]).is_err());
}

#[test]
fn strain_reports_inputs_out_of_range() {
    let model = residual();
    let (server, _) = both(&model, "");
    let usual = server.strain(&input(&model, 4)).unwrap();
    assert!(usual.iter().all(|s| s.share < 1.0));
    let mut wide = model.clone();
    (wide.interface.input.range, wide.interface.input.declared) = (Interval { low: -1e6, high: 1e6 }, vec![]);
    let (server, _) = both(&wide, "");
    let largest = |x: &[f32]| largest_magnitude(server.strain(x).unwrap().iter().map(|s| s.share));
    assert!(largest(&vec![1e5; 128]) > 1.0 && largest(&input(&model, 4)) < 1.0);
    // The advised option exists in this back end.
    let check_report = check(&wide, &*server, &[vec![1e5; 128]], None, &Watch::default()).unwrap();
    let advice = check_report.advice.unwrap();
    assert!(check_report.overflowed == 1 && advice.contains("-O margin=1.25"), "{advice}");
    assert!(Ckks.lower(&model, &"margin=2.5".parse().unwrap()).is_ok());
}

#[test]
fn best_key_set_within_budget_runs() {
    let model = residual();
    let wish = |upload, goal| Wish { budget: Budget { memory: None, upload }, goal, ..Wish::default() };
    let plan = |wish: &Wish| design(&model, &Options::default(), wish, &Watch::default());
    let fast = plan(&wish(None, Goal::Latency)).unwrap();
    let small = plan(&wish(None, Goal::Upload)).unwrap();
    let chosen = |d: &Design| d.choices[d.chosen].clone();
    assert!(chosen(&fast).seconds < chosen(&small).seconds && chosen(&small).bytes < chosen(&fast).bytes);
    // No runnable set beats the search's result, and the paper's strategies need more.
    let runs = |d: &Design| d.choices.iter().filter(|c| c.options.is_some()).cloned().collect::<Vec<_>>();
    assert!(runs(&fast).iter().all(|c| c.seconds >= chosen(&fast).seconds && c.bytes >= chosen(&small).bytes));
    let preset = |name: &str| fast.choices.iter().find(|c| c.name == name).unwrap();
    assert!(PRESETS.iter().all(|p| preset(p.name).bytes > chosen(&small).bytes));
    assert!(preset("level-aware").plain_bytes < preset("alpha=1").plain_bytes);
    assert!(preset("alpha=1").plain_bytes < preset("all-required").plain_bytes);
    // Seconds fall along the front, and its ends are the sets of the two goals.
    assert!(fast.front.windows(2).all(|w| w[0].bytes < w[1].bytes && w[0].seconds > w[1].seconds));
    assert_eq!(fast.front[0].bytes, chosen(&small).bytes);
    assert!((fast.front[fast.front.len() - 1].seconds - chosen(&fast).seconds).abs() < 1e-9);
    // Between the ends the ways are mixed. The named options give the stated keys, and answers.
    let half = chosen(&small).bytes.midpoint(chosen(&fast).bytes);
    let between = plan(&wish(Some(half), Goal::Latency)).unwrap();
    assert!(chosen(&between).bytes <= half && chosen(&between).seconds < chosen(&small).seconds);
    let options = chosen(&between).options.unwrap();
    let (server, client) = both(&model, &options);
    assert_eq!(server.costs().setup.server.stored_bytes, chosen(&between).bytes);
    let x = input(&model, 5);
    let (result, _) = answers(&server, &client, std::slice::from_ref(&x));
    assert_near(&server, &x, &result[0]);
    // Each key has its reason.
    assert_eq!(between.keys.len(), chosen(&between).keys);
    assert_eq!(between.keys.iter().map(|k| k.bytes).sum::<u64>(), chosen(&between).bytes);
    assert!(between.keys.iter().all(|k| k.reason != "rotations"), "{:?}", between.keys);
}

#[test]
fn refuses_tight_budgets_and_unknown_strategies() {
    let model = residual();
    let plan = |options: &str, wish: &Wish| design(&model, &options.parse().unwrap(), wish, &Watch::default());
    let refused = |wish: &Wish| plan("", wish).unwrap_err().to_string();
    let with = |memory, upload| Wish { budget: Budget { memory, upload }, ..Wish::default() };
    assert!(refused(&with(None, Some(1000))).contains("the fewest"));
    // Weights count as well as keys.
    let error = refused(&with(Some(4_000_000), None));
    assert_words(&error, &["encoded weights", "bytes of memory with"]);
    let error = refused(&Wish { strategy: "best".into(), ..Wish::default() });
    assert_words(&error, &["level-aware", "strategy"]);
    let wish = Wish { strategy: "level-aware".into(), ..Wish::default() };
    let result = plan("", &wish).unwrap();
    assert!(result.choices[result.chosen].name == "level-aware" && result.keys.is_empty());
    // The design's options include all given ones.
    let result = plan("margin=3,derive=true", &Wish::default()).unwrap();
    let runs: Vec<&String> = result.choices.iter().filter_map(|choice| choice.options.as_ref()).collect();
    assert!(runs.iter().all(|options| options.starts_with("margin=3,rotations=")), "{runs:?}");
    assert!(result.front.iter().all(|point| point.options.starts_with("margin=3,rotations=")));
    let count = result.steps.iter().filter(|step| step.diagonals > 0).count();
    let error = Ckks.lower(&model, &"rotations=2h".parse().unwrap()).err().unwrap().to_string();
    assert!(count > 2);
    assert_words(&error, &["ways for 2 transforms"]);
}

/// Largest distance of the reference from the float network, as a share of the outputs' range.
fn distance(model: &Model, server: &Arc<dyn ServerModel>) -> f64 {
    let pairs: Vec<[Vec<f64>; 2]> = (0..50)
        .map(|seed| [server.reference(&input(model, seed)).unwrap(), model.run(&input(model, seed)).unwrap()])
        .collect();
    let range = largest_magnitude(pairs.iter().flat_map(|[_, float]| float).copied());
    largest_magnitude(pairs.iter().map(|[a, b]| largest_distance(a, b))) / range
}

/// A ReLU by a composite sign keeps the bound, and the stated distance from the float network.
#[test]
fn relu_is_polynomial_or_composite() {
    let model = activated([1.0; 2], relu);
    let degrees = |server: &Arc<dyn ServerModel>| {
        let report = server.report().unwrap().json();
        report["approximations"][0]["degrees"].as_array().unwrap().len()
    };
    let (server, client) = both(&model, "relu=composite,tolerance=0.05,agreement=0");
    assert_eq!(degrees(&server), 2);
    let inputs = [input(&model, 1), input(&model, 2)];
    let (result, _) = answers(&server, &client, &inputs);
    inputs.iter().zip(&result).for_each(|(x, result)| assert_near(&server, x, result));
    // One polynomial is used where it is within the tolerance, which it never is for a thousandth.
    let ways = ["tolerance=0.05", "tolerance=0.001", "relu=composite,tolerance=0.001"]
        .map(|o| both(&model, &format!("{o},agreement=0")).0);
    assert_eq!(ways.each_ref().map(degrees), [1, 3, 3]);
    let [coarse, fine] = [&ways[0], &ways[1]].map(|server| distance(&model, server));
    assert!(coarse < 0.3 && fine < 0.01 && fine < coarse / 5.0, "{coarse} and {fine}");
    for (options, word) in [("relu=polynomial,tolerance=0.001", "degree 63"), ("tolerance=1e-5", "best composite")] {
        let error = Ckks.lower(&model, &options.parse().unwrap()).err().unwrap().to_string();
        assert_words(&error, &[word]);
    }
}

/// Degrees follow the allowed error; GELU and SiLU are one polynomial, not two.
#[test]
fn smooth_activations_take_one_polynomial() {
    for function in [Function::Sigmoid, Function::Tanh, Function::GeluResidual, Function::SiluResidual] {
        let model = activated([1.0; 2], |graph| {
            let gap = graph.push("f", FloatOp::Function(function), &[1], &[]).unwrap();
            if function.residual_symmetry().is_none() {
                return gap;
            }
            let relu = relu(graph);
            graph.push("smooth", FloatOp::Sub, &[relu, gap], &[]).unwrap()
        });
        for (tolerance, near) in [(0.01, 0.05), (1e-4, 1e-3)] {
            let (server, _) = both(&model, &format!("tolerance={tolerance}"));
            let report = server.report().unwrap().json();
            assert_eq!(report["approximations"].as_array().unwrap().len(), 1, "{function:?}");
            assert!(distance(&model, &server) < near, "{function:?} at {tolerance}: {}", distance(&model, &server));
        }
    }
}

/// Many inputs at once give the same answers as one by one.
#[test]
fn rehearse_equals_simulate() {
    let model = residual();
    let (server, _) = both(&model, "");
    let inputs: Vec<Vec<f32>> = (0..11).map(|seed| input(&model, seed)).collect();
    let runs = server.rehearse(&inputs.iter().map(|x| &**x).collect::<Vec<_>>()).unwrap();
    assert_eq!(runs.len(), inputs.len());
    for (x, run) in inputs.iter().zip(runs) {
        assert_eq!(run.answer, server.simulate(x).unwrap());
        let alone = server.strain(x).unwrap();
        assert!(run.strains.iter().zip(&alone).all(|(a, b)| a.node == b.node && (a.share - b.share).abs() < 1e-3));
    }
    assert!(server.rehearse(&[&inputs[0], &[0.0; 3]]).is_err());
}

/// A layer with rotations over many distances.
fn wide() -> Model {
    let mut rng = SplitMix::new(5);
    let mut draw = |n: usize| draw(&mut rng, n, 1.0 / 16.0);
    let mut graph = FloatGraph::new("x", vec![256]).unwrap();
    let node = graph.push("wide", FloatOp::Dense { weights: draw(1 << 16), bias: draw(256) }, &[0], &[]).unwrap();
    let node = graph.push("square", FloatOp::Mul, &[node, node], &[]).unwrap();
    graph.output = graph.push("out", FloatOp::Dense { weights: draw(3 << 8), bias: draw(3) }, &[node], &[]).unwrap();
    let data = (0..64 * 256).map(|_| rng.range(-1.0, 1.0) as f32).collect();
    imported("wide", graph, data, [-1.0, 1.0])
}

/// Keys derived from a few masters give answers as near as keys that were sent.
#[test]
fn derived_keys_answer_within_bound() {
    let model = wide();
    let x = [input(&model, 8)];
    let [sent, derived] = [false, true].map(|derive| {
        let (server, client) = both(&model, &format!("set=B,rotations=2f7,derive={derive}"));
        let (result, _) = answers(&server, &client, &x);
        assert_near(&server, &x[0], &result[0]);
        server.costs()
    });
    let stored = |costs: &Costs| costs.setup.server.stored_bytes;
    assert!(stored(&derived) < stored(&sent), "{} for {}", stored(&derived), stored(&sent));
    assert!(derived.setup.server.work.ntts > 0 && derived.setup.up_bytes < sent.setup.up_bytes);
    assert!(derived.online.server.peak_memory_bytes > sent.online.server.peak_memory_bytes);
}

/// Answers are the float network's classes, and no error bound is stated.
#[test]
fn top1_reveals_class_only() {
    let model = telling_the_class(residual());
    let (server, client) = both(&model, "rotations=chained");
    let inputs: Vec<Vec<f32>> = (0..6).map(|seed| input(&model, seed)).collect();
    let (classes, _) = answers(&server, &client, &inputs);
    let expected: Vec<Vec<f64>> = inputs.iter().map(|x| server.reference(x).unwrap()).collect();
    assert_eq!(classes, expected);
    for (x, expected) in inputs.iter().zip(&expected) {
        assert_eq!([&model.run(x).unwrap(), &server.simulate(x).unwrap()], [expected; 2]);
    }
    assert!(expected.iter().any(|class| *class != expected[0]), "{expected:?}");
    assert!(server.error_bound(&[]).is_infinite());
    assert_eq!(server.report().unwrap().json()["agreement"], 1.0);
}

#[test]
fn top1_traffic_matches_stated_costs() {
    let (server, client) = both(&telling_the_class(residual()), "rotations=chained");
    let x = input(&telling_the_class(residual()), 3);
    let ask = |channel: &mut Channel| {
        let mut side = set_up(&client, &ConnectionResources::default(), channel)?;
        channel.set_phase(Phase::Online);
        side.online(channel, Material::nothing(), &x)?;
        Ok::<_, BackendError>([Phase::Setup, Phase::Online].map(|phase| channel.traffic(phase)))
    };
    let serve = |channel: &mut Channel| {
        let mut side = server.clone().connect(&ConnectionResources::default())?;
        side.setup(channel)?;
        channel.flush()?;
        channel.set_phase(Phase::Online);
        side.online(channel, Material::nothing())
    };
    let (asked, served) = run_pair(ask, serve);
    served.unwrap();
    let [setup, online] = asked.unwrap();
    let costs = server.costs();
    for (name, cost, traffic) in [("setup", costs.setup, setup), ("online", costs.online, online)] {
        assert_eq!((traffic.sent, traffic.received), (cost.up_bytes, cost.down_bytes), "{name}");
    }
    assert!(costs.comparisons == 4 && costs.online.exchanges > 1, "{costs:?}");
}

/// A public part with other slots of outputs, or with the wrong kind of answer, is refused.
#[test]
fn refuses_public_parts_with_inconsistent_answer() {
    let read = |model: &Model| Public::read(both(model, "").0.public_bytes()).unwrap();
    let (all, best) = (read(&residual()), read(&telling_the_class(residual())));
    let refused = |public: Public| Ckks.open(&public.to_bytes().unwrap()).err().map(|e| e.to_string());
    assert!(refused(best.clone()).is_none() && refused(all.clone()).is_none());
    for (change, public) in [
        ("none are compared", Public { compared: None, ..best.clone() }),
        ("some are", Public { compared: Some(5), ..all }),
        ("more than there are", Public { compared: Some(9), ..best.clone() }),
        ("one alone", Public { compared: Some(0), ..best.clone() }),
        ("too many", Public { compared: Some(u32::MAX), ..best.clone() }),
        ("they do not repeat", Public { output: Port { period: 64, ..best.output.clone() }, ..best.clone() }),
        (
            "another order",
            Public { output: Port { slots: vec![1, 0, 2, 3, 4, 5, 6, 7], ..best.output.clone() }, ..best },
        ),
    ] {
        assert!(refused(public).is_some(), "{change}");
    }
}
