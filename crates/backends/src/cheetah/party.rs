//! The state of one connection at either party: what the seam's phases run on. Tests drive it too, with ideal
//! OTs and with every node's shares shown to them.

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
use crate::BackendError;
use crate::ring::Weights;
use crate::ring::share::NodeObserver;
use crate::seam::{self, MaterialSeed, Stop};

const NO_SETUP: BackendError = BackendError::Misuse("the setup comes first");

/// A connection at the client.
pub struct ClientParty<L: Lattice = Cheetah> {
    /// For one input.
    one: Arc<Plan<L>>,
    /// For the batch at hand.
    plan: Arc<Plan<L>>,
    prg: Prg,
    stop: Stop,
    keys: Option<ClientKeys<L>>,
}

/// A connection at the server.
pub struct ServerParty<L: Lattice = Cheetah> {
    /// For one input.
    one: Arc<Plan<L>>,
    /// For the batch at hand.
    plan: Arc<Plan<L>>,
    weights: Arc<Weights>,
    prg: Prg,
    stop: Stop,
    keys: Option<ServerKeys<L>>,
}

/// The plan for a batch.
fn plan_for<L: Lattice>(one: &Arc<Plan<L>>, batch: usize) -> Result<Arc<Plan<L>>, BackendError> {
    Ok(match seam::checked_batch(batch, seam::most_inputs(&cost::costs(one)))? {
        1 => Arc::clone(one),
        batch => Arc::new(plan::batched(one, batch)),
    })
}

fn session<'a>(role: Role, channel: &'a mut Channel, prg: &'a mut Prg) -> Session<'a> {
    Session { role, channel, prg }
}

impl<L: Lattice> ClientParty<L> {
    /// A fresh connection, for one input at a time; all its randomness is drawn from `prg`.
    #[must_use]
    pub fn new(plan: Arc<Plan<L>>, prg: Prg) -> Self {
        Self { one: Arc::clone(&plan), plan, prg, stop: Stop::default(), keys: None }
    }

    /// Its phases are ended by `stop`.
    #[must_use]
    pub fn stopped_by(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// The plan that it runs.
    #[must_use]
    pub fn plan(&self) -> &Plan<L> {
        &self.plan
    }

    /// Phases from now on are for `batch` inputs at once.
    ///
    /// # Errors
    /// [`BackendError::Misuse`]: they are too many.
    pub fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.plan = plan_for(&self.one, batch)?;
        Ok(())
    }

    /// Base OTs, OT bootstrap and lattice keys.
    ///
    /// # Errors
    /// Channel and protocol errors. So for all phases.
    pub fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let ots = Ots::setup(&mut session(Role::Client, channel, &mut self.prg))?;
        self.setup_with(channel, ots)
    }

    /// The setup over given OTs: lattice keys alone.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    pub fn setup_with(&mut self, channel: &mut Channel, ots: Ots) -> Result<(), BackendError> {
        self.keys = Some(client::setup(&self.plan, &mut session(Role::Client, channel, &mut self.prg), ots)?);
        Ok(())
    }

    /// Material for the inputs of a batch.
    ///
    /// # Errors
    /// As [`setup`](Self::setup); [`BackendError::Misuse`] before it.
    pub fn offline(&mut self, channel: &mut Channel) -> Result<ClientMaterial, BackendError> {
        let seed = self.prg.next_seed();
        self.offline_with(channel, seed)
    }

    /// As [`offline`](Self::offline), with a seed that is used once.
    ///
    /// # Errors
    /// As there.
    pub fn offline_from(&mut self, channel: &mut Channel, seed: MaterialSeed) -> Result<ClientMaterial, BackendError> {
        self.offline_with(channel, seed.into_seed())
    }

    fn offline_with(&mut self, channel: &mut Channel, seed: Seed) -> Result<ClientMaterial, BackendError> {
        let keys = self.keys.as_mut().ok_or(NO_SETUP)?;
        client::offline(&self.plan, keys, seed, &mut session(Role::Client, channel, &mut self.prg), &self.stop)
    }

    /// The integers of the output node for those of the input node, of each input of the batch.
    ///
    /// # Errors
    /// As [`setup`](Self::setup); an input of another length.
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
    /// A fresh connection, for one input at a time; all its randomness is drawn from `prg`.
    #[must_use]
    pub fn new(plan: Arc<Plan<L>>, weights: Arc<Weights>, prg: Prg) -> Self {
        Self { one: Arc::clone(&plan), plan, weights, prg, stop: Stop::default(), keys: None }
    }

    /// Its phases are ended by `stop`.
    #[must_use]
    pub fn stopped_by(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// The plan that it runs.
    #[must_use]
    pub fn plan(&self) -> &Plan<L> {
        &self.plan
    }

    /// Phases from now on are for `batch` inputs at once.
    ///
    /// # Errors
    /// [`BackendError::Misuse`]: they are too many.
    pub fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.plan = plan_for(&self.one, batch)?;
        Ok(())
    }

    /// See [`ClientParty::setup`].
    ///
    /// # Errors
    /// As there.
    pub fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let ots = Ots::setup(&mut session(Role::Server, channel, &mut self.prg))?;
        self.setup_with(channel, ots)
    }

    /// See [`ClientParty::setup_with`].
    ///
    /// # Errors
    /// As there.
    pub fn setup_with(&mut self, channel: &mut Channel, ots: Ots) -> Result<(), BackendError> {
        self.keys = Some(server::setup(&self.plan, &mut session(Role::Server, channel, &mut self.prg), ots)?);
        Ok(())
    }

    /// See [`ClientParty::offline`].
    ///
    /// # Errors
    /// As there.
    pub fn offline(&mut self, channel: &mut Channel) -> Result<ServerMaterial, BackendError> {
        let keys = self.keys.as_mut().ok_or(NO_SETUP)?;
        let session = &mut session(Role::Server, channel, &mut self.prg);
        server::offline(&self.plan, keys, &self.weights, session, &self.stop)
    }

    /// The server's part of an inference, or of those of a batch.
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
        server::online_traced(&self.plan, material, (&self.weights, None), session, tap, &self.stop)
    }

    /// As [`online`](Self::online), where the input is shared already: `own` is the server's share, `[B,
    /// elements]` in the ring of the input node, and the client's is what it gives as its input.
    ///
    /// # Errors
    /// As there; [`BackendError::Misuse`]: the share has another length.
    pub fn online_on_shares(
        &mut self,
        channel: &mut Channel,
        material: ServerMaterial,
        own: &[u64],
    ) -> Result<(), BackendError> {
        if own.len() != self.plan.batch() * self.plan.graph().input().elements() {
            return Err(BackendError::Misuse("the share is not one of the input"));
        }
        let session = &mut session(Role::Server, channel, &mut self.prg);
        let (given, tap) = ((&*self.weights, Some(own)), &mut |_: usize, _: &[u64]| {});
        server::online_traced(&self.plan, material, given, session, tap, &self.stop)
    }
}
