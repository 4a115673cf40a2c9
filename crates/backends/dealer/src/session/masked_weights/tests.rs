use super::*;
use crate::dealt::{Dealt, Options};
use tacit_ring::fixtures::spec;
use tacit_ring::{FixedPoint, Linear, Node, Op, RingGraph, WeightFacts};

/// One fully connected layer of 30 inputs and 20 outputs in a ring of `width` bits.
fn plan(width: u32) -> Plan<Dealt> {
    let node = |op, inputs, n| Node {
        name: "n".into(),
        op,
        inputs,
        shape: vec![n],
        fixed: FixedPoint { width, frac_bits: 4 },
    };
    let facts = WeightFacts { frac_bits: 0, magnitude_bits: 8, norm_bits: 11 };
    let dense = Op::Linear(Linear { out_features: 20, weights: facts });
    let graph = RingGraph::new(spec(vec![node(Op::Input, vec![], 30), node(dense, vec![0], 20)]));
    Plan::compile(graph.expect("a valid graph"), Options::default()).expect("a plan")
}

fn weights(first: i32) -> Weights {
    let weights = (0..600).map(|i| if i == 0 { first } else { (i * 37) % 255 - 127 }).collect();
    Weights { layers: vec![LayerWeights { node: 1, weights, bias: vec![0; 20] }] }
}

#[test]
fn masked_weights_and_masks_sum_to_weights() {
    for width in [13, 25, 32, 33, 40] {
        let (plan, weights) = (plan(width), weights(-100));
        let keys = keys(&plan, &weights, &[7; 32]);
        let mut masked = Vec::new();
        write(&plan, &weights, &keys, &mut |bytes| {
            masked.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        assert_eq!(masked.len() as u64, bytes(&plan));
        let digest = *hasher::<Dealt>().update(&masked).finalize().as_bytes();
        // Pieces of any size.
        let read = |bytes: &[u8], piece: usize| {
            let mut receiver = MaskedWeightsReceiver::new(&plan);
            bytes.chunks(piece).try_for_each(|bytes| receiver.push(bytes))?;
            receiver.finish(&digest)
        };
        let masked_weights = read(&masked, 7).unwrap();
        assert!(read(&masked, 1 << 20).is_ok());
        assert!(read(&masked[1..], 64).is_err() && read(&[&masked[..], &[0]].concat(), 64).is_err());
        let mut damaged = masked.clone();
        damaged[5] ^= 1;
        assert!(read(&damaged, 64).is_err());
        let x: Vec<u64> = (0..30u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ring_mask(width)).collect();
        let conv = plan.masked_layers().next().unwrap().conv;
        let masked = masked_weights.layer(0).apply(conv, &x).unwrap();
        let mask = apply_random(&keys[0], conv, &x, width).unwrap();
        let plain = conv2d(conv, &weights.layers[0].weights, &x, width).unwrap();
        for ((e, a), w) in masked.iter().zip(&mask).zip(&plain) {
            assert_eq!(e.wrapping_add(*a) & ring_mask(width), w & ring_mask(width), "{width} bits");
        }
    }
}

#[test]
fn random_matrix_is_independent_of_step_size() {
    let conv = |in_ch, out_ch, size, kernel, groups| ConvSpec {
        in_ch,
        out_ch,
        in_h: size,
        in_w: size,
        kernel: (kernel, kernel),
        pads: [1, 0, 1, 0],
        groups,
        ..ConvSpec::linear(1, 1)
    };
    let dense = ConvSpec::linear(3000, 50);
    for conv in [conv(6, 10, 5, 3, 1), conv(6, 10, 5, 3, 2), conv(8, 8, 4, 2, 8), conv(12, 12, 3, 1, 3), dense] {
        for width in [13, 40] {
            let x: Vec<u64> = (0..conv.in_len() as u64).map(|i| (i * 0x9e37_79b9) & ring_mask(width)).collect();
            let apply_in_steps = |at_once| apply_random_in_steps(at_once, &Seed([3; 16]), &conv, &x, width).unwrap();
            let whole = apply_in_steps(1 << 30);
            assert_eq!(whole.len(), conv.out_len());
            // Rows that begin and end within pieces of the stream.
            for at_once in [1, 100, 70_000] {
                assert!(apply_in_steps(at_once) == whole, "{conv:?}, {at_once} at once");
            }
        }
    }
}

#[test]
fn masks_differ_by_weights_ring_and_owner() {
    let mut seen = Vec::new();
    for (width, first, secret) in [(25, 1, 7), (25, 2, 7), (26, 1, 7), (25, 1, 8)] {
        seen.push(keys(&plan(width), &weights(first), &[secret; 32])[0].0);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 4, "two sets of weights under one mask reveal their difference");
}
