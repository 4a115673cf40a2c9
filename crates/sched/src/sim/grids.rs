//! The grids: what the policies reach, cell by cell, and whether that is enough.

use super::experiment::{Cell, Setting, Stock, paper_workload};
use super::metrics::Interval;
use super::profile::ProfileFile;
use super::workload::{Arrivals, Batches, Workload};
use crate::config::Config;
use crate::error::SchedError;
use crate::policy::{Adaptive, PolicySpec};
use crate::profile::Speedup;
use serde::Serialize;
use std::fmt::Write;
use std::ops::Range;

/// Rates of the paper, requests per second.
pub const RATES: [f64; 3] = [0.25, 0.5, 1.0];

/// A requirement and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Where: grid, cores, rate, notices.
    pub cell: String,
    /// What must hold.
    pub rule: String,
    /// Measured ratio.
    pub value: f64,
    /// Half-width of its 95 % interval, for comparisons seed by seed.
    pub half: Option<f64>,
    /// Seeds that it rests on: more than the cell's where those did not decide.
    pub seeds: usize,
    /// Allowed at most.
    pub limit: f64,
    /// Whether it holds.
    pub met: bool,
}

/// A grid's cells and checks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Grid {
    /// Name.
    pub name: String,
    /// All cells.
    pub cells: Vec<Cell>,
    /// All checks.
    pub checks: Vec<Check>,
    /// What was measured in each cell.
    #[serde(skip)]
    settings: Vec<Setting>,
}

/// The same setting with and without notices, as indices of a grid's cells.
struct Pair {
    at: String,
    with: usize,
    without: usize,
}

/// A comparison that the table's seeds do not decide is repeated on this many times as many.
const MORE_SEEDS: u64 = 25;

/// Ratio of the means, with the half-width of the paired interval relative to the same mean.
fn paired(ours: &[f64], other: &[f64]) -> Interval {
    let difference = Interval::of(&ours.iter().zip(other).map(|(x, y)| x - y).collect::<Vec<_>>());
    let base = Interval::of(other).mean.max(1e-9);
    Interval { mean: 1.0 + difference.mean / base, half: difference.half / base }
}

impl Grid {
    fn new(name: &str) -> Grid {
        Grid { name: name.into(), ..Grid::default() }
    }

    fn check(&mut self, cell: &str, rule: &str, value: f64, limit: f64) {
        // Equal figures differ in the last digit when they are sums in another order.
        let met = value <= limit * (1.0 + 1e-9);
        let seeds = self.cells.last().map_or(0, |c| c.delays.len());
        self.checks.push(Check { cell: cell.into(), rule: rule.into(), value, half: None, seeds, limit, met });
    }

    /// Whether D is lower with notices than without, by more than the 95 % interval. The requests are the same, so the interval is that of
    /// the difference seed by seed. Where it does not decide, [`MORE_SEEDS`] times as many further seeds are played and all are taken together.
    fn compare(&mut self, pair: &Pair, profile: &ProfileFile, seeds: &Range<u64>) -> Result<(), SchedError> {
        let Pair { at, with, without } = pair;
        let mut columns = [*with, *without].map(|i| self.cells[i].delays.clone());
        let mut ratio = paired(&columns[0], &columns[1]);
        if (ratio.mean - 1.0).abs() <= ratio.half && ratio.half > 0.0 {
            let more = seeds.end..seeds.end + (seeds.end - seeds.start) * MORE_SEEDS;
            for (column, i) in columns.iter_mut().zip([*with, *without]) {
                column.extend(self.settings[i].measure(profile, &more)?.delays);
            }
            ratio = paired(&columns[0], &columns[1]);
        }
        let (value, half, seeds) = (ratio.mean, Some(ratio.half), columns[0].len());
        let met = ratio.mean + ratio.half <= 1.0;
        let rule = "D(25 % notices) / D(none)".into();
        self.checks.push(Check { cell: at.clone(), rule, value, half, seeds, limit: 1.0, met });
        Ok(())
    }

    /// Measures a setting and keeps its cell.
    fn add(&mut self, setting: &Setting, profile: &ProfileFile, seeds: &Range<u64>) -> Result<Cell, SchedError> {
        let cell = setting.measure(profile, seeds)?;
        Ok(self.keep(setting, cell))
    }

    /// The same with the lower bound, which does not depend on the policy.
    fn add_bounded(
        &mut self,
        setting: &Setting,
        profile: &ProfileFile,
        seeds: &Range<u64>,
    ) -> Result<Cell, SchedError> {
        let twin = |(s, c): &(&Setting, &Cell)| !c.bounds.is_empty() && s.asks_the_same(setting);
        let known = self.settings.iter().zip(&self.cells).find(twin).map(|(_, cell)| cell.bounds.as_slice());
        let cell = setting.measure_bounded(profile, seeds, known)?;
        Ok(self.keep(setting, cell))
    }

    fn keep(&mut self, setting: &Setting, cell: Cell) -> Cell {
        self.cells.push(cell.clone());
        self.settings.push(setting.clone());
        cell
    }

    /// Our D over the bound: what the issue aims for.
    fn check_bound(&mut self, at: &str, rule: &str, cell: &Cell) {
        if let Some(ratio) = cell.ratio {
            self.check(at, rule, ratio.mean, 1.5);
        }
    }
}

fn adaptive() -> PolicySpec {
    PolicySpec::Adaptive(Adaptive::default())
}

fn mixed(rate: f64, notices: f64) -> Result<Workload, SchedError> {
    paper_workload("swiftsnni-mixed", rate, notices)
}

fn cells() -> impl Iterator<Item = (f64, f64)> {
    [0.0, 0.25].into_iter().flat_map(|notices| RATES.map(|rate| (rate, notices)))
}

fn name(cores: u32, rate: f64, notices: f64) -> String {
    format!("P={cores} rate={rate} notices={:.0}%", notices * 100.0)
}

/// Grid A: one thread a job, no pool, P = 48 and 16, with a sweep of beta.
///
/// # Errors
/// A profile that lacks a model.
pub fn grid_a(profile: &ProfileFile, seeds: &Range<u64>) -> Result<Grid, SchedError> {
    let mut grid = Grid::new("A: one thread a job, no pool");
    for cores in [48, 16] {
        for (rate, notices) in cells() {
            let mut measure = |policy: PolicySpec| {
                grid.add_bounded(&Setting::new(policy, cores, mixed(rate, notices)?), profile, seeds)
            };
            let fcfs = measure(PolicySpec::Fcfs)?;
            let priority = measure(PolicySpec::Priority { beta: 0.1 })?;
            let shortest = measure(PolicySpec::ShortestRemaining)?;
            let ours = measure(adaptive())?;
            for beta in [0.0, 0.01, 1.0] {
                measure(PolicySpec::Priority { beta })?;
            }
            let at = name(cores, rate, notices);
            let d = ours.delay.mean;
            let better = fcfs.delay.mean.min(priority.delay.mean);
            grid.check(&at, "D / D(shortest remaining)", d / shortest.delay.mean, 1.05);
            grid.check(&at, "D / D(better of fcfs, priority)", d / better, 1.01);
            let tail = ours.vgg16_p99.mean / priority.vgg16_p99.mean;
            grid.check(&at, "VGG-16 p99 / p99(priority)", tail, 1.0);
            grid.check_bound(&at, "D / bound, aim", &ours);
        }
    }
    notices_help(&mut grid, profile, seeds)?;
    Ok(grid)
}

/// Grid B: moldable T_on, pools allowed, P = 48 (and 16 for what overload does).
///
/// # Errors
/// A profile that lacks a model.
pub fn grid_b(profile: &ProfileFile, seeds: &Range<u64>) -> Result<Grid, SchedError> {
    let mut grid = Grid::new("B: moldable T_on, pools allowed");
    for cores in [48, 16] {
        for (rate, notices) in cells() {
            let priority = Setting::new(PolicySpec::Priority { beta: 0.1 }, cores, mixed(rate, notices)?);
            let priority = grid.add_bounded(&priority, profile, seeds)?;
            for (stock, label) in [(Stock::None, "no pool"), (Stock::Cold, "cold pool"), (Stock::Full, "full pool")] {
                let mut setting = Setting::new(adaptive(), cores, mixed(rate, notices)?);
                setting.on_threads = Config::thread_counts(cores);
                setting.stock = stock;
                setting.label = format!("adaptive, {label}");
                let ours = grid.add_bounded(&setting, profile, seeds)?;
                let at = name(cores, rate, notices);
                if cores == 48 {
                    grid.check_bound(&at, &format!("D / bound, {label}, aim"), &ours);
                }
                if stock == Stock::Cold && cores == 48 {
                    let ratio = ours.delay.mean / priority.delay.mean;
                    grid.check(&at, "D(cold pool) / D(priority), must", ratio, 0.6);
                    grid.check(&at, "D(cold pool) / D(priority), aim", ratio, 0.3);
                }
            }
        }
    }
    notices_help(&mut grid, profile, seeds)?;
    Ok(grid)
}

/// Grid C: T_pre moldable too, against every fixed thread count.
///
/// # Errors
/// A profile that lacks a model.
pub fn grid_c(profile: &ProfileFile, seeds: &Range<u64>) -> Result<Grid, SchedError> {
    let mut grid = Grid::new("C: T_pre and T_on moldable, no pool");
    for cores in [48, 16] {
        for (rate, notices) in cells() {
            let mut measure = |threads: Vec<u32>, policy: PolicySpec, label: String| {
                let mut setting = Setting::new(policy, cores, mixed(rate, notices)?);
                setting.pre_threads = threads.clone();
                setting.on_threads = threads;
                setting.pre_speedup = Speedup::Amdahl(0.95);
                setting.label = label;
                // A bound for any thread counts holds for fixed ones too.
                match setting.policy {
                    PolicySpec::Adaptive(_) => grid.add_bounded(&setting, profile, seeds),
                    _ => grid.add(&setting, profile, seeds),
                }
            };
            let ours = measure(Config::thread_counts(cores), adaptive(), "adaptive".into())?;
            let mut best = f64::INFINITY;
            for threads in Config::thread_counts(cores) {
                let fixed = measure(
                    vec![threads],
                    PolicySpec::ShortestRemaining,
                    format!("shortest-remaining, {threads} threads"),
                )?;
                best = best.min(fixed.delay.mean);
            }
            let at = name(cores, rate, notices);
            grid.check(&at, "D / D(best fixed threads in hindsight)", ours.delay.mean / best, 1.0);
            grid.check_bound(&at, "D / bound, aim", &ours);
        }
    }
    notices_help(&mut grid, profile, seeds)?;
    Ok(grid)
}

/// Compares each cell with 25 % notices with its twin without.
fn notices_help(grid: &mut Grid, profile: &ProfileFile, seeds: &Range<u64>) -> Result<(), SchedError> {
    let twins = |with: &Cell, c: &Cell| {
        c.notices == 0.0 && (&c.label, c.cores, c.rate, c.stock) == (&with.label, with.cores, with.rate, with.stock)
    };
    let mut pairs = Vec::new();
    for (with, cell) in grid.cells.iter().enumerate().filter(|(_, c)| c.notices > 0.0 && c.stock == Stock::None) {
        if let Some(without) = grid.cells.iter().position(|c| twins(cell, c)) {
            let at = format!("{} {}", name(cell.cores, cell.rate, cell.notices), cell.label);
            pairs.push(Pair { at, with, without });
        }
    }
    for pair in pairs {
        grid.compare(&pair, profile, seeds)?;
    }
    Ok(())
}

/// Sensitivity: wrong estimates, bursts, a flood from one client, heavy-tailed batches. P = 16, rate 0.5 unless said otherwise.
///
/// # Errors
/// A profile that lacks a model.
pub fn sensitivity(profile: &ProfileFile, seeds: &Range<u64>) -> Result<Grid, SchedError> {
    let mut grid = Grid::new("Sensitivity, P = 16");
    let policies = || [PolicySpec::Fcfs, PolicySpec::Priority { beta: 0.1 }, PolicySpec::ShortestRemaining, adaptive()];
    let base = || mixed(0.5, 0.0);
    for policy in policies() {
        let setting = Setting::new(policy, 16, base()?);
        let label = setting.label.clone();
        let mut measure = |what: &str, setting: Setting| {
            grid.add(&Setting { label: format!("{label}; {what}"), ..setting }, profile, seeds)
        };
        measure("base", setting.clone())?;
        let bias = vec![2.0, 0.5, 2.0, 0.5, 2.0];
        measure("first estimates x2, /2", Setting { bias, ..setting.clone() })?;
        measure("each job x2 to /2", Setting { spread: 2.0, ..setting.clone() })?;
        let bursts = Workload { arrivals: Arrivals::Bursts { rate: 0.5, on: 60.0, off: 180.0 }, ..base()? };
        measure("bursts", Setting { workload: bursts, ..setting.clone() })?;
        let heavy =
            Workload { batches: Batches::Pareto { alpha: 1.5, max: 64 }, arrivals: Arrivals::Poisson(0.2), ..base()? };
        measure("heavy-tailed batches, rate 0.2", Setting { workload: heavy.clone(), ..setting.clone() })?;
        measure("the same, a request holds half", Setting { workload: heavy, batch_share: 0.5, ..setting })?;
    }
    let flood = |rate| -> Result<Workload, SchedError> { Ok(Workload { heavy_client: 0.9, ..mixed(rate, 0.0)? }) };
    for (policy, fair) in [
        (PolicySpec::Fcfs, false),
        (PolicySpec::Fcfs, true),
        (PolicySpec::Priority { beta: 0.1 }, false),
        (PolicySpec::Priority { beta: 0.1 }, true),
        (adaptive(), false),
        (adaptive(), true),
    ] {
        let policy = if fair { PolicySpec::Fair { strength: 1.0, inner: Box::new(policy) } } else { policy };
        let mut setting = Setting::new(policy, 16, flood(1.0)?);
        setting.label = format!("{}; one client sends 90 %, rate 1", setting.label);
        grid.add(&setting, profile, seeds)?;
    }
    Ok(grid)
}

/// A grid as Markdown: its cells, then its checks.
pub fn print(grid: &Grid) -> String {
    let mut text = format!("## Grid {}\n\n", grid.name);
    text.push_str("| setting | P | rate | notices | D | W | p99 | VGG-16 p99 | makespan | bound | D/bound | load | cores | memory | D others |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for c in &grid.cells {
        let given = |figure: Option<Interval>| figure.map_or("-".into(), |f| format!("{:.2}", f.mean));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} % | {:.2} ± {:.2} | {:.2} | {:.2} | {:.1} | {:.0} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} |",
            c.label,
            c.cores,
            c.rate,
            c.notices * 100.0,
            c.delay.mean,
            c.delay.half,
            c.waiting.mean,
            c.p99.mean,
            c.vgg16_p99.mean,
            c.makespan.mean,
            given(c.bound),
            given(c.ratio),
            c.offered.mean,
            c.core_use.mean,
            c.memory_use.mean,
            c.others_delay.mean,
        );
    }
    if !grid.checks.is_empty() {
        text.push_str("\n| where | rule | measured | seeds | limit | met |\n| --- | --- | --- | --- | --- | --- |\n");
    }
    for c in &grid.checks {
        let met = if c.met { "yes" } else { "NO" };
        let half = c.half.map_or(String::new(), |half| format!(" ± {half:.4}"));
        let _ =
            writeln!(text, "| {} | {} | {:.4}{half} | {} | {} | {met} |", c.cell, c.rule, c.value, c.seeds, c.limit);
    }
    text
}
