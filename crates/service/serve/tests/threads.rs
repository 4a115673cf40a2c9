//! Idle and slow clients hold no thread. The test has a program of its own, whose threads it counts.
mod common;
use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{Read, Write};
use std::num::NonZero;
use std::thread;
use tacit_client::wire::{Reply, Request};
use tacit_net::{Channel, TlsTransport};

const IDLE: usize = 1000;
const SLOW: usize = 40;
const ACTIVE: usize = 50;
/// Answers for each active client.
const ANSWERS: usize = 4;
/// Pooled threads that are about to end.
const SLACK: usize = 2;

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Serves all active clients at once and returns the greatest number of threads meanwhile.
fn serve_active(server: &Running) -> usize {
    thread::scope(|scope| {
        let work = |who: &'static str| {
            let mut config = server.config(who);
            (config.store, config.threads) = (None, 1);
            let mut client = tacit_client::Connection::connect(registry(), config).unwrap().open("one", None).unwrap();
            for _ in 0..ANSWERS {
                check_answer(&mut client, 1);
            }
        };
        let clients: Vec<_> = (0..ACTIVE).map(|i| scope.spawn(move || work(["alice", "bob"][i % 2]))).collect();
        let mut most = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            most = most.max(threads());
        }
        most
    })
}

#[test]
fn idle_and_slow_clients_hold_no_thread() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let server = Running::start(|c| {
        c.max_connections = IDLE + SLOW + ACTIVE + 8;
        c.connections_per_client = NonZero::new(c.max_connections);
        c.memory_per_client = ACTIVE;
    });
    let mut client = server.client("alice", "one");
    check_answer(&mut client, 1);
    let busy = threads();
    // Each idle client opens a model and sets it up, all in jobs.
    let mut idle: Vec<Channel> = (0..IDLE).map(|_| server.opened("alice", "one")).collect();
    idle.iter_mut().for_each(set_up);
    assert_eq!(server.handle.connections(), IDLE + 1);
    wait_until("idle clients leave their threads", || threads() <= busy + SLACK);
    let slow: Vec<(TlsTransport, u8)> = (0..SLOW).map(|_| server.trickle("bob")).collect();
    assert_eq!(server.handle.connections(), IDLE + SLOW + 1);
    wait_until("slow clients hold none", || threads() <= busy + SLACK);
    let most = serve_active(&server);
    // The threads of active clients vary; a thread for each idle client would come on top.
    assert!(most < busy + IDLE, "{most} threads, {busy} before");
    wait_until("nothing is lost", || server.handle.served() == (1 + ACTIVE * ANSWERS) as u64);
    wait_until("the active ones have left", || server.handle.connections() == IDLE + SLOW + 1);
    wait_until("and their threads", || threads() <= busy + SLACK);
    // All of them are still served.
    check_answer(&mut client, 1);
    for (mut raw, last) in slow {
        raw.write_all(&[last]).unwrap();
        let mut answer = [0; 12];
        raw.read_exact(&mut answer).unwrap();
        // Tag, length, checksum; then the list of two models.
        assert_eq!((answer[..2].to_vec(), answer[10..].to_vec()), (vec![0x02, 0x01], vec![1, 2]));
    }
    assert!(idle.iter_mut().all(|channel| matches!(ask(channel, &Request::List), Reply::Models(_))));
}
