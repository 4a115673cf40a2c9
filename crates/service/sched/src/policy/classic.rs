//! Orders of both phases together: the two orders of [SS26], the reference policy of grid A, and
//! fair share. [`super::Ss26`] is the paper's algorithm as printed.

use super::facts::{Choice, ClassFacts, Discipline, JobFacts, Policy, Score};

/// First come, first served: by arrival of the request, or of its notice if it was announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fcfs;

impl Policy for Fcfs {
    fn name(&self) -> String {
        "fcfs".into()
    }
    fn tag(&self, job: &JobFacts) -> Score {
        Score::at(job.arrived, 1.0)
    }
    fn rank(&self, _class: &ClassFacts) -> Score {
        Score::default()
    }
}

/// The score of [SS26] equation (1), over both phases together: estimated length minus `beta`
/// times age, both in seconds; lowest first.
///
/// `l - beta * (now - entered)` orders two queued jobs as `l + beta * entered` does, at any time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priority {
    /// Weight of age, at least 0. The paper states no value.
    pub beta: f64,
}

impl Policy for Priority {
    fn name(&self) -> String {
        format!("priority({})", self.beta)
    }
    fn tag(&self, job: &JobFacts) -> Score {
        Score::at(job.entered, self.beta)
    }
    fn rank(&self, class: &ClassFacts) -> Score {
        Score::of(class.length(), 1.0)
    }
}

/// The paper's baseline MS-SHARK: one request at a time in order of arrival, each phase on as many
/// threads as allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequential;

impl Policy for Sequential {
    fn name(&self) -> String {
        "sequential".into()
    }
    fn tag(&self, job: &JobFacts) -> Score {
        Score::at(job.arrived, 1.0)
    }
    fn rank(&self, _class: &ClassFacts) -> Score {
        Score::default()
    }
    fn threads(&self, choice: &Choice<'_>) -> Option<u32> {
        if choice.running > 0 {
            return None;
        }
        choice.options.last().map(|o| o.threads)
    }
}

/// Shortest remaining time first, not preemptive, no ageing: the reference for mean delay. Long
/// jobs starve under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortestRemaining;

impl Policy for ShortestRemaining {
    fn name(&self) -> String {
        "shortest-remaining".into()
    }
    fn tag(&self, _job: &JobFacts) -> Score {
        Score::default()
    }
    fn rank(&self, class: &ClassFacts) -> Score {
        Score::of(class.remaining(), 1.0)
    }
}

/// Fair share between clients, on top of another policy. Each job is ordered as if its client's
/// earlier work had to finish first, on that client's share of the machine. A client's flood of
/// jobs queues behind itself and does not take the last room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FairShare<P> {
    /// The policy that orders the jobs of clients with equal backlog.
    pub inner: P,
    /// Weight of the client's backlog, in seconds of score per second; 1 is a full share.
    pub strength: f64,
}

impl<P: Policy> Policy for FairShare<P> {
    fn name(&self) -> String {
        format!("{}+fair({})", self.inner.name(), self.strength)
    }
    fn tag(&self, job: &JobFacts) -> Score {
        let share = f64::from(job.clients) / f64::from(job.cores.max(1));
        self.inner.tag(job).plus(Score::of(job.backlog.scaled(share), self.strength))
    }
    fn rank(&self, class: &ClassFacts) -> Score {
        self.inner.rank(class)
    }
    fn threads(&self, choice: &Choice<'_>) -> Option<u32> {
        self.inner.threads(choice)
    }
    fn keeps_room(&self) -> bool {
        true
    }
    fn discipline(&self) -> Discipline {
        self.inner.discipline()
    }
}
