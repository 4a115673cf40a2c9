//! The lattice half of the protocol: client and server obtain shares of `W r` before the input is
//! known, for a mask `r` of the client and weights `W` of the server. All back ends of this kind
//! share everything else.

use serde::Serialize;
use tacit_arith::prg::Prg;
use tacit_mpc::ot::PlannedOts;
use tacit_mpc::{Ots, Session};
use tacit_net::TrafficModel;

use super::linear::LinearError;
use super::linear::tiling::Consumer;
use super::options::Options;
use tacit_backend_api::{BackendError, PartyCost, Sides, seam};
use tacit_ring::RingOptions;

/// A back end of client and server whose linear layers are made offline with a lattice scheme.
pub trait Lattice: Send + Sync + Sized + 'static {
    /// Name of the back end.
    const NAME: &'static str;
    /// One-line description for users.
    const ABOUT: &'static str;
    /// Version of the public part and of the protocol that follows from it.
    const VERSION: u32;
    /// Domain of the plan's digest.
    const DOMAIN: &'static str;
    /// Whether all truncations give the floor, so that answers equal the reference.
    const EXACT: bool;

    /// A draft for all linear layers that read one tensor, made before the drafts of other tensors
    /// are known.
    type Draft;
    /// The plan for all linear layers that read one tensor.
    type Plan: Send + Sync;
    /// The choices of planning that both parties must share.
    type Choices: Serialize;
    /// What a setup leaves at the client.
    type ClientKeys: Send;
    /// What a setup leaves at the server.
    type ServerKeys: Send;
    /// Secrets that the client draws for one material, from its seed.
    type Secret: Send;
    /// The part of [`Secret`](Self::Secret) that the server receives.
    type Public: Send;

    /// Reads the options of the protocol and of the lowering to a ring.
    ///
    /// # Errors
    /// [`BackendError::Option`].
    fn parse(options: &seam::Options) -> Result<(Options, RingOptions), BackendError>;

    /// Checks options that did not come from [`parse`](Self::parse).
    ///
    /// # Errors
    /// Names the option that is out of its range.
    fn check(options: &Options) -> Result<(), BackendError>;

    /// Drafts a plan of the layers that read one tensor.
    ///
    /// # Errors
    /// If a shape, ring or norm does not fit.
    fn draft(layers: &[Consumer], options: &Options) -> Result<Self::Draft, LinearError>;

    /// Turns drafts into the plans of a model. The flag says whether the client may choose its
    /// share of the tensor freely.
    fn plans(drafts: Vec<(Self::Draft, bool)>) -> Vec<Self::Plan>;

    /// Returns the plan for the tensors of `batch` inputs at once. The methods below work on all
    /// tensors of a plan; their masks and shares are concatenated.
    fn times(plan: &Self::Plan, batch: usize) -> Self::Plan;

    /// The layers of a plan, in the order given.
    fn consumers(plan: &Self::Plan) -> &[Consumer];

    /// Largest error of a layer's outputs before truncation.
    fn max_error(plan: &Self::Plan, index: usize) -> u32;

    /// Returns the choices of planning.
    fn choices(plan: &Self::Plan) -> Self::Choices;

    /// Random OTs of a plan, with the client as receiver.
    fn rots(plan: &Self::Plan) -> usize;

    /// Records the setup traffic for all plans of a model.
    fn add_setup_traffic(plans: &[&Self::Plan], traffic: &mut TrafficModel);

    /// Cost of the setup keys at the server.
    fn setup_key_cost(plans: &[&Self::Plan]) -> PartyCost;

    /// Records the first messages of an offline phase: the client's public values.
    fn add_public_traffic(plans: &[&Self::Plan], traffic: &mut TrafficModel);

    /// Cost, at the server, of holding those public values during the phase.
    fn public_values_cost(plans: &[&Self::Plan]) -> PartyCost;

    /// Records the offline traffic of a plan.
    fn add_traffic(plan: &Self::Plan, ots: &mut PlannedOts, traffic: &mut TrafficModel);

    /// Offline work of client and server, without OTs.
    fn work(plan: &Self::Plan) -> Sides<PartyCost>;

    /// Work of the client, in each phase, to choose its shares.
    fn mask_choice_cost(plan: &Self::Plan) -> PartyCost;

    /// Makes the client's keys for all plans of a model.
    ///
    /// # Errors
    /// Channel errors.
    fn client_setup(plans: &[&Self::Plan], session: &mut Session<'_>) -> Result<Self::ClientKeys, BackendError>;

    /// The server's side of [`client_setup`](Self::client_setup).
    ///
    /// # Errors
    /// Channel errors, and malformed keys.
    fn server_setup(plans: &[&Self::Plan], session: &mut Session<'_>) -> Result<Self::ServerKeys, BackendError>;

    /// Draws the client's secrets from a material's seed; the result is the same in all phases.
    ///
    /// # Errors
    /// None in practice.
    fn secret(plans: &[&Self::Plan], seed: &Prg) -> Result<Self::Secret, BackendError>;

    /// Sends the server's part of the secrets, as the first message of an offline phase.
    ///
    /// # Errors
    /// Channel errors.
    fn send_public(plans: &[&Self::Plan], seed: &Prg, session: &mut Session<'_>) -> Result<(), BackendError>;

    /// The server's side of [`send_public`](Self::send_public).
    ///
    /// # Errors
    /// Channel errors, and malformed keys.
    fn receive_public(plans: &[&Self::Plan], session: &mut Session<'_>) -> Result<Self::Public, BackendError>;

    /// Replaces values of the random `mask` `[B, C, H, W]`, where the client may choose its share
    /// freely, with values that are cheaper to send, if there are any. `random` is the generator of
    /// the tensor in the material.
    ///
    /// # Errors
    /// None in practice.
    fn choose(plan: &Self::Plan, secret: &Self::Secret, random: &Prg, mask: &mut [u64]) -> Result<(), BackendError>;

    /// Returns the client's share of every layer's result for its mask `[B, C, H, W]`. `random` is
    /// the generator of the tensor in the material.
    ///
    /// # Errors
    /// Protocol or channel errors.
    fn client(
        plan: &Self::Plan,
        keys: &Self::ClientKeys,
        secret: &Self::Secret,
        mask: &[u64],
        random: &Prg,
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError>;

    /// Returns the server's share of every layer's result; `weights[k]` belong to layer k.
    ///
    /// # Errors
    /// Protocol or channel errors, and weights that do not fit the plan.
    fn server(
        plan: &Self::Plan,
        keys: &Self::ServerKeys,
        public: &Self::Public,
        weights: &[&[i32]],
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError>;
}
