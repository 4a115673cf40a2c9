//! What a back end gives to be served: its phases, over sessions that carry the channel.
use tacit_graph::{ModelGraph, Weights};
use tacit_mpc::Role;
use tacit_net::Channel;

/// A back end as the server and the client library drive it. Tests serve a toy one.
pub trait Engine: Clone + Send + Sync + 'static {
    /// A compiled model.
    type Plan: Send + Sync;
    /// One party's protocol state on one connection; owns the channel.
    type Session: Send;
    /// One party's keys for one client; live as long as the connection.
    type Keys: Send;
    /// One party's half of the preprocessing for one input.
    type Material: Send;
    /// What its phases fail with.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Name for reports: `cheetah`.
    fn name(&self) -> &'static str;

    /// Digest of everything public that both parties must have chosen alike, apart from the model.
    fn parameters(&self) -> [u8; 32];

    /// Compiles a model's public graph.
    ///
    /// # Errors
    /// Names the node that is not supported.
    fn compile(&self, graph: &ModelGraph) -> Result<Self::Plan, Self::Error>;

    /// Digest of the compiled plan: equal plans, equal digests.
    fn plan_digest(&self, plan: &Self::Plan) -> [u8; 32];

    /// A session on a fresh connection; says nothing to the peer.
    ///
    /// # Errors
    /// No randomness from the operating system.
    fn session(&self, role: Role, channel: Channel) -> Result<Self::Session, Self::Error>;

    /// The session's channel.
    fn channel<'a>(&self, session: &'a mut Self::Session) -> &'a mut Channel;

    /// Makes keys and base OTs.
    ///
    /// # Errors
    /// Of the protocol or the channel; the connection is useless afterwards. So for all phases.
    fn setup(&self, plan: &Self::Plan, session: &mut Self::Session) -> Result<Self::Keys, Self::Error>;

    /// Makes material for one input; the server gives its weights.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    fn offline(
        &self,
        plan: &Self::Plan,
        keys: &mut Self::Keys,
        weights: Option<&Weights>,
        session: &mut Self::Session,
    ) -> Result<Self::Material, Self::Error>;

    /// The client's online phase: the integers of the output node.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    fn online_client(
        &self,
        plan: &Self::Plan,
        material: Self::Material,
        input: &[i64],
        session: &mut Self::Session,
    ) -> Result<Vec<i64>, Self::Error>;

    /// The server's online phase.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    fn online_server(
        &self,
        plan: &Self::Plan,
        material: Self::Material,
        weights: &Weights,
        session: &mut Self::Session,
    ) -> Result<(), Self::Error>;

    /// Material as bytes.
    fn material_to_bytes(&self, plan: &Self::Plan, material: &Self::Material) -> Vec<u8>;

    /// Material from bytes.
    ///
    /// # Errors
    /// The bytes do not fit the plan and role.
    fn material_from_bytes(&self, plan: &Self::Plan, role: Role, bytes: &[u8]) -> Result<Self::Material, Self::Error>;

    /// Size of one party's material in bytes.
    fn material_bytes(&self, plan: &Self::Plan, role: Role) -> u64;
}
