//! A compiled model at each party.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::Seed;
use zeroize::Zeroizing;

use super::correlation::Correlation;
use super::masked_weights::{self, MaskedWeights};
use super::plan::{DealerOptions, Plan};
use tacit_backend_api::{BackendError, Costs, seam};
use tacit_ring::{self, RingReport, Weights, public};

/// Most bytes of the client's half of a batch: a client without a folder for material holds it in
/// memory.
pub(crate) const MAX_HALF: u64 = 1 << 28;

/// What all parties have of a model.
pub(super) struct Compiled<C: Correlation> {
    pub(super) public: Arc<[u8]>,
    pub(super) single_plan: Arc<Plan<C>>,
    /// The plan for the batch of this model.
    pub(super) plan: Arc<Plan<C>>,
    /// The digests that the public part states.
    pub(super) stated: C::Stated,
}

/// What a server has of a model and no client gets.
pub(super) struct Private {
    pub(super) weights: Weights,
    pub(super) secret: Zeroizing<[u8; 32]>,
    /// Keys of the masked layers, in node order.
    pub(super) keys: Vec<Seed>,
    /// The keys as the dealer gets them.
    pub(super) dealer_part: Zeroizing<Vec<u8>>,
}

pub(super) struct Server<C: Correlation> {
    pub(super) compiled: Compiled<C>,
    pub(super) private: Arc<Private>,
    pub(super) report: Option<RingReport>,
}

pub(super) struct Client<C: Correlation> {
    pub(super) compiled: Compiled<C>,
    /// `E`, once a connection of this process has received it.
    pub(super) masked_weights: Arc<OnceLock<Arc<MaskedWeights>>>,
}

pub(super) struct Dealing<C: Correlation> {
    pub(super) compiled: Compiled<C>,
    pub(super) keys: Arc<Vec<Seed>>,
}

/// Reads a public part, which is untrusted bytes. The plan is not bound to the model yet.
pub(super) fn read_public<C: Correlation>(bytes: &[u8]) -> Result<(Plan<C>, C::Stated), BackendError> {
    let ((options, stated), rest): ((C::Options, C::Stated), _) = public::read(C::NAME, C::VERSION, bytes)?;
    options.check()?;
    Ok((Plan::compile(tacit_ring::read_public(rest)?, options)?, stated))
}

/// Most inputs of a batch of the model with the plan `single_plan` for one input.
pub(crate) fn max_inputs<C: Correlation>(single_plan: &Plan<C>) -> usize {
    let costs = C::costs(single_plan);
    seam::most_inputs(&costs).min((MAX_HALF / costs.dealing.client_bytes) as usize).max(1)
}

impl<C: Correlation> Compiled<C> {
    fn new(public: Arc<[u8]>, plan: Plan<C>, stated: C::Stated) -> Self {
        let single_plan = Arc::new(plan.bound_to(stated.as_ref()));
        Self { public, plan: Arc::clone(&single_plan), single_plan, stated }
    }

    fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let (plan, stated) = read_public(bytes)?;
        Ok(Self::new(bytes.into(), plan, stated))
    }

    fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let (public, single_plan) = (Arc::clone(&self.public), Arc::clone(&self.single_plan));
        let plan = match seam::checked_batch(batch, self.max_batch())? {
            1 => Arc::clone(&single_plan),
            batch => Arc::new(single_plan.batched(batch)),
        };
        Ok(Self { public, single_plan, plan, stated: self.stated })
    }

    pub(super) fn costs(&self) -> Costs {
        C::costs(&self.plan)
    }

    /// Number of inputs of one offline and one online phase.
    pub(super) fn batch(&self) -> usize {
        self.plan.batch
    }

    /// Largest batch that the model allows.
    pub(super) fn max_batch(&self) -> usize {
        max_inputs(&self.single_plan)
    }

    /// Digest of plan, stated digests and batch, to all of which material is bound.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.plan.binding()
    }
}

impl<C: Correlation> Server<C> {
    /// Derives keys, digests and public part of a model.
    pub(super) fn new(
        plan: Plan<C>,
        weights: Weights,
        secret: Zeroizing<[u8; 32]>,
        report: Option<RingReport>,
    ) -> Result<Self, BackendError> {
        let keys = masked_weights::keys(&plan, &weights, &secret);
        let dealer_part = Zeroizing::new(keys.iter().flat_map(|key| key.0).collect::<Vec<u8>>());
        let stated = C::stated(masked_weights::digest(&plan, &weights, &keys)?, &dealer_part);
        let public = public::write(C::NAME, C::VERSION, &(plan.options(), stated), plan.graph())?;
        let private = Arc::new(Private { weights, secret, keys, dealer_part });
        Ok(Self { compiled: Compiled::new(public.into(), plan, stated), private, report })
    }

    pub(super) fn for_batch(&self, batch: usize) -> Result<Self, BackendError> {
        Ok(Self { compiled: self.compiled.batched(batch)?, private: Arc::clone(&self.private), report: None })
    }
}

impl<C: Correlation> Client<C> {
    pub(super) fn read(public: &[u8]) -> Result<Self, BackendError> {
        Ok(Self { compiled: Compiled::read(public)?, masked_weights: Arc::default() })
    }

    /// Returns the same model for a batch, with the same shared `E`.
    pub(super) fn for_batch(&self, batch: usize) -> Result<Self, BackendError> {
        Ok(Self { compiled: self.compiled.batched(batch)?, masked_weights: Arc::clone(&self.masked_weights) })
    }
}

impl<C: Correlation> Dealing<C> {
    pub(super) fn read(public: &[u8], part: &[u8]) -> Result<Self, BackendError> {
        let compiled = Compiled::<C>::read(public)?;
        let [masked_weights, ..] = compiled.stated.as_ref() else { unreachable!("`E` has a digest") };
        if C::stated(*masked_weights, part) != compiled.stated {
            return Err(BackendError::Private { what: "these keys are not those that the public part states".into() });
        }
        let keys = Arc::new(masked_weights::read_keys(&compiled.plan, part)?);
        Ok(Self { compiled, keys })
    }

    pub(super) fn for_batch(&self, batch: usize) -> Result<Self, BackendError> {
        Ok(Self { compiled: self.compiled.batched(batch)?, keys: Arc::clone(&self.keys) })
    }
}
