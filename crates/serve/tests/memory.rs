//! What jobs hold, by the allocator's count, reaches the scheduler and the operator.
mod common;
use common::*;
use serde_json::Value;
use std::hint::black_box;
use std::io::{Read, Write};
use tacit_arith::heap::{Account, Counting, MOST_ACCOUNTS};

#[global_allocator]
static HEAP: Counting = Counting;

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

/// What an operator is shown of jobs: phase, memory.
fn jobs(server: &Running, dir: &std::path::Path) -> Vec<(String, u64)> {
    let mut ops = server.http(dir, "ops");
    ops.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    ops.flush().unwrap();
    let mut text = String::new();
    ops.read_to_string(&mut text).unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let status: Value = serde_json::from_str(body).unwrap();
    let job = |job: &Value| (job["phase"].as_str().unwrap().to_owned(), job["memory"].as_u64().unwrap());
    status["jobs"].as_array().unwrap().iter().map(job).collect()
}

#[test]
fn a_job_is_said_to_hold_what_its_threads_held_and_not_what_the_process_did() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |config| config.threads = 2);
    // As much as no job of the toy takes.
    let ballast = black_box(vec![1u8; 64 << 20]);
    let mut client = server.client(dir.path(), "alice", "one");
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    drop((client, ballast));
    server.settle();
    let jobs = jobs(&server, dir.path());
    let phases: Vec<&str> = jobs.iter().map(|(phase, _)| phase.as_str()).collect();
    assert_eq!(phases, ["online", "offline", "setup"]);
    assert!(jobs.iter().all(|(_, memory)| (1..8 << 20).contains(memory)), "{jobs:?}");
    wait_until("every job has given its account back, with its last thread", || {
        std::iter::from_fn(Account::open).collect::<Vec<_>>().len() == MOST_ACCOUNTS
    });
}
