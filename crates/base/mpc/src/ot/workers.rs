//! Parallel work in pieces of some ten microseconds, many times a millisecond: too short for
//! threads to sleep.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tacit_arith::block::Block;
use zeroize::Zeroizing;

/// Counts a running piece until dropped, so a panic ends the count, too.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Checks for the last piece before a thread yields to others: some ten microseconds.
const SPINS: u32 = 256;

/// Runs `work` on all `pieces` with the free threads of the current pool. A thread without a piece spins,
/// because a wake-up takes as long as a piece. Each thread has scratch memory, wiped at the end.
pub(super) fn for_each<P: Send>(pieces: impl Iterator<Item = P> + Send, work: impl Fn(&mut Vec<Block>, P) + Sync) {
    let (pieces, busy) = (Mutex::new(pieces), AtomicUsize::new(0));
    let next = || {
        let mut pieces = pieces.lock().expect("nothing panics while it takes a piece");
        let piece = pieces.next()?;
        busy.fetch_add(1, Ordering::Relaxed);
        Some((piece, Busy(&busy)))
    };
    let run_worker = || {
        let mut scratch = Zeroizing::new(Vec::new());
        while let Some((piece, _busy)) = next() {
            work(&mut scratch, piece);
        }
        let all_done = || busy.load(Ordering::Acquire) == 0;
        let soon = || {
            std::hint::spin_loop();
            all_done()
        };
        if !(0..SPINS).any(|_| soon()) {
            // There may be more threads than processors.
            while !all_done() {
                std::thread::yield_now();
            }
        }
    };
    on_threads(rayon::current_num_threads(), &run_worker);
}

/// Runs `work` `count` times, on as many threads as are free.
fn on_threads(count: usize, work: &(impl Fn() + Sync)) {
    match count / 2 {
        0 => work(),
        half => {
            rayon::join(|| on_threads(count - half, work), || on_threads(half, work));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(threads: usize, run: impl FnOnce() + Send) {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run);
    }

    #[test]
    fn every_piece_is_done_once() {
        for threads in [1, 2, 3, 5] {
            for pieces in [0, 1, 2, 100] {
                let mut counts = vec![0; pieces];
                on(threads, || {
                    for_each(counts.iter_mut(), |scratch, piece| {
                        scratch.push(Block::ZERO);
                        *piece += 1;
                    });
                });
                assert!(counts.iter().all(|&times| times == 1), "{pieces} pieces, {threads} threads");
            }
        }
    }

    #[test]
    fn for_each_resumes_a_panic() {
        on(2, || {
            let run = || for_each(0..10, |_, piece| assert!(piece != 3, "the third piece"));
            assert!(std::panic::catch_unwind(run).is_err());
        });
    }
}
