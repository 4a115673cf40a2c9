//! The memory of jobs, by the allocator's count, reaches the scheduler and the operator.
mod common;
use common::*;
use serde_json::Value;
use std::hint::black_box;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use tacit_arith::heap::{Account, Counting, MAX_ACCOUNTS};
use tacit_net::{Tag, tcp_pair};

#[global_allocator]
static HEAP: Counting = Counting;

/// Accounts are the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Phases and memory of jobs, as an operator sees them.
fn jobs(server: &Running) -> Vec<(String, u64)> {
    let text = server.operator_get("/v1/status");
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let status: Value = serde_json::from_str(body).unwrap();
    let job = |job: &Value| (job["phase"].as_str().unwrap().to_owned(), job["memory"].as_u64().unwrap());
    status["jobs"].as_array().unwrap().iter().map(job).collect()
}

#[test]
fn reports_memory_of_job_threads() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Running::start(|config| config.threads = 2);
    // More than any job of the toy takes.
    let ballast = black_box(vec![1u8; 64 << 20]);
    let mut client = server.client("alice", "one");
    check_answer(&mut client, 1);
    drop((client, ballast));
    server.settle();
    let jobs = jobs(&server);
    let phases: Vec<&str> = jobs.iter().map(|(phase, _)| phase.as_str()).collect();
    assert_eq!(phases, ["online", "offline", "setup"]);
    assert!(jobs.iter().all(|(_, memory)| (1..8 << 20).contains(memory)), "{jobs:?}");
    wait_until("all accounts are free", || std::iter::from_fn(Account::open).collect::<Vec<_>>().len() == MAX_ACCOUNTS);
}

#[test]
fn job_above_memory_limit_runs_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = Folder::new();
    // As much as the toy declares, and less than it is measured to hold.
    let start = || Running::start_in(&dir, |config| config.job_memory = 1000);
    for server in [start(), start()] {
        let mut client = server.client("alice", "one");
        for _ in 0..3 {
            check_answer(&mut client, 1);
        }
        drop(client);
        server.settle();
        assert!(jobs(&server).iter().any(|(_, memory)| *memory > 1000));
    }
}

#[test]
fn sent_bytes_are_freed() {
    const BYTES: Tag = Tag::new(0xf1f1, "test bytes");
    const EACH: usize = 16 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let account = Account::open().unwrap();
    let (mut ours, mut theirs) = tcp_pair().unwrap();
    let (go, wait) = channel::<()>();
    let reads = thread::spawn(move || {
        for () in wait {
            theirs.recv_max(BYTES, EACH).unwrap();
        }
    });
    let visit = account.visit();
    let bytes = vec![1; EACH];
    for _ in 0..8 {
        // More than the sockets hold: the rest is queued until the peer reads.
        ours.send(BYTES, &bytes).unwrap();
        go.send(()).unwrap();
        ours.settle().unwrap();
    }
    drop((bytes, visit, go));
    reads.join().unwrap();
    let peak = account.peak().unwrap() as usize;
    assert!((EACH..4 * EACH).contains(&peak), "{peak} bytes");
}
