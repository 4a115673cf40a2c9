//! Processor time and memory of a party, from `/proc`: its root processes and all their
//! descendants.
//!
//! A process's own time is that of its CPU clock. The clock is exact, except that a running thread
//! counts up to the scheduler's last tick (1 to 10 ms ago). `/proc/PID/stat` reports the time of
//! its reaped children, and the split into user and kernel time, in whole ticks of 10 ms. So a
//! process that waits for children is off by less than two ticks for any number of children. The
//! process that reaps a root reports its exact time ([`ProcessTree::ended`], `wait4`).
//!
//! Not visible: a process whose parents ended before it was found (a daemon that forks twice), and
//! kernel work for no process. If no visible process waits for a visible one, its work after the
//! last sample is lost; such ends are counted ([`ProcessTree::unwatched`]). A
//! [`Cgroup`](tacit_measure::usage::Cgroup) sees all of these.
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::ops::{Add, AddAssign};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tacit_measure::sample::PartySample;
use tacit_measure::usage::high_water_bytes;

/// CPU clock of a process, nanoseconds; `None` if there is no such process.
type Clock = Box<dyn Fn(u32) -> Option<u64> + Send>;

/// Processor time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Time {
    user: u64,
    system: u64,
}

impl Time {
    fn from_ticks(ticks: [u64; 2], tick_ns: u64) -> Self {
        let [user, system] = ticks.map(|ticks| ticks.saturating_mul(tick_ns));
        Self { user, system }
    }

    fn total(self) -> u64 {
        self.user.saturating_add(self.system)
    }

    /// Raises the sum to at least `total`. User and kernel time, each truncated to ticks, get equal
    /// parts of the rest, since the true split is unknown.
    fn raised_to(self, total: u64) -> Self {
        let unassigned = total.saturating_sub(self.total());
        Self { user: self.user + unassigned / 2, system: self.system + unassigned.div_ceil(2) }
    }

    /// The later figure `now`, less `before`; neither part is smaller than in `self`. The totals
    /// decide, because a later reading may split them more exactly.
    fn risen_to(self, now: Self, before: Self) -> Self {
        let total = now.total().saturating_sub(before.total()).max(self.total());
        let user = now.user.saturating_sub(before.user).clamp(self.user, total - self.system);
        Self { user, system: total - user }
    }
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { user: self.user.saturating_add(other.user), system: self.system.saturating_add(other.system) }
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Start time: distinguishes a process from a later one with the same id.
    start: u64,
    own: Time,
    /// Time of its reaped children.
    children: Time,
    resident_pages: u64,
}

impl Stat {
    /// `None` for anything except a live process or a zombie.
    fn parse(bytes: &[u8], tick_ns: u64) -> Option<Self> {
        // The name may hold spaces and parentheses, so fields are counted from the last one.
        let after = bytes.iter().rposition(|&b| b == b')')? + 1;
        let fields: Vec<&str> = std::str::from_utf8(bytes.get(after..)?).ok()?.split_ascii_whitespace().collect();
        // X: being reaped. Its parent's time is about to include its own.
        if matches!(*fields.first()?, "X" | "x") {
            return None;
        }
        let number = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
        // Children's times are signed in the file.
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            own: Time::from_ticks([number(11)?, number(12)?], tick_ns),
            children: Time::from_ticks([number(13).unwrap_or(0), number(14).unwrap_or(0)], tick_ns),
            start: number(19)?,
            resident_pages: number(21).unwrap_or(0),
        })
    }

    fn total(&self) -> Time {
        self.own + self.children
    }
}

/// Start of the counted time of an added process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The start of the process: for one that was just started for the measurement.
    Birth,
    /// The moment of the call.
    Now,
}

/// A party's processes.
pub struct ProcessTree {
    proc: PathBuf,
    /// Whether the kernel lists a thread's children; otherwise all processes are searched.
    lists_children: bool,
    /// `None` if `proc` is of another process namespace, or the kernel has no such clocks: then all
    /// times are in ticks.
    clock: Option<Clock>,
    /// Added processes, with their time after they ended.
    roots: BTreeMap<u32, Time>,
    /// Visible processes as last seen, each after its parent: a child is read later, so its time
    /// never counts both as its own and as its parent's.
    processes: Vec<(u32, Stat)>,
    /// Time of ended processes that no other figure includes.
    ended_time: Time,
    unwatched: u64,
    /// Time of the processes before they were added.
    before: Time,
    reported: Time,
    peak_bytes: u64,
    page_bytes: u64,
    tick_ns: u64,
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
            processes: Vec::new(),
            ended_time: Time::default(),
            unwatched: 0,
            before: Time::default(),
            reported: Time::default(),
            peak_bytes: 0,
            page_bytes: rustix::param::page_size() as u64,
            tick_ns: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
        }
    }

    /// Adds a process and its descendants. False if there is no such process.
    pub fn add(&mut self, pid: u32, since: Since) -> bool {
        let Some(stat) = self.read(pid) else { return false };
        // An earlier process with the same id.
        self.ended_time += self.roots.insert(pid, Time::default()).unwrap_or_default();
        for (pid, stat) in std::iter::once((pid, stat)).chain(self.descendants(&[pid])) {
            if !self.processes.iter().any(|(known_pid, _)| *known_pid == pid) {
                self.processes.push((pid, stat));
                if since == Since::Now {
                    self.before += stat.total();
                }
            }
        }
        true
    }

    /// Reports the lifetime use of an added process and its reaped children, as `wait4` returned it.
    pub fn ended(&mut self, pid: u32, user: Duration, system: Duration) {
        let Some(root) = self.roots.get_mut(&pid) else { return };
        let in_sight = self.processes.len();
        self.processes.retain(|(seen_pid, _)| *seen_pid != pid);
        // Still visible as a zombie, or sampled since it was reaped.
        if self.processes.len() < in_sight || *root != Time::default() {
            let [user, system] = [user, system].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            *root = Time { user, system };
        }
    }

    /// The present state. `discover` also searches for new descendants, which costs more: the time
    /// of a process that is never found still counts if a visible parent waits for it.
    pub fn sample(&mut self, discover: bool) -> PartySample {
        self.look();
        if discover {
            let known_pids: Vec<u32> = self.processes.iter().map(|(pid, _)| *pid).collect();
            let new = self.descendants(&known_pids);
            self.processes.extend(new);
            let high_water = known_pids.iter().filter_map(|pid| high_water_bytes(&self.proc.join(pid.to_string())));
            self.peak_bytes = high_water.fold(self.peak_bytes, u64::max);
        }
        self.figures()
    }

    /// Largest resident set of the tree at any sample, or of any of its processes (bytes).
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Number of processes that ended without a visible process that waited for them.
    #[must_use]
    pub fn unwatched(&self) -> u64 {
        self.unwatched
    }

    /// Reads the visible processes until none ends during a pass: the time of a child that ended
    /// after its parent was read would be missing in both.
    fn look(&mut self) {
        let (before, mut ended_processes) = (self.processes.clone(), BTreeMap::new());
        loop {
            let ended_count = ended_processes.len();
            for (pid, old) in std::mem::take(&mut self.processes) {
                match self.read(pid) {
                    Some(now) if now.start == old.start => self.processes.push((pid, now)),
                    _ => _ = ended_processes.insert(pid, old),
                }
            }
            if ended_processes.len() == ended_count {
                break;
            }
        }
        if !ended_processes.is_empty() {
            self.settle(&before, &ended_processes);
        }
    }

    /// Adds the time of ended processes that no visible parent has taken over.
    fn settle(&mut self, before: &[(u32, Stat)], ended_processes: &BTreeMap<u32, Stat>) {
        let live: BTreeMap<u32, Stat> = self.processes.iter().copied().collect();
        let mut owed = BTreeMap::<u32, Time>::new();
        for (pid, stat) in ended_processes {
            // Follows ancestors that ended as well. A reused id could close a circle, so the number
            // of steps is limited.
            let ancestors = std::iter::successors(Some(stat.parent), |pid| ended_processes.get(pid).map(|s| s.parent));
            let heir = ancestors.take(ended_processes.len() + 1).find(|p| live.contains_key(p));
            if let Some(heir) = heir {
                *owed.entry(heir).or_default() += stat.total();
            } else if let Some(root) = self.roots.get_mut(pid) {
                *root += stat.total();
            } else {
                self.ended_time += stat.total();
                self.unwatched += 1;
            }
        }
        let slack_ns = if self.clock.is_some() { 2 * self.tick_ns } else { 0 };
        for (pid, old) in before {
            let (Some(now), Some(owed)) = (live.get(pid), owed.get(pid)) else { continue };
            // A parent that ignores the end of its children does not get their time.
            let reaped_ns = now.children.total().saturating_add(slack_ns);
            let missing = (old.children + *owed).total().saturating_sub(reaped_ns);
            if missing > 0 {
                let user = (owed.user as f64 / owed.total() as f64 * missing as f64).round() as u64;
                self.ended_time += Time { user, system: missing.saturating_sub(user) };
                self.unwatched += 1;
            }
        }
    }

    fn figures(&mut self) -> PartySample {
        let seen_times = self.processes.iter().map(|(_, stat)| stat.total());
        let total = seen_times.chain(self.roots.values().copied()).fold(self.ended_time, Time::add);
        self.reported = self.reported.risen_to(total, self.before);
        let pages: u64 = self.processes.iter().map(|(_, stat)| stat.resident_pages).sum();
        let rss_bytes = pages.saturating_mul(self.page_bytes);
        self.peak_bytes = self.peak_bytes.max(rss_bytes);
        PartySample {
            user_s: self.reported.user as f64 * 1e-9,
            system_s: self.reported.system as f64 * 1e-9,
            rss_bytes,
            processes: u32::try_from(self.processes.len()).unwrap_or(u32::MAX),
        }
    }

    fn read(&self, pid: u32) -> Option<Stat> {
        let mut stat = Stat::parse(&fs::read(self.proc.join(format!("{pid}/stat"))).ok()?, self.tick_ns)?;
        if let Some(clock) = &self.clock {
            // No clock any more: the process was just reaped.
            stat.own = stat.own.raised_to(clock(pid)?);
        }
        Some(stat)
    }

    /// Descendants of processes, excluding these, each after its parent.
    fn descendants(&self, roots: &[u32]) -> Vec<(u32, Stat)> {
        let table = (!self.lists_children).then(|| by_parent(&self.proc));
        let mut pids: BTreeSet<u32> = roots.iter().copied().collect();
        let mut queue: VecDeque<u32> = roots.iter().copied().collect();
        let mut processes = Vec::new();
        while let Some(pid) = queue.pop_front() {
            let children = match &table {
                Some(table) => table.get(&pid).cloned().unwrap_or_default(),
                None => children(&self.proc, pid),
            };
            for child in children {
                if pids.insert(child)
                    && let Some(stat) = self.read(child)
                {
                    processes.push((child, stat));
                    queue.push_back(child);
                }
            }
        }
        processes
    }
}

/// Processor time of all threads of a process in this process namespace, including ended threads,
/// in nanoseconds; `None` if there is no such process. A zombie has it until it is reaped.
fn process_cpu_ns(pid: u32) -> Option<u64> {
    let pid = i32::try_from(pid).ok().filter(|&pid| pid > 0)?;
    let time =
        nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid)).and_then(nix::time::ClockId::now).ok()?;
    u64::try_from(Duration::from(time).as_nanos()).ok()
}

/// Whether ids in `proc` are those of this process namespace, which CPU clocks use, and the kernel
/// has such clocks.
fn has_clocks(proc: &Path) -> bool {
    let (self_link, own_pid) = (fs::read_link(proc.join("self")), std::process::id());
    self_link.is_ok_and(|self_link| self_link.as_os_str() == own_pid.to_string().as_str())
        && process_cpu_ns(own_pid).is_some()
}

fn children(proc: &Path, pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(proc.join(format!("{pid}/task"))).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<u32>>()).collect()
}

fn by_parent(proc: &Path) -> BTreeMap<u32, Vec<u32>> {
    let mut table = BTreeMap::<u32, Vec<u32>>::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if let Some(stat) = fs::read(entry.path().join("stat")).ok().and_then(|bytes| Stat::parse(&bytes, 0)) {
            table.entry(stat.parent).or_default().push(pid);
        }
    }
    table
}

#[cfg(test)]
mod tests;
