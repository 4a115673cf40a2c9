//! `tacit status`, and the text that it shares with `tacit top`.
use crate::operator::{Client, Job, Model, Operator, Pool, Profile, Status};
use crate::print;
use tacit_foreign::plain;

const MAX_ROWS: usize = 20;

/// Show the state of a server: an operator sees everything, a client sees its own part
///
/// Example: tacit status --server server.example:7878 --keys keys --client ops
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    operator: Operator,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    let answer = args.operator.interface()?.get("/v1/status")?;
    if as_json {
        return print::json(&answer);
    }
    print::text(&format_status(&serde_json::from_value(answer)?, MAX_ROWS))
}

/// Formats a status as lines; cuts tables to `max_rows` rows.
pub fn format_status(status: &Status, max_rows: usize) -> String {
    let mut lines = Lines { lines: Vec::new(), max_rows };
    let state = if status.stopping { ", stopping" } else { "" };
    lines.add(format!("tacit server {}, up {}{state}", plain(&status.version), time(status.uptime_s)));
    match &status.client {
        Some(client) => clients(&mut lines, std::slice::from_ref(client)),
        None => operator_view(&mut lines, status),
    }
    lines.lines.concat()
}

/// The lines of a status.
struct Lines {
    lines: Vec<String>,
    /// Most rows of a table.
    max_rows: usize,
}

impl Lines {
    fn add(&mut self, line: String) {
        self.lines.push(line + "\n");
    }

    /// Adds a table, and the number of the rows that are cut off.
    fn table<T>(&mut self, head: String, rows: &[T], format_row: impl Fn(&T) -> String) {
        self.add(head);
        rows.iter().take(self.max_rows).for_each(|row| self.add(format_row(row)));
        if rows.len() > self.max_rows {
            self.add(format!("... and {} more", rows.len() - self.max_rows));
        }
    }
}

fn operator_view(lines: &mut Lines, status: &Status) {
    let Status { capacity, used, queues: q, .. } = status;
    lines.add(format!(
        "policy {}   D {}   W {}   {:.2} inputs/s (last minute)",
        plain(&status.policy),
        time(status.mean_delay_s),
        time(status.mean_waiting_s),
        status.throughput_per_s
    ));
    lines.add(format!(
        "queues: pre {}, waiting {}, transit {}, ready {}; running: pre {}, on {}",
        q.pre, q.waiting, q.transit, q.ready, q.running_pre, q.running_on
    ));
    let dealings = match used.dealings {
        0 => String::new(),
        used => format!("   dealings {}", format_share(used, capacity.dealings, |n| n.to_string())),
    };
    lines.add(format!(
        "cores {}   memory {}   disk {}{dealings}",
        format_share(used.cores, capacity.cores, |n| n.to_string()),
        format_share(used.memory, capacity.memory, print::bytes),
        format_share(used.disk, capacity.disk, print::bytes)
    ));
    lines.add(format!(
        "connections: {} of clients, {} of control, {} greeting (of {}); {} refusals",
        status.connections, status.control_connections, status.greetings, status.greeting_places, status.refusals
    ));
    for advice in status.certificates.iter().filter_map(|certificate| certificate.advice.as_deref()) {
        lines.add(format!("WARNING: {}", plain(advice)));
    }
    pools(lines, &status.pools);
    models(lines, &status.models);
    profile(lines, &status.profile);
    clients(lines, &status.clients);
    let head = format!(
        "\n{:>6} {:<8} {:<20} {:<10} {:<18} {:>3} {:>9} {:>9}  {}",
        "JOB", "PHASE", "MODEL", "BACK END", "CLIENT", "THR", "QUEUED", "RAN", "STATE"
    );
    lines.table(head, &status.jobs, |row| job(row, status.uptime_s));
}

/// Formats the used part of a capacity, or the used amount alone if the capacity is 0.
fn format_share(used: u64, capacity: u64, show: fn(u64) -> String) -> String {
    match capacity {
        0 => show(used),
        capacity => format!("{} of {}", show(used), show(capacity)),
    }
}

/// Adds the pools: material dealt ahead of time. Adds nothing if there are none.
fn pools(lines: &mut Lines, pools: &[Pool]) {
    for row in pools.iter().take(lines.max_rows) {
        let (model, backend) = (cut(&row.model, 24), cut(&row.backend, 16));
        let inputs = if row.inputs == 1 { String::new() } else { format!(" of {} inputs", row.inputs) };
        let Pool { ready, dealing, bytes, .. } = *row;
        let bytes = print::bytes(bytes);
        lines.add(format!(
            "dealt ahead for {model} ({backend}){inputs}: {ready} ready ({bytes}), {dealing} on their way"
        ));
    }
}

fn models(lines: &mut Lines, models: &[Model]) {
    lines.add(format!("\n{:<24} {:<16} {:>8} {:>8} {:>10} {:>10}", "MODEL", "BACK ENDS", "INPUTS", "PER S", "D", "W"));
    for m in models.iter().take(lines.max_rows) {
        let (d, w, rate) = (time(m.mean_delay_s), time(m.mean_waiting_s), m.throughput_per_s);
        let backends = cut(&m.backends.join(","), 16);
        lines.add(format!("{:<24} {backends:<16} {:>8} {rate:>8.2} {d:>10} {w:>10}", cut(&m.name, 24), m.done));
    }
}

fn profile(lines: &mut Lines, profile: &[Profile]) {
    let head = format!(
        "\n{:<24} {:<10} {:<8} {:<22} {:>5} {:>10} {:>10} {:>7} {:>7}",
        "PROFILE", "BACK END", "PHASE", "DEVICE", "JOBS", "EXPECTED", "MEASURED", "ERROR", "95 %"
    );
    lines.table(head, profile, |row| {
        let (expected, measured) = (time(row.expected_s), time(row.measured_s));
        let [error, p95] = [row.error_median, row.error_p95].map(print::percent);
        let (model, backend) = (cut(&row.model, 24), cut(&row.backend, 10));
        let (phase, device, jobs) = (cut(&row.phase, 8), cut(&row.device, 22), row.jobs);
        format!(
            "{model:<24} {backend:<10} {phase:<8} {device:<22} {jobs:>5} {expected:>10} {measured:>10} {error:>7} {p95:>7}"
        )
    });
}

fn clients(lines: &mut Lines, clients: &[Client]) {
    let head = format!(
        "\n{:<26} {:>5} {:>7} {:>7} {:>6} {:>6} {:>7} {:>7} {:>7} {:>10} {:>10}",
        "CLIENT", "LINKS", "JOBS", "DONE", "QUEUED", "FAILED", "REFUSED", "INPUTS", "PER S", "D", "W"
    );
    lines.table(head, clients, |c| {
        let (name, rate) = (format_client(&c.client_name, &c.client, 26), c.throughput_per_s);
        let (d, w) = (time(c.mean_delay_s), time(c.mean_waiting_s));
        format!(
            "{name:<26} {:>5} {:>7} {:>7} {:>6} {:>6} {:>7} {:>7} {rate:>7.2} {d:>10} {w:>10}",
            c.connections, c.requests, c.done, c.queued, c.failed, c.refused, c.inputs
        )
    });
}

/// Formats the row of a job; `now_s` is the server's time.
fn job(job: &Job, now_s: f64) -> String {
    let queued = time(job.started_s - job.queued_s);
    let ran = time(job.ended_s.unwrap_or(now_s) - job.started_s);
    let (phase, model, backend) = (cut(&job.phase, 8), cut(&job.model, 20), cut(&job.backend, 10));
    let client = format_client(&job.client_name, &job.client, 18);
    let state = plain(job.outcome.as_deref().unwrap_or("running"));
    format!(
        "{:>6} {phase:<8} {model:<20} {backend:<10} {client:<18} {:>3} {queued:>9} {ran:>9}  {state}",
        job.id, job.threads
    )
}

/// Formats a client's name with the beginning of its fingerprint, which identifies the client.
fn format_client(name: &str, fingerprint: &str, width: usize) -> String {
    const DIGITS: usize = 8;
    match plain(name) {
        name if name.is_empty() => cut(fingerprint, width),
        name => format!("{} {}", cut(&name, width - DIGITS - 1), cut(fingerprint, DIGITS)),
    }
}

fn cut(text: &str, width: usize) -> String {
    plain(text).chars().take(width).collect()
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s.max(0.0) * 1e3),
        s if s < 120.0 => format!("{s:.2} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shows_everything_and_escapes_control_codes() {
        let jobs: Vec<_> = (0..5)
            .map(|id| json!({"id": id, "phase": "online", "model": "m\u{1b}[2J", "queued_s": 1.0, "started_s": 1.5}))
            .collect();
        let status = json!({"version": "1", "uptime_s": 3.0, "policy": "adaptive", "mean_delay_s": 0.25,
            "capacity": {"cores": 8, "dealings": 4}, "used": {"cores": 3, "dealings": 2}, "queues": {"pre": 7}, "jobs": jobs, "surprise": 1,
            "pools": [{"model": "digits", "backend": "dealt", "inputs": 4, "ready": 3, "dealing": 1, "bytes": 2048}],
            "certificates": [{"name": "server", "advice": "the certificate of `server` expires in 2 hours"}, {"name": "ca"}],
            "models": [{"name": "digits", "backends": ["cheetah"], "done": 2}], "clients": [{"client": "ab12cd34ef", "client_name": "ali\u{7}ce", "requests": 9, "mean_waiting_s": 0.125}],
            "profile": [{"model": "digits", "device": "lan, 2 threads", "expected_s": 1.5, "measured_s": 3.0, "error_median": 0.5}]});
        let text = format_status(&serde_json::from_value(status).unwrap(), 3);
        for part in [
            "lan, 2 threads",
            "1.50 s     3.00 s    50 %",
            "125 ms",
            "policy adaptive",
            "D 250 ms",
            "WARNING: the certificate of `server`",
            "pre 7",
            "cores 3 of 8",
            "dealings 2 of 4",
            "dealt ahead for digits (dealt) of 4 inputs: 3 ready",
            "digits",
            "ali\u{fffd}ce ab12cd34 ",
            "running",
            "... and 2 more",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
        assert!(text.contains("m\u{fffd}[2J"));
    }

    #[test]
    fn shows_a_client_its_own_row() {
        let status = json!({"version": "1", "uptime_s": 3.0, "client": {"client": "ab12", "requests": 9}});
        let text = format_status(&serde_json::from_value(status).unwrap(), 3);
        assert!(text.contains("ab12"), "{text}");
        assert!(!text.contains("queues"), "{text}");
    }
}
