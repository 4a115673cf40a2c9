//! The two-phase scheduler of tacit: a pure state machine and its policies.
//!
//! Every input of a request has two jobs: **T_pre** makes material and needs no input, **T_on** consumes one
//! material and the input. A client may announce a request, so that T_pre runs before it comes. [`Scheduler`]
//! decides which job starts when, on how many threads; it has no clock, no threads and no I/O, so a server
//! and the simulator (`tacit-sim`) run the same code. What it promises, state by state, is in
//! `docs/notes/scheduler.md`.
//!
//! # Driving it
//!
//! Keep the scheduler behind one lock (or in one thread) and a clock that never goes back. For everything
//! that happens call [`Scheduler::handle`]; then take actions from [`Scheduler::poll_action`] until it
//! returns `None`; then sleep until the next event or [`Scheduler::next_wakeup`], whichever is first, and on
//! a wake-up just poll again.
//!
//! ```
//! use tacit_sched::profile::{Sample, Speedup};
//! use tacit_sched::{
//!     Action, BoundTo, ClientId, Config, Event, JobPhase, MaterialId, ModelId, ModelSpec, Outcome, PhaseSpec, Request,
//!     RequestId, Resources, Scheduler, Span, Time, Usage, policy::Fcfs,
//! };
//!
//! let phase = |secs| PhaseSpec {
//!     first: Sample { time: Span::from_secs(secs), memory: 1 << 20 },
//!     speedup: Speedup::None,
//! };
//! let model = ModelSpec {
//!     name: "squeezenet".into(),
//!     backend: "cheetah".into(),
//!     link: "lan".into(),
//!     binding: BoundTo::Client,
//!     material_bytes: 1 << 20,
//!     dealt: false,
//!     pre: Some(phase(2.0)),
//!     on: phase(1.0),
//! };
//! let config = Config::new(Resources { cores: 4, memory: 1 << 30, disk: 1 << 40, dealings: 0 });
//! let mut scheduler = Scheduler::new(config, vec![model], Fcfs)?;
//!
//! let request = Request::plain(RequestId(1), ClientId::numbered(7), ModelId(0), 1);
//! scheduler.handle(Time::ZERO, Event::Request(request))?;
//! let mut now = Time::ZERO;
//! let mut done = false;
//! while let Some(action) = scheduler.poll_action(now) {
//!     match action {
//!         // A server gives this to a worker thread; here the job takes exactly as long as expected.
//!         Action::Start(start) => {
//!             now = now + start.estimate;
//!             let usage = Usage { time: start.estimate, peak_memory: start.memory };
//!             // What an offline phase made gets its name from the caller: a server uses `MaterialId::random`.
//!             let material = (start.phase == JobPhase::Pre).then(|| MaterialId::numbered(1));
//!             scheduler.handle(now, Event::JobFinished { job: start.job, usage, material })?;
//!         }
//!         Action::Report(report) => done = report.outcome == Outcome::Done,
//!         other => panic!("nothing else can happen here: {other:?}"),
//!     }
//! }
//! assert!(done);
//! assert_eq!(now, Time::from_secs(3.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the caller owes
//!
//! - A material's name is sixteen random bytes, made by the caller and given to the scheduler with the end of
//!   the T_pre that made the material ([`Event::JobFinished`]). Until then the scheduler knows the job and
//!   the disk that it holds, no material; names are opaque to it. If the T_pre fails or is stopped, or if its
//!   end is refused, the caller destroys whatever there is of it, unasked.
//! - [`Action::Start`] of an online phase: make the claim of `material` durable before the first online byte.
//!   The scheduler never names a material for a second input, and it asks for [`Action::Burn`] wherever one
//!   was not consumed.
//! - [`Action::Stop`]: stop the job's threads, then say [`Event::JobStopped`]. The job keeps its cores,
//!   memory and disk until then. If it ended first, the end that is reported means the same; material that it
//!   names is refused as [`Rejected::JobNotRunning`], and the caller destroys it.
//! - [`Event::JobNotStarted`] for a job whose client is not there after all: see [`Event::Lanes`].
//! - [`Event::Lanes`] where jobs need a connection of the client: until it has one, a request without a
//!   timeout waits, and a drain with it.
//! - A T_pre that was started for [`Work::Notice`] or [`Work::Pool`] may be claimed by a request later;
//!   [`Scheduler::job_input`] says whether it was.
//! - At start-up, before the first T_pre ends: hand over what the ledger has as `ready` with
//!   [`Event::MaterialFound`], and restore the profile table with [`Scheduler::restore_profile`]. Material
//!   that is bound to a client may be found later as well.
//! - Actions are carried out in the order in which they come.
//!
//! # Choosing a policy
//!
//! [`policy::PolicySpec`] reads names from a configuration file: `fcfs`, `priority[:BETA]`, `sequential`,
//! `srt`, `adaptive`, each with an optional `+fair[:STRENGTH]`. Use `adaptive` unless you reproduce the
//! paper. A policy of your own implements [`policy::Policy`]; it can only order jobs and choose threads, so
//! it cannot break a constraint.
#![forbid(unsafe_code)]

pub mod policy;
pub mod profile;
pub mod replay;

mod config;
pub mod demand;
mod error;
mod ids;
mod message;
mod pool;
mod queue;
mod resources;
mod scheduler;
mod time;

pub use config::{BoundTo, Config, MAX_OPTIONS, ModelSpec, PhaseSpec, PoolConfig};
pub use error::SchedError;
pub use ids::{
    ClientId, DeadlineClass, InputId, JobId, JobPhase, MaterialId, ModelId, NoticeId, Origin, Owner, RequestId,
};
pub use message::{
    Action, AdvanceNotice, Cause, Event, InputReport, NoticeProblem, Outcome, Rejected, Request, Shutdown, Source,
    Stamp, Start, Usage, Work,
};
pub use resources::Resources;
pub use scheduler::{Counts, Scheduler};
pub use time::{Span, Time};
