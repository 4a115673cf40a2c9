use super::*;
use crate::cheetah::{Options, online_bytes};
use crate::ring::op::max_comparisons;
use crate::ring::{FixedPoint, Linear, Node, Op, WeightFacts, reference};
use tacit_graph::geometry::Window;
use tacit_graph::rng::SplitMix;
use tacit_graph::{GraphError, ImportOptions, OutputMode, import, zoo};

fn price(graph: &RingGraph) -> Result<f64, BackendError> {
    online_bytes(graph, &Options::default()).map(|bytes| bytes as f64)
}

fn lowered(model: &Model, options: &RingOptions) -> RingModel {
    lower(model, options, &price).unwrap()
}

fn tiny(output_mode: OutputMode) -> Model {
    let options = ImportOptions { output_mode, model_id: Some([1; 16]), ..ImportOptions::default() };
    import(&zoo::build("tiny-cnn", 2).unwrap(), &options).unwrap().model
}

fn with(options: RingOptions) -> RingModel {
    lowered(&tiny(OutputMode::Logits), &options)
}

#[test]
fn equal_options_give_equal_models() {
    assert_eq!(with(RingOptions::default()), with(RingOptions::default()));
    assert_eq!(with(RingOptions::default()).graph.spec().model_id, [1; 16]);
}

#[test]
fn top1_is_the_class_of_the_logits() {
    let (logits, top1) = (tiny(OutputMode::Logits), tiny(OutputMode::Top1));
    let (logits, top1) = (lowered(&logits, &RingOptions::default()), lowered(&top1, &RingOptions::default()));
    let mut rng = SplitMix::new(8);
    for _ in 0..10 {
        let x: Vec<f32> = (0..64).map(|_| rng.range(-1.0, 1.0) as f32).collect();
        let ints = reference::quantize_input(&logits.graph, &x).unwrap();
        let a = reference::run(&logits.graph, &logits.weights, &ints).unwrap();
        let b = reference::run(&top1.graph, &top1.weights, &ints).unwrap();
        let best = a.iter().max().unwrap();
        // The arg max sees truncated logits: near-equal ones may tie.
        assert!((best - a[b[0] as usize]) as f64 <= 0.02 * (*best as f64).abs(), "{a:?} {b:?}");
    }
    assert_eq!(top1.report.comparisons.arg_max, 9);
}

#[test]
fn fixed_fraction_bits_are_kept() {
    let lowered = with(RingOptions { frac_bits: Some(12), ..RingOptions::default() });
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
        let lowered = with(RingOptions { error_bound, ..RingOptions::default() });
        lowered.report.layers.iter().map(|l| l.width).sum::<u32>()
    };
    assert!(bits(0.02) < bits(0.001));
}

#[test]
fn the_price_decides_and_its_errors_come_through() {
    let model = tiny(OutputMode::Logits);
    // Where wide rings are called cheap, the first scheme that is accepted stays the best no longer.
    let width = |graph: &RingGraph| graph.nodes().iter().map(|n| f64::from(n.fixed.width)).sum::<f64>();
    let narrow = lower(&model, &RingOptions::default(), &|g| Ok(width(g))).unwrap();
    let wide = lower(&model, &RingOptions::default(), &|g| Ok(-width(g))).unwrap();
    assert!(width(&narrow.graph) < width(&wide.graph));
    let broken = lower(&model, &RingOptions::default(), &|_| Err(BackendError::Misuse("no price")));
    assert!(matches!(broken, Err(BackendError::Misuse("no price"))));
    // A back end that cannot compute in any of the rings: the finest scheme, and its compiler will say why.
    let unsupported = |_: &RingGraph| {
        Err(BackendError::Unsupported { node: 0, name: String::new(), op: "Input", what: String::new() })
    };
    assert!(lower(&model, &RingOptions::default(), &unsupported).unwrap().report.output_error < 0.001);
}

#[test]
fn options_out_of_range_are_refused() {
    let model = tiny(OutputMode::Logits);
    let default = RingOptions::default;
    for (name, options) in [
        ("frac_bits", RingOptions { frac_bits: Some(48), ..default() }),
        ("weight_bits", RingOptions { weight_bits: Some(8), ..default() }),
        ("max_frac_bits", RingOptions { max_frac_bits: 48, ..default() }),
        ("guard_bits", RingOptions { guard_bits: f64::NAN, ..default() }),
        ("error_bound", RingOptions { error_bound: -0.1, ..default() }),
        ("round_facts", RingOptions { round_facts: 0, ..default() }),
    ] {
        let error = lower(&model, &options, &price).unwrap_err();
        assert!(matches!(&error, BackendError::Ring(RingError::Option { name: n, .. }) if *n == name), "{error}");
    }
    // Values that no ring holds.
    let fine = RingOptions { frac_bits: Some(40), ..default() };
    assert!(matches!(lower(&model, &fine, &price), Err(BackendError::Ring(RingError::NoRing { .. }))));
}

#[test]
fn facts_are_rounded_up_on_request() {
    let exact = with(RingOptions::default());
    let rounded = with(RingOptions { round_facts: 8, ..RingOptions::default() });
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
    let mut model = tiny(OutputMode::Logits);
    let graph = &mut model.graph;
    let last = &graph.nodes[graph.output];
    let (inputs, shape, n) = (vec![graph.output], last.shape.clone(), last.elements());
    let op = FloatOp::Affine { scale: (1..=n).map(|i| i as f32).collect(), shift: vec![0.0; n] };
    graph.nodes.push(tacit_graph::float::FloatNode { name: "by class".into(), op, inputs, shape });
    graph.output += 1;
    for statistics in [&mut model.calibration.max_abs, &mut model.calibration.mean_square] {
        statistics.push(1.0);
    }
    assert!(lower(&model, &RingOptions::default(), &price).unwrap_err().to_string().contains("by class"));
}

#[test]
fn weights_that_no_integer_holds_are_refused() {
    let mut model = tiny(OutputMode::Logits);
    let weights = model.graph.nodes.iter_mut().find_map(|n| match &mut n.op {
        FloatOp::Conv { weights, .. } => Some(weights),
        _ => None,
    });
    weights.unwrap()[0] = 1e20;
    for frac_bits in [Some(8), None] {
        let options = RingOptions { frac_bits, ..RingOptions::default() };
        let error = lower(&model, &options, &price).unwrap_err();
        assert!(matches!(error, BackendError::Ring(RingError::NoRing { .. })), "{error}");
    }
}

#[test]
fn the_report_is_text_and_json() {
    let report = with(RingOptions::default()).report;
    let text = report.to_string();
    assert!(text.contains("agreement") && text.contains("headroom") && text.contains("WARNING"), "{text}");
    let back: RingReport = serde_json::from_value(crate::LoweringReport::json(&report)).unwrap();
    assert_eq!(back.comparisons, report.comparisons);
    assert!(report.layers.iter().all(|l| l.headroom_bits >= 0.0));
}

#[test]
fn small_networks_agree() {
    for name in ["tiny-mlp", "tiny-cnn", "m1", "lenet"] {
        let imported = import(&zoo::build(name, 3).unwrap(), &ImportOptions::default()).unwrap();
        let report = lowered(&imported.model, &RingOptions::default()).report;
        assert_eq!(report.agreement, 1.0, "{name}: {report}");
        assert!(report.output_error < 0.015, "{name}: {}", report.output_error);
        assert!(report.warnings[0].contains("guess"), "{name}");
    }
}

#[test]
fn chains_without_relu_get_a_widening() {
    let linear = |frac_bits| {
        let weights = WeightFacts { frac_bits, magnitude_bits: 20, norm_bits: 22 };
        Op::Linear(Linear { out_features: 4, weights })
    };
    let node = |op, inputs: &[usize], frac_bits| Node {
        name: "n".into(),
        op,
        inputs: inputs.to_vec(),
        shape: vec![4],
        fixed: FixedPoint { width: 0, frac_bits },
    };
    let mut nodes = vec![
        node(Op::Input, &[], 12),
        node(linear(12), &[0], 24),
        node(Op::Truncate { bits: 12 }, &[1], 12),
        node(linear(14), &[2], 26),
        node(Op::Truncate { bits: 14 }, &[3], 12),
        node(linear(12), &[4], 24),
    ];
    let mut needs = vec![16, 32, 20, 36, 22, 34];
    let mut origin: Vec<usize> = (0..6).collect();
    let moved = width::assign(&mut nodes, &mut needs, &mut origin).unwrap();
    assert!(nodes.iter().any(|n| n.op == Op::Widen));
    assert_eq!(nodes[moved[5]].op, linear(12));
    assert!(nodes.iter().all(|n| n.fixed.width <= 40));
    RingGraph::new(reference::tests::spec(nodes)).unwrap();
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
fn a_lowering_tells_how_far_it_is_and_ends_when_asked() {
    let model = tiny(OutputMode::Logits);
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = std::sync::Arc::clone(&told);
    let watch = Watch::new(move |step| {
        listener.lock().unwrap().push((step.what, step.done));
        true
    });
    lower_watched(&model, &RingOptions::default(), &|_| Ok(1.0), &watch).unwrap();
    let told = told.lock().unwrap();
    let attempts: Vec<usize> = told.iter().filter(|t| t.0.starts_with("choosing scales")).map(|t| t.1).collect();
    assert!(attempts.is_sorted() && *attempts.last().unwrap() > 2, "{attempts:?}");
    assert!(told.iter().any(|t| t.0.starts_with("comparing each layer")));
    let watch = Watch::new(|step| step.done < 2);
    let ended = lower_watched(&model, &RingOptions::default(), &|_| Ok(1.0), &watch);
    assert!(matches!(ended, Err(BackendError::Ring(RingError::Graph(GraphError::Interrupted)))));
}
