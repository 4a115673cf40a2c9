//! A compiled model at either party.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::Seed;
use zeroize::Zeroizing;

use super::options::{NAME, Options};
use super::plan::{self, Plan};
use super::{cost, material_format};
use crate::dealt::audit::Ordering;
use crate::dealt::masked_weights::{self, MaskedWeights};
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
    /// The digests that the public part states.
    pub(super) stated: Stated,
}

/// Digests by which the public part binds `E` and the keys.
#[derive(Clone, Copy)]
pub(super) struct Stated {
    /// Digest of `E`.
    pub(super) masked_weights: [u8; 32],
    /// Digest of the keys of A ([`dealer_keys_digest`]).
    pub(super) keys: [u8; 32],
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

/// The head of the public part: options, digest of `E`, digest of the keys of A.
type Head = (Options, [u8; 32], [u8; 32]);

/// Digest of `E` and the dealer's part, which is the keys of A. The public part states it, and a
/// dealer refuses keys with another digest. All clients of a public part thus have the same model,
/// also after a dealer restarts. Each key has 128 bits of entropy, so the digest reveals none.
pub(super) fn dealer_keys_digest(masked_weights: &[u8; 32], dealer_part: &[u8]) -> [u8; 32] {
    seam::digest("tacit 2026-11 fss keys of masks", &[masked_weights, dealer_part])
}

pub(super) fn hasher() -> blake3::Hasher {
    blake3::Hasher::new_derive_key("tacit 2026-11 fss masked weights")
}

impl Compiled {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let ((options, masked_weights, keys), rest): (Head, _) = public::read((NAME, VERSION), bytes)?;
        options.check()?;
        let plan = plan::compile(tacit_ring::read_public(rest)?, options)?;
        Ok(Self::of_single_plan(bytes.into(), plan, Stated { masked_weights, keys }))
    }

    /// `plan` is not bound to a model yet.
    fn of_single_plan(public: Arc<[u8]>, plan: Plan, stated: Stated) -> Self {
        let single_plan = Arc::new(plan.bound_to([&stated.masked_weights, &stated.keys]));
        Self { public, plan: Arc::clone(&single_plan), single_plan, stated }
    }

    /// Returns the same model for a batch.
    pub(super) fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let (public, single_plan, stated) = (Arc::clone(&self.public), Arc::clone(&self.single_plan), self.stated);
        let plan = match seam::checked_batch(batch, self.max_batch())? {
            1 => Arc::clone(&single_plan),
            batch => Arc::new(plan::batched(&single_plan, batch)),
        };
        Ok(Self { public, single_plan, plan, stated })
    }

    pub(super) fn costs(&self) -> Costs {
        cost::costs(&self.plan)
    }

    pub(super) fn batch(&self) -> usize {
        self.plan.batch()
    }

    pub(super) fn max_batch(&self) -> usize {
        cost::most_inputs(&self.single_plan)
    }

    /// How this model orders material for its batch.
    pub(super) fn ordering<'a>(&self, resources: &'a ConnectionResources) -> Ordering<'a> {
        let [client, server] =
            [material_format::client_bytes(&self.plan)[0], material_format::server_bytes(&self.plan)[0]];
        let (rate, halves) = (self.plan.options().audit, [client, server].map(material_format::with_digest));
        Ordering { resources, rate, plan: self.digest(), halves }
    }

    /// Digest of the plan, `E`, the keys of A and the batch, to all of which material is bound.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.plan.binding()
    }
}

impl Server {
    pub(super) fn new(
        (plan, weights): (Plan, Weights),
        secret: Zeroizing<[u8; 32]>,
        report: Option<tacit_ring::RingReport>,
    ) -> Result<Self, BackendError> {
        let keys = masked_weights::keys(&plan, &weights, &secret);
        let masked_weights = masked_weights::digest(&plan, &weights, &keys, hasher())?;
        let dealer_part = Zeroizing::new(keys.iter().flat_map(|key| key.0).collect::<Vec<u8>>());
        let stated = Stated { masked_weights, keys: dealer_keys_digest(&masked_weights, &dealer_part) };
        let public =
            public::write((NAME, VERSION), &(plan.options(), stated.masked_weights, stated.keys), plan.graph())?;
        let compiled = Compiled::of_single_plan(public.into(), plan, stated);
        let (weights, keys, dealer_part) = (Arc::new(weights), Arc::new(keys), Arc::new(dealer_part));
        Ok(Self { compiled, weights, secret, keys, dealer_part, report })
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
