//! Energy counters: undoes wraps, refuses impossible steps.
use std::time::Duration;

/// Most watts of a single rail. A faster counter step is an error of the counter.
pub(crate) const MAX_WATTS: f64 = 5000.0;
/// Counters have their own intervals: a step may cover more time than passed between two reads.
const STEP_SLACK: Duration = Duration::from_millis(100);

/// A cumulative counter in units of `unit` joules.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    unit: f64,
    /// Largest value before the wrap to 0, where known.
    range: Option<u64>,
    last: Option<u64>,
    /// Whether the last read failed.
    gap: bool,
    total: f64,
}

impl Counter {
    pub(crate) fn new(unit: f64, range: Option<u64>) -> Self {
        Self { unit, range: range.filter(|&r| r > 0), last: None, gap: false, total: 0.0 }
    }

    pub(crate) fn missing(&mut self) {
        self.gap = true;
    }

    /// Takes a new reading, `passed` after the previous one; the joules since the first one.
    ///
    /// # Errors
    /// The counter decreased although it could not have wrapped, or the step exceeds [`MAX_WATTS`].
    /// Counting continues from the new reading, and the step counts as 0 J. After a gap a decrease
    /// never counts as a wrap, since the driver was probably reloaded and counts from 0.
    pub(crate) fn advance(&mut self, raw: u64, passed: Duration) -> Result<f64, String> {
        let gap = std::mem::replace(&mut self.gap, false);
        let Some(last) = self.last.replace(raw) else { return Ok(self.total) };
        let step = match (raw.checked_sub(last), self.range) {
            (Some(step), _) => step,
            (None, Some(range)) if last <= range && !gap => range - last + raw,
            (None, _) => return Err(format!("counter went back from {last} to {raw}")),
        };
        let joules = step as f64 * self.unit;
        if joules > MAX_WATTS * (passed + STEP_SLACK).as_secs_f64() {
            let seconds = passed.as_secs_f64();
            return Err(format!("counter jumped from {last} to {raw}, which would be {joules:.0} J in {seconds:.3} s"));
        }
        self.total += joules;
        Ok(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RANGE: u64 = 262_143_328_850;

    fn rapl() -> Counter {
        Counter::new(1e-6, Some(RANGE))
    }

    #[test]
    fn undoes_wraps() {
        let mut counter = rapl();
        assert_eq!(counter.advance(RANGE - 10_000_000, SECOND), Ok(0.0));
        assert!((counter.advance(20_000_000, SECOND).unwrap() - 30.0).abs() < 1e-9);
        assert!((counter.advance(21_000_000, SECOND).unwrap() - 31.0).abs() < 1e-9);
    }

    #[test]
    fn reports_decrease_that_is_no_wrap() {
        let mut counter = rapl();
        counter.advance(200_000_000_000, SECOND).unwrap();
        assert!(counter.advance(1_000_000, SECOND).unwrap_err().contains("62144 J"));
        assert!((counter.advance(6_000_000, SECOND).unwrap() - 5.0).abs() < 1e-9);
        let mut no_range = Counter::new(1e-6, None);
        no_range.advance(1000, SECOND).unwrap();
        assert!(no_range.advance(999, SECOND).unwrap_err().contains("went back"));
    }

    #[test]
    fn lower_value_after_gap_is_restart() {
        let mut counter = rapl();
        counter.advance(RANGE - 1_000_000, SECOND).unwrap();
        counter.missing();
        assert!(counter.advance(1_000_000, SECOND).is_err());
        counter.missing();
        assert!((counter.advance(3_000_000, SECOND).unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn readings_above_the_range_do_not_overflow() {
        let mut counter = Counter::new(1e-6, Some(1000));
        counter.advance(u64::MAX, SECOND).unwrap();
        assert!(counter.advance(0, SECOND).is_err());
        assert!(counter.advance(u64::MAX, SECOND).is_err());
    }

    proptest! {
        #[test]
        fn follows_any_course_through_wraps(start in 0..RANGE, steps in prop::collection::vec(0u64..500_000_000, 1..300)) {
            let mut counter = rapl();
            let (mut raw, mut expected) = (start, 0.0);
            counter.advance(raw, SECOND).unwrap();
            for step in steps {
                raw = if raw + step > RANGE { raw + step - RANGE } else { raw + step };
                expected += step as f64 * 1e-6;
                let total = counter.advance(raw, SECOND).unwrap();
                prop_assert!((total - expected).abs() < 1e-6);
            }
        }
    }
}
