use super::*;
use crate::zoo;

fn tiny(options: &ImportOptions) -> Imported {
    import(&zoo::build("tiny-cnn", 2).unwrap(), options).unwrap()
}

#[test]
fn equal_options_give_equal_models() {
    let options = ImportOptions { model_id: Some([1; 16]), ..ImportOptions::default() };
    let (a, b) = (tiny(&options).model, tiny(&options).model);
    assert_eq!((a.digest(), a), (b.digest(), b));
    let (c, d) = (tiny(&ImportOptions::default()).model, tiny(&ImportOptions::default()).model);
    assert_ne!(c.model_id, d.model_id);
    assert_ne!(c.digest(), d.digest());
}

fn tiny_error(options: ImportOptions) -> String {
    import(&zoo::build("tiny-cnn", 2).unwrap(), &options).map(drop).unwrap_err().to_string()
}

#[test]
fn samples_that_do_not_fit_are_refused() {
    for (shape, value) in [(vec![2, 1, 8, 7], 0.5), (vec![2, 1, 8, 8], f32::NAN)] {
        let n = shape.iter().product();
        let calibration = Some(Npy { shape, data: vec![value; n], is_bytes: false });
        tiny_error(ImportOptions { calibration, ..ImportOptions::default() });
    }
    assert!(tiny_error(ImportOptions { mean: vec![0.5; 3], ..ImportOptions::default() }).contains("mean"));
    let range = Some(Interval { low: f32::NEG_INFINITY, high: 1.0 });
    tiny_error(ImportOptions { range, ..ImportOptions::default() });
}

#[test]
fn the_model_and_the_network_compute_the_same() {
    let imported = tiny(&ImportOptions { output_mode: OutputMode::Top1, ..ImportOptions::default() });
    let logits = tiny(&ImportOptions::default());
    let mut rng = SplitMix::new(8);
    for _ in 0..10 {
        let x: Vec<f32> = rng.floats(64, -1.0, 1.0);
        let expected = crate::float::run::run(&imported.network.graph, &x).unwrap();
        let client_input = imported.client_input(&x);
        let outputs = logits.model.run(&client_input).unwrap();
        for (g, w) in outputs.iter().zip(&expected) {
            assert!((g - f64::from(*w)).abs() < 1e-4 * (1.0 + g.abs()), "{g} {w}");
        }
        assert_eq!(
            imported.model.run(&client_input).unwrap(),
            [tacit_floats::first_largest(&expected).unwrap() as f64]
        );
    }
    assert_eq!((imported.model.interface.output_shape, logits.model.interface.output_shape), (vec![1], vec![10]));
}

#[test]
fn statistics_cover_all_samples_and_few_samples_are_kept() {
    let data: Vec<f32> = (0..3 * 64).map(|i| i as f32 / 192.0).collect();
    let calibration = Some(Npy { shape: vec![3, 1, 8, 8], data, is_bytes: false });
    let stored =
        tiny(&ImportOptions { calibration: calibration.clone(), ..ImportOptions::default() }).model.calibration;
    assert_eq!((stored.samples.len(), stored.wanted.len(), stored.guessed), (3, 3, false));
    assert!(stored.max_abs[0] > 0.99 && stored.mean_square.iter().all(|m| *m > 0.0), "{stored:?}");
    let two = tiny(&ImportOptions { calibration, max_samples: 2, ..ImportOptions::default() }).model.calibration;
    assert_eq!((two.samples.len(), two.samples[1].clone()), (2, stored.samples[1].clone()));
    // SqueezeNet takes 0.35 G multiplications: a search can run four samples; 22 are stored to
    // judge it.
    let network = onnx::parse(&zoo::build("squeezenet1.1", 1).unwrap()).unwrap();
    let counts = [3, 8, 16, 64].map(|sample_count| calibrate::count_kept(&network.graph, sample_count));
    assert_eq!(counts, [3, 4, 16, 22]);
    let mut calibration = stored;
    for (count, split) in [(3, (0..3, 3..3)), (8, (0..4, 4..4)), (16, (0..4, 4..16)), (22, (0..4, 4..22))] {
        calibration.samples = vec![Vec::new(); count];
        assert_eq!(calibration.split(&network.graph), split);
    }
    calibration.guessed = true;
    assert_eq!(calibration.split(&network.graph), (0..4, 4..4));
}

#[test]
fn an_inconsistent_model_is_refused() {
    let model = tiny(&ImportOptions::default()).model;
    model.check().unwrap();
    let changes: [fn(&mut Model); 10] = [
        |m| m.output_multiplier = -1.0,
        |m| m.interface.output_shape = vec![11],
        |m| m.interface.input_shape = vec![1, 64],
        |m| m.calibration.samples.clear(),
        |m| m.calibration.wanted[0].truncate(1),
        |m| m.calibration.max_abs[0] = f64::NAN,
        |m| m.calibration.mean_square.truncate(1),
        |m| m.graph.nodes[1].inputs = vec![2],
        |m| m.graph.nodes[1].shape = vec![1],
        |m| {
            m.graph.nodes.iter_mut().for_each(|n| {
                if let FloatOp::Dense { bias, .. } = &mut n.op {
                    bias[0] = f32::INFINITY;
                }
            })
        },
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut changed = model.clone();
        change(&mut changed);
        assert!(changed.check().is_err(), "change {i}");
    }
}

#[test]
fn an_import_reports_progress_and_can_be_interrupted() {
    let reports = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = std::sync::Arc::clone(&reports);
    let watch = Watch::new(move |step| {
        listener.lock().unwrap().push((step.what, step.done, step.of));
        true
    });
    tiny(&ImportOptions { watch, ..ImportOptions::default() });
    let reports = reports.lock().unwrap();
    assert_eq!(reports[0].0, "reading the network");
    let samples: Vec<_> = reports.iter().filter(|t| t.0 == "running calibration samples").collect();
    assert_eq!(samples.iter().map(|t| (t.1, t.2)).collect::<Vec<_>>(), [0, 1, 2, 3].map(|i| (i, Some(4))));
    let watch = Watch::new(|step| step.done < 2);
    let options = ImportOptions { watch, ..ImportOptions::default() };
    let ended = import(&zoo::build("tiny-cnn", 2).unwrap(), &options);
    assert!(matches!(ended, Err(GraphError::Interrupted)));
}

#[test]
fn overflowing_samples_name_a_remedy() {
    let calibration = Some(Npy { shape: vec![1, 1, 8, 8], data: vec![1e32; 64], is_bytes: false });
    let error = tiny_error(ImportOptions { calibration, ..ImportOptions::default() });
    assert!(error.contains("overflows on a calibration sample"), "{error}");
    assert!(error.contains("1.000e32") && error.contains("mean and standard deviation"), "{error}");
}
