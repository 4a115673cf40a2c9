//! What tests ask a driver and tell it.

use super::driver::Driver;
use tacit_sched::{
    Action, Event, InputReport, JobId, JobPhase, ModelId, NoticeProblem, Outcome, RequestId, Start, Time, Work,
};

impl Driver {
    /// Sends an event that must be accepted.
    pub fn tell(&mut self, event: Event) {
        self.send(event).unwrap();
    }

    /// Running jobs of a phase, the oldest first.
    pub fn running(&self, phase: JobPhase) -> Vec<JobId> {
        self.jobs_with(|start| start.phase == phase)
    }

    pub fn jobs_with(&self, is_counted: impl Fn(&Start) -> bool) -> Vec<JobId> {
        self.monitor.running.iter().filter(|(_, (start, _))| is_counted(start)).map(|(job, _)| *job).collect()
    }

    /// Running refills of a model's pools.
    pub fn refills(&self, model: ModelId) -> Vec<JobId> {
        self.jobs_with(|start| start.work == Work::Pool && start.model == model)
    }

    /// The oldest running job.
    pub fn oldest(&self) -> JobId {
        *self.monitor.running.keys().next().expect("a job runs")
    }

    /// The running job that is expected to end first, and its end.
    pub fn next_end(&self) -> Option<(Time, JobId)> {
        self.monitor.running.iter().map(|(job, (start, begin))| (*begin + start.estimate, *job)).min()
    }

    pub fn finish_all(&mut self) {
        while let Some(&job) = self.monitor.running.keys().next() {
            self.finish(job, 100);
        }
    }

    pub fn finish_all_pre(&mut self) {
        while let Some(&job) = self.running(JobPhase::Pre).first() {
            self.finish(job, 100);
        }
    }

    pub fn outcomes(&self) -> Vec<Outcome> {
        self.monitor.reports.iter().map(|r| r.outcome).collect()
    }

    pub fn report(&self, request: u64) -> Option<&InputReport> {
        self.monitor.reports.iter().find(|r| r.input.request == RequestId(request))
    }

    pub fn count(&self, is_counted: impl Fn(&Action) -> bool) -> usize {
        self.actions.iter().filter(|(_, action)| is_counted(action)).count()
    }

    pub fn burns(&self) -> usize {
        self.count(|a| matches!(a, Action::Burn { .. }))
    }

    pub fn stops(&self) -> usize {
        self.count(|a| matches!(a, Action::Stop { .. }))
    }

    /// T_pre jobs started so far.
    pub fn pres(&self) -> usize {
        self.count(|a| matches!(a, Action::Start(s) if s.phase == JobPhase::Pre))
    }

    fn notice_problems(&self, problem: impl Fn(&Action) -> Option<NoticeProblem>) -> Vec<NoticeProblem> {
        self.actions.iter().filter_map(|(_, action)| problem(action)).collect()
    }

    /// How notices ended.
    pub fn notice_ends(&self) -> Vec<NoticeProblem> {
        self.notice_problems(|action| match action {
            Action::NoticeEnded { why, .. } => Some(*why),
            _ => None,
        })
    }

    /// Why notices were ignored.
    pub fn ignored(&self) -> Vec<NoticeProblem> {
        self.notice_problems(|action| match action {
            Action::NoticeIgnored { why, .. } => Some(*why),
            _ => None,
        })
    }
}
