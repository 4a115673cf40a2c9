use super::*;
use tacit_client::BatchPart;
use tacit_graph::{Interval, OutputTensor};

fn metadata(mode: OutputMode, outputs: &[(&str, usize)]) -> ModelMetadata {
    let total = outputs.iter().map(|o| o.1).sum::<usize>().max(1);
    let outputs: Vec<OutputTensor> =
        outputs.iter().map(|&(name, len)| OutputTensor { name: name.into(), shape: vec![len] }).collect();
    let interface = Interface {
        name: "m".into(),
        input_shape: vec![1, 2, 2],
        input: InputSpec { pixel_scale: 1.0 / 255.0, ..InputSpec::plain(Interval { low: -10.0, high: 10.0 }) },
        output_shape: vec![total],
        output_mode: mode,
        outputs: if outputs.len() > 1 { outputs } else { vec![] },
        final_activation: None,
    };
    ModelMetadata {
        interface,
        backend: "toy".into(),
        trust: Trust::TwoParty,
        prepares: true,
        labels: vec!["cat".into()],
    }
}

fn answer(values: &[f64], class: usize) -> Answer {
    Answer {
        name: tacit_client::wire::InputId(7),
        values: values.to_vec(),
        revealed: values.to_vec(),
        class,
        faint: None,
        online: tacit_client::PhaseReport::default(),
        part: BatchPart { index: 0, inputs: 1 },
        setup: None,
        request_to_answer_s: 0.0,
        prepared: None,
    }
}

fn tensor(shape: &[usize], values: Values) -> Tensor {
    Tensor { name: INPUT.into(), shape: shape.to_vec(), values }
}

#[test]
fn splits_batches_and_scales_pixels() {
    let metadata = metadata(OutputMode::Logits, &[("out", 2)]);
    let values: Vec<f32> = (0..8).map(|v| v as f32).collect();
    let two = metadata.accept(vec![tensor(&[2, 1, 2, 2], Values::F32(values))], 4).unwrap();
    assert_eq!(two.inputs, [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]);
    let pixels = metadata.accept(vec![tensor(&[1, 1, 2, 2], Values::U8(vec![0, 255, 0, 255]))], 4).unwrap();
    assert_eq!(pixels.inputs, [[0.0, 1.0, 0.0, 1.0]]);
    assert_eq!((metadata.input().shape, metadata.input().datatype), (vec![-1, 1, 2, 2], "FP32"));
}

#[test]
fn applies_input_transform_of_importer() {
    let mut metadata = metadata(OutputMode::Logits, &[("out", 2)]);
    // A scale that is exact in binary.
    metadata.interface.input.pixel_scale = 1.0 / 8.0;
    metadata.interface.input.moved = Some(tacit_graph::ChannelAffine { scale: vec![2.0], shift: vec![-1.0] });
    let shape = [1, 1, 2, 2];
    let floats = metadata.accept(vec![tensor(&shape, Values::F32(vec![0.0, 1.0, -1.0, 0.5]))], 1).unwrap();
    assert_eq!(floats.inputs, [[-1.0, 1.0, -3.0, 0.0]], "they are the network's own input");
    let pixels = metadata.accept(vec![tensor(&shape, Values::U8(vec![0, 8, 2, 0]))], 1).unwrap();
    assert_eq!(pixels.inputs, [[-1.0, 1.0, -0.5, -1.0]], "scaled first");
    // The declared range holds, in the network's own units, even if the model would accept more.
    metadata.interface.input.declared = vec![Interval { low: -1.0, high: 1.0 }];
    let refused = metadata.accept(vec![tensor(&shape, Values::F32(vec![0.0, 1.5, 0.0, 0.0]))], 1).unwrap_err();
    assert!(refused.to_string().contains("value 1 is 1.5, the model accepts -1 to 1 (at [0, 0, 1])"), "{refused}");
}

#[test]
fn takes_pictures_if_pixel_scale_is_known() {
    let with = |shape: &[usize], mean: &[f32], pixel_scale, [low, high]: [f32; 2]| {
        let mut metadata = metadata(OutputMode::Logits, &[("out", 2)]);
        metadata.interface.input_shape = shape.to_vec();
        metadata.interface.input = InputSpec {
            mean: mean.to_vec(),
            std: vec![],
            pixel_scale,
            moved: None,
            range: Interval { low, high },
            declared: vec![],
        };
        metadata
    };
    let picture = [1, 2, 2];
    for (takes_pixels, metadata) in [
        (true, with(&picture, &[], 1.0 / 255.0, [0.0, 1.0])),
        (true, with(&picture, &[128.0], 1.0, [-128.0, 127.0])),
        // The network scales pixels itself.
        (true, with(&picture, &[], 1.0, [0.0, 255.0])),
        (false, with(&picture, &[], 1.0, [-0.05, 1.05])),
        (false, with(&[2, 2, 2], &[], 1.0 / 255.0, [0.0, 1.0])),
        (false, with(&[4], &[], 1.0 / 255.0, [0.0, 1.0])),
    ] {
        assert_eq!(metadata.takes_pixels(), takes_pixels, "{:?}", metadata.interface);
        let mut shape = vec![1];
        shape.extend(&metadata.interface.input_shape);
        let result = metadata.accept(vec![tensor(&shape, Values::U8(vec![0; elements(&shape).unwrap()]))], 1);
        let why = result.err().map(|e| e.to_string());
        assert_eq!(why.as_ref().is_none_or(|why| !why.contains(metadata.no_pictures())), takes_pixels, "{why:?}");
    }
    let why = |shape: &[usize]| with(shape, &[], 1.0, [0.0, 1.0]).no_pictures();
    assert!(why(&picture).contains("does not say how pixels"));
    assert!(why(&[4]).contains("are not pictures"));
}

#[test]
fn rejects_tensors_that_do_not_fit() {
    let metadata = metadata(OutputMode::Logits, &[("out", 2)]);
    let four = || Values::F32(vec![0.0; 4]);
    let named = |name: &str| Tensor { name: name.into(), ..tensor(&[1, 1, 2, 2], four()) };
    let cases = [
        vec![],
        vec![named("input"), named("input")],
        vec![named("x")],
        vec![tensor(&[], four())],
        vec![tensor(&[1, 2, 2], four())],
        vec![tensor(&[1, 4], four())],
        vec![tensor(&[0, 1, 2, 2], Values::F32(vec![]))],
        vec![tensor(&[5, 1, 2, 2], Values::F32(vec![0.0; 20]))],
        vec![tensor(&[2, 1, 2, 2], four())],
        vec![tensor(&[usize::MAX, 1, 2, 2], four())],
        vec![tensor(&[1, 1, 2, 2], Values::F32(vec![0.0, f32::NAN, 0.0, 0.0]))],
        vec![tensor(&[1, 1, 2, 2], Values::F32(vec![0.0, 11.0, 0.0, 0.0]))],
        vec![tensor(&[1, 1, 2, 2], Values::I64(vec![0; 4]))],
    ];
    for case in cases {
        let text = format!("{case:?}");
        assert!(matches!(metadata.accept(case, 4), Err(ApiError::Bad(_))), "{text}");
    }
    let mut flat = metadata;
    flat.interface.input_shape = vec![4];
    assert!(flat.accept(vec![tensor(&[1, 4], Values::U8(vec![0; 4]))], 4).is_err(), "no picture");
}

#[test]
fn names_outputs_as_the_interface() {
    let several = metadata(OutputMode::Logits, &[("a", 1), ("b", 2)]);
    let answers = [answer(&[1.0, 2.0, 3.0], 2), answer(&[4.0, 5.0, 6.0], 2)];
    let answers: Vec<Option<&Answer>> = answers.iter().map(Some).collect();
    let outputs = several.reply(&[], &answers).unwrap();
    assert_eq!(outputs.iter().map(|(t, _)| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((&outputs[1].0.shape, &outputs[1].0.values), (&vec![2, 2], &Values::F32(vec![2.0, 3.0, 5.0, 6.0])));
    let b = Wanted { name: "b".into(), ..Wanted::default() };
    assert_eq!(several.reply(std::slice::from_ref(&b), &answers).unwrap().len(), 1);
    assert!(several.check_wanted(&[b.clone(), b]).is_err(), "twice");
    assert!(several.check_wanted(&[Wanted { name: "c".into(), ..Wanted::default() }]).is_err());
    let single = metadata(OutputMode::Logits, &[("out", 2)]);
    assert_eq!(single.outputs()[0].name, OUTPUT);
}

#[test]
fn ranks_classes() {
    let logits = metadata(OutputMode::Logits, &[("out", 3)]);
    let ranked = Wanted { name: OUTPUT.into(), classes: 2, binary: None };
    let (tensor, _) = logits.reply(&[ranked], &[Some(&answer(&[2.0, 1.0, 2.0], 0))]).unwrap().remove(0);
    assert_eq!(tensor.values, Values::Text(vec!["2.000000:0:cat".into(), "2.000000:2".into()]));
    assert_eq!(tensor.shape, [1, 2]);
    let top1 = metadata(OutputMode::Top1, &[]);
    let (tensor, _) = top1.reply(&[], &[Some(&answer(&[7.0], 7))]).unwrap().remove(0);
    assert_eq!((tensor.name.as_str(), tensor.values), (CLASS, Values::I64(vec![7])));
    assert!(top1.check_wanted(&[Wanted { name: CLASS.into(), classes: 1, binary: None }]).is_err());
}

#[test]
fn limits_body_by_batch() {
    let mut metadata = metadata(OutputMode::Logits, &[("out", 2)]);
    assert!(metadata.body_limit(2) < metadata.body_limit(4));
    metadata.interface.input_shape = vec![usize::MAX];
    assert_eq!(metadata.body_limit(64), MAX_BODY_BYTES);
}

#[test]
fn refused_row_fails_alone() {
    let metadata = metadata(OutputMode::Logits, &[("out", 2)]);
    let mut values = vec![0.0; 12];
    values[5] = 11.0;
    let rows = metadata.accept(vec![tensor(&[3, 1, 2, 2], Values::F32(values.clone()))], 4).unwrap();
    assert_eq!((rows.inputs.len(), rows.refused.keys().copied().collect::<Vec<_>>()), (2, vec![1]));
    let why = &rows.refused[&1];
    assert!(why.contains("value 1 is 11"), "{why}");
    assert!(why.contains("(at [0, 0, 1])"), "{why}");
    assert!(why.contains("--range"), "{why}");
    let answers = [answer(&[1.0, 2.0], 1), answer(&[4.0, 3.0], 0)];
    let placed = rows.in_row_order(&answers);
    let (output, _) = metadata.reply(&[], &placed).unwrap().remove(0);
    let Values::F32(output) = output.values else { panic!("{output:?}") };
    assert_eq!((&output[..2], &output[4..]), (&[1.0, 2.0][..], &[4.0, 3.0][..]));
    assert!(output[2..4].iter().all(|v| v.is_nan()));
    let ranked = Wanted { name: OUTPUT.into(), classes: 1, binary: None };
    let (output, _) = metadata.reply(&[ranked], &placed).unwrap().remove(0);
    assert_eq!(output.values, Values::Text(vec!["2.000000:1".into(), NO_CLASS.into(), "4.000000:0:cat".into()]));
    let top1 = self::metadata(OutputMode::Top1, &[]);
    assert_eq!(top1.reply(&[], &placed).unwrap().remove(0).0.values, Values::I64(vec![1, -1, 0]));
    // If no row is accepted, no inference runs.
    values.fill(11.0);
    let error = metadata.accept(vec![tensor(&[3, 1, 2, 2], Values::F32(values))], 4).unwrap_err();
    assert!(
        matches!(&error, ApiError::Bad(why) if why.starts_with("input 0 of the batch: ") && why.contains("value 0 is 11")),
        "{error}"
    );
}
