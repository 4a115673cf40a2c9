//! Requests on their way to a worker.
use crate::event::{Decision, Open};
use crate::quota::QuotaCharge;
use std::time::Instant;
use tacit_client::wire::Request;
use tacit_ids::MaterialId;
use tokio::sync::oneshot;

/// A request between its arrival and its end.
pub(crate) enum Job {
    /// For a place in memory.
    Waits {
        ask: Asked,
        /// When it is refused if there is none.
        until: Instant,
    },
    /// In the scheduler's queue.
    Queued { ask: Asked, held: Held },
    /// With the place in memory that is reserved for what it makes.
    Runs { place: Option<MaterialId> },
}

/// What is kept for a request that waits for its turn.
#[derive(Default)]
pub(crate) struct Held {
    /// A place in memory for what it makes.
    pub(crate) place: Option<MaterialId>,
    /// One of its client's answers of the day.
    pub(crate) charge: Option<QuotaCharge>,
}

/// A request, and who is told what becomes of it.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) open: Option<Open>,
    /// Tokens of its client's rate that it has taken.
    pub(crate) tokens: u32,
    pub(crate) reply: oneshot::Sender<Decision>,
}

impl Job {
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        match self {
            Self::Waits { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// What is kept for it and not used yet, taken out.
    pub(crate) fn held(&mut self) -> Held {
        match self {
            Self::Waits { .. } => Held::default(),
            Self::Queued { held, .. } => std::mem::take(held),
            Self::Runs { place } => Held { place: place.take(), charge: None },
        }
    }

    /// The model that is open, of what has not started.
    pub(crate) fn open(&self) -> Option<&Open> {
        match self {
            Self::Waits { ask, .. } | Self::Queued { ask, .. } => ask.open.as_ref(),
            Self::Runs { .. } => None,
        }
    }

    /// What has not started, to be told what becomes of it.
    pub(crate) fn pending(self) -> Option<Asked> {
        match self {
            Self::Waits { ask, .. } | Self::Queued { ask, .. } => Some(ask),
            Self::Runs { .. } => None,
        }
    }
}

/// What becomes of a request that is possible.
pub(crate) enum Admitted {
    /// It waits for its turn.
    Queued(Held),
    /// It starts now.
    Now { destroyed: Vec<MaterialId>, notice_ignored: Option<String> },
}
