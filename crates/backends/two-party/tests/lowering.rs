//! Tests the lowering to fixed point with the prices of `cheetah`.

use tacit_backend_api::{Backend, BackendError};
use tacit_graph::float::{FloatGraph, FloatOp};
use tacit_graph::geometry::Window;
use tacit_graph::npy::Npy;
use tacit_graph::onnx::Network;
use tacit_graph::rng::SplitMix;
use tacit_graph::{
    Calibration, Function, GraphError, ImportOptions, Model, OutputMode, Units, Watch, import, import_network, zoo,
};
use tacit_ring::fixtures::tiny_cnn;
use tacit_ring::op::max_comparisons;
use tacit_ring::{Op, RingError, RingGraph, RingModel, RingOptions, RingReport, Target, lower, lower_for, reference};
use tacit_two_party::cheetah::{Cheetah, Options, online_bytes};

/// The price of a graph: its online bytes.
fn price(graph: &RingGraph) -> Result<f64, BackendError> {
    online_bytes::<Cheetah>(graph, &Options::default()).map(|bytes| bytes as f64)
}

fn lower_model(model: &Model, options: &RingOptions) -> RingModel {
    lower(model, options, &price).unwrap()
}

fn lower_tiny_cnn(options: RingOptions) -> RingModel {
    lower_model(&tiny_cnn(OutputMode::Logits), &options)
}

/// Sum of the widths of all nodes.
fn total_width(graph: &RingGraph) -> f64 {
    graph.nodes().iter().map(|n| f64::from(n.fixed.width)).sum()
}

#[test]
fn equal_options_give_equal_models() {
    assert_eq!(lower_tiny_cnn(RingOptions::default()), lower_tiny_cnn(RingOptions::default()));
    assert_eq!(lower_tiny_cnn(RingOptions::default()).graph.spec().model_id, [1; 16]);
}

#[test]
fn top1_is_the_class_of_the_logits() {
    let (logits, top1) = (tiny_cnn(OutputMode::Logits), tiny_cnn(OutputMode::Top1));
    let (logits, top1) = (lower_model(&logits, &RingOptions::default()), lower_model(&top1, &RingOptions::default()));
    let mut rng = SplitMix::new(8);
    for _ in 0..10 {
        let x: Vec<f32> = rng.floats(64, -1.0, 1.0);
        let ints = reference::quantize_input(&logits.graph, &x).unwrap();
        let a = reference::run(&logits.graph, &logits.weights, &ints).unwrap();
        let b = reference::run(&top1.graph, &top1.weights, &ints).unwrap();
        let best = a.iter().max().unwrap();
        // The arg max reads truncated logits: near-equal ones may tie.
        assert!((best - a[b[0] as usize]) as f64 <= 0.02 * (*best as f64).abs(), "{a:?} {b:?}");
    }
    assert_eq!(top1.report.comparisons.arg_max, 9);
}

#[test]
fn fixed_fraction_bits_are_kept() {
    let lowered = lower_tiny_cnn(RingOptions { frac_bits: Some(12), ..RingOptions::default() });
    for node in lowered.graph.nodes() {
        if matches!(node.op, Op::Relu | Op::Input) {
            assert_eq!(node.fixed.frac_bits, 12, "{}", node.name);
        }
    }
    assert!(lowered.report.output_error < 1e-3);
}

#[test]
fn coarser_bounds_give_narrower_rings() {
    let bits = |error_bound| {
        let lowered = lower_tiny_cnn(RingOptions { error_bound, ..RingOptions::default() });
        lowered.report.layers.iter().map(|l| l.width).sum::<u32>()
    };
    assert!(bits(0.02) < bits(0.001));
}

#[test]
fn the_price_decides_and_its_errors_are_returned() {
    let model = tiny_cnn(OutputMode::Logits);
    // If wide rings are priced as cheap, the search continues past the first accepted scheme.
    let narrow = lower(&model, &RingOptions::default(), &|g| Ok(total_width(g))).unwrap();
    let wide = lower(&model, &RingOptions::default(), &|g| Ok(-total_width(g))).unwrap();
    assert!(total_width(&narrow.graph) < total_width(&wide.graph));
    let broken = lower(&model, &RingOptions::default(), &|_| Err(BackendError::Misuse("no price")));
    assert!(matches!(broken, Err(BackendError::Misuse("no price"))));
    // A back end that refuses all rings has its reason reported; a back end that refuses cheap
    // rings gets others.
    let refusal = || BackendError::Unsupported { node: 7, name: String::new(), op: "Input", what: "never".into() };
    let refused = lower(&model, &RingOptions::default(), &|_| Err(refusal()));
    assert!(matches!(refused, Err(BackendError::Unsupported { node: 7, .. })));
    let min_width = total_width(&narrow.graph) + 10.0;
    let check = |g: &RingGraph, _| if total_width(g) < min_width { Err(refusal()) } else { Ok(()) };
    let target = Target { price: &|g, _| Ok(total_width(g)), check: &check };
    let checked = lower_for(&model, &RingOptions::default(), target, &Watch::default()).unwrap();
    assert!(total_width(&checked.graph) >= min_width);
    let target = Target { price: &|g, _| Ok(total_width(g)), check: &|_, _| Err(refusal()) };
    let refused = lower_for(&model, &RingOptions::default(), target, &Watch::default());
    assert!(matches!(refused, Err(BackendError::Unsupported { .. })));
}

#[test]
fn options_out_of_range_are_refused() {
    let model = tiny_cnn(OutputMode::Logits);
    let default = RingOptions::default;
    for (name, options) in [
        ("frac_bits", RingOptions { frac_bits: Some(48), ..default() }),
        ("weight_bits", RingOptions { weight_bits: Some(8), ..default() }),
        ("max_frac_bits", RingOptions { max_frac_bits: 48, ..default() }),
        ("guard_bits", RingOptions { guard_bits: f64::NAN, ..default() }),
        ("error_bound", RingOptions { error_bound: -0.1, ..default() }),
        ("agreement", RingOptions { agreement: 1.5, ..default() }),
        ("round_facts", RingOptions { round_facts: 0, ..default() }),
    ] {
        let error = lower(&model, &options, &price).unwrap_err();
        assert!(matches!(RingError::find_in(&error), Some(RingError::Option { name: n, .. }) if *n == name), "{error}");
    }
    // Values that no ring holds.
    let fine = RingOptions { frac_bits: Some(40), ..default() };
    let error = lower(&model, &fine, &price).unwrap_err();
    assert!(matches!(RingError::find_in(&error), Some(RingError::NoRing { .. })), "{error}");
}

#[test]
fn facts_are_rounded_up_on_request() {
    let exact = lower_tiny_cnn(RingOptions::default());
    let rounded = lower_tiny_cnn(RingOptions { round_facts: 8, ..RingOptions::default() });
    let facts = |m: &RingModel| m.graph.nodes().iter().filter_map(|n| n.op.facts()).collect::<Vec<_>>();
    for (e, r) in facts(&exact).iter().zip(facts(&rounded)) {
        assert_eq!(r.magnitude_bits, e.magnitude_bits.next_multiple_of(8).min(31));
        assert_eq!(r.norm_bits, e.norm_bits.next_multiple_of(8));
        assert_eq!(r.frac_bits, e.frac_bits);
    }
    assert_eq!(exact.weights, rounded.weights);
    assert_ne!(facts(&exact), facts(&rounded));
}

#[test]
fn a_constant_for_each_channel_is_named() {
    let mut model = tiny_cnn(OutputMode::Logits);
    let graph = &mut model.graph;
    let last = &graph.nodes[graph.output];
    let (inputs, shape, n) = (vec![graph.output], last.shape.clone(), last.elements());
    let op = FloatOp::Affine { scale: (1..=n).map(|i| i as f32).collect(), shift: vec![0.0; n] };
    graph.nodes.push(tacit_graph::float::FloatNode { name: "by class".into(), op, inputs, shape });
    graph.output += 1;
    let Calibration { max_abs, mean_square, extreme, .. } = &mut model.calibration;
    for statistics in [max_abs, mean_square, extreme] {
        statistics.push(1.0);
    }
    assert!(lower(&model, &RingOptions::default(), &price).unwrap_err().to_string().contains("by class"));
}

#[test]
fn weights_that_no_integer_holds_are_refused() {
    let mut model = tiny_cnn(OutputMode::Logits);
    let weights = model.graph.nodes.iter_mut().find_map(|n| match &mut n.op {
        FloatOp::Conv { weights, .. } => Some(weights),
        _ => None,
    });
    weights.unwrap()[0] = 1e20;
    for frac_bits in [Some(8), None] {
        let options = RingOptions { frac_bits, ..RingOptions::default() };
        let error = lower(&model, &options, &price).unwrap_err();
        assert!(matches!(RingError::find_in(&error), Some(RingError::NoRing { .. })), "{error}");
    }
}

#[test]
fn the_report_is_text_and_json() {
    let report = lower_tiny_cnn(RingOptions::default()).report;
    let text = report.to_string();
    assert!(text.contains("agreement"), "{text}");
    assert!(text.contains("headroom"), "{text}");
    assert!(text.contains("WARNING"), "{text}");
    let back: RingReport = serde_json::from_value(tacit_backend_api::LoweringReport::json(&report)).unwrap();
    assert_eq!(back.comparisons, report.comparisons);
    assert!(report.layers.iter().all(|l| l.headroom_bits >= 0.0));
}

#[test]
fn small_networks_agree() {
    for name in ["tiny-mlp", "tiny-cnn", "m1", "lenet"] {
        let imported = import(&zoo::build(name, 3).unwrap(), &ImportOptions::default()).unwrap();
        let report = lower_model(&imported.model, &RingOptions::default()).report;
        assert_eq!((report.agreement, report.samples.searched), (None, 4), "{name}: {report}");
        assert!(report.output_error < 0.015, "{name}: {}", report.output_error);
        assert!(report.warnings[0].contains("guess"), "{name}");
    }
}

/// A synthetic model: layers of the given weights, and a ReLU for each `None`.
fn chain(inputs: usize, layers: &[Option<Vec<f32>>], samples: usize) -> Model {
    let mut graph = FloatGraph::new("x", vec![inputs]).unwrap();
    for layer in layers {
        let op = match layer {
            None => FloatOp::Relu,
            Some(w) => {
                FloatOp::Dense { weights: w.clone(), bias: vec![0.0; w.len() / graph.nodes[graph.output].elements()] }
            }
        };
        graph.output = graph.push("n", op, &[graph.output], &[]).unwrap();
    }
    let mut rng = SplitMix::new(6);
    let data = rng.floats(inputs * samples, -1.0, 1.0);
    let calibration = Some(Npy { shape: vec![samples, inputs], data, is_bytes: false });
    import_network(Network::new("chain", graph), &ImportOptions { calibration, ..ImportOptions::default() })
        .unwrap()
        .model
}

/// Two layers with a ReLU between them.
fn two_layers(samples: usize) -> Model {
    let layer = |n: usize| Some((0..n).map(|i| ((i * 7 + 3) % 11) as f32 - 5.0).collect());
    chain(6, &[layer(48), None, layer(24)], samples)
}

#[test]
fn agreement_is_stated_of_samples_outside_the_search() {
    let few_samples = lower_model(&two_layers(15), &RingOptions::default()).report;
    assert_eq!((few_samples.agreement, few_samples.samples.searched, few_samples.samples.held_out), (None, 15, 0));
    assert!(few_samples.to_string().contains("nothing is promised"), "{few_samples}");
    assert!(few_samples.warnings.iter().any(|w| w.contains("16")), "{few_samples}");
    let model = two_layers(64);
    let many_samples = lower_model(&model, &RingOptions::default()).report;
    assert_eq!((many_samples.samples.searched, many_samples.samples.held_out), (48, 16));
    assert!(many_samples.agreement.is_some_and(|a| a > 0.9), "{many_samples}");
    let expected = many_samples.expected.unwrap();
    assert!(expected.share >= 0.99, "{many_samples}");
    assert!(expected.interval[0] < expected.share, "{many_samples}");
    // If the held-out samples cannot be satisfied, the search tries finer scales and the report
    // warns.
    let mut contradicted = model.clone();
    contradicted.calibration.wanted[48..].iter_mut().for_each(|w| w.reverse());
    let contradicted_report = lower_model(&contradicted, &RingOptions::default()).report;
    assert!(contradicted_report.agreement.unwrap() < 0.6, "{contradicted_report}");
    assert!(contradicted_report.expected.unwrap().share < 0.99, "{contradicted_report}");
    assert!(
        contradicted_report.warnings.iter().any(|w| w.contains("were asked for")),
        "{:?}",
        contradicted_report.warnings
    );
    let bits = |report: &RingReport| report.layers.iter().map(|l| l.width).sum::<u32>();
    assert!(bits(&contradicted_report) > bits(&many_samples));
}

#[test]
fn agreement_costs_bytes_and_the_report_shows_the_trade_off() {
    let model = two_layers(64);
    // Only classes count.
    let with_agreement =
        |agreement| lower_model(&model, &RingOptions { agreement, error_bound: 1.0, ..RingOptions::default() });
    let [coarse, fine] = [0.5, 0.9999].map(with_agreement);
    let cost = |lowered: &RingModel| price(&lowered.graph).unwrap();
    assert!(cost(&coarse) < cost(&fine));
    assert!(coarse.report.expected.unwrap().share < fine.report.expected.unwrap().share);
    let choices = &fine.report.choices;
    assert!(choices.len() > 2);
    assert!(choices.is_sorted_by(|a, b| a.cost <= b.cost && a.output_error > b.output_error));
    assert!(fine.report.to_string().contains("trade-off"), "{}", fine.report);
    let guessed = lower_tiny_cnn(RingOptions::default()).report;
    assert!(guessed.choices.iter().all(|c| c.expected_agreement.is_none()));
    assert!(!guessed.choices.is_empty());
}

#[test]
fn relus_test_fewer_bits_if_that_saves_bytes_and_samples_allow_it() {
    let model = two_layers(64);
    let lower_with_drop = |model: &Model, relu_drop, (saved, error_bound): (f64, f64)| {
        let price = |g: &RingGraph, dropped: u32| Ok(total_width(g) * (1.0 - saved * f64::from(dropped)));
        let options = RingOptions { relu_drop, error_bound, ..RingOptions::default() };
        lower_for(model, &options, Target { price: &price, check: &|_, _| Ok(()) }, &Watch::default()).unwrap()
    };
    let dropping = lower_with_drop(&model, 0..=4, (0.05, 0.02));
    assert!((1..=4).contains(&dropping.relu_drop), "{}", dropping.report);
    assert!(dropping.report.output_error <= 0.02, "{}", dropping.report);
    assert!(dropping.report.scheme.contains("lowest bit"), "{}", dropping.report.scheme);
    assert!(dropping.report.choices.iter().any(|c| c.relu_drop == dropping.relu_drop));
    // No bit is left out if that saves too little, if nothing is good enough, or if samples are
    // made up.
    assert_eq!(lower_with_drop(&model, 0..=4, (0.001, 0.02)).relu_drop, 0);
    assert_eq!(lower_with_drop(&model, 0..=4, (0.05, 0.0)).relu_drop, 0);
    assert_eq!(lower_with_drop(&tiny_cnn(OutputMode::Logits), 0..=4, (0.05, 0.02)).relu_drop, 0);
    // A fixed number of bits is left out as requested, and the report has the error.
    let [zero_bits, six_bits] = [0, 6].map(|n| lower_with_drop(&model, n..=n, (0.05, 1.0)));
    assert_eq!((zero_bits.relu_drop, six_bits.relu_drop), (0, 6));
    assert!(six_bits.report.output_error > zero_bits.report.output_error, "{}", six_bits.report);
}

#[test]
fn constant_outputs_and_dead_layers_are_lowered_with_a_finite_error() {
    let dead = Some(vec![0.0; 12]);
    let negative = Some(vec![-1.0f32; 12]);
    for layers in [vec![dead.clone()], vec![dead, None, Some(vec![1.0; 6])], vec![None, negative, None]] {
        let lowered = lower_model(&chain(4, &layers, 20), &RingOptions::default());
        assert!(lowered.report.output_error < 0.01, "{}", lowered.report);
        assert!(lowered.graph.nodes().iter().all(|n| n.fixed.width >= 4));
        let compiled = tacit_two_party::cheetah::compile::<Cheetah>(lowered.graph, Options::default());
        assert!(compiled.is_ok(), "{:?}", compiled.err());
    }
}

#[test]
fn relu_widths_suit_what_they_widen_to() {
    // The values that are summed behind a ReLU, without another one, are much larger than its own
    // values.
    let wide: Vec<f32> = (0..40).map(|i| if i == 0 { 3000.0 } else { 0.01 }).collect();
    let layers = [Some(wide.clone()), None, Some(wide[..20].to_vec()), Some(vec![300.0; 8]), Some(vec![200.0; 8])];
    let lowered = lower_model(&chain(4, &layers, 20), &RingOptions::default());
    for node in lowered.graph.nodes().iter().filter(|n| n.op == Op::Relu) {
        let input_width = lowered.graph.nodes()[node.inputs[0]].fixed.width;
        assert!(2 * node.fixed.width - input_width <= 64, "{input_width} to {}", node.fixed.width);
    }
    assert!(tacit_two_party::cheetah::compile::<Cheetah>(lowered.graph, Options::default()).is_ok());
}

#[test]
fn rings_hold_extreme_inputs_and_the_report_says_what_is_certain() {
    // Samples in which neighbours cancel, filtered by sums: calibration finds almost nothing of the
    // effect of a constant input.
    let rows: Vec<f32> = (0..64).map(|i| if i % 16 < 8 { 1.0 } else { -1.0 }).collect();
    let mut model = chain(8, &[Some(rows), None, Some(vec![1.0; 8])], 20);
    let (max_abs, extreme) = (model.calibration.max_abs[1], model.calibration.extreme[1]);
    assert!((extreme - 8.0).abs() < 0.9, "{max_abs} {extreme}");
    assert!(extreme > max_abs, "{max_abs} {extreme}");
    for sizes in [&mut model.calibration.max_abs[1..], &mut model.calibration.mean_square[1..]] {
        sizes.iter_mut().for_each(|v| *v /= 64.0);
    }
    let lowered = lower_model(&model, &RingOptions { frac_bits: Some(8), ..RingOptions::default() });
    let high = model.interface.input.range.high;
    let ints = reference::quantize_input(&lowered.graph, &[high; 8]).unwrap();
    let got =
        reference::dequantize_output(&lowered.graph, &reference::run(&lowered.graph, &lowered.weights, &ints).unwrap());
    let expected = model.run(&[high; 8]).unwrap();
    assert!((got[0] - expected[0]).abs() < 0.5, "{got:?} {expected:?}");
    let overflow = &lowered.report.overflow;
    assert!(overflow.certain > 1, "{overflow:?}");
    assert!(overflow.certain + overflow.likely == lowered.graph.nodes().len(), "{overflow:?}");
    // Without that headroom, the report names the nodes that may overflow.
    let mut tight = model.clone();
    tight.calibration.extreme.iter_mut().for_each(|v| *v = 0.0);
    let tight = lower_model(&tight, &RingOptions { frac_bits: Some(8), ..RingOptions::default() });
    assert!(tight.report.overflow.likely > overflow.likely);
    assert!(tight.report.to_string().contains("unlikely"), "{}", tight.report);
}

#[test]
fn maxima_are_counted_by_rows_and_columns() {
    let pool = |kernel, stride, pads, input: [usize; 3], output: [usize; 3]| {
        max_comparisons(&Window { kernel, stride, pads }, &input, &output)
    };
    assert_eq!(pool([2, 2], [2, 2], [0; 4], [1, 4, 4], [1, 2, 2]), 4 * 2 + 2 * 2);
    assert_eq!(pool([3, 3], [2, 2], [0; 4], [2, 5, 5], [2, 2, 2]), 2 * (5 * 2 * 2 + 2 * 2 * 2));
    assert_eq!(pool([3, 3], [2, 2], [1; 4], [1, 4, 4], [1, 2, 2]), 4 * (1 + 2) + 2 * (1 + 2));
}

#[test]
fn a_lowering_reports_progress_and_can_be_interrupted() {
    let model = tiny_cnn(OutputMode::Logits);
    let progress = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = std::sync::Arc::clone(&progress);
    let watch = Watch::new(move |step| {
        listener.lock().unwrap().push((step.what, step.done));
        true
    });
    let target = Target { price: &|_, _| Ok(1.0), check: &|_, _| Ok(()) };
    lower_for(&model, &RingOptions::default(), target, &watch).unwrap();
    let progress = progress.lock().unwrap();
    let attempts: Vec<usize> = progress.iter().filter(|t| t.0.starts_with("choosing scales")).map(|t| t.1).collect();
    assert!(attempts.is_sorted(), "{attempts:?}");
    assert!(*attempts.last().unwrap() > 2, "{attempts:?}");
    assert!(progress.iter().any(|t| t.0.starts_with("comparing each layer")));
    let watch = Watch::new(|step| step.done < 2);
    let ended = lower_for(&model, &RingOptions::default(), target, &watch);
    let error = ended.unwrap_err();
    assert!(matches!(RingError::find_in(&error), Some(RingError::Graph(GraphError::Interrupted))), "{error}");
}

/// The report states the errors of outputs, and a bound only if it is useful.
#[test]
fn errors_are_stated_in_the_unit_of_the_outputs() {
    let model = tiny_cnn(OutputMode::Logits);
    let stated = |frac_bits: u32| {
        let lowered = Cheetah.lower(&model, &format!("frac_bits={frac_bits}").parse().unwrap()).unwrap();
        let report: RingReport = serde_json::from_value(lowered.report().unwrap().json()).unwrap();
        let text = lowered.report().unwrap().to_string();
        (report.errors.unwrap(), tacit_backend_api::seam::Plan::error_bound(&*lowered, &[]), text)
    };
    let (coarse, fine) = (stated(4), stated(12));
    assert!(coarse.0.expected > 4.0 * fine.0.expected, "{coarse:?} {fine:?}");
    assert!(fine.0.expected > 0.0, "{coarse:?} {fine:?}");
    assert!(fine.0.expected < 1e-2 * fine.0.range);
    assert!(fine.0.range == coarse.0.range);
    for (errors, bound, text) in [coarse, fine] {
        assert_eq!(errors.bound, Some(bound).filter(|bound| *bound < errors.range), "{errors:?}");
        assert_eq!(text.contains("is proven\n"), errors.bound.is_some(), "{text}");
        assert_eq!(text.contains("nothing useful is proven"), errors.bound.is_none(), "{text}");
    }
    assert_eq!(lower_model(&tiny_cnn(OutputMode::Top1), &RingOptions::default()).report.errors, None);
}

/// Samples a million times too large: the lowering states the cost of their scale, and the client
/// gets an error for an input in other units.
#[test]
fn samples_of_another_scale_are_warned_of() {
    let network = zoo::build("tiny-cnn", 2).unwrap();
    let at_scale = |scale: f64| {
        let mut rng = SplitMix::new(5);
        let data = (0..16 * 64).map(|_| (scale * rng.range(-1.0, 1.0)) as f32).collect();
        let calibration = Some(Npy { shape: vec![16, 1, 8, 8], data, is_bytes: false });
        import(&network, &ImportOptions { calibration, ..ImportOptions::default() }).unwrap().model
    };
    let unusual =
        |model: &Model| lower_model(model, &RingOptions::default()).report.warnings.join("\n").contains("in size");
    assert!(!unusual(&at_scale(1.0)));
    assert!(!unusual(&at_scale(255.0)));
    assert!(unusual(&at_scale(1e6)));
    // At the scale of its samples the model computes as well as ever; inputs of the intended scale
    // round to nothing.
    let model = at_scale(1e6);
    let server = Cheetah.lower(&model, &tacit_backend_api::Options::default()).unwrap();
    let unit = tacit_backend_api::seam::Plan::input_unit(&*server).unwrap();
    let small: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
    let accept = |units| model.interface.accept(&small, units).unwrap();
    assert!(tacit_backend_api::FaintInput::detect(&accept(Units::Network), unit).is_some());
    assert_eq!(tacit_backend_api::FaintInput::detect(&model.calibration.samples[0], unit), None);
}

/// Scales that are too coarse for the calibrated values.
#[test]
fn scales_that_leave_nothing_are_warned_of() {
    let options = RingOptions { frac_bits: Some(8), ..RingOptions::default() };
    let lost = |model: &Model| {
        lower_model(model, &options)
            .report
            .warnings
            .iter()
            .filter(|w| w.contains("next to nothing") || w.contains("rounding leaves nothing"))
            .count()
    };
    let mut model = tiny_cnn(OutputMode::Logits);
    assert_eq!(lost(&model), 0);
    model.calibration.mean_square.iter_mut().for_each(|v| *v *= 1e-12);
    assert_eq!(lost(&model), 1);
    model.calibration.samples.iter_mut().flatten().for_each(|v| *v *= 1e-6);
    assert_eq!(lost(&model), 2);
}

/// Returns the error of `cheetah` for a sigmoid that is joined with `1 - sigmoid`, optionally
/// followed by a layer.
fn two_class_refusal(has_layer: bool) -> String {
    let mut graph = FloatGraph::new("x", vec![3]).unwrap();
    let dense = |outputs: usize, inputs: usize| FloatOp::Dense {
        weights: vec![0.5; outputs * inputs],
        bias: vec![0.25; outputs],
    };
    let logit = graph.push("logit", dense(1, 3), &[0], &[]).unwrap();
    let sigmoid = graph.push("sigmoid", FloatOp::Function(Function::Sigmoid), &[logit], &[]).unwrap();
    let affine = FloatOp::Affine { scale: vec![-1.0], shift: vec![1.0] };
    let complement = graph.push("other", affine, &[sigmoid], &[]).unwrap();
    graph.output = graph.push("both", FloatOp::Concat, &[complement, sigmoid], &[]).unwrap();
    if has_layer {
        graph.output = graph.push("y", dense(2, 2), &[graph.output], &[]).unwrap();
    }
    let model = import_network(Network::new("n", graph), &ImportOptions::default()).unwrap().model;
    Cheetah.lower(&model, &tacit_backend_api::Options::default()).map(drop).unwrap_err().to_string()
}

#[test]
fn a_classifier_of_two_classes_is_cut_at_its_logit() {
    let (end, middle) = (two_class_refusal(false), two_class_refusal(true));
    assert!(end.contains("sigmoid"), "{end}");
    assert!(end.contains("cut the network in front of it, at the logit"), "{end}");
    assert!(middle.contains("no look-up tables"), "{middle}");
    assert!(!middle.contains("logit"), "{middle}");
}
