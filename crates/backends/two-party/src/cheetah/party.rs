//! The state of one connection at either party, on which the seam's phases run. Tests use it
//! directly, with ideal OTs and with a tap on every node's shares.

use std::sync::Arc;

use tacit_arith::prg::{Prg, Seed};
use tacit_mpc::{Ots, Role, Session};
use tacit_net::Channel;

use super::client::{self, ClientKeys};
use super::coeff::Cheetah;
use super::cost;
use super::lattice::Lattice;
use super::material::{ClientMaterial, ServerMaterial};
use super::plan::{self, Plan};
use super::server::{self, ServerKeys};
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{self, MaterialSeed, Stop};
use tacit_ring::Weights;
use tacit_ring::share::NodeObserver;

const NO_SETUP: BackendError = BackendError::Misuse("the setup comes first");

/// A connection at the client.
pub struct ClientParty<L: Lattice = Cheetah> {
    /// The plan for one input.
    single_plan: Arc<Plan<L>>,
    /// The plan for the current batch.
    plan: Arc<Plan<L>>,
    prg: Prg,
    stop: Stop,
    keys: Option<ClientKeys<L>>,
}

/// A connection at the server.
pub struct ServerParty<L: Lattice = Cheetah> {
    single_plan: Arc<Plan<L>>,
    plan: Arc<Plan<L>>,
    weights: Arc<Weights>,
    prg: Prg,
    stop: Stop,
    keys: Option<ServerKeys<L>>,
}

fn plan_for<L: Lattice>(single_plan: &Arc<Plan<L>>, batch: usize) -> Result<Arc<Plan<L>>, BackendError> {
    Ok(match seam::checked_batch(batch, seam::most_inputs(&cost::costs(single_plan)))? {
        1 => Arc::clone(single_plan),
        batch => Arc::new(plan::batched(single_plan, batch)),
    })
}

fn session<'a>(role: Role, channel: &'a mut Channel, prg: &'a mut Prg) -> Session<'a> {
    Session { role, channel, prg }
}

impl<L: Lattice> ClientParty<L> {
    /// A new connection, for one input at a time. `prg` is the source of all its randomness.
    #[must_use]
    pub fn new(plan: Arc<Plan<L>>, prg: Prg) -> Self {
        Self { single_plan: Arc::clone(&plan), plan, prg, stop: Stop::default(), keys: None }
    }

    /// Lets `stop` end the phases.
    #[must_use]
    pub fn stopped_by(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// The current plan.
    #[must_use]
    pub fn plan(&self) -> &Plan<L> {
        &self.plan
    }

    /// Makes all later phases run for `batch` inputs at once.
    ///
    /// # Errors
    /// [`BackendError::Misuse`] if there are too many inputs.
    pub fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.plan = plan_for(&self.single_plan, batch)?;
        Ok(())
    }

    /// Runs the setup: base OTs, OT bootstrap and lattice keys.
    ///
    /// # Errors
    /// Channel and protocol errors, as in all phases.
    pub fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let ots = Ots::setup(&mut session(Role::Client, channel, &mut self.prg))?;
        self.setup_with(channel, ots)
    }

    /// Runs the setup over given OTs, which leaves the lattice keys.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    pub fn setup_with(&mut self, channel: &mut Channel, ots: Ots) -> Result<(), BackendError> {
        self.keys = Some(client::setup(&self.plan, &mut session(Role::Client, channel, &mut self.prg), ots)?);
        Ok(())
    }

    /// Makes material for the inputs of a batch.
    ///
    /// # Errors
    /// As [`setup`](Self::setup); [`BackendError::Misuse`] before the setup.
    pub fn offline(&mut self, channel: &mut Channel) -> Result<ClientMaterial, BackendError> {
        let seed = self.prg.next_seed();
        self.offline_with(channel, seed)
    }

    /// Makes material as [`offline`](Self::offline) does, from a seed that is used once.
    ///
    /// # Errors
    /// As [`offline`](Self::offline).
    pub fn offline_from(&mut self, channel: &mut Channel, seed: MaterialSeed) -> Result<ClientMaterial, BackendError> {
        self.offline_with(channel, seed.into_seed())
    }

    fn offline_with(&mut self, channel: &mut Channel, seed: Seed) -> Result<ClientMaterial, BackendError> {
        let keys = self.keys.as_mut().ok_or(NO_SETUP)?;
        client::offline(&self.plan, keys, seed, &mut session(Role::Client, channel, &mut self.prg), &self.stop)
    }

    /// Returns the integers of the output node for the integers of the input node, for each input
    /// of the batch.
    ///
    /// # Errors
    /// As [`setup`](Self::setup), and if an input has the wrong length.
    pub fn online(
        &mut self,
        channel: &mut Channel,
        material: ClientMaterial,
        input: &[i64],
        tap: &mut NodeObserver<'_>,
    ) -> Result<Vec<i64>, BackendError> {
        let session = &mut session(Role::Client, channel, &mut self.prg);
        client::online_traced(&self.plan, material, input, session, tap, &self.stop)
    }
}

impl<L: Lattice> ServerParty<L> {
    /// A new connection, for one input at a time. `prg` is the source of all its randomness.
    #[must_use]
    pub fn new(plan: Arc<Plan<L>>, weights: Arc<Weights>, prg: Prg) -> Self {
        Self { single_plan: Arc::clone(&plan), plan, weights, prg, stop: Stop::default(), keys: None }
    }

    /// Lets `stop` end the phases.
    #[must_use]
    pub fn stopped_by(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// The current plan.
    #[must_use]
    pub fn plan(&self) -> &Plan<L> {
        &self.plan
    }

    /// Makes all later phases run for `batch` inputs at once.
    ///
    /// # Errors
    /// [`BackendError::Misuse`] if there are too many inputs.
    pub fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.plan = plan_for(&self.single_plan, batch)?;
        Ok(())
    }

    /// Runs the server's side of [`ClientParty::setup`].
    ///
    /// # Errors
    /// As [`ClientParty::setup`].
    pub fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let ots = Ots::setup(&mut session(Role::Server, channel, &mut self.prg))?;
        self.setup_with(channel, ots)
    }

    /// Runs the server's side of [`ClientParty::setup_with`].
    ///
    /// # Errors
    /// As [`ClientParty::setup_with`].
    pub fn setup_with(&mut self, channel: &mut Channel, ots: Ots) -> Result<(), BackendError> {
        self.keys = Some(server::setup(&self.plan, &mut session(Role::Server, channel, &mut self.prg), ots)?);
        Ok(())
    }

    /// Runs the server's side of [`ClientParty::offline`].
    ///
    /// # Errors
    /// As [`ClientParty::offline`].
    pub fn offline(&mut self, channel: &mut Channel) -> Result<ServerMaterial, BackendError> {
        let keys = self.keys.as_mut().ok_or(NO_SETUP)?;
        let session = &mut session(Role::Server, channel, &mut self.prg);
        server::offline(&self.plan, keys, &self.weights, session, &self.stop)
    }

    /// Runs the server's online phase for one input or a batch.
    ///
    /// # Errors
    /// Channel and protocol errors.
    pub fn online(
        &mut self,
        channel: &mut Channel,
        material: ServerMaterial,
        tap: &mut NodeObserver<'_>,
    ) -> Result<(), BackendError> {
        let session = &mut session(Role::Server, channel, &mut self.prg);
        server::online_traced(&self.plan, material, &self.weights, None, session, tap, &self.stop)
    }

    /// Runs [`online`](Self::online) on an input that is already shared. `server_share` is the server's
    /// share, `[B, elements]` in the ring of the input node. The client gives its own share as its
    /// input.
    ///
    /// # Errors
    /// As [`online`](Self::online); [`BackendError::Misuse`] if the share has the wrong length.
    pub fn online_on_shares(
        &mut self,
        channel: &mut Channel,
        material: ServerMaterial,
        server_share: &[u64],
    ) -> Result<(), BackendError> {
        if server_share.len() != self.plan.batch() * self.plan.graph().input().elements() {
            return Err(BackendError::Misuse("the share is not one of the input"));
        }
        let session = &mut session(Role::Server, channel, &mut self.prg);
        let tap = &mut |_: usize, _: &[u64]| {};
        server::online_traced(&self.plan, material, &self.weights, Some(server_share), session, tap, &self.stop)
    }
}
