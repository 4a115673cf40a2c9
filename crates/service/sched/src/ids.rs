//! Identifiers. The caller chooses those of clients, requests, notices and materials; the scheduler
//! those of jobs.

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
    /// One (model, back end, link class); numbered in the order in which the scheduler got the
    /// models.
    ModelId, u32
);
id!(
    /// One run of one phase of one input. Chosen by the scheduler, never reused.
    JobId, u64
);

/// One input of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InputId {
    /// Its request.
    pub request: RequestId,
    /// Its index in that request's batch, from 0.
    pub index: u32,
}

/// The request or notice that asks for jobs. An announced input belongs first to its notice, then
/// to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A notice whose request has not arrived.
    Notice(NoticeId),
    /// A request.
    Request(RequestId),
}

/// The two phases of an input that the scheduler places. The scheduler does not place `setup`,
/// which runs once per client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    /// The offline phase, T_pre: makes material, needs no input.
    Pre,
    /// The online phase, T_on: consumes one material and the input.
    On,
}

/// How soon the client needs its answer. The paper's policies ignore the class;
/// [`crate::policy::Adaptive`] weighs by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineClass {
    /// A person waits for the answer: counts as four times as urgent.
    Interactive,
    /// The default.
    #[default]
    Normal,
    /// May wait for free cores: counts as a quarter as urgent.
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

/// Whether a request or only a notice asked for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A request that has arrived.
    Request,
    /// An advance notice whose request has not arrived yet.
    Notice,
}
