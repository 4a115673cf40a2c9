//! The interface of every back end.
//!
//! A [`Backend`] lowers the owner's float model to a public part for clients and a private part for the
//! server. A [`ServerModel`] and a [`ClientModel`] are made from these parts and shared by all connections.
//! [`ServerSide`] and [`ClientSide`] hold one connection's state. Sides run the phases on a given channel:
//! `setup` once, `offline` per input without knowing the input, `online` with the input. Code outside a back
//! end names no protocol.
//!
//! A back end whose phases wait on the link runs a **batch** of B inputs as one offline and one online phase,
//! with the exchanges of one input ([`Plan::max_batch`]). A batch has a model of its own
//! ([`ServerModel::batched`], [`ClientModel::batched`]): costs are the batch's and the digest names B. A
//! batch's material is made, stored, claimed and burnt as one. Connections change the batch size with the
//! same keys ([`ServerSide::set_batch`], [`ClientSide::set_batch`]).

mod batch;
mod dealing;
mod keeping;
mod kinds;
mod material;
mod once;
mod options;
mod spool;
mod stop;
pub mod version;

use rayon::prelude::*;
use std::fmt;
use std::io::Read;
use std::sync::Arc;

use tacit_arith::prg::Prg;
use tacit_graph::float::FloatOp;
use tacit_graph::{Interface, Model, Watch};
use tacit_net::Channel;
use zeroize::Zeroizing;

pub use batch::{ONE_BY_ONE, batch_digest, checked_batch, most_inputs};
pub use dealing::{
    Claim, Commitment, ConnectionResources, Dealer, DealerModel, KeyStore, Order, Piece, Place, Seal, Ticket,
    commitment, fresh_seed,
};
pub use keeping::{NoRoom, Secrets, UploadName, Uploads};
pub use kinds::{Benchmarks, Preparation, Setup, Support, Trust};
pub use material::{Material, MaterialPart, check_made_for, write as write_material};
use material::{read_whole, write_whole};
pub use once::MaterialSeed;
pub use options::{Options, Reader, within};
pub use spool::{Chunks, MaterialPlace, Spool, Spools};
pub use stop::{Stop, Wait};
pub use tacit_arith::prg::Seed;

use crate::{BackendError, Costs, Numerics, Result};

/// Largest public part in bytes, for writers and for clients.
pub const MAX_PUBLIC_BYTES: u64 = 64 << 20;

/// A cryptographic back end. Object-safe.
pub trait Backend: Send + Sync {
    /// The back end's name, such as `cheetah`: lower case letters, digits and `-`.
    fn id(&self) -> &'static str;

    /// One line of description for people.
    fn about(&self) -> &'static str;

    /// The parties that its users trust.
    fn trust(&self) -> Trust;

    /// Whether a server keeps a client's keys, so that the client is best placed where they lie.
    fn keeps_keys(&self) -> bool {
        false
    }

    /// How far it computes an operation of a float model.
    fn support(&self, _: &FloatOp) -> Support {
        Support::Full
    }

    /// The networks whose runs show its costs.
    fn benchmarks(&self) -> Benchmarks {
        Benchmarks::COMPARING
    }

    /// Lowers the owner's model.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] names the first node that cannot be lowered and what would help;
    /// [`BackendError::Option`] an option that is unknown or out of range.
    fn lower(&self, model: &Model, options: &Options) -> Result<Arc<dyn ServerModel>> {
        self.lower_watched(model, options, &Watch::default())
    }

    /// As [`lower`](Self::lower), with progress to `watch`.
    ///
    /// # Errors
    /// As [`lower`](Self::lower); [`GraphError::Interrupted`](tacit_graph::GraphError::Interrupted) if
    /// `watch` interrupts.
    fn lower_watched(&self, model: &Model, options: &Options, watch: &Watch) -> Result<Arc<dyn ServerModel>>;

    /// Loads the server's model from earlier [`ServerModel::public_bytes`] and
    /// [`ServerModel::private_bytes`].
    ///
    /// # Errors
    /// [`BackendError::Public`] or [`BackendError::Private`] say what is wrong with the bytes.
    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>>;

    /// Opens the client's model from the public part, which is untrusted bytes.
    ///
    /// # Errors
    /// [`BackendError::Public`], or the errors of [`lower`](Self::lower) for such a model.
    fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>>;

    /// Opens the dealer's model from untrusted bytes: public part and dealer's part ([`Order`]).
    ///
    /// # Errors
    /// As [`open`](Self::open); [`BackendError::Private`] for the dealer's part;
    /// [`BackendError::Dealer`] if this back end uses no dealer.
    fn open_dealer(&self, _: &[u8], _: &[u8]) -> Result<Arc<dyn DealerModel>> {
        Err(BackendError::Dealer { what: format!("nobody deals for the back end {}", self.id()) })
    }
}

/// The public properties of a lowered model, known to both parties.
pub trait Plan: Send + Sync {
    /// Shapes and meaning of inputs and outputs.
    fn interface(&self) -> &Interface;

    /// Digest of what both parties must have alike: public part, options, and the plan made from them, in
    /// canonical bytes. Material is bound to it.
    fn digest(&self) -> [u8; 32];

    /// Costs of the phases, for [`batch`](Self::batch) inputs at once.
    fn costs(&self) -> Costs;

    /// Number of inputs of one offline and one online phase of this model.
    fn batch(&self) -> usize {
        1
    }

    /// Most inputs that the back end runs as one batch; 1 where batches save no exchange.
    fn max_batch(&self) -> usize {
        1
    }

    /// How answers relate to [`ServerModel::reference`].
    fn numerics(&self) -> Numerics;

    /// Largest `|answer - reference|` of an honest run for the outputs `reference` (real units).
    fn error_bound(&self, reference: &[f64]) -> f64;

    /// Checks that the client may accept these outputs as an answer of the model.
    ///
    /// # Errors
    /// [`BackendError::Answer`] if the outputs lie outside the range of answers.
    fn check_answer(&self, _answer: &[f64]) -> Result<()> {
        Ok(())
    }

    /// The origin of material.
    fn preparation(&self) -> Preparation;

    /// The keys that a connection needs, and before which phase.
    fn setup(&self) -> Setup;

    /// The real number of one unit in an answer's last place; `None` without integer answers.
    fn output_unit(&self) -> Option<f64>;

    /// The real number of one input step, after normalisation; `None` if inputs are not rounded.
    fn input_unit(&self) -> Option<f64> {
        None
    }

    /// Describes the public part for people and scripts, as `model inspect` prints it.
    fn describe(&self) -> serde_json::Value;
}

/// A lowered model at the server. All connections share one copy of the weights.
pub trait ServerModel: Plan {
    /// The public part, for clients.
    fn public_bytes(&self) -> &[u8];

    /// The private part, which stays at the server.
    ///
    /// # Errors
    /// The private part exceeds what [`Backend::load`] reads.
    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>>;

    /// The findings of the lowering, for the model's owner; `None` for a loaded model.
    fn report(&self) -> Option<&dyn LoweringReport>;

    /// The expected answer, computed in the clear, for an input of shape `interface().input_shape` after the
    /// client's normalisation. Compare runs by [`Plan::error_bound`].
    ///
    /// # Errors
    /// The input does not fit the model.
    fn reference(&self, input: &[f32]) -> Result<Vec<f64>>;

    /// An answer as a run may give it: the [`reference`](Self::reference), with estimated errors of
    /// approximate arithmetic.
    ///
    /// # Errors
    /// The input does not fit the model.
    fn simulate(&self, input: &[f32]) -> Result<Vec<f64>> {
        self.reference(input)
    }

    /// How near each tensor comes to its computation's limit for an input; empty without limits.
    ///
    /// # Errors
    /// The input does not fit the model.
    fn strain(&self, _: &[f32]) -> Result<Vec<Strain>> {
        Ok(Vec::new())
    }

    /// Advice for owners whose tensors exceed their limits, in words that follow "lower".
    fn remedy(&self) -> String {
        "with `-O clamp=true`".into()
    }

    /// Runs [`simulate`](Self::simulate) and [`strain`](Self::strain) for many inputs.
    ///
    /// # Errors
    /// An input does not fit the model.
    fn rehearse(&self, inputs: &[&[f32]]) -> Result<Vec<DryRun>> {
        let runs = inputs.par_iter();
        runs.map(|input| Ok(DryRun { answer: self.simulate(input)?, strains: self.strain(input)? })).collect()
    }

    /// The same model with phases for `batch` inputs at once, 2 to [`Plan::max_batch`].
    ///
    /// # Errors
    /// [`BackendError::Misuse`] if `batch` is more than the back end runs as one.
    fn batched(&self, _batch: usize) -> Result<Arc<dyn ServerModel>> {
        Err(ONE_BY_ONE)
    }

    /// The order that a dealer gets; `None` if the back end uses no dealer.
    fn order(&self) -> Option<Order<'_>> {
        None
    }

    /// Bytes of material that is better streamed to disk ([`ServerSide::offline_into`]); `None` if it is made
    /// as a whole.
    fn spooled_bytes(&self) -> Option<u64> {
        None
    }

    /// Frees idle memory: keys without a connection, and buffers kept for the next run.
    fn free_idle_memory(&self) {}

    /// Creates the state of a new connection. Sends nothing to the peer.
    ///
    /// # Errors
    /// No randomness from the operating system.
    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ServerSide>>;
}

/// The result of [`ServerModel::rehearse`] for one input.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    /// An answer as a run may give it.
    pub answer: Vec<f64>,
    /// How near each tensor came to its limit.
    pub strains: Vec<Strain>,
}

/// How near a tensor comes to the limit of its computation.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Strain {
    /// Name of the node that outputs the tensor.
    pub node: String,
    /// The tensor's largest magnitude over the smallest one that overflows: 1 or more is an overflow.
    pub share: f64,
}

/// A lowering's report to the model's owner, as text and as JSON.
pub trait LoweringReport: fmt::Display + Send + Sync {
    /// The report for scripts.
    fn json(&self) -> serde_json::Value;
    /// Warnings that the owner should read.
    fn warnings(&self) -> &[String];
}

/// A lowered model at the client.
pub trait ClientModel: Plan {
    /// See [`ServerModel::batched`].
    fn batched(&self, _batch: usize) -> Result<Arc<dyn ClientModel>> {
        Err(ONE_BY_ONE)
    }

    /// See [`ServerModel::spooled_bytes`].
    fn spooled_bytes(&self) -> Option<u64> {
        None
    }

    /// Name and value of a lowering option that removes a protection of the client, if one is set. Clients
    /// accept such a model only on request.
    fn waives(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// See [`ServerModel::connect`].
    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ClientSide>>;
}

/// One connection's state at the server. After an error, state and channel are unusable.
pub trait ServerSide: Send {
    /// Sets up keys and other state of the client.
    ///
    /// # Errors
    /// Errors of the protocol or the channel.
    fn setup(&mut self, channel: &mut Channel) -> Result<()>;

    /// Sets the batch size of later phases and of material that is read. Sends nothing: the peer has to call
    /// this too.
    ///
    /// # Errors
    /// [`BackendError::Misuse`] if `batch` is more than the back end runs as one.
    fn set_batch(&mut self, batch: usize) -> Result<()> {
        if batch == 1 { Ok(()) } else { Err(ONE_BY_ONE) }
    }

    /// Makes material for one input, or for a batch.
    ///
    /// # Errors
    /// As [`setup`](Self::setup); [`BackendError::Misuse`] before the setup, or if there is nothing to
    /// prepare.
    fn offline(&mut self, channel: &mut Channel) -> Result<Material>;

    /// As [`offline`](Self::offline), but streams the material to `place`:
    /// [`ServerModel::spooled_bytes`] bytes.
    ///
    /// # Errors
    /// As [`offline`](Self::offline); [`BackendError::Spool`] if `place` fails.
    fn offline_into(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<()> {
        write_whole(&self.offline(channel)?, place)
    }

    /// Runs one inference, or those of a batch.
    ///
    /// # Errors
    /// As [`setup`](Self::setup). The material is spent even after an error.
    fn online(&mut self, channel: &mut Channel, material: Material) -> Result<()>;

    /// Reads stored material.
    ///
    /// # Errors
    /// [`BackendError::Material`] if the bytes do not fit the plan.
    fn read_material(&self, bytes: &[u8]) -> Result<Material>;

    /// Opens stored material of `bytes` bytes, for the online phase to read from `source`.
    ///
    /// # Errors
    /// As [`read_material`](Self::read_material).
    fn spooled_material(&self, bytes: u64, source: Box<dyn Read + Send>) -> Result<Material> {
        self.read_material(&read_whole(bytes, source)?)
    }
}

/// One connection's state at the client. After an error, state and channel are unusable.
pub trait ClientSide: Send {
    /// See [`ServerSide::setup`].
    fn setup(&mut self, channel: &mut Channel) -> Result<()>;

    /// See [`ServerSide::set_batch`].
    fn set_batch(&mut self, batch: usize) -> Result<()> {
        if batch == 1 { Ok(()) } else { Err(ONE_BY_ONE) }
    }

    /// See [`ServerSide::offline`].
    fn offline(&mut self, channel: &mut Channel) -> Result<Material>;

    /// See [`ServerSide::offline_into`].
    fn offline_into(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<()> {
        write_whole(&self.offline(channel)?, place)
    }

    /// As [`offline`](Self::offline), with the client's random choices derived from `seed`. Returns the
    /// material without these choices, for [`with_seed`](Self::with_seed).
    ///
    /// # Errors
    /// As [`offline`](Self::offline); [`BackendError::Misuse`] if the back end's material uses no seed.
    fn offline_from(&mut self, _: &mut Channel, _: MaterialSeed) -> Result<Zeroizing<Vec<u8>>> {
        Err(NO_SEED)
    }

    /// Puts together material from a seed and what [`offline_from`](Self::offline_from) returned for it,
    /// maybe on another connection or machine.
    ///
    /// # Errors
    /// [`BackendError::Material`] if the bytes do not fit; [`BackendError::Misuse`] if no seed is used.
    fn with_seed(&self, _: MaterialSeed, _rest: &[u8]) -> Result<Material> {
        Err(NO_SEED)
    }

    /// Computes the real-valued outputs for an input that `interface().check_input` accepts; in mode top-1
    /// the class index. Inputs and outputs of a batch are concatenated.
    ///
    /// # Errors
    /// As [`ServerSide::online`]; [`BackendError::Graph`] before anything is sent, if the input does not fit;
    /// [`BackendError::Answer`] after a complete protocol run, so that the connection stays usable.
    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>>;

    /// See [`ServerSide::read_material`].
    fn read_material(&self, bytes: &[u8]) -> Result<Material>;

    /// See [`ServerSide::spooled_material`].
    fn spooled_material(&self, bytes: u64, source: Box<dyn Read + Send>) -> Result<Material> {
        self.read_material(&read_whole(bytes, source)?)
    }
}

const NO_SEED: BackendError = BackendError::Misuse("the client's material of this back end follows from no seed");

/// Creates a generator for one connection or model.
///
/// # Errors
/// [`BackendError::Random`] if the operating system gives no random bytes.
pub fn randomness() -> Result<Prg> {
    Prg::from_os().map_err(|e| BackendError::Random(e.to_string()))
}

/// Digest of canonical bytes: each part is preceded by its length, and `domain` separates uses.
#[must_use]
pub fn digest(domain: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(domain);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_part_lengths_and_domain() {
        assert_ne!(digest("a", &[b"xy", b"z"]), digest("a", &[b"x", b"yz"]));
        assert_ne!(digest("a", &[b"x"]), digest("b", &[b"x"]));
    }
}
