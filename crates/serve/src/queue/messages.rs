//! What the driver and the queue say to each other.
use crate::catalog::Offered;
use crate::state::Learned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_admission::ConnectionId as Number;
use tacit_client::wire::Device;
use tacit_ids::{ClientId, MaterialId};
use tacit_sched::{JobId, JobPhase, Span};

/// Whose input, of which model.
#[derive(Clone)]
pub(crate) struct Whose {
    pub(crate) client: ClientId,
    pub(crate) offered: Arc<Offered>,
    pub(crate) device: Device,
}

/// How an input stands.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    /// `announced`, `offline` (its material is being made), `ready` (it is made), or `online`.
    pub(crate) state: &'static str,
    /// For how many inputs it is.
    pub(crate) inputs: u32,
    /// Who came for its next phase now would start at once.
    pub(crate) turn: bool,
}

/// How a job ended that the scheduler started.
pub(crate) enum JobEnd {
    /// Well, in this time; with what it made, and the most memory that it held, where that was counted.
    Done { took: Duration, made: Option<MaterialId>, memory: Option<u64> },
    /// With nothing to show.
    Failed,
}

/// What the driver has to do.
pub(crate) enum Effect {
    /// The connection's job starts.
    Start {
        number: Number,
        phase: JobPhase,
        threads: u32,
        planned: Planned,
        material: Option<MaterialId>,
        /// A half from a pool, for an offline phase.
        drawn: Option<MaterialId>,
    },
    /// A material is to be dealt for a pool.
    Deal { job: JobId, offered: Arc<Offered> },
    /// This half of a pool will not be used.
    Drop { material: MaterialId },
    /// An offline phase has looked for a half in a pool.
    Drawn {
        /// Name of its model, and the back end.
        of: (Arc<str>, &'static str),
        found: bool,
    },
    /// The connection waits in vain.
    Refuse { number: Number, reason: String },
    /// The connection's job is to end now.
    Cut { number: Number },
    /// This client's material, if it is hers, will not be used.
    Burn { material: MaterialId, client: ClientId },
    /// What is expected of such a phase from now on.
    Learned(Learned),
    /// A phase took a time that may be compared with what was expected.
    Compared {
        /// Name of its model, and the back end.
        of: (Arc<str>, &'static str),
        phase: JobPhase,
        expected: Span,
        took: Span,
    },
    /// An input was answered, or a batch.
    Answered {
        client: ClientId,
        /// Name of its model, and the back end.
        of: (Arc<str>, &'static str),
        /// How many inputs it were, as one.
        inputs: u32,
        /// From its arrival to its end.
        delay: Span,
        /// From its arrival to the start of its online phase.
        waiting: Span,
    },
}

/// What the queue knows of a job that starts.
#[derive(Clone, Copy)]
pub(crate) struct Planned {
    /// How long it is expected to take.
    pub(crate) expected: Span,
    /// When its input was announced or asked for, whichever was first.
    pub(crate) known: Instant,
}
