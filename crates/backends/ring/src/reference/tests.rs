use super::*;
use crate::fixtures::small_model;

#[test]
fn share_truncation_is_within_one_and_unbiased() {
    let (graph, weights) = small_model();
    let x: Vec<i64> = (0..16).map(|i| i * 5 - 40).collect();
    let mut r = Reference::new(&graph, &weights, &x).unwrap();
    let values: Vec<i64> = (-500..500).collect();
    let floor = r.truncate(&values, 24, 3);
    r.truncation = Truncation::Shares(SplitMix::new(9));
    let shares = r.truncate(&values, 24, 3);
    let mut sum = 0.0;
    for ((f, s), x) in floor.iter().zip(&shares).zip(&values) {
        let s = to_signed(*s as u64, 21);
        assert!((s - f).abs() <= 1, "{f} became {s}");
        sum += s as f64 - *x as f64 / 8.0;
    }
    // Floors of random shares lose 1 - 2^-bits on average, and half a unit is added back. With the
    // graph's own addend for the other half, the result is stochastic rounding.
    assert!((sum / 1000.0 + 0.375).abs() < 0.08, "mean error {}", sum / 1000.0);
}

#[test]
fn relu_drop_zeroes_only_small_values() {
    let (graph, weights) = small_model();
    let x: Vec<i64> = (0..16).collect();
    let mut r = Reference::new(&graph, &weights, &x).unwrap();
    r.relu_drop = 3;
    let values: Vec<i64> = (-500..500).collect();
    let exact: Vec<i64> = values.iter().map(|&x| x.max(0)).collect();
    assert_eq!(r.relu(&values, 24), exact);
    r.truncation = Truncation::Shares(SplitMix::new(9));
    let tested = r.relu(&values.repeat(50), 24);
    let mut vanished = [0; 8];
    for (value, exact_value) in tested.iter().zip(exact.repeat(50)) {
        assert!(
            *value == exact_value || ((0..8).contains(&exact_value) && *value == 0),
            "{exact_value} became {value}"
        );
        vanished[exact_value.min(7) as usize] += usize::from(*value != exact_value);
    }
    // A value v vanishes if the low bits of a share exceed it: in 7 - v of 8 cases.
    assert!([1, 4, 6].is_sorted_by(|&a, &b| vanished[a] > vanished[b]), "{vanished:?}");
    assert_eq!(vanished[7], 0);
}

#[test]
fn tap_sees_every_node() {
    let (graph, weights) = small_model();
    let x: Vec<i64> = (0..16).map(|i| i * 5 - 40).collect();
    let mut node_ids = Vec::new();
    let mut logits = Vec::new();
    let mut tap = |id: NodeId, _: &Node, v: &[i64]| {
        node_ids.push(id);
        if id == 6 {
            logits = v.to_vec();
        }
    };
    let class = run_tapped(&graph, &weights, &x, &mut tap).unwrap();
    assert_eq!(node_ids, (0..8).collect::<Vec<_>>());
    assert_eq!(class, vec![tacit_floats::first_largest(&logits).unwrap() as i64]);
}

#[test]
fn range_check_names_overflowing_node() {
    let (graph, weights) = small_model();
    assert_eq!(range_check(&graph, &weights, &[1; 16]).unwrap(), vec![]);
    let overflow = range_check(&graph, &weights, &[1 << 21; 16]).unwrap();
    assert!(overflow.iter().any(|f| f.node == 1 && f.limit == 1 << 22), "{overflow:?}");
}

#[test]
fn refuses_invalid_inputs() {
    let (graph, weights) = small_model();
    assert!(run(&graph, &weights, &[0; 15]).is_err());
    for value in [f32::NAN, f32::INFINITY, 9.0] {
        assert!(quantize_input(&graph, &[value; 16]).is_err(), "{value}");
    }
    assert_eq!(quantize_input(&graph, &[0.5; 16]).unwrap(), vec![8; 16]);
}
