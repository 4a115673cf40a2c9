//! Benchmarks the kernels of lattice schemes at N = 2^15 and 2^16: time, bytes a second, and these
//! as a share of the rate of a memory copy in the same run.
//! `cargo bench -p tacit-arith --bench lattice [-- WORD]` prints the rows whose names contain WORD.
//!
//! Figures are the best of several runs, because the machine may be shared. Bytes are those of the
//! caller's buffers that are read and written, without tables.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tacit_arith::cpu::Cpu;
use tacit_arith::modulus::Modulus;
use tacit_arith::ntt::{Galois, NttTable};
use tacit_arith::pointwise::Pointwise;
use tacit_arith::prg::{Prg, PublicSeed};
use tacit_arith::rns::Conversion;
use tacit_arith::{pack, sample};

/// Primes just below 2^50 that are 1 mod 2^17.
fn primes(count: usize) -> Vec<Modulus> {
    let candidates = (1..).map(|k| (1u64 << 50) + 1 - (k << 17));
    candidates.filter_map(|p| Modulus::new(p).ok()).take(count).collect()
}

fn uniform(n: usize, m: &Modulus, prg: &mut Prg) -> Vec<u64> {
    let mut words = vec![0; n];
    sample::uniform(prg, m, &mut words);
    words
}

/// Shortest time of at least five runs that take at least 0.2 seconds together.
fn best(mut run: impl FnMut()) -> Duration {
    let (start, mut best) = (Instant::now(), Duration::MAX);
    let mut runs = 0;
    while start.elapsed() < Duration::from_millis(200) || runs < 5 {
        runs += 1;
        let started = Instant::now();
        run();
        best = best.min(started.elapsed());
    }
    best
}

/// Prints rows with their share of the speed of memory.
struct Report {
    only: String,
    /// Bytes a second of a copy far larger than the caches; counts both reads and writes.
    memory: f64,
}

impl Report {
    fn row(&self, name: &str, bytes: usize, run: impl FnMut()) {
        if !name.contains(&self.only) {
            return;
        }
        let seconds = best(run).as_secs_f64();
        let rate = bytes as f64 / seconds;
        let share = 100.0 * rate / self.memory;
        println!("{name:<44} {:>9.1} us {:>7.1} GB/s {share:>5.0} %", seconds * 1e6, rate / 1e9);
    }
}

fn memory_bandwidth() -> f64 {
    const WORDS: usize = 1 << 24;
    let (source, mut target) = (vec![1u64; WORDS], vec![0u64; WORDS]);
    let time = best(|| black_box(&mut target).copy_from_slice(black_box(&source)));
    (16 * WORDS) as f64 / time.as_secs_f64()
}

fn transforms(report: &Report, n: usize, prg: &mut Prg) {
    let p = primes(1)[0];
    for cpu in Cpu::available() {
        let ntt = NttTable::with_cpu(cpu, n, p).expect("the prime fits the degree");
        let mut x = uniform(n, &p, prg);
        let kernel = ntt.kernel_name();
        report.row(&format!("ntt {n} forward, {kernel}"), 16 * n, || ntt.forward(black_box(&mut x)));
        report.row(&format!("ntt {n} inverse, {kernel}"), 16 * n, || ntt.inverse(black_box(&mut x)));
    }
    let (galois, x, mut y) = (Galois::new(n, 5).expect("an odd exponent"), uniform(n, &p, prg), vec![0; n]);
    report.row(&format!("galois {n}"), 16 * n, || galois.apply(black_box(&x), &mut y));
}

fn slices(report: &Report, n: usize, prg: &mut Prg) {
    let p = primes(1)[0];
    for cpu in Cpu::available() {
        let op = Pointwise::with_cpu(cpu, p);
        let (mut x, y) = (uniform(n, &p, prg), uniform(n, &p, prg));
        let w = p.shoup(y[0]);
        let name = |operation: &str| format!("{operation} {n}, {}", op.kernel_name());
        report.row(&name("add"), 24 * n, || op.add(black_box(&mut x), &y));
        report.row(&name("mul"), 24 * n, || op.mul(black_box(&mut x), &y));
        report.row(&name("scale"), 16 * n, || op.scale(black_box(&mut x), w));
        report.row(&name("sub_scale"), 24 * n, || op.sub_scale(black_box(&mut x), &y, w));
        report.row(&name("reduce"), 16 * n, || op.reduce(black_box(&mut x)));
        let polys: Vec<_> = (0..9).map(|_| uniform(n, &p, prg)).collect();
        let digits: Vec<&[u64]> = polys[..3].iter().map(Vec::as_slice).collect();
        let pairs: Vec<[&[u64]; 2]> = polys[3..].chunks(2).map(|c| [c[0].as_slice(), c[1].as_slice()]).collect();
        let (mut left, mut right) = (vec![0; n], vec![0; n]);
        report.row(&name("dot_pair of 3"), (3 * 3 + 4) * 8 * n, || {
            op.dot_pair(&digits, black_box(&pairs), [&mut left, &mut right]);
        });
    }
}

fn conversions(report: &Report, n: usize, prg: &mut Prg) {
    for (sources, targets) in [(1, 4), (4, 4), (8, 4)] {
        let moduli = primes(sources + targets);
        let (source_moduli, target_moduli) = moduli.split_at(sources);
        for cpu in Cpu::available() {
            let conversion = Conversion::with_cpu(cpu, source_moduli, target_moduli).expect("distinct primes");
            let x: Vec<Vec<u64>> = source_moduli.iter().map(|m| uniform(n, m, prg)).collect();
            let x: Vec<&[u64]> = x.iter().map(Vec::as_slice).collect();
            let mut y = vec![vec![0; n]; targets];
            let mut y: Vec<&mut [u64]> = y.iter_mut().map(Vec::as_mut_slice).collect();
            let name = format!("conversion {n} x {sources} to {targets}, {}", conversion.kernel_name());
            report.row(&name, 8 * n * (sources + targets), || conversion.apply(black_box(&x), &mut y));
        }
    }
}

fn keys(report: &Report, n: usize, prg: &mut Prg) {
    let p = primes(1)[0];
    let (mut x, mut bytes) = (uniform(n, &p, prg), vec![0; n * 50 / 8]);
    let seed = PublicSeed::from_bytes([7; 16]);
    report.row(&format!("uniform {n}"), 8 * n, || sample::uniform(&mut seed.stream(), &p, black_box(&mut x)));
    report.row(&format!("pack {n}"), 8 * n + n * 50 / 8, || pack::pack_into(black_box(&x), 50, &mut bytes));
    report.row(&format!("unpack {n}"), 8 * n + n * 50 / 8, || {
        pack::unpack_into(black_box(&bytes), 50, p.value() - 1, &mut x).expect("packed above");
    });
}

fn main() {
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    // Inside the pool, so that no time is spent on passing work between threads.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread can be had");
    pool.install(|| run_benches(only));
}

fn run_benches(only: String) {
    let report = Report { only, memory: memory_bandwidth() };
    println!("copy of 128 MiB: {:.1} GB/s, read and written; shares are of that", report.memory / 1e9);
    let mut prg = PublicSeed::from_bytes([1; 16]).stream();
    for n in [1 << 15, 1 << 16] {
        transforms(&report, n, &mut prg);
        slices(&report, n, &mut prg);
        conversions(&report, n, &mut prg);
        conversions(&report, n / 16, &mut prg);
        keys(&report, n, &mut prg);
    }
}
