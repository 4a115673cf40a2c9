//! Means with confidence intervals, and the ratio of two means with its interval.
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence of an interval: 95 %, two-sided.
pub const CONFIDENCE: f64 = 0.95;

/// A sample's size, mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (n - 1 in the denominator); 0 for a single value.
    pub sd: f64,
}

/// Two ends of an interval, `low <= high`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `x` lies inside, ends included.
    #[must_use]
    pub fn contains(&self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }
}

impl Summary {
    /// The summary of `values`; `None` if there is none or one is not finite. Uses two passes, so
    /// that a large mean costs no digits.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let n = values.len();
        // Exact for equal values; a sum divided by n is often one ulp off and would add a spread.
        let first = values[0];
        let mean = first + values.iter().map(|v| v - first).sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let sd = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        (mean.is_finite() && sd.is_finite()).then_some(Self { n, mean, sd })
    }

    /// Adds uncertainties that the values have in common (`shared`, standard ones). More values do
    /// not make these smaller, so their mean square adds to the variance of the mean.
    #[must_use]
    pub fn with_shared(self, shared: &[f64]) -> Self {
        let square = shared.iter().map(|u| u * u).sum::<f64>() / shared.len().max(1) as f64;
        Self { sd: (self.sd * self.sd + self.n as f64 * square).sqrt(), ..self }
    }

    /// Variance of the mean.
    fn mean_variance(&self) -> f64 {
        self.sd * self.sd / self.n as f64
    }

    /// Student's interval for the mean at [`CONFIDENCE`]; `None` for fewer than two values, whose
    /// spread is unknown.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        if self.n < 2 {
            return None;
        }
        let half = t_quantile((self.n - 1) as f64) * self.mean_variance().sqrt();
        Some(Interval { low: self.mean - half, high: self.mean + half })
    }
}

/// The bound that |t| stays below with probability [`CONFIDENCE`], `freedom` degrees of freedom (at
/// least 1).
fn t_quantile(freedom: f64) -> f64 {
    // `new` fails only for a freedom that is not positive.
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}

/// The ratio of two means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Mean of the first divided by the mean of the second.
    pub ratio: f64,
    /// Interval at [`CONFIDENCE`]; absent if the runs are too few or too noisy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// `a`'s mean over `b`'s, with Fieller's interval: all r for which a Student test on mean(a) - r
/// mean(b) finds no difference from zero. The samples are independent with separate variances
/// (degrees of freedom by Welch and Satterthwaite). The interval needs no seeds, is exact for
/// normal values of known variance ratio, and is unbounded, hence absent, if `b` may be zero.
///
/// `None` if `b`'s mean is zero.
#[must_use]
pub fn ratio(a: &Summary, b: &Summary) -> Option<Ratio> {
    let ratio = a.mean / b.mean;
    if !ratio.is_finite() {
        return None;
    }
    Some(Ratio { ratio, interval: fieller(a, b, ratio) })
}

fn fieller(a: &Summary, b: &Summary, ratio: f64) -> Option<Interval> {
    if a.n < 2 || b.n < 2 {
        return None;
    }
    let (va, vb) = (a.mean_variance(), b.mean_variance());
    let (wa, wb) = (va, ratio * ratio * vb);
    if wa + wb == 0.0 {
        return Some(Interval { low: ratio, high: ratio });
    }
    let freedom = (wa + wb).powi(2) / (wa * wa / (a.n - 1) as f64 + wb * wb / (b.n - 1) as f64);
    let t2 = t_quantile(freedom).powi(2);
    // (ma - r mb)^2 <= t^2 (va + r^2 vb), a quadratic in r.
    let square = b.mean * b.mean - t2 * vb;
    if square <= 0.0 {
        return None;
    }
    let half = a.mean * b.mean;
    let root = (half * half - square * (a.mean * a.mean - t2 * va)).max(0.0).sqrt();
    let interval = Interval { low: (half - root) / square, high: (half + root) / square };
    (interval.low.is_finite() && interval.high.is_finite()).then_some(interval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() <= within, "{a} and {b}");
    }

    #[test]
    fn mean_and_deviation_of_one_to_n() {
        // Mean (n + 1) / 2, variance n (n + 1) / 12.
        for n in [2_usize, 5, 10, 100] {
            let values: Vec<f64> = (1..=n).map(|i| i as f64).collect();
            let s = Summary::of(&values).unwrap();
            close(s.mean, (n as f64 + 1.0) / 2.0, 1e-12 * n as f64);
            close(s.sd, (n as f64 * (n as f64 + 1.0) / 12.0).sqrt(), 1e-12 * n as f64);
        }
        assert_eq!(Summary::of(&[0.1; 10]).unwrap(), Summary { n: 10, mean: 0.1, sd: 0.0 });
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_large_mean_costs_no_digits() {
        let values: Vec<f64> = [4.0, 7.0, 13.0, 16.0].iter().map(|v| v + 1e9).collect();
        close(Summary::of(&values).unwrap().sd, 30f64.sqrt(), 1e-9);
    }

    #[test]
    fn quantiles_agree_with_the_closed_forms_and_the_table() {
        // One degree of freedom: Cauchy, tan(pi (p - 1/2)). Two: 2 (p - 1/2) sqrt(2 / (4 p (1 - p))).
        let p: f64 = 0.975;
        close(t_quantile(1.0), (std::f64::consts::PI * (p - 0.5)).tan(), 1e-6);
        close(t_quantile(2.0), 2.0 * (p - 0.5) * (2.0 / (4.0 * p * (1.0 - p))).sqrt(), 1e-8);
        close(t_quantile(9.0), 2.262_157, 1e-6);
        close(t_quantile(120.0), 1.979_930, 1e-6);
    }

    #[test]
    fn interval_of_a_mean() {
        let s = Summary { n: 10, mean: 5.0, sd: 2.0 };
        let half = 2.262_157 * 2.0 / 10f64.sqrt();
        let i = s.interval().unwrap();
        close(i.low, 5.0 - half, 1e-5);
        close(i.high, 5.0 + half, 1e-5);
        assert_eq!(Summary { n: 1, mean: 5.0, sd: 0.0 }.interval(), None);
    }

    #[test]
    fn what_all_values_share_does_not_average_out() {
        let s = Summary { n: 100, mean: 5.0, sd: 2.0 };
        close(s.with_shared(&[0.3, 0.5]).mean_variance(), 0.04 + 0.17, 1e-12);
        assert_eq!(s.with_shared(&[]), s);
    }

    #[test]
    fn ratio_against_hand_calculation() {
        // A divisor without spread: Student's interval, scaled. Nine degrees of freedom, all from `a`.
        let (a, b) = (Summary { n: 10, mean: 6.0, sd: 1.0 }, Summary { n: 10, mean: 3.0, sd: 0.0 });
        let r = ratio(&a, &b).unwrap();
        let i = r.interval.unwrap();
        let mean = a.interval().unwrap();
        close(r.ratio, 2.0, 1e-12);
        close(i.low, mean.low / 3.0, 1e-9);
        close(i.high, mean.high / 3.0, 1e-9);
        // Equal samples of mean 10, sd 1, n 4: df 6, t 2.446912, g = t^2 / (4 * 100) = 0.0149684;
        // ends (1 -+ sqrt(1 - (1 - g)^2)) / (1 - g).
        let s = Summary { n: 4, mean: 10.0, sd: 1.0 };
        let i = ratio(&s, &s).unwrap().interval.unwrap();
        let g: f64 = 2.446_912_f64.powi(2) / 400.0;
        let root = (1.0 - (1.0 - g).powi(2)).sqrt();
        close(i.low, (1.0 - root) / (1.0 - g), 1e-6);
        close(i.high, (1.0 + root) / (1.0 - g), 1e-6);
    }

    #[test]
    fn no_interval_where_none_can_be_had() {
        let one = Summary { n: 1, mean: 2.0, sd: 0.0 };
        let noisy = Summary { n: 3, mean: 1.0, sd: 5.0 };
        let fine = Summary { n: 3, mean: 4.0, sd: 0.1 };
        assert_eq!(ratio(&one, &fine).unwrap().interval, None);
        assert_eq!(ratio(&fine, &noisy).unwrap().interval, None, "the divisor may be zero");
        assert_eq!(ratio(&fine, &Summary { mean: 0.0, ..fine }), None);
        let same = Summary { n: 3, mean: 4.0, sd: 0.0 };
        assert_eq!(ratio(&same, &same).unwrap().interval, Some(Interval { low: 1.0, high: 1.0 }));
    }

    /// A sample of normal values, by Box and Muller.
    fn sample(random: &mut fastrand::Rng, n: usize, mean: f64, sd: f64) -> Summary {
        let mut normal = || (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos();
        let values: Vec<f64> = (0..n).map(|_| mean + sd * normal()).collect();
        Summary::of(&values).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, rng_seed: proptest::test_runner::RngSeed::Fixed(4), ..ProptestConfig::default() })]

        /// The true ratio lies in 95 % of the intervals: over 2000 draws, within 4 standard errors
        /// (0.5 % each) and the small known error of Welch's degrees of freedom.
        #[test]
        fn coverage(seed: u64, n in 4_usize..12, m in 4_usize..12, truth in 0.2f64..5.0, cv_a in 0.01f64..0.15, cv_b in 0.01f64..0.15) {
            let mut random = fastrand::Rng::with_seed(seed);
            let draws = 2000;
            let hits = (0..draws)
                .filter(|_| {
                    let a = sample(&mut random, n, 10.0 * truth, 10.0 * truth * cv_a);
                    let b = sample(&mut random, m, 10.0, 10.0 * cv_b);
                    ratio(&a, &b).unwrap().interval.is_some_and(|i| i.contains(truth))
                })
                .count();
            let covered = hits as f64 / draws as f64;
            prop_assert!((0.925..=0.975).contains(&covered), "{covered}");
        }

        /// Inverting the ratio inverts its interval.
        #[test]
        fn symmetric(ma in 1f64..100.0, mb in 1f64..100.0, ca in 0f64..0.1, cb in 0.001f64..0.1, n in 3_usize..20) {
            let (a, b) = (Summary { n, mean: ma, sd: ma * ca }, Summary { n, mean: mb, sd: mb * cb });
            let (there, back) = (ratio(&a, &b).unwrap(), ratio(&b, &a).unwrap());
            let (i, j) = (there.interval.unwrap(), back.interval.unwrap());
            prop_assert!((i.low * j.high - 1.0).abs() < 1e-9); prop_assert!((i.high * j.low - 1.0).abs() < 1e-9);
            prop_assert!(i.contains(there.ratio));
        }
    }
}
