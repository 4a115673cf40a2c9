//! [VPN24] section III: the costs of plain TCP, TLS, WireGuard and TLS in WireGuard, sending and
//! receiving, at several rates.
//!
//! The campaign is the built-in experiment `vpn24-transport` with the smaller of 1 GiB and the
//! link's capacity in 60 s. The paper transfers more: 10 GB, and 1 GB to and from the Raspberry Pi.
//! `tacit.lab` in Python evaluates the runs and shows them beside the paper's tables ([`Paper`]).
//!
//! CPU time is that of all processes of a party, the tunnel's included. It excludes kernel work for
//! no process (kernel WireGuard; packets handled while another process happened to run).
mod paper;

pub use paper::{Paper, PaperValue, Role};

use crate::LabError;
use crate::experiment::{BuiltIn, Experiment, LinkText};
use crate::transport::TransportKind;
use tacit_net::Rate;
use tacit_net::link::LinkSpecText;

/// Most bytes of a transfer by default: about the paper's amount for its Raspberry Pi, a tenth of that
/// for other devices.
const DEFAULT_BYTES: u64 = 1 << 30;
/// Longest transfer by default, seconds.
const DEFAULT_SECONDS: u64 = 60;

/// Scope of the comparison.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Links: rates (`95.6mbit`), `unlimited`, or presets; empty for the built-in experiment's.
    pub links: Vec<String>,
    /// Transports; empty for all.
    pub transports: Vec<TransportKind>,
    /// Runs of each cell; `None` for the built-in experiment's.
    pub repetitions: Option<u32>,
    /// Most bytes of a transfer; `None` for 1 GiB.
    pub bytes: Option<u64>,
    /// Longest transfer, seconds; `None` for 60.
    pub seconds: Option<u64>,
}

/// The experiment for a request.
///
/// # Errors
/// [`LabError::Spec`] with the value that is out of range or unknown.
pub fn experiment(request: &Request) -> Result<Experiment, LabError> {
    let mut spec = BuiltIn::find("vpn24-transport")?.spec()?;
    let bytes = request.bytes.unwrap_or(DEFAULT_BYTES);
    let seconds = request.seconds.unwrap_or(DEFAULT_SECONDS);
    if !request.links.is_empty() {
        spec.links = request.links.iter().map(|text| link(text)).collect();
    }
    if !request.transports.is_empty() {
        spec.transports = request.transports.iter().map(ToString::to_string).collect();
    }
    spec.repetitions = request.repetitions.unwrap_or(spec.repetitions);
    // Bytes under way after `seconds`, and a repeated handshake, take extra time.
    spec.timeout_s = (seconds as f64 * 2.0 + 120.0).min(3600.0);
    let side = "--server {server}:{port} --transport {transport} --keys {keys}";
    for workload in &mut spec.workloads {
        workload.client =
            format!("tacit lab workload bulk-{} {side} --bytes {bytes} --seconds {seconds}", workload.name);
        workload.moves_bytes = 0;
    }
    let takes_s = expected_seconds(&Experiment::new(spec.clone())?, bytes, seconds);
    spec.workloads.iter_mut().for_each(|workload| workload.takes_s = Some(takes_s));
    Experiment::new(spec)
}

/// Mean duration of a transfer over all links, for the estimate of the campaign's length.
fn expected_seconds(experiment: &Experiment, bytes: u64, seconds: u64) -> f64 {
    let links = experiment.links();
    let times = links.iter().map(|l| {
        // Unlimited links usually reach some Gbit/s.
        let rate = l.spec.as_ref().and_then(|s| s.up());
        let bits_per_second = rate.map_or(2e9, |r| r.bits_per_second() as f64);
        (bytes as f64 * 8.0 / bits_per_second).min(seconds as f64)
    });
    times.sum::<f64>() / links.len().max(1) as f64
}

fn link(text: &str) -> LinkText {
    let name = Some(text.to_owned());
    match text.parse::<Rate>() {
        Ok(rate) => LinkText::Table(LinkSpecText { name, rate: Some(rate), ..LinkSpecText::default() }),
        Err(_) if text == "unlimited" => LinkText::Table(LinkSpecText { name, ..LinkSpecText::default() }),
        Err(_) => LinkText::Name(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_one_gibibyte_over_every_transport_and_role() {
        let experiment = experiment(&Request::default()).unwrap();
        let workloads = &experiment.spec().workloads;
        let names: Vec<&str> = workloads.iter().map(|w| w.name.as_str()).collect();
        assert_eq!(names, ["send", "receive"]);
        for workload in workloads {
            assert!(workload.client.contains("--bytes 1073741824 --seconds 60"), "{}", workload.client);
            // The mean of 9.1 s at 941 Mbit/s and 60 s at each of the other two rates.
            assert!((workload.takes_s.unwrap() - 43.04).abs() < 0.1, "{:?}", workload.takes_s);
        }
        assert_eq!(experiment.transports(), TransportKind::ALL);
    }

    #[test]
    fn links_are_rates_presets_or_unlimited_and_others_are_refused() {
        let spec_with = |links: &[&str], bytes| {
            let links = links.iter().map(ToString::to_string).collect();
            let transports = vec![TransportKind::Plain];
            super::experiment(&Request {
                links,
                transports,
                repetitions: Some(2),
                bytes: Some(bytes),
                seconds: Some(1),
            })
        };
        let experiment = spec_with(&["95.6mbit", "unlimited", "lte"], 9).unwrap();
        let receive = &experiment.spec().workloads[1].client;
        assert!(receive.contains("bulk-receive"), "{receive}");
        assert!(receive.contains("--bytes 9 "), "{receive}");
        let rates: Vec<Option<u64>> = experiment
            .links()
            .iter()
            .map(|l| l.spec.as_ref().and_then(|s| s.up()).map(Rate::bits_per_second))
            .collect();
        assert_eq!(rates, [Some(95_600_000), None, Some(12_000_000)]);
        assert_eq!(experiment.links()[1].name, "unlimited");
        assert!(spec_with(&["carrier-pigeon"], 9).is_err());
    }
}
