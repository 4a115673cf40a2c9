//! Many requests leave nothing behind. The test has a program of its own, whose memory it measures.
mod common;

use common::*;
use std::fs;
use tacit_graph::Units;

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse().unwrap()
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn ten_thousand_requests_leak_nothing() {
    let server = Running::start(|c| c.cores = 2);
    let mut client = server.client("alice", "one");
    // Pools, queues, SQLite and the allocator keep what the first thousands of requests allocate.
    let mut sizes = Vec::new();
    let files = open_files();
    for i in 0..10_000 {
        if i % 2500 == 0 {
            sizes.push(resident_kib());
        }
        match i % 10 {
            0 => {
                let announced = client.announce(None).unwrap();
                client.infer_announced(announced, Units::Network, &X).unwrap();
            }
            1 => drop(client.announce(None).unwrap()),
            2 if i % 100 == 2 => {
                client.prepare().unwrap();
                assert!(client.infer(&X).unwrap().prepared.is_none());
            }
            _ => assert_eq!(client.infer(&X).unwrap().values, expected(1, &X)),
        }
    }
    wait_until("the last announcement is withdrawn", || server.handle.connections() == 1);
    assert_eq!(open_files(), files);
    sizes.push(resident_kib());
    let grown = sizes[4].saturating_sub(sizes[2]);
    // Five thousand rows of any kind would take more.
    assert!(grown < 1024, "resident KiB after each 2,500 requests: {sizes:?}");
}
