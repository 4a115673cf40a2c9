//! `tacit zoo`: writes well-known architectures with random weights.
use crate::output::{self, Alike};
use crate::print;
use serde_json::{Value, json};
use std::path::PathBuf;
use tacit_graph::zoo;

/// Number of bytes that all ONNX files of this program have in common at the beginning.
const COMMON_BYTES: usize = 9;

/// Write a well-known architecture with random (seeded) weights, for measurements
///
/// `tacit zoo --list` shows the architectures, with their layers, parameters, activations and multiplications.
///
/// Example: tacit zoo squeezenet1.1 -o squeezenet1.1.onnx
#[derive(clap::Args)]
pub struct Args {
    /// Name of the architecture
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// ONNX file to write
    #[arg(short, long, value_name = "FILE.onnx", required_unless_present = "list", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Seed of the weights
    #[arg(long, default_value_t = 1, help_heading = "Model")]
    seed: u64,
    /// List all architectures, or the named one, and write no file
    #[arg(long, conflicts_with = "output", help_heading = "Output")]
    list: bool,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    // Both are required unless the command lists the networks.
    let (Some(name), Some(output)) = (&args.name, &args.output) else { return list(args.name.as_deref(), as_json) };
    let bytes = zoo::build(name, args.seed)?;
    // The beginning holds the version and the producer: this program.
    output::write(output, &bytes, Alike::Beginning(&bytes[..bytes.len().min(COMMON_BYTES)]))?;
    if as_json {
        print::json(&json!({"name": name, "output": output, "bytes": bytes.len()}))?;
    }
    Ok(())
}

fn list(chosen_name: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    let names = zoo::NAMES.iter().map(|(name, _)| *name);
    let names: Vec<&str> = chosen_name.map_or_else(|| names.collect(), |chosen| vec![chosen]);
    let outlines = names.into_iter().map(zoo::outline).collect::<Result<Vec<_>, _>>()?;
    if as_json {
        return print::json(&Value::Array(outlines.iter().map(to_json).collect()));
    }
    print::line(&format!(
        "{:16}{:>14}{:>14}{:>14}{:>17}  layers",
        "name", "input", "parameters", "activations", "multiplications"
    ))?;
    for net in &outlines {
        let input: Vec<String> = net.input.iter().map(usize::to_string).collect();
        let kinds =
            [("Conv", "conv"), ("Gemm", "dense"), ("Relu", "ReLU"), ("MaxPool", "max"), ("AveragePool", "average")];
        let counts = kinds.map(|(op, word)| (net.count(op), word));
        let layers: Vec<String> =
            counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
        print::line(&format!(
            "{:16}{:>14}{:>14}{:>14}{:>17}  {}",
            net.name,
            input.join(" x "),
            net.parameters(),
            net.activations(),
            net.macs(),
            layers.join(", ")
        ))?;
    }
    Ok(())
}

fn to_json(net: &zoo::Outline) -> Value {
    let layers = net
        .layers
        .iter()
        .map(|l| json!({"op": l.op, "kernel": l.kernel, "shape": l.shape, "parameters": l.parameters, "macs": l.macs}));
    json!({"name": net.name, "input": net.input, "parameters": net.parameters(), "activations": net.activations(), "macs": net.macs(),
           "layers": layers.collect::<Vec<_>>()})
}
