//! No silent wrong answers: random networks, networks that went wrong once, and inputs from the
//! whole accepted range. They run in the clear, with the errors of encrypted arithmetic drawn. An
//! answer is wrong if a client accepts it and its distance from the float network exceeds the
//! stated error.

use tacit_graph::float::{FloatGraph, FloatOp};
use tacit_graph::import::{ImportOptions, import, import_network};
use tacit_graph::npy::{self, Npy};
use tacit_graph::onnx::Network;
use tacit_graph::rng::SplitMix;
use tacit_graph::{Function, Interval, Model};

use super::Ckks;
use super::networks_for_tests::{activated, conv, draw, geometry, imported, relu, telling_the_class};
use super::tests::assert_words;
use tacit_backend_api::{Backend, DryRun, Options};

#[path = "../../../base/graph/tests/data/mod.rs"]
mod data;

/// Counts of networks and inputs, by outcome.
#[derive(Debug, Default)]
struct Tally {
    networks: usize,
    lowered: usize,
    /// Lowered networks that are certain for all accepted inputs, and networks with a narrowed range.
    certain: usize,
    narrowed: usize,
    inputs: usize,
    refused: usize,
    wrong: Vec<String>,
}

/// Makes inputs of the accepted range: ends, checkerboards, stripes, noise at the ends, uniform
/// ones, and mixtures of these with samples, which leave a range by little.
fn inputs(model: &Model, [low, high]: [f32; 2], count: usize, rng: &mut SplitMix) -> Vec<Vec<f32>> {
    let shape = &model.interface.input_shape;
    let columns = *shape.last().unwrap();
    let n = model.interface.input_len();
    let draw = |k: usize| -> Vec<f32> {
        let cell = 1 + rng.next_u64() as usize % 4;
        let odd = rng.next_u64() & 1 == 1;
        let share = rng.uniform();
        let ends = |high_end: bool| if high_end != odd { high } else { low };
        let value = |i: usize| match k % 6 {
            0 => ends((i % columns / cell + i / columns / cell).is_multiple_of(2)),
            1 => ends((i % columns / cell).is_multiple_of(2)),
            2 => ends((i / columns / cell).is_multiple_of(2)),
            3 => ends(rng.uniform() < share),
            4 => ends(i < (share * n as f64) as usize),
            _ => (rng.range(low.into(), high.into()) as f32).clamp(low, high),
        };
        let mut values: Vec<f32> = (0..n).map(value).collect();
        if k / 6 % 2 == 1 {
            let sample = &model.calibration.samples[k % model.calibration.samples.len()];
            let weight = rng.uniform() as f32;
            let mix = |(v, s): (&mut f32, &f32)| *v = (s + weight * (*v - s)).clamp(low, high);
            values.iter_mut().zip(sample).for_each(mix);
        }
        values
    };
    (0..count).map(draw).collect()
}

impl Tally {
    fn assert_nothing_wrong(&self) {
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
    }

    /// Lowers a network and tries inputs.
    fn add(&mut self, name: &str, model: &Model, options: &str, extra_inputs: Vec<Vec<f32>>, count: usize) {
        self.networks += 1;
        let server = match Ckks.lower(model, &options.parse().unwrap()) {
            Ok(server) => server,
            Err(error) => return eprintln!("{name}: {error}"),
        };
        self.lowered += 1;
        self.certain += usize::from(server.describe()["certain"] == true);
        self.narrowed += usize::from(server.interface().input.range != model.interface.input.range);
        let report = server.report().unwrap();
        eprintln!("{name}:\n{report}");
        let stated = server.describe()["stated_error"].as_f64().unwrap();
        let mut cases = inputs(model, server.interface().input.range.ends(), count, &mut SplitMix::new(77));
        cases.extend(extra_inputs.into_iter().filter(|x| server.interface().check_input(x).is_ok()));
        let input_slices: Vec<&[f32]> = cases.iter().map(|x| &**x).collect();
        let refused_before = self.refused;
        for (x, DryRun { answer, .. }) in cases.iter().zip(server.rehearse(&input_slices).unwrap()) {
            self.inputs += 1;
            if server.check_answer(&answer).is_err() {
                self.refused += 1;
                continue;
            }
            let off = tacit_floats::largest_distance(&answer, &model.run(x).unwrap());
            if off > stated || off.is_nan() {
                self.wrong.push(format!("{name}: off by {off:.2e}, {stated:.2e} is stated"));
            }
        }
        eprintln!("{name}: {} of {} refused\n", self.refused - refused_before, cases.len());
    }
}

/// Makes a random network of a few layers, with its calibration samples.
fn random_network(seed: u64) -> Model {
    let mut rng = SplitMix::new(seed);
    let shape = if rng.next_u64() & 1 == 0 { vec![2 + rng.next_u64() as usize % 12] } else { vec![2, 6, 6] };
    let n: usize = shape.iter().product();
    let mut graph = FloatGraph::new("x", shape.clone()).unwrap();
    let mut last = 0;
    for layer in 0..1 + rng.next_u64() as usize % 3 {
        last = linear(&mut graph, last, &mut rng, 4 + layer);
        last = activation(&mut graph, last, &mut rng);
    }
    let flat = graph.nodes[last].elements();
    last = graph.push("flat", FloatOp::Reshape, &[last], &[flat]).unwrap();
    let classes = 1 + rng.next_u64() as usize % 5;
    graph.output = dense(&mut graph, last, classes, &mut rng);
    let size = 10f64.powf(rng.range(-1.0, 1.0));
    let wide = [1.0, 1.0, 3.0][rng.next_u64() as usize % 3];
    let data = draw(&mut rng, 64 * n, size);
    let max_magnitude = tacit_floats::largest_magnitude(data.iter().copied()) as f32;
    let calibration = Some(Npy { shape: [vec![64], shape].concat(), data, is_bytes: false });
    let range = (wide > 1.0).then_some(Interval { low: -max_magnitude * wide, high: max_magnitude * wide });
    let options = ImportOptions { calibration, range, ..ImportOptions::default() };
    import_network(Network::new("random", graph), &options).unwrap().model
}

fn dense(graph: &mut FloatGraph, x: usize, out: usize, rng: &mut SplitMix) -> usize {
    let inputs = graph.nodes[x].elements();
    let weights = draw(rng, out * inputs, (1.0 / inputs as f64).sqrt());
    graph.push("dense", FloatOp::Dense { weights, bias: draw(rng, out, 0.2) }, &[x], &[]).unwrap()
}

fn linear(graph: &mut FloatGraph, x: usize, rng: &mut SplitMix, out: usize) -> usize {
    match graph.nodes[x].shape.len() {
        3 => conv(graph, x, geometry(out, 1), 0.2, rng),
        _ => dense(graph, x, 2 * out, rng),
    }
}

fn activation(graph: &mut FloatGraph, x: usize, rng: &mut SplitMix) -> usize {
    let channels = graph.nodes[x].shape[0];
    let affine = |scale: f32| FloatOp::Affine { scale: vec![scale; channels], shift: vec![0.0; channels] };
    match rng.next_u64() % 6 {
        0 | 1 => graph.push("relu", FloatOp::Relu, &[x], &[]).unwrap(),
        2 => {
            let relu = graph.push("relu", FloatOp::Relu, &[x], &[]).unwrap();
            let high = graph.push("high", affine(0.9), &[relu], &[]).unwrap();
            let low = graph.push("low", affine(0.1), &[x], &[]).unwrap();
            graph.push("leaky", FloatOp::Add, &[high, low], &[]).unwrap()
        }
        3 => graph.push("tanh", FloatOp::Function(Function::Tanh), &[x], &[]).unwrap(),
        4 => graph.push("sigmoid", FloatOp::Function(Function::Sigmoid), &[x], &[]).unwrap(),
        _ => graph.push("square", FloatOp::Mul, &[x, x], &[]).unwrap(),
    }
}

fn campaign(seeds: std::ops::Range<u64>, count: usize) {
    let mut tally = Tally::default();
    for seed in seeds {
        tally.add(&format!("random {seed}"), &random_network(seed), "", vec![], count);
    }
    let Tally { networks, lowered, certain, narrowed, inputs, refused, .. } = tally;
    eprintln!("{lowered} of {networks} lowered, {certain} for certain, {narrowed} on less than they accept");
    eprintln!("{refused} of {inputs} inputs refused, {} wrong", tally.wrong.len());
    tally.assert_nothing_wrong();
    assert!(2 * tally.lowered > tally.networks, "{tally:?}");
}

#[test]
fn random_networks_give_no_silent_wrong_answer() {
    campaign(0..6, 60);
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn five_hundred_random_networks_give_no_silent_wrong_answer() {
    campaign(1000..1500, 200);
}

/// Reads a network of the shared folder, with its calibration samples and other inputs.
fn regression(name: &str, other_inputs: Option<&str>) -> Option<(Model, Vec<Vec<f32>>)> {
    let array = |file: &str| npy::read(&data::regression(file)?).ok();
    let calibration = Some(array(&format!("{name}_calib.npy"))?);
    let options = ImportOptions { calibration, ..ImportOptions::default() };
    let model = import(&data::regression(&format!("{name}.onnx"))?, &options).expect("it imports").model;
    let mut extra_inputs = Vec::new();
    if let Some(file) = other_inputs {
        let inputs = options.prepare(&model.interface.input_shape, &array(file)?, usize::MAX).unwrap();
        extra_inputs.extend(inputs.iter().map(|x| model.interface.normalise(x, tacit_graph::Units::Network)));
    }
    Some((model, extra_inputs))
}

/// Networks that once gave garbage: small ones now answer all accepted inputs, others are refused
/// with a reason.
#[test]
fn regression_networks_give_no_garbage() {
    for (name, options, words) in [
        ("ckks_acasxu", "", "domain=calibrated"),
        ("ckks_acasxu", "domain=calibrated", "the best polynomials give"),
        ("feature_scales", "", "normalise each of them"),
    ] {
        let Some((model, _)) = regression(name, None) else { return };
        let error = Ckks.lower(&model, &options.parse().unwrap()).err().expect(name).to_string();
        assert_words(&error, &[words]);
    }
    for (name, inputs) in [
        ("ckks_gemm_leaky_relu", "ckks_gemm_leaky_relu_x.npy"),
        ("ckks_relu_mlp_iris", "ckks_iris_accepted_corner.npy"),
    ] {
        let Some((model, extra_inputs)) = regression(name, Some(inputs)) else { return };
        let mut tally = Tally::default();
        tally.add(name, &model, "", extra_inputs, 500);
        tally.assert_nothing_wrong();
        assert_eq!((tally.certain, tally.refused), (1, 0), "{name}");
        assert!(tally.inputs > 500, "{name}: {tally:?}");
    }
}

/// A ReLU whose argument is positive on all samples, but not on the whole accepted range.
fn never_negative() -> Model {
    let mut graph = FloatGraph::new("x", vec![2]).unwrap();
    let first = FloatOp::Dense { weights: vec![1.0, 0.2, -0.3, 1.0], bias: vec![0.5, 0.6] };
    let node = graph.push("in", first, &[0], &[]).unwrap();
    let node = graph.push("relu", FloatOp::Relu, &[node], &[]).unwrap();
    let last = FloatOp::Dense { weights: vec![1.0, -1.0, -0.5, 0.7], bias: vec![0.1, 0.0] };
    graph.output = graph.push("out", last, &[node], &[]).unwrap();
    let mut rng = SplitMix::new(3);
    let data = (0..128).map(|_| rng.range(-0.3, 0.3) as f32).collect();
    imported("positive", graph, data, [-3.0, 3.0])
}

#[test]
fn relu_of_positive_samples_is_not_linear() {
    let model = never_negative();
    let mut tally = Tally::default();
    tally.add("positive", &model, "", vec![], 300);
    tally.assert_nothing_wrong();
    assert_eq!(tally.lowered, 1);
    let lowered = |options: &str| Ckks.lower(&model, &options.parse().unwrap()).unwrap();
    // Here only samples tell the range of its argument.
    let report = lowered("domain=calibrated,agreement=0,tolerance=0.02").report().unwrap().json();
    let [low, high] = [0, 1].map(|end| report["approximations"][0]["range"][end].as_f64().unwrap());
    assert!(low <= -0.2 * high, "{low} to {high}");
    assert_eq!(report["approximations"][0]["certain"], false);
    // A negative argument gives zero, as in the float network.
    let x = [-0.7, 0.0];
    for options in ["", "domain=calibrated,agreement=0,tolerance=0.02"] {
        let (answer, float) = (lowered(options).reference(&x).unwrap(), model.run(&x).unwrap());
        assert!(answer.iter().zip(&float).all(|(a, f)| (a - f).abs() < 0.05), "{options}: {answer:?} {float:?}");
    }
}

/// If no polynomial holds on the model's range, the accepted range is narrowed, and a client
/// refuses other inputs with a clear error. An uncertain lowering needs an option, and the report
/// says so.
#[test]
fn lowering_narrows_the_input_range_to_where_polynomials_hold() {
    let tanh = |graph: &mut FloatGraph| graph.push("tanh", FloatOp::Function(Function::Tanh), &[1], &[]).unwrap();
    let model = activated([1.0, 20.0], tanh);
    let lower = |model: &Model, options: &str| Ckks.lower(model, &options.parse().unwrap());
    let narrowed = lower(&model, "").unwrap();
    let [low, high] = narrowed.interface().input.range.ends();
    for end in [-low, high] {
        assert!(end > 0.9, "{low} to {high}");
        assert!(end < 20.0, "{low} to {high}");
    }
    let client = Ckks.open(narrowed.public_bytes()).unwrap();
    let error = client.interface().check_input(&[0.0, 0.0, 20.0, 0.0, 0.0, 0.0, 0.0, 0.0]).unwrap_err().to_string();
    assert_words(&error, &["20"]);
    assert!(client.interface().check_input(&[high; 8]).is_ok());
    assert_words(&narrowed.report().unwrap().warnings().concat(), &["where the model says -20 to 20"]);
    assert_eq!(narrowed.describe()["certain"], true);
    let again = Ckks.load(narrowed.public_bytes(), &narrowed.private_bytes().unwrap()).unwrap();
    assert_eq!(again.interface().input.range.ends(), [low, high]);
    let mut tally = Tally::default();
    tally.add("narrowed", &model, "", vec![], 300);
    tally.assert_nothing_wrong();
    assert_eq!((tally.certain, tally.refused), (1, 0));
    // The whole range cannot be certain: `domain=calibrated` accepts it with the ranges of samples.
    let error = lower(&model, "domain=accepted").err().unwrap().to_string();
    assert_words(&error, &["domain=calibrated", "nobody notices"]);
    let model = activated([0.1, 4.0], relu);
    let measured = lower(&model, "domain=calibrated,agreement=0").unwrap();
    assert_eq!(measured.interface().input.range.ends(), [-4.0, 4.0]);
    assert_words(&measured.report().unwrap().warnings().concat(), &["was measured, on"]);
    assert_eq!(measured.describe()["certain"], false);
    // No client can see that a class is wrong.
    let class = telling_the_class(model);
    let error = lower(&class, "domain=calibrated,agreement=0").err().unwrap().to_string();
    assert!(["best class alone", "no client notices"].iter().any(|words| error.contains(words)), "{error}");
    assert_eq!(lower(&class, "agreement=0").unwrap().describe()["certain"], true);
}

/// The requested agreement is reached by finer polynomials, or refused with a hint.
#[test]
fn requested_agreement_is_reached() {
    let model = random_network(3);
    let report =
        |options: &str| Ckks.lower(&model, &options.parse().unwrap()).map(|lowered| lowered.report().unwrap().json());
    let any = report("agreement=0,tolerance=0.3").unwrap();
    match report("tolerance=0.3") {
        Ok(strict) => {
            assert!(strict["agreement"].as_f64().unwrap() >= 0.99);
            assert!(strict["expected"]["share"].as_f64().unwrap() >= 0.99);
            assert!(strict["output_error"].as_f64().unwrap() <= 0.05);
            assert!(strict["tolerance"].as_f64() <= any["tolerance"].as_f64());
        }
        Err(error) => assert_words(&error.to_string(), &["--agreement"]),
    }
    assert!(report("tolerance=0.01").unwrap()["agreement"].as_f64().unwrap() >= 0.99);
}

/// Networks that are not in the tree: model files (`tacit model import`) in the folder TACIT_NETWORKS.
#[test]
#[ignore = "heavy, and needs a folder of model files: see scripts/exports"]
fn folder_networks_give_no_silent_wrong_answer() {
    let folder = std::env::var_os("TACIT_NETWORKS").expect("TACIT_NETWORKS names a folder of .tacit files");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "tacit"));
    files.sort();
    assert!(!files.is_empty());
    let mut tally = Tally::default();
    for path in files {
        let model = tacit_graph::file::read(&std::fs::read(&path).unwrap()).unwrap();
        tally.add(&path.file_stem().unwrap().to_string_lossy(), &model, "", vec![], 200);
    }
    eprintln!("{tally:#?}");
    tally.assert_nothing_wrong();
}

/// Intervals through forty differences of equal values overflow to infinity.
#[test]
fn unbounded_argument_error_has_no_nan() {
    let mut graph = FloatGraph::new("x", vec![2]).unwrap();
    let mut last = 0;
    for _ in 0..40 {
        let difference = FloatOp::Dense { weights: vec![1e9, -1e9, -1e9, 1e9], bias: vec![1.0; 2] };
        last = graph.push("difference", difference, &[last], &[]).unwrap();
        last = graph.push("relu", FloatOp::Relu, &[last], &[]).unwrap();
    }
    graph.output = last;
    let data = (0..64).flat_map(|i| [i as f32 / 64.0; 2]).collect();
    let model = imported("differences", graph, data, [0.0, 1.0]);
    let error = Ckks.lower(&model, &Options::default()).err().unwrap().to_string();
    assert!(!error.contains("NaN"), "{error}");
    assert!(!error.contains("inf"), "{error}");
}
