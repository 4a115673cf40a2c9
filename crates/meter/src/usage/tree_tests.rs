use super::*;
use std::io::Write;
use std::process::{Command, Stdio};

/// A `/proc` of our own.
struct Fake {
    folder: tempfile::TempDir,
}

/// `(pid, parent, user, system, children's user, children's system, resident pages)`.
type Process = (u32, u32, u64, u64, u64, u64, u64);

impl Fake {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn put(&self, process: Process) {
        self.put_as(process, "a name) R (", 'S', u64::from(process.0));
    }

    fn put_as(&self, (pid, parent, user, system, cuser, csystem, rss): Process, name: &str, state: char, start: u64) {
        let folder = self.folder.path().join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let stat = format!(
            "{pid} ({name}) {state} {parent} 1 1 0 -1 4194304 100 0 0 0 {user} {system} {cuser} {csystem} 20 0 1 0 {start} 1196008 {rss} 18446744073709551615 1\n"
        );
        fs::write(folder.join("stat"), stat).unwrap();
    }

    fn remove(&self, pid: u32) {
        fs::remove_dir_all(self.folder.path().join(pid.to_string())).unwrap();
    }

    fn tree(&self, pid: u32) -> ProcessTree {
        let mut tree = ProcessTree::new(self.folder.path());
        (tree.page_bytes, tree.seconds_per_tick) = (4096, 0.01);
        assert!(tree.add(pid));
        tree
    }
}

fn ticks(sample: &PartySample) -> (u64, u64) {
    ((sample.user_s * 100.0).round() as u64, (sample.system_s * 100.0).round() as u64)
}

#[test]
fn descendants_count_and_strangers_do_not() {
    let fake = Fake::new();
    fake.put((10, 1, 5, 1, 0, 0, 100));
    fake.put((11, 10, 7, 2, 0, 0, 200));
    fake.put((12, 11, 9, 3, 1, 1, 300));
    fake.put((20, 1, 1000, 1000, 0, 0, 1000));
    let mut tree = fake.tree(10);
    let first = tree.sample(true);
    assert_eq!((ticks(&first), first.processes, first.rss_bytes), ((0, 0), 3, 600 * 4096), "time counts from now on");
    fake.put((12, 11, 19, 4, 1, 1, 50));
    fake.put((13, 10, 30, 40, 0, 0, 10));
    let blind = tree.sample(false);
    assert_eq!((ticks(&blind), blind.processes), ((10, 1), 3), "not looked for");
    let all = tree.sample(true);
    assert_eq!((ticks(&all), all.processes, all.rss_bytes), ((40, 41), 4, 360 * 4096));
    assert_eq!(tree.peak_bytes(), 600 * 4096);
}

#[test]
fn a_child_that_its_parent_reaps_is_counted_once() {
    let fake = Fake::new();
    fake.put((10, 1, 0, 0, 0, 0, 0));
    fake.put((11, 10, 50, 20, 0, 0, 0));
    let mut tree = ProcessTree::new(fake.folder.path());
    tree.seconds_per_tick = 0.01;
    fake.remove(11);
    assert!(tree.add(10));
    fake.put((11, 10, 50, 20, 0, 0, 0));
    assert_eq!(ticks(&tree.sample(true)), (50, 20));
    // It works on, ends, and is reaped together with a child that was never in sight.
    fake.remove(11);
    fake.put((10, 1, 0, 0, 60 + 5, 25, 0));
    assert_eq!(ticks(&tree.sample(true)), (65, 25));
    assert_eq!(ticks(&tree.sample(true)), (65, 25));
}

#[test]
fn a_child_reaped_right_after_its_parent_was_read_is_counted_once() {
    let fake = Fake::new();
    fake.put((10, 1, 0, 0, 0, 0, 0));
    let mut tree = fake.tree(10);
    fake.put((11, 10, 50, 20, 0, 0, 0));
    assert_eq!(ticks(&tree.sample(true)), (50, 20));
    fake.remove(11);
    assert_eq!(ticks(&tree.sample(false)), (50, 20), "gone, and nobody has taken it over yet");
    fake.put((10, 1, 0, 0, 52, 20, 0));
    assert_eq!(ticks(&tree.sample(false)), (52, 20));
    fake.put((10, 1, 1, 0, 52, 20, 0));
    assert_eq!(ticks(&tree.sample(false)), (53, 20));
}

#[test]
fn a_child_that_nobody_waits_for_keeps_its_time() {
    let fake = Fake::new();
    fake.put((10, 1, 3, 0, 0, 0, 0));
    let mut tree = fake.tree(10);
    fake.put((11, 10, 50, 20, 0, 0, 0));
    fake.put((12, 11, 4, 4, 0, 0, 0));
    assert_eq!(ticks(&tree.sample(true)), (54, 24));
    // 11 ends unwaited for, 12 goes to init and works on.
    fake.remove(11);
    fake.put((12, 1, 5, 5, 0, 0, 0));
    for _ in 0..4 {
        assert_eq!(ticks(&tree.sample(true)), (55, 25));
    }
    fake.remove(12);
    fake.put((10, 1, 4, 0, 0, 0, 0));
    assert_eq!(ticks(&tree.sample(true)), (56, 25));
    // A later child that is reaped counts by itself: the earlier ones are settled.
    fake.put((10, 1, 4, 0, 7, 7, 0));
    assert_eq!(ticks(&tree.sample(true)), (63, 32));
}

#[test]
fn a_whole_branch_that_ends_at_once_is_counted_once() {
    let fake = Fake::new();
    fake.put((10, 1, 0, 0, 0, 0, 0));
    let mut tree = fake.tree(10);
    fake.put((11, 10, 10, 1, 0, 0, 0));
    fake.put((12, 11, 20, 2, 0, 0, 0));
    fake.put((13, 12, 40, 4, 0, 0, 0));
    assert_eq!(ticks(&tree.sample(true)), (70, 7));
    // 12 reaped 13, 11 reaped 12, 10 reaped 11; each had worked a little more.
    (11..=13).for_each(|pid| fake.remove(pid));
    fake.put((10, 1, 0, 0, 73, 8, 0));
    assert_eq!(ticks(&tree.sample(true)), (73, 8));
    assert_eq!(ticks(&tree.sample(true)), (73, 8));
}

#[test]
fn a_process_that_is_being_reaped_and_a_reused_id_are_told_apart() {
    let fake = Fake::new();
    fake.put((10, 1, 0, 0, 0, 0, 0));
    let mut tree = fake.tree(10);
    fake.put((11, 10, 50, 20, 0, 0, 0));
    assert_eq!(ticks(&tree.sample(true)), (50, 20));
    fake.put((10, 1, 0, 0, 50, 20, 0));
    fake.put_as((11, 10, 50, 20, 0, 0, 0), "x", 'X', 11);
    assert_eq!(ticks(&tree.sample(true)), (50, 20));
    // Another program's process now has the id of ours.
    fake.put_as((11, 1, 900, 900, 0, 0, 0), "other", 'R', 999);
    assert_eq!(ticks(&tree.sample(true)), (50, 20));
}

#[test]
fn broken_stat_files_are_no_process() {
    let good = b"7 (x) S 1 1 1 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 1 0 99 1196008 5 18446744073709551615";
    assert_eq!(Stat::parse(good).unwrap().total(), Ticks { user: 4, system: 6 });
    for end in 0..good.len() - 24 {
        let _ = Stat::parse(&good[..end]);
    }
    for broken in [
        &b""[..],
        b")",
        b"7 (x",
        b"7 (x) S",
        b"7 (x) S -1",
        b"7 (\xff\xff) \xff",
        b"7 (x) S 1 a b c d e f g h i j k l m n o p q r s t u",
    ] {
        assert!(Stat::parse(broken).is_none(), "{broken:?}");
    }
    assert!(!ProcessTree::new("/nonexistent").add(1));
}

#[test]
fn two_real_programs_with_children_are_measured_and_never_run_backwards() {
    // Each starts short-lived busy children one after the other, once it is told to.
    let script = "read go; for i in 1 2 3 4 5 6; do ( j=0; while [ $j -lt 60000 ]; do j=$((j+1)); done ); done";
    let start = || Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
    let mut children = [start(), start()];
    let mut trees = children.each_ref().map(|child| {
        let mut tree = ProcessTree::new("/proc");
        assert!(tree.add(child.id()));
        tree
    });
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut last = [PartySample::default(); 2];
    let mut ended = [false; 2];
    let mut n = 0;
    while !ended.iter().all(|e| *e) {
        for (i, tree) in trees.iter_mut().enumerate() {
            // Read before the sample: what it used until then must be in it.
            let zombie = fs::read(format!("/proc/{}/stat", children[i].id())).unwrap();
            let now = tree.sample(n % 5 == 0);
            assert!(now.user_s >= last[i].user_s && now.system_s >= last[i].system_s, "{now:?} after {:?}", last[i]);
            last[i] = now;
            ended[i] = String::from_utf8_lossy(&zombie).contains(") Z ");
        }
        n += 1;
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    for (i, child) in children.iter_mut().enumerate() {
        let stat = Stat::parse(&fs::read(format!("/proc/{}/stat", child.id())).unwrap()).unwrap();
        let truth = (stat.total().user + stat.total().system) as f64 * trees[i].seconds_per_tick;
        let told = last[i].user_s + last[i].system_s;
        // Each of the six children may have lost or gained a tick when it moved to its parent.
        assert!((told - truth).abs() <= 0.13, "told {told}, was {truth}");
        assert!(truth > 0.05, "{truth}: the workload is too small to test anything");
        assert!(child.wait().unwrap().success());
        assert_eq!(trees[i].sample(true).processes, 0);
        assert!(trees[i].peak_bytes() > 100_000);
    }
}
