use super::*;

fn interface() -> Interface {
    Interface {
        name: "m".into(),
        input_shape: vec![2, 2],
        input: InputSpec { mean: vec![0.0; 2], ..InputSpec::plain(Interval { low: -8.0, high: 8.0 }) },
        output_shape: vec![3],
        output_mode: OutputMode::Logits,
        outputs: vec![],
        final_activation: None,
    }
}

#[test]
fn inputs_outside_shape_or_range_are_refused() {
    let i = interface();
    i.check().unwrap();
    assert!(i.check_input(&[8.0005, -8.0005, 0.0, 1.0]).is_ok());
    for wrong in [vec![0.0; 3], vec![0.0, 0.0, f32::NAN, 0.0], vec![f32::INFINITY; 4], vec![9.0; 4]] {
        assert!(i.check_input(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn every_channel_has_its_own_normalisation() {
    let affine = Some(ChannelAffine { scale: vec![2.0, -0.5], shift: vec![1.0, 3.0] });
    for (shape, raw, expected) in [
        (vec![2], vec![10.0, 20.0], vec![13.0, -1.0]),
        (vec![2, 2], vec![10.0, 20.0, 10.0, 20.0], vec![13.0, 33.0, 1.5, -1.0]),
        (vec![2, 1, 2], vec![10.0, 20.0, 10.0, 20.0], vec![13.0, 33.0, 1.5, -1.0]),
    ] {
        let mut i = interface();
        i.input_shape = shape;
        i.input = InputSpec { mean: vec![4.0, 4.0], std: vec![1.0, 2.0], moved: affine.clone(), ..i.input };
        i.input.range = Interval { low: -50.0, high: 50.0 };
        i.check().unwrap();
        assert_eq!(i.accept(&raw, Units::Pixels).unwrap(), expected);
        let network: Vec<f32> =
            raw.iter().enumerate().map(|(k, v)| (v - 4.0) / if k >= raw.len() / 2 { 2.0 } else { 1.0 }).collect();
        assert_eq!(i.accept(&network, Units::Network).unwrap(), expected);
        assert_eq!(i.accept(&expected, Units::Normalised).unwrap(), expected);
    }
}

#[test]
fn a_refusal_uses_the_units_of_the_network() {
    let mut i = interface();
    i.input.moved = Some(ChannelAffine { scale: vec![1.0, -0.5], shift: vec![0.0, 3.0] });
    let message = i.accept(&[0.0, 0.0, 0.0, -11.0], Units::Network).unwrap_err().to_string();
    assert!(message.contains("value 3 is -11, the model accepts -10 to 22 (at [1, 1]); clip it"), "{message}");
    assert!(message.contains("--calibrate") && message.contains("--range"), "{message}");
    let message = i.accept(&[0.0, f32::NAN, 0.0, 0.0], Units::Network).unwrap_err().to_string();
    assert!(
        message.contains("value 1 is NaN") && message.contains("(at [0, 1])") && !message.contains("clip"),
        "{message}"
    );
    assert!(i.accept(&[0.0; 3], Units::Network).is_err() && i.accept(&[0.0; 3], Units::Pixels).is_err());
}

#[test]
fn declared_ranges_hold_in_each_channel() {
    let mut i = interface();
    i.input.moved = Some(ChannelAffine { scale: vec![1.0, -100.0], shift: vec![0.0, 3.0] });
    i.input.declared = vec![Interval { low: -1.0, high: 1.0 }];
    i.input.range = Interval { low: -97.0, high: 103.0 };
    i.check().unwrap();
    assert_eq!((i.input.accepted(0).ends(), i.input.accepted(1).ends()), ([-1.0, 1.0], [-97.0, 103.0]));
    assert_eq!(i.accept(&[1.0, -1.0, 1.0, -1.0], Units::Network).unwrap(), [1.0, -1.0, -97.0, 103.0]);
    for (units, values_in_units) in
        [(Units::Network, [0.0, 50.0, 0.0, 0.0]), (Units::Normalised, [0.0, 50.0, 3.0, 3.0])]
    {
        let message = i.accept(&values_in_units, units).unwrap_err().to_string();
        assert!(message.contains("value 1 is 50, the model accepts -1 to 1 (at [0, 1]); clip it"), "{message}");
    }
    let message = i.accept(&[0.0, 0.0, 0.0, 1.5], Units::Network).unwrap_err().to_string();
    assert!(message.contains("value 3 is 1.5, the model accepts -1 to 1 (at [1, 1])"), "{message}");
    // A lowering may accept less than was declared; the error then states the smaller range.
    let narrow =
        Interface { input: InputSpec { range: Interval { low: -0.5, high: 53.0 }, ..i.input.clone() }, ..i.clone() };
    let message = narrow.accept(&[0.0, -0.75, 0.0, 0.0], Units::Network).unwrap_err().to_string();
    assert!(message.contains("value 1 is -0.75, the model accepts -0.5 to 1 (at [0, 1])"), "{message}");
    let message = narrow.accept(&[0.0, 0.5, 0.0, 0.75], Units::Network).unwrap_err().to_string();
    assert!(message.contains("value 3 is 0.75, the model accepts -0.5 to 0.03"), "{message}");
    let mut values = vec![50.0, -2.0, 50.0, -200.0];
    i.clip(&mut values);
    assert_eq!(values, [1.0, -1.0, 50.0, -97.0]);
    i.input.declared = vec![Interval { low: -1.0, high: 1.0 }, Interval { low: 2.0, high: 2.5 }];
    i.input.range = Interval { low: -247.0, high: 1.0 };
    assert_eq!((i.blank(), i.check_input(&i.blank()).is_ok()), (vec![0.0, 0.0, -197.0, -197.0], true));
}

#[test]
fn ends_of_a_declared_range_are_accepted_despite_rounding() {
    let mut rng = crate::rng::SplitMix::new(5);
    for _ in 0..2000 {
        let mut draw = |size: f64| (rng.normal() * size) as f32;
        let (low, scale, shift) = (draw(100.0), draw(1e-3), draw(1e4));
        let high = low + draw(1e-3).abs();
        let mut i = interface();
        i.input.moved = Some(ChannelAffine { scale: vec![scale; 2], shift: vec![shift; 2] });
        i.input.declared = vec![Interval { low, high }];
        i.input.range = i
            .input
            .moved
            .as_ref()
            .map(|m| [low, high, low, high].map(|v| v * m.scale[0] + m.shift[0]))
            .map(|bounds| tacit_floats::range(bounds).map(|end| end as f32))
            .unwrap();
        i.accept(&[low, high, high, low], Units::Network).unwrap();
    }
}

#[test]
fn activations_equal_known_values() {
    let near = |a: FinalActivation, logits: &[f64], expected: &[f64]| {
        let outputs = a.apply(logits);
        assert!(outputs.iter().zip(expected).all(|(g, w)| (g - w).abs() < 1e-6), "{a:?}: {outputs:?}");
    };
    near(FinalActivation::Sigmoid, &[0.0, 2.0, -800.0], &[0.5, 0.880_797, 0.0]);
    near(FinalActivation::Tanh, &[0.0, -0.5], &[0.0, -0.462_117]);
    near(FinalActivation::SigmoidL1, &[0.0, 0.0, 800.0], &[0.25, 0.25, 0.5]);
    near(FinalActivation::L1, &[1.0, -3.0], &[0.25, -0.75]);
    near(FinalActivation::L2, &[3.0, -4.0], &[0.6, -0.8]);
    near(FinalActivation::Largest, &[-2.0, 4.0], &[-0.5, 1.0]);
    near(FinalActivation::L2, &[0.0, 0.0], &[0.0, 0.0]);
    // Two classes, two positions, class by class; then position by position.
    let softmax_along = |inner, logarithm| FinalActivation::SoftmaxAlong { length: 2, inner, logarithm };
    near(softmax_along(2, false), &[0.0, 2.0, 0.0, 0.0], &[0.5, 0.880_797, 0.5, 0.119_203]);
    near(softmax_along(1, false), &[0.0, 2.0, 0.0, 0.0], &[0.119_203, 0.880_797, 0.5, 0.5]);
    near(softmax_along(1, true), &[0.0, 0.0], &[-std::f64::consts::LN_2; 2]);
}

#[test]
fn several_outputs_must_fill_the_result() {
    let part = |name: &str, shape: &[usize]| OutputTensor { name: name.into(), shape: shape.to_vec() };
    let mut i = interface();
    i.outputs = vec![part("a", &[1]), part("b", &[2, 1])];
    i.check().unwrap();
    i.outputs[1].shape = vec![3];
    assert!(i.check().is_err());
    i.outputs[1].shape = vec![usize::MAX];
    assert!(i.check().is_err());
}

#[test]
fn the_client_applies_the_final_activation() {
    let mut i = interface();
    let logits = [1000.0, 1001.0, 998.0];
    assert_eq!(i.finish(&logits), logits);
    i.final_activation = Some(FinalActivation::Softmax);
    let sum: f64 = [0.0f64, 1.0, -2.0].iter().map(|v| v.exp()).sum();
    for (output, v) in i.finish(&logits).iter().zip([0.0f64, 1.0, -2.0]) {
        assert!((output - v.exp() / sum).abs() < 1e-12, "{output}");
    }
    i.final_activation = Some(FinalActivation::LogSoftmax);
    for (output, v) in i.finish(&logits).iter().zip([0.0f64, 1.0, -2.0]) {
        assert!((output - (v - sum.ln())).abs() < 1e-9, "{output}");
    }
    (i.output_mode, i.output_shape) = (OutputMode::Top1, vec![1]);
    assert_eq!(i.finish(&[7.0]), [7.0], "a class is a class");
}

#[test]
fn inconsistent_interfaces_are_refused() {
    let changes: [fn(&mut Interface); 12] = [
        |i| i.input.moved = Some(ChannelAffine { scale: vec![1.0], shift: vec![0.0] }),
        |i| i.input.moved = Some(ChannelAffine { scale: vec![1.0; 2], shift: vec![0.0, f32::NAN] }),
        |i| i.input_shape = vec![],
        |i| i.output_shape = vec![0],
        |i| i.output_shape = vec![usize::MAX, 2],
        |i| i.output_mode = OutputMode::Top1,
        |i| i.input.mean.push(0.0),
        |i| i.input.std = vec![1.0, 0.0],
        |i| i.input.pixel_scale = f32::NAN,
        |i| i.input.range = Interval { low: 1.0, high: f32::INFINITY },
        |i| i.input.declared = vec![Interval { low: 0.0, high: 1.0 }; 3],
        |i| i.input.declared = vec![Interval { low: 0.0, high: f32::NAN }],
    ];
    for change in changes {
        let mut i = interface();
        change(&mut i);
        assert!(i.check().is_err(), "{i:?}");
    }
}
