//! Prints microseconds per transform and per multiply-accumulate for each kernel of this processor
//! (best of 15 rounds).

use std::hint::black_box;
use std::time::Instant;
use tacit_arith::cpu::Cpu;
use tacit_arith::modulus::Modulus;
use tacit_arith::ntt::NttTable;

fn best(mut f: impl FnMut()) -> f64 {
    (0..15)
        .map(|_| {
            let start = Instant::now();
            (0..200).for_each(|_| f());
            start.elapsed().as_secs_f64() * 1e6 / 200.0
        })
        .fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), tacit_arith::LatticeError> {
    let modulus = Modulus::new(1_125_899_903_827_969)?;
    for degree in [4096, 8192, 32_768, 65_536] {
        for cpu in Cpu::available() {
            let ntt = NttTable::with_cpu(cpu, degree, modulus)?;
            let mut x: Vec<u64> = (0..degree as u64).map(|i| i * 0x1234_5678 % modulus.value()).collect();
            let y = x.clone();
            let (mut low, mut high) = (vec![0; degree], vec![0; degree]);
            let forward = best(|| ntt.forward(black_box(&mut x)));
            let inverse = best(|| ntt.inverse(black_box(&mut x)));
            let mac = best(|| ntt.mac(&mut low, &mut high, &[(x.as_slice(), y.as_slice()); 4])) / 4.0;
            let mul = best(|| ntt.mul_assign(black_box(&mut x), &y));
            let reduce = best(|| ntt.reduce_acc(black_box(&mut low), &mut high));
            println!(
                "N {degree}: forward {forward:.2} inverse {inverse:.2} mac {mac:.2} mul {mul:.2} reduce {reduce:.2} ({cpu:?})"
            );
        }
    }
    Ok(())
}
