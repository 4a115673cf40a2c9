//! Ciphertexts of RNS-CKKS, in both forms.

use std::sync::{Arc, LazyLock};

use tacit_arith::prg::{Prg, Seed, SplitPrg};
use tacit_he::ckks::{
    Complex, Context, Encoder, Estimate, KeyGroup, Parameters, ParametersSpec, Received, SecretKey, Segment,
};

/// Built once: the tables of the transform take longer than one input.
pub(crate) static CONTEXT: LazyLock<Arc<Context>> = LazyLock::new(|| {
    let spec = ParametersSpec {
        log_degree: 12,
        base_bits: 30,
        segments: vec![Segment { count: 1, bits: 30 }],
        special_bits: 40,
        groups: vec![KeyGroup { up_to_level: 2, alpha: 1 }],
        encapsulated: false,
    };
    Arc::new(Context::new(&Parameters::new(&spec).expect("100 bits are secure")).expect("checked parameters"))
});

const EXPECTED: Estimate = Estimate { deviation: 4.0, magnitude: 1.0 };

/// A client's ciphertext, or one that comes back from a server.
pub(crate) fn ciphertext(data: &[u8]) {
    let again = match Received::from_bytes(&CONTEXT, data, EXPECTED) {
        Ok(Received::Full(ciphertext)) => ciphertext.to_bytes(&CONTEXT),
        Ok(Received::Seeded(ciphertext)) => ciphertext.to_bytes(&CONTEXT),
        Err(_) => return,
    };
    assert_eq!(again, data, "one encoding for each ciphertext");
}

pub(crate) fn ciphertext_seeds() -> Vec<Vec<u8>> {
    let mut prg = SplitPrg::new(Prg::from_seed(Seed([8; 16])));
    let secret = SecretKey::generate(&CONTEXT, prg.secret());
    let encoder = Encoder::new(&CONTEXT, 16).expect("16 slots fit");
    let values: Vec<Complex> = (0..16).map(|i| Complex::from(f64::from(i) / 16.0)).collect();
    let plaintext = encoder.encode(&values, 2, CONTEXT.parameters().scale(2)).expect("small values");
    let seeded = secret.encrypt_seeded(&plaintext, &mut prg);
    vec![seeded.to_bytes(&CONTEXT), seeded.expand(&CONTEXT, 1.0).to_bytes(&CONTEXT)]
}
