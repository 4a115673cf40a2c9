//! What the driver is told, and what it answers.
use crate::ServeError;
use crate::access::Rules;
use crate::catalog::{Catalog, Changes, Offered};
use crate::closer::Closer;
use crate::identity::CertificateIdentity;
use crate::monitor::Load;
use crate::pooled::Pooled;
use crate::queue::{JobEnd, Standing, Whose};
use crate::quota::QuotaCharge;
use crate::record::Measured;
use crate::snapshot::Snapshot;
use crate::state::Learned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_admission::{ConnectionId as Number, Kind};
use tacit_backends::Material;
use tacit_client::wire::{Announce, InputId, Request};
use tacit_ids::{ClientId, MaterialId};
use tacit_sched::JobId;
use tacit_sched::policy::PolicySpec;
use tacit_store::Binding;
use tokio::sync::oneshot;

/// What happened.
pub(crate) enum Event {
    /// Somebody connected; answered when that is noted.
    Accepted { reply: oneshot::Sender<()> },
    /// Its client is known, and the certificate; is it served, or else why not? `closer` ends it from here.
    Greeted { number: Number, who: CertificateIdentity, closer: Closer, reply: oneshot::Sender<Result<(), TurnedAway>> },
    /// Somebody was not served, or not granted something: it is logged already.
    Refused { kind: Kind },
    /// A client asks, with the model that it has open.
    Requested { number: Number, request: Request, open: Option<Open>, reply: oneshot::Sender<Decision> },
    /// What the machine was like a moment ago.
    Load(Load),
    /// How many jobs wait?
    Queued { reply: oneshot::Sender<u32> },
    /// A job has made material to be held in memory. Comes before the client is told.
    Made { id: MaterialId, binding: Binding, material: Material },
    /// A dealing for a pool is over, with a half and how long it took, or with nothing to show.
    Pooled { job: JobId, made: Option<(Pooled, Duration)> },
    /// The dealer has none of what was dealt ahead of time.
    PoolLost,
    /// One of the scheduler's jobs is over. Comes before the client is told.
    Over { number: Number, end: JobEnd },
    /// The client of a job has sent what nobody who follows the protocol sends. Its connection ends.
    Deviated { number: Number, fault: &'static str },
    /// A connection has no job any more; `measured` is the phase that the last one has run.
    Finished { number: Number, measured: Option<Measured> },
    /// Somebody known speaks HTTP, and has a place.
    Visited,
    /// What is there to be seen?
    Snapshot { reply: oneshot::Sender<Snapshot> },
    /// An input will come; this is said without a connection that comes for its phases.
    Announced { whose: Whose, announce: Announce, reply: oneshot::Sender<Result<Standing, ServeError>> },
    /// How does a client's input stand? `None` if it has none of this name.
    Standing { client: ClientId, name: InputId, reply: oneshot::Sender<Option<Standing>> },
    /// Tell how a client's input stands when its turn has come, its state is another than `state`, or it has
    /// ended.
    Watched { client: ClientId, name: InputId, state: &'static str, reply: oneshot::Sender<Option<Standing>> },
    /// A client takes an input back; whether there was one.
    TakenBack { client: ClientId, name: InputId, reply: oneshot::Sender<bool> },
    /// Jobs are to start by this policy.
    SetPolicy { policy: PolicySpec, reply: oneshot::Sender<()> },
    /// These rules hold from now on.
    Access(Arc<Rules>),
    /// These models are on offer from now on.
    Models { catalog: Box<Catalog>, reply: oneshot::Sender<Changes> },
    /// Of which models on offer is not known how long they take?
    Cold { reply: oneshot::Sender<Vec<Arc<Offered>>> },
    /// How long phases took of models that nobody had asked for.
    Warmed(Vec<Learned>),
    /// A connection has ended, and its job if it had one.
    Gone { number: Number },
    /// Take no more requests; jobs have `grace` to end, then they are cut.
    Stop { grace: Duration },
}

/// The model that a client has open.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) binding: Binding,
    pub(crate) whose: Whose,
}

/// Why a client is not served.
pub(crate) struct TurnedAway {
    pub(crate) kind: Kind,
    pub(crate) reason: &'static str,
}

/// What becomes of a request.
pub(crate) enum Decision {
    /// A worker carries it out.
    Start(Box<Grant>),
    /// The client is told why not.
    Refuse(ServeError),
    /// The server stops.
    Close,
}

/// That a job starts now.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// Threads for its arithmetic.
    pub(crate) threads: usize,
    /// When it was decided.
    pub(crate) decided: Instant,
}

impl Turn {
    pub(crate) fn now(threads: usize) -> Self {
        Self { threads, decided: Instant::now() }
    }
}

/// A job that may run.
pub(crate) struct Grant {
    /// What was asked.
    pub(crate) request: Request,
    pub(crate) turn: Turn,
    /// Material from memory; for an inference without, the store is asked.
    pub(crate) material: Option<Material>,
    /// The server's half for an offline phase, from a pool.
    pub(crate) pooled: Option<Pooled>,
    /// What is to be written down before the online phase begins.
    pub(crate) charge: Option<QuotaCharge>,
    /// Of material that is to be destroyed, what was in memory: it is destroyed.
    pub(crate) destroyed: Vec<MaterialId>,
    /// Why the notice that a request named does not help.
    pub(crate) notice_ignored: Option<String>,
}
