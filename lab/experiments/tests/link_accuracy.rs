//! Properties of links that do not depend on the load of the machine: the kernel shapes at the
//! requested rate, no more bytes pass than the rate allows, and no packet comes early. Goodput and
//! round trips are measured and printed only, because they depend on the machine; `tacit lab link
//! --accuracy` judges them.
use std::process::Command;
use std::time::{Duration, Instant};
use tacit_experiments::LabError;
use tacit_experiments::link::{Link, Side, accuracy};
use tacit_net::link::{LinkSpec, LinkSpecText};

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
fn a_link_is_as_fast_as_asked_for_and_never_faster() {
    for (rate, rtt) in CASES {
        let text = LinkSpecText { rate: Some(rate.parse().unwrap()), rtt: Some(rtt.into()), ..Default::default() };
        let spec = LinkSpec::parse(&text).unwrap();
        let link = match Link::up(&spec) {
            Err(LabError::Unavailable { reason, remedy, .. }) => {
                eprintln!("SKIPPED a_link_is_as_fast_as_asked_for_and_never_faster: {reason}; {remedy}");
                return;
            }
            other => other.unwrap(),
        };
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
            assert!(passed > 0.0, "{rate} {rtt} {side:?}: {passed} of {max_bytes} bytes in {seconds} s");
            assert!(passed <= max_bytes, "{rate} {rtt} {side:?}: {passed} of {max_bytes} bytes in {seconds} s");
        }
        assert!(figures.rtt_s >= figures.target_rtt_s, "{figures:?}");
        assert!(figures.loaded_rtt_s >= figures.target_rtt_s, "{figures:?}");
        let [up, down] = link.counters();
        assert!(up.delivered > 0, "{up:?} {down:?}");
        assert!(down.delivered > 0, "{up:?} {down:?}");
        assert!(up.overflowed + down.overflowed == 0, "{up:?} {down:?}");
    }
}
