//! A compiled model at either party.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::Seed;
use zeroize::Zeroizing;

use super::options::{NAME, Options};
use super::plan::{self, Plan};
use super::{cost, material_format};
use crate::dealt::audit::Ordering;
use crate::dealt::statics::{self, Statics};
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
    /// The digests that the public part states.
    pub(super) stated: Stated,
}

/// Digests by which the public part binds `E` and the keys.
#[derive(Clone, Copy)]
pub(super) struct Stated {
    /// Digest of `E`.
    pub(super) statics: [u8; 32],
    /// Digest of the keys of A ([`of_keys`]).
    pub(super) keys: [u8; 32],
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

/// The head of the public part: options, digest of `E`, digest of the keys of A.
type Head = (Options, [u8; 32], [u8; 32]);

/// The public part's digest of the dealer's part, the keys of A. It ensures that all clients have
/// the same model: a restarted dealer accepts no other keys. The keys are too many to guess.
pub(super) fn of_keys(statics: &[u8; 32], part: &[u8]) -> [u8; 32] {
    seam::digest("tacit 2026-11 fss keys of masks", &[statics, part])
}

pub(super) fn hasher() -> blake3::Hasher {
    blake3::Hasher::new_derive_key("tacit 2026-11 fss masked weights")
}

impl Compiled {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let ((options, statics, keys), rest): (Head, _) = public::read((NAME, VERSION), bytes)?;
        options.check()?;
        let plan = plan::compile(tacit_ring::read_public(rest)?, options)?;
        Ok(Self::of_one(bytes.into(), plan, Stated { statics, keys }))
    }

    /// `plan` is not bound to a model yet.
    fn of_one(public: Arc<[u8]>, plan: Plan, stated: Stated) -> Self {
        let one = Arc::new(plan.bound_to([&stated.statics, &stated.keys]));
        Self { public, plan: Arc::clone(&one), one, stated }
    }

    /// Returns the same model for a batch.
    pub(super) fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let (public, one, stated) = (Arc::clone(&self.public), Arc::clone(&self.one), self.stated);
        let plan = match seam::checked_batch(batch, self.max_batch())? {
            1 => Arc::clone(&one),
            batch => Arc::new(plan::batched(&one, batch)),
        };
        Ok(Self { public, one, plan, stated })
    }

    pub(super) fn costs(&self) -> Costs {
        cost::costs(&self.plan)
    }

    pub(super) fn batch(&self) -> usize {
        self.plan.batch()
    }

    pub(super) fn max_batch(&self) -> usize {
        cost::most_inputs(&self.one)
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
        let keys = statics::keys(&plan, &weights, &secret);
        let statics = statics::digest(&plan, &weights, &keys, hasher())?;
        let part = Zeroizing::new(keys.iter().flat_map(|key| key.0).collect::<Vec<u8>>());
        let stated = Stated { statics, keys: of_keys(&statics, &part) };
        let public = public::write((NAME, VERSION), &(plan.options(), stated.statics, stated.keys), plan.graph())?;
        let compiled = Compiled::of_one(public.into(), plan, stated);
        let (weights, keys, part) = (Arc::new(weights), Arc::new(keys), Arc::new(part));
        Ok(Self { compiled, weights, secret, keys, part, report })
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
