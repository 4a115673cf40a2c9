//! The interface of a policy and the facts that policies may use.

use crate::ids::{DeadlineClass, JobPhase, ModelId, Origin};
use crate::resources::Resources;
use crate::time::{Span, Time};

/// Score of a job: lower starts first. One second is 10^15, so weights down to 10^-6 stay exact
/// integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score(pub i128);

impl Score {
    /// Score units per nanosecond.
    const UNIT: i128 = 1_000_000;

    /// A length of time as a score, times `weight` (rounded to 10^-6).
    pub fn of(span: Span, weight: f64) -> Self {
        Self(i128::from(span.0) * (weight * Self::UNIT as f64).round() as i128)
    }

    /// An instant as a score, times `weight` (rounded to 10^-6).
    pub fn at(time: Time, weight: f64) -> Self {
        Self::of(Span(time.0), weight)
    }

    /// The sum; saturates.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// One way to run a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadOption {
    /// Number of threads.
    pub threads: u32,
    /// Expected time on these threads.
    pub time: Span,
    /// Memory to reserve, in bytes.
    pub memory: u64,
}

/// Facts common to all jobs of a class. Estimates change; everything else is fixed.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassFacts {
    /// Model of the jobs.
    pub model: ModelId,
    /// Phase of the jobs.
    pub phase: JobPhase,
    /// Batch size of the request, rounded up to a power of two.
    pub batch: u32,
    /// Whether a request asked, or a notice whose request has not arrived.
    pub origin: Origin,
    /// How soon the client needs the answer.
    pub deadline: DeadlineClass,
    /// Ways to run this phase, by threads, ascending; never empty.
    pub options: Vec<ThreadOption>,
    /// Ways to run the following phase (T_on, for a T_pre); empty for a T_on.
    pub later: Vec<ThreadOption>,
    /// Disk of the material, in bytes.
    pub disk: u64,
    /// Whether the job is a dealing: a dealing takes no core, whatever its threads.
    pub dealing: bool,
    /// The whole machine.
    pub capacity: Resources,
}

impl ThreadOption {
    /// Resources of a job that runs with this option and `disk` bytes of disk.
    pub(crate) fn holds(&self, dealing: bool, disk: u64) -> Resources {
        let (cores, dealings) = if dealing { (0, 1) } else { (self.threads, 0) };
        Resources { cores, memory: self.memory, disk, dealings }
    }
}

impl ClassFacts {
    /// Expected time of this phase on the fewest threads.
    pub fn length(&self) -> Span {
        self.options.first().map(|o| o.time).unwrap_or_default()
    }

    /// Expected time of this phase and the later one, on the fewest threads.
    pub fn remaining(&self) -> Span {
        self.length() + self.later.first().map(|o| o.time).unwrap_or_default()
    }
}

/// Facts about one job when it joins the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobFacts {
    /// Arrival of its request, or of its notice for announced inputs.
    pub arrived: Time,
    /// When it entered its present queue; its age counts from then.
    pub entered: Time,
    /// Expected one-thread work of this client's unfinished inputs that joined earlier.
    pub backlog: Span,
    /// Clients with unfinished inputs, at least 1.
    pub clients: u32,
    /// Cores of the machine, at least 1.
    pub cores: u32,
}

/// Facts for the choice of a job's threads.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The job's class.
    pub class: &'a ClassFacts,
    /// The options that fit now (cores, memory, reservation, share of the batch), ascending; never empty.
    pub options: &'a [ThreadOption],
    /// Cores and memory that are free now.
    pub free: Resources,
    /// Jobs running.
    pub running: usize,
    /// Jobs queued, this one included.
    pub queued: usize,
    /// Load of recent arrivals: one-thread seconds of work per second and core (0 idle, 1 saturated).
    pub load: f64,
    /// Recent arrivals, in inputs per second.
    pub arrivals: f64,
    /// How long the job has stood in its queue.
    pub waited: Span,
}

/// How the scheduler takes jobs from the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Both phases in one order; what does not fit may be overtaken and then gets a reservation.
    OneOrder,
    /// [SS26] Algorithm 1: every T_pre that fits, then the first T_on or none. No reservation.
    TwoQueues {
        /// Whether one T_on of a model and batch size runs at a time.
        exclusive: bool,
    },
}

/// An order of jobs and a choice of threads. A job's score is `rank(class) + tag(job)`; lowest first.
pub trait Policy {
    /// Name for reports.
    fn name(&self) -> String;

    /// The part of the score that is fixed when the job joins a queue.
    fn tag(&self, job: &JobFacts) -> Score;

    /// The part of the score that moves with the estimates; the same for every job of the class.
    fn rank(&self, class: &ClassFacts) -> Score;

    /// Threads for the job: one of `choice.options`, or `None` to let the job wait for a change.
    /// The default is the fewest threads.
    fn threads(&self, choice: &Choice<'_>) -> Option<u32> {
        choice.options.first().map(|o| o.threads)
    }

    /// Whether a client above its share of the cores must leave room for one job of the other
    /// recent clients.
    fn keeps_room(&self) -> bool {
        false
    }

    /// How the scheduler takes jobs from the queues.
    fn discipline(&self) -> Discipline {
        Discipline::OneOrder
    }
}
