//! Events that the driver handles, and its answers.
use crate::ServeError;
use crate::accept::access::Rules;
use crate::accept::closer::Closer;
use crate::accept::identity::CertificateIdentity;
use crate::jobs::queue::{InputOrigin, InputStatus, JobEnd};
use crate::jobs::quota::QuotaCharge;
use crate::models::catalog::{Catalog, Changes, Offered};
use crate::ops::monitor::Load;
use crate::ops::record::Measured;
use crate::ops::snapshot::Snapshot;
use crate::ops::state::Learned;
use crate::session::pooled::Pooled;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_admission::{ConnectionId, RefusalReason};
use tacit_backends::Material;
use tacit_client::wire::{Announce, InputId, Request};
use tacit_ids::{ClientId, MaterialId};
use tacit_sched::JobId;
use tacit_sched::policy::PolicySpec;
use tacit_store::Binding;
use tokio::sync::oneshot;

pub(crate) enum Event {
    /// Answered when the driver has handled it.
    Accepted {
        reply: oneshot::Sender<()>,
    },
    /// `closer` ends the connection.
    Greeted {
        number: ConnectionId,
        identity: CertificateIdentity,
        closer: Closer,
        reply: oneshot::Sender<Result<(), TurnedAway>>,
    },
    /// The refusal is logged already.
    Refused {
        kind: RefusalReason,
    },
    Requested {
        number: ConnectionId,
        request: Request,
        open: Option<Open>,
        reply: oneshot::Sender<Decision>,
    },
    Load(Load),
    /// How many jobs wait?
    Queued {
        reply: oneshot::Sender<u32>,
    },
    /// A job has made material to be held in memory. Sent before the client learns of it.
    Made {
        id: MaterialId,
        binding: Binding,
        material: Material,
    },
    /// A dealing for a pool has ended, with a half and how long it took, or without.
    Pooled {
        job: JobId,
        result: Option<(Pooled, Duration)>,
    },
    /// The dealer has lost what it made ahead of time.
    PoolLost,
    /// A scheduled job has ended. Sent before the client learns of it.
    Over {
        number: ConnectionId,
        end: JobEnd,
    },
    /// The connection ends.
    Deviated {
        number: ConnectionId,
        fault: &'static str,
    },
    /// `measured` is the phase that the job ran.
    Finished {
        number: ConnectionId,
        measured: Option<Measured>,
    },
    /// An authenticated peer speaks HTTP and has a connection slot.
    HttpConnected,
    Snapshot {
        reply: oneshot::Sender<Snapshot>,
    },
    /// A client announces an input without a connection for its phases.
    Announced {
        origin: InputOrigin,
        announce: Announce,
        reply: oneshot::Sender<Result<InputStatus, ServeError>>,
    },
    /// `None` if the client has no input of this name.
    Status {
        client: ClientId,
        name: InputId,
        reply: oneshot::Sender<Option<InputStatus>>,
    },
    /// Answered once the input's turn has come, its state differs from `state`, or it has ended.
    Watched {
        client: ClientId,
        name: InputId,
        state: &'static str,
        reply: oneshot::Sender<Option<InputStatus>>,
    },
    /// Answered with whether there was one.
    TakenBack {
        client: ClientId,
        name: InputId,
        reply: oneshot::Sender<bool>,
    },
    SetPolicy {
        policy: PolicySpec,
        reply: oneshot::Sender<()>,
    },
    Access(Arc<Rules>),
    Models {
        catalog: Box<Catalog>,
        reply: oneshot::Sender<Changes>,
    },
    /// Models on offer with unknown durations.
    Cold {
        reply: oneshot::Sender<Vec<Arc<Offered>>>,
    },
    /// Durations that a warm-up has measured.
    Warmed(Vec<Learned>),
    /// A connection has ended, and its job if it had one.
    Gone {
        number: ConnectionId,
    },
    /// Jobs have `grace` to end, then they are cut.
    Stop {
        grace: Duration,
    },
}

#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) binding: Binding,
    pub(crate) origin: InputOrigin,
}

pub(crate) struct TurnedAway {
    pub(crate) kind: RefusalReason,
    pub(crate) reason: &'static str,
}

pub(crate) enum Decision {
    Start(Box<Grant>),
    Refuse(ServeError),
    Close,
}

#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) threads: usize,
    pub(crate) decided: Instant,
}

impl Turn {
    pub(crate) fn now(threads: usize) -> Self {
        Self { threads, decided: Instant::now() }
    }
}

pub(crate) struct Grant {
    pub(crate) request: Request,
    pub(crate) turn: Turn,
    /// Material from memory; without it, an inference claims material from the store.
    pub(crate) material: Option<Material>,
    /// The server's half from a pool, for an offline phase.
    pub(crate) pooled: Option<Pooled>,
    /// The quota charge to store before the online phase begins.
    pub(crate) charge: Option<QuotaCharge>,
    /// Ids of discarded material that was in memory; it is destroyed already.
    pub(crate) destroyed: Vec<MaterialId>,
    /// Why the request's notice was ignored.
    pub(crate) notice_ignored: Option<String>,
}
