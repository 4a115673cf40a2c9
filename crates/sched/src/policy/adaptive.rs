//! This project's own policy: shortest remaining work, slow ageing, and threads by the price of a core-second.

use super::{Choice, ClassFacts, JobFacts, Policy, Score, ThreadOption};
use crate::ids::Origin;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Shortest remaining time with ageing, urgency and moldable threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Adaptive {
    /// Weight of age; bounds starvation.
    pub beta: f64,
    /// A T_pre whose request has not come yet counts as this much longer, relative to its remaining time.
    pub notice_penalty: f64,
    /// How many times its remaining time a job that memory keeps out may be overtaken before it gets a reservation.
    pub patience: f64,
    /// How strongly recent load makes threads dear: jobs assumed to be delayed per core at load 1.
    pub crowding: f64,
    /// A long job rather waits than start on fewer than this share of the threads it would choose on an idle machine.
    pub least_share: f64,
}

impl Default for Adaptive {
    fn default() -> Adaptive {
        Adaptive { beta: 0.2, notice_penalty: 0.5, patience: 0.0, crowding: 0.25, least_share: 0.5 }
    }
}

impl Policy for Adaptive {
    fn name(&self) -> String {
        "adaptive".into()
    }
    fn promise(&self) -> &'static str {
        "with beta > 0 a job with r seconds of work left is overtaken only by jobs that entered at most \
         (weighted r - r_min) / beta seconds after it, and while memory keeps it out for at most patience * r before it holds a reservation"
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
    /// The thread count with the least cost `time * (1 + share * others)`: the job's own time, plus the delay that what it
    /// holds, as a share of cores or memory (the larger), causes to the others, queued or expected. A job that is longer
    /// than the mean work of a recent arrival does not start on a leftover: it would hold the few cores for
    /// long, and those are what short jobs need.
    fn threads(&self, choice: &Choice<'_>) -> Option<u32> {
        let cores = f64::from(choice.class.capacity.cores.max(1));
        let memory = choice.class.capacity.memory.max(1) as f64;
        let others = choice.queued.saturating_sub(1) as f64 + self.crowding * choice.load * cores;
        let share = |o: &ThreadOption| f64::max(f64::from(o.threads) / cores, o.memory as f64 / memory);
        let cost = |o: &ThreadOption| o.time.secs() * (1.0 + share(o) * others);
        let cheaper = |a: &&ThreadOption, b: &&ThreadOption| f64::total_cmp(&cost(a), &cost(b));
        let mean_work = choice.load * cores / choice.arrivals.max(1e-9);
        let long = choice.class.length().secs() > mean_work && choice.running > 0;
        let wanted = choice.class.options.iter().min_by(cheaper)?.threads;
        let least = if long { (f64::from(wanted) * self.least_share).ceil() as u32 } else { 0 };
        choice.options.iter().filter(|o| o.threads >= least).min_by(cheaper).map(|o| o.threads)
    }
    fn patience(&self, class: &ClassFacts) -> Span {
        class.remaining().scaled(self.patience)
    }
}
