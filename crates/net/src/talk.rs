//! What two parties say to each other, counted before they do.

use crate::{HEADER_BYTES, MAX_FRAME_BYTES};

/// Messages of a phase in the order in which both parties come to them: their bytes, and how many round trips
/// the client waits for.
///
/// It begins with the client told to go by the server, which goes on at once. Time is counted in halves of a
/// round trip; computing and bytes take none. A party's clock moves on when it needs what the other one sent
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Talk {
    up: u64,
    down: u64,
    payload: u64,
    client: i64,
    server: i64,
}

impl Default for Talk {
    fn default() -> Self {
        Self { up: 0, down: 0, payload: 0, client: 0, server: -1 }
    }
}

impl Talk {
    /// A message from client to server with so many bytes of payload.
    pub fn up(&mut self, bytes: usize) {
        self.ups(1, bytes);
    }

    /// A message from server to client with so many bytes of payload.
    pub fn down(&mut self, bytes: usize) {
        self.downs(1, bytes);
    }

    /// `count` messages from client to server, each of so many bytes.
    pub fn ups(&mut self, count: u64, bytes: usize) {
        if count > 0 {
            self.up += count * on_the_wire(bytes);
            self.payload += count * bytes as u64;
            self.server = self.server.max(self.client + 1);
        }
    }

    /// `count` messages from server to client, each of so many bytes.
    pub fn downs(&mut self, count: u64, bytes: usize) {
        if count > 0 {
            self.down += count * on_the_wire(bytes);
            self.payload += count * bytes as u64;
            self.client = self.client.max(self.server + 1);
        }
    }

    /// Messages of so many bytes each way, which both send before they read.
    pub fn both(&mut self, messages: &[usize]) {
        let (client, server) = (self.client, self.server);
        for &bytes in messages {
            self.up(bytes);
            self.down(bytes);
        }
        (self.client, self.server) = (client.max(server + 1), server.max(client + 1));
    }

    /// Bytes from client to server, with the headers of frames.
    #[must_use]
    pub fn up_bytes(&self) -> u64 {
        self.up
    }

    /// Bytes from server to client, with the headers of frames.
    #[must_use]
    pub fn down_bytes(&self) -> u64 {
        self.down
    }

    /// Bytes both ways without headers.
    #[must_use]
    pub fn payload(&self) -> u64 {
        self.payload
    }

    /// Round trips that the client waits for, one after the other.
    #[must_use]
    pub fn exchanges(&self) -> u64 {
        // The client's clock only ever stands where the server's would be one half trip later, and both began
        // like that.
        (self.client / 2).unsigned_abs()
    }
}

/// Bytes of a message's frames.
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
            let mut talk = Talk::default();
            talk.up(bytes);
            assert_eq!((talk.up_bytes(), talk.payload()), (a.traffic(Phase::Setup).sent, bytes as u64));
        }
    }

    #[test]
    fn round_trips_are_waits_for_answers_one_after_the_other() {
        let counted = |said: &[fn(&mut Talk)]| {
            let mut talk = Talk::default();
            said.iter().for_each(|say| say(&mut talk));
            talk.exchanges()
        };
        let up: fn(&mut Talk) = |t| t.up(1);
        let down: fn(&mut Talk) = |t| t.down(1);
        let both: fn(&mut Talk) = |t| t.both(&[1]);
        assert_eq!(counted(&[]), 0);
        assert_eq!(counted(&[down, down]), 0, "the server goes on at once");
        assert_eq!(counted(&[up, up]), 0, "nobody waits for what is sent");
        assert_eq!(counted(&[up, down]), 1);
        assert_eq!(counted(&[down, up, up, down, down, up, down, up]), 2);
        // What the server says first comes with the word to go; only the answers to the client's take a trip.
        assert_eq!(counted(&[both]), 0);
        assert_eq!(counted(&[both, both, both]), 1);
    }
}
