//! A compiled model at either party.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::Seed;
use zeroize::Zeroizing;

use super::audit::Ordering;
use super::dealer::SEED_BYTES;
use super::masked_weights::{self, MaskedWeights};
use super::options::{NAME, Options};
use super::plan::{self, Plan};
use super::{cost, server};
use tacit_backend_api::{BackendError, ConnectionResources, Costs, seam};
use tacit_ring::{self, Weights, public};

/// Version of the public part and of its protocol.
pub const VERSION: u32 = 5;

/// What both parties have of a model.
pub(super) struct Compiled {
    pub(super) public: Arc<[u8]>,
    /// The plan for one input.
    pub(super) single_plan: Arc<Plan>,
    /// The plan for the batch of this model.
    pub(super) plan: Arc<Plan>,
    /// Digest of `E`.
    pub(super) masked_weights: [u8; 32],
}

/// The model at the server.
pub(super) struct Server {
    pub(super) compiled: Compiled,
    pub(super) weights: Arc<Weights>,
    pub(super) secret: Zeroizing<[u8; 32]>,
    pub(super) keys: Arc<Vec<Seed>>,
    pub(super) dealer_part: Arc<Zeroizing<Vec<u8>>>,
    pub(super) report: Option<tacit_ring::RingReport>,
}

/// The model at the client.
pub(super) struct Client {
    pub(super) compiled: Compiled,
    /// `E`, once a connection of this process has received it.
    pub(super) masked_weights: Arc<OnceLock<Arc<MaskedWeights>>>,
}

impl Compiled {
    /// Reads the public part, which is untrusted bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let ((options, masked_weights), rest): ((Options, [u8; 32]), _) = public::read((NAME, VERSION), bytes)?;
        options.check()?;
        let plan = plan::compile(tacit_ring::read_public(rest)?, options)?;
        Ok(Self::of_single_plan(bytes.into(), Arc::new(plan), masked_weights))
    }

    fn of_single_plan(public: Arc<[u8]>, single_plan: Arc<Plan>, masked_weights: [u8; 32]) -> Self {
        Self { public, plan: Arc::clone(&single_plan), single_plan, masked_weights }
    }

    /// Returns the same model for a batch.
    pub(super) fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let (public, single_plan, masked_weights) =
            (Arc::clone(&self.public), Arc::clone(&self.single_plan), self.masked_weights);
        let plan = match seam::checked_batch(batch, self.max_batch())? {
            1 => Arc::clone(&single_plan),
            batch => Arc::new(plan::batched(&single_plan, batch)),
        };
        Ok(Self { public, single_plan, plan, masked_weights })
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
        seam::most_inputs(&cost::costs(&self.single_plan))
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
        seam::digest("tacit 2026-11 dealt", &[&self.single_plan.digest(), &self.masked_weights])
    }
}

impl Server {
    pub(super) fn new(
        (plan, weights): (Arc<Plan>, Weights),
        secret: Zeroizing<[u8; 32]>,
        report: Option<tacit_ring::RingReport>,
    ) -> Result<Self, BackendError> {
        let keys = masked_weights::keys(&*plan, &weights, &secret);
        let masked_weights = masked_weights::digest(&*plan, &weights, &keys, masked_weights::hasher())?;
        let public = public::write((NAME, VERSION), &(plan.options(), masked_weights), plan.graph())?;
        let dealer_part = Zeroizing::new(keys.iter().flat_map(|key| key.0).collect());
        let (weights, keys, dealer_part) = (Arc::new(weights), Arc::new(keys), Arc::new(dealer_part));
        Ok(Self {
            compiled: Compiled::of_single_plan(public.into(), plan, masked_weights),
            weights,
            secret,
            keys,
            dealer_part,
            report,
        })
    }

    /// Returns the same model for a batch.
    pub(super) fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let (weights, keys, dealer_part) =
            (Arc::clone(&self.weights), Arc::clone(&self.keys), Arc::clone(&self.dealer_part));
        let (compiled, secret) = (self.compiled.batched(batch)?, self.secret.clone());
        Ok(Self { compiled, weights, secret, keys, dealer_part, report: None })
    }
}

impl Client {
    /// Returns the same model for a batch, with the same shared `E`.
    pub(super) fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        Ok(Self { compiled: self.compiled.batched(batch)?, masked_weights: Arc::clone(&self.masked_weights) })
    }
}
