//! Tests of insecure rings, and of keys at every level of a small ring.

use super::*;
use crate::HeError;
use tacit_arith::prg::{Prg, Seed, SplitPrg};

/// Primes of 14 and 18 bits, 1 mod 4096.
const PRIMES: [u64; 2] = [12_289, 147_457];

fn prg(n: u8) -> Prg {
    Prg::from_seed(Seed([n; 16]))
}

fn ring() -> Ring {
    Ring::new(2048, &PRIMES).unwrap()
}

#[test]
fn rejects_insecure_rings() {
    let wide = [(1 << 50) - (1 << 14) + 1, 147_457];
    assert!(matches!(Ring::new(2048, &wide), Err(HeError::Insecure { degree: 2048, max: 54, .. })));
    assert!(Ring::new(4096, &[wide[0], 40_961]).is_ok());
    assert!(matches!(Ring::new(64, &PRIMES), Err(HeError::Insecure { degree: 64, max: 0, .. })));
    assert!(matches!(Ring::new(2048, &[]), Err(HeError::Lattice(_))));
}

/// `b + a s` has coefficients in the error sampler's range.
#[test]
fn public_keys_are_encryptions_of_zero() {
    let ring = ring();
    let secret = SecretKey::generate(&ring, &mut prg(1));
    for level in 1..=2 {
        let key = secret.public_key(&ring, level, &mut SplitPrg::new(prg(2)));
        let (b, a) = key.parts();
        let mut product = a.clone();
        product.mul_assign(secret.s(), ring.basis());
        let mut negated = small(&ring, level, &vec![0; ring.degree()]);
        negated.sub_assign(&product, ring.basis());
        let mut error = b.clone();
        error.sub_assign(&negated, ring.basis());
        let error = error.into_coeff(ring.basis());
        for i in 0..level {
            let m = ring.basis().modulus(i);
            let worst = error.residue(i).iter().map(|&v| m.centred(v).unsigned_abs()).max().unwrap();
            assert!((8..=21).contains(&worst), "level {level}: {worst}");
        }
    }
}

#[test]
fn public_keys_round_trip() {
    let ring = ring();
    let secret = SecretKey::generate(&ring, &mut prg(1));
    for (level, len) in [(1, 16 + 256 * 14), (2, 16 + 256 * (14 + 18))] {
        let bytes = secret.public_key(&ring, level, &mut SplitPrg::new(prg(2))).to_bytes(&ring);
        assert_eq!((bytes.len(), PublicKey::bytes_len(&ring, level)), (len, len));
        assert_eq!(PublicKey::from_bytes(&ring, level, &bytes).unwrap().to_bytes(&ring), bytes);
        let short = PublicKey::from_bytes(&ring, level, &bytes[1..]);
        assert!(matches!(short, Err(HeError::Length { what: "public key", .. })));
        let full = PublicKey::from_bytes(&ring, level, &vec![0xff; len]);
        assert!(matches!(full, Err(HeError::Range { what: "public key", index: 0 })));
    }
}
