//! Who asks nothing, or too slowly, holds no thread. Alone in this program: it counts the threads of its
//! process.
mod common;
use common::*;
use std::io::{Read, Write};
use tacit_client::wire::{Reply, Request};
use tacit_net::{Channel, TlsTransport};

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
const IDLE: usize = 200;
const SLOW: usize = 40;
/// Threads that may come and go: a pooled one that is about to end.
const SLACK: usize = 2;

#[test]
fn two_hundred_idle_clients_and_slow_ones_hold_no_thread() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.max_connections = IDLE + SLOW + 8);
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
