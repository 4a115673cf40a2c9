use super::*;
use crate::model::Node;
use crate::op::{Op, Window};
use crate::reference;
use crate::zoo;

fn tiny(options: &ImportOptions) -> Imported {
    import(&zoo::build("tiny-cnn", 2).unwrap(), options).unwrap()
}

#[test]
fn equal_options_give_equal_models() {
    let options = ImportOptions { model_id: Some([1; 16]), ..ImportOptions::default() };
    let (a, b) = (tiny(&options), tiny(&options));
    assert_eq!((a.spec, a.weights), (b.spec, b.weights));
    let (c, d) = (tiny(&ImportOptions::default()), tiny(&ImportOptions::default()));
    assert_ne!(c.spec.model_id, d.spec.model_id);
}

#[test]
fn the_file_round_trips() {
    let imported = tiny(&ImportOptions::default());
    let file = file::read(&imported.to_file().unwrap()).unwrap();
    assert_eq!(file.graph.spec(), &imported.spec);
    assert_eq!(file.weights, imported.weights);
}

#[test]
fn top1_is_the_class_of_the_logits() {
    let fixed_id = |output_mode| ImportOptions { output_mode, model_id: Some([1; 16]), ..ImportOptions::default() };
    let (logits, top1) = (tiny(&fixed_id(OutputMode::Logits)), tiny(&fixed_id(OutputMode::Top1)));
    let (gl, gt) = (ModelGraph::new(logits.spec).unwrap(), ModelGraph::new(top1.spec).unwrap());
    let mut rng = SplitMix::new(8);
    for _ in 0..10 {
        let x: Vec<f32> = (0..64).map(|_| rng.range(-1.0, 1.0) as f32).collect();
        let ints = reference::quantize_input(&gl, &x).unwrap();
        let a = reference::run(&gl, &logits.weights, &ints).unwrap();
        let b = reference::run(&gt, &top1.weights, &ints).unwrap();
        let best = a.iter().max().unwrap();
        // The arg max sees truncated logits: near-equal ones may tie.
        assert!((best - a[b[0] as usize]) as f64 <= 0.02 * (*best as f64).abs(), "{a:?} {b:?}");
    }
    assert_eq!(top1.report.comparisons.arg_max, 9);
}

#[test]
fn fixed_fraction_bits_are_kept() {
    let imported = tiny(&ImportOptions { frac_bits: Some(12), ..ImportOptions::default() });
    for node in &imported.spec.nodes {
        if matches!(node.op, Op::Relu | Op::Input) {
            assert_eq!(node.fixed.frac_bits, 12, "{}", node.name);
        }
    }
    assert!(imported.report.output_error < 1e-3);
}

#[test]
fn coarser_bounds_give_narrower_rings() {
    let bits = |error_bound| {
        let imported = tiny(&ImportOptions { error_bound, ..ImportOptions::default() });
        imported.report.layers.iter().map(|l| l.width).sum::<u32>()
    };
    assert!(bits(0.02) < bits(0.001));
}

#[test]
fn samples_that_do_not_fit_are_refused() {
    for (shape, value) in [(vec![2, 1, 8, 7], 0.5), (vec![2, 1, 8, 8], f32::NAN)] {
        let n = shape.iter().product();
        let calibration = Some(Npy { shape, data: vec![value; n], is_bytes: false });
        let options = ImportOptions { calibration, ..ImportOptions::default() };
        assert!(import(&zoo::build("tiny-cnn", 2).unwrap(), &options).is_err());
    }
    let options = ImportOptions { mean: vec![0.5; 3], ..ImportOptions::default() };
    assert!(import(&zoo::build("tiny-cnn", 2).unwrap(), &options).unwrap_err().to_string().contains("mean"));
    let options = ImportOptions { range: Some([f32::NEG_INFINITY, 1.0]), ..ImportOptions::default() };
    assert!(import(&zoo::build("tiny-cnn", 2).unwrap(), &options).is_err());
}

#[test]
fn the_report_is_text_and_json() {
    let report = tiny(&ImportOptions::default()).report;
    let text = report.to_string();
    assert!(text.contains("agreement") && text.contains("headroom") && text.contains("WARNING"), "{text}");
    let back: Report = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(back.comparisons, report.comparisons);
    assert!(report.layers.iter().all(|l| l.headroom_bits >= 0.0));
}

#[test]
fn chains_without_relu_get_a_widening() {
    let fixed = |frac_bits| crate::FixedPoint { width: 0, frac_bits };
    let linear = |bits| {
        Op::Linear(crate::op::Linear {
            out_features: 4,
            weights: crate::op::WeightFacts { frac_bits: bits, magnitude_bits: 20, norm_bits: 22 },
        })
    };
    let node = |op, inputs: &[usize], frac| Node {
        name: "n".into(),
        op,
        inputs: inputs.to_vec(),
        shape: vec![4],
        fixed: fixed(frac),
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
    let spec = crate::reference::tests::spec(nodes);
    ModelGraph::new(spec).unwrap();
}

#[test]
fn maxima_are_counted_by_rows_and_columns() {
    let pool = |kernel, stride, pads, input: [usize; 3], output: [usize; 3]| {
        crate::op::max_comparisons(&Window { kernel, stride, pads }, &input, &output)
    };
    assert_eq!(pool([2, 2], [2, 2], [0; 4], [1, 4, 4], [1, 2, 2]), 4 * 2 + 2 * 2);
    assert_eq!(pool([3, 3], [2, 2], [0; 4], [2, 5, 5], [2, 2, 2]), 2 * (5 * 2 * 2 + 2 * 2 * 2));
    assert_eq!(pool([3, 3], [2, 2], [1; 4], [1, 4, 4], [1, 2, 2]), 4 * (1 + 2) + 2 * (1 + 2));
}
