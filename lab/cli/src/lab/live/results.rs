//! The figures of cells, and comparisons between cells.
use super::settings::Cell;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tacit_experiments::campaign::Run;
use tacit_sim::Comparison;

/// A cell that was run, with figures that compare it with other cells.
pub struct Row {
    cell: Cell,
    results: BTreeMap<String, f64>,
    /// D without notices minus D with this cell's notices; none if there is nothing to compare.
    delta_d_s: Option<f64>,
    /// Makespan of `sequential` without notices divided by this cell's; none if that cell was not
    /// run.
    speed_up: Option<f64>,
    /// Why the simulator is off by more than allowed.
    reason: Option<String>,
}

pub fn comparison_figures(comparison: &Comparison) -> Vec<(&'static str, f64)> {
    let c = comparison;
    let mut figures = vec![
        ("recorded.delay_s", c.live),
        ("simulated.delay_s", c.simulated),
        ("simulated.ratio", c.ratio),
        ("replayed.delay_s", c.replayed),
        ("replayed.ratio", c.replayed_ratio),
        ("handed.delay_s", c.handed),
        ("handed.ratio", c.handed_ratio),
        ("jobs.over_profile", c.job_ratio),
        ("jobs.gap_s", c.gap),
        ("jobs.passed", c.passed),
    ];
    figures.extend(c.side_by_side.map(|times| ("jobs.side_by_side", times)));
    figures
}

fn comparison(results: &BTreeMap<String, f64>) -> Option<Comparison> {
    Some(Comparison {
        live: figure(results, "recorded.delay_s")?,
        simulated: figure(results, "simulated.delay_s")?,
        ratio: figure(results, "simulated.ratio")?,
        replayed: figure(results, "replayed.delay_s")?,
        replayed_ratio: figure(results, "replayed.ratio")?,
        handed: figure(results, "handed.delay_s")?,
        handed_ratio: figure(results, "handed.ratio")?,
        job_ratio: figure(results, "jobs.over_profile")?,
        side_by_side: figure(results, "jobs.side_by_side"),
        gap: figure(results, "jobs.gap_s")?,
        passed: figure(results, "jobs.passed")?,
    })
}

fn figure(results: &BTreeMap<String, f64>, key: &str) -> Option<f64> {
    results.get(key).copied()
}

pub fn find_finished<'a>(runs: &'a [Run], cell: &Cell) -> Option<&'a Run> {
    runs.iter().find(|run| run.failure.is_none() && run.cell == cell.labels())
}

/// Returns rows for the cells that were run, in their order.
pub fn rows(cells: &[Cell], runs: &[Run]) -> Vec<Row> {
    cells.iter().filter_map(|cell| Row::compare(cell, runs)).collect()
}

impl Row {
    /// Compares a cell with the other cells; none if the cell has no successful run.
    fn compare(cell: &Cell, runs: &[Run]) -> Option<Self> {
        let results = find_finished(runs, cell)?.results.clone();
        let silent = Cell { notices: 0, ..cell.clone() };
        let sequential = Cell { policy: "sequential".into(), ..silent.clone() };
        let [silent, sequential] = [silent, sequential].map(|compared_cell| find_finished(runs, &compared_cell));
        let silent_s = silent.filter(|_| cell.notices > 0).and_then(|run| figure(&run.results, "delay_s"));
        let alone_s = sequential.and_then(|run| figure(&run.results, "makespan_s"));
        let makespan = figure(&results, "makespan_s").filter(|seconds| *seconds > 0.0);
        Some(Self {
            cell: cell.clone(),
            delta_d_s: silent_s.zip(figure(&results, "delay_s")).map(|(silent_s, own_s)| silent_s - own_s),
            speed_up: alone_s.zip(makespan).map(|(alone_s, own_s)| alone_s / own_s),
            reason: comparison(&results).and_then(|comparison| comparison.reason()),
            results,
        })
    }

    fn format_figure(&self, key: &str, digits: usize) -> String {
        format_value(figure(&self.results, key), digits)
    }

    pub fn json(&self) -> Value {
        json!({"cell": self.cell.labels(), "results": self.results, "delta_d_s": self.delta_d_s, "speed_up": self.speed_up,
            "off_because": self.reason})
    }
}

/// Formats the rows as a Markdown table, followed by the cells where the simulator is off, with
/// reasons.
pub fn table(rows: &[Row], slots: u32) -> String {
    let mut text = format!(
        "| workload | notices | policy | D | W | delta D | answers/s | speed-up | makespan | D simulated | ratio | D on {slots} slots (simulated) |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for row in rows {
        let Cell { workload, notices, policy } = &row.cell;
        let cells = [
            workload.clone(),
            format!("{notices} %"),
            policy.clone(),
            row.format_figure("delay_s", 3),
            row.format_figure("waiting_s", 3),
            format_value(row.delta_d_s, 3),
            row.format_figure("throughput_per_s", 3),
            format_value(row.speed_up, 2),
            row.format_figure("makespan_s", 1),
            row.format_figure("simulated.delay_s", 3),
            row.format_figure("simulated.ratio", 2),
            row.format_figure("slots.delay_s", 3),
        ];
        text += &format!("| {} |\n", cells.join(" | "));
    }
    for row in rows {
        if let Some(reason) = &row.reason {
            let ratio = row.results.get("simulated.ratio").copied().unwrap_or(f64::NAN);
            text += &format!("off: {}: simulated D is {ratio:.2} of live: {reason}\n", row.cell.name());
        }
    }
    text
}

fn format_value(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |v| format!("{v:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(notices: u32, policy: &str) -> Cell {
        Cell { workload: "light".into(), notices, policy: policy.into() }
    }

    fn run(cell: &Cell, figures: &[(&str, f64)]) -> Run {
        Run {
            cell: cell.labels(),
            duration_s: 1.0,
            results: figures.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect(),
            ..Run::default()
        }
    }

    #[test]
    fn compares_cells_with_sequential_and_unannounced_ones() {
        let cells = [cell(0, "sequential"), cell(0, "fcfs"), cell(25, "sequential"), cell(25, "fcfs")];
        let figures = [(4.0, 100.0), (3.0, 50.0), (3.5, 90.0), (2.0, 40.0)];
        let mut runs: Vec<Run> = cells
            .iter()
            .zip(figures)
            .map(|(cell, (d, makespan))| run(cell, &[("delay_s", d), ("makespan_s", makespan)]))
            .collect();
        let all_rows = rows(&cells, &runs);
        let figures: Vec<_> = all_rows.iter().map(|row| (row.delta_d_s, row.speed_up)).collect();
        assert_eq!(figures[0], (None, Some(1.0)));
        assert_eq!(figures[1], (None, Some(2.0)));
        assert_eq!(figures[2].0, Some(0.5));
        assert_eq!(figures[3], (Some(1.0), Some(2.5)));
        let table = table(&all_rows, 8);
        assert!(table.contains("| light | 25 % | fcfs | 2.000 | - | 1.000 | - | 2.50 | 40.0 |"), "{table}");
        runs[0].failure = Some("2 of 6".into());
        let all_rows = rows(&cells, &runs);
        assert_eq!((all_rows.len(), all_rows[0].speed_up), (3, None));
    }

    #[test]
    fn stored_comparison_gives_the_same_reason() {
        let comparison = Comparison {
            live: 2.0,
            simulated: 1.0,
            ratio: 0.5,
            replayed: 1.9,
            replayed_ratio: 0.95,
            handed: 1.95,
            handed_ratio: 0.975,
            job_ratio: 1.4,
            side_by_side: Some(1.8),
            gap: 0.01,
            passed: 0.25,
        };
        let cell = cell(0, "fcfs");
        let runs = [run(&cell, &comparison_figures(&comparison))];
        let rows = rows(&[cell], &runs);
        assert_eq!(rows[0].reason, comparison.reason());
        let table = table(&rows, 8);
        assert!(
            table.contains("off: light, 0 % notices, fcfs: simulated D is 0.50 of live: the job times do it"),
            "{table}"
        );
        assert_eq!(rows[0].json()["off_because"], json!(comparison.reason()));
    }
}
