//! `tacit model`
use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tacit_backends::Backend;
use tacit_backends::cheetah::Cheetah;
use tacit_graph::quant::{ImportOptions, Imported, import};
use tacit_graph::{OutputMode, npy};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Turn an ONNX network into a fixed-point model file
    ///
    /// Example: tacit model import net.onnx --calibrate samples.npy --pixel-scale 0.00392157 --mean 0.485,0.456,0.406 --std
    /// 0.229,0.224,0.225 -o net.tacit
    Import(Box<ImportArgs>),
    /// Show what a model file says
    ///
    /// Example: tacit model inspect net.tacit --json
    Inspect {
        /// Model file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
struct ImportArgs {
    /// ONNX file
    onnx: PathBuf,
    /// Model file to write; its name is the name clients ask for
    #[arg(short, long, value_name = "FILE.tacit")]
    output: PathBuf,
    /// Samples [N, ...input] as .npy: bytes are raw pixels, other numbers are inputs as they are
    #[arg(long, value_name = "FILE.npy")]
    calibrate: Option<PathBuf>,
    /// Subtracted from pixels, per channel, after --pixel-scale
    #[arg(long, value_delimiter = ',', value_name = "X,...", allow_negative_numbers = true)]
    mean: Vec<f32>,
    /// Divides pixels, per channel
    #[arg(long, value_delimiter = ',', value_name = "X,...")]
    std: Vec<f32>,
    /// Multiplies raw 8-bit pixels, e.g. 0.00392157
    #[arg(long, default_value_t = 1.0)]
    pixel_scale: f32,
    /// Range of the network's input, if neither samples nor a normalisation tell
    #[arg(long, value_delimiter = ',', num_args = 1, value_name = "LOW,HIGH", allow_negative_numbers = true)]
    range: Vec<f32>,
    /// What the client learns
    #[arg(long, value_enum, default_value_t = Reveal::Logits)]
    reveal: Reveal,
    /// The same fraction bits for all tensors, instead of the search
    #[arg(long)]
    frac_bits: Option<u32>,
    /// The same fraction bits for all weights
    #[arg(long)]
    weight_bits: Option<u32>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Reveal {
    /// All outputs
    Logits,
    /// The best class only (a secure arg max)
    Top1,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Import(args) => run_import(&args),
        Command::Inspect { file, json } => inspect(&file, json),
    }
}

fn run_import(args: &ImportArgs) -> anyhow::Result<()> {
    let bytes = fs::read(&args.onnx).with_context(|| format!("reading {}", args.onnx.display()))?;
    let mut options = ImportOptions {
        mean: args.mean.clone(),
        std: args.std.clone(),
        pixel_scale: args.pixel_scale,
        frac_bits: args.frac_bits,
        weight_bits: args.weight_bits,
        output_mode: match args.reveal {
            Reveal::Logits => OutputMode::Logits,
            Reveal::Top1 => OutputMode::Top1,
        },
        ..ImportOptions::default()
    };
    options.range = match args.range.as_slice() {
        [] => None,
        &[low, high] => Some([low, high]),
        other => anyhow::bail!("--range takes two numbers, LOW,HIGH; {} were given", other.len()),
    };
    if let Some(path) = &args.calibrate {
        let samples = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        options.calibration = Some(npy::read(&samples).with_context(|| path.display().to_string())?);
    }
    let imported = import(&bytes, &options).with_context(|| args.onnx.display().to_string())?;
    write_private(&args.output, &imported.to_file()?).with_context(|| format!("writing {}", args.output.display()))?;
    if args.json {
        println!("{}", imported.report.to_json()?);
    } else {
        println!("{}", imported.report);
    }
    Ok(())
}

/// Writes a file that only its owner may read: a model file holds the weights.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Imports with defaults, as `bench` does; warnings go to standard error.
pub fn import_with_defaults(path: &Path, bytes: &[u8]) -> anyhow::Result<Imported> {
    let imported = import(bytes, &ImportOptions::default()).with_context(|| path.display().to_string())?;
    imported.report.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    Ok(imported)
}

fn inspect(path: &Path, as_json: bool) -> anyhow::Result<()> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let model = tacit_graph::file::read(&bytes).with_context(|| path.display().to_string())?;
    let backend = Cheetah::default();
    let cost = backend.cost(&backend.compile(&model.graph)?);
    let digest = crate::print::hex(&model.digest);
    if as_json {
        let text = json!({"digest": digest, "spec": model.graph.spec(), "summary": model.summary, "cost": cost});
        println!("{}", serde_json::to_string_pretty(&text)?);
        return Ok(());
    }
    let spec = model.graph.spec();
    println!("{}  (digest {})", spec.name, &digest[..16]);
    println!(
        "calibration: {}; agreement with float {:.1} %",
        model.summary.calibration,
        100.0 * model.summary.agreement
    );
    println!(
        "client learns: {}",
        match (spec.output_mode, spec.softmax_by_client) {
            (OutputMode::Top1, _) => "the best class",
            (OutputMode::Logits, true) => "all outputs (softmax is left to it)",
            (OutputMode::Logits, false) => "all outputs",
        }
    );
    println!(
        "input: (pixel * {} - {:?}) / {:?}, accepted {:?}",
        spec.input.pixel_scale, spec.input.mean, spec.input.std, spec.input.range
    );
    println!("{} comparisons, {} multiplications", cost.comparisons, model.summary.macs);
    for (name, phase) in [("offline", cost.offline), ("online", cost.online)] {
        let [up, down] = [phase.up_bytes, phase.down_bytes].map(crate::print::bytes);
        println!("{name}: {up} up, {down} down, {} exchanges", phase.exchanges);
    }
    for (id, node) in model.graph.nodes().iter().enumerate() {
        let shape = format!("{:?}", node.shape);
        let f = node.fixed;
        println!(
            "{id:>4} {:<10} {shape:<18} {:>2} bits, {:>2} fraction  {}",
            node.op.name(),
            f.width,
            f.frac_bits,
            node.name
        );
    }
    Ok(())
}
