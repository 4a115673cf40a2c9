//! Prints the cost of counting: nanoseconds to allocate and free a block, in a thread without an
//! account, in one with an account, and with four threads on one account. Takes some seconds.
use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use tacit_arith::heap::{Account, Counting};

#[global_allocator]
static HEAP: Counting = Counting;

const ROUNDS: u32 = 1_000_000;

/// Best of several rounds, because other programs may run.
fn nanoseconds(bytes: usize) -> f64 {
    let once = || {
        let began = Instant::now();
        for _ in 0..ROUNDS {
            black_box(Vec::<u8>::with_capacity(black_box(bytes)));
        }
        began.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
    };
    (0..7).map(|_| once()).fold(f64::INFINITY, f64::min)
}

fn main() {
    for bytes in [64, 4096, 65_536] {
        let without = nanoseconds(bytes);
        let account = Arc::new(Account::open().expect("there is room for one"));
        let with = {
            let _visit = account.visit();
            nanoseconds(bytes)
        };
        let four = (0..4).map(|_| {
            let account = Arc::clone(&account);
            thread::spawn(move || {
                account.enter();
                nanoseconds(bytes)
            })
        });
        let four: Vec<f64> = four.collect::<Vec<_>>().into_iter().map(|t| t.join().expect("no panic")).collect();
        let slowest = four.into_iter().fold(0.0, f64::max);
        println!(
            "{bytes} bytes: {without:.1} ns without, {with:.1} ns with an account, {slowest:.1} ns in four threads"
        );
    }
}
