//! The machine's load, and what it leaves for jobs: other processes take cores, and jobs that wait
//! for their link free theirs.
use std::fs;
use std::time::{Duration, Instant};
use tacit_arith::heap;
use tacit_measure::clock::process_cpu_s;
use tacit_measure::usage::{HostReader, ProcessLimits, Roots};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// How often the load is measured.
const MEASURING_INTERVAL: Duration = Duration::from_secs(1);

/// The load of the last second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) cores: f64,
    /// Busy cores, including those of this process.
    pub(crate) busy: f64,
    /// Cores kept busy by this process.
    pub(crate) own_cores: f64,
    /// Resident bytes of this process.
    pub(crate) resident: u64,
    /// Resident bytes that jobs hold; 0 if the allocator does not count.
    pub(crate) jobs: u64,
    pub(crate) process: ProcessLimits,
}

/// Limits that the driver combines with the machine's load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) cores: u32,
    /// Threads of the widest job, which would never start with fewer cores.
    pub(crate) widest: u32,
    /// Bytes of memory that jobs may take together.
    pub(crate) memory: u64,
    pub(crate) resident: u64,
}

/// Available memory below which no job starts, if the process's own limit is not small.
const SPARE_BYTES: u64 = 64 << 20;

/// Bytes left free of the memory that the process may have.
fn spare(limits: &ProcessLimits) -> u64 {
    limits.memory_bytes.map_or(SPARE_BYTES, |max| SPARE_BYTES.min(max / 8))
}

/// At most `requested`, and at most what this process may have beyond what it holds. With more, it
/// would be killed.
pub(crate) fn job_memory(requested: u64) -> u64 {
    limit_memory(requested, &ProcessLimits::read(&Roots::default()), resident())
}

fn limit_memory(requested: u64, limits: &ProcessLimits, resident: u64) -> u64 {
    let Some(max) = limits.memory_bytes else { return requested };
    requested.min(max.saturating_sub(resident).saturating_sub(spare(limits)))
}

impl Limits {
    /// What other processes and this process's limits leave, plus what `running` threads do not
    /// use. 0 while the process exceeds its memory.
    pub(crate) fn cores(&self, load: &Load, running: u32) -> u32 {
        let scarce = load.process.available_bytes.is_some_and(|available| available < spare(&load.process));
        if load.resident > self.resident || scarce {
            return 0;
        }
        let other_cores = (load.busy - load.own_cores).max(0.0);
        let mut remaining = (load.cores - other_cores).min(f64::from(self.cores));
        if load.process.cores > 0.0 {
            remaining = remaining.min(load.process.cores);
        }
        let idle = (f64::from(running) - load.own_cores).max(0.0);
        // The cast saturates.
        ((remaining + idle).round() as u32).max(self.widest)
    }

    /// What other processes leave within the limit, but at least enough for the `largest` job.
    /// Running jobs have reserved `used` and already hold part of it.
    pub(crate) fn memory(&self, load: &Load, used: u64, largest: u64) -> u64 {
        let Some(available) = load.process.available_bytes else { return self.memory };
        let held_by_jobs = used.min(load.jobs);
        let remaining = available.saturating_sub(spare(&load.process)).saturating_add(held_by_jobs);
        remaining.max(largest).min(self.memory)
    }
}

/// Reports the load once a second, until the server stops or `tell` returns false.
pub(crate) async fn watch(tell: impl Fn(Load) -> bool, mut stop: watch::Receiver<bool>) {
    let roots = Roots::default();
    let mut host = match HostReader::open(&roots) {
        Ok(host) => host,
        Err(e) => return tracing::warn!("the machine's load is not followed: {e}"),
    };
    let mut ticks = interval(MEASURING_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut previous, mut last) = ((0.0, process_cpu_s()), Instant::now());
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        let cores = match host.cores() {
            Ok(cores) => cores,
            Err(e) => return tracing::warn!("the machine's load is no longer followed: {e}"),
        };
        let current = (cores.iter().map(|c| c.user_s + c.system_s).sum::<f64>(), process_cpu_s());
        let seconds = last.elapsed().as_secs_f64().max(1e-3);
        let load = Load {
            cores: cores.len() as f64,
            busy: ((current.0 - previous.0) / seconds).max(0.0),
            own_cores: ((current.1 - previous.1) / seconds).max(0.0),
            resident: resident(),
            jobs: heap::held_bytes(),
            process: ProcessLimits::read(&roots),
        };
        (previous, last) = (current, Instant::now());
        if !tell(load) {
            return;
        }
    }
}

/// Resident bytes of this process; 0 if unknown.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0).saturating_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Read};
    use std::process::{Command, Stdio};
    use std::sync::mpsc;
    use std::thread;
    use tokio::runtime::Builder;

    const LIMITS: Limits = Limits { cores: 4, widest: 1, memory: 8 << 30, resident: 1 << 30 };

    fn with_available(available: u64) -> ProcessLimits {
        ProcessLimits { available_bytes: Some(available), ..ProcessLimits::default() }
    }

    #[test]
    fn jobs_get_cores_that_others_leave_and_that_waiting_jobs_do_not_use() {
        for (busy, own_cores, running, expected, case) in [
            (0.0, 0.0, 0, 4, "the limit"),
            (4.0, 4.0, 4, 4, "own work"),
            (7.0, 0.0, 0, 1, "others have seven of eight"),
            (9.0, 0.0, 0, 1, "a job can always start"),
            (0.2, 0.2, 4, 8, "four jobs that wait for their links"),
            (2.2, 2.2, 4, 6, "four jobs of which two wait"),
        ] {
            let load = Load { cores: 8.0, busy, own_cores, ..Load::default() };
            assert_eq!(LIMITS.cores(&load, running), expected, "{case}");
        }
    }

    #[test]
    fn no_job_starts_beyond_the_resident_limit() {
        let load = Load { cores: 8.0, resident: (1 << 30) + 1, ..Load::default() };
        assert_eq!(LIMITS.cores(&load, 0), 0);
        assert!(resident() > 1 << 20);
    }

    #[test]
    fn other_processes_take_memory_and_give_it_back() {
        let memory = |available: u64, used: u64, largest: u64| {
            let process = with_available((available << 20) + SPARE_BYTES);
            let load = Load { jobs: 1 << 30, process, ..Load::default() };
            LIMITS.memory(&load, used << 20, largest << 20) >> 20
        };
        for (available, used, largest, expected, case) in [
            (20_000, 0, 100, 8192, "the limit"),
            (3000, 0, 100, 3000, "what is left"),
            (3000, 500, 100, 3500, "what jobs have is theirs"),
            (3000, 5000, 100, 4024, "but no more than they hold"),
            (10, 0, 900, 900, "the largest job can run alone"),
            (10, 0, 9000, 8192, "if it may run at all"),
        ] {
            assert_eq!(memory(available, used, largest), expected, "{case}");
        }
        assert_eq!(LIMITS.memory(&Load::default(), 0, 0), 8 << 30);
        let scarce = Load { cores: 8.0, process: with_available(SPARE_BYTES - 1), ..Load::default() };
        assert_eq!(LIMITS.cores(&scarce, 0), 0);
    }

    #[test]
    fn small_container_runs_one_job_where_two_would_be_killed() {
        let limits_of = |max: u64, available: u64| ProcessLimits {
            memory_bytes: Some(max << 20),
            available_bytes: Some(available << 20),
            cores: 1.5,
        };
        // 170 MiB, of which the server has 55; a job takes 60.
        let limits = Limits { memory: limit_memory(u64::MAX, &limits_of(170, 115), 55 << 20), ..LIMITS };
        assert!((90 << 20..=94 << 20).contains(&limits.memory), "{}", limits.memory);
        let memory = |available: u64, used: u64, jobs: u64| {
            let load = Load { jobs: jobs << 20, process: limits_of(170, available), ..Load::default() };
            limits.memory(&load, used << 20, 60 << 20) >> 20
        };
        assert!((60..120).contains(&memory(115, 0, 0)));
        assert!(memory(115, 60, 0) < 120, "the job has only begun");
        assert!(memory(60, 60, 55) < 120, "the job runs");
        assert_eq!(limit_memory(10 << 20, &limits_of(170, 115), 55 << 20), 10 << 20, "less was asked for");
        assert_eq!(limit_memory(10 << 20, &ProcessLimits::default(), 0), 10 << 20, "no limit is known");
        assert_eq!(limit_memory(u64::MAX, &limits_of(20, 5), 55 << 20), 0);
        let load = Load { cores: 64.0, process: limits_of(170, 115), ..Load::default() };
        assert_eq!(LIMITS.cores(&load, 0), 2);
    }

    #[test]
    fn watch_sees_memory_that_another_process_takes() {
        let (sender, loads) = mpsc::channel();
        let (_server, stop) = watch::channel(false);
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            // Ends when the receiver is dropped.
            runtime.block_on(watch(move |load| sender.send(load).is_ok(), stop));
        });
        let available = || loads.recv().unwrap().process.available_bytes.unwrap();
        let becomes = |holds: &dyn Fn(u64) -> bool| (0..60).any(|_| holds(available()));
        let initial = available();
        // Large, so that other processes' changes make no difference.
        let amount = (initial / 4).min(1 << 30);
        let mut tail = Command::new("tail");
        tail.args(["-c", &amount.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = tail.spawn().unwrap();
        // `tail` keeps the last bytes until its input ends.
        let mut input = child.stdin.take().unwrap();
        io::copy(&mut io::repeat(0).take(amount), &mut input).unwrap();
        assert!(becomes(&|bytes| bytes < initial - amount / 2), "{initial} bytes before, {amount} were taken");
        let during = available();
        let load = Load { process: with_available(during), ..Load::default() };
        assert!(Limits { memory: u64::MAX, ..LIMITS }.memory(&load, 0, 0) < initial - amount / 2);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(becomes(&|bytes| bytes > during + amount / 2), "{during} bytes meanwhile, {amount} were given back");
    }

    #[test]
    fn widest_job_can_start() {
        let load = Load { cores: 8.0, busy: 8.0, ..Load::default() };
        assert_eq!(Limits { widest: 3, ..LIMITS }.cores(&load, 0), 3);
    }
}
