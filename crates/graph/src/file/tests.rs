use proptest::prelude::*;

use super::*;
use crate::fixed::FixedPoint;
use crate::model::{InputSpec, LayerWeights, Node, OutputMode};
use crate::op::{Linear, Op, WeightFacts};

fn model() -> (ModelSpec, Weights, PublicSummary) {
    let fixed = FixedPoint { width: 30, frac_bits: 8 };
    let facts = WeightFacts { frac_bits: 8, magnitude_bits: 8, norm_bits: 10 };
    let spec = ModelSpec {
        name: "tiny".into(),
        model_id: [3; 16],
        nodes: vec![
            Node { name: "x".into(), op: Op::Input, inputs: vec![], shape: vec![4], fixed },
            Node {
                name: "fc".into(),
                op: Op::Linear(Linear { out_features: 2, weights: facts }),
                inputs: vec![0],
                shape: vec![2],
                fixed: FixedPoint { width: 30, frac_bits: 16 },
            },
        ],
        output: 1,
        output_mode: OutputMode::Logits,
        output_multiplier: 0.25,
        softmax_by_client: true,
        input: InputSpec { mean: vec![], std: vec![], pixel_scale: 1.0, range: [-1.0, 1.0] },
    };
    let weights = Weights {
        layers: vec![LayerWeights { node: 1, weights: vec![1, -2, 3, -4, 5, -6, 7, -8], bias: vec![100, -100] }],
    };
    let summary = PublicSummary { calibration: "none".into(), agreement: 1.0, comparisons: 0, macs: 8 };
    (spec, weights, summary)
}

fn bytes() -> Vec<u8> {
    let (spec, weights, summary) = model();
    write(&spec, &weights, &summary).unwrap()
}

#[test]
fn round_trip() {
    let (spec, weights, summary) = model();
    let file = read(&bytes()).unwrap();
    assert_eq!(file.graph.spec(), &spec);
    assert_eq!(file.weights, weights);
    let public = file.public_bytes().unwrap();
    let seen = read_public(&public).unwrap();
    assert_eq!((seen.digest, seen.summary), (file.digest, summary));
    assert!(public.len() < bytes().len());
}

#[test]
fn another_version_is_named() {
    let mut b = bytes();
    b[8] = 2;
    let error = read(&b).unwrap_err();
    assert!(matches!(error, GraphError::Version { found: 2, supported: 1 }));
    assert!(error.to_string().contains('2'), "{error}");
}

#[test]
fn what_is_wrong_is_said() {
    let b = bytes();
    assert!(read(b"PK\x03\x04 zip").unwrap_err().to_string().contains("not a tacit model file"));
    assert!(read(&b[..b.len() - 1]).unwrap_err().to_string().contains("header states"));
    let mut damaged = b.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(read(&damaged).unwrap_err().to_string().contains("private"));
    let mut long = b.clone();
    long[12..20].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(read(&long).unwrap_err().to_string().contains("limit"));
}

#[test]
fn weights_of_another_model_are_refused() {
    let (spec, mut weights, summary) = model();
    weights.layers[0].weights.pop();
    assert!(write(&spec, &weights, &summary).is_err());
}

proptest! {
    #[test]
    fn truncations_are_errors(cut in 0usize..400) {
        let b = bytes();
        prop_assume!(cut < b.len());
        prop_assert!(read(&b[..cut]).is_err());
    }

    #[test]
    fn flips_are_errors(at in 0usize..400, bit in 0u32..8) {
        let mut b = bytes();
        prop_assume!(at < b.len());
        b[at] ^= 1 << bit;
        prop_assert!(read(&b).is_err());
    }

    #[test]
    fn any_public_section_ends_in_a_result(noise in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..300) {
        // With no digest in the way: whatever a server sends must end in a value or an error.
        let _ = read_public(&noise);
        let (spec, _, summary) = model();
        let mut public = public_bytes(&spec, &summary).unwrap();
        let at = at % public.len();
        for (b, n) in public[at..].iter_mut().zip(&noise) {
            *b ^= n;
        }
        let _ = read_public(&public);
    }
}
