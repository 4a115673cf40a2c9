use proptest::prelude::*;
use tacit_graph::Interval;

use super::*;
use crate::fixtures::small_model;

#[test]
fn round_trip() {
    let (graph, weights) = small_model();
    let public = public_bytes(&graph).unwrap();
    assert_eq!(read_public(&public).unwrap(), graph);
    let private = weights_to_bytes(&weights);
    // Both layers' weights fit one byte.
    assert_eq!(private.len(), (1 + 18 + 2 * 8) + (1 + 24 + 3 * 8));
    assert_eq!(read_weights(&private, &graph).unwrap(), weights);
}

#[test]
fn weights_take_fewest_bytes() {
    let (graph, mut weights) = small_model();
    let mut spec = graph.spec().clone();
    for op in spec.nodes.iter_mut().map(|n| &mut n.op) {
        if let crate::Op::Linear(l) = op {
            (l.weights.magnitude_bits, l.weights.norm_bits) = (31, 40);
        }
    }
    let graph = RingGraph::new(spec).unwrap();
    for (largest, size) in [(-128, 1), (127, 1), (128, 2), (-32_768, 2), (32_768, 4), (i32::MAX, 4)] {
        weights.layers[1].weights[5] = largest;
        let bytes = weights_to_bytes(&weights);
        assert_eq!(bytes[35], size, "{largest}");
        assert_eq!(read_weights(&bytes, &graph).unwrap(), weights);
    }
}

#[test]
fn refuses_weights_that_do_not_fit() {
    let (graph, weights) = small_model();
    let bytes = weights_to_bytes(&weights);
    let read = |bytes: &[u8]| read_weights(bytes, &graph);
    assert!(matches!(read(&bytes[..bytes.len() - 1]), Err(RingError::Encoding { part: "private", .. })));
    assert!(matches!(read(&[&bytes[..], &[0]].concat()), Err(RingError::Encoding { .. })));
    for size in [0, 3, 8] {
        let mut changed = bytes.to_vec();
        changed[0] = size;
        assert!(read(&changed).is_err(), "{size}");
    }
    // Larger than the public facts state: rows of nine weights of 2^10.
    let mut large = weights.clone();
    large.layers[0].weights[3] = 1 << 10;
    assert!(matches!(read(&weights_to_bytes(&large)), Err(RingError::Node { id: 1, .. })));
    large.layers.truncate(1);
    assert!(graph.check_weights(&large).is_err());
    large = weights;
    large.layers.push(LayerWeights { node: 7, weights: vec![], bias: vec![] });
    assert!(matches!(graph.check_weights(&large), Err(RingError::WeightCount { found: 3, needed: 2 })));
}

#[test]
fn interface_must_match_graph() {
    let (graph, _) = small_model();
    let changes: [fn(&mut RingSpec); 5] = [
        |s| s.interface.input_shape = vec![16],
        |s| s.interface.output_mode = tacit_graph::OutputMode::Logits,
        |s| s.output = 6,
        |s| s.output_multiplier = f64::NAN,
        |s| s.interface.input.range = Interval { low: 1.0, high: -1.0 },
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut spec = graph.spec().clone();
        change(&mut spec);
        let bytes = postcard::to_stdvec(&spec).unwrap();
        assert!(read_public(&bytes).is_err(), "change {i}");
    }
}

proptest! {
    #[test]
    fn truncated_public_parts_are_errors(cut in any::<prop::sample::Index>()) {
        let public = public_bytes(&small_model().0).unwrap();
        prop_assert!(read_public(&public[..cut.index(public.len())]).is_err());
    }

    #[test]
    fn arbitrary_public_parts_do_not_panic(noise in prop::collection::vec(any::<u8>(), 0..300), position in any::<prop::sample::Index>()) {
        // Any bytes from a server must give a value or an error.
        let _ = read_public(&noise);
        let mut public = public_bytes(&small_model().0).unwrap();
        let position = position.index(public.len());
        public[position..].iter_mut().zip(&noise).for_each(|(b, n)| *b ^= n);
        if let Ok(graph) = read_public(&public) {
            prop_assert_eq!(read_public(&public_bytes(&graph).unwrap()).unwrap(), graph);
        }
    }

    #[test]
    fn arbitrary_private_parts_do_not_panic(noise in prop::collection::vec(any::<u8>(), 0..100)) {
        let (graph, _) = small_model();
        if let Ok(weights) = read_weights(&noise, &graph) {
            prop_assert_eq!(weights.layers.len(), 2);
        }
    }
}
