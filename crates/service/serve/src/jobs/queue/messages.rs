//! Messages between driver and queue.
use crate::models::catalog::Offered;
use crate::ops::state::Learned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_admission::ConnectionId;
use tacit_client::wire::Device;
use tacit_ids::{ClientId, MaterialId};
use tacit_sched::{JobId, JobPhase, Span};

#[derive(Clone)]
pub(crate) struct InputOrigin {
    pub(crate) client: ClientId,
    pub(crate) offered: Arc<Offered>,
    pub(crate) device: Device,
}

#[derive(Clone, Copy)]
pub(crate) struct InputStatus {
    /// `announced`, `offline` (its material is being made), `ready` (it is made), or `online`.
    pub(crate) state: &'static str,
    pub(crate) inputs: u32,
    /// Whether its next phase would start at once if a connection asked for it.
    pub(crate) may_start: bool,
}

pub(crate) enum JobEnd {
    /// Well: its duration, the material that it made, and the most memory that it held, if counted.
    Done {
        took: Duration,
        material: Option<MaterialId>,
        memory: Option<u64>,
    },
    Failed,
}

pub(crate) enum Effect {
    Start {
        connection: ConnectionId,
        phase: JobPhase,
        threads: u32,
        planned: Planned,
        material: Option<MaterialId>,
        /// A half from a pool, for an offline phase.
        from_pool: Option<MaterialId>,
    },
    Deal {
        job: JobId,
        offered: Arc<Offered>,
    },
    /// This half of a pool will not be used.
    Drop {
        material: MaterialId,
    },
    /// An offline phase looked for a half in a pool.
    Drawn {
        offer: OfferName,
        found: bool,
    },
    Refuse {
        connection: ConnectionId,
        reason: String,
    },
    Cut {
        connection: ConnectionId,
    },
    /// This material, if it belongs to this client, will not be used.
    Burn {
        material: MaterialId,
        client: ClientId,
    },
    Learned(Learned),
    Compared {
        offer: OfferName,
        phase: JobPhase,
        expected: Span,
        took: Span,
    },
    Answered {
        client: ClientId,
        offer: OfferName,
        inputs: u32,
        /// From its arrival to its end.
        delay: Span,
        /// From its arrival to the start of its online phase.
        waiting: Span,
    },
}

/// Name of an offer: a model on a back end.
pub(crate) struct OfferName {
    pub(crate) model: Arc<str>,
    pub(crate) backend: &'static str,
}

#[derive(Clone, Copy)]
pub(crate) struct Planned {
    pub(crate) expected: Span,
    /// When its input was announced or asked for, whichever was first.
    pub(crate) known_since: Instant,
}
