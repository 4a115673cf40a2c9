//! Bytes, processor time and work of the offline linear layers of a network, tensor by tensor, with random
//! weights.
//! `cargo run --release -p tacit-two-party --example linear_cost -- squeezenet|resnet50 [ring bits] [max error]`;
//! set `RAYON_NUM_THREADS`. Times are of the process (user), one party after the other.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use tacit_arith::prg::{Prg, Seed};
use tacit_he::coeff::{Context, MAX_STEPS};
use tacit_two_party::cheetah::linear::{
    CheckedWeights, ClientKeys, Consumer, ConvSpec, LinearClient, LinearPlan, LinearServer, ServerKeys,
};

/// A convolution of `k` x `k` with stride `s` and padding `p`, on a square image.
fn square(in_ch: usize, out_ch: usize, side: usize, k: usize, s: usize, p: usize) -> ConvSpec {
    let base = ConvSpec::linear(in_ch, out_ch);
    ConvSpec { in_h: side, in_w: side, kernel: (k, k), stride: (s, s), pads: [p; 4], ..base }
}

/// Layers by the tensor they read.
fn squeezenet() -> Vec<Vec<ConvSpec>> {
    let mut tensors = vec![vec![square(3, 64, 224, 3, 2, 0)]];
    let fires = [(64, 16, 64, 55), (128, 16, 64, 55), (128, 32, 128, 27), (256, 32, 128, 27)];
    let late = [(256, 48, 192, 13), (384, 48, 192, 13), (384, 64, 256, 13), (512, 64, 256, 13)];
    for (input, squeeze, expand, side) in fires.into_iter().chain(late) {
        tensors.push(vec![square(input, squeeze, side, 1, 1, 0)]);
        tensors.push(vec![square(squeeze, expand, side, 1, 1, 0), square(squeeze, expand, side, 3, 1, 1)]);
    }
    tensors.push(vec![square(512, 1000, 13, 1, 1, 0)]);
    tensors
}

/// ResNet-50 v1.5 (stride in the 3x3).
fn resnet50() -> Vec<Vec<ConvSpec>> {
    let mut tensors = vec![vec![square(3, 64, 224, 7, 2, 3)]];
    let (mut channels, mut side) = (64, 56);
    for (stage, (width, blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate() {
        for block in 0..blocks {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            let mut readers = vec![square(channels, width, side, 1, 1, 0)];
            if block == 0 {
                readers.push(square(channels, 4 * width, side, 1, stride, 0));
            }
            tensors.push(readers);
            tensors.push(vec![square(width, width, side, 3, stride, 1)]);
            side /= stride;
            tensors.push(vec![square(width, 4 * width, side, 1, 1, 0)]);
            channels = 4 * width;
        }
    }
    tensors.push(vec![ConvSpec::linear(2048, 1000)]);
    tensors
}

/// User time of this process in seconds.
fn cpu() -> Result<f64, Box<dyn Error>> {
    let tasks = std::fs::read_dir("/proc/self/task")?;
    let mut total = 0.0;
    for task in tasks {
        let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
        total += stat.split(' ').next().ok_or("schedstat")?.parse::<f64>()? / 1e9;
    }
    Ok(total)
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn print_row(convs: &[ConvSpec], plan: &LinearPlan, times: [f64; 2], memory: usize) {
    let cost = plan.cost();
    let sum = |f: fn(&tacit_two_party::cheetah::linear::ConsumerCost) -> u64| cost.consumers.iter().map(f).sum::<u64>();
    let c = convs[0];
    let shapes: Vec<_> = convs.iter().map(|c| (c.out_ch, c.kernel.0, c.stride.0)).collect();
    println!(
        "{:4}x{:<3} -> (out, k, s) {shapes:?}: {:.2} + {:.2} | {:.3} {:.3} | {} {} {} {} | {:.1}",
        c.in_ch,
        c.in_h,
        mb(cost.up_bytes),
        mb(cost.down_bytes()),
        times[0],
        times[1],
        cost.uploads,
        sum(|c| c.answers),
        sum(|c| c.weight_polys),
        sum(|c| c.products),
        mb(memory as u64)
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let tensors = match arguments.next().as_deref() {
        Some("resnet50") => resnet50(),
        _ => squeezenet(),
    };
    let ring_bits = arguments.next().map_or(Ok(37), |a| a.parse())?;
    let max_error = arguments.next().map_or(Ok(1), |a| a.parse())?;
    let ctx = Arc::new(Context::new()?);
    let mut prg = Prg::from_seed(Seed([1; 16]));
    let (keys, bytes) = ClientKeys::generate(&ctx, MAX_STEPS, &mut prg)?;
    let server_keys = ServerKeys::read(&ctx, MAX_STEPS, &bytes)?;
    println!(
        "tensor -> outputs: up MB + down MB | client s, server s | ciphertexts, answers, weight polys, products | MB held"
    );
    let mut totals = [0.0; 5];
    for convs in tensors {
        let consumers: Vec<Consumer> = convs.iter().map(|&conv| Consumer { conv, ring_bits, norm_log2: 14 }).collect();
        let t0 = cpu()?;
        let plan = LinearPlan::new(&consumers, max_error)?;
        let planning = cpu()? - t0;
        let mask: Vec<u64> = (0..plan.input_len()).map(|_| prg.next_u64()).collect();
        let (client, mut frames) = (LinearClient::new(&keys, &plan), VecDeque::new());
        let t0 = cpu()?;
        client.encrypt(&mask, &prg, &mut |f| {
            frames.push_back(f.to_vec());
            Ok(())
        })?;
        let t1 = cpu()?;
        let server =
            LinearServer::receive_from(&server_keys, &plan, &mut |_| Ok(frames.pop_front().unwrap_or_default()))?;
        let mut times = [t1 - t0, cpu()? - t1];
        for (k, conv) in convs.iter().enumerate() {
            let values: Vec<i32> = (0..conv.weight_len()).map(|_| (prg.next_u64() % 301) as i32 - 150).collect();
            let t0 = cpu()?;
            let weights = CheckedWeights::new(&plan, k, &values)?;
            server.evaluate(k, &weights, &mut prg, &mut |f| {
                frames.push_back(f.to_vec());
                Ok(())
            })?;
            let t1 = cpu()?;
            client.decrypt(k, &mut |_| Ok(frames.pop_front().unwrap_or_default()))?;
            times = [times[0] + cpu()? - t1, times[1] + t1 - t0];
        }
        let cost = plan.cost();
        print_row(&convs, &plan, times, server.memory_bytes());
        for (total, v) in
            totals.iter_mut().zip([mb(cost.up_bytes), mb(cost.down_bytes()), times[0], times[1], planning])
        {
            *total += v;
        }
    }
    let [up, down, client, server, planning] = totals;
    println!(
        "total: up {up:.1} MB, down {down:.1} MB, client {client:.3} s, server {server:.3} s, planning {planning:.3} s"
    );
    Ok(())
}
