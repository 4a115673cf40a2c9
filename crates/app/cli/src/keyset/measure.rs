//! A client with keys whose ciphertext operations are measured.

use std::sync::Arc;
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_he::ckks::{
    BootstrapSpec, Ciphertext, Complex, Context, Encoder, KeyId, KeyKind, KeySet, Method, Parameters, ParametersSpec,
    SecretKey,
};

/// A client and its context.
pub struct Bench {
    /// The ring and its primes.
    pub context: Arc<Context>,
    /// The secret key.
    pub secret: SecretKey,
    /// Randomness from the system.
    pub prg: SplitPrg,
}

impl Bench {
    /// Draws a new secret key.
    ///
    /// # Errors
    /// The parameters are invalid, or the system gives no randomness.
    pub fn new(spec: &ParametersSpec) -> anyhow::Result<Self> {
        let context = Arc::new(Context::new(&Parameters::new(spec)?)?);
        let mut prg = SplitPrg::new(Prg::from_os()?);
        let secret = SecretKey::generate(&context, prg.secret());
        Ok(Self { context, secret, prg })
    }

    /// Encrypts `values`, one a slot, at `level`.
    ///
    /// # Errors
    /// The values are more than slots, or too large for the scale.
    pub fn encrypt(&mut self, values: &[Complex], level: usize) -> anyhow::Result<Ciphertext> {
        let encoder = Encoder::new(&self.context, values.len())?;
        let plaintext = encoder.encode(values, level, self.context.parameters().scale(level))?;
        Ok(self.secret.encrypt(&plaintext, &mut self.prg))
    }

    /// Encrypts sample values in all slots.
    pub fn encrypt_samples(&mut self, level: usize) -> anyhow::Result<Ciphertext> {
        let slots = self.context.degree() / 2;
        self.encrypt(&values(slots), level)
    }

    /// Makes keys for rotations at `level`.
    pub fn rotation_keys(&mut self, distances: &[i64], level: usize) -> anyhow::Result<KeySet> {
        let kinds = distances.iter().map(|&k| KeyKind::Galois(self.context.rotation_element(k)));
        let needs: Vec<KeyId> = kinds.map(|kind| KeyId::for_level(&self.context, kind, level)).collect();
        Ok(KeySet::generate(&self.secret, &needs, &mut self.prg)?)
    }
}

/// Returns values spread over [-1, 1].
pub fn values(n: usize) -> Vec<Complex> {
    (0..n).map(|i| Complex::from((i as f64 * 0.7).sin())).collect()
}

/// Returns the bootstrap's parameters for a parameter set.
pub fn boot_spec(name: &str, slots: usize, method: Method) -> anyhow::Result<BootstrapSpec> {
    let (slot_to_coeff, message_ratio_bits, arcsine) = match name {
        "A" => (3, 7, true),
        "B" => (2, 10, false),
        _ => anyhow::bail!("set {name} does not bootstrap: A and B do"),
    };
    let cache_bytes = 1 << 30;
    Ok(BootstrapSpec { slots, slot_to_coeff, coeff_to_slot: 3, message_ratio_bits, arcsine, method, cache_bytes })
}
