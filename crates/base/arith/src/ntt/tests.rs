//! Tests of every kernel against the schoolbook product, and bit for bit against the portable
//! kernel.

use super::*;
use proptest::prelude::*;

const PRIMES: [u64; 3] = [40961, 1_073_692_673, 1_125_899_906_826_241];

/// The largest prime below `2^bits` that is 1 mod 2^17.
fn largest(bits: u32) -> Modulus {
    (1..).find_map(|k| Modulus::new((1u64 << bits) + 1 - (k << 17)).ok()).unwrap()
}

/// The transform on every kernel.
fn tables(n: usize, m: Modulus) -> impl Iterator<Item = NttTable> {
    Cpu::available().into_iter().map(move |cpu| NttTable::with_cpu(cpu, n, m).unwrap())
}

/// SplitMix64.
fn words(mut seed: u64, n: usize, p: u64) -> Vec<u64> {
    (0..n)
        .map(|_| {
            seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (z ^ (z >> 27)) % p
        })
        .collect()
}

fn schoolbook(a: &[u64], b: &[u64], m: &Modulus) -> Vec<u64> {
    let n = a.len();
    let mut out = vec![0; n];
    for (i, &x) in a.iter().enumerate() {
        for (j, &y) in b.iter().enumerate() {
            let t = m.mul(x, y);
            let k = (i + j) % n;
            out[k] = if i + j < n { m.add(out[k], t) } else { m.sub(out[k], t) };
        }
    }
    out
}

#[test]
fn products_match_schoolbook() {
    for p in PRIMES {
        for n in [64, 128, 256, 512, 1024] {
            let m = Modulus::new(p).unwrap();
            let (a, b) = (words(1, n, p), words(2, n, p));
            let expected = schoolbook(&a, &b, &m);
            for cpu in Cpu::available() {
                let ntt = NttTable::with_cpu(cpu, n, m).unwrap();
                let (mut x, mut y) = (a.clone(), b.clone());
                ntt.forward(&mut x);
                ntt.forward(&mut y);
                ntt.mul_assign(&mut x, &y);
                ntt.inverse(&mut x);
                assert_eq!(x, expected, "p {p} n {n} {cpu:?}");
            }
        }
    }
}

const SIZES: [usize; 9] = [64, 128, 256, 2048, 4096, 8192, 16_384, 32_768, 65_536];

#[test]
fn kernels_agree_bit_for_bit() {
    // Moduli whose values grow unreduced through a whole transform, through a whole small transform
    // only, through two stages, through two stages forward only (just above 2^49), and not at all.
    let prime_above = (1..).find_map(|k| Modulus::new((1u64 << 49) + 1 + (k << 17)).ok()).unwrap();
    let moduli = [largest(36), largest(46), largest(47), largest(48), largest(49), prime_above, largest(50)];
    for (n, m) in SIZES.into_iter().flat_map(|n| moduli.map(|m| (n, m))) {
        let p = m.value();
        let twin = NttTable::with_cpu(Cpu::portable(), n, m).unwrap();
        for ntt in tables(n, m) {
            for a in [words(3, n, p), vec![p - 1; n]] {
                let (mut x, mut y) = (a.clone(), a.clone());
                twin.forward(&mut x);
                ntt.forward(&mut y);
                assert_eq!(x, y);
                ntt.inverse(&mut y);
                assert_eq!(y, a);
                twin.inverse(&mut x);
                assert_eq!(x, a);
            }
        }
    }
}

/// The order of the NTT domain is part of the wire format (seeded uniform values): X evaluates to
/// fixed powers of the root.
#[test]
fn ntt_domain_order_is_pinned() {
    let m = Modulus::new(40961).unwrap();
    let root = m.primitive_root(8192).unwrap();
    assert_eq!(root, m.pow_vartime(3, 5));
    for ntt in tables(4096, m) {
        let mut x = vec![0; 4096];
        x[1] = 1;
        ntt.forward(&mut x);
        for (i, &v) in x.iter().enumerate().take(512) {
            let natural = (i & !63) | ((i & 7) << 3) | ((i >> 3) & 7);
            let exponent = 2 * (natural.reverse_bits() >> 52) as u64 + 1;
            assert_eq!(v, m.pow_vartime(root, exponent), "index {i}");
        }
    }
}

#[test]
fn accumulates_up_to_the_stated_number_of_products() {
    let p = PRIMES[2];
    let m = Modulus::new(p).unwrap();
    let full = vec![p - 1; 64];
    for ntt in tables(64, m) {
        let (mut low, mut high) = (vec![0; 64], vec![0; 64]);
        let pairs = vec![(full.as_slice(), full.as_slice()); MAX_ACCUMULATED];
        ntt.mac(&mut low, &mut high, &pairs);
        ntt.reduce_acc(&mut low, &mut high);
        assert_eq!(low, vec![MAX_ACCUMULATED as u64; 64]);
        assert_eq!(high, vec![0; 64]);
    }
}

#[test]
fn sums_of_any_words_are_reduced() {
    for p in PRIMES {
        let m = Modulus::new(p).unwrap();
        let ends = [0, 1, u64::from(u32::MAX), (1 << 52) - 1, 1 << 63, u64::MAX];
        let mut low: Vec<u64> = words(1, 64, p).iter().map(|w| w.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let mut high: Vec<u64> = low.iter().map(|w| w.rotate_left(17) >> 1).collect();
        low[..6].copy_from_slice(&ends);
        high[3..9].copy_from_slice(&ends.map(|end| end >> 1));
        let expected: Vec<u64> = low
            .iter()
            .zip(&high)
            .map(|(&l, &h)| ((u128::from(l) + (u128::from(h) << 52)) % u128::from(p)) as u64)
            .collect();
        for ntt in tables(64, m) {
            let (mut low, mut high) = (low.clone(), high.clone());
            ntt.reduce_acc(&mut low, &mut high);
            assert_eq!((&low, high), (&expected, vec![0; 64]), "{} mod {p}", ntt.kernel_name());
        }
    }
}

#[test]
fn rejects_unsupported_degrees() {
    let m = Modulus::new(40961).unwrap();
    assert!(matches!(NttTable::new(96, m), Err(LatticeError::Degree { degree: 96 })));
    assert!(matches!(NttTable::new(8192, m), Err(LatticeError::NoRoot { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn multiply_accumulate_matches_modular_sum(seed in any::<u64>(), count in 1usize..9, i in 0usize..3) {
        let (p, n) = (PRIMES[i], 128);
        let m = Modulus::new(p).unwrap();
        let polys: Vec<_> = (0..2 * count as u64).map(|k| words(seed ^ k, n, p)).collect();
        let pairs: Vec<_> = polys.chunks(2).map(|c| (c[0].as_slice(), c[1].as_slice())).collect();
        let expected: Vec<u64> = (0..n).map(|j| pairs.iter().fold(0, |s, (a, b)| m.add(s, m.mul(a[j], b[j])))).collect();
        for ntt in tables(n, m) {
            let (mut low, mut high) = (vec![0; n], vec![0; n]);
            ntt.mac(&mut low, &mut high, &pairs);
            ntt.reduce_acc(&mut low, &mut high);
            prop_assert_eq!(&low, &expected);
        }
    }
}

#[test]
fn columns_are_transformed_as_the_whole_polynomial() {
    let moduli = [Modulus::new(40_961).unwrap(), largest(36), largest(46), largest(48), largest(49), largest(50)];
    for (n, m) in [64, 128, 4096].into_iter().flat_map(|n| moduli.map(|m| (n, m))) {
        let p = m.value();
        let twin = NttTable::with_cpu(Cpu::portable(), n, m).unwrap();
        for (width, rows) in [8, 16, 32, 64].into_iter().flat_map(|w| (0..=12).map(move |log| (w, 1 << log))) {
            if width * rows > n {
                continue;
            }
            for columns in [words(8, width * rows, p), vec![p - 1; width * rows]] {
                let mut polynomial = vec![0; n];
                let target = polynomial.chunks_exact_mut(n / rows).zip(columns.chunks_exact(width));
                target.for_each(|(target, row)| target[..width].copy_from_slice(row));
                twin.forward(&mut polynomial);
                for cpu in Cpu::available() {
                    let ntt = NttTable::with_cpu(cpu, n, m).unwrap();
                    let mut out = vec![1; n];
                    ntt.forward_columns(&mut columns.clone(), width, &mut out);
                    assert!(out == polynomial, "p {p} n {n} width {width} rows {rows} {cpu:?}");
                }
            }
        }
    }
}

#[test]
fn matrix_products_equal_the_sum_of_products() {
    let (wide, narrow) = (Modulus::new(PRIMES[2]).unwrap(), Modulus::new(PRIMES[0]).unwrap());
    let sixteen = |words: Vec<u64>| words.into_iter().map(|w| w as u16).collect::<Vec<u16>>();
    for (len, count) in [(64, 1), (64, 3), (192, 2)] {
        for (height, width) in (1..8).flat_map(|o| (1..5).map(move |t| (o, t))) {
            let factors = |m: &Modulus, seed: u64, n: usize| words(seed, n * count * len, m.value());
            let (a, b) = (factors(&wide, 1, height), factors(&wide, 2, width));
            let (x, y) = (sixteen(factors(&narrow, 3, height)), sixteen(factors(&narrow, 4, width)));
            let (a, b): (Vec<&[u64]>, Vec<&[u64]>) = (a.chunks(len).collect(), b.chunks(len).collect());
            let (x, y): (Vec<&[u16]>, Vec<&[u16]>) = (x.chunks(len).collect(), y.chunks(len).collect());
            let [mut low, mut high, mut sums] = [5, 6, 7].map(|v| vec![v; height * width * len]);
            let range = |o: usize, t: usize| (o * width + t) * len..(o * width + t + 1) * len;
            for (o, t, k) in (0..height).flat_map(|o| (0..width).flat_map(move |t| (0..count).map(move |k| (o, t, k))))
            {
                let (i, j) = (o * count + k, t * count + k);
                portable::mac(&mut low[range(o, t)], &mut high[range(o, t)], &[(a[i], b[j])]);
                let products = x[i].iter().zip(y[j]).map(|(&x, &y)| u64::from(x) * u64::from(y));
                sums[range(o, t)].iter_mut().zip(products).for_each(|(s, p): (&mut u64, u64)| *s += p);
            }
            for cpu in Cpu::available() {
                let [wide, narrow] = [wide, narrow].map(|m| NttTable::with_cpu(cpu, 4096, m).unwrap());
                let [mut l, mut h, mut s] = [5, 6, 7].map(|v| vec![v; height * width * len]);
                wide.mac_matrix(&mut l, &mut h, &a, &b, count);
                narrow.mac_matrix_narrow(&mut s, &x, &y, count);
                assert!(l == low && h == high && s == sums, "{height} x {width} of {count} products, {cpu:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn runs_equal_their_values_written_out(seed in any::<u64>(), count in 1usize..9, log_runs in 0u32..5, i in 0usize..3) {
        let (p, n, runs) = (PRIMES[i], 1024, 1 << log_runs);
        let m = Modulus::new(p).unwrap();
        let polys: Vec<_> = (0..count as u64).map(|k| words(seed ^ k, n, p)).collect();
        let short: Vec<_> = (0..count as u64).map(|k| words(seed ^ !k, runs, p)).collect();
        let long: Vec<Vec<u64>> =
            short.iter().map(|v| v.iter().flat_map(|&v| std::iter::repeat_n(v, n / runs)).collect()).collect();
        fn zip<'a>(a: &'a [Vec<u64>], b: &'a [Vec<u64>]) -> Vec<(&'a [u64], &'a [u64])> {
            a.iter().map(Vec::as_slice).zip(b.iter().map(Vec::as_slice)).collect()
        }
        for ntt in tables(n, m) {
            let mut sums = [(vec![1; n], vec![2; n]), (vec![1; n], vec![2; n])];
            ntt.mac(&mut sums[0].0, &mut sums[0].1, &zip(&polys, &long));
            ntt.mac_runs(&mut sums[1].0, &mut sums[1].1, &zip(&polys, &short));
            prop_assert!(sums[0] == sums[1]);
        }
    }
}

/// Two automorphisms also compose to the one of their product.
#[test]
fn automorphisms_commute_with_the_transform() {
    let m = Modulus::new(PRIMES[2]).unwrap();
    for n in [64, 128, 2048] {
        let ntt = NttTable::new(n, m).unwrap();
        let a = words(5, n, m.value());
        let mut values = a.clone();
        ntt.forward(&mut values);
        let order = 2 * n as u64;
        for g in [1, 3, 5, 25, order / 2 + 1, order - 1, order - 5] {
            let galois = Galois::new(n, g).unwrap();
            assert_eq!((galois.degree(), galois.element()), (n, g));
            let [mut coefficients, mut permuted, mut twice] = [(); 3].map(|()| vec![0; n]);
            galois.apply_coefficients(&m, &a, &mut coefficients);
            ntt.forward(&mut coefficients);
            galois.apply(&values, &mut permuted);
            assert_eq!(coefficients, permuted, "degree {n}, element {g}");
            galois.apply(&permuted, &mut twice);
            Galois::new(n, g * g % order).unwrap().apply(&values, &mut permuted);
            assert_eq!(twice, permuted);
        }
    }
}

#[test]
fn automorphisms_of_signed_coefficients_are_those_of_residues() {
    let m = Modulus::new(PRIMES[0]).unwrap();
    let galois = Galois::new(64, 5).unwrap();
    let small: Vec<i64> = (0..64).map(|i| i % 5 - 2).collect();
    let residues: Vec<u64> = small.iter().map(|&v| m.reduce_i64(v)).collect();
    let (mut signed, mut plain) = (vec![0; 64], vec![0; 64]);
    galois.apply_signed(&small, &mut signed);
    galois.apply_coefficients(&m, &residues, &mut plain);
    assert_eq!(signed.iter().map(|&v| m.reduce_i64(v)).collect::<Vec<_>>(), plain);
}

#[test]
fn rejects_even_and_large_galois_elements() {
    assert!(matches!(Galois::new(96, 5), Err(LatticeError::Degree { degree: 96 })));
    for element in [0, 2, 128, 129] {
        assert!(matches!(Galois::new(64, element), Err(LatticeError::Galois { order: 128, .. })));
    }
}
