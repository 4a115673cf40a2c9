//! Networks that once failed (`../shared/data/regressions`): each is imported, lowered and compiled for
//! `cheetah`, opened as by a client, and agrees with its float network. `tests/test_regressions.py` runs
//! them in the two-party protocol and compares with onnxruntime.

use std::sync::Arc;

use crate::data;
use tacit_backends::cheetah::Cheetah;
use tacit_backends::{Backend, Options, ServerModel};
use tacit_graph::float::run::run;
use tacit_graph::npy::Npy;
use tacit_graph::rng::SplitMix;
use tacit_graph::{ImportOptions, Imported, Interval, Units, import};

/// Imports and lowers a network; `None` without the shared data.
fn lower_network(
    name: &str,
    calibration: Option<&Npy>,
    range: Option<Interval<f32>>,
) -> Option<(Imported, Arc<dyn ServerModel>)> {
    let bytes = data::regression(&format!("{name}.onnx"))?;
    let options = ImportOptions { calibration: calibration.cloned(), range, ..ImportOptions::default() };
    let imported = import(&bytes, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
    let lowered = Cheetah.lower(&imported.model, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let client = Cheetah.open(lowered.public_bytes()).unwrap();
    assert_eq!(client.digest(), lowered.digest());
    Some((imported, lowered))
}

/// Largest error over the inputs, as a share of the range of all expected outputs.
fn error(imported: &Imported, lowered: &dyn ServerModel, inputs: &[Vec<f32>]) -> f64 {
    let interface = lowered.interface();
    let (mut low, mut high, mut worst) = (f64::INFINITY, f64::NEG_INFINITY, 0f64);
    for x in inputs {
        let got = lowered.reference(&interface.accept(x, Units::Network).unwrap()).unwrap();
        for (g, w) in got.iter().zip(run(&imported.network.graph, x).unwrap()) {
            let w = f64::from(w);
            (low, high, worst) = (low.min(w), high.max(w), worst.max((g - w).abs()));
        }
    }
    worst / if high > low { high - low } else { high.abs().max(1.0) }
}

fn inputs(array: &Npy, len: usize) -> Vec<Vec<f32>> {
    array.data.chunks(len).map(<[f32]>::to_vec).collect()
}

#[test]
fn networks_that_serving_once_refused_are_served() {
    for number in [51, 64, 149, 302, 353, 385, 469, 480] {
        let name = format!("unservable_{number}");
        let Some(calibration) = data::array(&format!("{name}_calib.npy")) else { return };
        let Some((imported, lowered)) = lower_network(&name, Some(&calibration), None) else { return };
        let inputs = inputs(&calibration, lowered.interface().input_len());
        let error = error(&imported, &*lowered, &inputs);
        let report = lowered.report().unwrap();
        assert!(error < 0.03, "{name}: {error}\n{report}");
        let stated = report.json();
        assert!(stated["output_error"].as_f64().unwrap() < 0.02, "{name}: {report}");
    }
}

#[test]
fn tiny_weights_and_inputs_are_rescaled() {
    for (name, high) in [("tiny_weights", 1.0f32), ("tiny_input_range", 1e-5)] {
        let Some((imported, lowered)) = lower_network(name, None, Some(Interval { low: -high, high })) else { return };
        let mut rng = SplitMix::new(9);
        let (len, high) = (lowered.interface().input_len(), f64::from(high));
        let inputs: Vec<Vec<f32>> = (0..20).map(|_| rng.floats(len, -high, high)).collect();
        let error = error(&imported, &*lowered, &inputs);
        assert!(error < 0.02, "{name}: {error}\n{}", lowered.report().unwrap());
    }
}

#[test]
fn every_feature_has_its_own_scale() {
    for name in ["scaler_mlp", "ecg_bn_input"] {
        let Some(calibration) = data::array(&format!("{name}_calib.npy")) else { return };
        let Some((imported, lowered)) = lower_network(name, Some(&calibration), None) else { return };
        let Some(test) = data::array(&format!("{name}_x.npy")) else { return };
        assert!(lowered.interface().input.moved.is_some());
        let len = lowered.interface().input_len();
        for array in [&calibration, &test] {
            let error = error(&imported, &*lowered, &inputs(array, len));
            assert!(error < 0.02, "{name}: {error}\n{}", lowered.report().unwrap());
        }
    }
}

#[test]
fn a_scaler_inside_a_network_keeps_the_classes() {
    let Some(calibration) = data::array("breast_cancer_calib.npy") else { return };
    let Some((imported, lowered)) = lower_network("breast_cancer_scaler_inside", Some(&calibration), None) else {
        return;
    };
    let Some(test) = data::array("breast_cancer_test.npy") else { return };
    let interface = lowered.interface();
    let mut same = 0;
    let mut refused = 0;
    for x in inputs(&test, interface.input_len()) {
        let Ok(input) = interface.accept(&x, Units::Network) else {
            refused += 1;
            continue;
        };
        let got = lowered.reference(&input).unwrap();
        same += usize::from((got[0] > 0.0) == (run(&imported.network.graph, &x).unwrap()[0] > 0.0));
    }
    assert!(same >= 283, "{same} of 285, {refused} refused\n{}", lowered.report().unwrap());
}
