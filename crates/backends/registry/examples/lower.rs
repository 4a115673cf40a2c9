//! Imports an ONNX file, lowers it to fixed point, and reports agreement with the float network on test
//! inputs.
//!
//! `cargo run --release -p tacit-backends --example lower -- net.onnx [--calibrate c.npy] [--test t.npy]
//! [--imagenet|--cifar]
//!  [--frac-bits N] [--weight-bits N] [--bound X] [--round-facts N] [--top1] [--layers] [--json]`
//!
//! uint8 samples are raw pixels (normalised as stated), float samples are inputs of the network as they are.

use std::error::Error;
use std::time::Instant;

use tacit_backends::LoweringReport;
use tacit_backends::cheetah::{self, online_bytes};
use tacit_backends::ring::{RingGraph, RingOptions, agreement, lower, public_bytes, read_weights, weights_to_bytes};
use tacit_graph::{ImportOptions, OutputMode, file, import, npy};

struct Args(Vec<String>);

impl Args {
    fn value(&self, name: &str) -> Option<&String> {
        self.0.iter().position(|a| a == name).and_then(|i| self.0.get(i + 1))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|a| a == name)
    }
}

fn options(args: &Args) -> Result<(ImportOptions, RingOptions), Box<dyn Error>> {
    let number = |name: &str| args.value(name).map(|v| v.parse::<u32>()).transpose();
    let mut options = ImportOptions::default();
    let mut ring = RingOptions {
        frac_bits: number("--frac-bits")?,
        weight_bits: number("--weight-bits")?,
        round_facts: number("--round-facts")?.unwrap_or(1),
        ..RingOptions::default()
    };
    if let Some(bound) = args.value("--bound") {
        ring.error_bound = bound.parse()?;
    }
    if args.has("--top1") {
        options.output_mode = OutputMode::Top1;
    }
    if args.has("--imagenet") || args.has("--cifar") {
        options.pixel_scale = 1.0 / 255.0;
        options.mean = vec![0.485, 0.456, 0.406];
        options.std = vec![0.229, 0.224, 0.225];
    }
    if let Some(path) = args.value("--calibrate") {
        options.calibration = Some(npy::read(&std::fs::read(path)?)?);
    }
    Ok((options, ring))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args(std::env::args().skip(1).collect());
    let (options, ring) = options(&args)?;
    let model = std::fs::read(args.0.first().ok_or("which ONNX file?")?)?;
    let price = |graph: &RingGraph| {
        online_bytes::<cheetah::Cheetah>(graph, &cheetah::Options::default()).map(|bytes| bytes as f64)
    };
    let started = Instant::now();
    let imported = import(&model, &options)?;
    let (import_s, started) = (started.elapsed().as_secs_f64(), Instant::now());
    let lowered = lower(&imported.model, &ring, &price)?;
    let lower_s = started.elapsed().as_secs_f64();
    if args.has("--json") {
        println!("{}", LoweringReport::json(&lowered.report));
        return Ok(());
    }
    let text = lowered.report.to_string();
    let text = if args.has("--layers") { &text } else { text.split("\n\n").next().unwrap_or(&text) };
    println!("{text}\nimport took {import_s:.1} s, lowering {lower_s:.1} s");
    let (whole, public, private) =
        (file::write(&imported.model)?, public_bytes(&lowered.graph)?, weights_to_bytes(&lowered.weights));
    let started = Instant::now();
    read_weights(&private, &lowered.graph)?;
    let read_s = started.elapsed().as_secs_f64();
    println!(
        "bytes: file {}, public part {}, weights {} (read in {read_s:.3} s), online {}",
        whole.len(),
        public.len(),
        private.len(),
        price(&lowered.graph)?
    );
    let (linear, compared) = lowered.report.widths();
    println!("linear rings {linear:?}, compared {compared:?}");
    if let Some(path) = args.value("--test") {
        let tests = npy::read(&std::fs::read(path)?)?;
        let inputs = options.prepare(&imported.network.graph.nodes[0].shape, &tests, usize::MAX)?;
        for seed in [None, Some(1)] {
            let a = agreement(&imported, &lowered, &inputs, seed)?;
            println!(
                "{} test inputs ({}): {:.2} % same class as float, output error mean {:.3} % max {:.3} %, outside the rings: {}",
                a.samples,
                if seed.is_some() { "truncation errors simulated" } else { "reference" },
                100.0 * a.same_class,
                100.0 * a.mean_error,
                100.0 * a.max_error,
                a.out_of_range
            );
        }
    }
    Ok(())
}
