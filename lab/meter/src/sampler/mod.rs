//! The sampler: one thread per host that reads power, processes, cores, memory and interfaces at an interval.
//!
//! Deadlines are absolute (start + n x interval), so the interval does not drift; a missed deadline
//! is skipped and counted. A source is read no more often than its minimum interval
//! ([`SourceInfo::min_interval_ms`](crate::source::SourceInfo)); other samples omit it. The first,
//! the last and every requested sample read all sources. A phase mark causes an extra sample, so
//! that phases have exact limits.
mod config;
mod power;
mod thread;

pub use crate::process_tree::Since;
pub use config::{SamplerConfig, Stopped};

use crate::MeterError;
use crate::record::{Edge, FORMAT, Header, Mark, VERSION};
use crate::record_file::RecordWriter;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tacit_measure::clock::{monotonic_ns, unix_ns};
use thread::{Command, Worker};

/// Most commands that wait for the sampler; further marks are dropped and counted.
const QUEUE_LEN: usize = 4096;

/// A running sampler.
pub struct Sampler {
    handle: Handle,
    thread: JoinHandle<Stopped>,
}

/// Sends commands to a running sampler from any thread; no effect after it has stopped.
#[derive(Clone)]
pub struct Handle {
    commands: SyncSender<Command>,
    started_ns: u64,
    dropped: Arc<AtomicU64>,
}

impl Sampler {
    /// Starts sampling: creates the record file (if requested), writes its header and takes the
    /// first sample at once.
    ///
    /// # Errors
    /// [`MeterError::io`] if the file cannot be created, `/proc` cannot be read or the thread
    /// cannot be started; [`MeterError::malformed`] for an interval below 1 ms.
    pub fn start(config: SamplerConfig) -> Result<Self, MeterError> {
        if config.interval.as_micros() < 1000 {
            let detail = format!("{:?}, must be at least 1 ms", config.interval);
            return Err(MeterError::malformed("sampling interval", detail));
        }
        let started_ns = monotonic_ns();
        let header = Header {
            format: FORMAT.into(),
            version: VERSION,
            host: config.host.clone(),
            started_unix_ns: unix_ns(),
            interval_s: config.interval.as_secs_f64(),
            sources: config.sources.iter().map(|s| s.info().clone()).collect(),
            machine: config.machine.clone(),
            labels: config.labels.clone(),
        };
        let writer = config.output.as_ref().map(|path| RecordWriter::create(path, &header)).transpose()?;
        let (commands, inbox) = sync_channel(QUEUE_LEN);
        let dropped = Arc::new(AtomicU64::new(0));
        let worker = Worker::new(config, writer, started_ns, dropped.clone())?;
        let thread = std::thread::Builder::new()
            .name("tacit-sampler".into())
            .spawn(move || worker.run(&inbox))
            .map_err(MeterError::io("sampler thread"))?;
        Ok(Self { handle: Handle { commands, started_ns, dropped }, thread })
    }

    /// For other threads: mark listeners, waiters.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// As [`Handle::add_process`].
    pub fn add_process(&self, party: &str, pid: u32, since: Since) -> bool {
        self.handle.add_process(party, pid, since)
    }

    /// As [`Handle::mark`].
    pub fn mark(&self, party: &str, phase: &str, edge: Edge, figures: BTreeMap<String, f64>) {
        self.handle.mark(party, phase, edge, figures);
    }

    /// As [`Handle::note`].
    pub fn note(&self, text: impl Into<String>) {
        self.handle.note(text);
    }

    /// As [`Handle::sample_now`].
    pub fn sample_now(&self) {
        self.handle.sample_now();
    }

    /// Takes a last sample and ends the thread. Complete the summary and call [`Stopped::finish`].
    ///
    /// # Errors
    /// [`MeterError::malformed`] if the sampling thread panicked (a fault of a source).
    pub fn stop(self) -> Result<Stopped, MeterError> {
        let _ = self.handle.commands.send(Command::Stop);
        let died = "its thread died, likely in a power source; what was recorded before is whole";
        self.thread.join().map_err(|_| MeterError::malformed("sampler", died))
    }
}

impl Handle {
    /// Measures a process and its descendants as (part of) a party. False if there is no such
    /// process. Interfaces of its own network namespace are recorded as `PARTY:NAME`.
    pub fn add_process(&self, party: &str, pid: u32, since: Since) -> bool {
        let (reply, answer) = sync_channel(1);
        self.commands.send(Command::Add { party: party.to_owned(), pid, since, reply }).is_ok()
            && answer.recv().unwrap_or(false)
    }

    /// Marks the begin or end of a phase, now.
    pub fn mark(&self, party: &str, phase: &str, edge: Edge, figures: BTreeMap<String, f64>) {
        self.mark_at(party, phase, edge, figures, monotonic_ns());
    }

    /// As [`mark`](Self::mark), at a time of `CLOCK_MONOTONIC` of this host in nanoseconds. Never
    /// blocks: marks beyond the write speed or beyond 100,000 are dropped and counted.
    pub fn mark_at(&self, party: &str, phase: &str, edge: Edge, figures: BTreeMap<String, f64>, t_ns: u64) {
        let t = self.seconds(t_ns);
        let mark = Mark { t, party: party.to_owned(), phase: phase.to_owned(), edge, figures };
        if self.commands.try_send(Command::Mark(mark)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes a remark into the record. Never blocks, as [`mark_at`](Self::mark_at).
    pub fn note(&self, text: impl Into<String>) {
        if self.commands.try_send(Command::Note(self.seconds(monotonic_ns()), text.into())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a sample and returns after it: none of the processor time of a process that has ended
    /// and is not yet reaped is lost ([`wait_sampled`](crate::wait::wait_sampled)).
    pub fn sample_now(&self) {
        let (reply, answer) = sync_channel(1);
        if self.commands.send(Command::SampleNow(reply)).is_ok() {
            let _ = answer.recv();
        }
    }

    /// As [`ProcessTree::ended`](crate::process_tree::ProcessTree::ended).
    pub fn ended(&self, pid: u32, user: Duration, system: Duration) {
        // A stopped sampler needs no report.
        let _ = self.commands.send(Command::Ended { pid, user, system });
    }

    /// `CLOCK_MONOTONIC` at the record's `t = 0`, nanoseconds.
    #[must_use]
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Seconds of the record at a time of `CLOCK_MONOTONIC`; negative before the start.
    #[must_use]
    pub fn seconds(&self, t_ns: u64) -> f64 {
        if t_ns >= self.started_ns {
            (t_ns - self.started_ns) as f64 * 1e-9
        } else {
            (self.started_ns - t_ns) as f64 * -1e-9
        }
    }
}

#[cfg(test)]
mod tests;
