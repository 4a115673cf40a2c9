use super::*;
use crate::usage::tests::Fake;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A machine of 1000 MiB, 600 of them available, and four processors.
fn machine_folder() -> Fake {
    let fake = Fake::new();
    fake.write_file("proc/meminfo", "MemTotal: 1024000 kB\nMemFree: 1 kB\nMemAvailable: 614400 kB\n");
    fake.write_file(
        "proc/self/status",
        "Name:\tx\nVmSize:\t  102400 kB\nVmData:\t 51200 kB\nCpus_allowed:\t00000000,0000000f\n",
    );
    fake
}

/// Total and available memory, MiB; processors.
fn limits(fake: &Fake) -> (u64, u64, f64) {
    let limits = ProcessLimits::read(&fake.roots());
    (limits.memory_bytes.unwrap() / MIB, limits.available_bytes.unwrap() / MIB, limits.cores)
}

#[test]
fn without_limits_the_machine_counts() {
    let fake = machine_folder();
    assert_eq!(limits(&fake), (1000, 600, 4.0));
    fake.write_file("proc/self/limits", "Limit Soft Hard Units\nMax address space unlimited unlimited bytes\n");
    fake.write_file("proc/self/cgroup", "4:memory:/a\n0::/b\nrubbish\n");
    fake.write_file("proc/self/mountinfo", "rubbish\n30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    fake.write_group("b/memory.max", "max");
    fake.write_group("b/cpu.max", "max 100000");
    assert_eq!(limits(&fake), (1000, 600, 4.0));
    let nothing = ProcessLimits::read(&Roots { proc: "/nonexistent".into(), sys: "/nonexistent".into() });
    assert_eq!(nothing, ProcessLimits::default());
    assert_eq!(nothing.threads(), 1);
}

#[test]
fn all_groups_up_to_the_root_of_version_2_count() {
    let fake = machine_folder();
    fake.write_file("proc/self/cgroup", "0::/pod/box\n");
    fake.write_file("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    fake.write_group("pod/box/memory.max", 500 * MIB);
    fake.write_group("pod/box/memory.current", 90 * MIB);
    let stat = format!("anon 1\ninactive_file {}\nactive_file {}\nslab_reclaimable 0", 20 * MIB, 10 * MIB);
    fake.write_group("pod/box/memory.stat", stat);
    // File cache can be reclaimed.
    assert_eq!(limits(&fake), (500, 440, 4.0));
    fake.write_group("pod/memory.max", 400 * MIB);
    fake.write_group("pod/memory.current", 380 * MIB);
    fake.write_group("pod/cpu.max", "150000 100000");
    // Other processes of the pod use most of its memory.
    assert_eq!(limits(&fake), (400, 20, 1.5));
    fake.write_group("pod/box/memory.high", 300 * MIB);
    fake.write_group("pod/box/cpu.max", "300000 100000");
    assert_eq!(limits(&fake), (300, 20, 1.5));
    fake.write_group("memory.max", 8 * MIB);
    // The visible root is a container's own group.
    assert_eq!(limits(&fake).0, 8);
}

#[test]
fn all_groups_up_to_the_root_of_version_1_count() {
    let fake = machine_folder();
    fake.write_file("proc/self/cgroup", "9:cpu,cpuacct:/pod\n4:memory:/pod/a b\n1:name=systemd:/x\n0::/\n");
    fake.write_file(
        "proc/self/mountinfo",
        "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         31 24 0:27 / /sys/fs/cgroup/cpu\\054cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
    );
    let unlimited = "9223372036854771712";
    fake.write_group("memory/memory.limit_in_bytes", unlimited);
    fake.write_group("memory/pod/a b/memory.limit_in_bytes", unlimited);
    fake.write_group("cpu,cpuacct/pod/cpu.cfs_quota_us", "-1");
    fake.write_group("cpu,cpuacct/pod/cpu.cfs_period_us", "100000");
    assert_eq!(limits(&fake), (1000, 600, 4.0));
    fake.write_group("memory/pod/memory.limit_in_bytes", 170 * MIB);
    fake.write_group("memory/pod/memory.usage_in_bytes", 100 * MIB);
    fake.write_group("memory/pod/memory.stat", format!("total_inactive_file {}", 30 * MIB));
    fake.write_group("cpu,cpuacct/pod/cpu.cfs_quota_us", "50000");
    assert_eq!(limits(&fake), (170, 100, 0.5));
}

#[test]
fn groups_above_the_visible_root_of_a_container_count() {
    let fake = machine_folder();
    fake.write_file("proc/self/cgroup", "4:memory:/docker/abc\n");
    fake.write_file(
        "proc/self/mountinfo",
        "30 24 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
    );
    fake.write_group("memory/memory.limit_in_bytes", 300 * MIB);
    assert_eq!(limits(&fake), (300, 300, 4.0));
    fake.write_group("memory/memory.stat", format!("cache 5\nhierarchical_memory_limit {}", 200 * MIB));
    assert_eq!(limits(&fake), (200, 200, 4.0));
    // In its own namespace a process may see a path outside of it.
    fake.write_file("proc/self/cgroup", "4:memory:/../other\n");
    assert_eq!(limits(&fake), (200, 200, 4.0));
}

#[test]
fn resource_limits_count_the_use_of_the_process() {
    let fake = machine_folder();
    let limits_with = |space: &str, data: &str| {
        fake.write_file(
            "proc/self/limits",
            &format!("Max data size {data} {data} bytes\nMax address space {space} 9 bytes\n"),
        );
        limits(&fake)
    };
    assert_eq!(limits_with(&(400 * MIB).to_string(), "unlimited"), (400, 300, 4.0));
    assert_eq!(limits_with(&(400 * MIB).to_string(), &(120 * MIB).to_string()), (120, 70, 4.0));
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

const PRINTS: &str = "usage::limits::tests::prints_limits";

#[test]
#[ignore = "other tests run it in processes with limits"]
fn prints_limits() {
    let ProcessLimits { memory_bytes, available_bytes, cores } = ProcessLimits::read(&Roots::default());
    println!("limits: {} {} {cores}", memory_bytes.unwrap(), available_bytes.unwrap());
    assert!(cores > 0.0);
}

#[test]
fn address_space_limit_is_read() {
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
fn memory_group_of_this_kernel_is_read() {
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
