//! Our transform beside that of `tfhe-ntt`, on one prime just below 2^50, one thread, in turns.

use std::time::{Duration, Instant};
use tacit_arith::modulus::Modulus;
use tacit_arith::ntt::NttTable;
use tfhe_ntt::prime64::Plan;

const ROUNDS: usize = 400;

fn timed(best: &mut Duration, run: impl FnOnce()) {
    let start = Instant::now();
    run();
    *best = start.elapsed().min(*best);
}

fn main() {
    let prime = (1..).map(|k| (1u64 << 50) + 1 - (k << 17)).find_map(|p| Modulus::new(p).ok());
    let prime = prime.expect("there are primes below 2^50");
    for n in [1 << 12, 1 << 14, 1 << 15, 1 << 16] {
        let ours = NttTable::new(n, prime).expect("the prime fits the degree");
        let theirs = Plan::try_new(n, prime.value()).expect("the prime fits the degree");
        let fresh: Vec<u64> = (0..n as u64).map(|i| prime.reduce(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
        let (mut x, mut y) = (fresh.clone(), fresh.clone());
        let mut times = [Duration::MAX; 4];
        for _ in 0..ROUNDS {
            timed(&mut times[0], || ours.forward(&mut x));
            timed(&mut times[1], || theirs.fwd(&mut y));
            timed(&mut times[2], || ours.inverse(&mut x));
            timed(&mut times[3], || theirs.inv(&mut y));
            theirs.normalize(&mut y); // not timed: their inverse leaves the factor N
        }
        assert!(x == fresh && y == fresh, "both come back");
        let [forward, their_forward, inverse, their_inverse] = times.map(|t| t.as_secs_f64() * 1e6);
        println!(
            "{n:>6}: forward {forward:7.1} us, tfhe-ntt {their_forward:7.1} us, ratio {:.2}; \
             inverse {inverse:7.1} us, tfhe-ntt {their_inverse:7.1} us, ratio {:.2}",
            forward / their_forward,
            inverse / their_inverse,
        );
    }
}
