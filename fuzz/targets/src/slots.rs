//! Messages of linear layers on slots (`sci-he`): keys and ciphertexts at the server, answers at the client.

use std::sync::LazyLock;

use tacit_arith::prg::{Prg, PublicSeed, Seed, SplitPrg};
use tacit_he::bfv::{self, Ciphertext, Context, DEGREE, Encryptor, GaloisKey, Opener, Plain, Turn};
use tacit_he::core::SecretKey;

/// Built once: the tables of the transforms take longer than one input.
static FIXTURE: LazyLock<Fixture> = LazyLock::new(Fixture::new);

struct Fixture {
    ctx: Context,
    plain: Plain,
    key: SecretKey,
}

fn prg() -> SplitPrg {
    SplitPrg::new(Prg::from_seed(Seed([8; 16])))
}

impl Fixture {
    fn new() -> Self {
        let ctx = Context::new().expect("fixed parameters");
        let prime = bfv::plain_prime(32.0).expect("far below 50 bits");
        let plain = Plain::new(&ctx, prime).expect("a prime of the right form");
        let key = ctx.secret_key(prg().secret());
        Self { ctx, plain, key }
    }
}

/// A client's ciphertext.
pub(crate) fn ciphertext(data: &[u8]) {
    let accepted = Ciphertext::from_bytes(&FIXTURE.ctx, data).is_ok();
    assert!(!accepted || data.len() == bfv::FRESH_BYTES, "only the exact length is accepted");
}

pub(crate) fn ciphertext_seeds() -> Vec<Vec<u8>> {
    let Fixture { ctx, plain, key } = &*FIXTURE;
    let slots: Vec<u64> = (0..DEGREE as u64).collect();
    vec![Encryptor::new(ctx, key).encrypt(plain, &slots, &mut prg())]
}

/// A client's rotation key; the first byte says for which rotation.
pub(crate) fn rotation_key(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else { return };
    let turn = if which == 0 { Turn::Swap } else { Turn::Left(usize::from(which)) };
    let accepted = GaloisKey::from_bytes(&FIXTURE.ctx, turn, data).is_ok();
    assert!(!accepted || data.len() == bfv::GALOIS_KEY_BYTES, "only the exact length is accepted");
}

pub(crate) fn rotation_key_seeds() -> Vec<Vec<u8>> {
    let key = |which: u8, turn| {
        let bytes = bfv::galois_key(&FIXTURE.ctx, &FIXTURE.key, turn, &mut prg()).expect("a turn of these rows");
        [vec![which], bytes].concat()
    };
    vec![key(0, Turn::Swap), key(3, Turn::Left(3))]
}

/// A client's public key.
pub(crate) fn public_key(data: &[u8]) {
    if let Ok(key) = FIXTURE.ctx.read_public_key(data) {
        assert_eq!(key.to_bytes(FIXTURE.ctx.ring()), data, "one encoding for each key");
    }
}

pub(crate) fn public_key_seeds() -> Vec<Vec<u8>> {
    let key = FIXTURE.ctx.public_key(&FIXTURE.key, &mut prg());
    vec![key.to_bytes(FIXTURE.ctx.ring()), vec![0; bfv::PUBLIC_KEY_BYTES]]
}

/// A server's answer for one layer.
pub(crate) fn answer(data: &[u8]) {
    let Fixture { ctx, plain, key } = &*FIXTURE;
    if let Ok(share) = Opener::new(ctx, key).open(plain, data, PublicSeed::from_bytes([9; 16])) {
        assert!(share.iter().all(|&v| v < plain.modulus().value()), "shares stay in the field");
    }
}

pub(crate) fn answer_seeds() -> Vec<Vec<u8>> {
    // Answers are pairs of residues without structure: small ones of the right length are as valid as any.
    vec![vec![0; bfv::ANSWER_BYTES], vec![0x11; bfv::ANSWER_BYTES]]
}
