//! Events that the caller reports ([`Event`]) and actions that the scheduler requests ([`Action`]).

use crate::config::ModelSpec;
use crate::ids::{ClientId, DeadlineClass, InputId, JobId, JobPhase, MaterialId, ModelId, NoticeId, Owner, RequestId};
use crate::resources::Resources;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A client asks for `inputs` inferences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The request's id, unique among live requests.
    pub id: RequestId,
    /// The client that asks.
    pub client: ClientId,
    /// Which model (with its back end and link class).
    pub model: ModelId,
    /// Number of inputs, at least 1 and at most [`crate::Config::max_inputs`].
    pub inputs: u32,
    /// The notice that announced the request, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<NoticeId>,
    /// Inputs not done this long after arrival end as [`Outcome::TimedOut`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How soon the client needs the answer.
    #[serde(default)]
    pub deadline: DeadlineClass,
    /// Ready material of this client for this model. The first inputs consume it (at most one each)
    /// and need no T_pre.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub materials: Vec<MaterialId>,
    /// Most jobs of the request that may run at once; `None` is no limit. See [`Event::Lanes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u32>,
}

impl Request {
    /// A request without a notice, a limit or ready material.
    #[must_use]
    pub fn plain(id: RequestId, client: ClientId, model: ModelId, inputs: u32) -> Self {
        let (deadline, materials) = (DeadlineClass::default(), Vec::new());
        Self { id, client, model, inputs, notice: None, timeout: None, deadline, materials, lanes: None }
    }
}

/// A client announces a request, so that T_pre can run before the request arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvanceNotice {
    /// The notice's id, unique among live notices.
    pub id: NoticeId,
    /// The client that announces.
    pub client: ClientId,
    /// The announced model.
    pub model: ModelId,
    /// Number of announced inputs.
    pub inputs: u32,
    /// Size of one input in bytes; for the caller, no policy uses it.
    #[serde(default)]
    pub input_bytes: u64,
    /// Time from now until the expected arrival. The time to live starts then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Span>,
    /// Time to live in place of [`crate::Config::notice_ttl`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// Most jobs of the notice that may run at once; `None` is no limit. See [`Event::Lanes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u32>,
    /// Material stays for the client to name later: no request is needed, no time to live applies.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Actual cost of a finished job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Wall time of the job.
    pub time: Span,
    /// Highest memory use in bytes.
    pub peak_memory: u64,
}

/// How the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shutdown {
    /// Refuse new requests, finish every accepted one, then stop.
    Drain,
    /// Stop every job and cancel every request in this step.
    Now,
}

/// An event, for [`crate::Scheduler::handle`] in order of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A request arrived.
    Request(Request),
    /// An advance notice arrived.
    Notice(AdvanceNotice),
    /// A started job succeeded; its material is on disk (T_pre) or consumed (T_on).
    JobFinished {
        /// Which job.
        job: JobId,
        /// Its actual cost; updates the profile table.
        usage: Usage,
        /// Material of a T_pre, under a name never used before; `None` for a T_on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        material: Option<MaterialId>,
    },
    /// A started job failed. The caller destroys any partial material of a T_pre; the scheduler
    /// asks for [`Action::Burn`] of the material of a T_on.
    JobFailed {
        /// Which job.
        job: JobId,
    },
    /// A job stopped on request ([`Action::Stop`]): its resources are free now.
    JobStopped {
        /// Which job.
        job: JobId,
    },
    /// A job could not start: its client has no connection. Its input is queued again with its age;
    /// no attempt counts. Report fewer lanes first, or the job starts again.
    JobNotStarted {
        /// Which job.
        job: JobId,
    },
    /// Number of the client's connections that can run jobs of this owner, busy ones included. A
    /// lower number stops no running job.
    Lanes {
        /// The owner.
        of: Owner,
        /// Most jobs that may run at once.
        lanes: u32,
    },
    /// The client disconnected: its requests end, its notices lose their lanes. Its material and
    /// stock stay, and so does material of its notices until their time to live.
    ClientGone {
        /// Which client.
        client: ClientId,
    },
    /// The client may no longer be served: its requests and notices end, its material is burnt.
    ClientRevoked {
        /// Which client.
        client: ClientId,
    },
    /// The client cancels its request.
    Cancel {
        /// Which request.
        request: RequestId,
    },
    /// The client withdraws its notice: its inputs end as if the notice had expired.
    Withdraw {
        /// Which notice.
        notice: NoticeId,
    },
    /// The machine grew or shrank. Running jobs continue; new ones start only when they fit.
    Capacity(Resources),
    /// Shut down.
    Shutdown(Shutdown),
    /// A new model is served. Its [`ModelId`] is the number of models so far.
    ModelAdded(ModelSpec),
    /// The model is no longer served: new inputs are refused and none of its jobs starts. Queued
    /// inputs end, running jobs continue, its stock and other ready material is burnt.
    ModelRemoved {
        /// Which model.
        model: ModelId,
    },
    /// Unused material of an earlier run was found on disk (ledger state `ready`). Material bound
    /// to a client may be found at any time; without pools per client, it stays for requests of the
    /// client that name it. Unbound material is refused after this run's first own material.
    MaterialFound {
        /// Its name from the earlier run.
        material: MaterialId,
        /// For which model.
        model: ModelId,
        /// The client it is bound to, for back ends that bind material.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<ClientId>,
    },
    /// Inputs of another model use this model's stock: its pool counts them as arrivals.
    Demand {
        /// Which model.
        model: ModelId,
        /// How many.
        inputs: u32,
    },
    /// Idle material is gone: destroyed, expired, or used for another model's input.
    MaterialGone {
        /// Which material.
        material: MaterialId,
    },
    /// No event except the passing of time (a requested wake-up).
    Tick,
}

/// Origin of an input's material.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Its own T_pre, queued when the request arrived; also for a model without T_pre.
    Own,
    /// The T_pre of its advance notice.
    Notice,
    /// The pool (ready stock, or a refill that was running when the request arrived).
    Pool,
    /// Ready material that the request named.
    Kept,
}

/// The one final state of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// T_on finished.
    Done,
    /// A job failed: T_pre as often as [`crate::Config::pre_attempts`] allows, or T_on once.
    Failed,
    /// The request's timeout passed first.
    TimedOut,
    /// Cancelled by the client, its departure, or shutdown.
    Cancelled(Cause),
}

/// Why an input was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// [`Event::Cancel`].
    Client,
    /// [`Event::ClientGone`] or [`Event::ClientRevoked`].
    ClientGone,
    /// [`Event::ModelRemoved`].
    ModelGone,
    /// [`Shutdown::Now`].
    Shutdown,
    /// The machine shrank and the job can never fit; [`Action::Reject`] has the missing resources.
    CannotFit,
}

/// The life of one input, reported when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputReport {
    /// Which input.
    pub input: InputId,
    /// The client that asked.
    pub client: ClientId,
    /// Which model.
    pub model: ModelId,
    /// How it ended.
    pub outcome: Outcome,
    /// Origin of its material.
    pub source: Source,
    /// When the request arrived.
    pub arrived: Time,
    /// Start and finish of its T_pre, if any (may precede `arrived`: notice, pool refill).
    pub pre: Stamp,
    /// Start and finish of its T_on.
    pub on: Stamp,
    /// Time of its final state.
    pub ended: Time,
    /// True for the last input of its request to end.
    pub last: bool,
}

/// Start and finish of one phase of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// When it started.
    pub started: Option<Time>,
    /// When it finished.
    pub finished: Option<Time>,
    /// Number of threads; 0 before the start.
    pub threads: u32,
}

/// The purpose of a job. A request can claim a notice's T_pre and a refill while they run:
/// [`crate::Scheduler::job_input`] returns the claiming input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// An input of a request.
    Request(InputId),
    /// An input of a notice.
    Notice(NoticeId),
    /// The stock.
    Pool,
}

/// Order to run a job now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Id for [`Event::JobFinished`] or [`Event::JobFailed`].
    pub job: JobId,
    /// Which phase to run.
    pub phase: JobPhase,
    /// Which model.
    pub model: ModelId,
    /// The purpose.
    pub work: Work,
    /// The client that takes part; `None` where the material is not bound to one.
    pub client: Option<ClientId>,
    /// Threads it may use.
    pub threads: u32,
    /// Bytes of memory reserved for the job.
    pub memory: u64,
    /// Material to claim, durably, before the first online byte (`On`). `None` for a model without
    /// T_pre, and for `Pre`: the caller names the material when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub material: Option<MaterialId>,
    /// Expected duration.
    pub estimate: Span,
}

/// A task for the caller, from [`crate::Scheduler::poll_action`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run this job; answer later with [`Event::JobFinished`] or [`Event::JobFailed`].
    Start(Start),
    /// Stop this job and answer with [`Event::JobStopped`]; until then it holds its resources. Any
    /// other reported end has the same effect. Both parties destroy partial material of a T_pre.
    Stop {
        /// Which job.
        job: JobId,
    },
    /// Destroy this unused material at both parties. Material of a finished T_on is consumed and
    /// needs no burn.
    Burn {
        /// Which material.
        material: MaterialId,
    },
    /// An accepted request can never fit any more (the machine shrank); its inputs are cancelled.
    Reject {
        /// Which request.
        request: RequestId,
        /// Why.
        reason: Rejected,
    },
    /// The request continues as one without notice.
    NoticeIgnored {
        /// Which request.
        request: RequestId,
        /// The notice that it named.
        notice: NoticeId,
        /// Why the notice is ignored.
        why: NoticeProblem,
    },
    /// The notice ended without a request: expired, failed, client or model gone, or all its
    /// material was kept for the client.
    NoticeEnded {
        /// Which notice.
        notice: NoticeId,
        /// How it ended.
        why: NoticeProblem,
    },
    /// An input reached its final state.
    Report(InputReport),
    /// Shutdown is complete; no action follows. Stock stays on disk for [`Event::MaterialFound`].
    Stopped,
}

/// Why a notice does not help a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Error)]
#[serde(rename_all = "snake_case")]
pub enum NoticeProblem {
    /// Unknown notice, or one so old that the scheduler forgot it.
    #[error("no such notice")]
    Unknown,
    /// The notice belongs to another client.
    #[error("the notice belongs to another client")]
    OtherClient,
    /// The notice announced another model.
    #[error("the notice announced another model")]
    OtherModel,
    /// Another request used it.
    #[error("the notice was used by another request")]
    Used,
    /// The notice's time to live passed.
    #[error("the notice expired")]
    Expired,
    /// The client withdrew the notice.
    #[error("the notice was taken back")]
    Withdrawn,
    /// All of its T_pre failed.
    #[error("the notice's offline phase failed")]
    Failed,
    /// The client may no longer be served.
    #[error("the notice's client left")]
    ClientGone,
    /// The model is no longer served.
    #[error("the notice's model is gone")]
    ModelGone,
    /// The notice's material was kept for its client.
    #[error("what the notice made is kept")]
    Kept,
    /// The notice keeps its material for its client; requests use that material by name.
    #[error("what the notice makes will be kept")]
    Keeps,
    /// The server is shutting down.
    #[error("shutting down")]
    Shutdown,
    /// Fewer inputs arrived than were announced, the rest was released. The notice still counts.
    #[error("fewer inputs came than were announced")]
    Surplus,
}

/// An event was refused; the state is as before the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(rename_all = "snake_case")]
pub enum Rejected {
    /// The model was never given to the scheduler, or was removed.
    #[error("unknown model {0:?}")]
    UnknownModel(ModelId),
    /// A live request has this id.
    #[error("request {0:?} exists")]
    DuplicateRequest(RequestId),
    /// A live notice has this id.
    #[error("notice {0:?} exists")]
    DuplicateNotice(NoticeId),
    /// No inputs, or more than [`crate::Config::max_inputs`].
    #[error("{inputs} inputs, allowed are 1 to {limit}")]
    BadBatch {
        /// Inputs of the request.
        inputs: u32,
        /// Largest allowed.
        limit: u32,
    },
    /// The client would have more inputs queued than [`crate::Config::max_queued`].
    #[error("client has {queued} inputs queued and asks for {asked} more, limit {limit}")]
    TooManyQueued {
        /// Inputs queued now.
        queued: u32,
        /// Inputs of the request.
        asked: u32,
        /// Largest allowed.
        limit: u32,
    },
    /// A phase of this model can never run on this machine.
    #[error("{phase:?} needs {need}, the machine has {have}")]
    NeverFits {
        /// Which phase.
        phase: JobPhase,
        /// The least that the phase needs.
        need: Resources,
        /// Capacity of the machine.
        have: Resources,
    },
    /// The server is shutting down or has stopped.
    #[error("shutting down")]
    ShuttingDown,
    /// The job is not running: never started, ended, or stopped. Frees the resources of a stopping
    /// job that ends with material; otherwise the event has no effect.
    #[error("job {0:?} is not running")]
    JobNotRunning(JobId),
    /// The job was not asked to stop, or has stopped already.
    #[error("job {0:?} was not told to stop")]
    JobNotStopping(JobId),
    /// No such live request.
    #[error("no live request {0:?}")]
    UnknownRequest(RequestId),
    /// No such live notice.
    #[error("no live notice {0:?}")]
    UnknownNotice(NoticeId),
    /// No material of this name is kept or in stock.
    #[error("no material {0} is kept or in stock")]
    UnknownMaterial(MaterialId),
    /// Unknown client. Harmless: there was nothing to end.
    #[error("no client {0}")]
    UnknownClient(ClientId),
    /// A job's material whose name is taken; found material with a binding unlike its model's, or
    /// found too late; or a request's material that is not kept for its client and model, that the
    /// request names twice, or that exceeds its inputs.
    #[error("material {0} cannot be used")]
    BadMaterial(MaterialId),
    /// A successful T_pre names no material, or a T_on names one. The job still runs.
    #[error("job {job:?}: what made material names it, and nothing else does; this is {phase:?}")]
    MaterialMismatch {
        /// Which job.
        job: JobId,
        /// Its phase.
        phase: JobPhase,
    },
    /// The event is older than one handled before.
    #[error("event at {event}, but it is {now} already")]
    TimeWentBack {
        /// Time of the event.
        event: Time,
        /// Latest time seen.
        now: Time,
    },
}
