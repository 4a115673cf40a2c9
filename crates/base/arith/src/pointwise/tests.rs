//! Compares every kernel with arithmetic on wide integers, also at lengths that fill no vector.

use super::*;
use proptest::prelude::*;

/// Primes of 3, 16, 33, 42 and 50 bits.
const PRIMES: [u64; 5] = [7, 40_961, 4_295_294_977, 4_398_052_147_201, 1_125_899_906_826_241];

fn ops(p: u64) -> impl Iterator<Item = Pointwise> {
    let modulus = Modulus::new(p).unwrap();
    Cpu::available().into_iter().map(move |cpu| Pointwise::with_cpu(cpu, modulus))
}

/// Words modulo p from a seed, including the extremes.
fn words(seed: u64, n: usize, p: u64) -> Vec<u64> {
    let mut prg = crate::prg::Prg::from_seed(crate::prg::Seed(u128::from(seed).to_le_bytes()));
    let mut out = vec![0; n];
    prg.fill_u64(&mut out);
    for (i, v) in out.iter_mut().enumerate() {
        *v = match (*v >> 59, i % 2) {
            (0, _) => p - 1,
            (1, 0) => 0,
            _ => *v % p,
        };
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn elementwise(seed: u64, n in 0usize..150, i in 0usize..PRIMES.len()) {
        let p = PRIMES[i];
        let wide = |v: u128| (v % u128::from(p)) as u64;
        let (x, y, factor) = (words(seed, n, p), words(seed ^ 1, n, p), words(seed ^ 2, 1, p)[0]);
        let expected = |f: &dyn Fn(u128, u128) -> u128| -> Vec<u64> {
            x.iter().zip(&y).map(|(&a, &b)| wide(f(u128::from(a), u128::from(b)))).collect()
        };
        let (q, w) = (u128::from(p), u128::from(factor));
        for op in ops(p) {
            let result = |f: &dyn Fn(&mut [u64])| { let mut out = x.clone(); f(&mut out); out };
            let shoup = op.modulus().shoup(factor);
            prop_assert_eq!(result(&|o| op.add(o, &y)), expected(&|a, b| a + b));
            prop_assert_eq!(result(&|o| op.sub(o, &y)), expected(&|a, b| a + q - b));
            prop_assert_eq!(result(&|o| op.neg(o)), expected(&|a, _| q - a));
            prop_assert_eq!(result(&|o| op.mul(o, &y)), expected(&|a, b| a * b));
            prop_assert_eq!(result(&|o| op.scale(o, shoup)), expected(&|a, _| a * w));
            prop_assert_eq!(result(&|o| op.add_scaled(o, &y, shoup)), expected(&|a, b| a + b * w));
            prop_assert_eq!(result(&|o| op.sub_scale(o, &y, shoup)), expected(&|a, b| (a + q - b) * w));
        }
    }

    #[test]
    fn any_word_is_reduced(mut x in prop::collection::vec(any::<u64>(), 0..90), i in 0usize..PRIMES.len()) {
        x.extend([0, u64::MAX, PRIMES[i], PRIMES[i] - 1, u64::MAX / PRIMES[i] * PRIMES[i]]);
        let expected: Vec<u64> = x.iter().map(|v| v % PRIMES[i]).collect();
        for op in ops(PRIMES[i]) {
            let mut out = x.clone();
            op.reduce(&mut out);
            prop_assert_eq!(&out, &expected);
        }
    }

    #[test]
    fn any_signed_word_is_reduced(mut x in prop::collection::vec(any::<i64>(), 0..90), i in 0usize..PRIMES.len()) {
        let p = PRIMES[i] as i64;
        x.extend([0, i64::MAX, i64::MIN, p, -p, p - 1, 1 - p, -1]);
        let expected: Vec<u64> = x.iter().map(|v| v.rem_euclid(p) as u64).collect();
        for op in ops(PRIMES[i]) {
            let mut out = vec![7; x.len()];
            op.reduce_signed(&x, &mut out);
            prop_assert_eq!(&out, &expected);
        }
    }

    #[test]
    fn inner_products(seed: u64, n in 0usize..150, count in 0usize..12, i in 0usize..PRIMES.len()) {
        let p = PRIMES[i];
        let m = Modulus::new(p).unwrap();
        let polys: Vec<_> = (0..3 * count as u64 + 2).map(|k| words(seed ^ (k << 8), n, p)).collect();
        let digits: Vec<&[u64]> = polys[2..].chunks(3).map(|c| c[0].as_slice()).collect();
        let pairs: Vec<[&[u64]; 2]> = polys[2..].chunks(3).map(|c| [c[1].as_slice(), c[2].as_slice()]).collect();
        let expected = |h: usize| -> Vec<u64> {
            let term = |j: usize, k: usize| m.mul(digits[k][j], pairs[k][h][j]);
            (0..n).map(|j| (0..count).fold(polys[h][j], |s, k| m.add(s, term(j, k)))).collect()
        };
        for op in ops(p) {
            let (mut left, mut right) = (polys[0].clone(), polys[1].clone());
            op.dot_pair(&digits, &pairs, [&mut left, &mut right]);
            prop_assert_eq!(left, expected(0));
            prop_assert_eq!(right, expected(1));
        }
    }

    #[test]
    fn products_of_pairs(seed: u64, n in 0usize..1200, i in 0usize..PRIMES.len()) {
        let p = PRIMES[i];
        let m = Modulus::new(p).unwrap();
        let [a0, a1, b0, b1] = [0, 1, 2, 3].map(|k| words(seed ^ (k << 8), n, p));
        let product = |x: &[u64], y: &[u64]| -> Vec<u64> { x.iter().zip(y).map(|(&x, &y)| m.mul(x, y)).collect() };
        let middle: Vec<u64> = product(&a0, &b1).iter().zip(product(&a1, &b0)).map(|(&x, y)| m.add(x, y)).collect();
        let expected = [product(&a0, &b0), middle, product(&a1, &b1)];
        for op in ops(p) {
            let mut out = [vec![7; n], vec![7; n], vec![7; n]];
            op.product_of_pairs([&a0, &a1], [&b0, &b1], out.each_mut().map(Vec::as_mut_slice));
            prop_assert_eq!(&out, &expected);
        }
    }
}

#[test]
fn inner_products_of_the_most_and_largest_terms() {
    let p = PRIMES[4];
    let full = [p - 1; 5];
    for op in ops(p) {
        let (mut left, mut right) = (full, full);
        let pairs = [[full.as_slice(); 2]; MAX_PRODUCTS];
        op.dot_pair(&[full.as_slice(); MAX_PRODUCTS], &pairs, [&mut left, &mut right]);
        assert_eq!((left, right), ([MAX_PRODUCTS as u64 - 1; 5], [MAX_PRODUCTS as u64 - 1; 5]));
    }
}
