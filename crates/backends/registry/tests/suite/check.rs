//! Models judged in the clear, and run privately, by real back ends.
use std::sync::Arc;
use tacit_backends::check::{Checked, check, run_privately};
use tacit_backends::cheetah::Cheetah;
use tacit_backends::ckks::Ckks;
use tacit_backends::classes::class;
use tacit_backends::dealt::Dealt;
use tacit_backends::{Backend, Options, ServerModel};
use tacit_graph::rng::SplitMix;
use tacit_graph::{ImportOptions, Model, OutputMode, Watch, import};
use tacit_ring::fixtures::tiny_cnn;

/// Inputs in the accepted range.
fn inputs(count: usize) -> Vec<Vec<f32>> {
    let mut rng = SplitMix::new(3);
    (0..count).map(|_| rng.floats(64, -1.0, 1.0)).collect()
}

fn lower(model: &Model, options: &str) -> Arc<dyn ServerModel> {
    Cheetah.lower(model, &options.parse().unwrap()).unwrap()
}

#[test]
fn a_model_is_compared_with_its_float_network() {
    for mode in [OutputMode::Logits, OutputMode::Top1] {
        let model = tiny_cnn(mode);
        let lowered = lower(&model, "frac_bits=12");
        let mut data = inputs(20);
        let class = |x: &Vec<f32>| match mode {
            OutputMode::Top1 => model.run(x).unwrap()[0] as usize,
            OutputMode::Logits => class(&model.run(x).unwrap()).unwrap(),
        };
        // Half of the labels are right, and one input is refused.
        let mut labels: Vec<usize> = data.iter().enumerate().map(|(i, x)| class(x) + i % 2).collect();
        data.push(vec![100.0; 64]);
        labels.push(0);
        let report = check(&model, &*lowered, &data, Some(&labels), &Watch::default()).unwrap();
        assert_eq!((report.inputs, report.refused, report.overflowed), (20, 1, 0));
        assert!(report.agreement >= 0.9, "{report:?}");
        assert!(report.interval[0] < report.agreement, "{report:?}");
        assert_eq!(report.accuracy.unwrap().float, 0.5);
        assert!(report.output_error < 1e-2);
        assert!(report.strained.iter().all(|s| s.share < 1.0));
        let unlabelled = check(&model, &*lowered, &data, None, &Watch::default()).unwrap();
        assert_eq!(Checked { accuracy: report.accuracy, ..unlabelled }, report);
    }
}

#[test]
fn overflowing_layers_are_named() {
    let mut model = tiny_cnn(OutputMode::Logits);
    // The calibration saw almost nothing.
    for sizes in [&mut model.calibration.max_abs, &mut model.calibration.extreme] {
        sizes[1..].iter_mut().for_each(|v| *v /= 64.0);
    }
    let lowered = lower(&model, "frac_bits=8");
    let report = check(&model, &*lowered, &inputs(5), None, &Watch::default()).unwrap();
    assert!(report.overflowed > 0, "{report:?}");
    assert!(report.strained[0].share >= 1.0, "{report:?}");
    assert!(report.advice.is_some_and(|advice| advice.contains("-O clamp=true")));
    assert!(report.strained.is_sorted_by(|a, b| a.share >= b.share));
    let clamped = lower(&model, "frac_bits=8,clamp=true");
    let report = check(&model, &*clamped, &inputs(5), None, &Watch::default()).unwrap();
    assert_eq!((report.overflowed, report.advice), (0, None));
}

/// Three inputs in the accepted range, and one outside.
fn four_inputs() -> Vec<Vec<f32>> {
    [inputs(3), vec![vec![100.0; 64]]].concat()
}

#[test]
fn both_parties_answer_as_the_model() {
    for mode in [OutputMode::Logits, OutputMode::Top1] {
        let model = tiny_cnn(mode);
        // Fine enough that an error of one unit changes no class.
        let lowered = lower(&model, "frac_bits=12");
        let report = run_privately(&model, &Cheetah, &lowered, &four_inputs(), &Watch::default()).unwrap();
        assert_eq!((report.inputs, report.as_reference), (3, 3), "{report:?}");
        assert!(report.off <= report.bound, "{report:?}");
        assert!(report.stated.is_none_or(|stated| stated == report.bound), "{report:?}");
        assert_eq!(report.error > 0.0, mode == OutputMode::Logits, "{report:?}");
        let costs = lowered.costs();
        assert_eq!((report.setup.up_bytes, report.online.up_bytes), (costs.setup.up_bytes, costs.online.up_bytes));
        assert!(report.offline.down_bytes > 0);
        assert!(report.online.seconds > 0.0);
        assert!(report.steps.is_empty());
    }
}

#[test]
fn a_bound_is_stated_only_if_it_is_useful() {
    let model = tiny_cnn(OutputMode::Logits);
    let stated = |frac_bits: u32| {
        let lowered = lower(&model, &format!("frac_bits={frac_bits}"));
        let report = run_privately(&model, &Cheetah, &lowered, &four_inputs()[..1], &Watch::default()).unwrap();
        assert!(report.off <= report.bound, "{report:?}");
        assert!(report.bound.is_finite(), "{report:?}");
        assert!(report.error < report.bound, "{report:?}");
        report.stated
    };
    assert_eq!((stated(2), stated(12).is_some()), (None, true));
}

#[test]
fn the_server_of_ckks_reports_its_times() {
    let bytes = include_bytes!("../../../../../models/digits_square.onnx");
    let model = import(bytes, &ImportOptions::default()).unwrap().model;
    let lowered = Ckks.lower(&model, &Options::default()).unwrap();
    let input = model.calibration.samples[0].clone();
    let report = run_privately(&model, &Ckks, &lowered, &[input], &Watch::default()).unwrap();
    let [kinds, seconds] = [report.steps.len() as f64, report.steps.values().sum::<f64>()];
    assert!(kinds >= 2.0, "{:?}", report.steps);
    assert!(report.steps.contains_key("linear"), "{:?}", report.steps);
    assert!(seconds > 0.0, "{seconds} of {}", report.online.seconds);
    assert!(seconds <= report.online.seconds, "{seconds} of {}", report.online.seconds);
}

#[test]
fn refused_runs_say_why() {
    let model = tiny_cnn(OutputMode::Logits);
    let refused = |inputs: &[Vec<f32>], backend: &dyn Backend, lowered: &Arc<dyn ServerModel>| {
        run_privately(&model, backend, lowered, inputs, &Watch::default()).unwrap_err().to_string()
    };
    let dealt = Dealt.lower(&model, &"frac_bits=12".parse().unwrap()).unwrap();
    assert!(refused(&four_inputs(), &Dealt, &dealt).contains("dealer"));
    let lowered = lower(&model, "frac_bits=12");
    assert!(refused(&four_inputs()[3..], &Cheetah, &lowered).contains("range"));
    // The public part of another back end.
    assert!(refused(&four_inputs(), &Ckks, &lowered).contains("cheetah"));
}

#[test]
fn data_without_meaning_is_refused() {
    let model = tiny_cnn(OutputMode::Logits);
    let lowered = lower(&model, "frac_bits=8");
    let run = |data: &[Vec<f32>], labels: Option<&[usize]>| {
        check(&model, &*lowered, data, labels, &Watch::default()).unwrap_err().to_string()
    };
    assert!(run(&inputs(2), Some(&[1])).contains("1 labels for 2 inputs"));
    assert!(run(&[vec![100.0; 64]], None).contains("none of 1 inputs"));
}
