//! The description of a link: as text, and checked. `lab/experiments` emulates links, `plan` computes
//! the time that they take.
mod presets;

pub use presets::{PRESETS, Preset};

use crate::Rate;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A description of a link that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {detail}")]
pub struct BadLink {
    /// The key, and its value.
    pub what: String,
    /// The fault, and the expected form.
    pub detail: String,
}

/// Possible rates, bit/s: at 1 kbit/s a full packet takes 12 s.
const RATES: std::ops::RangeInclusive<u64> = 1_000..=100_000_000_000;
const MAX_RTT: Duration = Duration::from_secs(60);

/// A link as written in an experiment file or on the command line; its checked form is
/// [`LinkSpec`].
///
/// Starts from `preset` if given, otherwise from a link without limits; every other key overrides
/// that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSpecText {
    /// Name in records and tables; default: the preset's name or a description.
    pub name: Option<String>,
    /// Name of one of [`PRESETS`].
    pub preset: Option<String>,
    /// TCP goodput both ways: `20mbit`.
    pub rate: Option<Rate>,
    /// TCP goodput from client to server; overrides `rate`.
    pub up: Option<Rate>,
    /// TCP goodput from server to client; overrides `rate`.
    pub down: Option<Rate>,
    /// Round-trip time of the idle link: `40ms`.
    pub rtt: Option<String>,
    /// Half the width of the uniform distribution of the round-trip time: `5ms`.
    pub jitter: Option<String>,
    /// Fraction of packets lost, each way, 0 to 1.
    pub loss: Option<f64>,
    /// Fraction of packets with a payload byte changed and all checksums right, each way, 0 to 1.
    pub corrupt: Option<f64>,
    /// Fraction of packets that are sent again later (replayed), each way, 0 to 1.
    pub duplicate: Option<f64>,
}

/// A checked description of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    name: String,
    up: Option<Rate>,
    down: Option<Rate>,
    rtt: Duration,
    jitter: Duration,
    loss: f64,
    corrupt: f64,
    duplicate: f64,
}

impl LinkSpec {
    /// The link of a preset ([`PRESETS`]); `None` for an unknown name.
    pub fn preset(name: &str) -> Option<Self> {
        presets::find(name).map(Self::from)
    }

    /// Checks `text`.
    ///
    /// # Errors
    /// [`BadLink`] for an unknown preset, a rate outside 1 kbit/s to 100 Gbit/s, an invalid
    /// duration, a round trip above 60 s, jitter above the round trip, or a fraction outside 0 to
    /// 1.
    pub fn parse(text: &LinkSpecText) -> Result<Self, BadLink> {
        let base_link = match &text.preset {
            Some(name) => Self::preset(name).ok_or_else(|| {
                let detail = format!("there is no such preset; known: {}", presets::names());
                wrong(&format!("link preset {name:?}"), &detail)
            })?,
            None => Self::unlimited(),
        };
        let overridden =
            *text != LinkSpecText { name: text.name.clone(), preset: text.preset.clone(), ..Default::default() };
        let mut spec = Self {
            name: String::new(),
            up: text.up.or(text.rate).or(base_link.up),
            down: text.down.or(text.rate).or(base_link.down),
            rtt: time("rtt", text.rtt.as_deref(), base_link.rtt)?,
            jitter: time("jitter", text.jitter.as_deref(), base_link.jitter)?,
            loss: fraction("loss", text.loss, base_link.loss)?,
            corrupt: fraction("corrupt", text.corrupt, base_link.corrupt)?,
            duplicate: fraction("duplicate", text.duplicate, base_link.duplicate)?,
        };
        if let Some(rate) = [spec.up, spec.down].into_iter().flatten().find(|r| !RATES.contains(&r.bits_per_second())) {
            return Err(wrong(&format!("rate {rate}"), "rates from 1kbit to 100gbit can be emulated"));
        }
        if spec.rtt > MAX_RTT {
            return Err(wrong(&format!("rtt {}", format_duration(spec.rtt)), "at most 60s can be emulated"));
        }
        if spec.jitter > spec.rtt {
            let detail = format!("must not exceed the round trip of {}", format_duration(spec.rtt));
            return Err(wrong(&format!("jitter {}", format_duration(spec.jitter)), &detail));
        }
        spec.name = match (&text.name, &text.preset) {
            (Some(name), _) => name.clone(),
            (None, Some(preset)) if !overridden => preset.clone(),
            _ => spec.describe(),
        };
        Ok(spec)
    }

    /// A link without limits, delays and losses.
    pub fn unlimited() -> Self {
        Self {
            name: "unlimited".into(),
            up: None,
            down: None,
            rtt: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            corrupt: 0.0,
            duplicate: 0.0,
        }
    }

    /// Name in records and tables.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// TCP goodput from client to server; `None` if unlimited.
    pub fn up(&self) -> Option<Rate> {
        self.up
    }

    /// TCP goodput from server to client; `None` if unlimited.
    pub fn down(&self) -> Option<Rate> {
        self.down
    }

    /// Round-trip time of the idle link.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// The round-trip time is uniform in `rtt - jitter ..= rtt + jitter`, plus the waits that
    /// preserve the order of packets.
    pub fn jitter(&self) -> Duration {
        self.jitter
    }

    /// Fraction of packets lost, each way.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// Fraction of packets with a payload byte changed and all checksums right, each way.
    pub fn corrupt(&self) -> f64 {
        self.corrupt
    }

    /// Fraction of packets that are sent again later, each way.
    pub fn duplicate(&self) -> f64 {
        self.duplicate
    }

    /// Whether packets must pass through an emulator: a limit of the rate alone needs none.
    pub fn needs_emulator(&self) -> bool {
        !self.rtt.is_zero() || self.is_impaired()
    }

    /// Whether single packets are lost, changed or sent again.
    pub fn is_impaired(&self) -> bool {
        self.loss > 0.0 || self.corrupt > 0.0 || self.duplicate > 0.0
    }

    /// The link in a few words: `up 3.89mbit, down 19.2mbit, rtt 40ms, loss 1%`.
    pub fn describe(&self) -> String {
        let mut parts = match (self.up, self.down) {
            (None, None) => vec!["unlimited".to_owned()],
            (Some(up), Some(down)) if up == down => vec![up.to_string()],
            (up, down) => [("up", up), ("down", down)]
                .map(|(direction, rate)| {
                    format!("{direction} {}", rate.map_or("unlimited".into(), |rate| rate.to_string()))
                })
                .to_vec(),
        };
        for (what, time) in [("rtt", self.rtt), ("jitter", self.jitter)] {
            if !time.is_zero() {
                parts.push(format!("{what} {}", format_duration(time)));
            }
        }
        for (what, fraction) in [("loss", self.loss), ("corrupt", self.corrupt), ("duplicate", self.duplicate)] {
            if fraction > 0.0 {
                parts.push(format!("{what} {fraction}"));
            }
        }
        parts.join(", ")
    }
}

impl From<&Preset> for LinkSpec {
    fn from(preset: &Preset) -> Self {
        Self {
            name: preset.name.into(),
            up: Rate::new(preset.up_kbit * 1000),
            down: Rate::new(preset.down_kbit * 1000),
            rtt: Duration::from_micros(preset.rtt_us),
            jitter: Duration::from_micros(preset.jitter_us),
            ..Self::unlimited()
        }
    }
}

fn wrong(what: &str, detail: &str) -> BadLink {
    BadLink { what: what.into(), detail: detail.into() }
}

fn time(key: &str, text: Option<&str>, default: Duration) -> Result<Duration, BadLink> {
    match text {
        Some(text) => parse_duration(text).map_err(|detail| wrong(&format!("{key} {text:?}"), &detail)),
        None => Ok(default),
    }
}

fn fraction(key: &str, value: Option<f64>, default: f64) -> Result<f64, BadLink> {
    match value {
        None => Ok(default),
        Some(value) if (0.0..=1.0).contains(&value) => Ok(value),
        Some(value) => {
            Err(wrong(&format!("{key} {value}"), "must be a fraction from 0 to 1, for example 0.01 for 1 %"))
        }
    }
}

/// Reads a time such as `40ms`, `0.6ms`, `250us`, `1.5s` (at most a day, at least 0).
///
/// # Errors
/// A description of the fault, without a copy of the text.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const EXAMPLE: &str = "write for example 40ms, 0.6ms, 250us or 1.5s";
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let nanos = match unit.trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if !number.is_empty() => return Err(format!("the unit is missing; {EXAMPLE}")),
        _ => return Err(format!("this is not a number with a unit of s, ms, us or ns; {EXAMPLE}")),
    };
    let number: f64 =
        number.trim().parse().map_err(|_| format!("this is not a decimal number with a unit; {EXAMPLE}"))?;
    let total = number * nanos;
    if !(0.0..=86_400e9).contains(&total) {
        return Err("must be from 0 to one day".into());
    }
    Ok(Duration::from_nanos(total.round() as u64))
}

/// The text form that [`parse_duration`] reads: `40ms`, `600us`, `1.5s`.
pub fn format_duration(time: Duration) -> String {
    // `Duration`'s own text is exact and uses the same units, except for the micro sign.
    format!("{time:?}").replace('µ', "u")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(json: &str) -> Result<LinkSpec, String> {
        let text: LinkSpecText = serde_json::from_str(json).map_err(|error| error.to_string())?;
        LinkSpec::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn every_preset_is_a_valid_link_with_a_source() {
        for preset in presets::PRESETS {
            let spec = LinkSpec::from(preset);
            assert!(spec.up().is_some() && spec.down().is_some(), "{}", preset.name);
            assert!(spec.jitter() <= spec.rtt() && !spec.rtt().is_zero(), "{}", preset.name);
            assert!(preset.source.contains('[') || preset.source.contains("assumed"), "{}", preset.name);
            assert_eq!(presets::PRESETS.iter().filter(|listed| listed.name == preset.name).count(), 1);
        }
        assert_eq!(LinkSpec::preset("cheetah-wan").unwrap().rtt(), Duration::from_millis(40));
        assert_eq!(LinkSpec::preset("moon"), None);
    }
    #[test]
    fn keys_override_the_preset() {
        let spec = parse(r#"{"preset": "cheetah-wan", "up": "1mbit", "loss": 0.5}"#).unwrap();
        assert_eq!(spec.up(), Rate::new(1_000_000));
        assert_eq!(spec.down(), Rate::new(352_000_000));
        assert_eq!(spec.rtt(), Duration::from_millis(40));
        assert_eq!(spec.loss(), 0.5);
        assert_eq!(spec.name(), "up 1mbit, down 352mbit, rtt 40ms, loss 0.5");
        assert_eq!(parse(r#"{"preset": "lan"}"#).unwrap().name(), "lan");
        assert_eq!(parse(r#"{"preset": "lan", "name": "mine", "rtt": "1ms"}"#).unwrap().name(), "mine");
    }

    #[test]
    fn the_rate_holds_both_ways_unless_overridden() {
        let spec = parse(r#"{"rate": "20mbit", "down": "40mbit", "rtt": "600us"}"#).unwrap();
        assert_eq!((spec.up(), spec.down()), (Rate::new(20_000_000), Rate::new(40_000_000)));
        assert_eq!(parse("{}").unwrap().describe(), "unlimited");
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (json, expected) in [
            (r#"{"rate": "0mbit"}"#, "above 0"),
            (r#"{"up": "10bit"}"#, "from 1kbit to 100gbit"),
            (r#"{"preset": "moon"}"#, "known: lan"),
            (r#"{"rtt": "40"}"#, "unit is missing"),
            (r#"{"rtt": "ms"}"#, "decimal number"),
            (r#"{"rtt": "-4ms"}"#, "from 0"),
            (r#"{"rtt": "61s"}"#, "at most 60s"),
            (r#"{"rtt": "1ms", "jitter": "2ms"}"#, "must not exceed the round trip of 1ms"),
            (r#"{"loss": 1.5}"#, "fraction"),
            (r#"{"corrupt": -0.1}"#, "fraction"),
            (r#"{"bandwidth": "1mbit"}"#, "unknown field `bandwidth`"),
        ] {
            let error = parse(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
        assert!(fraction("loss", Some(f64::NAN), 0.0).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            prop_assert!(parse_duration(&text).is_ok_and(|time| time.as_secs() <= 86_400) || parse_duration(&text).is_err());
            prop_assert!(text.parse::<Rate>().is_err() || text.contains(|c: char| c.is_ascii_digit()));
        }

        #[test]
        fn durations_read_back(nanos in 0u64..60_000_000_000) {
            let time = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(time)).unwrap(), time);
        }
    }
}
