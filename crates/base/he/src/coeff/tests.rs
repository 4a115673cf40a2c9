//! End-to-end tests of the scheme, at the limits of its parameters.

use super::*;
use crate::HeError;
use crate::core::{PublicKey, ReshareStreams, SecretKey};
use tacit_arith::block::Block;
use tacit_arith::prg::{Prg, PublicSeed, Seed, SplitPrg};

const NO_MASKS: &[bool] = &[false; DEGREE];

fn prg(n: u8) -> Prg {
    Prg::from_seed(Seed([n; 16]))
}

fn split(n: u8) -> SplitPrg {
    SplitPrg::new(prg(n))
}

fn public(n: u8) -> PublicSeed {
    PublicSeed::from_bytes([n; 16])
}

fn spec(ring_bits: u32, norm_sq: f64) -> ParamsSpec {
    let max_error = Params::smallest_error(ring_bits, norm_sq).unwrap();
    ParamsSpec { ring_bits, norm_sq, steps: 0, max_error, up_per_down: 1.0 }
}

fn negacyclic(a: &[u64], w: &[i32]) -> Vec<u64> {
    let n = a.len();
    let mut out = vec![0u64; n];
    for (i, &x) in w.iter().enumerate().filter(|(_, x)| **x != 0) {
        for (j, &y) in a.iter().enumerate() {
            let t = y.wrapping_mul(i64::from(x) as u64);
            let k = (i + j) % n;
            out[k] = if i + j < n { out[k].wrapping_add(t) } else { out[k].wrapping_sub(t) };
        }
    }
    out
}

/// A client's keys, and the public key that its server has read.
struct Parties {
    ctx: Context,
    key: SecretKey,
    public_key: PublicKey,
}

impl Parties {
    fn new() -> Self {
        let ctx = Context::new().unwrap();
        let key = ctx.secret_key(&mut prg(1));
        let bytes = ctx.public_key(&key, &mut split(2)).to_bytes(ctx.ring());
        let public_key = ctx.read_public_key(&bytes).unwrap();
        Self { ctx, key, public_key }
    }

    /// Reshares a sum and adds up both parties' shares of all coefficients.
    fn open(&self, params: &Params, sum: &mut Sum) -> Vec<u64> {
        let positions: Vec<usize> = (0..DEGREE).collect();
        let (mut answer, streams) = (vec![], ReshareStreams { secret: &mut prg(4), public: public(5) });
        let server = sum.reshare(&self.ctx, &self.public_key, params, streams, &positions, &mut answer);
        assert_eq!(answer.len(), params.down_bytes());
        let client = Opener::new(&self.ctx, &self.key, *params).open(&answer, public(5), &positions).unwrap();
        server.iter().zip(client).map(|(s, c)| s.wrapping_add(c)).collect()
    }
}

/// The centred difference of two values of a ring.
fn error(ring_bits: u32, actual: u64, expected: u64) -> i64 {
    (actual.wrapping_sub(expected) << (64 - ring_bits)) as i64 >> (64 - ring_bits)
}

fn add(ctx: &Context, sums: &mut Sums, entries: &[(usize, i32)], cipher: &Ciphertext) {
    let (mut weights, mut ciphertexts) = (Weights::default(), Ciphertexts::new(1));
    weights.resize(1, 1);
    weights.put(ctx, 0, 0, entries);
    ciphertexts.put(0, cipher);
    sums.add(ctx, &weights, &ciphertexts, &[vec![0]]);
}

fn product(ctx: &Context, entries: &[(usize, i32)], cipher: &Ciphertext) -> Sum {
    let mut sums = Sums::default();
    sums.reset(1, 1);
    add(ctx, &mut sums, entries, cipher);
    sums.sum(ctx, 0, 0)
}

/// Runs one layer of `inputs` polynomials, each with `taps` weights of size `size`, and returns the
/// errors of the share pairs.
fn errors(params: &Params, inputs: usize, taps: usize, size: i32) -> Vec<i64> {
    let parties = Parties::new();
    let encryptor = Encryptor::new(&parties.ctx, &parties.key, *params);
    let (mut data, mut sums, mut expected) = (prg(3), Sums::default(), vec![0u64; DEGREE]);
    sums.reset(1, 1);
    let mut random = split(6);
    for _ in 0..inputs {
        let message: Vec<u64> = (0..DEGREE).map(|_| data.next_u64() >> (64 - params.ring_bits())).collect();
        let mut weights = vec![0i32; DEGREE];
        for t in 0..taps {
            weights[(t * 37) % DEGREE] = if data.next_u64() & 1 == 0 { size } else { -size };
        }
        let frame = encryptor.encrypt(&message, &mut random);
        assert_eq!(frame.len(), params.up_bytes(0));
        let cipher = Ciphertext::from_bytes(&parties.ctx, params, &frame, NO_MASKS).unwrap();
        let entries: Vec<(usize, i32)> = weights.iter().copied().enumerate().collect();
        add(&parties.ctx, &mut sums, &entries, &cipher);
        for (e, v) in expected.iter_mut().zip(negacyclic(&message, &weights)) {
            *e = e.wrapping_add(v);
        }
    }
    let opened = parties.open(params, &mut sums.sum(&parties.ctx, 0, 0));
    opened.into_iter().zip(expected).map(|(actual, expected)| error(params.ring_bits(), actual, expected)).collect()
}

/// The error reaches a quarter of the promised bound, so the allowance for switching is tight.
#[test]
fn expanded_parts_multiply_within_the_error_bound() {
    let parties = Parties::new();
    let Parties { ctx, key, .. } = &parties;
    let bytes = expansion_keys(ctx, key, MAX_STEPS, &mut split(7)).unwrap();
    assert_eq!(bytes.len(), expansion_key_bytes(MAX_STEPS));
    let keys = ExpansionKeys::from_bytes(ctx, MAX_STEPS, &bytes).unwrap();
    assert_eq!(keys.steps(), MAX_STEPS);
    for (l, steps, size, max_error) in
        [(28, 1, 1 << 10, 1), (37, 2, 1 << 11, 1 << 11), (37, MAX_STEPS, 1 << 14, 1 << 17)]
    {
        let (parts, taps) = (1 << steps, 9);
        let norm_sq = taps as f64 * f64::from(size).powi(2);
        let params = Params::new(&ParamsSpec { steps, max_error, ..spec(l, norm_sq) }).unwrap();
        let mut data = prg(3);
        let message: Vec<u64> = (0..DEGREE).map(|_| data.next_u64() >> (64 - l)).collect();
        let frame = Encryptor::new(ctx, key, params).encrypt(&message, &mut split(6));
        let ciphers = keys.expand(ctx, Ciphertext::from_bytes(ctx, &params, &frame, NO_MASKS).unwrap(), steps);
        assert_eq!(ciphers.len(), parts);
        let mut worst = 0f64;
        for (part, cipher) in ciphers.iter().enumerate() {
            // Weights for every part of the answer.
            let mut weights = vec![0i32; DEGREE];
            for t in 0..taps * parts {
                weights[t * 13 / parts * parts + t % parts] = if data.next_u64() & 1 == 0 { size } else { -size };
            }
            let entries: Vec<(usize, i32)> = weights.iter().copied().enumerate().collect();
            let opened = parties.open(&params, &mut product(ctx, &entries, cipher));
            let mut x = vec![0; DEGREE];
            (0..DEGREE / parts).for_each(|i| x[i * parts] = message[i * parts + part]);
            for (actual, y) in opened.into_iter().zip(negacyclic(&x, &weights)) {
                worst = worst.max(error(l, actual, y).unsigned_abs() as f64);
            }
        }
        let bound = f64::from(max_error);
        assert!(worst <= bound, "{steps} steps: {worst} of {bound}, {params:?}");
        assert!(worst > bound / 4.0, "{steps} steps: {worst} of {bound}, {params:?}");
    }
}

/// Positions flagged in `chosen` carry a mask instead of a value. A mask's coefficient takes at least
/// l - 1 bits fewer on the wire.
#[test]
fn chosen_masks_decrypt_to_themselves() {
    let parties = Parties::new();
    let ctx = &parties.ctx;
    let chosen: Vec<bool> = (0..DEGREE).map(|position| position % 5 != 2).collect();
    let count = chosen.iter().filter(|&&c| c).count();
    for l in [1, 2, 17, 28, 37, MAX_RING_BITS] {
        let max_error = Params::smallest_error(l, 1.0).unwrap();
        let params = Params::new(&ParamsSpec { max_error, ..spec(l, 1.0) }).unwrap();
        assert!(params.chosen_bits() + l <= params.up_bits() + 1, "{params:?}");
        let encryptor = Encryptor::new(ctx, &parties.key, params);
        let blank = encryptor.blank(&mut split(6));
        let message: Vec<u64> = (0..DEGREE as u64).map(|position| (position * 0x9e37_79b9) & ((1 << l) - 1)).collect();
        let frame = blank.encrypt(&message, &chosen);
        assert_eq!(frame.len(), params.up_bytes(count));
        let repeat = encryptor.blank(&mut split(6));
        let expected_at = |position: usize| if chosen[position] { repeat.mask(position) } else { message[position] };
        let expected: Vec<u64> = (0..DEGREE).map(expected_at).collect();
        let different = expected.iter().collect::<std::collections::HashSet<_>>().len();
        assert!(different as f64 > 0.9 * (DEGREE as f64).min(2f64.powi(l as i32)), "{different} values of {l} bits");
        let cipher = Ciphertext::from_bytes(ctx, &params, &frame, &chosen).unwrap();
        let opened = parties.open(&params, &mut product(ctx, &[(0, 1)], &cipher));
        for (position, (actual, expected)) in opened.into_iter().zip(expected).enumerate() {
            let error = error(l, actual, expected);
            assert!(error.unsigned_abs() <= u64::from(max_error), "{l} bits, coefficient {position}: {error}");
        }
    }
}

#[test]
fn shares_sum_to_the_product_at_the_noise_limit() {
    for (l, inputs, taps, size) in
        [(37, 4, 16, 1 << 12), (32, 2, 9, 1 << 13), (20, 3, 30, 300), (39, 1, 64, 1 << 10), (45, 2, 9, 4096)]
    {
        let norm_sq = (inputs * taps) as f64 * f64::from(size).powi(2);
        let params = Params::new(&spec(l, norm_sq)).unwrap();
        let errors = errors(&params, inputs, taps, size);
        let worst = errors.iter().map(|e| e.unsigned_abs()).max().unwrap();
        assert!(worst <= u64::from(params.max_error()), "l {l}: {worst}, {params:?}");
        let mean = errors.iter().sum::<i64>() as f64 / DEGREE as f64;
        assert!(mean.abs() < 0.1 * f64::from(params.max_error()), "l {l}: biased by {mean}");
    }
}

/// In a wide ring the rounding to shares is negligible, and the error is the phase error. Two cases:
/// hardly any weights, and dominant noise of fresh ciphertexts.
#[test]
fn measured_noise_matches_the_model() {
    for (inputs, taps, size) in [(1, 1, 1), (8, 32, 1 << 19)] {
        let norm_sq = (inputs * taps) as f64 * f64::from(size).powi(2);
        let params = Params::new(&spec(45, norm_sq)).unwrap();
        let errors = errors(&params, inputs, taps, size);
        let deviation = (errors.iter().map(|e| (e * e) as f64).sum::<f64>() / DEGREE as f64).sqrt();
        let model = params.phase_error_bound() / 7.54 * 2f64.powi(45) / P1 as f64;
        assert!((0.85..1.15).contains(&(deviation / model)), "{deviation} {model} {params:?}");
    }
}

#[test]
fn parameters_of_common_rings_are_pinned() {
    let table = [(32, 1), (37, 1), (39, 1), (40, 2), (45, 59)];
    for (l, error) in table {
        assert_eq!(Params::smallest_error(l, 4f64.powi(14)).unwrap(), error, "l {l}");
    }
    let p = Params::new(&spec(37, 4f64.powi(14))).unwrap();
    assert_eq!((p.up_bits(), p.down_bits()), (55, 44));
    assert!(p.phase_error_bound() < P1 as f64 / 2f64.powi(37));
    let p = Params::new(&spec(32, 4f64.powi(14))).unwrap();
    assert_eq!((p.up_bits(), p.down_bits()), (48, 40));
}

#[test]
fn rejects_impossible_parameters() {
    let zero = ParamsSpec { ring_bits: 46, max_error: 1, ..spec(45, 1.0) };
    assert_eq!(Params::new(&zero), Err(HeError::RingBits { bits: 46, max: 45 }));
    let tight = ParamsSpec { ring_bits: 41, ..zero };
    assert!(matches!(Params::new(&tight), Err(HeError::TooNoisy { ring_bits: 41, max_error: 1, .. })));
    let none = ParamsSpec { ring_bits: 20, max_error: 0, ..zero };
    assert!(matches!(Params::new(&none), Err(HeError::TooNoisy { .. })));
    assert!(Params::smallest_error(45, f64::INFINITY).is_err());
}

#[test]
fn rejects_foreign_bytes() {
    let ctx = Context::new().unwrap();
    let params = Params::new(&spec(37, 1e8)).unwrap();
    let key = ctx.secret_key(&mut prg(1));
    for bytes in [vec![], vec![0; 15], vec![0; params.up_bytes(0) + 1]] {
        assert!(matches!(
            Ciphertext::from_bytes(&ctx, &params, &bytes, NO_MASKS),
            Err(HeError::Length { what: "ciphertext", .. })
        ));
        assert!(matches!(ctx.read_public_key(&bytes), Err(HeError::Length { what: "public key", .. })));
        let opened = Opener::new(&ctx, &key, params).open(&bytes, public(1), &[]);
        assert!(matches!(opened, Err(HeError::Length { what: "answer", .. })));
    }
    let length = expansion_key_bytes(2);
    for bytes in [vec![], vec![0; length - 1], vec![0; length + 1], vec![0xff; length]] {
        assert!(ExpansionKeys::from_bytes(&ctx, 2, &bytes).is_err());
    }
    let full = Ciphertext::from_bytes(&ctx, &params, &vec![0xff; params.up_bytes(0)], NO_MASKS);
    assert!(matches!(full, Err(HeError::Range { index: 0, .. })));
    assert!(ctx.read_public_key(&[0xff; PUBLIC_KEY_BYTES]).is_err());
    let opened = Opener::new(&ctx, &key, params).open(&vec![0xff; params.down_bytes()], public(1), &[]);
    assert!(matches!(opened, Err(HeError::Range { index: 0, .. })));
}

#[test]
fn encryption_is_randomised_and_keys_round_trip() {
    let ctx = Context::new().unwrap();
    let params = Params::new(&spec(37, 1e8)).unwrap();
    let key = ctx.secret_key(&mut prg(1));
    let (encryptor, mut random) = (Encryptor::new(&ctx, &key, params), split(9));
    let message = vec![5; DEGREE];
    assert_ne!(encryptor.encrypt(&message, &mut random), encryptor.encrypt(&message, &mut random));
    let bytes = ctx.public_key(&key, &mut random).to_bytes(ctx.ring());
    assert_eq!(bytes.len(), PUBLIC_KEY_BYTES);
    assert_eq!(ctx.read_public_key(&bytes).unwrap().to_bytes(ctx.ring()), bytes);
}

/// Neither the key nor the errors are drawn from blocks that are published.
#[test]
fn public_seeds_are_not_in_the_secret_stream() {
    let ctx = Context::new().unwrap();
    let params = Params::new(&spec(37, 1e8)).unwrap();
    let mut random = split(1);
    let key = ctx.secret_key(random.secret());
    let encryptor = Encryptor::new(&ctx, &key, params);
    let mut published = vec![ctx.public_key(&key, &mut random).to_bytes(ctx.ring())];
    published.extend((0..3).map(|_| encryptor.encrypt(&vec![1; DEGREE], &mut random)));
    let mut secret = vec![Block::ZERO; 4 * DEGREE];
    prg(1).fill_blocks(&mut secret);
    // The key and four error polynomials took N words each, all within the compared blocks.
    assert!(random.secret().next_block() == secret[5 * DEGREE / 2]);
    for bytes in &published {
        let seed = Block::from_bytes(*bytes.first_chunk().unwrap());
        assert!(!secret.contains(&seed));
    }
}

/// Samplers, domain order and packing are the same on every machine.
#[test]
fn wire_bytes_are_pinned() {
    let ctx = Context::new().unwrap();
    let mut random = split(1);
    let key = ctx.secret_key(random.secret());
    let sum = |bytes: &[u8]| bytes.iter().fold(0u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3));
    let public = ctx.public_key(&key, &mut random).to_bytes(ctx.ring());
    let params = Params::new(&spec(37, 4f64.powi(14))).unwrap();
    let cipher = Encryptor::new(&ctx, &key, params).encrypt(&vec![1; DEGREE], &mut random);
    assert_eq!((sum(&public), sum(&cipher)), (13_232_419_015_550_248_438, 15_429_096_240_953_844_871));
}
