//! Recent arrivals, for policies and for refills.

use crate::pool::ArrivalRate;
use crate::time::{Span, Time};

const WINDOW: Span = Span::from_millis(120_000);

#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// One-thread seconds of work.
    work: ArrivalRate,
    inputs: ArrivalRate,
}

impl Load {
    /// Counts `inputs` arrivals, each with `work_per_input` of one-thread work.
    pub fn observe(&mut self, now: Time, inputs: u32, work_per_input: Span) {
        self.work.add(now, work_per_input.secs() * f64::from(inputs), WINDOW);
        self.inputs.add(now, f64::from(inputs), WINDOW);
    }

    pub fn per_core(&self, now: Time, cores: u32) -> f64 {
        self.work.per_second(now, Time::ZERO, WINDOW) / f64::from(cores.max(1))
    }

    /// Recent arrivals, in inputs per second.
    pub fn inputs(&self, now: Time) -> f64 {
        self.inputs.per_second(now, Time::ZERO, WINDOW)
    }
}
