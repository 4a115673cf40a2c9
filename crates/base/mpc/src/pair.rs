//! Both parties in one process, for tests and benchmarks.

use std::thread;

use tacit_net::{Channel, mem_pair};

/// Runs the client on this thread and the server on another, over an in-memory channel. Returns
/// both results and passes on a panic of either party.
pub fn run_pair<C, S: Send>(
    client: impl FnOnce(&mut Channel) -> C,
    server: impl FnOnce(&mut Channel) -> S + Send,
) -> (C, S) {
    let (client_channel, mut server_channel) = mem_pair();
    thread::scope(|scope| {
        let server = scope.spawn(move || server(&mut server_channel));
        // Drops the channel before the join, so that a server does not wait for a client that gave
        // up.
        let client = {
            let mut channel = client_channel;
            client(&mut channel)
        };
        match server.join() {
            Ok(server) => (client, server),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
