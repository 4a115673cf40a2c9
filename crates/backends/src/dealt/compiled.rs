//! A compiled model at either party.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::Seed;
use zeroize::Zeroizing;

use super::cost;
use super::options::{NAME, Options};
use super::plan::{self, Plan};
use super::statics::{self, Statics};
use crate::ring::{self, Weights, public};
use crate::{BackendError, Costs, seam};

/// Version of the public part and of the protocol that follows from it.
const VERSION: u32 = 2;

/// What both parties have.
pub(super) struct Compiled {
    pub(super) public: Vec<u8>,
    pub(super) plan: Plan,
    /// Digest of `E`.
    pub(super) statics: [u8; 32],
}

/// The model at the server.
pub(super) struct Server {
    pub(super) compiled: Compiled,
    pub(super) weights: Weights,
    pub(super) secret: Zeroizing<[u8; 32]>,
    pub(super) keys: Vec<Seed>,
    pub(super) part: Zeroizing<Vec<u8>>,
    pub(super) report: Option<ring::RingReport>,
}

/// The model at the client.
pub(super) struct Client {
    pub(super) compiled: Compiled,
    /// `E`, once a connection of this process has it.
    pub(super) statics: OnceLock<Arc<Statics>>,
}

impl Compiled {
    /// From the public part: bytes of a stranger.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let ((options, statics), rest): ((Options, [u8; 32]), _) = public::read((NAME, VERSION), bytes)?;
        options.check()?;
        let plan = plan::compile(ring::read_public(rest)?, options)?;
        Ok(Self { public: bytes.to_vec(), plan, statics })
    }

    pub(super) fn costs(&self) -> Costs {
        cost::costs(&self.plan)
    }

    /// Over the plan and `E`: material is bound to both.
    pub(super) fn digest(&self) -> [u8; 32] {
        seam::digest("tacit 2026-11 dealt", &[&self.plan.digest(), &self.statics])
    }
}

impl Server {
    pub(super) fn new(
        (plan, weights): (Plan, Weights),
        secret: Zeroizing<[u8; 32]>,
        report: Option<ring::RingReport>,
    ) -> Result<Self, BackendError> {
        let keys = statics::keys(&plan, &weights, &secret);
        let statics = statics::digest(&plan, &weights, &keys, statics::hasher())?;
        let public = public::write((NAME, VERSION), &(plan.options(), statics), plan.graph())?;
        let part = Zeroizing::new(keys.iter().flat_map(|key| key.0).collect());
        Ok(Self { compiled: Compiled { public, plan, statics }, weights, secret, keys, part, report })
    }
}
