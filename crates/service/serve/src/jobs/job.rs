//! Requests on their way to a worker.
use crate::jobs::event::{Decision, Open};
use crate::jobs::quota::QuotaCharge;
use std::time::Instant;
use tacit_client::wire::Request;
use tacit_ids::MaterialId;
use tokio::sync::oneshot;

/// A request between its arrival and its end.
pub(crate) enum Job {
    /// Waits for a place in memory.
    Waits {
        ask: PendingRequest,
        /// When the request is refused if there is still no place.
        deadline: Instant,
    },
    Queued {
        ask: PendingRequest,
        reservation: Reservation,
    },
    /// Runs; `place` is reserved in memory for the material that it makes.
    Runs {
        place: Option<MaterialId>,
    },
}

#[derive(Default)]
pub(crate) struct Reservation {
    /// The place in memory for its material.
    pub(crate) place: Option<MaterialId>,
    pub(crate) charge: Option<QuotaCharge>,
}

pub(crate) struct PendingRequest {
    pub(crate) request: Request,
    pub(crate) open: Option<Open>,
    /// Tokens that the request has taken from its client's rate.
    pub(crate) tokens: u32,
    pub(crate) reply: oneshot::Sender<Decision>,
}

impl Job {
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        match self {
            Self::Waits { deadline, .. } => Some(*deadline),
            _ => None,
        }
    }

    pub(crate) fn take_reservation(&mut self) -> Reservation {
        match self {
            Self::Waits { .. } => Reservation::default(),
            Self::Queued { reservation, .. } => std::mem::take(reservation),
            Self::Runs { place } => Reservation { place: place.take(), charge: None },
        }
    }

    /// The open model of a job that has not started.
    pub(crate) fn open(&self) -> Option<&Open> {
        match self {
            Self::Waits { ask, .. } | Self::Queued { ask, .. } => ask.open.as_ref(),
            Self::Runs { .. } => None,
        }
    }

    /// The request of a job that has not started.
    pub(crate) fn into_pending(self) -> Option<PendingRequest> {
        match self {
            Self::Waits { ask, .. } | Self::Queued { ask, .. } => Some(ask),
            Self::Runs { .. } => None,
        }
    }
}

pub(crate) enum Admitted {
    Queued(Reservation),
    Now { destroyed: Vec<MaterialId>, notice_ignored: Option<String> },
}
