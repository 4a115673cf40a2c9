//! Prints milliseconds of the server's online convolutions on typical shapes in both word
//! sizes, the best of five (run with RAYON_NUM_THREADS=1 to compare).

use std::time::Instant;
use tacit_arith::ring::{ConvSpec, ShapeError, conv2d};

fn main() -> Result<(), ShapeError> {
    let base = ConvSpec::linear(1, 1);
    let square = |in_ch, out_ch, side, k: usize, s, p| ConvSpec {
        in_ch,
        out_ch,
        in_h: side,
        in_w: side,
        kernel: (k, k),
        stride: (s, s),
        pads: [p; 4],
        ..base
    };
    for spec in [
        square(3, 64, 224, 3, 2, 0),
        square(16, 64, 55, 3, 1, 1),
        square(48, 192, 13, 3, 1, 1),
        square(512, 1000, 13, 1, 1, 0),
        square(512, 512, 7, 3, 1, 1),
        ConvSpec::linear(4096, 4096),
    ] {
        let weights: Vec<i32> = (0..spec.weight_len() as i32).map(|i| i % 4001 - 2000).collect();
        let input: Vec<u64> = (0..spec.in_len() as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        let macs = (spec.weight_len() / spec.out_ch * spec.out_len()) as f64;
        for bits in [32, 64] {
            let mut best = f64::INFINITY;
            for _ in 0..5 {
                let start = Instant::now();
                conv2d(&spec, &weights, &input, bits)?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            println!("{bits} bits: {:.2} ms, {:.2} GMAC/s: {spec:?}", best * 1e3, macs / best / 1e9);
        }
    }
    Ok(())
}
