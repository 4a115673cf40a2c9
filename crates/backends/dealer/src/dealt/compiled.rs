//! A compiled model at either party.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::Seed;
use zeroize::Zeroizing;

use super::audit::Ordering;
use super::dealer::SEED_BYTES;
use super::options::{NAME, Options};
use super::plan::{self, Plan};
use super::statics::{self, Statics};
use super::{cost, server};
use tacit_backend_api::{BackendError, ConnectionResources, Costs, seam};
use tacit_ring::{self, Weights, public};

/// Version of the public part and of its protocol.
pub const VERSION: u32 = 5;

/// What both parties have of a model.
pub(super) struct Compiled {
    pub(super) public: Arc<[u8]>,
    /// The plan for one input.
    pub(super) one: Arc<Plan>,
    /// The plan for the batch of this model.
    pub(super) plan: Arc<Plan>,
    /// Digest of `E`.
    pub(super) statics: [u8; 32],
}

/// The model at the server.
pub(super) struct Server {
    pub(super) compiled: Compiled,
    pub(super) weights: Arc<Weights>,
    pub(super) secret: Zeroizing<[u8; 32]>,
    pub(super) keys: Arc<Vec<Seed>>,
    pub(super) part: Arc<Zeroizing<Vec<u8>>>,
    pub(super) report: Option<tacit_ring::RingReport>,
}

/// The model at the client.
pub(super) struct Client {
    pub(super) compiled: Compiled,
    /// `E`, once a connection of this process has received it.
    pub(super) statics: Arc<OnceLock<Arc<Statics>>>,
}

impl Compiled {
    /// Reads the public part, which is untrusted bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let ((options, statics), rest): ((Options, [u8; 32]), _) = public::read((NAME, VERSION), bytes)?;
        options.check()?;
        let plan = plan::compile(tacit_ring::read_public(rest)?, options)?;
        Ok(Self::of_one(bytes.into(), Arc::new(plan), statics))
    }

    fn of_one(public: Arc<[u8]>, one: Arc<Plan>, statics: [u8; 32]) -> Self {
        Self { public, plan: Arc::clone(&one), one, statics }
    }

    /// Returns the same model for a batch.
    pub(super) fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let (public, one, statics) = (Arc::clone(&self.public), Arc::clone(&self.one), self.statics);
        let plan = match seam::checked_batch(batch, self.max_batch())? {
            1 => Arc::clone(&one),
            batch => Arc::new(plan::batched(&one, batch)),
        };
        Ok(Self { public, one, plan, statics })
    }

    /// How this model orders material for its batch.
    pub(super) fn ordering<'a>(&self, resources: &'a ConnectionResources) -> Ordering<'a> {
        let halves = [SEED_BYTES, server::half_bytes(&self.plan)].map(|bytes| bytes as u64);
        Ordering { resources, rate: self.plan.options().audit, plan: self.digest(), halves }
    }

    pub(super) fn batch(&self) -> usize {
        self.plan.batch()
    }

    pub(super) fn max_batch(&self) -> usize {
        seam::most_inputs(&cost::costs(&self.one))
    }

    pub(super) fn costs(&self) -> Costs {
        cost::costs(&self.plan)
    }

    /// Digest of the plan, `E` and the batch, to all of which material is bound.
    pub(super) fn digest(&self) -> [u8; 32] {
        seam::batch_digest(&self.digest_of_one(), self.batch())
    }

    /// Digest of the model for one input, by which a dealer knows the model.
    pub(super) fn digest_of_one(&self) -> [u8; 32] {
        seam::digest("tacit 2026-11 dealt", &[&self.one.digest(), &self.statics])
    }
}

impl Server {
    pub(super) fn new(
        (plan, weights): (Arc<Plan>, Weights),
        secret: Zeroizing<[u8; 32]>,
        report: Option<tacit_ring::RingReport>,
    ) -> Result<Self, BackendError> {
        let keys = statics::keys(&*plan, &weights, &secret);
        let statics = statics::digest(&*plan, &weights, &keys, statics::hasher())?;
        let public = public::write((NAME, VERSION), &(plan.options(), statics), plan.graph())?;
        let part = Zeroizing::new(keys.iter().flat_map(|key| key.0).collect());
        let (weights, keys, part) = (Arc::new(weights), Arc::new(keys), Arc::new(part));
        Ok(Self { compiled: Compiled::of_one(public.into(), plan, statics), weights, secret, keys, part, report })
    }

    /// Returns the same model for a batch.
    pub(super) fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let (weights, keys, part) = (Arc::clone(&self.weights), Arc::clone(&self.keys), Arc::clone(&self.part));
        let (compiled, secret) = (self.compiled.batched(batch)?, self.secret.clone());
        Ok(Self { compiled, weights, secret, keys, part, report: None })
    }
}

impl Client {
    /// Returns the same model for a batch, with the same shared `E`.
    pub(super) fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        Ok(Self { compiled: self.compiled.batched(batch)?, statics: Arc::clone(&self.statics) })
    }
}
