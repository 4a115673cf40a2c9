//! Processor time and memory of a party: its root processes and all their descendants.
//!
//! `/proc/PID/stat` gives a process's own time and, once it has waited for them, that of its children. A child that ends between two
//! samples moves from "own" to its parent's "children" when the parent waits for it; where nobody of the tree does (the parent is gone
//! or ignores its children) its last known time is kept here. So totals never decrease, and nothing is counted twice.
use crate::record::PartySample;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::Read;
use std::ops::{Add, AddAssign};
use std::path::{Path, PathBuf};

/// Processor time in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    user: u64,
    system: u64,
}

impl Ticks {
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self { user: f(self.user, other.user), system: f(self.system, other.system) }
    }

    fn minus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

impl Add for Ticks {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

impl AddAssign for Ticks {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// One reading of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Start time: tells a process from a later one with the same id.
    start: u64,
    own: Ticks,
    children: Ticks,
    resident_pages: u64,
}

impl Stat {
    /// `None` for anything else than a live process or a zombie that still waits to be reaped.
    fn parse(bytes: &[u8]) -> Option<Self> {
        // The name may hold spaces and parentheses, so fields are counted from the last one.
        let after = bytes.iter().rposition(|&b| b == b')')? + 1;
        let fields: Vec<&str> = std::str::from_utf8(bytes.get(after..)?).ok()?.split_ascii_whitespace().collect();
        // X: being reaped. Its parent has its time already (the kernel adds it after this state is set).
        if matches!(*fields.first()?, "X" | "x") {
            return None;
        }
        let number = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
        // Children's times are signed in the file.
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            own: Ticks { user: number(11)?, system: number(12)? },
            children: Ticks { user: number(13).unwrap_or(0), system: number(14).unwrap_or(0) },
            start: number(19)?,
            resident_pages: number(21).unwrap_or(0),
        })
    }

    fn total(&self) -> Ticks {
        self.own + self.children
    }
}

/// A party's processes.
pub struct ProcessTree {
    proc: PathBuf,
    /// Whether the kernel lists a thread's children; else all processes are walked over.
    lists_children: bool,
    roots: BTreeSet<u32>,
    /// Processes in sight, as last seen.
    seen: BTreeMap<u32, Stat>,
    /// Time of ended processes that no process in sight has taken over.
    kept: Ticks,
    /// By the process that may still take it over: time of processes that ended just now.
    pending: BTreeMap<u32, Ticks>,
    /// What the processes had used before they were added.
    before: Ticks,
    /// Largest total told so far.
    shown: Ticks,
    peak_bytes: u64,
    page_bytes: u64,
    seconds_per_tick: f64,
    buffer: Vec<u8>,
}

impl ProcessTree {
    /// A tree without processes; `proc` is `/proc`.
    #[must_use]
    pub fn new(proc: impl Into<PathBuf>) -> Self {
        let proc = proc.into();
        Self {
            lists_children: proc.join("thread-self/children").exists(),
            proc,
            roots: BTreeSet::new(),
            seen: BTreeMap::new(),
            kept: Ticks::default(),
            pending: BTreeMap::new(),
            before: Ticks::default(),
            shown: Ticks::default(),
            peak_bytes: 0,
            page_bytes: rustix::param::page_size() as u64,
            seconds_per_tick: 1.0 / rustix::param::clock_ticks_per_second().max(1) as f64,
            buffer: Vec::with_capacity(4096),
        }
    }

    /// Adds a process and its descendants; their time counts from now on. False if there is no such process.
    pub fn add(&mut self, pid: u32) -> bool {
        let Some(stat) = self.read(pid) else { return false };
        self.roots.insert(pid);
        let mut before = Ticks::default();
        for (pid, stat) in std::iter::once((pid, stat)).chain(self.descendants(&[pid])) {
            if self.seen.insert(pid, stat).is_none() {
                before += stat.total();
            }
        }
        self.before += before;
        true
    }

    /// Whether root process `pid` is still in sight.
    #[must_use]
    pub fn is_alive(&self, pid: u32) -> bool {
        self.seen.contains_key(&pid)
    }

    /// The state now. `discover` looks for new descendants as well, which costs more; the time of a process that begins and ends
    /// between two discoveries is still counted if its parent is in sight and waits for it.
    pub fn sample(&mut self, discover: bool) -> PartySample {
        let (live, gone) = self.look();
        // What each process in sight has newly taken over from children.
        let mut taken: BTreeMap<u32, Ticks> =
            live.iter().map(|(pid, stat)| (*pid, stat.children.minus(self.seen[pid].children))).collect();
        let heir = |mut pid: u32| loop {
            if live.contains_key(&pid) {
                return Some(pid);
            }
            pid = gone.get(&pid)?.parent;
        };
        let mut settle = |pid: u32, ticks: Ticks| {
            let Some(heir) = heir(pid) else { return (None, ticks) };
            let credit = taken.entry(heir).or_default();
            let rest = ticks.minus(*credit);
            *credit = credit.minus(ticks);
            (Some(heir), rest)
        };
        let (mut kept, mut pending) = (Ticks::default(), BTreeMap::<u32, Ticks>::new());
        // Second chance for what was pending: its parent may have been read just before it reaped the child.
        for (pid, ticks) in std::mem::take(&mut self.pending) {
            kept += settle(pid, ticks).1;
        }
        for stat in gone.values() {
            match settle(stat.parent, stat.total()) {
                (Some(heir), rest) => *pending.entry(heir).or_default() += rest,
                (None, rest) => kept += rest,
            }
        }
        self.kept += kept;
        self.pending = pending;
        self.seen = live;
        if discover {
            self.discover();
        }
        self.figures()
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
        let mut total = self.kept;
        self.seen.values().map(Stat::total).chain(self.pending.values().copied()).for_each(|t| total += t);
        self.shown = self.shown.zip(total.minus(self.before), u64::max);
        let pages: u64 = self.seen.values().map(|s| s.resident_pages).sum();
        let rss_bytes = pages.saturating_mul(self.page_bytes);
        self.peak_bytes = self.peak_bytes.max(rss_bytes);
        PartySample {
            user_s: self.shown.user as f64 * self.seconds_per_tick,
            system_s: self.shown.system as f64 * self.seconds_per_tick,
            rss_bytes,
            processes: u32::try_from(self.seen.len()).unwrap_or(u32::MAX),
        }
    }

    fn read(&mut self, pid: u32) -> Option<Stat> {
        read_stat(&self.proc, pid, &mut self.buffer)
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
                let table = table.get_or_insert_with(|| parents(&self.proc));
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

fn read_stat(proc: &Path, pid: u32, buffer: &mut Vec<u8>) -> Option<Stat> {
    let file = File::open(proc.join(format!("{pid}/stat"))).ok()?;
    buffer.clear();
    file.take(4096).read_to_end(buffer).ok()?;
    Stat::parse(buffer)
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
fn parents(proc: &Path) -> BTreeMap<u32, Vec<u32>> {
    let mut table = BTreeMap::<u32, Vec<u32>>::new();
    let mut buffer = Vec::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if let Some(stat) = read_stat(proc, pid, &mut buffer) {
            table.entry(stat.parent).or_default().push(pid);
        }
    }
    table
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
