//! Messages of the linear layers: public key and ciphertexts at the server, answers at the client.

use std::sync::{Arc, LazyLock};

use tacit_arith::prg::{Prg, Seed, SplitPrg};
use tacit_arith::ring::ConvSpec;
use tacit_backends::cheetah::linear::{ClientKeys, Consumer, LinearClient, LinearError, LinearPlan};
use tacit_he::HeError;
use tacit_he::coeff::{
    self, Ciphertext, Context, DEGREE, Encryptor, ExpansionKeys, Params, ParamsSpec, expansion_key_bytes,
};

/// Built once: the tables of the transform take longer than one input.
static FIXTURE: LazyLock<Fixture> = LazyLock::new(Fixture::new);

struct Fixture {
    ctx: Arc<Context>,
    params: Params,
    plan: LinearPlan,
    keys: ClientKeys,
}

fn prg() -> Prg {
    Prg::from_seed(Seed([6; 16]))
}

impl Fixture {
    fn new() -> Self {
        let ctx = Arc::new(Context::new().expect("fixed parameters"));
        let spec = ParamsSpec { steps: 0, ring_bits: 32, max_error: 1, norm_sq: 1e6, up_per_down: 1.0 };
        let conv = ConvSpec { in_h: 6, in_w: 5, kernel: (3, 3), ..ConvSpec::linear(3, 4) };
        let plan = LinearPlan::new(&[Consumer { conv, ring_bits: 32, norm_log2: 8 }], 1).expect("a small layer");
        let (keys, _) = ClientKeys::generate(&ctx, 0, &mut prg()).expect("fixed parameters");
        Self { ctx, params: Params::new(&spec).expect("fixed parameters"), plan, keys }
    }

    /// Reads an answer from `data`, as a channel would hand it on: pieces of the expected length.
    fn decrypt(&self, data: &[u8], asked: &mut Vec<usize>) -> Result<Vec<u64>, LinearError> {
        let mut rest = data;
        LinearClient::new(&self.keys, &self.plan).decrypt(0, &mut |length| {
            asked.push(length);
            let Some((piece, later)) = rest.split_at_checked(length) else {
                return Err(HeError::Length { what: "answer", got: rest.len(), expected: length }.into());
            };
            rest = later;
            Ok(piece.to_vec())
        })
    }
}

/// A client's public key, and its keys to take ciphertexts apart.
pub(crate) fn public_key(data: &[u8]) {
    if let Ok(key) = FIXTURE.ctx.read_public_key(data) {
        assert_eq!(key.to_bytes(FIXTURE.ctx.ring()), data, "one encoding for each key");
    }
    let accepted = ExpansionKeys::from_bytes(&FIXTURE.ctx, 1, data).is_ok();
    assert!(!accepted || data.len() == expansion_key_bytes(1), "only the exact length is accepted");
}

pub(crate) fn public_key_seeds() -> Vec<Vec<u8>> {
    let (_, bytes) = ClientKeys::generate(&FIXTURE.ctx, 1, &mut prg()).expect("fixed parameters");
    vec![bytes.public, vec![0; coeff::PUBLIC_KEY_BYTES], bytes.expansion]
}

/// Of a ciphertext's coefficients those whose masks the encryption chooses: none, or two of three.
fn chosen() -> [Vec<bool>; 2] {
    [vec![false; DEGREE], (0..DEGREE).map(|at| at % 3 > 0).collect()]
}

/// A client's ciphertext, with and without masks that the encryption chose.
pub(crate) fn ciphertext(data: &[u8]) {
    for chosen in chosen() {
        let accepted = Ciphertext::from_bytes(&FIXTURE.ctx, &FIXTURE.params, data, &chosen).is_ok();
        let expected = FIXTURE.params.up_bytes(chosen.iter().filter(|&&c| c).count());
        assert!(!accepted || data.len() == expected, "only the exact length is accepted");
    }
}

pub(crate) fn ciphertext_seeds() -> Vec<Vec<u8>> {
    let key = FIXTURE.ctx.secret_key(&mut prg());
    let message: Vec<u64> = (0..DEGREE as u64).collect();
    let blank = Encryptor::new(&FIXTURE.ctx, &key, FIXTURE.params).blank(&mut SplitPrg::new(prg()));
    chosen().map(|chosen| blank.encrypt(&message, &chosen)).to_vec()
}

/// A server's answer for one layer.
pub(crate) fn answer(data: &[u8]) {
    if let Ok(share) = FIXTURE.decrypt(data, &mut vec![]) {
        assert!(share.iter().all(|v| v >> 32 == 0), "shares stay in the ring");
    }
}

pub(crate) fn answer_seeds() -> Vec<Vec<u8>> {
    let mut asked = vec![];
    let enough = vec![0; 1 << 20];
    let mut length = 0;
    // Answers are ring elements and carry no structure: zeros of the right length are as valid as any.
    if FIXTURE.decrypt(&enough, &mut asked).is_ok() {
        length = asked.iter().sum();
    }
    assert!(length > 16, "a seed and at least one polynomial");
    vec![vec![0; length], vec![0x11; length]]
}
