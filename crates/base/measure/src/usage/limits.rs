//! Resource limits of this process: the machine's resources, restricted by its control groups (both
//! versions, up to their root), its affinity and its resource limits. A process that exceeds its
//! group's memory is killed, and `/proc/meminfo` does not show that limit.
use super::{Roots, bytes_of_line, lines};
use std::fs;
use std::path::{Path, PathBuf};

/// Control groups of version 1 report unlimited memory as a number of bytes above this.
const NO_LIMIT: u64 = 1 << 60;

/// Present resource limits of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessLimits {
    /// Bytes of memory for this process and all others under its tightest limit; `None` if the
    /// system does not report them.
    pub memory_bytes: Option<u64>,
    /// Bytes of `memory_bytes` that are free or that the kernel can reclaim (file cache).
    pub available_bytes: Option<u64>,
    /// Processors at a time: allowed processors, or a quota, which may be a fraction; 0 if the
    /// system does not report them.
    pub cores: f64,
}

/// One memory limit and the use that counts against it; bytes.
#[derive(Clone, Copy)]
struct Limit {
    limit: u64,
    used: u64,
}

impl ProcessLimits {
    /// Reads the present limits.
    #[must_use]
    pub fn read(roots: &Roots) -> Self {
        let self_dir = roots.proc.join("self");
        let status = fs::read(self_dir.join("status")).unwrap_or_default();
        let groups = Groups::read(roots);
        let mut cores = affinity(&status);
        for folder in &groups.cpu {
            let quota = quota(folder).filter(|quota| *quota > 0.0);
            cores = quota.map_or(cores, |quota| if cores > 0.0 { cores.min(quota) } else { quota });
        }
        let limits = machine(&roots.proc).into_iter().chain(resources(&self_dir, &status));
        let limits = limits.chain(groups.memory.iter().filter_map(|folder| memory(folder)));
        let (mut memory_bytes, mut available_bytes) = (None::<u64>, None::<u64>);
        for Limit { limit, used } in limits {
            memory_bytes = memory_bytes.into_iter().chain([limit]).min();
            available_bytes = available_bytes.into_iter().chain([limit.saturating_sub(used)]).min();
        }
        Self { memory_bytes, available_bytes, cores }
    }

    /// Threads that can run at a time: whole processors, at least one.
    #[must_use]
    pub fn threads(&self) -> usize {
        // The cast saturates.
        (self.cores as usize).max(1)
    }
}

fn machine(proc: &Path) -> Option<Limit> {
    let text = fs::read(proc.join("meminfo")).ok()?;
    let (total, available) = (bytes_of_line(&text, "MemTotal:")?, bytes_of_line(&text, "MemAvailable:")?);
    Some(Limit { limit: total, used: total.saturating_sub(available) })
}

/// Processors that the process may run on; 0 if the system does not report them.
fn affinity(status: &[u8]) -> f64 {
    let mask = lines(status).find_map(|line| line.strip_prefix("Cpus_allowed:"));
    let ones: u32 = mask.map_or(0, |mask| mask.chars().filter_map(|c| c.to_digit(16)).map(u32::count_ones).sum());
    f64::from(ones)
}

/// The limits `RLIMIT_AS` and `RLIMIT_DATA` (`ulimit -v`, `-d`), with this process's use.
fn resources(self_dir: &Path, status: &[u8]) -> impl Iterator<Item = Limit> {
    let text = fs::read(self_dir.join("limits")).unwrap_or_default();
    let address_space = (parse_rlimit(&text, "Max address space"), bytes_of_line(status, "VmSize:"));
    let data = (parse_rlimit(&text, "Max data size"), bytes_of_line(status, "VmData:"));
    [address_space, data].into_iter().filter_map(|(limit, used)| Some(Limit { limit: limit?, used: used.unwrap_or(0) }))
}

/// Reads a limit in `/proc/self/limits`; `None` without a limit.
fn parse_rlimit(text: &[u8], name: &str) -> Option<u64> {
    let value = lines(text).find_map(|line| line.strip_prefix(name));
    value.and_then(|value_text| value_text.split_ascii_whitespace().next()?.parse::<u64>().ok())
}

/// The folders of the control groups of this process, from its own up to the visible root.
#[derive(Default)]
struct Groups {
    memory: Vec<PathBuf>,
    cpu: Vec<PathBuf>,
}

impl Groups {
    fn read(roots: &Roots) -> Self {
        let self_dir = roots.proc.join("self");
        let [groups, mounts] = ["cgroup", "mountinfo"].map(|file| fs::read(self_dir.join(file)).unwrap_or_default());
        let mut found_groups = Self::default();
        for line in lines(&groups) {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let (unified, memory, cpu) =
                (controllers.is_empty(), lists(controllers, "memory"), lists(controllers, "cpu"));
            let controller = if memory { "memory" } else { "cpu" };
            if !(unified || memory || cpu) {
                continue;
            }
            let mount = lines(&mounts).filter_map(Mount::parse).find(|mount| match unified {
                true => mount.kind == "cgroup2",
                false => mount.kind == "cgroup" && lists(mount.options, controller),
            });
            let folders = mount.map(|mount| mount.folders(roots, path)).unwrap_or_default();
            if unified || memory {
                found_groups.memory.extend(folders.iter().cloned());
            }
            if unified || cpu {
                found_groups.cpu.extend(folders);
            }
        }
        found_groups
    }
}

fn lists(list: &str, name: &str) -> bool {
    list.split(',').any(|entry| entry == name)
}

struct Mount<'a> {
    /// The mounted part of its file system.
    root: String,
    /// The mount point.
    point: String,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (unescape_mounts(fields.next()?), unescape_mounts(fields.next()?));
        let mut fields = kind.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        Some(Self { root, point, kind, options })
    }

    /// The folders of the group `path` and of all groups above it that this mount contains.
    fn folders(&self, roots: &Roots, path: &str) -> Vec<PathBuf> {
        let point = match Path::new(&self.point).strip_prefix("/sys") {
            Ok(inside) => roots.sys.join(inside),
            Err(_) => PathBuf::from(&self.point),
        };
        // A container may see its own group as the root, under a path from outside.
        let inside = Path::new(path).strip_prefix(&self.root).ok();
        let inside = inside.filter(|inside| !inside.iter().any(|part| part == "..")).unwrap_or(Path::new(""));
        inside.ancestors().map(|part| point.join(part)).collect()
    }
}

/// Decodes the table of mounts, in which spaces and the like are written as `\040`.
fn unescape_mounts(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => plain.push_str(part),
        }
    }
    plain
}

/// The number in a file; `None` for `max` or a missing file.
fn number(folder: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
}

/// The memory limit of a group, if any. Memory that the kernel can reclaim does not count as used.
fn memory(folder: &Path) -> Option<Limit> {
    let stat = fs::read(folder.join("memory.stat")).unwrap_or_default();
    // Above `memory.high` the kernel slows a group down until it uses less.
    let unified = [number(folder, "memory.max"), number(folder, "memory.high")].into_iter().flatten().min();
    if let Some(limit) = unified {
        let used = number(folder, "memory.current").unwrap_or(0);
        let reclaimable = sum(&stat, &["inactive_file", "active_file", "slab_reclaimable"]);
        return Some(Limit { limit, used: used.saturating_sub(reclaimable) });
    }
    // Includes limits of groups above this one that are not mounted here.
    let above = sum(&stat, &["hierarchical_memory_limit"]);
    let limits = [number(folder, "memory.limit_in_bytes"), Some(above).filter(|above| *above > 0)];
    let limit = limits.into_iter().flatten().min().filter(|limit| *limit < NO_LIMIT)?;
    let used = number(folder, "memory.usage_in_bytes").unwrap_or(0);
    Some(Limit { limit, used: used.saturating_sub(sum(&stat, &["total_inactive_file", "total_active_file"])) })
}

/// Adds the values of lines such as `inactive_file 4096`.
fn sum(stat: &[u8], names: &[&str]) -> u64 {
    let values = names.iter().filter_map(|name| {
        lines(stat).find_map(|line| line.strip_prefix(*name)?.strip_prefix(' ')?.parse::<u64>().ok())
    });
    values.fold(0, u64::saturating_add)
}

/// CPU quota of a group in processors, if limited.
fn quota(folder: &Path) -> Option<f64> {
    if let Ok(text) = fs::read_to_string(folder.join("cpu.max")) {
        let mut fields = text.split_ascii_whitespace();
        let (quota, period) = (fields.next()?.parse::<f64>().ok()?, fields.next()?.parse::<f64>().ok()?);
        return Some(quota / period).filter(|share| share.is_finite());
    }
    // No quota is -1, which does not parse as a number here.
    let (quota, period) = (number(folder, "cpu.cfs_quota_us")?, number(folder, "cpu.cfs_period_us")?);
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests;
