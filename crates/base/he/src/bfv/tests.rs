//! Tests of slots, rotations, products and shares against plain arithmetic, of noise against its
//! bound, and of bytes from a peer.

use super::*;
use crate::HeError;
use crate::core::{PublicKey, ReshareStreams, SecretKey};
use proptest::prelude::*;
use std::sync::LazyLock;
use tacit_arith::prg::{Prg, PublicSeed, Seed, SplitPrg};

static CONTEXT: LazyLock<Context> = LazyLock::new(|| Context::new().unwrap());

fn prg(n: u8) -> Prg {
    Prg::from_seed(Seed([n; 16]))
}

struct Party {
    secret: SecretKey,
    public: PublicKey,
    plain: Plain,
}

impl Party {
    fn new(plain_log2: f64) -> Self {
        let ctx = &*CONTEXT;
        let secret = ctx.secret_key(&mut prg(1));
        let public = ctx.public_key(&secret, &mut SplitPrg::new(prg(2)));
        Self { secret, public, plain: Plain::new(ctx, plain_prime(plain_log2).unwrap()).unwrap() }
    }

    fn encrypt(&self, slots: &[u64], n: u8) -> Ciphertext {
        let bytes = Encryptor::new(&CONTEXT, &self.secret).encrypt(&self.plain, slots, &mut SplitPrg::new(prg(n)));
        assert_eq!(bytes.len(), FRESH_BYTES);
        Ciphertext::from_bytes(&CONTEXT, &bytes).unwrap()
    }

    fn turn(&self, c: &Ciphertext, turn: Turn) -> Ciphertext {
        let bytes = galois_key(&CONTEXT, &self.secret, turn, &mut SplitPrg::new(prg(9))).unwrap();
        let key = GaloisKey::from_bytes(&CONTEXT, turn, &bytes).unwrap();
        turn_slots(&CONTEXT, c, &raise(&CONTEXT, c), &key)
    }

    /// Adds the product of `c` and the encoded weights.
    fn add_product(&self, sum: &mut Sum, layout: &Classes, weights: &[i32], c: &Ciphertext) {
        let weights = WeightPoly::new(&CONTEXT, &self.plain, layout, weights);
        add_products(&CONTEXT, &mut [(sum, vec![(weights, c)])]);
    }

    /// Reshares `c` and returns the sums of both parties' shares.
    fn open(&self, c: Ciphertext) -> Vec<u64> {
        let public = PublicSeed::from_bytes([5; 16]);
        let mut answer = vec![];
        let streams = ReshareStreams { secret: &mut prg(6), public };
        let server = reshare(&CONTEXT, &self.plain, &self.public, c, streams, &mut answer);
        assert_eq!(answer.len(), ANSWER_BYTES);
        let client = Opener::new(&CONTEXT, &self.secret).open(&self.plain, &answer, public).unwrap();
        let m = self.plain.modulus();
        client.iter().zip(server).map(|(&c, s)| m.add(c, s)).collect()
    }

    fn random(&self, n: u8) -> Vec<u64> {
        let mut words = vec![0; DEGREE];
        prg(n).fill_u64(&mut words);
        words.iter().map(|&w| self.plain.modulus().reduce(w)).collect()
    }
}

fn rotate_slots(slots: &[u64], turn: Turn) -> Vec<u64> {
    let at = |j: usize| match turn {
        Turn::Left(k) => j / ROW * ROW + (j + k) % ROW,
        Turn::Swap => (j + ROW) % DEGREE,
    };
    (0..DEGREE).map(|j| slots[at(j)]).collect()
}

#[test]
fn slots_come_back_and_multiply_slot_by_slot() {
    let party = Party::new(40.0);
    let (x, m) = (party.random(3), *party.plain.modulus());
    let coefficients = party.plain.encode(&CONTEXT, &x);
    assert_eq!(party.plain.decode(&CONTEXT, coefficients), x);
    let c = party.encrypt(&x, 4);
    assert_eq!(party.open(c.clone()), x);
    for classes in [1, 4, 32, 64] {
        let mut sum = Sum::new(&CONTEXT);
        let weights: Vec<i32> = (0..2 * classes as i32).map(|i| (i * 7919 - 30_000) % 4001).collect();
        let layout = Classes::new(&CONTEXT, classes);
        party.add_product(&mut sum, &layout, &weights, &c);
        let actual = party.open(sum.finish(&CONTEXT));
        for (j, (actual, x)) in actual.iter().zip(&x).enumerate() {
            let w = weights[j / ROW * classes + j % ROW % classes];
            assert_eq!(*actual, m.mul(*x, m.reduce_i64(w.into())), "{classes} classes, slot {j}");
        }
    }
}

#[test]
fn rotations_move_slots() {
    let party = Party::new(40.0);
    let x = party.random(3);
    let c = party.encrypt(&x, 4);
    for turn in [Turn::Left(1), Turn::Left(5), Turn::Left(2048), Turn::Left(ROW - 1), Turn::Swap] {
        assert!(party.open(party.turn(&c, turn)) == rotate_slots(&x, turn), "{turn:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    /// At the largest prime that the bound allows.
    #[test]
    fn linear_combinations_are_exact(seed: u8, classes in 0u32..7, steps in prop::collection::vec(1usize..ROW, 1..4)) {
        let classes = 1 << classes;
        let noise = Noise { products: 2 * steps.len(), classes, turns: 2 };
        let party = Party::new(largest_plain_log2(&noise) - 0.01);
        let (x, m, layout) = (party.random(seed), *party.plain.modulus(), Classes::new(&CONTEXT, classes));
        let c = party.encrypt(&x, seed.wrapping_add(1));
        let (mut sum, mut expected) = (Sum::new(&CONTEXT), vec![0; DEGREE]);
        for (i, &k) in steps.iter().enumerate() {
            for turn in [Turn::Left(k), Turn::Swap] {
                let shifted = rotate_slots(&rotate_slots(&x, Turn::Left(k)), turn);
                let turned = party.turn(&party.turn(&c, Turn::Left(k)), turn);
                let weights: Vec<i32> = (0..2 * classes).map(|j| i32::MAX - (j * 77_777 + i) as i32).collect();
                party.add_product(&mut sum, &layout, &weights, &turned);
                for (j, e) in expected.iter_mut().enumerate() {
                    let w = weights[j / ROW * classes + j % ROW % classes];
                    *e = m.add(*e, m.mul(shifted[j], m.reduce_i64(w.into())));
                }
            }
        }
        prop_assert!(party.open(sum.finish(&CONTEXT)) == expected);
    }
}

/// The phase error on all slots of an answer is below the deviation of the bound, and above a 64th.
#[test]
fn measured_noise_is_within_the_bound() {
    let (products, classes) = (24, 16);
    let noise = Noise { products, classes, turns: 1 };
    let log2 = largest_plain_log2(&noise) - 0.01;
    let party = Party::new(log2);
    let layout = Classes::new(&CONTEXT, classes);
    // A ciphertext of zeros: the phase of the answer is its error.
    let c = party.turn(&party.encrypt(&[0; DEGREE], 4), Turn::Left(3));
    let mut sum = Sum::new(&CONTEXT);
    for k in 0..products as i32 {
        let weights: Vec<i32> = (0..2 * classes as i32).map(|i| (i + 1) * 65_537 * (k + 1)).collect();
        party.add_product(&mut sum, &layout, &weights, &c);
    }
    let errors = reshare::tests::phase(&CONTEXT, &party.secret, &party.public, sum.finish(&CONTEXT));
    let square: f64 = errors.iter().map(|&e| (e as f64).powi(2)).sum::<f64>() / DEGREE as f64;
    let bound = params::deviation(&noise, log2);
    assert!(square.sqrt() < bound && square.sqrt() > bound / 64.0, "2^{} of 2^{}", square.log2() / 2.0, bound.log2());
}

#[test]
fn bounds_are_as_documented() {
    let log2 = |products, classes, turns| largest_plain_log2(&Noise { products, classes, turns });
    assert!((47.0..48.0).contains(&log2(1, 1, 0)), "{}", log2(1, 1, 0));
    assert!((45.0..48.0).contains(&log2(1000, 16, 40)), "{}", log2(1000, 16, 40));
    assert!(log2(1 << 20, 64, 40) > 38.0);
    assert!(plain_prime(50.0).is_none() && plain_prime(40.0).unwrap() % 16_384 == 1);
}

/// Both parties, including older versions, must agree on them.
#[test]
fn wire_bytes_are_pinned() {
    let party = Party::new(37.0);
    assert_eq!(party.plain.modulus().value(), 137_439_510_529);
    let ctx = &*CONTEXT;
    let x: Vec<u64> = (0..DEGREE as u64).collect();
    let fresh = Encryptor::new(ctx, &party.secret).encrypt(&party.plain, &x, &mut SplitPrg::new(prg(4)));
    let key = galois_key(ctx, &party.secret, Turn::Left(3), &mut SplitPrg::new(prg(7))).unwrap();
    let mut answer = vec![];
    let c = Ciphertext::from_bytes(ctx, &fresh).unwrap();
    let public = PublicSeed::from_bytes([5; 16]);
    reshare(ctx, &party.plain, &party.public, c, ReshareStreams { secret: &mut prg(6), public }, &mut answer);
    let digest = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..16].to_string();
    let digests = [&fresh, &key, &answer].map(|bytes| digest(bytes));
    assert_eq!(digests, ["dc86db1a82b123db", "857b2d97d2ad512d", "15265bb207caf8f3"]);
    assert_eq!([fresh.len(), key.len()], [FRESH_BYTES, GALOIS_KEY_BYTES]);
    assert_eq!(party.public.to_bytes(ctx.ring()).len(), PUBLIC_KEY_BYTES);
}

#[test]
fn rejects_foreign_bytes() {
    let party = Party::new(37.0);
    let public = PublicSeed::from_bytes([0; 16]);
    type Read<'a> = &'a dyn Fn(&[u8]) -> Result<(), HeError>;
    let fresh: Read = &|bytes| Ciphertext::from_bytes(&CONTEXT, bytes).map(drop);
    let key: Read = &|bytes| GaloisKey::from_bytes(&CONTEXT, Turn::Swap, bytes).map(drop);
    let answer: Read = &|bytes| Opener::new(&CONTEXT, &party.secret).open(&party.plain, bytes, public).map(drop);
    let public_key: Read = &|bytes| CONTEXT.read_public_key(bytes).map(drop);
    let readers =
        [(fresh, FRESH_BYTES), (key, GALOIS_KEY_BYTES), (answer, ANSWER_BYTES), (public_key, PUBLIC_KEY_BYTES)];
    for (read, len) in readers {
        assert!(matches!(read(&vec![0xff; len]), Err(HeError::Range { .. })));
        assert!(read(&vec![0; len]).is_ok());
        for wrong in [0, 15, len - 1, len + 1] {
            assert!(matches!(read(&vec![0; wrong]), Err(HeError::Length { .. })));
        }
    }
    assert!(Plain::new(&CONTEXT, 40_961).is_err(), "no prime of this degree");
}
