//! Predicts the traffic of a phase before it runs.

use crate::{HEADER_BYTES, MAX_FRAME_BYTES, Sides};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Speaker {
    /// Bytes sent, frame headers included.
    sent: u64,
    /// Half round trips that the party has waited, if computing and bytes take no time.
    trips: i64,
    /// The party's clock if only bytes take time, one byte a tick each way.
    clock: u64,
    /// When the link in the party's direction is free again, in the same ticks.
    free: u64,
    /// Bytes sent since the party last waited, and the maximum of that so far.
    burst: [u64; 2],
}

impl Speaker {
    /// Sends bytes; returns when the last of them arrives.
    fn send(&mut self, bytes: u64) -> u64 {
        self.sent += bytes;
        self.free = self.free.max(self.clock) + bytes;
        self.burst[0] += bytes;
        self.burst[1] = self.burst[1].max(self.burst[0]);
        self.free
    }

    /// Receives bytes that were sent after `trips` half round trips and arrive at `arrival`.
    fn take(&mut self, trips: i64, arrival: u64) {
        if trips + 1 > self.trips {
            (self.trips, self.burst[0]) = (trips + 1, 0);
        }
        self.clock = self.clock.max(arrival);
    }
}

/// The messages of a phase, in the order in which both parties reach them. Counts their bytes, and
/// the round trips and bytes that the client waits for.
///
/// The phase begins with the server's signal to the client; the server continues at once. Time is
/// counted in half round trips and, separately, in bytes; computing takes none. A party's clock
/// advances when it needs a message that the other sent later. Sending does not wait: the last
/// messages may still be under way at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrafficModel {
    client: Speaker,
    server: Speaker,
    payload: u64,
}

impl Default for TrafficModel {
    fn default() -> Self {
        let (client, server) = (Speaker::default(), Speaker { trips: -1, ..Speaker::default() });
        Self { client, server, payload: 0 }
    }
}

impl TrafficModel {
    /// Adds a message from client to server with `bytes` of payload.
    pub fn up(&mut self, bytes: usize) {
        self.ups(1, bytes);
    }

    /// Adds a message from server to client with `bytes` of payload.
    pub fn down(&mut self, bytes: usize) {
        self.downs(1, bytes);
    }

    /// Adds `count` messages from client to server, each with `bytes` of payload.
    pub fn ups(&mut self, count: u64, bytes: usize) {
        if count > 0 {
            self.payload += count * bytes as u64;
            let arrival = self.client.send(count * on_the_wire(bytes));
            self.server.take(self.client.trips, arrival);
        }
    }

    /// Adds `count` messages from server to client, each with `bytes` of payload.
    pub fn downs(&mut self, count: u64, bytes: usize) {
        if count > 0 {
            self.payload += count * bytes as u64;
            let arrival = self.server.send(count * on_the_wire(bytes));
            self.client.take(self.server.trips, arrival);
        }
    }

    /// Adds messages of these sizes each way, which both parties send before they read.
    pub fn both(&mut self, messages: &[usize]) {
        let wire: u64 = messages.iter().map(|&bytes| on_the_wire(bytes)).sum();
        self.payload += 2 * messages.iter().sum::<usize>() as u64;
        let trips = [self.client.trips, self.server.trips];
        let [to_server, to_client] = [self.client.send(wire), self.server.send(wire)];
        if wire > 0 {
            self.client.take(trips[1], to_client);
            self.server.take(trips[0], to_server);
        }
    }

    /// Bytes from client to server, frame headers included.
    #[must_use]
    pub fn up_bytes(&self) -> u64 {
        self.client.sent
    }

    /// Bytes from server to client, frame headers included.
    #[must_use]
    pub fn down_bytes(&self) -> u64 {
        self.server.sent
    }

    /// Bytes that the client waits for if both directions are equally fast: without those that overlap
    /// with the other direction, or are under way when the client is done.
    #[must_use]
    pub fn waited_bytes(&self) -> u64 {
        self.client.clock
    }

    /// Bytes to the server that are still under way when the client is done, if both directions are
    /// equally fast.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.client.free.saturating_sub(self.client.clock)
    }

    /// The most bytes that client and server send without waiting for an answer.
    #[must_use]
    pub fn bursts(&self) -> Sides<u64> {
        Sides { client: self.client.burst[1], server: self.server.burst[1] }
    }

    /// Payload bytes of both directions.
    #[must_use]
    pub fn payload(&self) -> u64 {
        self.payload
    }

    /// Sequential round trips that the client waits for.
    #[must_use]
    pub fn exchanges(&self) -> u64 {
        // The client's clock takes only values one half trip after the server's, as at the start.
        (self.client.trips / 2).unsigned_abs()
    }
}

/// Bytes of a message's frames, headers included.
fn on_the_wire(bytes: usize) -> u64 {
    (bytes + HEADER_BYTES * bytes.div_ceil(MAX_FRAME_BYTES).max(1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, Phase, Tag, mem_pair};

    const A: Tag = Tag::new(0xf001, "a message");

    #[test]
    fn bytes_are_those_of_a_channel() {
        for bytes in [0, 1, MAX_FRAME_BYTES - 1, MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1, 2 * MAX_FRAME_BYTES] {
            let (mut a, b) = mem_pair();
            let reader = std::thread::spawn(move || {
                let mut b: Channel = b;
                b.recv(A, bytes).map(|m| m.len())
            });
            a.send(A, &vec![7; bytes]).unwrap();
            a.flush().unwrap();
            assert_eq!(reader.join().unwrap().unwrap(), bytes);
            let mut traffic = TrafficModel::default();
            traffic.up(bytes);
            assert_eq!((traffic.up_bytes(), traffic.payload()), (a.traffic(Phase::Setup).sent, bytes as u64));
        }
    }

    #[test]
    fn exchanges_count_sequential_round_trips() {
        let counted = |steps: &[fn(&mut TrafficModel)]| {
            let mut traffic = TrafficModel::default();
            steps.iter().for_each(|step| step(&mut traffic));
            traffic.exchanges()
        };
        let up: fn(&mut TrafficModel) = |t| t.up(1);
        let down: fn(&mut TrafficModel) = |t| t.down(1);
        let both_ways: fn(&mut TrafficModel) = |t| t.both(&[1]);
        assert_eq!(counted(&[]), 0);
        assert_eq!(counted(&[down, down]), 0);
        assert_eq!(counted(&[up, up]), 0);
        assert_eq!(counted(&[up, down]), 1);
        assert_eq!(counted(&[down, up, up, down, down, up, down, up]), 2);
        // The server's first message arrives with its start signal; only answers to the client take
        // a trip.
        assert_eq!(counted(&[both_ways]), 0);
        assert_eq!(counted(&[both_ways, both_ways, both_ways]), 1);
    }

    #[test]
    fn waited_bytes_exclude_overlapping_traffic() {
        let h = HEADER_BYTES as u64;
        let count = |step: fn(&mut TrafficModel)| {
            let mut traffic = TrafficModel::default();
            step(&mut traffic);
            (traffic.waited_bytes(), traffic.queued_bytes(), <[u64; 2]>::from(traffic.bursts()))
        };
        assert_eq!(count(|_| ()), (0, 0, [0, 0]));
        let ask = |t: &mut TrafficModel| {
            t.up(100);
            t.down(50);
        };
        assert_eq!(count(ask), (150 + 2 * h, 0, [100 + h, 50 + h]));
        assert_eq!(count(|t| t.both(&[100])), (100 + h, 0, [100 + h, 100 + h]));
        let last_word = |t: &mut TrafficModel| {
            t.down(50);
            t.ups(3, 100);
        };
        assert_eq!(count(last_word), (50 + h, 3 * (100 + h), [3 * (100 + h), 50 + h]));
        // The server answers the first while the second travels.
        let pipelined = |t: &mut TrafficModel| {
            t.up(100);
            t.down(50);
            t.up(100);
            t.up(100);
            t.down(50);
        };
        assert_eq!(count(pipelined).0, 300 + 100 + 5 * h);
    }
}
