//! The policies of [SS26] Algorithm 1, as printed: two coordinated schedulers, one for each phase.

use super::facts::{ClassFacts, Discipline, JobFacts, Policy, Score};
use serde::{Deserialize, Serialize};

/// Order of the jobs within each of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ss26Order {
    /// By arrival of the request, or of its notice if it was announced.
    Fcfs,
    /// By entry into the present queue: T_on in the order in which their T_pre ended.
    FcfsByEntry,
    /// By equation (1): estimated length minus `beta` times the age in the present queue.
    Priority {
        /// Weight of age, at least 0. The paper states no value.
        beta: f64,
    },
}

/// [SS26] Algorithm 1. Every T_pre that fits starts, in order. Of the T_on only the first in order
/// may start; while that one does not fit, no other starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ss26 {
    /// Order of both queues.
    pub order: Ss26Order,
    /// Whether one T_on of a model and batch size runs at a time ([SS26] section 6, "model-batch
    /// exclusivity").
    pub exclusive: bool,
}

impl Policy for Ss26 {
    fn name(&self) -> String {
        let order = match self.order {
            Ss26Order::Fcfs => "ss26:fcfs".to_owned(),
            Ss26Order::FcfsByEntry => "ss26:fcfs(entry)".to_owned(),
            Ss26Order::Priority { beta } => format!("ss26:priority({beta})"),
        };
        if self.exclusive { order + "+exclusive" } else { order }
    }
    fn tag(&self, job: &JobFacts) -> Score {
        match self.order {
            Ss26Order::Fcfs => Score::at(job.arrived, 1.0),
            Ss26Order::FcfsByEntry => Score::at(job.entered, 1.0),
            Ss26Order::Priority { beta } => Score::at(job.entered, beta),
        }
    }
    fn rank(&self, class: &ClassFacts) -> Score {
        match self.order {
            Ss26Order::Fcfs | Ss26Order::FcfsByEntry => Score::default(),
            Ss26Order::Priority { .. } => Score::of(class.length(), 1.0),
        }
    }
    fn discipline(&self) -> Discipline {
        Discipline::TwoQueues { exclusive: self.exclusive }
    }
}
