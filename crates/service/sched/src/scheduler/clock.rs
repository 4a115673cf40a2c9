//! The current time, and the timers of groups.

use crate::ids::Owner;
use crate::time::Time;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    now: Time,
    timers: BTreeSet<(Time, Owner)>,
}

impl Clock {
    pub fn now(&self) -> Time {
        self.now
    }

    /// An earlier time counts as now.
    pub fn advance(&mut self, time: Time) {
        self.now = self.now.max(time);
    }

    /// Removes and returns the next group whose timer is due.
    pub fn take_due(&mut self) -> Option<Owner> {
        let &(time, group) = self.timers.first()?;
        (time <= self.now).then(|| {
            self.timers.pop_first();
            group
        })
    }

    pub fn next_timer(&self) -> Option<Time> {
        self.timers.first().map(|&(time, _)| time)
    }

    pub fn set_timer(&mut self, time: Time, group: Owner) {
        self.timers.insert((time, group));
    }

    pub fn clear_timer(&mut self, time: Time, group: Owner) {
        self.timers.remove(&(time, group));
    }

    pub fn timers(&self) -> &BTreeSet<(Time, Owner)> {
        &self.timers
    }
}
