//! Finds what would change the ranking: varies one property at a time and names the best choice.

use serde::Serialize;
use tacit_floats::Interval;

use crate::device::Device;
use crate::error::PlanError;
use crate::predict::Setting;
use crate::rank::Question;

/// A property that is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// The rate of the link's slower way, Mbit/s; the other way keeps its ratio to it.
    Rate,
    /// The link's round trip, milliseconds.
    RoundTrip,
    /// Speed of the client's device, as a multiple of its speed now.
    Client,
    /// Speed of the server, as a multiple of its speed now.
    Server,
}

impl Knob {
    const ALL: [Self; 4] = [Self::Rate, Self::RoundTrip, Self::Client, Self::Server];

    /// The range in which the knob is varied, in its unit; `value` lies within it.
    fn range(self, value: f64) -> Interval<f64> {
        let [low, high] = match self {
            Self::Rate => [0.05, 10_000.0],
            Self::RoundTrip => [0.05, 1_000.0],
            Self::Client | Self::Server => [1.0 / 32.0, 32.0],
        };
        let value = value.max(1e-3);
        Interval { low: tacit_floats::smaller(low, value / 4.0), high: tacit_floats::larger(high, 4.0 * value) }
    }

    /// The knob's value in `setting`, in its unit.
    fn value_in(self, setting: &Setting) -> f64 {
        match self {
            Self::Rate => setting.link.up_bits_per_s.min(setting.link.down_bits_per_s) / 1e6,
            Self::RoundTrip => 1e3 * setting.link.rtt_s,
            Self::Client | Self::Server => 1.0,
        }
    }

    fn set(self, setting: &Setting, value: f64) -> Setting {
        match self {
            Self::Rate => Setting { link: setting.link.with_rate(1e6 * value), ..setting.clone() },
            Self::RoundTrip => Setting { link: setting.link.with_rtt(value / 1e3), ..setting.clone() },
            Self::Client => Setting { client: faster(&setting.client, value), ..setting.clone() },
            Self::Server => Setting { server: faster(&setting.server, value), ..setting.clone() },
        }
    }
}

fn faster(device: &Device, factor: f64) -> Device {
    Device { slower: device.slower.map(|s| s / factor), ..device.clone() }
}

/// The best offer over a range of a knob, in its unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reign {
    /// Lower end of the range.
    pub from: f64,
    /// Upper end of the range.
    pub to: f64,
    /// Index of the best offer; `None` if no private offer is within the limits.
    pub offer: Option<usize>,
}

/// A knob and the effect of varying it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Varied {
    /// The knob.
    pub knob: Knob,
    /// The knob's value now, in its unit.
    pub at: f64,
    /// The best score at a quarter and at four times the value now; `None` if no offer is within
    /// the limits.
    pub score: [Option<f64>; 2],
    /// The best offer for each part of the whole range, in order.
    pub reigns: Vec<Reign>,
}

const STEPS: u32 = 60;
const HALVINGS: u32 = 16;

/// Varies each knob by itself. The knob that moves the score most comes first.
///
/// # Errors
/// As [`Question::ranked`].
pub fn vary(question: &Question<'_>, setting: &Setting) -> Result<Vec<Varied>, PlanError> {
    let mut changes =
        Knob::ALL.into_iter().map(|knob| vary_knob(question, setting, knob)).collect::<Result<Vec<_>, _>>()?;
    changes.sort_by(|a, b| tacit_floats::falling(&score_change(a), &score_change(b)));
    Ok(changes)
}

/// How far a knob moves the score, as a logarithm.
fn score_change(varied: &Varied) -> f64 {
    match varied.score {
        [Some(a), Some(b)] if a > 0.0 && b > 0.0 => (a / b).ln().abs(),
        _ => f64::INFINITY,
    }
}

fn vary_knob(question: &Question<'_>, setting: &Setting, knob: Knob) -> Result<Varied, PlanError> {
    let best_at = |value: f64| question.best(&knob.set(setting, value));
    let offer_at = |value: f64| Ok::<_, PlanError>(best_at(value)?.map(|choice| choice.offer));
    let current = knob.value_in(setting);
    let score = [best_at(current / 4.0)?.map(|c| c.score), best_at(4.0 * current)?.map(|c| c.score)];
    let Interval { low, high } = knob.range(current);
    let point = |step: u32| low * (high / low).powf(f64::from(step) / f64::from(STEPS));
    let mut reigns = vec![Reign { from: low, to: high, offer: offer_at(low)? }];
    for step in 1..=STEPS {
        let best_offer = offer_at(point(step))?;
        let last = reigns.last_mut().expect("there is one from the start");
        if best_offer != last.offer {
            let (mut a, mut b) = (point(step - 1), point(step));
            for _ in 0..HALVINGS {
                let middle = (a * b).sqrt();
                if offer_at(middle)? == last.offer { a = middle } else { b = middle }
            }
            last.to = b;
            reigns.push(Reign { from: b, to: high, offer: best_offer });
        }
    }
    Ok(Varied { knob, at: current, score, reigns })
}
