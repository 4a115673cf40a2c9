//! What differs between the back ends with a dealer beside the [`Scheme`]: what is dealt, what it
//! costs, and how both parties use it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tacit_arith::prg::Seed;
use tacit_mpc::{Role, Session};
use zeroize::Zeroizing;

use super::half::{HalfBytes, HalfDigest, StoredHalf};
use super::masked_weights::MaskedWeights;
use super::plan::{Plan, Scheme};
use super::source::{Sink, Source};
use tacit_backend_api::seam::Stop;
use tacit_backend_api::{BackendError, Costs};
use tacit_ring::{RingGraph, Weights};
use tacit_two_party::cheetah::linear::{ClientKeys, ServerKeys};

pub(crate) trait Costed: Scheme {
    /// The costs of a plan's inputs, of the setup, and of dealing.
    fn costs(plan: &Plan<Self>) -> Costs;
    /// The price that the search for scales minimises.
    ///
    /// # Errors
    /// The graph cannot be compiled.
    fn price(graph: &RingGraph, options: &Self::Options) -> Result<f64, BackendError>;
    /// Estimate of the memory for making the client's half, in bytes.
    fn client_dealing_memory(plan: &Plan<Self>) -> u64;
}

/// A kind of correlated randomness that a dealer makes.
pub(crate) trait Correlation: Costed {
    /// The digests that the public part states, that of `E` first.
    type Stated: AsRef<[[u8; 32]]> + Copy + PartialEq + Serialize + DeserializeOwned + Send + Sync;
    /// Whether a client streams large material to disk.
    const CLIENT_SPOOLS: bool;

    /// Computes the digests from that of `E`, and the dealer's part of the model.
    fn stated(masked_weights: [u8; 32], dealer_part: &[u8]) -> Self::Stated;
    /// Lengths of a party's half.
    fn half_bytes(plan: &Plan<Self>, role: Role) -> HalfBytes;
    /// Starts the digest at the end of a party's half.
    fn half_digest(_: &Plan<Self>, _: Role) -> HalfDigest {
        HalfDigest::default()
    }
    /// The error of stored material of another length.
    fn wrong_length(_: Role, bytes: u64, expected: u64) -> BackendError {
        BackendError::Material { what: format!("{bytes} bytes, {expected} expected") }
    }
    /// Makes a party's half in pieces. `keys`: of the masked layers, in node order; the client's
    /// half needs none.
    ///
    /// # Errors
    /// Errors of `sink`.
    fn deal(
        role: Role,
        plan: &Plan<Self>,
        keys: &[Seed],
        dealing: &Seed,
        sink: &mut Sink<'_>,
    ) -> Result<(), BackendError>;
}

/// What every phase of a connection gets.
pub(crate) struct Run<'a, 's, C: Scheme> {
    pub(crate) plan: &'a Plan<C>,
    pub(crate) session: &'a mut Session<'s>,
    pub(crate) stop: &'a Stop,
}

pub(crate) struct ClientOffline<'a> {
    pub(crate) masked_weights: &'a MaskedWeights,
    /// Keys for layers that use lattices.
    pub(crate) keys: Option<&'a ClientKeys>,
    pub(crate) head: &'a [u8],
}

pub(crate) struct ServerOffline<'a> {
    pub(crate) weights: &'a Weights,
    /// Keys of the masked layers, in node order.
    pub(crate) keys: &'a [Seed],
    /// The client's keys for layers that use lattices.
    pub(crate) client_keys: Option<&'a ServerKeys>,
    /// The half, checked.
    pub(crate) half: Source<'a>,
    pub(crate) sink: &'a mut Sink<'a>,
}

/// The client's phases. Errors are those of the channel, of the material, and of a peer that
/// deviates.
pub(crate) trait ClientPhases: Correlation {
    /// Returns what the client stores after its half.
    fn offline(run: Run<'_, '_, Self>, inputs: ClientOffline<'_>) -> Result<Zeroizing<Vec<u8>>, BackendError>;
    /// Returns the integers of the output node for those of the input node.
    fn online(run: Run<'_, '_, Self>, half: StoredHalf<'_>, input: &[i64]) -> Result<Vec<i64>, BackendError>;
}

/// The server's phases. Errors are as those of [`ClientPhases`].
pub(crate) trait ServerPhases: Correlation {
    /// Turns the server's half into material, which goes to the inputs' sink.
    fn offline(run: Run<'_, '_, Self>, inputs: ServerOffline<'_>) -> Result<(), BackendError>;
    /// Runs the online phase, at whose end the client has the result.
    fn online(run: Run<'_, '_, Self>, half: StoredHalf<'_>, weights: &Weights) -> Result<(), BackendError>;
}
