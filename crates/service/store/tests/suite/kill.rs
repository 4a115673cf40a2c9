//! Processes that are killed with SIGKILL while they work on a folder, and processes that race.
//!
//! A test starts this program again as a worker, which says on its standard output what it does.
use crate::common::*;
use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use tacit_ids::MaterialId;
use tacit_store::{Party, SealKey, Store, StoreError, keys};

const TASK: &str = "TACIT_STORE_TEST_TASK";
const FOLDER: &str = "TACIT_STORE_TEST_FOLDER";

/// The content of material of that id.
fn content(id: MaterialId) -> Vec<u8> {
    id.0.iter().copied().cycle().take(70_000 + usize::from(id.0[15])).collect()
}

fn key(task: &str) -> Option<SealKey> {
    task.starts_with("sealed ").then(|| SealKey::from_bytes(b"a key for tests only").unwrap())
}

/// The worker's life; nothing where no test asked for one.
#[test]
fn worker() {
    let Ok(task) = env::var(TASK) else { return };
    let dir = env::var(FOLDER).unwrap();
    let (key, dir) = (key(&task), Path::new(&dir));
    let task = task.trim_start_matches("sealed ");
    match task.split_once(' ') {
        Some(("stop", step)) => {
            let wanted = step.to_owned();
            let store = Store::open_hooked(dir, Party::Client, key, move |done| {
                if format!("{done:?}") == wanted {
                    stop();
                }
            })
            .unwrap();
            let id = MaterialId::random().unwrap();
            put(&store, id);
            let (picked, _) = store.pick(id, OWNER).unwrap().unwrap();
            if step == "Picked" {
                stop();
            }
            drop(picked);
            claim(&store, id);
        }
        Some(("keys", _)) => {
            for round in 0.. {
                keys::init(&dir.join(format!("keys{round}")), &[], &["alice".into()]).unwrap();
                say("made", None);
            }
        }
        Some(("race", ids)) => {
            let store = Store::open(dir, Party::Client, key).unwrap();
            say("here", None);
            // The starting shot is the end of standard input.
            std::io::stdin().lines().for_each(drop);
            for id in ids.split(',') {
                claim(&store, id.parse().unwrap());
            }
        }
        _ => {
            let store = Store::open(dir, Party::Client, key).unwrap();
            // What is used lies a few puts back, so that both happen all the time.
            let mut unclaimed = std::collections::VecDeque::new();
            loop {
                let id = MaterialId::random().unwrap();
                put(&store, id);
                unclaimed.push_back(id);
                if unclaimed.len() > 3 {
                    claim(&store, unclaimed.pop_front().unwrap());
                }
            }
        }
    }
}

fn stop() -> ! {
    say("stopped", None);
    loop {
        thread::park();
    }
}

/// One line, whole: a worker that is killed cannot have written half of one.
fn say(event: &str, id: Option<MaterialId>) {
    let id = id.map_or(String::new(), |id| id.to_string());
    std::io::stdout().write_all(format!("\nworker {event} {id}\n").as_bytes()).unwrap();
}

fn put(store: &Store, id: MaterialId) {
    say("putting", Some(id));
    store.put(id, OWNER, TOY, &content(id)).unwrap();
    say("put", Some(id));
}

fn claim(store: &Store, id: MaterialId) {
    say("claiming", Some(id));
    match store.claim(id, OWNER) {
        Ok(material) => {
            assert!(*material == content(id));
            say("claimed", Some(id));
        }
        Err(StoreError::Burnt(_)) => {}
        Err(e) => panic!("{e}"),
    }
}

struct Worker {
    process: Child,
    /// Held open until the starting shot.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    said: Said,
}

/// Ids by what was said of them.
#[derive(Default)]
struct Said {
    putting: BTreeSet<MaterialId>,
    put: BTreeSet<MaterialId>,
    claiming: BTreeSet<MaterialId>,
    claimed: BTreeSet<MaterialId>,
}

impl Worker {
    fn start(task: &str, dir: &Path) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["kill::worker", "--exact", "--nocapture", "--test-threads=1"])
            .env(TASK, task)
            .env(FOLDER, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { stdin: process.stdin.take(), process, lines, said: Said::default() }
    }

    /// Reads until a line says `awaited`; `false` at the worker's end.
    fn until(&mut self, awaited: &str) -> bool {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            let Some((event, id)) = line.strip_prefix("worker ").and_then(|rest| rest.split_once(' ')) else {
                continue;
            };
            let ids = match event {
                "putting" => Some(&mut self.said.putting),
                "put" => Some(&mut self.said.put),
                "claiming" => Some(&mut self.said.claiming),
                "claimed" => Some(&mut self.said.claimed),
                _ => None,
            };
            if let Some(ids) = ids {
                assert!(ids.insert(id.parse().unwrap()), "{event} {id} was said twice");
            }
            if event == awaited {
                return true;
            }
        }
        false
    }

    /// SIGKILL, then all that it said before.
    fn kill(mut self) -> Said {
        self.process.kill().unwrap();
        self.until("its end");
        self.process.wait().unwrap();
        self.said
    }
}

/// Checks that after a crash, what was said to be used is burnt, what was said to be ready is whole, and
/// nothing can be used twice.
fn check(dir: &Path, key: Option<SealKey>, reported: &Said) {
    let store = Store::open(dir, Party::Client, key).unwrap();
    let ready: BTreeSet<MaterialId> = store.list(None).unwrap().iter().map(|e| e.id).collect();
    let mut files: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    files.retain(|f| f.ends_with(".material"));
    assert_eq!(files.len(), ready.len());
    assert!(ready.is_subset(&reported.putting));
    for id in &reported.putting {
        let usable = ready.contains(id);
        if reported.claimed.contains(id) {
            assert!(!usable, "{id} was used and is ready again");
        } else if reported.put.contains(id) && !reported.claiming.contains(id) {
            assert!(usable, "{id} was ready and is lost");
        }
        match store.claim(*id, OWNER) {
            Ok(material) => {
                assert!(usable);
                assert!(*material == content(*id));
            }
            Err(StoreError::Burnt(_)) => {
                assert!(!usable);
                assert!(reported.claiming.contains(id));
            }
            Err(StoreError::NoMaterial(_)) => {
                assert!(!usable);
                assert!(!reported.put.contains(id));
            }
            Err(e) => panic!("{id}: {e}"),
        }
        assert!(store.claim(*id, OWNER).is_err(), "{id} was used twice");
    }
}

/// Waits for a random while.
fn linger() {
    let [a, b, ..] = MaterialId::random().unwrap().0;
    for i in 0..u32::from(a) * u32::from(b) * 16 {
        std::hint::black_box(i);
    }
}

#[test]
fn kill_between_steps_never_allows_second_use() {
    // Whether the material is ready afterwards, or refused as used, or was never there.
    let steps = [
        ("Reserved", "none"),
        ("Written", "none"),
        ("Synced", "none"),
        ("Ready", "ready"),
        ("Picked", "ready"),
        ("Claimed", "burnt"),
        ("Unlinked", "burnt"),
        ("Burnt", "burnt"),
    ];
    for sealed in ["", "sealed "] {
        for (step, expected) in steps {
            let dir = tempfile::tempdir().unwrap();
            let stopped_at = |step: &str| {
                let mut worker = Worker::start(&format!("{sealed}stop {step}"), dir.path());
                assert!(worker.until("stopped"), "{step} never came");
                worker.kill()
            };
            let reported = stopped_at(step);
            assert_eq!((reported.putting.len(), reported.claimed.len()), (1, 0));
            let id = *reported.putting.first().unwrap();
            // A second crash, in the middle of the recovery.
            stopped_at("Swept");
            let store = Store::open(dir.path(), Party::Client, key(sealed)).unwrap();
            let state = match store.put(id, OWNER, TOY, b"again") {
                Ok(()) => "none",
                Err(StoreError::Exists(_)) => "ready",
                Err(StoreError::Burnt(_)) => "burnt",
                Err(e) => panic!("{e}"),
            };
            assert_eq!(state, expected, "after {step}");
            if expected != "none" {
                drop(store);
                check(dir.path(), key(sealed), &reported);
            }
        }
    }
}

#[test]
fn kill_at_random_moment_never_allows_second_use() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..24u32 {
        let mut worker = Worker::start("work", dir.path());
        let awaited = if round % 2 == 0 { "claiming" } else { "putting" };
        for _ in 0..3 + round % 8 {
            assert!(worker.until(awaited));
        }
        linger();
        let reported = worker.kill();
        check(dir.path(), None, &reported);
    }
}

#[test]
fn kill_leaves_complete_key_folders() {
    for round in 0..24 {
        let dir = tempfile::tempdir().unwrap();
        let mut worker = Worker::start("keys forever", dir.path());
        for _ in 0..=round % 3 {
            assert!(worker.until("made"));
        }
        linger();
        worker.kill();
        let folders = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
        // What was under way lies beside, under a name that nobody takes for keys.
        let folders: Vec<_> =
            folders.filter(|p| !p.file_name().unwrap().as_encoded_bytes().starts_with(b".")).collect();
        assert!(folders.len() > round % 3);
        for folder in folders {
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 7, "{}", folder.display());
            keys::load_server(&folder).unwrap();
        }
    }
}

#[test]
fn racing_processes_claim_each_id_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Party::Client, None).unwrap();
    let ids: Vec<MaterialId> = (0..40).map(|_| MaterialId::random().unwrap()).collect();
    for id in &ids {
        store.put(*id, OWNER, TOY, &content(*id)).unwrap();
    }
    let list: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let task = format!("race {}", list.join(","));
    let mut workers: Vec<Worker> = (0..3).map(|_| Worker::start(&task, dir.path())).collect();
    for worker in &mut workers {
        assert!(worker.until("here"));
    }
    workers.iter_mut().for_each(|worker| drop(worker.stdin.take()));
    let mut claimed = BTreeSet::new();
    for mut worker in workers {
        worker.until("its end");
        assert!(worker.process.wait().unwrap().success());
        assert_eq!(worker.said.claiming.len(), ids.len());
        for id in worker.said.claimed {
            assert!(claimed.insert(id), "{id} was claimed by two processes");
        }
    }
    assert_eq!(claimed, ids.into_iter().collect());
}
