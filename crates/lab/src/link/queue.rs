//! Packets that wait: a first-in-first-out queue in one block of memory, and what happens to each packet. Pure: time comes in.
use super::packet;
use std::collections::VecDeque;

/// Packets in order, each with the time at which it is due, in a ring of fixed size: no allocation per packet.
pub(super) struct DelayLine {
    ring: Vec<u8>,
    /// Longest packet.
    slot: usize,
    /// Where the next packet is written.
    tail: usize,
    packets: VecDeque<Held>,
}

struct Held {
    start: usize,
    len: usize,
    due: u64,
}

impl DelayLine {
    /// A line for at least `bytes` bytes of packets of at most `slot` bytes.
    pub(super) fn new(bytes: usize, slot: usize) -> Self {
        // Two packets more: one that is being read, and one that is lost to the wrap.
        Self { ring: vec![0; bytes + 2 * slot], slot, tail: 0, packets: VecDeque::new() }
    }

    /// Room for a packet of the longest kind; `None` when the line is full.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        let head = match self.packets.front() {
            Some(first) => first.start,
            None => {
                self.tail = 0;
                return Some(&mut self.ring[..self.slot]);
            }
        };
        if self.tail > head && self.tail + self.slot > self.ring.len() {
            self.tail = 0;
        }
        // At least one byte stays free before the head, so that a tail at the head never means a full ring.
        if self.tail <= head && self.tail + self.slot >= head {
            return None;
        }
        Some(&mut self.ring[self.tail..self.tail + self.slot])
    }

    /// Keeps the first `len` bytes of [`Self::room`] as a packet due at `due`, but not before its predecessor.
    pub(super) fn commit(&mut self, len: usize, due: u64) {
        debug_assert!(len <= self.slot);
        let due = self.packets.back().map_or(due, |last| due.max(last.due));
        self.packets.push_back(Held { start: self.tail, len, due });
        self.tail += len.max(1);
    }

    /// Keeps a copy of `packet`; false when the line is full.
    pub(super) fn push(&mut self, packet: &[u8], due: u64) -> bool {
        let Some(room) = self.room() else { return false };
        let Some(room) = room.get_mut(..packet.len()) else { return false };
        room.copy_from_slice(packet);
        self.commit(packet.len(), due);
        true
    }

    /// When the first packet is due.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.packets.front().map(|first| first.due)
    }

    /// The first packet, if it is due at `now`.
    pub(super) fn due(&self, now: u64) -> Option<&[u8]> {
        let first = self.packets.front().filter(|first| first.due <= now)?;
        Some(&self.ring[first.start..first.start + first.len])
    }

    /// Forgets the first packet.
    pub(super) fn pop(&mut self) {
        self.packets.pop_front();
    }
}

/// What a direction of the link does to packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Treatment {
    /// Mean one-way delay, ns.
    pub(super) delay: u64,
    /// The delay is uniform in `delay - jitter ..= delay + jitter`, ns; at most `delay`.
    pub(super) jitter: u64,
    /// Probability that a packet is lost.
    pub(super) loss: f64,
    /// Probability that a payload byte is changed.
    pub(super) corrupt: f64,
    /// Probability that a packet is sent again, [`REPLAY_AFTER`] later.
    pub(super) duplicate: f64,
}

/// How much later a replayed packet follows, ns: later than the packets that followed the original.
pub(super) const REPLAY_AFTER: u64 = 50_000_000;

/// The fate of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// Lost.
    pub(super) lost: bool,
    /// A payload byte was changed.
    pub(super) corrupted: bool,
    /// To be sent again.
    pub(super) replayed: bool,
    /// When it is due, ns.
    pub(super) due: u64,
}

impl Treatment {
    /// Decides what happens to `packet` (an IP packet, changed in place), which arrives at `now`.
    pub(super) fn decide(&self, now: u64, packet: &mut [u8], random: &mut fastrand::Rng) -> Fate {
        let mut chance = |probability: f64| probability > 0.0 && random.f64() < probability;
        let (lost, corrupt, replayed) = (chance(self.loss), chance(self.corrupt), chance(self.duplicate));
        let corrupted = corrupt && !lost && packet::corrupt(packet, random);
        let wobble = if self.jitter == 0 { 0 } else { random.u64(0..=2 * self.jitter) };
        Fate { lost, corrupted, replayed: replayed && !lost, due: now + self.delay - self.jitter + wobble }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CALM: Treatment = Treatment { delay: 100, jitter: 0, loss: 0.0, corrupt: 0.0, duplicate: 0.0 };

    #[test]
    fn packets_come_out_when_due_and_not_before() {
        let mut line = DelayLine::new(100, 10);
        assert!(line.push(b"first", 50) && line.push(b"second", 60));
        assert_eq!(line.next_due(), Some(50));
        assert_eq!(line.due(49), None);
        assert_eq!(line.due(50), Some(&b"first"[..]));
        line.pop();
        assert_eq!(line.due(59), None);
        assert_eq!(line.due(1000), Some(&b"second"[..]));
        line.pop();
        assert_eq!((line.next_due(), line.due(u64::MAX)), (None, None));
    }

    #[test]
    fn a_packet_never_overtakes() {
        let mut line = DelayLine::new(100, 10);
        assert!(line.push(b"slow", 90) && line.push(b"fast", 20));
        line.pop();
        assert_eq!(line.next_due(), Some(90));
    }

    #[test]
    fn a_full_line_refuses_and_recovers() {
        let mut line = DelayLine::new(40, 10);
        let mut held = 0;
        while line.push(&[held; 10], 0) {
            held += 1;
        }
        assert!((4..=6).contains(&held), "{held} packets of 10 bytes in a line for 40 bytes");
        assert!(!line.push(&[0; 10], 0) && !line.push(&[0; 11], 0));
        line.pop();
        line.pop();
        assert!(line.push(&[9; 10], 0));
        assert_eq!(line.due(0), Some(&[2; 10][..]));
    }

    #[test]
    fn fates_follow_their_probabilities_and_repeat_with_the_seed() {
        let treatment = Treatment { jitter: 40, loss: 0.1, duplicate: 0.3, ..CALM };
        let run = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..20_000).map(|i| treatment.decide(i * 1000, &mut [0; 40], &mut random)).collect::<Vec<_>>()
        };
        let fates = run(7);
        assert_eq!(fates, run(7));
        assert_ne!(fates, run(8));
        let share = |f: fn(&Fate) -> bool| fates.iter().filter(|fate| f(fate)).count() as f64 / fates.len() as f64;
        assert!((share(|fate| fate.lost) - 0.1).abs() < 0.01);
        assert!((share(|fate| fate.replayed) - 0.9 * 0.3).abs() < 0.01);
        let delays: Vec<u64> = fates.iter().enumerate().map(|(i, fate)| fate.due - i as u64 * 1000).collect();
        assert_eq!((delays.iter().min(), delays.iter().max()), (Some(&60), Some(&140)));
    }

    #[test]
    fn without_impairments_a_packet_only_waits() {
        let mut packet = *b"untouched bytes of a packet, whatever they may be";
        let fate = CALM.decide(5, &mut packet, &mut fastrand::Rng::with_seed(1));
        assert_eq!(fate, Fate { lost: false, corrupted: false, replayed: false, due: 105 });
        assert_eq!(packet, *b"untouched bytes of a packet, whatever they may be");
    }

    proptest! {
        /// The ring against a plain queue of vectors, with steps of every kind.
        #[test]
        fn the_ring_equals_a_queue(steps in proptest::collection::vec((0usize..=64, any::<bool>()), 1..400)) {
            let mut line = DelayLine::new(300, 64);
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            for (step, (len, take)) in steps.into_iter().enumerate() {
                if take {
                    prop_assert_eq!(line.due(u64::MAX), model.front().map(Vec::as_slice));
                    line.pop();
                    model.pop_front();
                } else {
                    let packet = vec![step as u8; len];
                    let held: usize = model.iter().map(|packet| packet.len().max(1)).sum();
                    let kept = line.push(&packet, 0);
                    prop_assert!(kept || held > 300 - 64, "refused at {} bytes", held);
                    if kept {
                        model.push_back(packet);
                    }
                }
            }
            while let Some(packet) = model.pop_front() {
                prop_assert_eq!(line.due(0), Some(packet.as_slice()));
                line.pop();
            }
            prop_assert_eq!(line.next_due(), None);
        }
    }
}
