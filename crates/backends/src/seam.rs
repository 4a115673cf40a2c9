//! The seam: what a back end is to everybody else.
//!
//! A [`Backend`] lowers the owner's float model to a form of its own: a public part, which clients get, and a
//! private part, which stays with the server. From these come a [`ServerModel`] and a [`ClientModel`], shared
//! by any number of connections, and from each of them the state of one connection at one party
//! ([`ServerSide`], [`ClientSide`]), which runs the phases on a channel that it is given: `setup` once,
//! `offline` per input without knowing it, `online` with it. Nobody outside of a back end names a protocol.
//!
//! A back end whose phases wait on the link runs a **batch** of B inputs as one offline and one online phase,
//! with the exchanges of one input ([`Plan::max_batch`]). That is a model of its own
//! ([`ServerModel::batched`], [`ClientModel::batched`]): its costs are the batch's, its digest names B, and
//! so its material is made, kept, claimed and burnt as one. Connections go from one size to another and keep
//! their keys ([`ServerSide::set_batch`], [`ClientSide::set_batch`]).

mod batch;
mod dealing;
mod keeping;
mod material;
mod once;
mod options;
mod spool;
mod stop;
pub(crate) mod version;

use rayon::prelude::*;
use std::fmt;
use std::io::Read;
use std::sync::Arc;

use tacit_arith::prg::Prg;
use tacit_graph::{Interface, Model, Watch};
use tacit_net::Channel;
use zeroize::Zeroizing;

pub use batch::batch_digest;
pub(crate) use batch::{ONE_BY_ONE, checked_batch, most_inputs};
pub use dealing::{
    Claim, Commitment, ConnectionResources, Dealer, DealerModel, KeyStore, Order, Piece, Place, Seal, Ticket,
    commitment, fresh_seed,
};
pub use keeping::{NoRoom, Secrets, UploadName, Uploads};
pub use material::{Material, MaterialPart};
pub(crate) use material::{check_made_for, write as write_material};
use material::{read_whole, write_whole};
pub use once::MaterialSeed;
pub use options::{Options, Reader, within};
pub(crate) use spool::Chunks;
pub use spool::{MaterialPlace, Spool, Spools};
pub use stop::{Stop, Wait};
pub use tacit_arith::prg::Seed;

use crate::{BackendError, Costs, Numerics};

/// Largest public part of a lowering, in bytes: what is written, and what a client accepts from a server.
pub const MAX_PUBLIC_BYTES: u64 = 64 << 20;

/// Whom a user of a back end must trust, beside the assumptions of its cryptography.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Client and server each follow the protocol; neither needs anybody else.
    TwoParty,
    /// A third party that makes material and works with neither of them.
    Dealer,
    /// The server sees the input: no private inference, a lower bound to compare with. Served only where that
    /// is allowed by name.
    ServerSeesInput,
}

/// Where the material for one input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preparation {
    /// Both parties make it together; it is bound to the client.
    TwoParty,
    /// A third party makes it; it may be pooled and is bound when it is claimed.
    Dealt,
    /// There is nothing to prepare.
    Nothing,
}

/// What has to be set up on a connection, and before which phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setup {
    /// Nothing.
    Nothing,
    /// Keys before the first offline phase; a connection that only uses stored material needs none.
    BeforeOffline,
    /// Keys before the first online phase (their size is that of the setup's upload, see [`Costs`]).
    BeforeOnline,
}

/// A cryptographic back end. Object-safe: [`crate::Registry`] holds them all.
pub trait Backend: Send + Sync {
    /// Its name: `cheetah`. Lower case letters, digits and `-`.
    fn id(&self) -> &'static str;

    /// One line for people.
    fn about(&self) -> &'static str;

    /// Whom its users trust.
    fn trust(&self) -> Trust;

    /// Lowers the owner's model.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] names the first node that cannot be lowered and what would help;
    /// [`BackendError::Option`] an option that is unknown or out of range.
    fn lower(&self, model: &Model, options: &Options) -> Result<Arc<dyn ServerModel>, BackendError> {
        self.lower_watched(model, options, &Watch::default())
    }

    /// As [`lower`](Self::lower), telling `watch` how far it is.
    ///
    /// # Errors
    /// As [`lower`](Self::lower); [`GraphError::Interrupted`](tacit_graph::GraphError::Interrupted) as the
    /// cause if `watch` wants it to end.
    fn lower_watched(
        &self,
        model: &Model,
        options: &Options,
        watch: &Watch,
    ) -> Result<Arc<dyn ServerModel>, BackendError>;

    /// The server's model from parts that [`ServerModel::public_bytes`] and [`ServerModel::private_bytes`]
    /// gave earlier.
    ///
    /// # Errors
    /// [`BackendError::Public`] or [`BackendError::Private`] say what is wrong with the bytes.
    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError>;

    /// The client's model from the public part: bytes of a stranger.
    ///
    /// # Errors
    /// [`BackendError::Public`], or what [`lower`](Self::lower) would say of such a model.
    fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError>;

    /// The dealer's model from the public part and the dealer's ([`Order`]): bytes of a stranger.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`BackendError::Private`] for the dealer's part; [`BackendError::Dealer`] if
    /// nobody deals for this back end.
    fn dealing(&self, _: &[u8], _: &[u8]) -> Result<Arc<dyn DealerModel>, BackendError> {
        Err(BackendError::Dealer { what: format!("nobody deals for the back end {}", self.id()) })
    }
}

/// What both parties know of a lowered model.
pub trait Plan: Send + Sync {
    /// Inputs and outputs.
    fn interface(&self) -> &Interface;

    /// Digest of all that both parties must have alike: public part, options, and the plan made from them, in
    /// canonical bytes. Material is bound to it.
    fn digest(&self) -> [u8; 32];

    /// What the phases cost, for [`batch`](Self::batch) inputs at once.
    fn costs(&self) -> Costs;

    /// Inputs that one offline and one online phase of this model are for.
    fn batch(&self) -> usize {
        1
    }

    /// Most inputs that the back end runs as one; 1 where that saves no exchange.
    fn max_batch(&self) -> usize {
        1
    }

    /// How answers relate to [`ServerModel::reference`].
    fn numerics(&self) -> Numerics;

    /// Largest `|answer - reference|` of an honest run, where the reference gives `reference` (real units).
    fn error_bound(&self, reference: &[f64]) -> f64;

    /// Whether a client takes these outputs for an answer of the model.
    ///
    /// # Errors
    /// [`BackendError::Answer`]: they lie where no answer lies.
    fn check_answer(&self, _answer: &[f64]) -> Result<(), BackendError> {
        Ok(())
    }

    /// Where material comes from.
    fn preparation(&self) -> Preparation;

    /// What a connection needs before it can be used.
    fn setup(&self) -> Setup;

    /// The real number that one unit in the last place of an answer stands for; `None` where answers are no
    /// integers.
    fn output_unit(&self) -> Option<f64>;

    /// The real number that one step of an input stands for, after the client's normalisation; `None` where
    /// inputs are not rounded to steps.
    fn input_unit(&self) -> Option<f64> {
        None
    }

    /// The public part for people and scripts: `model inspect`.
    fn describe(&self) -> serde_json::Value;
}

/// A lowered model at the server. One copy of the weights, however many connections use it.
pub trait ServerModel: Plan {
    /// What a client gets.
    fn public_bytes(&self) -> &[u8];

    /// What stays at the server, to be stored beside the public part.
    ///
    /// # Errors
    /// It exceeds what [`Backend::load`] reads.
    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError>;

    /// What the lowering found, for the model's owner; `None` for a model that was loaded.
    fn report(&self) -> Option<&dyn LoweringReport>;

    /// The answer that a run should give for a real-valued input (`interface().input_shape`, after the
    /// client's normalisation), in the clear: compare with [`Plan::error_bound`].
    ///
    /// # Errors
    /// The input does not fit the model.
    fn reference(&self, input: &[f32]) -> Result<Vec<f64>, BackendError>;

    /// An answer as a run may give it: the [`reference`](Self::reference) with the errors of approximate
    /// arithmetic drawn by their estimates, where there are any.
    ///
    /// # Errors
    /// The input does not fit the model.
    fn simulate(&self, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        self.reference(input)
    }

    /// How near each tensor comes to the limit of what computes it, for such an input; empty where there are
    /// no limits.
    ///
    /// # Errors
    /// The input does not fit the model.
    fn strain(&self, _: &[f32]) -> Result<Vec<Strain>, BackendError> {
        Ok(Vec::new())
    }

    /// What its owner lowers with where tensors come beyond their limits: the part of a sentence that follows
    /// "lower".
    fn remedy(&self) -> String {
        "with `-O clamp=true`".into()
    }

    /// An answer as [`simulate`](Self::simulate) gives it and the [`strain`](Self::strain) on the way, for
    /// each of many inputs: quicker than one by one.
    ///
    /// # Errors
    /// An input does not fit the model.
    fn rehearse(&self, inputs: &[&[f32]]) -> Result<Vec<DryRun>, BackendError> {
        let one = |input: &&[f32]| Ok(DryRun { answer: self.simulate(input)?, strains: self.strain(input)? });
        inputs.par_iter().map(one).collect()
    }

    /// The same model with phases for `batch` inputs at once, 2 to [`Plan::max_batch`].
    ///
    /// # Errors
    /// [`BackendError::Misuse`]: so many it does not run as one.
    fn batched(&self, _batch: usize) -> Result<Arc<dyn ServerModel>, BackendError> {
        Err(ONE_BY_ONE)
    }

    /// What is ordered from a dealer; `None` where nobody deals.
    fn order(&self) -> Option<Order<'_>> {
        None
    }

    /// Bytes of material that is better written to disk as it comes than held in memory
    /// ([`ServerSide::offline_into`]); `None` where it comes as a whole.
    fn spooled_bytes(&self) -> Option<u64> {
        None
    }

    /// Lets go of what a rehearsal leaves: keys that no connection uses, memory kept for the next run.
    fn rest(&self) {}

    /// The state of a new connection. Says nothing to the peer.
    ///
    /// # Errors
    /// No randomness from the operating system.
    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ServerSide>, BackendError>;
}

/// What [`ServerModel::rehearse`] finds for an input.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    /// An answer as a run may give it.
    pub answer: Vec<f64>,
    /// How near each tensor came to its limit.
    pub strains: Vec<Strain>,
}

/// How near a tensor comes to the limit of what computes it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Strain {
    /// Name of the node that makes it.
    pub node: String,
    /// Its largest magnitude as a share of the smallest that is computed wrongly: from 1 on it overflows.
    pub share: f64,
}

/// What a lowering tells the model's owner, as text and as JSON.
pub trait LoweringReport: fmt::Display + Send + Sync {
    /// The same for scripts.
    fn json(&self) -> serde_json::Value;
    /// Sentences that the owner should not miss.
    fn warnings(&self) -> &[String];
}

/// A lowered model at the client.
pub trait ClientModel: Plan {
    /// See [`ServerModel::batched`].
    ///
    /// # Errors
    /// As there.
    fn batched(&self, _batch: usize) -> Result<Arc<dyn ClientModel>, BackendError> {
        Err(ONE_BY_ONE)
    }

    /// See [`ServerModel::spooled_bytes`].
    fn spooled_bytes(&self) -> Option<u64> {
        None
    }

    /// An option that it was lowered with and that leaves out what protects its client, by name and value:
    /// for those alone that ask for it.
    fn waives(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// The state of a new connection. Says nothing to the peer.
    ///
    /// # Errors
    /// No randomness from the operating system.
    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ClientSide>, BackendError>;
}

/// One connection's state at the server. After an error of a phase it is of no further use, and so is the
/// channel.
pub trait ServerSide: Send {
    /// Keys and whatever else belongs to a client and not to an input.
    ///
    /// # Errors
    /// Of the protocol or the channel.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError>;

    /// Phases from now on, and material that is read, are for `batch` inputs: those of the model that
    /// [`ServerModel::batched`] gives for it. Says nothing to the peer, which has to do the same.
    ///
    /// # Errors
    /// [`BackendError::Misuse`]: so many it does not run as one.
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        if batch == 1 { Ok(()) } else { Err(ONE_BY_ONE) }
    }

    /// Material for one input, or for a batch.
    ///
    /// # Errors
    /// As [`setup`](Self::setup); [`BackendError::Misuse`] before it, or where there is nothing to prepare.
    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError>;

    /// As [`offline`](Self::offline), with the material's bytes written to `place` as they come:
    /// [`ServerModel::spooled_bytes`] of them.
    ///
    /// # Errors
    /// As there; [`BackendError::Spool`] if `place` fails.
    fn offline_into(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<(), BackendError> {
        write_whole(&self.offline(channel)?, place)
    }

    /// One inference, or those of a batch.
    ///
    /// # Errors
    /// As [`setup`](Self::setup); the material is spent in any case.
    fn online(&mut self, channel: &mut Channel, material: Material) -> Result<(), BackendError>;

    /// Material that was stored.
    ///
    /// # Errors
    /// [`BackendError::Material`]: the bytes do not fit the plan.
    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError>;

    /// Material of `bytes` bytes that was stored, and is read as it is used.
    ///
    /// # Errors
    /// As [`read_material`](Self::read_material).
    fn spooled_material(&self, bytes: u64, source: Box<dyn Read + Send>) -> Result<Material, BackendError> {
        self.read_material(&read_whole(bytes, source)?)
    }
}

/// One connection's state at the client. After an error of a phase it is of no further use, and so is the
/// channel.
pub trait ClientSide: Send {
    /// See [`ServerSide::setup`].
    ///
    /// # Errors
    /// As there.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError>;

    /// See [`ServerSide::set_batch`].
    ///
    /// # Errors
    /// As there.
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        if batch == 1 { Ok(()) } else { Err(ONE_BY_ONE) }
    }

    /// See [`ServerSide::offline`].
    ///
    /// # Errors
    /// As there.
    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError>;

    /// See [`ServerSide::offline_into`].
    ///
    /// # Errors
    /// As there.
    fn offline_into(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<(), BackendError> {
        write_whole(&self.offline(channel)?, place)
    }

    /// As [`offline`](Self::offline) for whose material `seed` is given: all that the client chooses of it
    /// follows from the seed. The bytes are the material without that; [`with_seed`](Self::with_seed) puts
    /// both together.
    ///
    /// # Errors
    /// As there; [`BackendError::Misuse`]: this back end's material follows from no seed.
    fn offline_from(&mut self, _: &mut Channel, _: MaterialSeed) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        Err(NO_SEED)
    }

    /// The material that a seed makes with what [`offline_from`](Self::offline_from) gave for it, here or
    /// elsewhere.
    ///
    /// # Errors
    /// [`BackendError::Material`]: the bytes do not fit the plan; [`BackendError::Misuse`] as there.
    fn with_seed(&self, _: MaterialSeed, _rest: &[u8]) -> Result<Material, BackendError> {
        Err(NO_SEED)
    }

    /// The model's real-valued outputs for a real-valued input that `interface().check_input` accepts; in
    /// mode top-1 the class index. Inputs and outputs of a batch stand one behind the other.
    ///
    /// # Errors
    /// As [`ServerSide::online`]; [`BackendError::Graph`] for an input that does not fit, before anything is
    /// sent; [`BackendError::Answer`] after the protocol has ended as it should: both parties can go on.
    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError>;

    /// See [`ServerSide::read_material`].
    ///
    /// # Errors
    /// As there.
    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError>;

    /// See [`ServerSide::spooled_material`].
    ///
    /// # Errors
    /// As there.
    fn spooled_material(&self, bytes: u64, source: Box<dyn Read + Send>) -> Result<Material, BackendError> {
        self.read_material(&read_whole(bytes, source)?)
    }
}

const NO_SEED: BackendError = BackendError::Misuse("the client's material of this back end follows from no seed");

/// Randomness of the operating system, for one connection or model.
///
/// # Errors
/// [`BackendError::Random`].
pub(crate) fn randomness() -> Result<Prg, BackendError> {
    Prg::from_os().map_err(|e| BackendError::Random(e.to_string()))
}

/// Digest of canonical bytes: each part with its length in front, under a domain of its own.
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
    fn digests_tell_cuts_apart() {
        assert_ne!(digest("a", &[b"xy", b"z"]), digest("a", &[b"x", b"yz"]));
        assert_ne!(digest("a", &[b"x"]), digest("b", &[b"x"]));
    }
}
