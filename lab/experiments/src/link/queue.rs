//! Waiting packets: a first-in-first-out queue, and the treatment of each packet. Pure: the caller
//! passes the time.
use super::packet;
use std::collections::VecDeque;

pub(super) struct DelayLine {
    /// Most bytes of packets.
    capacity: usize,
    bytes: usize,
    packets: VecDeque<(u64, Vec<u8>)>,
}

impl DelayLine {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, bytes: 0, packets: VecDeque::new() }
    }

    pub(super) fn has_room(&self, len: usize) -> bool {
        self.bytes + len <= self.capacity
    }

    /// Stores a copy of `packet`, due at `due`, but not before its predecessor; false if the line
    /// is full.
    pub(super) fn push(&mut self, packet: &[u8], due: u64) -> bool {
        if !self.has_room(packet.len()) {
            return false;
        }
        let due = self.packets.back().map_or(due, |(last, _)| due.max(*last));
        self.bytes += packet.len();
        self.packets.push_back((due, packet.to_vec()));
        true
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.packets.front().map(|(due, _)| *due)
    }

    /// Takes the first packet out, if it is due at `now`.
    pub(super) fn take_due(&mut self, now: u64) -> Option<Vec<u8>> {
        self.next_due().filter(|due| *due <= now)?;
        let (_, packet) = self.packets.pop_front()?;
        self.bytes -= packet.len();
        Some(packet)
    }
}

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

/// Delay of a replayed packet, ns: longer than that of the packets after the original.
pub(super) const REPLAY_AFTER: u64 = 50_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) lost: bool,
    pub(super) corrupted: bool,
    pub(super) replayed: bool,
    /// Due time, ns.
    pub(super) due: u64,
}

impl Treatment {
    /// Decides the fate of `packet` (an IP packet, changed in place), which arrives at `now`.
    pub(super) fn decide(&self, now: u64, packet: &mut [u8], random: &mut fastrand::Rng) -> Fate {
        let is_lost = chance(random, self.loss);
        let corrupt = chance(random, self.corrupt);
        let replayed = chance(random, self.duplicate);
        let corrupted = corrupt && !is_lost && packet::corrupt(packet, random);
        let wobble = if self.jitter == 0 { 0 } else { random.u64(0..=2 * self.jitter) };
        Fate { lost: is_lost, corrupted, replayed: replayed && !is_lost, due: now + self.delay - self.jitter + wobble }
    }
}

fn chance(random: &mut fastrand::Rng, probability: f64) -> bool {
    probability > 0.0 && random.f64() < probability
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Treatment = Treatment { delay: 100, jitter: 0, loss: 0.0, corrupt: 0.0, duplicate: 0.0 };

    #[test]
    fn packets_come_out_when_due() {
        let mut line = DelayLine::new(100);
        assert!(line.push(b"first", 50));
        assert!(line.push(b"second", 60));
        assert_eq!(line.next_due(), Some(50));
        assert_eq!(line.take_due(49), None);
        assert_eq!(line.take_due(50).unwrap(), b"first");
        assert_eq!(line.take_due(59), None);
        assert_eq!(line.take_due(1000).unwrap(), b"second");
        assert_eq!((line.next_due(), line.take_due(u64::MAX)), (None, None));
    }

    #[test]
    fn packets_keep_their_order() {
        let mut line = DelayLine::new(100);
        assert!(line.push(b"slow", 90));
        assert!(line.push(b"fast", 20));
        line.take_due(90).unwrap();
        assert_eq!(line.next_due(), Some(90));
    }

    #[test]
    fn full_line_refuses_and_recovers() {
        let mut line = DelayLine::new(40);
        assert!((0..4).all(|byte| line.push(&[byte; 10], 0)));
        assert!(!line.push(&[0; 10], 0));
        assert!(!line.has_room(1));
        assert!(line.push(&[], 0));
        assert_eq!(line.take_due(0).unwrap(), [0; 10]);
        assert!(line.push(&[9; 10], 0));
        assert!(!line.push(&[9], 0));
        assert_eq!(line.take_due(0).unwrap(), [1; 10]);
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
}
