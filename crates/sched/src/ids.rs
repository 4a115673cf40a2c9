//! Names of things. The caller names clients, requests, notices and materials; the scheduler names jobs.

use serde::{Deserialize, Serialize};
pub use tacit_ids::{ClientId, MaterialId};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);
    };
}

id!(
    /// A request; chosen by the caller, unique among the requests that have not ended.
    RequestId, u64
);
id!(
    /// An advance notice; chosen by the caller, unique among the notices that have not ended.
    NoticeId, u64
);
id!(
    /// One (model, back end, link class), in the order in which the models were given to the scheduler.
    ModelId, u32
);
id!(
    /// One run of one phase of one input. Chosen by the scheduler, never reused.
    JobId, u64
);

/// One input of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InputId {
    /// The request it came with.
    pub request: RequestId,
    /// Its place in that request's batch, from 0.
    pub index: u32,
}

/// A request or a notice: what jobs are asked for by. An announced input belongs first to its notice, then to
/// its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A notice whose request has not come.
    Notice(NoticeId),
    /// A request.
    Request(RequestId),
}

/// The two phases of an input that the scheduler places. (`setup` is per client and not scheduled here.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    /// The offline phase, T_pre: makes material, needs no input.
    Pre,
    /// The online phase, T_on: consumes one material and the input.
    On,
}

/// How soon the client needs its answer. The paper's policies ignore it, [`crate::policy::Adaptive`] weighs
/// by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineClass {
    /// Somebody waits for it: counts as four times as urgent.
    Interactive,
    /// The default.
    #[default]
    Normal,
    /// May run when there is room: counts as a quarter as urgent.
    Batch,
}

impl DeadlineClass {
    /// Weight of one second of delay, relative to [`DeadlineClass::Normal`].
    pub fn weight(self) -> f64 {
        match self {
            Self::Interactive => 4.0,
            Self::Normal => 1.0,
            Self::Batch => 0.25,
        }
    }
}

/// Who asked for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A request that has arrived.
    Request,
    /// An advance notice whose request has not arrived yet.
    Notice,
}
