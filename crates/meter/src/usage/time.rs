//! Processor time, and what can be said of it where the kernel tells it in whole ticks.
use std::ops::{Add, AddAssign};

/// Processor time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) user: u64,
    pub(super) system: u64,
}

impl Time {
    pub(super) fn total(self) -> u64 {
        self.user.saturating_add(self.system)
    }

    /// At least this total: user and kernel time, each cut down to ticks, lack the rest in equal parts for all that is known.
    pub(super) fn raised_to(self, total: u64) -> Self {
        let more = total.saturating_sub(self.total());
        Self { user: self.user + more / 2, system: self.system + more.div_ceil(2) }
    }

    /// A part of it that is as long as this.
    pub(super) fn part(self, total: u64) -> Self {
        let user = u128::from(self.user) * u128::from(total) / u128::from(self.total().max(1));
        let user = u64::try_from(user).unwrap_or(u64::MAX).min(total);
        Self { user, system: total - user }
    }

    /// What is more than at an earlier time. The totals decide: how they were split may have been told better meanwhile.
    pub(super) fn since(self, earlier: Self) -> Self {
        let total = self.total().saturating_sub(earlier.total());
        let user = self.user.saturating_sub(earlier.user).min(total);
        Self { user, system: total - user }
    }

    /// The same total, if it is not below an earlier one, split so that neither part is below what it was.
    pub(super) fn not_below(self, earlier: Self) -> Self {
        let total = self.total().max(earlier.total());
        let most = total.saturating_sub(earlier.system).max(earlier.user);
        let user = self.user.clamp(earlier.user, most);
        Self { user, system: total - user }
    }
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { user: self.user.saturating_add(other.user), system: self.system.saturating_add(other.system) }
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
