//! `tacit zoo`
use anyhow::Context;
use serde_json::json;
use std::fs;
use std::path::PathBuf;

/// Writes a well-known architecture with random (seeded) weights, to measure on.
///
/// Names: squeezenet1.1, resnet50, resnet18, resnet32, vgg16, alexnet, densenet121, and small ones (any other
/// name lists all).
///
/// Example: tacit zoo squeezenet1.1 -o squeezenet1.1.onnx
#[derive(clap::Args)]
pub struct Args {
    /// Architecture
    name: String,
    /// ONNX file to write
    #[arg(short, long, value_name = "FILE.onnx")]
    output: PathBuf,
    /// Seed of the weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    let bytes = tacit_graph::zoo::build(&args.name, args.seed)?;
    fs::write(&args.output, &bytes).with_context(|| format!("writing {}", args.output.display()))?;
    if as_json {
        crate::print::json(&json!({"name": args.name, "output": args.output, "bytes": bytes.len()}))?;
    }
    Ok(())
}
