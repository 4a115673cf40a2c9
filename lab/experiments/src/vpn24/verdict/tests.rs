//! Runs with known figures, and their evaluation.
use super::*;
use crate::vpn24::paper::{PaperValue, Role};
use tacit_meter::record::{EnergyFigure, PartySample};

/// A run that moved 100 MB in `seconds`, the client using `cpu` CPU seconds and `joules` net.
fn run(transport: &str, role: &str, repetition: u32, seconds: f64, cpu: f64, joules: f64) -> Run {
    let cell = [("link", "lan"), ("transport", transport), ("workload", role)];
    let energy = EnergyFigure {
        provenance: Provenance::Modelled,
        gross_j: joules + seconds,
        idle_j: Some(seconds),
        net_j: Some(joules),
        net_sd_j: None,
        mean_w: (joules + seconds) / seconds,
        below_noise: false,
    };
    let party = PartySample { user_s: cpu / 4.0, system_s: cpu * 0.75, rss_bytes: 5_000_000, processes: 1 };
    Run {
        cell: cell.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        repetition,
        duration_s: seconds + 0.5,
        energy: [("client".to_owned(), energy)].into(),
        parties: [("client".to_owned(), party)].into(),
        results: [("sent_bytes".to_owned(), 1e8), ("seconds".to_owned(), seconds), ("messages".to_owned(), 9.0)].into(),
        ..Run::default()
    }
}

fn runs() -> Vec<Run> {
    let mut failed = run("tls", "send", 2, 1e-3, 1e3, 1e3);
    failed.failure = Some("no".into());
    vec![
        run("plain", "send", 0, 1.0, 0.2, 2.0),
        run("plain", "send", 1, 1.0, 0.2, 2.0),
        run("tls", "send", 0, 2.0, 0.5, 3.0),
        run("tls", "send", 1, 2.0, 0.7, 5.0),
        failed,
        run("tls", "receive", 0, 4.0, 0.4, 1.0),
    ]
}

#[test]
fn figures_are_per_byte_and_ratios_are_to_plain_in_the_same_role() {
    let rows = rows(&runs());
    let names: Vec<_> = rows.iter().map(|r| (r.role.as_str(), r.transport.name(), r.runs)).collect();
    assert_eq!(names, [("receive", "tls", 1), ("send", "plain", 2), ("send", "tls", 2)]);
    let tls = &rows[2];
    let (speed, client) = (tls.mb_per_s.unwrap(), &tls.parties["client"]);
    assert_eq!((speed.mean, speed.ratio), (50.0, Some(0.5)));
    let near = |figure: Option<Figure>, mean: f64, ratio: f64| {
        let figure = figure.unwrap();
        assert!((figure.mean - mean).abs() < 1e-9 * mean, "{} instead of {mean}", figure.mean);
        assert!((figure.ratio.unwrap() - ratio).abs() < 1e-9, "{figure:?}");
    };
    near(client.cpu_s_per_gb, 6.0, 3.0);
    near(client.user_s_per_gb, 1.5, 3.0);
    near(client.system_s_per_gb, 4.5, 3.0);
    near(client.net_j_per_mb, 0.04, 2.0);
    let [low, high] = client.cpu_s_per_gb.unwrap().interval.unwrap();
    assert!(low < 3.0);
    assert!(3.0 < high);
    assert_eq!(tls.parties["server"].cpu_s_per_gb, None);
    assert_eq!(rows[0].mb_per_s.unwrap().ratio, None, "nothing plain was received");
}

#[test]
fn tables_show_every_row_and_do_without_what_is_missing() {
    let rows = rows(&runs());
    let verdict = verdict(&rows);
    assert_eq!(verdict.rows.len(), 2);
    assert_eq!(verdict.rows[1][..4], ["lan", "send", "tls", "0.50 [0.50, 0.50]"]);
    assert_eq!(verdict.rows[0][3], "-");
    let figures = figures(&rows);
    assert_eq!(figures.rows.len(), 6);
    assert!(figures.rows.iter().all(|r| r.len() == figures.head.len()));
    let text = figures.to_string();
    assert!(text.contains("modelled"), "{text}");
    assert!(text.contains("none"), "{text}");
    let widths: Vec<usize> =
        text.lines().skip(1).filter(|l| l.contains("client")).map(|l| l.find("lan").unwrap_or(2)).collect();
    assert!(widths.iter().all(|w| *w == 2), "{text}");
}

#[test]
fn three_digits_are_shown() {
    let shown = [0.0, 1234.5, 99.96, 1.234, 0.012_34, 1e-12].map(significant);
    assert_eq!(shown, ["0", "1234", "100.0", "1.23", "0.0123", "0.000000000"]);
}

#[test]
fn the_papers_values_stand_beside_ours() {
    let value = PaperValue {
        table: 3,
        device: "Nano".into(),
        power_mode: String::new(),
        transport: TransportKind::Tls,
        role: Role::Send,
        value: 25.0,
        unit: "MB/s".into(),
    };
    let other = PaperValue { unit: "minutes".into(), ..value.clone() };
    let energy = PaperValue { unit: "mW/MB".into(), ..value.clone() };
    let paper = Paper { source: "it".into(), values: vec![value, other, energy] };
    let table = beside_paper(&rows(&runs()), &paper);
    assert_eq!(table.rows.len(), 3);
    assert_eq!(table.rows[0][6..], ["25.0", "-", "lan", "50.0", "0.50 [0.50, 0.50]"]);
    assert_eq!(table.rows[1][8..], ["-", "-", "-"]);
    assert_eq!(table.rows[2][9], "40.0", "0.04 J/MB");
}

#[test]
fn joules_of_different_kinds_have_no_ratio_and_the_weakest_names_them() {
    let mut runs = runs();
    let provenance = |run: &mut Run, p| run.energy.get_mut("client").unwrap().provenance = p;
    // A sensor measured the plain runs and one of the others.
    (0..3).for_each(|i| provenance(&mut runs[i], Provenance::Attributed));
    let rows = rows(&runs);
    let [plain, tls] = [&rows[1], &rows[2]].map(|row| &row.parties["client"]);
    assert_eq!((plain.provenance, tls.provenance), (Some(Provenance::Attributed), Some(Provenance::Modelled)));
    assert_eq!(tls.net_j_per_mb.unwrap().ratio, None);
    assert!(tls.cpu_s_per_gb.unwrap().ratio.is_some());
}
