//! The lattice half of the protocol: how client and server come by shares of `W r`, for a mask r of the
//! client and weights W of the server, before the input is known. Everything else is the same for all back
//! ends of this kind.

use serde::Serialize;
use tacit_arith::prg::Prg;
use tacit_mpc::ot::PlannedOts;
use tacit_mpc::{Ots, Session};
use tacit_net::TrafficModel;

use super::linear::LinearError;
use super::linear::tiling::Consumer;
use super::options::Options;
use crate::ring::RingOptions;
use crate::{BackendError, PartyCost, seam};

/// A back end of client and server whose linear layers are made offline with a lattice scheme.
pub trait Lattice: Send + Sync + Sized + 'static {
    /// Its name.
    const NAME: &'static str;
    /// One line for people.
    const ABOUT: &'static str;
    /// Version of the public part and of the protocol that follows from it.
    const VERSION: u32;
    /// Domain of the plan's digest.
    const DOMAIN: &'static str;
    /// Whether all truncations give the floor, so that answers equal the reference.
    const EXACT: bool;

    /// Of all linear layers that read one tensor, as long as it is not known what others do.
    type Draft;
    /// Of all linear layers that read one tensor.
    type Plan: Send + Sync;
    /// What planning chose and both parties must have alike.
    type Choices: Serialize;
    /// What the client keeps of a setup.
    type ClientKeys: Send;
    /// What the server keeps of a setup.
    type ServerKeys: Send;
    /// What the client draws for one material, from its seed.
    type Secret: Send;
    /// What the server gets of that.
    type Public: Send;

    /// Reads the options of the protocol and of the lowering to a ring.
    ///
    /// # Errors
    /// [`BackendError::Option`].
    fn parse(text: &seam::Options) -> Result<(Options, RingOptions), BackendError>;

    /// Checks options that came from elsewhere.
    ///
    /// # Errors
    /// Names the one that is out of its range.
    fn check(options: &Options) -> Result<(), BackendError>;

    /// Drafts a plan of the layers that read one tensor.
    ///
    /// # Errors
    /// Shapes, rings and norms that do not fit.
    fn draft(layers: &[Consumer], options: &Options) -> Result<Self::Draft, LinearError>;

    /// The plans of a model. `free`: the client may choose its share of the tensor as it likes.
    fn plans(drafts: Vec<(Self::Draft, bool)>) -> Vec<Self::Plan>;

    /// A plan's layers for `batch` tensors at once, of as many inputs. What follows is for all tensors of a
    /// plan: their masks and shares stand one behind the other.
    fn times(plan: &Self::Plan, batch: usize) -> Self::Plan;

    /// The layers of a plan, in the order given.
    fn consumers(plan: &Self::Plan) -> &[Consumer];

    /// Largest error of a layer's outputs before truncation.
    fn max_error(plan: &Self::Plan, index: usize) -> u32;

    /// What planning chose.
    fn choices(plan: &Self::Plan) -> Self::Choices;

    /// Random OTs of a plan, with the client as receiver.
    fn rots(plan: &Self::Plan) -> usize;

    /// What the setup says for all plans of a model.
    fn setup_talk(plans: &[&Self::Plan], talk: &mut TrafficModel);

    /// What the server keeps of it.
    fn keys(plans: &[&Self::Plan]) -> PartyCost;

    /// What an offline phase says first.
    fn public_talk(plans: &[&Self::Plan], talk: &mut TrafficModel);

    /// What the server holds of that during the phase.
    fn public(plans: &[&Self::Plan]) -> PartyCost;

    /// What a plan says offline.
    fn talk(plan: &Self::Plan, ots: &mut PlannedOts, talk: &mut TrafficModel);

    /// What it costs client and server offline, beside OTs.
    fn work(plan: &Self::Plan) -> [PartyCost; 2];

    /// What it costs the client in each phase to choose its shares.
    fn choosing(plan: &Self::Plan) -> PartyCost;

    /// The client's keys for all plans of a model.
    ///
    /// # Errors
    /// Of the channel.
    fn client_setup(plans: &[&Self::Plan], session: &mut Session<'_>) -> Result<Self::ClientKeys, BackendError>;

    /// The server's side of [`client_setup`](Self::client_setup).
    ///
    /// # Errors
    /// Of the channel; malformed keys.
    fn server_setup(plans: &[&Self::Plan], session: &mut Session<'_>) -> Result<Self::ServerKeys, BackendError>;

    /// What the client draws from a material's seed: the same in all phases.
    ///
    /// # Errors
    /// None in practice.
    fn secret(plans: &[&Self::Plan], seed: &Prg) -> Result<Self::Secret, BackendError>;

    /// Sends what the server needs of it: first in an offline phase.
    ///
    /// # Errors
    /// Of the channel.
    fn send_public(plans: &[&Self::Plan], seed: &Prg, session: &mut Session<'_>) -> Result<(), BackendError>;

    /// The server's side of [`send_public`](Self::send_public).
    ///
    /// # Errors
    /// Of the channel; malformed keys.
    fn receive_public(plans: &[&Self::Plan], session: &mut Session<'_>) -> Result<Self::Public, BackendError>;

    /// Of a tensor whose share the client is free to choose, `mask` `[B, C, H, W]` is random: puts in place
    /// what is cheaper to send, if anything is. `random` is that of the tensor in the material.
    ///
    /// # Errors
    /// None in practice.
    fn choose(plan: &Self::Plan, secret: &Self::Secret, random: &Prg, mask: &mut [u64]) -> Result<(), BackendError>;

    /// The client's share of every layer's result for its mask `[B, C, H, W]`. `random` is that of the tensor
    /// in the material.
    ///
    /// # Errors
    /// Of the protocol or the channel.
    fn client(
        plan: &Self::Plan,
        keys: (&Self::ClientKeys, &Self::Secret),
        mask: (&[u64], &Prg),
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError>;

    /// The server's share of every layer's result; `weights[k]` are those of layer k.
    ///
    /// # Errors
    /// Of the protocol or the channel; weights that do not fit the plan.
    fn server(
        plan: &Self::Plan,
        keys: (&Self::ServerKeys, &Self::Public),
        weights: &[&[i32]],
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError>;
}
