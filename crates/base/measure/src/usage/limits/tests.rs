use super::*;
use std::process::Command;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A machine of 1000 MiB, 600 of them available, and four processors.
struct Fake {
    folder: TempDir,
}

impl Fake {
    fn new() -> Self {
        let fake = Self { folder: tempfile::tempdir().unwrap() };
        fake.write_file("proc/meminfo", "MemTotal: 1024000 kB\nMemFree: 1 kB\nMemAvailable: 614400 kB\n");
        fake.write_file(
            "proc/self/status",
            "Name:\tx\nVmSize:\t  102400 kB\nVmData:\t 51200 kB\nCpus_allowed:\t00000000,0000000f\n",
        );
        fake
    }

    fn write_file(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Total and available memory, MiB; processors.
    fn limits(&self) -> (u64, u64, f64) {
        let root = self.folder.path();
        let limits = ProcessLimits::read(&Roots { proc: root.join("proc"), sys: root.join("sys") });
        (limits.memory_bytes.unwrap() / MIB, limits.available_bytes.unwrap() / MIB, limits.cores)
    }
}

#[test]
fn without_limits_it_is_what_the_machine_has() {
    let fake = Fake::new();
    assert_eq!(fake.limits(), (1000, 600, 4.0));
    fake.write_file("proc/self/limits", "Limit Soft Hard Units\nMax address space unlimited unlimited bytes\n");
    fake.write_file("proc/self/cgroup", "4:memory:/a\n0::/b\nrubbish\n");
    fake.write_file("proc/self/mountinfo", "rubbish\n30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    fake.write_file("sys/fs/cgroup/b/memory.max", "max\n");
    fake.write_file("sys/fs/cgroup/b/cpu.max", "max 100000\n");
    assert_eq!(fake.limits(), (1000, 600, 4.0));
    let nothing = ProcessLimits::read(&Roots { proc: "/nonexistent".into(), sys: "/nonexistent".into() });
    assert_eq!(nothing, ProcessLimits::default());
    assert_eq!(nothing.threads(), 1);
}

#[test]
fn every_group_up_to_the_root_of_version_2_has_a_say() {
    let fake = Fake::new();
    fake.write_file("proc/self/cgroup", "0::/pod/box\n");
    fake.write_file("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    fake.write_file("sys/fs/cgroup/pod/box/memory.max", &format!("{}\n", 500 * MIB));
    fake.write_file("sys/fs/cgroup/pod/box/memory.current", &format!("{}\n", 90 * MIB));
    let stat = format!("anon 1\ninactive_file {}\nactive_file {}\nslab_reclaimable 0\n", 20 * MIB, 10 * MIB);
    fake.write_file("sys/fs/cgroup/pod/box/memory.stat", &stat);
    assert_eq!(fake.limits(), (500, 440, 4.0), "file cache can be taken back");
    fake.write_file("sys/fs/cgroup/pod/memory.max", &format!("{}\n", 400 * MIB));
    fake.write_file("sys/fs/cgroup/pod/memory.current", &format!("{}\n", 380 * MIB));
    fake.write_file("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
    assert_eq!(fake.limits(), (400, 20, 1.5), "others of the pod have most of it");
    fake.write_file("sys/fs/cgroup/pod/box/memory.high", &format!("{}\n", 300 * MIB));
    fake.write_file("sys/fs/cgroup/pod/box/cpu.max", "300000 100000\n");
    assert_eq!(fake.limits(), (300, 20, 1.5));
    fake.write_file("sys/fs/cgroup/memory.max", &format!("{}\n", 8 * MIB));
    assert_eq!(fake.limits().0, 8, "the root that is seen is a container's own");
}

#[test]
fn every_group_up_to_the_root_of_version_1_has_a_say() {
    let fake = Fake::new();
    fake.write_file("proc/self/cgroup", "9:cpu,cpuacct:/pod\n4:memory:/pod/a b\n1:name=systemd:/x\n0::/\n");
    fake.write_file(
        "proc/self/mountinfo",
        "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         31 24 0:27 / /sys/fs/cgroup/cpu\\054cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
    );
    let unlimited = "9223372036854771712\n";
    fake.write_file("sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited);
    fake.write_file("sys/fs/cgroup/memory/pod/a b/memory.limit_in_bytes", unlimited);
    fake.write_file("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "-1\n");
    fake.write_file("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n");
    assert_eq!(fake.limits(), (1000, 600, 4.0));
    fake.write_file("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", &format!("{}\n", 170 * MIB));
    fake.write_file("sys/fs/cgroup/memory/pod/memory.usage_in_bytes", &format!("{}\n", 100 * MIB));
    fake.write_file("sys/fs/cgroup/memory/pod/memory.stat", &format!("total_inactive_file {}\n", 30 * MIB));
    fake.write_file("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "50000\n");
    assert_eq!(fake.limits(), (170, 100, 0.5));
}

#[test]
fn a_container_that_sees_its_group_as_the_root_is_limited_by_those_above() {
    let fake = Fake::new();
    fake.write_file("proc/self/cgroup", "4:memory:/docker/abc\n");
    fake.write_file(
        "proc/self/mountinfo",
        "30 24 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
    );
    fake.write_file("sys/fs/cgroup/memory/memory.limit_in_bytes", &format!("{}\n", 300 * MIB));
    assert_eq!(fake.limits(), (300, 300, 4.0));
    fake.write_file("sys/fs/cgroup/memory/memory.stat", &format!("cache 5\nhierarchical_memory_limit {}\n", 200 * MIB));
    assert_eq!(fake.limits(), (200, 200, 4.0));
    // In its own namespace a process may see a path outside of it.
    fake.write_file("proc/self/cgroup", "4:memory:/../other\n");
    assert_eq!(fake.limits(), (200, 200, 4.0));
}

#[test]
fn resource_limits_count_what_the_process_has() {
    let fake = Fake::new();
    let limits = |space: &str, data: &str| {
        fake.write_file(
            "proc/self/limits",
            &format!("Max data size {data} {data} bytes\nMax address space {space} 9 bytes\n"),
        );
        fake.limits()
    };
    assert_eq!(limits(&(400 * MIB).to_string(), "unlimited"), (400, 300, 4.0));
    assert_eq!(limits(&(400 * MIB).to_string(), &(120 * MIB).to_string()), (120, 70, 4.0));
}

/// Runs a test of this program that prints its limits, in a shell after `before`.
fn describe_limits(before: &str) -> (u64, u64, f64) {
    let program = std::env::current_exe().unwrap();
    let script = format!("{before} exec \"$0\" --ignored --exact {PRINTS} --nocapture --test-threads=1");
    let run = Command::new("sh").arg("-c").arg(script).arg(&program).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("limits: ")).unwrap_or_else(|| panic!("{run:?}")).1;
    let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<f64>().unwrap());
    let mut next_field = || fields.next().unwrap();
    (next_field() as u64 / MIB, next_field() as u64 / MIB, next_field())
}

const PRINTS: &str = "usage::limits::tests::prints_what_it_may_use";

#[test]
#[ignore = "other tests run it in processes with limits"]
fn prints_what_it_may_use() {
    let ProcessLimits { memory_bytes, available_bytes, cores } = ProcessLimits::read(&Roots::default());
    println!("limits: {} {} {cores}", memory_bytes.unwrap(), available_bytes.unwrap());
    assert!(cores > 0.0);
}

#[test]
fn a_limit_of_address_space_is_seen() {
    let (memory, available, cores) = describe_limits("ulimit -v 1048576;");
    assert_eq!(memory, 1024);
    assert!(available < 1024, "{available} of it, and the program is there");
    let threads = std::thread::available_parallelism().unwrap().get();
    assert_eq!((cores as usize).max(1), threads, "{cores}");
    let (free, _, _) = describe_limits("");
    assert!(free > 1024, "this test needs a machine with more than a gigabyte, and has {free} MiB");
}

/// A control group of version 1 or 2, removed on drop.
struct Group(PathBuf);

impl Group {
    /// A group below this process's own with a memory limit, or the reason why there is none.
    fn limited(bytes: u64) -> Result<Self, String> {
        let groups = Groups::read(&Roots::default());
        let memory_group = groups.memory.iter().find(|folder| folder.join("memory.stat").exists());
        let memory_group = memory_group.ok_or("no control group of memory is mounted")?;
        let group = Self(memory_group.join(format!("tacit-test-{}", std::process::id())));
        fs::create_dir(&group.0).map_err(|e| format!("{}: {e}", group.0.display()))?;
        let file =
            ["memory.limit_in_bytes", "memory.max"].map(|file| group.0.join(file)).into_iter().find(|f| f.exists());
        let file = file.ok_or("the group does not limit memory")?;
        fs::write(&file, bytes.to_string()).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).ok();
    }
}

#[test]
fn a_group_of_this_kernel_is_seen() {
    match Group::limited(170 * MIB) {
        Ok(group) => {
            let (memory, available, _) = describe_limits(&format!("echo $$ > '{}/cgroup.procs';", group.0.display()));
            assert_eq!(memory, 170);
            assert!((100..170).contains(&available), "{available} MiB");
        }
        Err(why) => {
            let limits = ProcessLimits::read(&Roots::default());
            eprintln!("not tried with a group of its own: {why}");
            assert!(limits.available_bytes <= limits.memory_bytes && limits.memory_bytes.is_some());
        }
    }
}
