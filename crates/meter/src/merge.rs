//! Runs of different length made comparable, as in [PM24] 4.3.
//!
//! With t_i the length of run i and t* the mean of all k lengths, the time stamps of run i are multiplied by t*/t_i; then time is cut
//! into slots (1 second, the last one shorter), and for each slot the mean and the standard deviation over the runs are taken.
//!
//! **What is conserved.** The paper scales time stamps only, so power values stay as they are: the mean power of every run is
//! conserved, and its energy E_i becomes E_i t*/t_i (scaling the energy too would invent power that no sensor read). Slots hold the
//! time-weighted mean power of each run, so that nothing is lost at their borders: the sum over slots of merged power times slot
//! length equals the mean over runs of E_i t*/t_i = t* P_i, exactly up to rounding.

/// Cumulative energy of one run: (seconds since its start, joules since its start), times strictly increasing. Between two points
/// power is constant: what a source delivers between two samples is known as its sum only.
pub type Curve = [(f64, f64)];

/// One slot of the merged runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Begin of the slot, seconds on the merged time axis.
    pub start_s: f64,
    /// Length, seconds: as asked for, the last one what remains.
    pub length_s: f64,
    /// Mean over the runs of their power within the slot, watts.
    pub mean_w: f64,
    /// Standard deviation over the runs (n - 1 in the denominator), watts; 0 for one run.
    pub sd_w: f64,
}

/// Merged runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// t*: the mean length of the runs, seconds.
    pub duration_s: f64,
    /// Number of runs.
    pub runs: usize,
    /// Slots from 0 to `duration_s`.
    pub slots: Vec<Slot>,
}

/// Merges runs with slots of `slot_s` seconds ([PM24]: 1). `None` without runs, if a run has no two points, times that do not increase or
/// values that are no numbers, and if there were more than a million slots.
#[must_use]
pub fn merge(runs: &[&Curve], slot_s: f64) -> Option<Merged> {
    let is_run = |run: &&Curve| {
        run.len() >= 2
            && run.iter().all(|(t, j)| t.is_finite() && j.is_finite())
            && run.windows(2).all(|w| w[0].0 < w[1].0)
    };
    if runs.is_empty() || !runs.iter().all(is_run) || !(slot_s.is_finite() && slot_s > 0.0) {
        return None;
    }
    let length = |run: &Curve| run[run.len() - 1].0 - run[0].0;
    let duration_s = runs.iter().map(|run| length(run)).sum::<f64>() / runs.len() as f64;
    let whole = duration_s / slot_s;
    if whole > 1e6 {
        return None;
    }
    // A remainder that is only rounding makes no slot of its own.
    let count = (whole - 1e-9).ceil().max(1.0) as usize;
    let border = |slot: usize| if slot == count { duration_s } else { slot as f64 * slot_s };
    // By slot, then by run.
    let mut powers = vec![0.0; count * runs.len()];
    for (number, run) in runs.iter().enumerate() {
        let scale = duration_s / length(run);
        let mut cursor = Cursor { run, segment: 0 };
        let mut before = cursor.energy_at(0.0, scale);
        for (slot, powers) in powers.chunks_exact_mut(runs.len()).enumerate() {
            let after = if slot + 1 == count {
                run[run.len() - 1].1 * scale
            } else {
                cursor.energy_at(border(slot + 1), scale)
            };
            powers[number] = (after - before) / (border(slot + 1) - border(slot));
            before = after;
        }
    }
    let slots = powers.chunks_exact(runs.len()).enumerate().map(|(slot, powers)| {
        let (mean_w, sd_w) = mean_sd(powers);
        Slot { start_s: border(slot), length_s: border(slot + 1) - border(slot), mean_w, sd_w }
    });
    Some(Merged { duration_s, runs: runs.len(), slots: slots.collect() })
}

/// Walks along a run once.
struct Cursor<'a> {
    run: &'a Curve,
    segment: usize,
}

impl Cursor<'_> {
    /// Scaled energy at scaled time `at`, which must not decrease from call to call.
    fn energy_at(&mut self, at: f64, scale: f64) -> f64 {
        let time = self.run[0].0 + at / scale;
        while self.segment + 2 < self.run.len() && self.run[self.segment + 1].0 <= time {
            self.segment += 1;
        }
        let (from, to) = (self.run[self.segment], self.run[self.segment + 1]);
        let part = ((time - from.0) / (to.0 - from.0)).clamp(0.0, 1.0);
        // Watts stay as they are while seconds are scaled, so joules are scaled too.
        (from.1 + (to.1 - from.1) * part) * scale
    }
}

fn mean_sd(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
