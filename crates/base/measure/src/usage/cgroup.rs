//! Resource use of a cgroup (version 2): all its processes, including those that a walk over
//! parents and children cannot see.
use super::{Roots, lines};
use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup that belongs to a measured program alone, such as a scope of systemd or a container.
pub struct Cgroup {
    folder: PathBuf,
    /// Processor seconds before it was found.
    before_s: f64,
    /// Last reading, because the cgroup may be removed together with its last process.
    last: CgroupUsage,
}

/// Resource use of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CgroupUsage {
    /// Processor seconds since it was found.
    pub cpu_s: f64,
    /// Peak memory (bytes; with file cache); `None` before Linux 5.19 or without the controller.
    pub peak_bytes: Option<u64>,
}

impl Cgroup {
    /// The cgroup of a process, if it has version 2 and is not this process's own.
    #[must_use]
    pub fn of_process(roots: &Roots, pid: u32) -> Option<Self> {
        let (process_group, own_group) = (group(&roots.proc, &pid.to_string())?, group(&roots.proc, "self")?);
        let folder = roots.sys.join("fs/cgroup").join(&process_group);
        let mut reader = Self { folder, before_s: 0.0, last: CgroupUsage::default() };
        reader.before_s = reader.cpu_s().filter(|_| process_group != own_group)?;
        Some(reader)
    }

    /// The use until now, or until the cgroup was removed.
    pub fn read(&mut self) -> CgroupUsage {
        if let Some(cpu_s) = self.cpu_s() {
            let peak = fs::read_to_string(self.folder.join("memory.peak")).ok();
            let peak_bytes = peak.and_then(|text| text.trim().parse().ok());
            self.last = CgroupUsage { cpu_s: (cpu_s - self.before_s).max(self.last.cpu_s), peak_bytes };
        }
        self.last
    }

    fn cpu_s(&self) -> Option<f64> {
        let text = fs::read(self.folder.join("cpu.stat")).ok()?;
        let micros: u64 = lines(&text).find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok())?;
        Some(micros as f64 * 1e-6)
    }
}

fn group(proc: &Path, process: &str) -> Option<String> {
    let text = fs::read_to_string(proc.join(process).join("cgroup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("0::/").map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::tests::Fake;

    #[test]
    fn own_cgroup_is_read_until_it_is_removed() {
        let fake = Fake::new();
        let roots = fake.roots();
        fake.write_file("proc/self/cgroup", "12:cpu:/old\n0::/user.slice\n");
        fake.write_file("proc/7/cgroup", "0::/user.slice\n");
        fake.write_file("proc/8/cgroup", "0::/run-1.scope\n");
        fake.write_file("proc/9/cgroup", "12:cpu:/version-1\n");
        fake.write_group("user.slice/cpu.stat", "usage_usec 1");
        fake.write_group("run-1.scope/cpu.stat", "usage_usec 2000000\nuser_usec 1\nsystem_usec 1");
        assert!([7, 9, 10].iter().all(|pid| Cgroup::of_process(&roots, *pid).is_none()), "ours, version 1, none");
        let mut cgroup = Cgroup::of_process(&roots, 8).unwrap();
        assert_eq!(cgroup.read(), CgroupUsage::default());
        fake.write_group("run-1.scope/cpu.stat", "usage_usec 3500000");
        fake.write_group("run-1.scope/memory.peak", 4096);
        let used = CgroupUsage { cpu_s: 1.5, peak_bytes: Some(4096) };
        assert_eq!(cgroup.read(), used);
        fs::remove_dir_all(roots.sys).unwrap();
        assert_eq!(cgroup.read(), used);
    }
}
