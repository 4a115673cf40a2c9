use super::*;
use crate::record::RailSample;

/// Irregular but increasing time stamps over [0, end].
fn irregular(n: usize, end: f64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(12345);
    let mut stamps: Vec<f64> = (1..n).map(|_| random.f64() * end).chain([0.0, end]).collect();
    stamps.sort_by(f64::total_cmp);
    stamps
}

#[track_caller]
fn assert_near(value: f64, wanted: f64, tolerance: f64) {
    assert!((value - wanted).abs() < tolerance, "{value}, wanted {wanted}");
}

const FLAT: Baseline =
    Baseline { mean_w: 3.0, sd_w: 0.0, n: 9, seconds: 9.0, drift_w: 0.0, mean_sd_w: 0.0, resolution_w: 0.0 };

/// Processor seconds of a client and a server.
fn cpu(client: f64, server: f64) -> BTreeMap<String, f64> {
    BTreeMap::from([("client".to_owned(), client), ("server".to_owned(), server)])
}

fn energy_of(power: impl Fn(f64) -> f64, n: usize, end: f64) -> f64 {
    irregular(n, end).windows(2).map(|w| trapezoid(w[1] - w[0], power(w[0]), power(w[1]))).sum()
}

#[test]
fn integrates_irregular_samples() {
    assert_near(energy_of(|_| 3.5, 17, 10.0), 35.0, 1e-9);
    // The rule is exact for a ramp.
    assert_near(energy_of(|t| 2.0 + 0.5 * t, 17, 10.0), 45.0, 1e-9);
    let sine = |t: f64| 5.0 + 2.0 * (3.0 * t).sin();
    let exact = 5.0 * 10.0 + 2.0 / 3.0 * (1.0 - (30.0_f64).cos());
    let [coarse, fine] = [200, 20_000].map(|n| (energy_of(sine, n, 10.0) - exact).abs());
    assert!(coarse < 0.2, "{coarse} {fine}");
    assert!(fine < 1e-4, "{coarse} {fine}");
    assert!(fine < coarse / 100.0, "{coarse} {fine}");
}

/// Noise with a given correlation between neighbours, standard deviation 1.
fn noise(n: usize, correlation: f64, seed: u64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut white = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    let mut value = white();
    (0..n)
        .map(|_| {
            value = correlation * value + (1.0 - correlation * correlation).sqrt() * white();
            value
        })
        .collect()
}

#[test]
fn baseline_has_mean_and_deviations() {
    let power: Vec<(f64, f64)> = noise(2000, 0.0, 1).into_iter().map(|x| (0.1, 4.0 + 0.2 * x)).collect();
    let white = Baseline::from_power(&power, 0.0).unwrap();
    assert_near(white.mean_w, 4.0, 0.02);
    assert_near(white.sd_w, 0.2, 0.01);
    assert_eq!(white.n, 2000);
    assert_near(white.seconds, 200.0, 1e-9);
    assert_near(white.mean_sd_w, 0.2 / 2000_f64.sqrt(), 0.002);
    // Time-weighted: 1 W for 9 s and 11 W for 1 s are 2 W.
    let weighted = Baseline::from_power(&[(9.0, 1.0), (1.0, 11.0), (0.0, 500.0), (1.0, f64::NAN)], 0.0).unwrap();
    assert_near(weighted.mean_w, 2.0, 1e-12);
    assert!(Baseline::from_power(&[(1.0, 1.0)], 0.0).is_none());
}

#[test]
fn baseline_uncertainty_fits_correlated_noise() {
    // Over many baselines: the scatter of their means against their stated uncertainties.
    for correlation in [0.0, 0.6, 0.9] {
        let baselines = (0..300).map(|seed| {
            let noise = noise(1000, correlation, seed * 7919 + 3);
            let power: Vec<(f64, f64)> = noise.into_iter().map(|x| (1.0, 10.0 + x)).collect();
            Baseline::from_power(&power, 0.0).unwrap()
        });
        let baselines: Vec<Baseline> = baselines.collect();
        let scatter = (baselines.iter().map(|b| (b.mean_w - 10.0).powi(2)).sum::<f64>() / 300.0).sqrt();
        let claimed = baselines.iter().map(|b| b.mean_sd_w).sum::<f64>() / 300.0;
        assert!((0.8..1.25).contains(&(claimed / scatter)), "correlation {correlation}: {claimed} against {scatter}");
    }
}

#[test]
fn drift_and_resolution_widen_the_uncertainty() {
    let flat = Baseline { mean_w: 4.0, n: 10, seconds: 10.0, ..FLAT };
    assert_eq!(flat.uncertainty_w(), 0.0);
    let around = Baseline::around(flat, Baseline { mean_w: 4.6, ..flat });
    assert_near(around.mean_w, 4.3, 1e-12);
    assert_near(around.drift_w, 0.6, 1e-12);
    assert_near(around.uncertainty_w(), 0.6 / 12_f64.sqrt(), 1e-12);
    let coarse = Baseline { resolution_w: 1.0, ..flat };
    assert_near(coarse.uncertainty_w(), 0.288_675, 1e-6);
    assert_eq!(Baseline::around(flat, coarse).resolution_w, 1.0);
    let [noisy, noisier] = [0.3, 0.4].map(|mean_sd_w| Baseline { mean_sd_w, ..flat });
    assert_near(Baseline::around(noisy, noisier).mean_sd_w, 0.25, 1e-12);
}

#[test]
fn net_energy_has_uncertainty_and_noise_flag() {
    let baseline = Baseline { sd_w: 0.1, n: 100, seconds: 100.0, mean_sd_w: 0.01, ..FLAT };
    let net = |gross_j| net(gross_j, &baseline, 10.0, Provenance::Measured);
    let figure = net(50.0);
    assert_eq!((figure.gross_j, figure.idle_j, figure.net_j, figure.mean_w), (50.0, Some(30.0), Some(20.0), 5.0));
    // 10 s of baseline uncertainty, and 10 s of noise of 0.1 W over 1 s each.
    assert_near(figure.net_sd_j.unwrap(), (10.0_f64 * 0.01).hypot(0.1 * 10_f64.sqrt()), 1e-12);
    // Far below idle something is wrong, but it is no noise.
    assert_eq!([50.0, 30.6, 29.4, 20.0].map(|gross_j| net(gross_j).below_noise), [false, true, true, false]);
    assert_eq!(gross(5.0, 0.0, Provenance::Measured).mean_w, 0.0);
}

#[test]
fn attributes_energy_by_processor_time() {
    let host = net(100.0, &Baseline { mean_sd_w: 0.05, ..FLAT }, 10.0, Provenance::Measured);
    let shares = attribute(&host, &cpu(1.0, 3.0), 0.0, 0.0);
    assert_eq!(shares["client"].provenance, Provenance::Attributed);
    assert_near(shares["client"].gross_j, 25.0, 1e-9);
    assert_near(shares["server"].net_j.unwrap(), 52.5, 1e-9);
    assert_near(shares["client"].net_sd_j.unwrap(), host.net_sd_j.unwrap() / 4.0, 1e-12);
    let sum = |f: fn(&EnergyFigure) -> f64| shares.values().map(f).sum::<f64>();
    assert_near(sum(|s| s.gross_j), 100.0, 1e-9);
    assert_near(sum(|s| s.mean_w), 10.0, 1e-9);
    assert_near(sum(|s| s.net_j.unwrap()), 70.0, 1e-9);
    assert_near(sum(|s| s.idle_j.unwrap()), 30.0, 1e-9);
    // Two ticks of processor time hardly determine the parties' shares.
    let vague = attribute(&host, &cpu(0.01, 0.01), 0.0041, 0.0);
    assert!(vague["client"].net_sd_j.unwrap() > 0.25 * vague["client"].net_j.unwrap());
    assert_eq!(attribute(&host, &cpu(0.0, 0.0), 0.0, 0.0)["client"].gross_j, 50.0);
    let modelled_host = EnergyFigure { provenance: Provenance::Modelled, ..host };
    let alone = attribute(&modelled_host, &BTreeMap::from([("a".into(), 0.02)]), 0.1, 0.0)["a"];
    assert_eq!((alone.net_sd_j, alone.provenance), (host.net_sd_j, Provenance::Modelled));
    assert!(attribute(&host, &BTreeMap::new(), 0.0, 0.0).is_empty());
}

#[test]
fn others_get_no_energy_and_no_idle_power() {
    let host = net(100.0, &FLAT, 10.0, Provenance::Measured);
    // A link emulator with as much work as both parties.
    let client = attribute(&host, &cpu(1.0, 1.0), 0.0041, 2.0)["client"];
    assert_eq!((client.net_j, client.idle_j, client.gross_j), (Some(17.5), Some(15.0), 32.5));
    assert_near(client.mean_w, 3.25, 1e-12);
    assert_near(client.net_sd_j.unwrap(), 70.0 * 0.0041 / 4.0 * 0.75_f64.hypot(0.25), 1e-12);
    let without_idle = attribute(&gross(100.0, 10.0, Provenance::Measured), &cpu(1.0, 1.0), 0.0, 2.0);
    assert_eq!((without_idle["client"].gross_j, without_idle["client"].net_j), (25.0, None));
    let idle_parties = attribute(&host, &cpu(0.0, 0.0), 0.0041, 2.0);
    assert_eq!((idle_parties["server"].net_j, idle_parties["server"].idle_j), (Some(0.0), Some(15.0)));
}

#[test]
fn modelled_gross_energy_includes_base_power() {
    let coefficients = Coefficients { base_w: 2.0, core_w: 3.0, byte_j: 1e-7, relative_sd: 0.2 };
    let figure = modelled(4.0, 1e7, 10.0, &coefficients);
    assert_eq!((figure.idle_j, figure.net_j, figure.gross_j), (Some(20.0), Some(13.0), 33.0));
    assert_near(figure.net_sd_j.unwrap(), 2.6, 1e-12);
    assert_near(figure.mean_w, 3.3, 1e-12);
    assert_eq!(figure.provenance, Provenance::Modelled);
    assert!(!figure.below_noise);
    assert_eq!(modelled(4.0, 0.0, 1.0, &Coefficients { relative_sd: 0.0, ..coefficients }).net_sd_j, None);
}

fn sample(t: f64, rails: &[(Option<f64>, f64)]) -> Sample {
    let rails = rails.iter().map(|&(w, j)| RailSample { w, j }).collect();
    Sample { t, power: BTreeMap::from([("s".to_owned(), rails)]), ..Sample::default() }
}

#[test]
fn curve_skips_uncounted_rails_and_missing_values() {
    let samples = [
        sample(0.0, &[(Some(1.0), 0.0), (Some(9.0), 0.0)]),
        sample(1.0, &[(Some(1.0), 1.0), (Some(9.0), 9.0)]),
        sample(2.0, &[(None, 1.0), (Some(9.0), 18.0)]),
        Sample { t: 2.5, ..Sample::default() },
        sample(3.0, &[(Some(3.0), 5.0), (None, 18.0)]),
    ];
    assert_eq!(energy_curve(&samples, "s", &[true, false]), [(0.0, 0.0), (1.0, 1.0), (3.0, 5.0)]);
    assert_eq!(energy_curve(&samples, "other", &[true]), []);
    let counter = [sample(0.5, &[(None, 0.0)]), sample(1.5, &[(Some(2.0), 2.0)]), sample(2.0, &[(Some(4.0), 4.0)])];
    assert_eq!(energy_curve(&counter, "s", &[true]), [(0.5, 0.0), (1.5, 2.0), (2.0, 4.0)]);
    let baseline = Baseline::from_samples(&counter, "s", &[true]).unwrap();
    assert_near(baseline.mean_w, 4.0 / 1.5, 1e-12);
    assert_eq!(baseline.resolution_w, 2.0, "2 W and 4 W were read");
    let coarse: Vec<Sample> =
        (0..50).map(|i| sample(f64::from(i), &[(Some(f64::from(5 + i % 2)), 5.5 * f64::from(i))])).collect();
    assert_eq!(Baseline::from_samples(&coarse, "s", &[true]).unwrap().resolution_w, 1.0);
    // Nothing is known before the first value.
    let late = [sample(0.0, &[(None, 0.0)]), sample(1.0, &[(Some(5.0), 0.0)]), sample(2.0, &[(Some(5.0), 5.0)])];
    assert_eq!(energy_curve(&late, "s", &[true]), [(1.0, 0.0), (2.0, 5.0)]);
}
