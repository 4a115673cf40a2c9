//! Imports an ONNX file and reports agreement with the float network on test inputs.
//!
//! `cargo run --release -p tacit-graph --example import -- net.onnx [--calibrate c.npy] [--test t.npy] [--imagenet|--cifar]
//!  [--frac-bits N] [--weight-bits N] [--bound X] [--top1] [--layers] [--json]`
//!
//! uint8 samples are raw pixels (normalised as stated), float samples are inputs of the network as they are.

use std::error::Error;

use tacit_graph::onnx::{ImportOptions, import};
use tacit_graph::quant::agreement;
use tacit_graph::{ModelGraph, OutputMode, npy};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let has = |name: &str| args.iter().any(|a| a == name);
    let number = |name: &str| value(name).map(|v| v.parse::<u32>()).transpose();
    let model = std::fs::read(args.first().ok_or("which ONNX file?")?)?;
    let mut options = ImportOptions {
        frac_bits: number("--frac-bits")?,
        weight_bits: number("--weight-bits")?,
        ..ImportOptions::default()
    };
    if let Some(bound) = value("--bound") {
        options.error_bound = bound.parse()?;
    }
    if has("--top1") {
        options.output_mode = OutputMode::Top1;
    }
    if has("--imagenet") || has("--cifar") {
        options.pixel_scale = 1.0 / 255.0;
        options.mean = vec![0.485, 0.456, 0.406];
        options.std = vec![0.229, 0.224, 0.225];
    }
    if let Some(path) = value("--calibrate") {
        options.calibration = Some(npy::read(&std::fs::read(path)?)?);
    }
    let started = std::time::Instant::now();
    let imported = import(&model, &options)?;
    let seconds = started.elapsed().as_secs_f64();
    let report = &imported.report;
    if has("--json") {
        println!("{}", report.to_json()?);
        return Ok(());
    }
    let text = report.to_string();
    let text = if has("--layers") { &text } else { text.split("\n\n").next().unwrap_or(&text) };
    println!("{text}\nimport took {seconds:.1} s, file of {} bytes", imported.to_file()?.len());
    let (linear, compared) = imported.report.widths();
    println!("linear rings {linear:?}, compared {compared:?}");
    if let Some(path) = value("--test") {
        let tests = npy::read(&std::fs::read(path)?)?;
        let graph = ModelGraph::new(imported.spec.clone())?;
        for simulated in [false, true] {
            let a = agreement(&imported, &graph, &options, &tests, simulated)?;
            println!(
                "{} test inputs ({}): {:.2} % same class as float, output error mean {:.3} % max {:.3} %, outside the rings: {}",
                a.samples,
                if simulated { "truncation errors simulated" } else { "reference" },
                100.0 * a.same_class,
                100.0 * a.mean_error,
                100.0 * a.max_error,
                a.out_of_range
            );
        }
    }
    Ok(())
}
