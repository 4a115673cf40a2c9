//! The largest secure modulus by degree and secret.

/// Distribution of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Secret {
    /// Coefficients uniform in -1, 0, 1.
    Ternary,
    /// [`SPARSE_WEIGHT`](super::SPARSE_WEIGHT) coefficients 1 or -1, all others 0.
    Sparse,
}

/// Degree and most bits of the modulus for 128 bits of classical security, with a uniform ternary
/// secret and errors of deviation 3.19: [BCCC24]. Each row is below the older standard ([HES18]:
/// 109, 218, 438, 881), which has none for 2^16.
const TERNARY: [(usize, u32); 5] = [(1 << 12, 106), (1 << 13, 214), (1 << 14, 430), (1 << 15, 868), (1 << 16, 1747)];

/// As [`TERNARY`] for a secret of weight 32: 121 bits at 2^16 ([BTH22]); at 2^15 no more than was
/// counted (`docs/parameters.md`: the lattice estimator's hybrid attacks, and a count of our own).
const SPARSE: [(usize, u32); 2] = [(1 << 15, 95), (1 << 16, 121)];

/// The largest secure modulus in bits; 0 if there is none.
pub fn max_modulus_bits(degree: usize, secret: Secret) -> u32 {
    let table: &[(usize, u32)] = match secret {
        Secret::Ternary => &TERNARY,
        Secret::Sparse => &SPARSE,
    };
    table.iter().find(|(n, _)| *n == degree).map_or(0, |&(_, bits)| bits)
}

/// One kind of key or ciphertext: its modulus and the secret that hides it.
#[derive(Clone, PartialEq, Debug)]
pub struct SecurityCheck {
    /// Name of the kind.
    pub what: String,
    /// The secret of the encryption.
    pub secret: Secret,
    /// Bits of the modulus.
    pub modulus_log2: f64,
    /// [`max_modulus_bits`].
    pub max: u32,
}

impl SecurityCheck {
    /// Whether the modulus is small enough.
    pub fn holds(&self) -> bool {
        self.modulus_log2 <= f64::from(self.max)
    }
}
