//! Seeded mutations of valid inputs: what an attacker or a bad disk would change.

const EDGES: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX >> 1, u64::MAX];

/// A deterministic source of mutated inputs.
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound` (0 for a bound of 0). Small numbers, where headers are, come up more often.
    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            return 0;
        }
        let bound = if self.next().is_multiple_of(2) { bound } else { bound.min(128) };
        (self.next() % bound as u64) as usize
    }

    /// One to four changes of one of the seeds.
    pub fn mutate(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut data = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut data, seeds);
        }
        data
    }

    fn change(&mut self, data: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(data.len());
        match self.next() % 8 {
            0 => data.truncate(at),
            1 => {
                let extra = self.below(64);
                data.extend((0..extra).map(|i| i as u8));
            }
            2 => {
                let end = (at + self.below(32)).min(data.len());
                data.drain(at..end);
            }
            3 => {
                let copy = data[at..(at + 16).min(data.len())].to_vec();
                data.splice(at..at, copy);
            }
            4 => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len());
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            5 => {
                let edge = EDGES[self.below(EDGES.len())].to_le_bytes();
                let size = 1 << self.below(4);
                for (byte, new) in data[at..].iter_mut().zip(&edge[..size]) {
                    *byte = *new;
                }
            }
            6 if !data.is_empty() => data[at] = self.next() as u8,
            _ if !data.is_empty() => data[at] ^= 1 << (self.next() % 8),
            _ => {}
        }
    }
}
