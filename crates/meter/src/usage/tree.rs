//! Processor time and memory of a party: its root processes and all their descendants.
//!
//! A process's own time comes from its CPU clock, to the nanosecond (of a thread that runs at this moment, up to the scheduler's last
//! tick, 1 to 10 ms ago), with all threads that have ended, until it is reaped. `/proc/PID/stat` gives the same cut down to clock
//! ticks of 10 ms, user and kernel time apart, which is how the total is split.
//!
//! Time of children that it has waited for is known to ticks only: the truth is at most two ticks more. A child that ends between two
//! samples is expected there with what was last seen of it, if its parent's ticks allow it; what they do not allow (the parent is gone
//! or ignores its children) is kept here. So a process that waits for children is off by less than two ticks however many there are, totals
//! never decrease, and nothing is counted twice. [`ProcessTree::ended`] takes the exact time of a whole life where somebody knows it.
use super::time::Time;
use crate::clock::process_cpu_ns;
use crate::record::PartySample;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::Read;
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// CPU clock of a process, nanoseconds; `None` if there is no such process.
type Clock = Box<dyn Fn(u32) -> Option<u64> + Send>;

/// One reading of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Start time: tells a process from a later one with the same id.
    start: u64,
    own: Time,
    /// Of children that it has waited for: whole ticks when read, later the best guess.
    children: Time,
    resident_pages: u64,
}

impl Stat {
    /// `None` for anything else than a live process or a zombie that still waits to be reaped.
    fn parse(bytes: &[u8], tick_ns: u64) -> Option<Self> {
        // The name may hold spaces and parentheses, so fields are counted from the last one.
        let after = bytes.iter().rposition(|&b| b == b')')? + 1;
        let fields: Vec<&str> = std::str::from_utf8(bytes.get(after..)?).ok()?.split_ascii_whitespace().collect();
        // X: being reaped. Its parent has its time already (the kernel adds it after this state is set).
        if matches!(*fields.first()?, "X" | "x") {
            return None;
        }
        let number = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
        let time = |user: u64, system: u64| Time {
            user: user.saturating_mul(tick_ns),
            system: system.saturating_mul(tick_ns),
        };
        // Children's times are signed in the file.
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            own: time(number(11)?, number(12)?),
            children: time(number(13).unwrap_or(0), number(14).unwrap_or(0)),
            start: number(19)?,
            resident_pages: number(21).unwrap_or(0),
        })
    }

    fn total(&self) -> Time {
        self.own + self.children
    }
}

/// From when on the time of a process that is added counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Its start: for one that was started to be measured, a moment ago.
    Birth,
    /// The moment when it is added.
    Now,
}

/// A party's processes.
pub struct ProcessTree {
    proc: PathBuf,
    /// Whether the kernel lists a thread's children; else all processes are walked over.
    lists_children: bool,
    /// `None` where `proc` is of another process namespace, or the kernel has no such clocks: then all is ticks.
    clock: Option<Clock>,
    /// Processes that were added, with their time once they are gone and no process in sight has taken it over.
    roots: BTreeMap<u32, Time>,
    /// Processes in sight, as last seen.
    seen: BTreeMap<u32, Stat>,
    /// Time of other ended processes that no process in sight has taken over.
    kept: Time,
    /// By the process that may still take it over: time of processes that ended just now.
    pending: BTreeMap<u32, Time>,
    /// What the processes had used before they were added.
    before: Time,
    /// Latest figures told.
    shown: Time,
    peak_bytes: u64,
    page_bytes: u64,
    tick_ns: u64,
    buffer: Vec<u8>,
}

impl ProcessTree {
    /// A tree without processes; `proc` is `/proc`.
    #[must_use]
    pub fn new(proc: impl Into<PathBuf>) -> Self {
        let proc = proc.into();
        Self {
            lists_children: proc.join("thread-self/children").exists(),
            clock: has_clocks(&proc).then(|| Box::new(process_cpu_ns) as Clock),
            proc,
            roots: BTreeMap::new(),
            seen: BTreeMap::new(),
            kept: Time::default(),
            pending: BTreeMap::new(),
            before: Time::default(),
            shown: Time::default(),
            peak_bytes: 0,
            page_bytes: rustix::param::page_size() as u64,
            tick_ns: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
            buffer: Vec::with_capacity(4096),
        }
    }

    /// Adds a process and its descendants. False if there is no such process.
    pub fn add(&mut self, pid: u32, since: Since) -> bool {
        let Some(stat) = self.read(pid) else { return false };
        // An earlier process with the same id.
        self.kept += self.roots.insert(pid, Time::default()).unwrap_or_default();
        for (pid, stat) in std::iter::once((pid, stat)).chain(self.descendants(&[pid])) {
            if let Entry::Vacant(place) = self.seen.entry(pid) {
                let so_far = place.insert(stat).total();
                if since == Since::Now {
                    self.before += so_far;
                }
            }
        }
        true
    }

    /// Says what an added process used in its whole life, with all children that it waited for, as whoever reaped it was told
    /// (`wait4`).
    pub fn ended(&mut self, pid: u32, user: Duration, system: Duration) {
        let Some(gone) = self.roots.get_mut(&pid) else { return };
        // In sight as a zombie; or a sample was taken since it was reaped.
        if self.seen.remove(&pid).is_some() || *gone != Time::default() {
            let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            *gone = Time { user: ns(user), system: ns(system) };
        }
    }

    /// The state now. `discover` looks for new descendants as well, which costs more; the time of a process that begins and ends
    /// between two discoveries is still counted if its parent is in sight and waits for it.
    pub fn sample(&mut self, discover: bool) -> PartySample {
        let (mut live, gone) = self.look();
        let (mut new, mut late) = self.bequeath(&live, &gone);
        let slack_ns = if self.clock.is_some() { 2 * self.tick_ns } else { 0 };
        for (pid, stat) in &mut live {
            let new = new.remove(pid).unwrap_or_default();
            let inherited = new + late.remove(pid).unwrap_or_default();
            let expected = (self.seen[pid].children + inherited).total();
            let most = stat.children.total().saturating_add(slack_ns);
            stat.children = stat.children.raised_to(expected.min(most));
            let rest = expected.saturating_sub(most);
            // Second chance for what is new: the parent may have been read just before it reaped the child.
            let waiting = rest.min(new.total());
            if waiting > 0 {
                self.pending.insert(*pid, new.part(waiting));
            }
            self.kept += inherited.part(rest - waiting);
        }
        self.seen = live;
        if discover {
            self.discover();
        }
        self.figures()
    }

    /// Hands the time of processes that are gone to those in sight that may have taken it over, or else keeps it: of those that
    /// ended just now, and what was pending.
    fn bequeath(
        &mut self,
        live: &BTreeMap<u32, Stat>,
        gone: &BTreeMap<u32, Stat>,
    ) -> (BTreeMap<u32, Time>, BTreeMap<u32, Time>) {
        let heir = |mut pid: u32| {
            // A reused id could close a circle, which no chain of all that are gone is longer than.
            for _ in 0..=gone.len() {
                if live.contains_key(&pid) {
                    return Some(pid);
                }
                pid = gone.get(&pid)?.parent;
            }
            None
        };
        let (mut new, mut late) = (BTreeMap::<u32, Time>::new(), BTreeMap::<u32, Time>::new());
        for (pid, stat) in gone {
            match (heir(stat.parent), self.roots.get_mut(pid)) {
                (Some(heir), _) => *new.entry(heir).or_default() += stat.total(),
                (None, Some(root)) => *root += stat.total(),
                (None, None) => self.kept += stat.total(),
            }
        }
        for (pid, time) in std::mem::take(&mut self.pending) {
            match heir(pid) {
                Some(heir) => *late.entry(heir).or_default() += time,
                None => self.kept += time,
            }
        }
        (new, late)
    }

    /// Largest resident set of the tree at any sample, or of any of its processes at any time (bytes).
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Reads the processes in sight: those that live, as they are now, and those that are gone, as they were.
    fn look(&mut self) -> (BTreeMap<u32, Stat>, BTreeMap<u32, Stat>) {
        let (mut live, mut gone) = (BTreeMap::new(), BTreeMap::new());
        for pid in self.parents_first() {
            let old = self.seen[&pid];
            match self.read(pid) {
                Some(new) if new.start == old.start => live.insert(pid, new),
                _ => gone.insert(pid, old),
            };
        }
        (live, gone)
    }

    /// A parent is read before its children: so a child's time is never seen both as its own and as its parent's.
    fn parents_first(&self) -> Vec<u32> {
        let depth = |pid: u32| {
            let (mut depth, mut at) = (0, pid);
            while let Some(stat) = self.seen.get(&at) {
                (depth, at) = (depth + 1, stat.parent);
                // A reused id could close a circle.
                if depth > self.seen.len() {
                    break;
                }
            }
            depth
        };
        let mut pids: Vec<u32> = self.seen.keys().copied().collect();
        pids.sort_by_key(|&pid| depth(pid));
        pids
    }

    fn discover(&mut self) {
        let known: Vec<u32> = self.seen.keys().copied().collect();
        for (pid, stat) in self.descendants(&known) {
            self.seen.entry(pid).or_insert(stat);
        }
        for &pid in &known {
            let high_water = high_water_bytes(&self.proc.join(pid.to_string()));
            self.peak_bytes = self.peak_bytes.max(high_water.unwrap_or(0));
        }
    }

    fn figures(&mut self) -> PartySample {
        let gone = self.roots.values().chain(self.pending.values()).copied();
        let total = self.seen.values().map(Stat::total).chain(gone).fold(self.kept, Time::add);
        self.shown = total.since(self.before).not_below(self.shown);
        let pages: u64 = self.seen.values().map(|s| s.resident_pages).sum();
        let rss_bytes = pages.saturating_mul(self.page_bytes);
        self.peak_bytes = self.peak_bytes.max(rss_bytes);
        PartySample {
            user_s: self.shown.user as f64 * 1e-9,
            system_s: self.shown.system as f64 * 1e-9,
            rss_bytes,
            processes: u32::try_from(self.seen.len()).unwrap_or(u32::MAX),
        }
    }

    fn read(&mut self, pid: u32) -> Option<Stat> {
        let mut stat = read_stat(&self.proc, pid, self.tick_ns, &mut self.buffer)?;
        if let Some(clock) = &self.clock {
            // No clock any more: it was reaped just now.
            stat.own = stat.own.raised_to(clock(pid)?);
        }
        Some(stat)
    }

    /// Descendants of processes, without these.
    fn descendants(&mut self, of: &[u32]) -> Vec<(u32, Stat)> {
        let mut found: BTreeSet<u32> = of.iter().copied().collect();
        let mut queue: VecDeque<u32> = of.iter().copied().collect();
        let mut all = Vec::new();
        let mut table: Option<BTreeMap<u32, Vec<u32>>> = None;
        while let Some(pid) = queue.pop_front() {
            let children = if self.lists_children {
                children(&self.proc, pid)
            } else {
                let table = table.get_or_insert_with(|| parents(&self.proc, self.tick_ns));
                table.get(&pid).cloned().unwrap_or_default()
            };
            for child in children {
                if found.insert(child)
                    && let Some(stat) = self.read(child)
                {
                    all.push((child, stat));
                    queue.push_back(child);
                }
            }
        }
        all
    }
}

/// Largest resident set of a process so far (or since it was last reset), bytes; `None` where the kernel does not tell. `process` is its
/// folder: `/proc/self`, `/proc/PID`. (What `getrusage` tells instead begins with the memory of the program that started it.)
#[must_use]
pub fn high_water_bytes(process: &Path) -> Option<u64> {
    let status = fs::read(process.join("status")).ok()?;
    let kib: u64 =
        super::lines(&status).find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok())?;
    Some(kib.saturating_mul(1024))
}

/// Whether ids in `proc` are those of our own process namespace, in which CPU clocks are named, and the kernel has such clocks.
fn has_clocks(proc: &Path) -> bool {
    let (here, us) = (fs::read_link(proc.join("self")), std::process::id());
    here.is_ok_and(|here| here.as_os_str() == us.to_string().as_str()) && process_cpu_ns(us).is_some()
}

fn read_stat(proc: &Path, pid: u32, tick_ns: u64, buffer: &mut Vec<u8>) -> Option<Stat> {
    let file = File::open(proc.join(format!("{pid}/stat"))).ok()?;
    buffer.clear();
    file.take(4096).read_to_end(buffer).ok()?;
    Stat::parse(buffer, tick_ns)
}

/// Children of all threads of a process.
fn children(proc: &Path, pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for task in fs::read_dir(proc.join(format!("{pid}/task"))).into_iter().flatten().flatten() {
        if let Ok(text) = fs::read_to_string(task.path().join("children")) {
            all.extend(text.split_ascii_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        }
    }
    all
}

/// Children by parent, of all processes.
fn parents(proc: &Path, tick_ns: u64) -> BTreeMap<u32, Vec<u32>> {
    let mut table = BTreeMap::<u32, Vec<u32>>::new();
    let mut buffer = Vec::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if let Some(stat) = read_stat(proc, pid, tick_ns, &mut buffer) {
            table.entry(stat.parent).or_default().push(pid);
        }
    }
    table
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
