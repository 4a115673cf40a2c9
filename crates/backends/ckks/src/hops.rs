//! The fewest key switches of a rotation by each distance, with given rotation keys.
//!
//! A rotation by a distance without a key is made of rotations that have one ("hops"). Distances are integers
//! modulo the number n of slots, and a key leads from each distance to another: the Cayley graph of Z_n,
//! whose generators are the rotations with a key. The fewest hops are shortest paths from 0. At one level
//! every hop is one key switch, so fewest hops are least time.

use std::collections::VecDeque;

/// Powers of two in either direction, modulo `n`.
pub(super) fn signed_powers(n: usize) -> Vec<i64> {
    (0..n.trailing_zeros()).flat_map(|b| [1 << b, n as i64 - (1 << b)]).collect()
}

/// Hops to a distance that no sum of generators reaches.
pub(super) const NEVER: u32 = u32::MAX;

/// The fewest hops to each distance.
#[derive(Clone)]
pub(super) struct Hops {
    /// Hops from 0 to each distance.
    counts: Vec<u32>,
    generators: Vec<i64>,
}

impl Hops {
    pub fn new(n: usize, generators: impl IntoIterator<Item = i64>) -> Self {
        let mut hops = Self { counts: vec![NEVER; n], generators: Vec::new() };
        hops.counts[0] = 0;
        hops.generators = generators.into_iter().map(|k| k.rem_euclid(n as i64)).filter(|&k| k != 0).collect();
        hops.relax(VecDeque::from([0]));
        hops
    }

    pub fn add(&mut self, generator: i64) {
        let n = self.counts.len();
        let step = generator.rem_euclid(n as i64) as usize;
        if step == 0 || self.generators.contains(&(step as i64)) {
            return;
        }
        self.generators.push(step as i64);
        // Vertices from which the new generator reaches a distance sooner, nearest first.
        let mut nearer: Vec<usize> = Vec::new();
        for vertex in 0..n {
            let reached = (vertex + step) % n;
            if self.counts[vertex] != NEVER && self.counts[vertex] + 1 < self.counts[reached] {
                nearer.push(vertex);
            }
        }
        nearer.sort_by_key(|&vertex| self.counts[vertex]);
        self.relax(nearer.into());
    }

    /// Updates hops from the vertices in `queue`, which return to it whenever they come nearer.
    fn relax(&mut self, mut queue: VecDeque<usize>) {
        let n = self.counts.len();
        while let Some(vertex) = queue.pop_front() {
            for &generator in &self.generators {
                let reached = (vertex + generator as usize) % n;
                if self.counts[vertex] + 1 < self.counts[reached] {
                    self.counts[reached] = self.counts[vertex] + 1;
                    queue.push_back(reached);
                }
            }
        }
    }

    /// The hops to `k`, or [`NEVER`].
    pub fn count_to(&self, k: i64) -> u32 {
        self.counts[k.rem_euclid(self.counts.len() as i64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_graph::rng::SplitMix;

    /// Finds the fewest generators that sum to `k` by trying all.
    fn count_by_trying(n: i64, generators: &[i64], k: i64) -> u32 {
        let mut reachable = std::collections::BTreeSet::from([0]);
        for hops in 0..n as u32 {
            if reachable.contains(&k.rem_euclid(n)) {
                return hops;
            }
            reachable = reachable.iter().flat_map(|r| generators.iter().map(move |g| (r + g).rem_euclid(n))).collect();
        }
        NEVER
    }

    #[test]
    fn hops_match_brute_force() {
        let mut rng = SplitMix::new(4);
        for n in [16usize, 24, 64] {
            for count in 1..5 {
                let generators: Vec<i64> = (0..count).map(|_| rng.range(1.0, n as f64) as i64).collect();
                let hops = Hops::new(n, generators.iter().copied());
                let mut grown = Hops::new(n, []);
                generators.iter().for_each(|&g| grown.add(g));
                for k in 0..n as i64 {
                    assert_eq!(
                        hops.count_to(k),
                        count_by_trying(n as i64, &generators, k),
                        "{generators:?} to {k} of {n}"
                    );
                    assert_eq!(grown.count_to(k), hops.count_to(k));
                }
            }
        }
    }
}
