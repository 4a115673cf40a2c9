//! Evaluation of a campaign of transports: figures of each cell, compared with plain TCP.
use super::paper::Paper;
use crate::campaign::Run;
use crate::stats::{self, Summary};
use crate::transport::TransportKind;
use serde::Serialize;
use std::collections::BTreeMap;
use tacit_meter::source::Provenance;

/// Bytes of a megabyte.
const MB: f64 = 1e6;
/// Bytes of a gigabyte.
const GB: f64 = 1e9;

/// A figure of several runs, and its ratio to plain TCP in the same setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the runs.
    pub sd: f64,
    /// Mean over plain TCP's mean; absent without plain runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Confidence interval of the ratio; absent if runs are too few or too different.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

/// One party of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Party {
    /// User CPU seconds per gigabyte, tunnel process included.
    pub user_s_per_gb: Option<Figure>,
    /// Kernel CPU seconds per gigabyte, tunnel process included.
    pub system_s_per_gb: Option<Figure>,
    /// User and kernel CPU seconds per gigabyte together.
    pub cpu_s_per_gb: Option<Figure>,
    /// Net joules (idle subtracted) per megabyte; absent without sensor and model.
    pub net_j_per_mb: Option<Figure>,
    /// Origin of the joules.
    pub provenance: Option<Provenance>,
    /// Largest memory of all its processes, bytes.
    pub memory_bytes: Option<Figure>,
}

/// A cell: link, role of the client, transport.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The link's name.
    pub link: String,
    /// Role of the client.
    pub role: String,
    /// The transport.
    pub transport: TransportKind,
    /// Number of successful runs.
    pub runs: usize,
    /// Megabytes per second.
    pub mb_per_s: Option<Figure>,
    /// Messages: blocks of 64 KiB.
    pub messages: Option<Figure>,
    /// `client` and `server`.
    pub parties: BTreeMap<String, Party>,
}

/// A row for each cell with runs, by link, role and transport; ignores failed runs.
#[must_use]
pub fn rows(runs: &[Run]) -> Vec<Row> {
    let mut cells: BTreeMap<(String, String, TransportKind), Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|r| r.failure.is_none()) {
        let Ok(transport) = label(run, "transport").parse() else { continue };
        cells.entry((label(run, "link"), label(run, "workload"), transport)).or_default().push(run);
    }
    let none = vec![];
    let rows = cells.iter().map(|((link, role, transport), runs)| {
        let plain = cells.get(&(link.clone(), role.clone(), TransportKind::Plain)).unwrap_or(&none);
        Row {
            link: link.clone(),
            role: role.clone(),
            transport: *transport,
            runs: runs.len(),
            mb_per_s: figure(runs, plain, &|r| Some(bytes(r)? / MB / seconds(r)?)),
            messages: figure(runs, plain, &|r| r.results.get("messages").copied()),
            parties: ["client", "server"].into_iter().map(|p| (p.to_owned(), party(runs, plain, p))).collect(),
        }
    });
    rows.collect()
}

/// Returns a label of the run's cell.
fn label(run: &Run, key: &str) -> String {
    run.cell.get(key).cloned().unwrap_or_default()
}

/// Bytes of the transfer.
fn bytes(run: &Run) -> Option<f64> {
    let all: f64 = ["sent_bytes", "received_bytes"].iter().filter_map(|k| run.results.get(*k)).sum();
    (all > 0.0).then_some(all)
}

fn seconds(run: &Run) -> Option<f64> {
    run.results.get("seconds").copied().filter(|s| *s > 0.0)
}

fn party(runs: &[&Run], plain: &[&Run], name: &str) -> Party {
    // Joules of different origin have no ratio.
    let alike: &[&Run] = if weakest(runs, name) == weakest(plain, name) { plain } else { &[] };
    Party {
        user_s_per_gb: figure(runs, plain, &|r| Some(r.parties.get(name)?.user_s * GB / bytes(r)?)),
        system_s_per_gb: figure(runs, plain, &|r| Some(r.parties.get(name)?.system_s * GB / bytes(r)?)),
        cpu_s_per_gb: figure(runs, plain, &|r| {
            let party = r.parties.get(name)?;
            Some((party.user_s + party.system_s) * GB / bytes(r)?)
        }),
        net_j_per_mb: figure_with(runs, alike, &|r| Some(r.energy.get(name)?.net_j? * MB / bytes(r)?), &|r| {
            Some(r.energy.get(name)?.net_sd_j? * MB / bytes(r)?)
        }),
        provenance: weakest(runs, name),
        memory_bytes: figure(runs, plain, &|r| Some(r.parties.get(name)?.rss_bytes as f64)),
    }
}

/// The least direct origin of joules among all runs.
fn weakest(runs: &[&Run], party: &str) -> Option<Provenance> {
    let origins = runs.iter().filter_map(|r| r.energy.get(party)).map(|e| e.provenance);
    origins.max_by_key(|origin| match origin {
        Provenance::Measured => 0,
        Provenance::Attributed => 1,
        Provenance::Modelled => 2,
    })
}

fn figure(runs: &[&Run], plain: &[&Run], value: &dyn Fn(&Run) -> Option<f64>) -> Option<Figure> {
    figure_with(runs, plain, value, &|_| None)
}

/// As [`figure`], for values with uncertainties that all runs of a cell share, such as that of the
/// idle baseline.
fn figure_with(
    runs: &[&Run],
    plain: &[&Run],
    value: &dyn Fn(&Run) -> Option<f64>,
    shared: &dyn Fn(&Run) -> Option<f64>,
) -> Option<Figure> {
    let ours = summary(runs, value)?;
    let ratio = summary(plain, value)
        .and_then(|theirs| stats::ratio(&uncertain(ours, runs, shared), &uncertain(theirs, plain, shared)));
    Some(Figure {
        mean: ours.mean,
        sd: ours.sd,
        ratio: ratio.map(|r| r.ratio),
        interval: ratio.and_then(|r| r.interval).map(|i| [i.low, i.high]),
    })
}

/// Returns the summary of a value of all runs; `None` if a run lacks the value.
fn summary(runs: &[&Run], value: &dyn Fn(&Run) -> Option<f64>) -> Option<Summary> {
    let values: Option<Vec<f64>> = runs.iter().map(|r| value(r)).collect();
    values.and_then(|v| Summary::of(&v))
}

/// Adds the shared uncertainties of the runs to a summary.
fn uncertain(summary: Summary, runs: &[&Run], shared: &dyn Fn(&Run) -> Option<f64>) -> Summary {
    let all: Vec<f64> = runs.iter().filter_map(|r| shared(r)).collect();
    summary.with_shared(&all)
}

/// A table as text: aligned columns, the first ones left, numbers right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Title.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
    /// Number of columns from the left with words.
    pub words: usize,
}

impl Table {
    /// Returns the head and the rows.
    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.head).chain(&self.rows)
    }

    /// Returns the characters of the longest cell of a column.
    fn width(&self, column: usize) -> usize {
        self.lines().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.title)?;
        let widths: Vec<usize> = (0..self.head.len()).map(|column| self.width(column)).collect();
        for line in self.lines() {
            let cells = line.iter().zip(&widths).enumerate().map(|(i, (cell, width))| {
                if i < self.words { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

fn number(figure: Option<Figure>) -> String {
    figure.map_or("-".into(), |f| significant(f.mean))
}

/// Formats a number with three significant digits.
fn significant(x: f64) -> String {
    let digits = if x == 0.0 || !x.is_finite() { 0 } else { (2 - x.abs().log10().floor() as i32).clamp(0, 9) };
    format!("{x:.*}", digits as usize)
}

fn ratio(figure: Option<Figure>) -> String {
    match figure.and_then(|f| Some((f.ratio?, f.interval))) {
        Some((ratio, Some([low, high]))) => format!("{ratio:.2} [{low:.2}, {high:.2}]"),
        Some((ratio, None)) => format!("{ratio:.2}"),
        None => "-".into(),
    }
}

/// The verdict: speed, CPU time of both sides and energy, as ratios to plain TCP.
#[must_use]
pub fn verdict(rows: &[Row]) -> Table {
    let head = ["link", "client", "transport", "speed", "client CPU", "server CPU", "client J/MB", "server J/MB"];
    Table {
        title: "Ratios to plain TCP on the same link (95 % confidence intervals)".into(),
        head: head.map(String::from).to_vec(),
        rows: rows.iter().filter(|r| r.transport != TransportKind::Plain).map(ratios).collect(),
        words: 3,
    }
}

/// Returns a row's line of the verdict.
fn ratios(row: &Row) -> Vec<String> {
    vec![
        row.link.clone(),
        row.role.clone(),
        row.transport.to_string(),
        ratio(row.mb_per_s),
        party_ratio(row, "client", |p| p.cpu_s_per_gb),
        party_ratio(row, "server", |p| p.cpu_s_per_gb),
        party_ratio(row, "client", |p| p.net_j_per_mb),
        party_ratio(row, "server", |p| p.net_j_per_mb),
    ]
}

/// Returns the printed ratio of a party's figure.
fn party_ratio(row: &Row, name: &str, value: fn(&Party) -> Option<Figure>) -> String {
    ratio(row.parties.get(name).and_then(value))
}

/// The figures behind the verdict, a line for each party.
#[must_use]
pub fn figures(rows: &[Row]) -> Table {
    let head = [
        "link",
        "client",
        "transport",
        "party",
        "runs",
        "MB/s",
        "user s/GB",
        "kernel s/GB",
        "net J/MB",
        "joules",
        "MB memory",
        "messages",
    ];
    let mut table = Table {
        title: "Figures (means; CPU with the tunnel's process; memory: the most of all processes of the party)".into(),
        head: head.map(String::from).to_vec(),
        rows: vec![],
        words: 4,
    };
    for row in rows {
        for (name, party) in &row.parties {
            let memory = party.memory_bytes.map(|f| Figure { mean: f.mean / MB, ..f });
            let joules = party.provenance.map_or("none", Provenance::name);
            table.rows.push(vec![
                row.link.clone(),
                row.role.clone(),
                row.transport.to_string(),
                name.clone(),
                row.runs.to_string(),
                number(row.mb_per_s),
                number(party.user_s_per_gb),
                number(party.system_s_per_gb),
                number(party.net_j_per_mb),
                joules.into(),
                number(memory),
                number(row.messages),
            ]);
        }
    }
    table
}

/// The paper's values beside this campaign's for the same transport and role on each link, in
/// comparable units.
#[must_use]
pub fn beside_paper(rows: &[Row], paper: &Paper) -> Table {
    let head =
        ["table", "device", "mode", "client", "transport", "unit", "paper", "to plain", "link", "ours", "to plain"];
    let mut table = Table {
        title: format!("Beside {}", paper.source),
        head: head.map(String::from).to_vec(),
        rows: vec![],
        words: 6,
    };
    for value in &paper.values {
        let start = [
            value.table.to_string(),
            value.device.clone(),
            value.power_mode.clone(),
            value.role.name().into(),
            value.transport.to_string(),
            value.unit.clone(),
            significant(value.value),
            paper.ratio_to_plain(value).map_or("-".into(), |r| format!("{r:.2}")),
        ];
        let ours: Vec<&Row> = rows
            .iter()
            .filter(|r| {
                r.transport == value.transport && r.role == value.role.name() && of_unit(r, &value.unit).is_some()
            })
            .collect();
        for row in &ours {
            let figure = of_unit(row, &value.unit);
            let end = [row.link.clone(), number(figure), ratio(figure)];
            table.rows.push(start.iter().cloned().chain(end).collect());
        }
        if ours.is_empty() {
            table.rows.push(start.iter().cloned().chain(["-".into(), "-".into(), "-".into()]).collect());
        }
    }
    table
}

/// The client's figure in a unit of the paper; the client stands for the paper's device.
fn of_unit(row: &Row, unit: &str) -> Option<Figure> {
    let joules = row.parties.get("client").and_then(|p| p.net_j_per_mb);
    match unit {
        "MB/s" => row.mb_per_s,
        "J/MB" => joules,
        // The paper's mW/MB is a sum of net power over samples of 1 s: millijoules per megabyte.
        "mW/MB" => joules.map(|f| Figure { mean: f.mean * 1e3, sd: f.sd * 1e3, ..f }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
