//! Properties of links that do not depend on the load of the machine: the kernel shapes at the
//! requested rate, no more bytes pass than the rate allows, and no packet comes early. `tacit lab link
//! --accuracy` judges goodput and round trips, which depend on the machine.
mod common;

use std::process::Command;
use std::time::{Duration, Instant};
use tacit_experiments::link::{Counters, Link, Side, accuracy};
use tacit_net::link::LinkSpecText;

/// Each rate and each round-trip time with a bound; `tacit lab link --accuracy` measures all combinations.
const CASES: [(&str, &str); 4] = [("4mbit", "0.6ms"), ("20mbit", "10ms"), ("100mbit", "40ms"), ("20mbit", "80ms")];

/// Returns the shaper's figures of one side from `tc`: rate in bytes per second, burst in bytes,
/// bytes passed so far.
fn shaper(link: &Link, side: Side) -> (f64, f64, f64) {
    let tc = || Command::new("tc").args(["-s", "-j", "qdisc", "show", "dev", "link0"]).output();
    let output = link.within(side, tc).unwrap().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report[0]["kind"], "tbf", "{report}");
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("{report}"));
    (number(&report[0]["options"]["rate"]), number(&report[0]["options"]["burst"]), number(&report[0]["bytes"]))
}

#[test]
fn shaped_links_keep_rate_and_delay() {
    for (rate, rtt) in CASES {
        let text = LinkSpecText { rate: Some(rate.parse().unwrap()), rtt: Some(rtt.into()), ..Default::default() };
        let Some(link) = common::link_or_skip("shaped_links_keep_rate_and_delay", &text) else { return };
        let spec = link.spec();
        let sides = [(Side::Client, spec.up()), (Side::Server, spec.down())];
        let before = sides.map(|(side, _)| shaper(&link, side));
        let start = Instant::now();
        let figures = link.measure(Duration::from_millis(1000)).unwrap();
        let after = sides.map(|(side, _)| shaper(&link, side));
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("{rate} {rtt}: {figures:?}; outside the bounds (not asserted): {:?}", accuracy::misses(&figures));
        for (((side, target), (shaped_rate, burst, first)), (_, _, last)) in sides.into_iter().zip(before).zip(after) {
            // Packets of 1,500 bytes carry 1,448 of payload, and the target is payload.
            let expected_rate = target.unwrap().bits_per_second() as f64 / 8.0 * 1500.0 / 1448.0;
            assert!(
                (shaped_rate / expected_rate - 1.0).abs() < 1e-3,
                "{rate} {rtt} {side:?}: {shaped_rate} instead of {expected_rate} B/s"
            );
            let passed = last - first;
            // The bucket may let one packet through that it does not hold completely.
            let max_bytes = shaped_rate * seconds + burst + 1500.0;
            assert!(passed > 0.0, "{rate} {rtt} {side:?}");
            assert!(passed <= max_bytes, "{rate} {rtt} {side:?}: {passed} of {max_bytes} bytes in {seconds} s");
        }
        for rtt_s in [figures.rtt_s, figures.loaded_rtt_s] {
            assert!(rtt_s >= figures.target_rtt_s, "{figures:?}");
        }
        let Counters { up, down } = link.counters();
        for counters in [up, down] {
            assert!(counters.delivered > 0, "{counters:?}");
            assert_eq!(counters.overflowed, 0);
        }
    }
}
