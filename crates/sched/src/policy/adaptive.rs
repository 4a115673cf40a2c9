//! This project's own policy: shortest remaining work, slow ageing, and threads by the price of a core-second.

use super::{Choice, ClassFacts, JobFacts, Policy, Score};
use crate::ids::Origin;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Shortest remaining time with ageing, urgency and moldable threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Adaptive {
    /// Weight of age; small, it only bounds starvation.
    pub beta: f64,
    /// Seconds added to the score of a T_pre whose request has not come yet, per second of its remaining time.
    pub notice_penalty: f64,
    /// How many times its remaining time a job that memory keeps out may be overtaken.
    pub patience: f64,
}

impl Default for Adaptive {
    fn default() -> Adaptive {
        Adaptive {
            beta: 0.02,
            notice_penalty: 0.5,
            patience: 1.0,
        }
    }
}

impl Policy for Adaptive {
    fn name(&self) -> String {
        "adaptive".into()
    }
    fn promise(&self) -> &'static str {
        "with beta > 0 a job with r seconds of work left is overtaken only by jobs that entered at most \
         (weighted r - r_min) / beta seconds after it, and by memory for at most patience * r before it holds a reservation"
    }
    fn tag(&self, job: &JobFacts) -> Score {
        Score::at(job.entered, self.beta)
    }
    fn rank(&self, class: &ClassFacts) -> Score {
        let notice = match class.origin {
            Origin::Request => 1.0,
            Origin::Notice => 1.0 + self.notice_penalty,
        };
        Score::of(class.remaining(), notice / class.deadline.weight())
    }
    /// The thread count with the least cost `time * (1 + threads * n / cores)`: one job's own delay, plus the delay that
    /// its core-seconds cause to the `n` others that are queued or expected to come while it runs.
    fn threads(&self, choice: &Choice<'_>) -> Option<u32> {
        let cores = f64::from(choice.class.capacity.cores.max(1));
        let waiting = choice.queued.saturating_sub(1) as f64;
        let cost = |threads: u32, time: Span| {
            let others = waiting + choice.load * cores;
            time.secs() * (1.0 + f64::from(threads) * others / cores)
        };
        let best = choice
            .options
            .iter()
            .min_by(|a, b| f64::total_cmp(&cost(a.threads, a.time), &cost(b.threads, b.time)))?;
        Some(best.threads)
    }
    fn patience(&self, class: &ClassFacts) -> Span {
        class.remaining().scaled(self.patience)
    }
}
