//! The sampling thread.
use super::config::{SamplerConfig, Stopped};
use super::power::{Metered, usage};
use crate::MeterError;
use crate::energy;
use crate::process_tree::{ProcessTree, Since};
use crate::record::{InterfaceSample, Line, Mark, Note, PartySample, Sample, Summary};
use crate::record_file::RecordWriter;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;
use tacit_measure::clock::{monotonic_ns, thread_cpu_s};
use tacit_measure::usage::{Cgroup, HostReader, NetReader, Roots, busy_s, is_in_other_namespace, link_bytes};

/// Shortest time between two searches for new descendants, except for requested samples and for new
/// parties: programs start most of their processes early.
const DISCOVER_EVERY_S: f64 = 1.0;

/// Most marks and notes of one record: a flood from a program must fill neither memory nor disk.
pub(super) const MAX_ENTRIES: u64 = 100_000;

pub(super) enum Command {
    Add { party: String, pid: u32, since: Since, reply: SyncSender<bool> },
    Ended { pid: u32, user: Duration, system: Duration },
    Mark(Mark),
    Note(f64, String),
    SampleNow(SyncSender<()>),
    Stop,
}

/// A party's processes, and its own interfaces and cgroup if any.
struct Party {
    tree: ProcessTree,
    pids: Vec<u32>,
    net: Option<NetReader>,
    cgroup: Option<Cgroup>,
    last: PartySample,
    bytes: Option<u64>,
}

pub(super) struct Worker {
    interval_ns: u64,
    roots: Roots,
    counted_interfaces: Option<Vec<String>>,
    keep_samples: bool,
    host: HostReader,
    net: Option<NetReader>,
    sources: Vec<Metered>,
    parties: BTreeMap<String, Party>,
    writer: Option<RecordWriter>,
    started_ns: u64,
    discovered: f64,
    added_at: f64,
    last_t: f64,
    missed: u64,
    samples: Vec<Sample>,
    marks: Vec<Mark>,
    notes: Vec<Note>,
    sample_count: u64,
    entry_count: u64,
    lost_lines: u64,
    dropped: Arc<AtomicU64>,
}

impl Worker {
    pub(super) fn new(
        config: SamplerConfig,
        writer: Option<RecordWriter>,
        started_ns: u64,
        dropped: Arc<AtomicU64>,
    ) -> Result<Self, MeterError> {
        Ok(Self {
            interval_ns: u64::try_from(config.interval.as_nanos()).unwrap_or(u64::MAX),
            host: HostReader::open(&config.roots)?,
            net: NetReader::open(config.roots.proc.join("self/net/dev")).ok(),
            roots: config.roots,
            counted_interfaces: config.counted_interfaces,
            keep_samples: config.keep_samples,
            sources: config.sources.into_iter().map(Metered::new).collect(),
            parties: BTreeMap::new(),
            writer,
            started_ns,
            discovered: f64::NEG_INFINITY,
            last_t: f64::NEG_INFINITY,
            missed: 0,
            samples: Vec::new(),
            marks: Vec::new(),
            added_at: 0.0,
            notes: Vec::new(),
            sample_count: 0,
            entry_count: 0,
            lost_lines: 0,
            dropped,
        })
    }

    pub(super) fn run(mut self, inbox: &Receiver<Command>) -> Stopped {
        self.sample(true);
        let mut deadline = self.started_ns.saturating_add(self.interval_ns);
        loop {
            let wait = deadline.saturating_sub(monotonic_ns());
            match inbox.recv_timeout(Duration::from_nanos(wait)) {
                Err(RecvTimeoutError::Timeout) => {
                    self.sample(false);
                    // The next deadline in the future.
                    let missed = monotonic_ns().saturating_sub(deadline) / self.interval_ns;
                    self.missed += missed;
                    deadline = deadline.saturating_add(self.interval_ns.saturating_mul(missed + 1));
                }
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(command) => self.obey(command),
            }
        }
        self.sample(true);
        self.into_stopped()
    }

    fn now(&self) -> f64 {
        monotonic_ns().saturating_sub(self.started_ns) as f64 * 1e-9
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Add { party, pid, since, reply } => {
                let added = self.add(party, pid, since);
                let _ = reply.send(added);
            }
            Command::Ended { pid, user, system } => {
                self.parties.values_mut().for_each(|party| party.tree.ended(pid, user, system));
            }
            Command::Mark(_) | Command::Note(..) if self.entry_count >= MAX_ENTRIES => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Command::Mark(mark) => {
                self.entry_count += 1;
                // Takes a sample at the edge of a phase, unless one is near or marks flood in.
                if self.now() - self.last_t >= (self.interval_ns as f64 * 1e-10).max(1e-3) {
                    self.sample(false);
                }
                let line = Line::Mark(mark);
                self.write(&line);
                if let (true, Line::Mark(mark)) = (self.keep_samples, line) {
                    self.marks.push(mark);
                }
            }
            Command::Note(t, text) => {
                self.entry_count += 1;
                self.note_at(t, text);
            }
            Command::SampleNow(reply) => {
                self.sample(true);
                let _ = reply.send(());
            }
            Command::Stop => {}
        }
    }

    fn add(&mut self, name: String, pid: u32, since: Since) -> bool {
        let party = self.parties.remove(&name);
        let is_known = party.is_some();
        let mut party = party.unwrap_or_else(|| Party::new(&self.roots));
        let added = party.tree.add(pid, since);
        if added {
            self.added_at = self.now();
            party.pids.push(pid);
            party.find_own(&self.roots);
        }
        if added || is_known {
            self.parties.insert(name, party);
        }
        added
    }

    /// Takes one sample; a full one also reads sources that are not due and finds new processes.
    fn sample(&mut self, is_full: bool) {
        let mut sample = Sample { t: self.now(), ..Sample::default() };
        // Samples within the clock's resolution would have an empty interval between them.
        if sample.t <= self.last_t {
            return;
        }
        let discover = is_full || sample.t - self.discovered >= DISCOVER_EVERY_S.min((sample.t - self.added_at) / 4.0);
        if discover {
            self.discovered = sample.t;
        }
        match self.host.cores() {
            Ok(cores) => sample.cores = cores,
            Err(error) => self.note_once(&error.into()),
        }
        sample.memory_bytes = self.host.memory_bytes().unwrap_or(0);
        let host_bytes = self.sample_host_net(&mut sample.interfaces);
        let mut party_bytes = None;
        for (name, party) in &mut self.parties {
            sample.parties.insert(name.clone(), party.sample(discover, &self.roots));
            if let Some(bytes) = party.sample_net(name, &mut sample.interfaces) {
                party_bytes = Some(party_bytes.unwrap_or(0) + bytes);
            }
        }
        let bytes = self.counted_bytes(&sample.interfaces).or(party_bytes).unwrap_or(host_bytes);
        let usage = usage(sample.t, busy_s(&sample.cores), bytes);
        let mut remarks = Vec::new();
        for metered in self.sources.iter_mut().filter(|m| is_full || m.is_due(sample.t)) {
            let (rails, remark) = metered.read(&usage, self.started_ns);
            if let Some(rails) = rails {
                sample.power.insert(metered.source.info().name.clone(), rails);
            }
            remarks.extend(remark);
        }
        self.last_t = sample.t;
        self.sample_count += 1;
        let line = Line::Sample(sample);
        self.write(&line);
        if let (true, Line::Sample(sample)) = (self.keep_samples, line) {
            self.samples.push(sample);
        }
        remarks.into_iter().for_each(|remark| self.note_at(self.last_t, remark));
    }

    fn sample_host_net(&mut self, interfaces: &mut BTreeMap<String, InterfaceSample>) -> u64 {
        let Some(read) = self.net.as_mut().and_then(|net| net.read().ok()) else { return 0 };
        let read: Vec<(&str, InterfaceSample)> = read.collect();
        interfaces.extend(read.iter().map(|(name, sample)| ((*name).to_owned(), *sample)));
        link_bytes(read.into_iter())
    }

    /// Bytes of the chosen interfaces, if any.
    fn counted_bytes(&self, interfaces: &BTreeMap<String, InterfaceSample>) -> Option<u64> {
        let chosen = self.counted_interfaces.as_ref()?;
        Some(chosen.iter().filter_map(|name| interfaces.get(name)).map(|i| i.rx_bytes.saturating_add(i.tx_bytes)).sum())
    }

    fn write(&mut self, line: &Line) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = writer.append(line) {
            self.lost_lines += 1;
            if self.lost_lines == 1 {
                // In memory only, because the disk refuses it.
                let text = format!("{error}; sampling goes on, what was written before is whole");
                self.notes.push(Note { t: self.now(), text });
            }
        }
    }

    fn note_at(&mut self, t: f64, text: String) {
        let note = Note { t, text };
        self.notes.push(note.clone());
        self.write(&Line::Note(note));
    }

    fn note_once(&mut self, error: &MeterError) {
        let text = error.to_string();
        if !self.notes.iter().any(|n| n.text == text) {
            self.note_at(self.now(), text);
        }
    }

    fn into_stopped(mut self) -> Stopped {
        let duration_s = self.last_t.max(0.0);
        let mut summary = Summary { duration_s, ..Summary::default() };
        let (mut uncovered, mut covered) = (Vec::new(), BTreeMap::new());
        for metered in &self.sources {
            let info = metered.source.info();
            match metered.energy() {
                Some((joules, span)) => {
                    let mut figure = energy::gross(joules, duration_s, info.provenance);
                    figure.mean_w = joules / span;
                    summary.energy.insert(info.name.clone(), figure);
                    covered.insert(info.name.clone(), span);
                    if span < duration_s * 0.99 {
                        uncovered.push(format!("power source {} saw {span:.3} s of {duration_s:.3} s", info.name));
                    }
                }
                None => uncovered.push(format!("power source {} gave no energy", info.name)),
            }
        }
        uncovered.into_iter().for_each(|text| self.note_at(duration_s, text));
        if self.missed > 0 {
            self.note_at(duration_s, format!("{} samples are missing: the host or a source was too slow", self.missed));
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            let text =
                format!("{dropped} marks or notes were dropped: they came too fast, or were more than {MAX_ENTRIES}");
            self.note_at(duration_s, text);
        }
        if self.lost_lines > 0 {
            self.note_at(duration_s, format!("{} lines are lost: they could not be written", self.lost_lines));
        }
        let mut party_bytes = BTreeMap::new();
        for (name, mut party) in std::mem::take(&mut self.parties) {
            party.describe_gaps(&name).into_iter().for_each(|text| self.note_at(duration_s, text));
            summary.parties.insert(name.clone(), PartySample { rss_bytes: party.tree.peak_bytes(), ..party.last });
            party_bytes.extend(party.bytes.map(|bytes| (name, bytes)));
        }
        Stopped {
            summary,
            samples: self.samples,
            marks: self.marks,
            notes: self.notes,
            sources: self.sources.into_iter().map(|m| m.source).collect(),
            party_bytes,
            sampler_cpu_s: thread_cpu_s(),
            sample_count: self.sample_count,
            lost_lines: self.lost_lines,
            covered,
            writer: self.writer,
        }
    }
}

impl Party {
    fn new(roots: &Roots) -> Self {
        let (last, bytes) = (PartySample::default(), None);
        Self { tree: ProcessTree::new(&roots.proc), pids: Vec::new(), net: None, cgroup: None, last, bytes }
    }

    /// Finds a party's own network namespace and cgroup, which a program may enter (`ip netns exec`,
    /// `systemd-run`) some time after its start.
    fn find_own(&mut self, roots: &Roots) {
        if self.net.is_none()
            && let Some(pid) = self.pids.iter().find(|&&pid| is_in_other_namespace(&roots.proc, pid))
        {
            self.net = NetReader::open(roots.proc.join(format!("{pid}/net/dev"))).ok();
        }
        if self.cgroup.is_none() {
            self.cgroup = self.pids.iter().find_map(|pid| Cgroup::of_process(roots, *pid));
        }
    }

    fn sample(&mut self, discover: bool, roots: &Roots) -> PartySample {
        if discover {
            self.find_own(roots);
            self.cgroup.as_mut().map(Cgroup::read);
        }
        self.last = self.tree.sample(discover);
        self.last
    }

    fn describe_gaps(&mut self, name: &str) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.tree.unwatched() > 0 {
            remarks.push(format!(
                "party {name}: {} times a process ended that no process in sight waited for; what it did after its \
                 last sample is not counted",
                self.tree.unwatched()
            ));
        }
        if let Some(cgroup_figures) = self.cgroup.as_mut().map(Cgroup::read) {
            let memory =
                cgroup_figures.peak_bytes.map_or(String::new(), |bytes| format!(", and held {bytes} bytes at most"));
            let (cgroup_s, seen_s) = (cgroup_figures.cpu_s, self.last.user_s + self.last.system_s);
            remarks.push(format!(
                "party {name}: its cgroup used {cgroup_s:.3} CPU seconds since it was found{memory}; the processes in \
                 sight used {seen_s:.3} CPU seconds"
            ));
        }
        remarks
    }

    fn sample_net(&mut self, party: &str, interfaces: &mut BTreeMap<String, InterfaceSample>) -> Option<u64> {
        let read: Vec<(&str, InterfaceSample)> = self.net.as_mut()?.read().ok()?.collect();
        interfaces.extend(read.iter().map(|(name, sample)| (format!("{party}:{name}"), *sample)));
        self.bytes = Some(link_bytes(read.into_iter()));
        self.bytes
    }
}
