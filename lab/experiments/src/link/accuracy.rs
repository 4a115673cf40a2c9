//! Accuracy of the emulator: the table of `tacit lab link --accuracy`, and the bounds that the
//! tests check.
use super::{Counters, Link, LinkCounters};
use crate::LabError;
use crate::campaign::LinkFigures;
use std::time::Duration;
use tacit_net::link::{LinkSpec, LinkSpecText};

/// Largest error of goodput, as a fraction of the target.
const MAX_GOODPUT_ERROR: f64 = 0.05;
/// Largest error of the idle round-trip time, seconds ...
const MAX_RTT_ERROR_S: f64 = 0.3e-3;
/// ... plus this fraction of the target.
const MAX_RTT_ERROR: f64 = 0.02;

/// Rates of the table; the last is as fast as the machine allows, and has no bounds.
pub const RATES: [&str; 4] = ["4mbit", "20mbit", "100mbit", "941mbit"];
/// Round-trip times of the table.
pub const RTTS: [&str; 4] = ["0.6ms", "10ms", "40ms", "80ms"];

/// One measured link.
#[derive(Clone, Debug)]
pub struct Row {
    /// The measurement.
    pub figures: LinkFigures,
    /// The emulator's counters, both ways together.
    pub emulator: LinkCounters,
}

impl Row {
    /// Sets up a link of `rate` and `rtt` and measures it.
    ///
    /// # Errors
    /// Those of [`LinkSpec::parse`], [`Link::up`] and [`Link::measure`].
    pub fn measure(rate: &str, rtt: &str, effort: Duration) -> Result<Self, LabError> {
        let text = LinkSpecText { rate: Some(rate.parse()?), rtt: Some(rtt.into()), ..Default::default() };
        let link = Link::up(&LinkSpec::parse(&text)?)?;
        let figures = link.measure(effort)?;
        let Counters { up, down } = link.counters();
        let emulator = LinkCounters {
            delivered: up.delivered + down.delivered,
            bytes: up.bytes + down.bytes,
            overflowed: up.overflowed + down.overflowed,
            cpu: up.cpu + down.cpu,
            ..LinkCounters::default()
        };
        Ok(Self { figures, emulator })
    }
}

/// Bounds that `figures` miss: goodput within 5 % both ways, idle round-trip time within 0.3 ms + 2 %.
pub fn misses(figures: &LinkFigures) -> Vec<String> {
    let mut misses = Vec::new();
    let ways = [("up", figures.target_up_bps, figures.up_bps), ("down", figures.target_down_bps, figures.down_bps)];
    for (way, target, achieved) in ways {
        let Some(target) = target else { continue };
        let relative_error = achieved / target - 1.0;
        if relative_error.is_nan() || relative_error.abs() > MAX_GOODPUT_ERROR {
            misses.push(format!("{way} {:+.1} %", 100.0 * relative_error));
        }
    }
    let excess_s = figures.rtt_s - figures.target_rtt_s;
    let bound = MAX_RTT_ERROR_S + MAX_RTT_ERROR * figures.target_rtt_s;
    if excess_s.is_nan() || excess_s.abs() > bound {
        misses.push(format!("round trip {:+.2} ms", 1e3 * excess_s));
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(up_bps: f64, rtt_s: f64) -> LinkFigures {
        LinkFigures {
            target_up_bps: Some(100e6),
            target_down_bps: None,
            target_rtt_s: 0.04,
            up_bps,
            down_bps: 1.0,
            rtt_s,
            loaded_rtt_s: 1.0,
        }
    }

    #[test]
    fn the_bounds_are_those_of_the_documentation() {
        for (up, rtt, expected) in [
            (95.1e6, 0.0410, 0),
            (104.9e6, 0.0390, 0),
            (94.9e6, 0.0400, 1),
            (105.1e6, 0.0412, 2),
            (100e6, 0.0388, 1),
            (f64::NAN, 0.0400, 1),
            (100e6, f64::NAN, 1),
        ] {
            assert_eq!(misses(&figures(up, rtt)).len(), expected, "{up} bit/s, {rtt} s");
        }
        assert_eq!(misses(&figures(90e6, 0.05)), ["up -10.0 %", "round trip +10.00 ms"]);
    }
}
