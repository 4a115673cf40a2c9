//! Requests on their way to a worker.
use crate::event::{Decision, Open};
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
    /// In the scheduler's queue, with the place that is reserved for what it makes.
    Queued { ask: Asked, place: Option<MaterialId> },
    /// With that place.
    Runs { place: Option<MaterialId> },
}

/// A request, and who is told what becomes of it.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) open: Option<Open>,
    pub(crate) reply: oneshot::Sender<Decision>,
}

impl Job {
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        match self {
            Self::Waits { until, .. } => Some(*until),
            _ => None,
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
    /// It waits for its turn, with this place in memory.
    Queued(Option<MaterialId>),
    /// It starts now.
    Now { destroyed: Vec<MaterialId>, notice_ignored: Option<String> },
}
