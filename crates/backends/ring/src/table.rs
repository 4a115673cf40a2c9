//! Public functions of small integers as tables: of all values, or of pieces of lines.

use serde::{Deserialize, Serialize};
use tacit_floats::Interval;
use tacit_graph::Function;
use tacit_mpc::dealt::{self, MAX_SPLINE_BITS};

use super::fixed::to_signed;

/// Widest index of a table, in bits.
pub const MAX_TABLE_BITS: u32 = 16;

/// A public function of small integers, with an entry for every index or every piece of its ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The function that the table computes.
    pub function: Function,
    /// Result for the index `j` (`0 <= j < 2^k`), which stands for `j - 2^k` from `2^(k-1)` on.
    pub entries: Vec<i64>,
    /// The lines of the entries, if the ring has more bits than an index.
    pub lines: Option<Lines>,
    /// Bits behind the binary point of the results.
    pub frac_bits: u32,
    /// Largest difference to the function, where a number stands for all that round to it, in units of the
    /// results' last place, rounded up.
    pub error: u32,
}

/// Lines in place of constants: `x = 2^low i + l` has the result `2^shift entry(i) + slope(i) l`. A back end
/// may choose the i of an x: the piece of x, or the one above, whose line extends below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// Bits of a number below the index of its piece.
    pub low: u32,
    /// Zero bits appended to each entry.
    pub shift: u32,
    /// The slope of each piece.
    pub slopes: Vec<i64>,
}

impl Table {
    /// Number of bits of a piece's index.
    pub fn index_bits(&self) -> u32 {
        self.entries.len().max(1).ilog2()
    }

    /// Number of bits of the numbers that the table takes.
    pub fn bits(&self) -> u32 {
        self.index_bits() + self.lines.as_ref().map_or(0, |lines| lines.low)
    }

    /// Count of numbers at the upper end of the ring that must not occur: the piece above them is at the
    /// lower end.
    pub fn reserved(&self) -> i64 {
        self.lines.as_ref().map_or(0, |lines| 1 << lines.low)
    }

    /// The result for a signed integer, reduced into the ring.
    pub fn value_at(&self, x: i64) -> i64 {
        self.evaluate(x, 0)
    }

    /// The result by the piece that a back end takes with a random mask: the piece above, if the mask's low
    /// bits are more.
    pub fn masked_value(&self, x: i64, mask: u64) -> i64 {
        let low = self.lines.as_ref().map_or(0, |lines| lines.low);
        let [sum, mask] = [(x as u64).wrapping_add(mask), mask].map(|v| v & ((1 << low) - 1));
        self.evaluate(x, i64::from(sum < mask))
    }

    /// The result by the line of the piece `pieces_above` above that of `x`.
    fn evaluate(&self, x: i64, pieces_above: i64) -> i64 {
        let place = |i: i64| i as usize & (self.entries.len() - 1);
        let Some(lines) = &self.lines else { return self.entries[place(x)] };
        let i = (to_signed(x as u64, self.bits()) >> lines.low) + pieces_above;
        let l = to_signed(x as u64, self.bits()) - (i << lines.low);
        (self.entries[place(i)] << lines.shift) + lines.slopes[place(i)] * l
    }

    /// Smallest and largest result.
    pub fn range(&self) -> Interval<i64> {
        let ranges = self.entries.iter().enumerate().map(|(i, entry)| {
            let (middle, reach) = match &self.lines {
                None => (*entry, 0),
                Some(lines) => (entry << lines.shift, lines.slopes[i].abs() << lines.low),
            };
            Interval { low: middle - reach, high: middle + reach }
        });
        let union = ranges.reduce(|a, b| Interval { low: a.low.min(b.low), high: a.high.max(b.high) });
        union.expect("a checked table has entries")
    }

    /// Largest change of the result from one number to the next on one line; without lines, between
    /// neighbouring entries.
    pub fn max_slope(&self) -> u64 {
        if let Some(lines) = &self.lines {
            return lines.slopes.iter().map(|slope| slope.unsigned_abs()).max().unwrap_or(0);
        }
        self.neighbours().map(|[a, b]| self.entries[a].abs_diff(self.entries[b])).max().unwrap_or(0)
    }

    /// Largest difference between the results of one number by either piece.
    pub fn line_gap(&self) -> u64 {
        let Some(lines) = &self.lines else { return 0 };
        let distances = self.neighbours().map(|[a, b]| {
            let step = (self.entries[b] << lines.shift) - (self.entries[a] << lines.shift);
            let [gap_below, gap_above] = [a, b].map(|i| (step - (lines.slopes[i] << lines.low)).unsigned_abs());
            gap_below.max(gap_above)
        });
        distances.max().unwrap_or(0)
    }

    /// The places of neighbouring entries, from the lowest index to the highest.
    fn neighbours(&self) -> impl Iterator<Item = [usize; 2]> {
        let count = self.entries.len();
        (0..count - 1).map(move |i| [i, i + 1].map(|i| (i + count / 2) & (count - 1)))
    }

    /// The gates that look `n` numbers up, into a ring of `width` bits.
    ///
    /// # Errors
    /// A sentence, if the results do not fit the ring.
    pub fn look_up(&self, n: usize, width: u32) -> Result<dealt::LookUp, String> {
        let result = match &self.lines {
            None => dealt::LookUp::new(n, width, &self.entries),
            Some(Lines { low, shift, slopes }) => {
                dealt::LookUp::with_lines(n, width, &self.entries, dealt::Lines { low: *low, shift: *shift, slopes })
            }
        };
        result.map_err(|e| e.to_string())
    }

    /// An error is a sentence that says why the table is not valid.
    pub(super) fn check(&self) -> Result<(), String> {
        let count = self.entries.len();
        if !count.is_power_of_two() || !(2..=1 << MAX_TABLE_BITS).contains(&count) {
            return Err(format!("a table of {count} entries is not supported"));
        }
        let Some(Lines { low, shift, slopes }) = &self.lines else { return Ok(()) };
        if slopes.len() != count || *low == 0 || low.saturating_add(self.index_bits()) > MAX_SPLINE_BITS || *shift > 62
        {
            return Err(format!("a table of {count} lines with {low} low bits is not supported"));
        }
        // Sums of three results do not overflow a word.
        match self.entries.iter().all(|e| fits(*e, *shift)) && slopes.iter().all(|s| fits(*s, *low)) {
            true => Ok(()),
            false => Err("a table of lines whose results are no numbers of 60 bits".into()),
        }
    }
}

/// Whether `value << bits` has less than 61 bits.
fn fits(value: i64, bits: u32) -> bool {
    i128::from(value).unsigned_abs() << bits < 1 << 60
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Table {
        let lines = Lines { low: 2, shift: 1, slopes: vec![3, -1, 0, 2] };
        Table { function: Function::Tanh, entries: vec![5, 9, -4, 7], lines: Some(lines), frac_bits: 4, error: 1 }
    }

    #[test]
    fn masked_look_up_uses_neighbouring_lines() {
        let (table, mut farthest) = (lines(), 0);
        assert!(table.check().is_ok());
        assert!((table.index_bits(), table.bits(), table.reserved()) == (2, 4, 4));
        let Interval { low, high } = table.range();
        for x in -8..4i64 {
            let (i, l) = (x.div_euclid(4), x.rem_euclid(4));
            let line = |i: i64, l: i64| [10, 18, -8, 14][(i & 3) as usize] + [3, -1, 0, 2][(i & 3) as usize] * l;
            assert_eq!(table.value_at(x), line(i, l));
            for mask in 0..16 {
                let result = table.masked_value(x, mask);
                let above = (x.rem_euclid(4) as u64 + mask % 4) % 4 < mask % 4;
                assert_eq!(result, if above { line(i + 1, l - 4) } else { line(i, l) });
                assert!((low..=high).contains(&result));
                assert!(table.value_at(x).abs_diff(result) <= table.line_gap());
                farthest = farthest.max(table.value_at(x).abs_diff(result));
            }
        }
        // The bound is reached at the ends of pieces.
        assert!(farthest > 0);
        assert!(table.max_slope() == 3);
    }

    #[test]
    fn refuses_invalid_lines() {
        for spoil in [
            |t: &mut Table| t.lines.as_mut().unwrap().low = 0,
            |t: &mut Table| t.lines.as_mut().unwrap().low = u32::MAX,
            |t: &mut Table| t.lines.as_mut().unwrap().low = 39,
            |t: &mut Table| t.lines.as_mut().unwrap().shift = 63,
            |t: &mut Table| t.lines.as_mut().unwrap().shift = 58,
            |t: &mut Table| t.lines.as_mut().unwrap().slopes.truncate(3),
            |t: &mut Table| t.lines.as_mut().unwrap().slopes[2] = i64::MIN,
            |t: &mut Table| t.entries[1] = i64::MAX,
            |t: &mut Table| t.entries.truncate(3),
        ] {
            let mut table = lines();
            spoil(&mut table);
            assert!(table.check().is_err(), "{table:?}");
        }
    }
}
