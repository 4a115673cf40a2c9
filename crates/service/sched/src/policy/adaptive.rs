//! The project's own policy: the paper's order, with threads chosen by the price of a core-second.

use super::classic::Priority;
use super::facts::{Choice, ClassFacts, JobFacts, Policy, Score, ThreadOption};
use serde::{Deserialize, Serialize};

/// The paper's order, with urgency; threads by their cost to other jobs.
///
/// On this project's workloads no order gains more than 1 % over [`Priority`]'s when every job runs
/// on one thread (`docs/notes/scheduler.md`), so the order is the same. Gains are possible only in
/// the threads and in pools.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adaptive {
    /// Weight of age; bounds starvation.
    pub beta: f64,
    /// Jobs assumed to be delayed beside the queued ones when recent load is 1 or more;
    /// proportionally fewer under less load.
    pub crowding: f64,
    /// Smallest share of the threads chosen on an idle machine with which a long job starts; with
    /// less room the job waits.
    pub least_share: f64,
    /// A long moldable job leaves one core free while at least this many jobs per queued job are
    /// expected to arrive during its run.
    pub spare: f64,
    /// Longest such wait of a long job, as a multiple of its length; after that the job takes any
    /// free threads.
    pub endurance: f64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self { beta: 0.1, crowding: 8.0, least_share: 0.5, spare: 6.0, endurance: 4.0 }
    }
}

impl Policy for Adaptive {
    fn name(&self) -> String {
        "adaptive".into()
    }
    fn tag(&self, job: &JobFacts) -> Score {
        Priority { beta: self.beta }.tag(job)
    }
    fn rank(&self, class: &ClassFacts) -> Score {
        Score::of(class.length(), 1.0 / class.deadline.weight())
    }
    /// Chooses the thread count with the least cost `time * (1 + share * others)`: the job's own
    /// time, plus the delay to the others, queued or expected. `share` is the larger of the job's
    /// shares of cores and memory. The expected jobs grow with the load up to 1; beyond that the
    /// queue shows the load. Their number does not depend on the machine: a larger machine serves
    /// more and has no longer queue.
    ///
    /// A job that is longer than the mean work of a recent arrival leaves room for the short ones.
    /// Such a job does not start on a few leftover cores, where it would run for very long. A
    /// moldable one also leaves one core free if far more jobs will arrive during its run than wait
    /// now. Both rules end when the job has waited [`Adaptive::endurance`] times its length.
    fn threads(&self, choice: &Choice<'_>) -> Option<u32> {
        let cores = f64::from(choice.class.capacity.cores.max(1));
        let memory = choice.class.capacity.memory.max(1) as f64;
        let other_jobs = choice.queued.saturating_sub(1) as f64 + self.crowding * choice.load.min(1.0);
        let cost = |o: &ThreadOption| {
            let share = tacit_floats::larger(f64::from(o.threads) / cores, o.memory as f64 / memory);
            o.time.secs() * (1.0 + share * other_jobs)
        };
        let cheaper = |a: &&ThreadOption, b: &&ThreadOption| tacit_floats::rising(&cost(a), &cost(b));
        let preferred = choice.class.options.iter().min_by(cheaper)?.threads;
        let mean_work = choice.load * cores / choice.arrivals.max(1e-9);
        let length = choice.class.length();
        let long = length.secs() > mean_work && choice.running > 0 && choice.waited < length.scaled(self.endurance);
        let min_threads = if long { (f64::from(preferred) * self.least_share).ceil() as u32 } else { 0 };
        let moldable = choice.class.options.len() > 1;
        let allowed = choice.options.iter().filter(|o| {
            let crowd = choice.arrivals * o.time.secs() >= self.spare * choice.queued as f64;
            o.threads >= min_threads && (o.threads < choice.free.cores || !(long && moldable && crowd))
        });
        allowed.min_by(cheaper).map(|o| o.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{JobPhase, ModelId, Origin};
    use crate::resources::Resources;
    use crate::time::Span;

    /// A job of 100 s on one thread, on a machine of 16 cores.
    fn class(threads: &[u32]) -> ClassFacts {
        let option = |&t: &u32| {
            let time = Span::from_secs(100.0 * (0.05 + 0.95 / f64::from(t)));
            ThreadOption { threads: t, time, memory: 1 }
        };
        ClassFacts {
            model: ModelId(0),
            phase: JobPhase::Pre,
            batch: 1,
            origin: Origin::Request,
            deadline: Default::default(),
            options: threads.iter().map(option).collect(),
            later: Vec::new(),
            disk: 0,
            dealing: false,
            capacity: Resources { cores: 16, memory: 1000, ..Resources::default() },
        }
    }

    fn threads(class: &ClassFacts, free: u32, queued: usize, load: f64, waited: f64) -> Option<u32> {
        let options: Vec<ThreadOption> = class.options.iter().filter(|o| o.threads <= free).copied().collect();
        let free = Resources { cores: free, memory: 1000, ..Resources::default() };
        let (arrivals, waited) = (1.0, Span::from_secs(waited));
        // The test fixes its own constants, because the tuned ones may change.
        let policy = Adaptive { beta: 0.1, crowding: 12.0, least_share: 0.5, spare: 4.0, endurance: 4.0 };
        policy.threads(&Choice { class, options: &options, free, running: 3, queued, load, arrivals, waited })
    }

    #[test]
    fn queue_and_load_make_threads_dear() {
        let class = class(&[1, 2, 4, 8, 16]);
        assert_eq!(threads(&class, 16, 1, 0.0, 0.0), Some(8), "idle: all but the core that is left free");
        assert!(threads(&class, 16, 1, 1.0, 0.0) < Some(8));
        assert_eq!(threads(&class, 16, 1, 1.0, 0.0), threads(&class, 16, 1, 5.0, 0.0), "beyond load 1 the queue tells");
        assert!(threads(&class, 16, 100, 1.0, 0.0) <= Some(2));
    }

    #[test]
    fn a_long_job_leaves_room_for_short_ones_but_not_for_ever() {
        let moldable = class(&[1, 2, 4, 8, 16]);
        // Four cores free: the best count is four, but the job leaves one core free. After a wait
        // of 400 s it takes all four.
        assert_eq!(threads(&moldable, 4, 1, 1.0, 0.0), Some(2));
        assert_eq!(threads(&moldable, 4, 1, 1.0, 400.0), Some(4));
        // One free core: too few for a long job.
        assert_eq!(threads(&moldable, 1, 1, 0.5, 0.0), None);
        assert_eq!(threads(&moldable, 1, 1, 0.5, 400.0), Some(1));
        // With many queued jobs no core stays free, and a job with one thread option takes any
        // core.
        assert_eq!(threads(&class(&[4]), 4, 1, 0.5, 0.0), Some(4));
        assert_eq!(threads(&moldable, 2, 30, 0.5, 0.0), Some(2));
    }
}
