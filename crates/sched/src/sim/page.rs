//! A self-contained HTML page: execution timeline, queue lengths, metric bars. No scripts, no outside files.

use super::engine::{JobRecord, Run, Scenario};
use super::metrics::Summary;
use super::svg::{COLOURS, Svg, ticks};
use crate::ids::Phase;
use crate::time::Time;
use std::fmt::Write;

/// Jobs drawn per timeline at most; beyond that, the first ones.
const MOST_JOBS: usize = 20_000;
/// Points drawn per curve at most.
const MOST_POINTS: usize = 1200;
const WIDTH: f64 = 1120.0;
const LEFT: f64 = 64.0;

/// One run to show. It must have been made with [`Scenario::timeline`].
pub struct Panel<'a> {
    /// Heading.
    pub label: String,
    /// What was run.
    pub scenario: &'a Scenario,
    /// What happened.
    pub run: &'a Run,
}

/// The page: metric bars over all panels, then each panel's timeline and queues.
pub fn page(title: &str, panels: &[Panel<'_>]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}</style></head><body><h1>{0}</h1>",
        escape(title)
    );
    let summaries: Vec<Summary> = panels.iter().map(summary).collect();
    html.push_str(&table(panels, &summaries));
    html.push_str("<h2>Metrics</h2><div class=\"bars\">");
    for (name, unit, value) in METRICS {
        let values: Vec<(String, f64)> =
            panels.iter().zip(&summaries).map(|(p, s)| (p.label.clone(), value(s))).collect();
        html.push_str(&bars(name, unit, &values));
    }
    html.push_str("</div>");
    let end = panels.iter().map(|p| p.run.last).max().unwrap_or_default();
    for panel in panels {
        let _ = write!(html, "<h2>{}</h2>", escape(&panel.label));
        html.push_str(&legend(panel));
        html.push_str(&timeline(panel, end));
        html.push_str(&queues(panel, end));
    }
    html.push_str("</body></html>\n");
    html
}

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;max-width:1160px;margin:24px auto;padding:0 16px;color:#222}\
h1{font-size:22px}h2{font-size:17px;margin:28px 0 6px}svg{display:block;margin:4px 0 10px}text{font:11px system-ui,sans-serif;fill:#444}\
table{border-collapse:collapse}td,th{padding:3px 12px 3px 0;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}\
.bars{display:flex;flex-wrap:wrap;gap:4px 18px}.key{display:inline-block;margin-right:16px}.key i{display:inline-block;width:12px;height:12px;margin-right:5px;vertical-align:-1px}";

type Metric = (&'static str, &'static str, fn(&Summary) -> f64);

const METRICS: [Metric; 6] = [
    ("Input delay D", "s", |s| s.all.input_delay),
    ("Waiting time W", "s", |s| s.all.waiting_time),
    ("99th percentile of input delay", "s", |s| s.all.p99),
    ("Makespan", "s", |s| s.makespan),
    ("Throughput", "/s", |s| s.throughput),
    ("Cores in use", "%", |s| s.core_use * 100.0),
];

fn summary(panel: &Panel<'_>) -> Summary {
    let capacity = panel.scenario.config.capacity;
    Summary::of(panel.run, &panel.scenario.workload.mix, capacity.cores, capacity.memory)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn table(panels: &[Panel<'_>], summaries: &[Summary]) -> String {
    let mut html = String::from(
        "<table><tr><th>policy</th><th>inputs</th><th>D (s)</th><th>W (s)</th><th>p50</th><th>p95</th><th>p99</th><th>throughput (/s)</th><th>makespan (s)</th><th>cores</th><th>memory</th></tr>",
    );
    for (panel, s) in panels.iter().zip(summaries) {
        let a = &s.all;
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td><td>{:.1}</td><td>{:.1}</td><td>{:.2}</td><td>{:.0}</td><td>{:.0} %</td><td>{:.0} %</td></tr>",
            escape(&panel.label),
            a.done,
            a.input_delay,
            a.waiting_time,
            a.p50,
            a.p95,
            a.p99,
            s.throughput,
            s.makespan,
            s.core_use * 100.0,
            s.memory_use * 100.0,
        );
    }
    html + "</table>"
}

fn bars(name: &str, unit: &str, values: &[(String, f64)]) -> String {
    let height = 26.0 + 20.0 * values.len() as f64;
    let mut svg = Svg::new(350.0, height);
    svg.text(0.0, 13.0, "start", &format!("{name} ({unit})"));
    let most = values.iter().map(|v| v.1).fold(0.0, f64::max).max(1e-9);
    for (i, (label, value)) in values.iter().enumerate() {
        let y = 22.0 + 20.0 * i as f64;
        svg.text(108.0, y + 11.0, "end", &escape(label));
        svg.rect((114.0, y, 170.0 * value / most, 14.0), COLOURS[i % COLOURS.len()], 1.0, "");
        let digits = if *value < 10.0 { 2 } else { 1 };
        svg.text(120.0 + 170.0 * value / most, y + 11.0, "start", &format!("{value:.digits$}"));
    }
    svg.finish()
}

fn legend(panel: &Panel<'_>) -> String {
    let mut html = String::from("<div>");
    for (i, model) in panel.scenario.models.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let _ = write!(html, "<span class=\"key\"><i style=\"background:{colour}\"></i>{}</span>", escape(&model.name));
    }
    html + "<span class=\"key\">pale: T_pre (offline), full: T_on (online); one lane per core</span></div>"
}

/// Cores for every job, such that no two jobs share one; `None` for jobs beyond the drawing limit.
fn lanes(jobs: &[&JobRecord], cores: usize) -> Vec<Vec<usize>> {
    let mut free_from = vec![Time::ZERO; cores];
    jobs.iter()
        .map(|job| {
            let mut mine = Vec::new();
            for (lane, free) in free_from.iter_mut().enumerate() {
                if mine.len() < job.start.threads as usize && *free <= job.from {
                    *free = job.to;
                    mine.push(lane);
                }
            }
            mine
        })
        .collect()
}

fn timeline(panel: &Panel<'_>, end: Time) -> String {
    let cores = panel.scenario.config.capacity.cores as usize;
    let lane = (420.0 / cores as f64).clamp(3.0, 16.0);
    let height = lane * cores as f64;
    let mut svg = Svg::new(WIDTH, height + 40.0);
    let scale = (WIDTH - LEFT - 10.0) / end.secs().max(1e-9);
    let x = |secs: f64| LEFT + secs * scale;
    svg.rect((LEFT, 8.0, WIDTH - LEFT - 10.0, height), "#f6f6f6", 1.0, "");
    let mut jobs: Vec<&JobRecord> = panel.run.jobs.iter().collect();
    jobs.sort_by_key(|j| (j.from, j.start.job));
    jobs.truncate(MOST_JOBS);
    for (job, mine) in jobs.iter().zip(lanes(&jobs, cores)) {
        let model = job.start.model.0 as usize;
        let (phase, opacity) = if job.start.phase == Phase::Pre { ("T_pre", 0.45) } else { ("T_on", 1.0) };
        let whose = job.request.map_or("stock".into(), |r| format!("request {}", r.0));
        let name = &panel.scenario.models[model].name;
        let threads = job.start.threads;
        let title = format!(
            "{} {phase}, {whose}, {threads} threads, {:.2} s to {:.2} s",
            escape(name),
            job.from.secs(),
            job.to.secs()
        );
        let width = (job.to.secs() - job.from.secs()) * scale;
        for run in runs(&mine) {
            let shape = (x(job.from.secs()), 8.0 + lane * run.0 as f64, width.max(0.4), lane * run.1 as f64 - 0.5);
            svg.rect(shape, COLOURS[model % COLOURS.len()], opacity, &title);
        }
    }
    for tick in ticks(cores as f64, 6).into_iter().filter(|&t| t > 0.0) {
        svg.text(LEFT - 6.0, 8.0 + lane * tick, "end", &format!("core {tick}"));
    }
    time_axis(&mut svg, end, height + 8.0, &x);
    svg.finish()
}

/// Neighbouring lanes as (first, count).
fn runs(lanes: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &lane in lanes {
        match runs.last_mut() {
            Some(run) if run.0 + run.1 == lane => run.1 += 1,
            _ => runs.push((lane, 1)),
        }
    }
    runs
}

fn time_axis(svg: &mut Svg, end: Time, y: f64, x: &dyn Fn(f64) -> f64) {
    for tick in ticks(end.secs(), 10) {
        svg.line((x(tick), y), (x(tick), y + 4.0), "#999");
        svg.text(x(tick), y + 17.0, "middle", &format!("{tick} s"));
    }
}

/// Queue lengths, cores and memory over time.
fn queues(panel: &Panel<'_>, end: Time) -> String {
    let samples = &panel.run.samples;
    let capacity = panel.scenario.config.capacity;
    let curve = |value: &dyn Fn(&super::engine::QueueSample) -> f64| -> Vec<(f64, f64)> {
        thin(&samples.iter().map(|s| (s.at.secs(), value(s))).collect::<Vec<_>>())
    };
    let lengths = [
        ("Q_pre", curve(&|s| f64::from(s.counts.pre))),
        ("Q_waiting", curve(&|s| f64::from(s.counts.waiting))),
        ("Q_transit", curve(&|s| f64::from(s.counts.transit))),
        ("Q_ready", curve(&|s| f64::from(s.counts.ready))),
        ("stock", curve(&|s| s.stock as f64)),
    ];
    let percent = |part: f64, of: f64| 100.0 * part / of.max(1.0);
    let usage = [
        ("cores %", curve(&|s| percent(f64::from(s.cores), f64::from(capacity.cores)))),
        ("memory %", curve(&|s| percent(s.memory as f64, capacity.memory as f64))),
    ];
    chart("Queue lengths (inputs)", &lengths, end) + &chart("Cores and memory in use", &usage, end)
}

fn chart(title: &str, curves: &[(&str, Vec<(f64, f64)>)], end: Time) -> String {
    let height = 130.0;
    let most = curves.iter().flat_map(|c| &c.1).map(|p| p.1).fold(1.0, f64::max);
    let mut svg = Svg::new(WIDTH, height + 50.0);
    let scale = (WIDTH - LEFT - 10.0) / end.secs().max(1e-9);
    let x = |secs: f64| LEFT + secs * scale;
    let y = |value: f64| 20.0 + height * (1.0 - value / most);
    svg.text(LEFT, 12.0, "start", title);
    for tick in ticks(most, 4) {
        svg.line((LEFT, y(tick)), (WIDTH - 10.0, y(tick)), "#e4e4e4");
        svg.text(LEFT - 6.0, y(tick) + 4.0, "end", &tick.to_string());
    }
    for (i, (name, points)) in curves.iter().enumerate() {
        // Steps: a length holds until the next event.
        let mut path = Vec::with_capacity(points.len() * 2);
        for (j, &(at, value)) in points.iter().enumerate() {
            if j > 0 {
                path.push((x(at), y(points[j - 1].1)));
            }
            path.push((x(at), y(value)));
        }
        svg.path(&path, COLOURS[i % COLOURS.len()]);
        let key = WIDTH - 12.0 - 84.0 * (curves.len() - i) as f64;
        svg.rect((key, 4.0, 10.0, 10.0), COLOURS[i % COLOURS.len()], 1.0, "");
        svg.text(key + 14.0, 13.0, "start", name);
    }
    time_axis(&mut svg, end, height + 20.0, &x);
    svg.finish()
}

/// Keeps at most [`MOST_POINTS`] points: the largest value of each stretch.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(MOST_POINTS).max(1);
    let largest = |c: &[(f64, f64)]| c.iter().copied().max_by(|a, b| f64::total_cmp(&a.1, &b.1));
    points.chunks(stretch).filter_map(largest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_lanes_join() {
        assert_eq!(runs(&[0, 1, 2, 5, 7, 8]), vec![(0, 3), (5, 1), (7, 2)]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn thinning_keeps_peaks() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i), f64::from(i % 977))).collect();
        let thinned = thin(&points);
        assert!(thinned.len() <= MOST_POINTS);
        assert_eq!(thinned.iter().map(|p| p.1).fold(0.0, f64::max), 976.0);
    }
}
