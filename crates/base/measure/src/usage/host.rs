//! Cores and memory of the host.
use super::{Kept, Roots, bytes_of_line, lines};
use crate::MeasureError;
use crate::sample::CoreSample;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Shortest time between reads of frequencies from `/sys`; those from `/proc/cpuinfo` are read at
/// most every second. On some machines these reads wake every core.
const SYS_INTERVAL: Duration = Duration::from_millis(100);
const CPUINFO_INTERVAL: Duration = Duration::from_secs(1);

/// Reads `/proc/stat`, `/proc/meminfo` and the cores' frequencies.
pub struct HostReader {
    stat: Kept,
    meminfo: Option<Kept>,
    frequencies: Frequencies,
    seconds_per_tick: f64,
    /// By core: user, system, idle ticks now and at the start; `None` for unused numbers.
    cores: Vec<Option<([u64; 3], [u64; 3])>>,
}

impl HostReader {
    /// Opens the files; counters count from now.
    ///
    /// # Errors
    /// [`MeasureError::Io`] if `/proc/stat` cannot be read.
    pub fn open(roots: &Roots) -> Result<Self, MeasureError> {
        let mut reader = Self {
            stat: Kept::open(roots.proc.join("stat"))?,
            meminfo: Kept::open(roots.proc.join("meminfo")).ok(),
            frequencies: Frequencies::default(),
            seconds_per_tick: 1.0 / rustix::param::clock_ticks_per_second().max(1) as f64,
            cores: Vec::new(),
        };
        reader.update()?;
        reader.frequencies = Frequencies::open(roots, reader.cores.len());
        Ok(reader)
    }

    /// The present state of the cores.
    ///
    /// # Errors
    /// [`MeasureError::Io`] if `/proc/stat` cannot be read.
    pub fn cores(&mut self) -> Result<Vec<CoreSample>, MeasureError> {
        self.update()?;
        self.frequencies.refresh();
        let cores = self.cores.iter().enumerate().filter_map(|(number, core)| {
            let (current, start) = (*core)?;
            let [user_s, system_s, idle_s] =
                [0, 1, 2].map(|i: usize| current[i].saturating_sub(start[i]) as f64 * self.seconds_per_tick);
            Some(CoreSample { user_s, system_s, idle_s, mhz: self.frequencies.mhz(number) })
        });
        Ok(cores.collect())
    }

    /// Memory in use (all that is not available without swapping), bytes; `None` if the kernel does
    /// not report it.
    pub fn memory_bytes(&mut self) -> Option<u64> {
        let text = self.meminfo.as_mut()?.read().ok()?;
        Some(bytes_of_line(text, "MemTotal:")?.saturating_sub(bytes_of_line(text, "MemAvailable:")?))
    }

    fn update(&mut self) -> Result<(), MeasureError> {
        for line in lines(self.stat.read()?) {
            let Some((number, ticks)) = core_line(line) else { continue };
            if number >= self.cores.len() {
                self.cores.resize(number + 1, None);
            }
            // Counters here never decrease, although the kernel's idle time does on some machines.
            let slot = self.cores[number].get_or_insert((ticks, ticks));
            for (old, new) in slot.0.iter_mut().zip(ticks) {
                *old = (*old).max(new);
            }
        }
        Ok(())
    }
}

/// A core's number and its user, system and idle ticks. Time stolen by a hypervisor does not count.
fn core_line(line: &str) -> Option<(usize, [u64; 3])> {
    let mut fields = line.split_ascii_whitespace();
    let number = fields.next()?.strip_prefix("cpu")?.parse::<usize>().ok().filter(|&n| n < 65_536)?;
    let mut ticks = [0_u64; 7];
    for (i, slot) in ticks.iter_mut().enumerate() {
        match fields.next().map(str::parse) {
            Some(Ok(value)) => *slot = value,
            _ if i < 4 => return None,
            _ => break,
        }
    }
    let [user, nice, system, idle, io_wait, interrupts, soft_interrupts] = ticks;
    Some((number, [sum(&[user, nice]), sum(&[system, interrupts, soft_interrupts]), sum(&[idle, io_wait])]))
}

/// Adds counters; a sum that is too large stays at the largest number.
fn sum(parts: &[u64]) -> u64 {
    parts.iter().fold(0_u64, |a, &b| a.saturating_add(b))
}

#[derive(Default)]
struct Frequencies {
    /// By core: `/sys/devices/system/cpu/cpuN/cpufreq/scaling_cur_freq`.
    files: Vec<Option<Kept>>,
    /// Fallback without those files: `cpu MHz` lines of `/proc/cpuinfo`.
    cpuinfo: Option<Kept>,
    mhz: Vec<Option<f64>>,
    read: Option<Instant>,
}

impl Frequencies {
    fn open(roots: &Roots, cores: usize) -> Self {
        let paths = (0..cores).map(|n| roots.sys.join(format!("devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq")));
        let files: Vec<Option<Kept>> = paths.map(|path| Kept::open(path).ok()).collect();
        let none = files.iter().all(Option::is_none);
        let cpuinfo = if none { Kept::open(roots.proc.join("cpuinfo")).ok() } else { None };
        Self { files, cpuinfo, mhz: vec![None; cores], read: None }
    }

    fn refresh(&mut self) {
        let every = if self.cpuinfo.is_some() { CPUINFO_INTERVAL } else { SYS_INTERVAL };
        if self.read.is_some_and(|read| read.elapsed() < every) {
            return;
        }
        self.read = Some(Instant::now());
        if let Some(Ok(text)) = self.cpuinfo.as_mut().map(Kept::read) {
            return parse_cpuinfo(text, &mut self.mhz);
        }
        for (file, slot) in self.files.iter_mut().zip(&mut self.mhz) {
            let khz = file.as_mut().and_then(|f| std::str::from_utf8(f.read().ok()?).ok()?.trim().parse::<u32>().ok());
            *slot = khz.map(|khz| f64::from(khz) / 1e3);
        }
    }

    fn mhz(&self, core: usize) -> Option<f64> {
        *self.mhz.get(core)?
    }
}

fn parse_cpuinfo(text: &[u8], mhz: &mut [Option<f64>]) {
    mhz.fill(None);
    let mut core = None;
    for line in lines(text) {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "processor" => core = value.trim().parse::<usize>().ok(),
            "cpu MHz" => {
                let value = value.trim().parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
                if let Some(slot) = core.and_then(|c| mhz.get_mut(c)) {
                    *slot = value;
                }
            }
            _ => {}
        }
    }
}

/// Seconds that all cores together were busy.
#[must_use]
pub fn busy_s(cores: &[CoreSample]) -> f64 {
    cores.iter().map(|c| c.user_s + c.system_s).sum()
}

/// Whether process `pid` lives in another network namespace than this process.
#[must_use]
pub fn is_in_other_namespace(proc: &Path, pid: u32) -> bool {
    match (namespace(proc, &pid.to_string()), namespace(proc, "self")) {
        (Some(theirs), Some(ours)) => theirs != ours,
        _ => false,
    }
}

fn namespace(proc: &Path, process: &str) -> Option<PathBuf> {
    std::fs::read_link(proc.join(process).join("ns/net")).ok()
}

#[cfg(test)]
mod tests;
