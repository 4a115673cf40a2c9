//! Tests of every build of the kernels against a direct loop, on random shapes.

use super::conv::conv2d_on;
use super::*;
use crate::cpu::Cpu;
use crate::prg::{Prg, Seed};
use proptest::prelude::*;

fn naive(s: &ConvSpec, weights: &[i32], input: &[u64]) -> Vec<u64> {
    let mut out = vec![];
    for o in 0..s.out_ch {
        let first = o / s.group_out() * s.group_in();
        for y in 0..s.out_h() {
            for x in 0..s.out_w() {
                let mut sum = 0u64;
                for c in 0..s.group_in() {
                    for ky in 0..s.kernel.0 {
                        for kx in 0..s.kernel.1 {
                            let row = (y * s.stride.0 + ky * s.dilation.0).wrapping_sub(s.pads[0]);
                            let column = (x * s.stride.1 + kx * s.dilation.1).wrapping_sub(s.pads[1]);
                            if row < s.in_h && column < s.in_w {
                                let w = weights[((o * s.group_in() + c) * s.kernel.0 + ky) * s.kernel.1 + kx];
                                let v = input[((first + c) * s.in_h + row) * s.in_w + column];
                                sum = sum.wrapping_add(v.wrapping_mul(i64::from(w) as u64));
                            }
                        }
                    }
                }
                out.push(sum);
            }
        }
    }
    out
}

fn check(spec: &ConvSpec) {
    let mut prg = Prg::from_seed(Seed([1; 16]));
    let weights: Vec<i32> = (0..spec.weight_len()).map(|_| prg.next_u64() as i32).collect();
    let mut input = vec![0; spec.in_len()];
    prg.fill_u64(&mut input);
    let expected = naive(spec, &weights, &input);
    for cpu in Cpu::available() {
        for bits in [1, 31, 32, 33, 64] {
            let low = |words: &[u64]| words.iter().map(|w| w & (u64::MAX >> (64 - bits))).collect::<Vec<_>>();
            let actual = conv2d_on(cpu, spec, &weights, &input, bits).unwrap();
            assert_eq!(low(&actual), low(&expected), "{spec:?} {cpu:?} {bits}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn matches_the_direct_loop(
        (group_in, group_out, groups) in (1usize..4, 1usize..7, 1usize..4),
        (in_h, in_w) in (1usize..14, 1usize..14),
        kernel in (1usize..4, 1usize..4),
        stride in (1usize..4, 1usize..4),
        dilation in (1usize..3, 1usize..3),
        pads in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
    ) {
        let spec = ConvSpec { in_ch: group_in * groups, out_ch: group_out * groups, in_h, in_w, kernel, stride, dilation, pads, groups };
        if spec.check().is_ok() {
            check(&spec);
        }
    }
}

#[test]
fn sums_with_small_factors() {
    let mut prg = Prg::from_seed(Seed([2; 16]));
    for len in [0, 1, 7, 64, 100, 1000] {
        let [mut sums, mut factors, mut values] = [(); 3].map(|()| vec![0u64; len]);
        [&mut sums, &mut factors, &mut values].into_iter().for_each(|words| prg.fill_u64(words));
        let factors: Vec<i8> = factors.iter().map(|f| *f as i8).collect();
        let expected_sum = |i: usize| sums[i].wrapping_add((i64::from(factors[i]) as u64).wrapping_mul(values[i]));
        let expected: Vec<u64> = (0..len).map(expected_sum).collect();
        let narrow = |words: &[u64]| words.iter().map(|w| *w as u32).collect::<Vec<_>>();
        for cpu in Cpu::available() {
            let (mut wide, mut short) = (sums.clone(), narrow(&sums));
            Word::accumulate(cpu, &mut wide, &factors, &values);
            Word::accumulate(cpu, &mut short, &factors, &narrow(&values));
            assert!(wide == expected && short == narrow(&expected), "{len} of {cpu:?}");
        }
    }
}

#[test]
fn fully_connected() {
    check(&ConvSpec::linear(301, 17));
}

#[test]
fn rejects_impossible_shapes() {
    let good = ConvSpec { in_h: 4, in_w: 4, kernel: (3, 3), ..ConvSpec::linear(2, 2) };
    assert!(good.check().is_ok());
    for bad in [
        ConvSpec { kernel: (5, 3), ..good },
        ConvSpec { stride: (0, 1), ..good },
        ConvSpec { groups: 3, ..good },
        ConvSpec { in_ch: 1 << 17, ..good },
        ConvSpec { in_ch: 1 << 16, in_h: 1 << 16, ..good },
        ConvSpec { pads: [usize::MAX; 4], ..good },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
        assert!(conv2d(&bad, &[], &[], 64).is_err());
    }
    assert!(conv2d(&good, &[0; 3], &[0; 32], 64).is_err());
}
