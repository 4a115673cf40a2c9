use proptest::prelude::*;

use super::*;
use crate::geometry::{ConvGeometry, Slice, Window};
use crate::{Calibration, FloatGraph, InputSpec, Interface, Interval, OutputMode, float::FloatOp};

/// A model with every operation that a model may have.
fn model() -> Model {
    let geometry = ConvGeometry { kernel: [3, 3], pads: [1; 4], groups: 2, ..ConvGeometry::pointwise(2) };
    let mut graph = FloatGraph::new("x", vec![2, 4, 4]).unwrap();
    let mut add = |op, inputs: &[usize], shape: &[usize]| graph.push("n", op, inputs, shape).unwrap();
    let weights = (0..18).map(|i| i as f32 - 9.5).collect();
    let c = add(FloatOp::Conv { geometry, weights, bias: vec![0.5, -0.5] }, &[0], &[]);
    let a = add(FloatOp::Affine { scale: vec![0.5, 0.5], shift: vec![1.0, 1.0] }, &[c], &[]);
    let p = add(FloatOp::PositionScale((0..16).map(|i| i as f32 / 16.0).collect()), &[a], &[]);
    let r = add(FloatOp::Relu, &[p], &[]);
    let (s, d) = (add(FloatOp::Add, &[r, c], &[]), add(FloatOp::Sub, &[r, c], &[]));
    let j = add(FloatOp::Concat, &[s, d], &[]);
    let slice = Slice { start: vec![0, 0, 0], step: vec![2, 1, 1], len: vec![2, 3, 3] };
    let cut = add(FloatOp::Slice(slice), &[j], &[]);
    let padded = add(FloatOp::Pad { before: vec![0, 1, 0], after: vec![0, 0, 1] }, &[cut], &[]);
    let window = Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] };
    let m = add(FloatOp::MaxPool(window.clone()), &[padded], &[]);
    let sum = add(FloatOp::SumPool(Window { stride: [1, 1], ..window }), &[m], &[]);
    let flat = add(FloatOp::Reshape, &[sum], &[2]);
    let dense = FloatOp::Dense { weights: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], bias: vec![0.0, 1.0, 2.0] };
    graph.output = graph.push("n", dense, &[flat], &[]).unwrap();
    let samples = vec![vec![0.25; 32], vec![-0.5; 32]];
    let outputs = samples.iter().map(|s| crate::float::run::run(&graph, s).unwrap()).collect();
    let nodes = graph.nodes.len();
    let affine = crate::ChannelAffine { scale: vec![0.5, 2.0], shift: vec![0.0, -1.0] };
    Model {
        model_id: [3; 16],
        interface: Interface {
            name: "tiny".into(),
            input_shape: vec![2, 4, 4],
            input: InputSpec { moved: Some(affine), ..InputSpec::plain(Interval { low: -1.0, high: 1.0 }) },
            output_shape: vec![3],
            output_mode: OutputMode::Logits,
            outputs: vec![],
            final_activation: Some(crate::FinalActivation::Softmax),
        },
        graph,
        output_multiplier: 0.25,
        calibration: Calibration {
            max_abs: vec![2.0; nodes],
            mean_square: vec![1.0; nodes],
            extreme: vec![1.0; nodes],
            samples,
            wanted: outputs,
            text: "2 calibration samples".into(),
            guessed: false,
        },
        notes: vec!["nothing: 1".into()],
    }
}

fn bytes() -> Vec<u8> {
    write(&model()).unwrap()
}

/// The file with one section replaced, with matching digests.
fn with_section(index: usize, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let file = bytes();
    let mut unread = &file[HEADER_BYTES..];
    let mut sections: Vec<Vec<u8>> = Vec::new();
    for i in 0..3 {
        let length = u64::from_le_bytes(array(&file[12 + 40 * i..20 + 40 * i])) as usize;
        sections.push(unread[..length].to_vec());
        unread = &unread[length..];
    }
    change(&mut sections[index]);
    let parts: Vec<_> = sections.iter().map(|s| (s.len() as u64, blake3::hash(s))).collect();
    let mut out = header(&[parts[0], parts[1], parts[2]]).to_vec();
    out.extend(sections.concat());
    out
}

#[test]
fn a_model_survives_its_file() {
    let m = model();
    assert_eq!(read(&bytes()).unwrap(), m);
    let header_alone = digest_of_header(&mut &bytes()[..HEADER_BYTES]).unwrap();
    assert_eq!((header_alone, digest_of_header(&mut &bytes()[..]).unwrap()), (m.digest(), m.digest()));
}

#[test]
fn the_digest_covers_everything() {
    let changes: [fn(&mut Model); 6] = [
        |m| m.model_id[0] = 0,
        |m| m.notes.clear(),
        |m| m.output_multiplier = 0.5,
        |m| m.calibration.guessed = true,
        |m| m.calibration.wanted[1][0] = 1.0,
        |m| {
            let FloatOp::Conv { bias, .. } = &mut m.graph.nodes[1].op else { panic!("a convolution") };
            bias[1] = -0.0;
        },
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut changed = model();
        change(&mut changed);
        assert_ne!(changed.digest(), model().digest(), "change {i}");
    }
}

#[test]
fn another_version_is_named() {
    let mut b = bytes();
    b[8] = 1;
    for error in [read(&b).unwrap_err(), digest_of_header(&mut &b[..]).unwrap_err(), read(&b[..92]).unwrap_err()] {
        assert!(matches!(error, GraphError::Version { found: 1, supported: 4 }));
        assert!(error.to_string().contains("import the ONNX file again"), "{error}");
    }
}

#[test]
fn faults_of_a_file_are_named() {
    let b = bytes();
    let read_error = |change: fn(&mut Vec<u8>)| {
        let mut changed = bytes();
        change(&mut changed);
        read(&changed).unwrap_err().to_string()
    };
    assert!(read(b"PK\x03\x04 zip").unwrap_err().to_string().contains("not a tacit model file"));
    assert!(digest_of_header(&mut &b[..50]).unwrap_err().to_string().contains("truncated"));
    assert!(read_error(|b| b.truncate(b.len() - 1)).contains("header states"));
    assert!(read_error(|b| *b.last_mut().unwrap() ^= 1).contains("calibration"));
    assert!(read_error(|b| b[12..20].fill(0xff)).contains("limit"));
}

#[test]
fn sections_that_do_not_fit_each_other_are_refused() {
    for (index, name) in [(0, "structure"), (1, "weights"), (2, "calibration")] {
        let longer = with_section(index, |s| s.extend([0; 4]));
        assert!(read(&longer).unwrap_err().to_string().contains(name));
        let shorter = with_section(index, |s| s.truncate(s.len() - 4));
        assert!(read(&shorter).is_err());
    }
    assert_eq!(with_section(0, |_| ()), bytes());
}

#[test]
fn an_inconsistent_model_is_not_written() {
    let mut m = model();
    let FloatOp::Dense { weights, .. } = &mut m.graph.nodes[13].op else { panic!("the last layer") };
    weights.pop();
    assert!(write(&m).is_err());
}

proptest! {
    #[test]
    fn truncations_are_errors(cut in any::<prop::sample::Index>()) {
        let b = bytes();
        prop_assert!(read(&b[..cut.index(b.len())]).is_err());
    }

    #[test]
    fn flips_are_errors(position in any::<prop::sample::Index>(), bit in 0u32..8) {
        let mut b = bytes();
        let position = position.index(b.len());
        b[position] ^= 1 << bit;
        prop_assert!(read(&b).is_err());
    }

    #[test]
    fn any_structure_gives_a_result_or_an_error(noise in proptest::collection::vec(any::<u8>(), 0..30), position in any::<prop::sample::Index>()) {
        // The digests match the change.
        let changed = with_section(0, |s| {
            let position = position.index(s.len());
            s[position..].iter_mut().zip(&noise).for_each(|(b, n)| *b ^= n);
        });
        if let Ok(read_back) = read(&changed) {
            prop_assert_eq!(read(&write(&read_back).unwrap()).unwrap(), read_back);
        }
    }
}
