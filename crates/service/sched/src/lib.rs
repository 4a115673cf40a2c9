//! The two-phase scheduler of tacit: a pure state machine and its policies.
//!
//! Every input of a request has two jobs. **T_pre** makes material and needs no input; **T_on**
//! consumes one material and the input. A client may announce a request, so that T_pre runs before
//! the request arrives. [`Scheduler`] decides which job starts when, on how many threads. The
//! scheduler has no clock, no threads and no I/O, so a server and the simulator (`tacit-sim`) run
//! the same code. `docs/notes/scheduler.md` lists the guarantees, state by state.
//!
//! # Driving it
//!
//! Keep the scheduler behind one lock (or in one thread) and a clock that never goes back. Call
//! [`Scheduler::handle`] for every event. Then take actions from [`Scheduler::poll_action`] until
//! `None`. Then sleep until the next event or [`Scheduler::next_wakeup`], whichever is first; on a
//! wake-up just poll again.
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
//! # Duties of the caller
//!
//! - A material's name is sixteen random bytes. The caller makes the name and gives it to the
//!   scheduler with the end of the T_pre that made the material ([`Event::JobFinished`]). Before
//!   that, the scheduler knows only the job and the disk that the job holds; names are opaque to
//!   the scheduler. If the T_pre fails or is stopped, or if its end is refused, the caller destroys
//!   any partial material unasked.
//! - [`Action::Start`] of an online phase: make the claim of `material` durable before the first
//!   online byte. The scheduler never names a material for a second input, and asks for
//!   [`Action::Burn`] wherever a material was not consumed.
//! - [`Action::Stop`]: stop the job's threads, then send [`Event::JobStopped`]. The job holds its
//!   cores, memory and disk until then. If the job ended first, the reported end has the same
//!   effect; a material that it names is refused as [`Rejected::JobNotRunning`], and the caller
//!   destroys it.
//! - [`Event::JobNotStarted`] for a job whose client is disconnected after all: see
//!   [`Event::Lanes`].
//! - [`Event::Lanes`] where jobs need a connection of the client. Until the client has a
//!   connection, a request without a timeout waits, and so does a drain.
//! - A request may later claim a T_pre that was started for [`Work::Notice`] or [`Work::Pool`];
//!   [`Scheduler::job_input`] says whether one did.
//! - At start-up, before the first T_pre ends: report the material that is `ready` in the ledger
//!   with [`Event::MaterialFound`], and restore the profile table with
//!   [`Scheduler::restore_profile`]. Material that is bound to a client may also be found later.
//! - Actions must be carried out in the order in which the scheduler returns them.
//!
//! # Choosing a policy
//!
//! [`policy::PolicySpec`] reads names from a configuration file: `fcfs`, `priority[:BETA]`,
//! `sequential`, `srt`, `adaptive`, each with an optional `+fair[:STRENGTH]`. Use `adaptive` unless
//! you reproduce the paper. Custom policies implement [`policy::Policy`]. A policy only orders jobs
//! and chooses threads, so it cannot break a constraint.
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

pub use config::{BoundTo, Config, MAX_OPTIONS, ModelSpec, PoolConfig};
pub use error::SchedError;
pub use ids::{
    ClientId, DeadlineClass, InputId, JobId, JobPhase, MaterialId, ModelId, NoticeId, Origin, Owner, RequestId,
};
pub use message::{
    Action, AdvanceNotice, Cause, Event, InputReport, NoticeProblem, Outcome, Rejected, Request, Shutdown, Source,
    Stamp, Start, Usage, Work,
};
pub use profile::PhaseSpec;
pub use resources::Resources;
pub use scheduler::{Counts, Scheduler};
pub use time::{Span, Time};
