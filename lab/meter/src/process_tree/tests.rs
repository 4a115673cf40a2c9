use super::*;
use proptest::prelude::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use wait4::Wait4;

const TICK_NS: u64 = 10_000_000;

/// A fake `/proc`.
struct Fake {
    folder: tempfile::TempDir,
}

/// A process as `/proc` shows it; times in ticks.
#[derive(Clone, Copy, Default)]
struct Process {
    pid: u32,
    parent: u32,
    user: u64,
    system: u64,
    /// User time of its children that it has waited for.
    children_user: u64,
    /// System time of its children that it has waited for.
    children_system: u64,
    resident_pages: u64,
}

/// A process that has used nothing.
fn process(pid: u32, parent: u32) -> Process {
    Process { pid, parent, ..Process::default() }
}

impl Process {
    fn used(self, user: u64, system: u64) -> Self {
        Self { user, system, ..self }
    }

    fn reaped(self, children_user: u64, children_system: u64) -> Self {
        Self { children_user, children_system, ..self }
    }

    fn resident(self, resident_pages: u64) -> Self {
        Self { resident_pages, ..self }
    }
}

impl Fake {
    /// With process 10, which has used nothing.
    fn new() -> Self {
        let fake = Self { folder: tempfile::tempdir().unwrap() };
        fake.put(process(10, 1));
        fake
    }

    fn put(&self, process: Process) {
        self.put_as(process, "a name) R (", 'S', u64::from(process.pid));
    }

    fn put_as(&self, process: Process, name: &str, state: char, start: u64) {
        let Process { pid, parent, user, system, children_user, children_system, resident_pages } = process;
        let folder = self.folder.path().join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let stat = format!(
            "{pid} ({name}) {state} {parent} 1 1 0 -1 4194304 100 0 0 0 {user} {system} {children_user} {children_system} 20 0 1 0 {start} 1196008 {resident_pages} 18446744073709551615 1\n"
        );
        fs::write(folder.join("stat"), stat).unwrap();
    }

    fn remove(&self, pid: u32) {
        fs::remove_dir_all(self.folder.path().join(pid.to_string())).unwrap();
    }

    /// The tree of process 10.
    fn tree(&self) -> ProcessTree {
        let mut tree = ProcessTree::new(self.folder.path());
        (tree.page_bytes, tree.tick_ns) = (4096, TICK_NS);
        assert!(tree.add(10, Since::Now));
        tree
    }
}

fn ticks(sample: &PartySample) -> (u64, u64) {
    ((sample.user_s * 100.0).round() as u64, (sample.system_s * 100.0).round() as u64)
}

/// Ticks of a sample that searches for new processes.
fn sampled(tree: &mut ProcessTree) -> (u64, u64) {
    ticks(&tree.sample(true))
}

#[test]
fn counts_descendants_only() {
    let fake = Fake::new();
    fake.put(process(10, 1).used(5, 1).resident(100));
    fake.put(process(11, 10).used(7, 2).resident(200));
    fake.put(process(12, 11).used(9, 3).reaped(1, 1).resident(300));
    fake.put(process(20, 1).used(1000, 1000).resident(1000));
    let mut tree = fake.tree();
    let first = tree.sample(true);
    // Time counts from now on.
    assert_eq!((ticks(&first), first.processes, first.rss_bytes), ((0, 0), 3, 600 * 4096));
    fake.put(process(12, 11).used(19, 4).reaped(1, 1).resident(50));
    fake.put(process(13, 10).used(30, 40).resident(10));
    let blind = tree.sample(false);
    assert_eq!((ticks(&blind), blind.processes), ((10, 1), 3));
    let sampled = tree.sample(true);
    assert_eq!((ticks(&sampled), sampled.processes, sampled.rss_bytes), ((40, 41), 4, 360 * 4096));
    assert_eq!(tree.peak_bytes(), 600 * 4096);
}

#[test]
fn counts_reaped_child_once() {
    let fake = Fake::new();
    let mut tree = fake.tree();
    fake.put(process(11, 10).used(50, 20));
    assert_eq!(sampled(&mut tree), (50, 20));
    // The process works, ends, and is reaped together with a child that was never visible.
    fake.remove(11);
    fake.put(process(10, 1).reaped(60 + 5, 25));
    assert_eq!([sampled(&mut tree), sampled(&mut tree)], [(65, 25); 2]);
}

#[test]
fn keeps_time_of_unwaited_child() {
    let fake = Fake::new();
    fake.put(process(10, 1).used(3, 0));
    let mut tree = fake.tree();
    fake.put(process(11, 10).used(50, 20));
    fake.put(process(12, 11).used(4, 4));
    assert_eq!(sampled(&mut tree), (54, 24));
    // 11 ends without a wait, 12 goes to init and continues.
    fake.remove(11);
    fake.put(process(12, 1).used(5, 5));
    for _ in 0..4 {
        assert_eq!(sampled(&mut tree), (55, 25));
    }
    fake.remove(12);
    fake.put(process(10, 1).used(4, 0));
    assert_eq!(sampled(&mut tree), (56, 25));
    // A later reaped child counts separately: the earlier ones are settled.
    fake.put(process(10, 1).used(4, 0).reaped(7, 7));
    assert_eq!(sampled(&mut tree), (63, 32));
}

#[test]
fn counts_ended_branch_once() {
    let fake = Fake::new();
    let mut tree = fake.tree();
    fake.put(process(11, 10).used(10, 1));
    fake.put(process(12, 11).used(20, 2));
    fake.put(process(13, 12).used(40, 4));
    assert_eq!(sampled(&mut tree), (70, 7));
    // 12 reaped 13, 11 reaped 12, 10 reaped 11; each ran a little longer before.
    (11..=13).for_each(|pid| fake.remove(pid));
    fake.put(process(10, 1).reaped(73, 8));
    assert_eq!([sampled(&mut tree), sampled(&mut tree)], [(73, 8); 2]);
}

#[test]
fn distinguishes_reaping_from_reused_id() {
    let fake = Fake::new();
    let mut tree = fake.tree();
    fake.put(process(11, 10).used(50, 20));
    assert_eq!(sampled(&mut tree), (50, 20));
    fake.put(process(10, 1).reaped(50, 20));
    fake.put_as(process(11, 10).used(50, 20), "x", 'X', 11);
    assert_eq!(sampled(&mut tree), (50, 20));
    // Another program's process now has the same id.
    fake.put_as(process(11, 1).used(900, 900), "other", 'R', 999);
    assert_eq!(sampled(&mut tree), (50, 20));
}

#[test]
fn survives_circular_parents() {
    let fake = Fake::new();
    let mut tree = fake.tree();
    fake.put(process(11, 10).used(5, 0));
    fake.put(process(12, 11).used(7, 0));
    tree.sample(true);
    // Read between the end of the one and the reuse of its id by the other's child.
    fake.put(process(11, 12).used(5, 0));
    assert_eq!(ticks(&tree.sample(false)), (12, 0));
    fake.remove(11);
    fake.remove(12);
    assert_eq!(ticks(&tree.sample(false)), (12, 0));
}

#[test]
fn rejects_broken_stat_files() {
    let stat_line = b"7 (x) S 1 1 1 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 1 0 99 1196008 5 18446744073709551615";
    assert_eq!(Stat::parse(stat_line, 10).unwrap().total(), Time { user: 40, system: 60 });
    for end in 0..stat_line.len() - 24 {
        let _ = Stat::parse(&stat_line[..end], 1);
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
        assert!(Stat::parse(broken, u64::MAX).is_none(), "{broken:?}");
    }
    assert!(!ProcessTree::new("/nonexistent").add(1, Since::Now));
}

/// A process of the simulated kernel: its parent, its own time, that of reaped children.
#[derive(Clone, Copy, Debug, Default)]
struct Simulated {
    parent: u32,
    own: Time,
    children: Time,
}

#[derive(Clone, Debug)]
enum Event {
    Fork(u8),
    Run(u8, u64, u64),
    /// Ends, its children first, and is reaped by its parent.
    End(u8),
    Sample,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        any::<u8>().prop_map(Event::Fork),
        (any::<u8>(), 0..40_000_000u64, 0..40_000_000u64).prop_map(|(p, u, s)| Event::Run(p, u, s)),
        any::<u8>().prop_map(Event::End),
        Just(Event::Sample),
    ];
    proptest::collection::vec(event, 0..60)
}

fn select_process(processes: &BTreeMap<u32, Simulated>, number: u8) -> u32 {
    *processes.keys().nth(usize::from(number) % processes.len()).unwrap()
}

fn end(processes: &mut BTreeMap<u32, Simulated>, fake: &Fake, pid: u32) {
    let below: Vec<u32> = processes.iter().filter(|(_, p)| p.parent == pid).map(|(pid, _)| *pid).collect();
    below.into_iter().for_each(|child| end(processes, fake, child));
    let ended_process = processes.remove(&pid).unwrap();
    processes.get_mut(&ended_process.parent).unwrap().children += ended_process.own + ended_process.children;
    _ = fs::remove_dir_all(fake.folder.path().join(pid.to_string()));
}

proptest! {
    // Each case makes hundreds of files.
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// With CPU clocks, the reported time never exceeds the truth. It is lower by at most two ticks
    /// for each process that waits for children, for any number of ended children and any sample
    /// times.
    #[test]
    fn errors_of_ended_children_do_not_add_up(events in events()) {
        let fake = Fake::new();
        let folder = fake.folder.path().to_owned();
        let mut tree = fake.tree();
        tree.clock = Some(Box::new(move |pid| fs::read_to_string(folder.join(format!("{pid}/clock"))).ok()?.parse().ok()));
        let mut processes = BTreeMap::from([(10, Simulated { parent: 1, ..Simulated::default() })]);
        let (mut truth, mut last) = (0, PartySample::default());
        for (next, event) in (11..).zip(events.into_iter().chain([Event::Sample, Event::Sample])) {
            match event {
                Event::Fork(parent) => {
                    let parent = select_process(&processes, parent);
                    processes.insert(next, Simulated { parent, ..Simulated::default() });
                }
                Event::Run(number, user, system) => {
                    let pid = select_process(&processes, number);
                    processes.get_mut(&pid).unwrap().own += Time { user, system };
                    truth += user + system;
                }
                Event::End(number) => match select_process(&processes, number) {
                    10 => {}
                    pid => end(&mut processes, &fake, pid),
                },
                Event::Sample => {
                    for (&pid, p) in &processes {
                        let [user, system, children_user, children_system] =
                            [p.own.user, p.own.system, p.children.user, p.children.system].map(|ns| ns / TICK_NS);
                        fake.put(process(pid, p.parent).used(user, system).reaped(children_user, children_system));
                        fs::write(fake.folder.path().join(format!("{pid}/clock")), p.own.total().to_string()).unwrap();
                    }
                    // Any order except `parents_first` would find children that do not exist yet.
                    let now = tree.sample(true);
                    prop_assert!(now.user_s >= last.user_s - 1e-9 && now.system_s >= last.system_s - 1e-9);
                    last = now;
                    let waiting = processes.values().filter(|p| p.children != Time::default()).count();
                    let missing = truth as f64 * 1e-9 - now.user_s - now.system_s;
                    prop_assert!(missing >= -1e-6 && missing < 0.02 * waiting as f64 + 1e-6, "{missing} s, {waiting} waiting");
                }
            }
        }
    }
}

#[test]
fn reported_lifetime_replaces_samples() {
    let fake = Fake::new();
    fake.put(process(20, 1));
    let mut tree = fake.tree();
    assert!(tree.add(20, Since::Now));
    let ms = Duration::from_millis;
    fake.put(process(10, 1).used(3, 1).reaped(4, 0));
    fake.put(process(20, 1).used(1, 0));
    assert_eq!(sampled(&mut tree), (8, 1));
    // Reported while the process is visible.
    tree.ended(10, ms(90), ms(20));
    fake.remove(10);
    assert_eq!(sampled(&mut tree), (10, 2));
    // Reported after a sample that did not find the process any more.
    fake.remove(20);
    assert_eq!(sampled(&mut tree), (10, 2));
    tree.ended(20, ms(50), ms(0));
    assert_eq!(sampled(&mut tree), (14, 2));
    tree.ended(77, ms(900), ms(900));
    // The id is reused.
    fake.put_as(process(20, 1).used(7, 7), "x", 'S', 999);
    assert!(tree.add(20, Since::Now));
    fake.put_as(process(20, 1).used(8, 7), "x", 'S', 999);
    assert_eq!(sampled(&mut tree), (15, 2));
}

/// The kernel truncates figures to microseconds, user and kernel time separately.
const MICRO: f64 = 3e-6;

/// Loops of the shell that take some ten milliseconds.
const BURN: &str = "i=0; while [ $i -lt 25000 ]; do i=$((i+1)); done";

/// Starts `program`, which computes, prints a line and waits for the end of its input. Returns the
/// seconds of the tree after the line, at the end and after the reaping, and then the kernel's.
fn reported_and_true(program: &mut Command) -> [f64; 4] {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut tree = ProcessTree::new("/proc");
    assert!(tree.clock.is_some(), "no CPU clocks of processes here: all times are ticks");
    assert!(tree.add(child.id(), Since::Birth));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "done\n");
    let sample_seconds = |tree: &mut ProcessTree| {
        let now = tree.sample(true);
        now.user_s + now.system_s
    };
    let live = sample_seconds(&mut tree);
    drop(child.stdin.take());
    tacit_measure::usage::wait_until_ended(child.id()).unwrap();
    let zombie = sample_seconds(&mut tree);
    let end = child.wait4().unwrap();
    assert!(end.status.success());
    tree.ended(child.id(), end.rusage.utime, end.rusage.stime);
    [live, zombie, sample_seconds(&mut tree), (end.rusage.utime + end.rusage.stime).as_secs_f64()]
}

#[test]
fn measures_short_process_exactly() {
    let script = format!("{BURN}; echo done; read x; exit 0");
    let [live, zombie, reaped, truth] = reported_and_true(Command::new("sh").args(["-c", &script]));
    assert!(truth > 2e-3 && truth < 10.0, "{truth}: too little or too much to test anything");
    // After the line the program does little.
    assert!(live > 0.8 * truth - 2e-3 && live <= truth + MICRO, "{live} of {truth}");
    assert!((zombie - truth).abs() <= MICRO && (reaped - truth).abs() <= MICRO, "{zombie} and {reaped} of {truth}");
}

#[test]
fn measures_children_within_two_ticks() {
    let script = format!("for n in 1 2 3 4 5 6 7 8; do ( {BURN} ); done; echo done; read x; exit 0");
    let [live, zombie, reaped, truth] = reported_and_true(Command::new("sh").args(["-c", &script]));
    for reported in [live, zombie] {
        assert!(reported > truth - 0.022 && reported <= truth + MICRO, "{reported} of {truth}");
    }
    assert!((reaped - truth).abs() <= MICRO, "{reaped} of {truth}");
}

#[test]
fn sees_tree_in_process_namespace() {
    let script = format!("{BURN}; echo done; read x; exit 0");
    if !Command::new("unshare").args(["--pid", "--fork", "true"]).status().is_ok_and(|s| s.success()) {
        eprintln!("SKIPPED: process namespaces need root and `unshare` of util-linux");
        return;
    }
    let [live, zombie, reaped, truth] =
        reported_and_true(Command::new("unshare").args(["--pid", "--fork", "sh", "-c", &script]));
    assert!(live > 0.8 * truth - 2e-3 && live <= truth + MICRO, "{live} of {truth}");
    assert!(zombie > truth - 0.02 && zombie <= truth + MICRO, "{zombie} of {truth}");
    assert!((reaped - truth).abs() <= MICRO, "{reaped} of {truth}");
}

#[test]
fn keeps_time_of_ended_threads() {
    let mut tree = ProcessTree::new("/proc");
    assert!(tree.add(std::process::id(), Since::Now));
    let burnt: f64 = (0..3)
        .map(|_| {
            let burn = || {
                while tacit_measure::clock::thread_cpu_s() < 0.01 {}
                tacit_measure::clock::thread_cpu_s()
            };
            std::thread::spawn(burn).join().unwrap()
        })
        .sum();
    let now = tree.sample(false);
    assert!(burnt >= 0.03 && now.user_s + now.system_s > burnt - 5e-3, "{now:?} of {burnt}");
}

#[test]
fn foreign_namespace_has_no_clocks() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!has_clocks(folder.path()));
    std::os::unix::fs::symlink("1", folder.path().join("self")).unwrap();
    assert!(!has_clocks(folder.path()), "process 1 is not this one");
    assert!(has_clocks(Path::new("/proc")));
}

#[test]
fn figures_of_real_programs_never_decrease() {
    // Each starts short-lived busy children one after the other, after a signal.
    let script = "read go; for i in 1 2 3 4 5 6; do ( j=0; while [ $j -lt 60000 ]; do j=$((j+1)); done ); done";
    let start = || Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
    let mut children = [start(), start()];
    let mut trees = children.each_ref().map(|child| {
        let mut tree = ProcessTree::new("/proc");
        assert!(tree.add(child.id(), Since::Birth));
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
            // Read before the sample, which must include all time up to here.
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
        let end = child.wait4().unwrap();
        let truth = (end.rusage.utime + end.rusage.stime).as_secs_f64();
        let reported_s = last[i].user_s + last[i].system_s;
        // Two ticks of children.
        assert!(reported_s > truth - 0.02 && reported_s <= truth + MICRO, "told {reported_s}, was {truth}");
        assert!(truth > 0.02, "{truth}: the workload is too small to test anything");
        assert!(end.status.success());
        assert_eq!(trees[i].sample(true).processes, 0);
        assert!(trees[i].peak_bytes() > 100_000);
    }
}
