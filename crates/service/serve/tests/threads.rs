//! Who asks nothing, or too slowly, holds no thread. Alone in this program: it counts the threads of its
//! process.
mod common;
use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::num::NonZero;
use std::thread;
use tacit_client::wire::{Reply, Request};
use tacit_net::{Channel, TlsTransport};

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
const IDLE: usize = 1000;
const SLOW: usize = 40;
const ACTIVE: usize = 50;
/// Answers for each of the active ones.
const ANSWERS: usize = 4;
/// Threads that may come and go: a pooled one that is about to end.
const SLACK: usize = 2;

/// Fifty clients at work at the same time; the most threads that there were meanwhile.
fn active(server: &Running, dir: &std::path::Path) -> usize {
    thread::scope(|scope| {
        let work = |who: &'static str| {
            let mut config = server.config(dir, who);
            (config.store, config.threads) = (None, 1);
            let mut client = tacit_client::Connection::connect(registry(), config).unwrap().open("one", None).unwrap();
            for _ in 0..ANSWERS {
                assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
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
fn a_thousand_idle_clients_and_slow_ones_hold_no_thread_while_fifty_are_served() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| {
        c.max_connections = IDLE + SLOW + ACTIVE + 8;
        c.connections_per_client = NonZero::new(c.max_connections);
        c.memory_per_client = ACTIVE;
    });
    let mut client = server.client(dir.path(), "alice", "one");
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    let busy = threads();
    // Each has opened a model and made its keys: all of it in jobs.
    let mut idle: Vec<Channel> = (0..IDLE).map(|_| server.opened(dir.path(), "alice", "one")).collect();
    idle.iter_mut().for_each(set_up);
    assert_eq!(server.handle.connections(), IDLE + 1);
    wait_until("idle clients leave their threads", || threads() <= busy + SLACK);
    let slow: Vec<(TlsTransport, u8)> = (0..SLOW).map(|_| server.trickle(dir.path(), "bob")).collect();
    assert_eq!(server.handle.connections(), IDLE + SLOW + 1);
    wait_until("slow clients hold none", || threads() <= busy + SLACK);
    let most = active(&server, dir.path());
    // How many the active ones have depends on how soon those of ended jobs are gone; one for each of the
    // idle ones would come on top of that.
    assert!(most < busy + IDLE, "{most} threads, {busy} before");
    wait_until("nothing is lost", || server.handle.served() == (1 + ACTIVE * ANSWERS) as u64);
    wait_until("the active ones have left", || server.handle.connections() == IDLE + SLOW + 1);
    wait_until("and their threads", || threads() <= busy + SLACK);
    // Nobody is harmed, them included.
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    for (mut raw, last) in slow {
        raw.write_all(&[last]).unwrap();
        let mut answer = [0; 12];
        raw.read_exact(&mut answer).unwrap();
        // Tag, length, checksum; then the list of two models.
        assert_eq!((answer[..2].to_vec(), answer[10..].to_vec()), (vec![0x02, 0x01], vec![1, 2]));
    }
    assert!(idle.iter_mut().all(|channel| matches!(ask(channel, &Request::List), Reply::Models(_))));
}
