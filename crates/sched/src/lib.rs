//! The two-phase scheduler of tacit: a pure state machine, its policies, and a virtual-time simulator.
#![forbid(unsafe_code)]

pub mod policy;
pub mod profile;
pub mod replay;
pub mod sim;

mod config;
mod error;
mod ids;
mod message;
mod pool;
mod queue;
mod resources;
mod scheduler;
mod time;

pub use config::{Binding, Config, MAX_OPTIONS, ModelSpec, PhaseSpec, PoolConfig};
pub use error::SchedError;
pub use ids::{ClientId, DeadlineClass, InputId, JobId, MaterialId, ModelId, NoticeId, Origin, Phase, RequestId};
pub use message::{
    Action, AdvanceNotice, Cause, Event, InputReport, NoticeProblem, Outcome, Rejected, Request, Shutdown, Source,
    Stamp, Start, Usage,
};
pub use resources::Resources;
pub use scheduler::{Counts, Scheduler};
pub use time::{Span, Time};
