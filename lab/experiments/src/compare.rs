//! Comparison of two campaigns: for every common cell, the ratio of means with its 95 % interval
//! ([`crate::stats::ratio`]).
use crate::campaign::{Cell, Loaded, Run};
use crate::stats::{self, Ratio, Summary};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tacit_meter::source::Provenance;

/// Conclusion from the interval about B against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval lies below 1.
    Smaller,
    /// The interval lies above 1.
    Larger,
    /// The interval contains 1.
    NoDifferenceSeen,
    /// No interval: too few runs, or too much noise.
    Unknown,
}

/// One figure of one cell in both campaigns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// `latency_s`, `goodput_bps`, `client_cpu_s`, `client_net_j`, ...
    pub metric: String,
    /// Statistics in the first campaign.
    pub a: Summary,
    /// Statistics in the second campaign.
    pub b: Summary,
    /// Mean of B over mean of A.
    pub ratio: Ratio,
    /// The conclusion.
    pub verdict: Verdict,
    /// Origin of the joules; absent for other figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

/// Two campaigns compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Rows by cell, then metric.
    pub rows: Vec<Row>,
    /// Cells of the first campaign that the second lacks.
    pub only_a: Vec<Cell>,
    /// Cells of the second campaign that the first lacks.
    pub only_b: Vec<Cell>,
    /// Omitted figures, with the reasons.
    pub notes: Vec<String>,
}

/// Scope of the comparison.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Labels that may differ between matching cells: with `transport`, a campaign over TLS is
    /// compared to one over WireGuard.
    pub ignore: BTreeSet<String>,
    /// All results in both campaigns, not only latency, goodput, processor time and energy.
    pub all: bool,
}

/// The values of one metric over a cell's runs.
#[derive(Default)]
struct Values {
    values: Vec<f64>,
    provenance: BTreeSet<&'static str>,
    as_is: Option<Provenance>,
    below_noise: usize,
    /// Uncertainties of the values from the idle baseline, which all values share.
    shared: Vec<f64>,
}

type Metrics = BTreeMap<String, Values>;

/// Compares `b` to `a`. Ignores failed runs.
#[must_use]
pub fn compare(a: &Loaded, b: &Loaded, options: &Options) -> Comparison {
    let mut result = Comparison::default();
    for (name, loaded) in [("A", a), ("B", b)] {
        let failed = loaded.runs.iter().filter(|r| r.failure.is_some()).count();
        if failed > 0 {
            result.notes.push(format!("{name}: {failed} failed runs left out"));
        }
    }
    let (a, b) = (cells(a, options), cells(b, options));
    result.only_a = a.keys().filter(|c| !b.contains_key(*c)).cloned().collect();
    result.only_b = b.keys().filter(|c| !a.contains_key(*c)).cloned().collect();
    for (cell, in_a) in &a {
        if let Some(in_b) = b.get(cell) {
            compare_cell(cell, in_a, in_b, options.all, &mut result);
        }
    }
    result
}

fn cells(loaded: &Loaded, options: &Options) -> BTreeMap<Cell, Metrics> {
    let mut cells: BTreeMap<Cell, Metrics> = BTreeMap::new();
    for run in loaded.runs.iter().filter(|r| r.failure.is_none()) {
        let cell: Cell = run
            .cell
            .iter()
            .filter(|(k, _)| !options.ignore.contains(*k))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        add(run, cells.entry(cell).or_default());
    }
    cells
}

fn add(run: &Run, metrics: &mut Metrics) {
    for (name, value) in &run.results {
        push(metrics, name.clone(), *value);
    }
    push(metrics, "duration_s".into(), run.duration_s);
    for (party, used) in &run.parties {
        push(metrics, format!("{party}_cpu_s"), used.user_s + used.system_s);
        push(metrics, format!("{party}_peak_bytes"), used.rss_bytes as f64);
    }
    for (party, energy) in &run.energy {
        for (kind, value) in [("net", energy.net_j), ("gross", Some(energy.gross_j))] {
            let Some(value) = value else { continue };
            let entry = metrics.entry(format!("{party}_{kind}_j")).or_default();
            entry.values.push(value);
            entry.provenance.insert(energy.provenance.name());
            entry.as_is = Some(energy.provenance);
            if kind == "net" {
                entry.below_noise += usize::from(energy.below_noise);
                entry.shared.extend(energy.net_sd_j);
            }
        }
    }
}

/// Adds a value of a metric.
fn push(metrics: &mut Metrics, name: String, value: f64) {
    metrics.entry(name).or_default().values.push(value);
}

/// Metrics that are always shown. Gross energy only if there is no net energy.
fn usual(metric: &str, a: &Metrics, b: &Metrics) -> bool {
    if let Some(party) = metric.strip_suffix("_gross_j") {
        let net = format!("{party}_net_j");
        return !(a.contains_key(&net) && b.contains_key(&net));
    }
    ["latency_s", "goodput_bps"].contains(&metric) || metric.ends_with("_cpu_s") || metric.ends_with("_net_j")
}

fn compare_cell(cell: &Cell, a: &Metrics, b: &Metrics, all: bool, result: &mut Comparison) {
    for (metric, in_a) in a {
        let Some(in_b) = b.get(metric) else { continue };
        if !(all || usual(metric, a, b)) {
            continue;
        }
        let kinds: Vec<&str> = in_a.provenance.union(&in_b.provenance).copied().collect();
        if kinds.len() > 1 {
            result.notes.push(format!("{}: {} joules are not comparable", at(cell, metric), kinds.join(" and ")));
            continue;
        }
        if in_a.below_noise + in_b.below_noise > 0 {
            let (n, of) = (in_a.below_noise + in_b.below_noise, in_a.values.len() + in_b.values.len());
            result.notes.push(format!("{}: {n} of {of} runs are below the noise of the idle power", at(cell, metric)));
        }
        let (Some(sa), Some(sb)) = (Summary::of(&in_a.values), Summary::of(&in_b.values)) else {
            result.notes.push(format!("{}: not all values are finite", at(cell, metric)));
            continue;
        };
        // Two zero means have no ratio.
        let Some(ratio) = stats::ratio(&sb.with_shared(&in_b.shared), &sa.with_shared(&in_a.shared)) else { continue };
        let (cell, metric, verdict) = (cell.clone(), metric.clone(), verdict(&ratio));
        result.rows.push(Row { cell, metric, a: sa, b: sb, ratio, verdict, provenance: in_a.as_is });
    }
}

/// Describes a metric of a cell.
fn at(cell: &Cell, metric: &str) -> String {
    format!("{}, {}", describe(cell), plain(metric))
}

fn verdict(ratio: &Ratio) -> Verdict {
    match ratio.interval {
        None => Verdict::Unknown,
        Some(i) if i.contains(1.0) => Verdict::NoDifferenceSeen,
        Some(i) if i.high < 1.0 => Verdict::Smaller,
        Some(_) => Verdict::Larger,
    }
}

/// Replaces control characters in a text from a file, which could send commands to a terminal.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A cell in one line: `lan, tls, bulk`.
#[must_use]
pub fn describe(cell: &Cell) -> String {
    // Links first, since most campaigns vary them.
    let known = ["link", "transport", "workload", "pace"];
    let rest = cell.iter().filter(|(k, _)| !known.contains(&k.as_str())).map(|(k, v)| format!("{k} {v}"));
    let parts: Vec<String> = known.iter().filter_map(|k| cell.get(*k).cloned()).chain(rest).collect();
    if parts.is_empty() { "all".into() } else { plain(&parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_meter::record::{EnergyFigure, PartySample};

    fn loaded(runs: Vec<Run>) -> Loaded {
        Loaded { campaign: crate::campaign::tests::campaign(), runs }
    }

    fn energy(net_j: f64, provenance: Provenance) -> EnergyFigure {
        EnergyFigure {
            provenance,
            gross_j: net_j + 10.0,
            idle_j: Some(10.0),
            net_j: Some(net_j),
            net_sd_j: Some(0.01),
            mean_w: 1.0,
            below_noise: false,
        }
    }

    fn run(link: &str, repetition: u32, latency_s: f64, cpu_s: f64) -> Run {
        Run {
            cell: [("link".to_owned(), link.to_owned()), ("workload".to_owned(), "bulk".to_owned())].into(),
            repetition,
            duration_s: latency_s + 0.1,
            energy: [("client".to_owned(), energy(2.0 * cpu_s, Provenance::Modelled))].into(),
            parties: [("client".to_owned(), PartySample { user_s: cpu_s, ..PartySample::default() })].into(),
            results: [("latency_s".to_owned(), latency_s), ("messages".to_owned(), 7.0)].into(),
            ..Run::default()
        }
    }

    /// Five runs around the two means.
    fn five(link: &str, latency_s: f64, cpu_s: f64) -> Vec<Run> {
        let wobble = [-0.01, 0.005, 0.0, -0.005, 0.01];
        (0..5)
            .map(|i| run(link, i, latency_s * (1.0 + wobble[i as usize]), cpu_s * (1.0 + wobble[4 - i as usize])))
            .collect()
    }

    fn row<'a>(c: &'a Comparison, link: &str, metric: &str) -> &'a Row {
        c.rows.iter().find(|r| r.cell["link"] == link && r.metric == metric).unwrap()
    }

    #[test]
    fn ratios_are_of_b_over_a_with_a_verdict() {
        let a = loaded([five("lan", 2.0, 1.0), five("lte", 8.0, 1.0)].concat());
        let b = loaded([five("lan", 1.0, 1.002), five("lte", 9.0, 1.5)].concat());
        let c = compare(&a, &b, &Options::default());
        let latency = row(&c, "lan", "latency_s");
        assert!((latency.ratio.ratio - 0.5).abs() < 1e-12);
        let i = latency.ratio.interval.unwrap();
        assert!(i.low > 0.49, "{i:?}");
        assert!(i.high < 0.51, "{i:?}");
        assert_eq!(latency.verdict, Verdict::Smaller);
        assert_eq!(row(&c, "lte", "latency_s").verdict, Verdict::Larger);
        assert_eq!(row(&c, "lan", "client_cpu_s").verdict, Verdict::NoDifferenceSeen);
        let joules = row(&c, "lte", "client_net_j");
        assert_eq!((joules.verdict, joules.provenance), (Verdict::Larger, Some(Provenance::Modelled)));
        assert!(c.rows.iter().all(|r| !["messages", "duration_s", "client_gross_j"].contains(&r.metric.as_str())));
        assert_eq!((c.only_a.len(), c.only_b.len(), c.notes.len()), (0, 0, 0));
        let all = compare(&a, &b, &Options { all: true, ..Options::default() });
        let messages = row(&all, "lan", "messages");
        assert_eq!((messages.ratio.ratio, messages.verdict), (1.0, Verdict::NoDifferenceSeen));
    }

    #[test]
    fn failed_runs_and_unmatched_cells_are_told() {
        let mut runs = five("lan", 2.0, 1.0);
        runs.push(Run { failure: Some("timed out".into()), ..run("lan", 9, 900.0, 1.0) });
        let a = loaded([runs, five("3g", 1.0, 1.0)].concat());
        let b = loaded([five("lan", 2.0, 1.0), five("lte", 1.0, 1.0)].concat());
        let c = compare(&a, &b, &Options::default());
        assert_eq!(row(&c, "lan", "latency_s").a.n, 5);
        assert_eq!(c.notes, ["A: 1 failed runs left out"]);
        assert_eq!((c.only_a[0]["link"].as_str(), c.only_b[0]["link"].as_str()), ("3g", "lte"));
        let ignoring = compare(&a, &b, &Options { ignore: ["link".to_owned()].into(), all: false });
        assert!(ignoring.only_a.is_empty());
        assert!(ignoring.rows.iter().all(|r| r.a.n == 10 && r.cell.len() == 1));
    }

    #[test]
    fn joules_of_different_kinds_are_not_compared_and_noise_is_told() {
        let a = loaded(five("lan", 2.0, 1.0));
        let mut b = a.clone();
        for run in &mut b.runs {
            run.energy.insert("client".into(), energy(1.0, Provenance::Measured));
        }
        let c = compare(&a, &b, &Options::default());
        assert!(c.rows.iter().all(|r| !r.metric.ends_with("_j")));
        assert!(c.notes.iter().any(|n| n.contains("measured and modelled")), "{:?}", c.notes);
        b.clone_from(&a);
        b.runs[0].energy.get_mut("client").unwrap().below_noise = true;
        let c = compare(&a, &b, &Options::default());
        assert!(c.notes[0].contains("client_net_j: 1 of 10 runs are below the noise"), "{:?}", c.notes);
    }

    #[test]
    fn an_uncertain_idle_baseline_makes_no_difference() {
        let (a, mut b) = (loaded(five("lan", 2.0, 1.0)), loaded(five("lan", 2.0, 1.1)));
        assert_eq!(row(&compare(&a, &b, &Options::default()), "lan", "client_net_j").verdict, Verdict::Larger);
        for run in &mut b.runs {
            run.energy.get_mut("client").unwrap().net_sd_j = Some(0.5);
        }
        let c = compare(&a, &b, &Options::default());
        let joules = row(&c, "lan", "client_net_j");
        assert_eq!(joules.verdict, Verdict::NoDifferenceSeen);
        assert!(joules.b.sd < 0.1, "what the runs scatter is told as it is");
    }

    #[test]
    fn one_run_each_gives_a_ratio_and_no_verdict() {
        let c = compare(
            &loaded(vec![run("lan", 0, 2.0, 1.0)]),
            &loaded(vec![run("lan", 0, 3.0, 1.0)]),
            &Options::default(),
        );
        let row = row(&c, "lan", "latency_s");
        assert_eq!((row.ratio.ratio, row.ratio.interval, row.verdict), (1.5, None, Verdict::Unknown));
    }

    #[test]
    fn cells_in_words() {
        let cell: Cell =
            [("workload", "bulk"), ("link", "lan"), ("role", "send")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(describe(&cell), "lan, bulk, role send");
        assert_eq!(describe(&Cell::new()), "all");
        let evil: Cell = [("link".to_owned(), "lan\u{1b}]0;title\u{7}\r\n".to_owned())].into();
        assert!(!describe(&evil).contains(char::is_control), "{:?}", describe(&evil));
    }
}
