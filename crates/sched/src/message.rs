//! What the caller tells the scheduler ([`Event`]) and what the scheduler asks of the caller ([`Action`]).

use crate::config::ModelSpec;
use crate::ids::{ClientId, DeadlineClass, InputId, JobId, JobPhase, MaterialId, ModelId, NoticeId, Owner, RequestId};
use crate::resources::Resources;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A client asks for `inputs` inferences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its name, unique among live requests.
    pub id: RequestId,
    /// Who asks.
    pub client: ClientId,
    /// Which model (with its back end and link class).
    pub model: ModelId,
    /// Number of inputs, at least 1 and at most [`crate::Config::max_inputs`].
    pub inputs: u32,
    /// The notice that announced it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<NoticeId>,
    /// Inputs not done this long after arrival end as [`Outcome::TimedOut`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How soon it is needed.
    #[serde(default)]
    pub deadline: DeadlineClass,
    /// Kept material of this client for this model, used by the first inputs (at most `inputs` of them): they
    /// need no T_pre.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub materials: Vec<MaterialId>,
    /// How many of its jobs may run at once; `None` is no limit. Changed by [`Event::Lanes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u32>,
}

impl Request {
    /// So many inputs, without a notice, a limit or kept material.
    #[must_use]
    pub fn plain(id: RequestId, client: ClientId, model: ModelId, inputs: u32) -> Self {
        let (deadline, materials) = (DeadlineClass::default(), Vec::new());
        Self { id, client, model, inputs, notice: None, timeout: None, deadline, materials, lanes: None }
    }
}

/// A client announces a request, so that T_pre can run before the request comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvanceNotice {
    /// Its name, unique among live notices.
    pub id: NoticeId,
    /// Who announces.
    pub client: ClientId,
    /// For which model.
    pub model: ModelId,
    /// How many inputs will come.
    pub inputs: u32,
    /// Size of one input in bytes; kept for the caller, no policy uses it.
    #[serde(default)]
    pub input_bytes: u64,
    /// When the request is expected, from now. The time to live counts from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Span>,
    /// Time to live in place of [`crate::Config::notice_ttl`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// How many of its jobs may run at once; `None` is no limit. Changed by [`Event::Lanes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u32>,
    /// What it makes is kept for its client: no request has to come for it, and it has no time to live.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What a finished job really used.
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
    /// Take nothing new, finish every request that was accepted, then stop.
    Drain,
    /// Stop every job and cancel every request in this step.
    Now,
}

/// Something happened. Given to [`crate::Scheduler::handle`] in order of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A request arrived.
    Request(Request),
    /// An advance notice arrived.
    Notice(AdvanceNotice),
    /// A started job ended well; its material is on disk (T_pre) or consumed (T_on).
    JobFinished {
        /// Which job.
        job: JobId,
        /// What it used; teaches the profile table.
        usage: Usage,
        /// What a T_pre made, under a name that was never used before; `None` for a T_on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        material: Option<MaterialId>,
    },
    /// A started job ended badly. Whatever a T_pre made is destroyed by the caller; the material of a T_on
    /// the scheduler asks to burn.
    JobFailed {
        /// Which job.
        job: JobId,
    },
    /// A job that was told to stop ([`Action::Stop`]) has stopped: what it held is free now.
    JobStopped {
        /// Which job.
        job: JobId,
    },
    /// A job that was to start did not: whom it needs is not there. Its input is queued again with the age
    /// that it had, and nothing has failed or been used. Take its lane away first, or it starts again.
    JobNotStarted {
        /// Which job.
        job: JobId,
    },
    /// So many of the client's connections stand ready for jobs of this owner, those of its running jobs
    /// included. Fewer than its running jobs stops nothing.
    Lanes {
        /// Whose jobs.
        of: Owner,
        /// How many may run at once.
        lanes: u32,
    },
    /// The client is disconnected: its requests end, its notices stay without lanes. Kept material and stock
    /// stay, and what its notices hold does until their time to live.
    ClientGone {
        /// Which client.
        client: ClientId,
    },
    /// The client may no longer be served: everything of it ends, its stock and its kept material are burnt.
    ClientRevoked {
        /// Which client.
        client: ClientId,
    },
    /// The client takes its request back.
    Cancel {
        /// Which request.
        request: RequestId,
    },
    /// The client takes its notice back: its inputs end as if it had expired.
    Withdraw {
        /// Which notice.
        notice: NoticeId,
    },
    /// The machine grew or shrank. Running jobs go on; new ones start only when they fit.
    Capacity(Resources),
    /// Stop.
    Shutdown(Shutdown),
    /// A model is served from now on. It gets the next [`ModelId`]: their number so far.
    ModelAdded(ModelSpec),
    /// A model is served no longer: nothing arrives for it any more and none of its jobs starts. Its queued
    /// inputs end, its running jobs go on to their end, its stock and kept material are burnt.
    ModelRemoved {
        /// Which model.
        model: ModelId,
    },
    /// Unused material of an earlier run was found on disk (ledger state `ready`). What is bound to a client
    /// may be found at any time, and is kept for it where there are no pools for single clients. The rest is
    /// refused once this run has made material of its own.
    MaterialFound {
        /// Its name from the earlier run.
        material: MaterialId,
        /// For which model.
        model: ModelId,
        /// The client it is bound to, for back ends that bind material.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<ClientId>,
    },
    /// Inputs of another model came that use this one's stock: its pool should hold as many as will be used.
    Demand {
        /// Which model.
        model: ModelId,
        /// How many.
        inputs: u32,
    },
    /// Kept or pooled material is gone: destroyed, expired, or used for another model's input.
    MaterialGone {
        /// Which material.
        material: MaterialId,
    },
    /// Only time has passed (a wake-up that was asked for).
    Tick,
}

/// Where an input's material came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A T_pre of its own, queued when the request arrived; also where the model has no T_pre.
    Own,
    /// The T_pre of its advance notice.
    Notice,
    /// The pool (ready stock, or a refill that was running when the request arrived).
    Pool,
    /// Kept material that the request named.
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
    /// Ended by the client, by its departure, or by shutdown.
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
    /// The machine shrank and the job can never fit; [`Action::Reject`] says what it needs.
    CannotFit,
}

/// The life of one input, reported when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputReport {
    /// Which input.
    pub input: InputId,
    /// Whose.
    pub client: ClientId,
    /// Which model.
    pub model: ModelId,
    /// How it ended.
    pub outcome: Outcome,
    /// Where its material came from.
    pub source: Source,
    /// When the request arrived.
    pub arrived: Time,
    /// When its T_pre started and finished, where it had one (may be before `arrived`: notice, pool refill).
    pub pre: Stamp,
    /// When its T_on started and finished.
    pub on: Stamp,
    /// When it reached its final state.
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
    /// Threads it was given; 0 before it starts.
    pub threads: u32,
}

/// What a job is started for. A notice's T_pre and a refill can be claimed by a request while they run:
/// [`crate::Scheduler::job_input`] says by which.
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
    /// Name to give back in [`Event::JobFinished`] or [`Event::JobFailed`].
    pub job: JobId,
    /// Which phase to run.
    pub phase: JobPhase,
    /// Which model.
    pub model: ModelId,
    /// For what.
    pub work: Work,
    /// With which client; `None` where the material is not bound to one.
    pub client: Option<ClientId>,
    /// Threads it may use.
    pub threads: u32,
    /// Bytes of memory set aside for it.
    pub memory: u64,
    /// Material to claim, durably, before the first online byte (`On`). `None` where the model has no T_pre,
    /// and for `Pre`: the caller names what the job makes when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub material: Option<MaterialId>,
    /// How long it is expected to take.
    pub estimate: Span,
}

/// Something the caller must do. Taken from [`crate::Scheduler::poll_action`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run this job; answer later with [`Event::JobFinished`] or [`Event::JobFailed`].
    Start(Start),
    /// Stop this job and answer with [`Event::JobStopped`]: until then it keeps its cores, memory and disk.
    /// An end that is reported in place of it means the same. Whatever a stopped T_pre made is destroyed at
    /// both parties.
    Stop {
        /// Which job.
        job: JobId,
    },
    /// Destroy this material at both parties; it will not be used. Material of a finished T_on is consumed
    /// and not named here.
    Burn {
        /// Which material.
        material: MaterialId,
    },
    /// An accepted request can no longer ever fit (the machine shrank); its inputs are reported cancelled.
    Reject {
        /// Which request.
        request: RequestId,
        /// Why.
        reason: Rejected,
    },
    /// The request is treated as one without notice.
    NoticeIgnored {
        /// Which request.
        request: RequestId,
        /// The notice it named.
        notice: NoticeId,
        /// Why the notice does not count.
        why: NoticeProblem,
    },
    /// The notice ended without a request: time to live, failure, its client or its model gone, or all that
    /// it made is kept.
    NoticeEnded {
        /// Which notice.
        notice: NoticeId,
        /// How it ended.
        why: NoticeProblem,
    },
    /// An input reached its final state.
    Report(InputReport),
    /// Shutdown is complete; no action follows. Stock stays on disk, for [`Event::MaterialFound`] at the next
    /// start.
    Stopped,
}

/// Why a notice does not help a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Error)]
#[serde(rename_all = "snake_case")]
pub enum NoticeProblem {
    /// No such notice, or one so old that it is forgotten.
    #[error("no such notice")]
    Unknown,
    /// It belongs to another client.
    #[error("the notice belongs to another client")]
    OtherClient,
    /// It announced another model.
    #[error("the notice announced another model")]
    OtherModel,
    /// Another request used it.
    #[error("the notice was used by another request")]
    Used,
    /// Its time to live passed.
    #[error("the notice expired")]
    Expired,
    /// Its client took it back.
    #[error("the notice was taken back")]
    Withdrawn,
    /// All of its T_pre failed.
    #[error("the notice's offline phase failed")]
    Failed,
    /// Its client may no longer be served.
    #[error("the notice's client left")]
    ClientGone,
    /// Its model is served no longer.
    #[error("the notice's model is gone")]
    ModelGone,
    /// What it made is kept for its client.
    #[error("what the notice made is kept")]
    Kept,
    /// What it makes is kept for its client; requests use that by name.
    #[error("what the notice makes will be kept")]
    Keeps,
    /// The server is shutting down.
    #[error("shutting down")]
    Shutdown,
    /// Fewer inputs came than were announced: the surplus was released. Never a reason to ignore a notice.
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
    /// A live request has this name.
    #[error("request {0:?} exists")]
    DuplicateRequest(RequestId),
    /// A live notice has this name.
    #[error("notice {0:?} exists")]
    DuplicateNotice(NoticeId),
    /// No inputs, or more than [`crate::Config::max_inputs`].
    #[error("{inputs} inputs, allowed are 1 to {limit}")]
    BadBatch {
        /// Asked for.
        inputs: u32,
        /// Largest allowed.
        limit: u32,
    },
    /// The client would have more inputs queued than [`crate::Config::max_queued`].
    #[error("client has {queued} inputs queued and asks for {asked} more, limit {limit}")]
    TooManyQueued {
        /// Inputs queued now.
        queued: u32,
        /// Asked for.
        asked: u32,
        /// Largest allowed.
        limit: u32,
    },
    /// A phase of this model can never run on this machine.
    #[error("{phase:?} needs {need}, the machine has {have}")]
    NeverFits {
        /// Which phase.
        phase: JobPhase,
        /// The least it needs.
        need: Resources,
        /// All there is.
        have: Resources,
    },
    /// The server is shutting down or has stopped.
    #[error("shutting down")]
    ShuttingDown,
    /// The job is not running: it was never started, has ended, or was stopped. Only for a job that was told
    /// to stop and ends with material has this an effect: what the job held is free.
    #[error("job {0:?} is not running")]
    JobNotRunning(JobId),
    /// The job was not told to stop, or has stopped.
    #[error("job {0:?} was not told to stop")]
    JobNotStopping(JobId),
    /// No such live request.
    #[error("no live request {0:?}")]
    UnknownRequest(RequestId),
    /// No such live notice.
    #[error("no live notice {0:?}")]
    UnknownNotice(NoticeId),
    /// No such material is kept or in stock.
    #[error("no material {0} is kept or in stock")]
    UnknownMaterial(MaterialId),
    /// No such client is known. Harmless: there was nothing to end.
    #[error("no client {0}")]
    UnknownClient(ClientId),
    /// Material under a name that is known already; or found material whose binding contradicts the model's,
    /// or that comes too late; or material named by a request that is not kept for its client and model, is
    /// named twice, or is one more than the request has inputs.
    #[error("material {0} cannot be used")]
    BadMaterial(MaterialId),
    /// A T_pre ended well and names no material, or a T_on names some. The job still runs.
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
