//! The properties that tell back ends apart for their users.
#[cfg(doc)]
use crate::Costs;

/// Whom a user must trust, beside the assumptions of the cryptography.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Client and server must each follow the protocol. No third party is involved.
    TwoParty,
    /// A third party makes material. This dealer must not work with client or server.
    Dealer,
    /// The server sees the input. Not private; served only where allowed by name.
    ServerSeesInput,
}

/// The origin of the material for one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preparation {
    /// Both parties make the material together, bound to the client.
    TwoParty,
    /// A third party makes the material, which may be pooled and is bound when it is claimed.
    Dealt,
    /// The offline phase makes no material.
    Nothing,
}

/// The setup that a connection needs, and the phase that it precedes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setup {
    /// Nothing.
    Nothing,
    /// Keys before the first offline phase. A connection that uses only stored material needs none.
    BeforeOffline,
    /// Keys before the first online phase. The keys' size is that of the setup's upload, see [`Costs`].
    BeforeOnline,
}

/// How far a back end computes an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Computed, up to the errors of the numerics.
    Full,
    /// Approximated on the range of its argument; refused if no approximation is near enough.
    Approximate,
    /// Refused; the refusal names a back end that has it.
    Missing,
}

/// Networks of the zoo that show the costs of a back end: of different sizes, and different mixtures of
/// linear layers and activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Benchmarks {
    /// All of them.
    pub all: &'static [&'static str],
    /// Those that take less than a minute.
    pub quick: &'static [&'static str],
}

impl Benchmarks {
    /// Networks with comparisons.
    pub const COMPARING: Self = Self {
        all: &["tiny-cnn", "minionn-mlp", "lenet", "hinet-mnist", "m2", "minionn-cifar", "resnet32", "squeezenet1.1"],
        quick: &["tiny-cnn", "minionn-mlp", "lenet", "minionn-cifar"],
    };
    /// Networks without comparisons, for back ends on encrypted numbers, which need a bootstrap for others.
    pub const SQUARING: Self = Self { all: SQUARES, quick: SQUARES };
}

const SQUARES: &[&str] = &["tiny-square", "square-mlp", "square-cnn"];
