//! `tacit model`
use crate::owner::SealArgs;
use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use tacit_backends::{Costs, DEFAULT, Options, Registry, ServerModel, lowered};
use tacit_client::input::{self, Fit};
use tacit_graph::import::{ImportOptions, import};
use tacit_graph::{Interface, Model, OutputMode, Units, npy};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Turn an ONNX network into a model file, and lower it for a back end
    ///
    /// Example: tacit model import net.onnx --calibrate samples.npy --pixel-scale 0.00392157 --mean 0.485,0.456,0.406 --std
    /// 0.229,0.224,0.225 -o net.tacit
    Import(Box<ImportArgs>),
    /// Lower a model for a back end ahead of time, so that a server starts without
    ///
    /// Example: tacit model lower net.tacit --backend cheetah -O frac_bits=12
    Lower(LowerArgs),
    /// Show what a model file or a lowered model says
    ///
    /// Example: tacit model inspect net.cheetah.lowered --json
    Inspect {
        /// Model file (.tacit) or lowered model (.lowered)
        file: PathBuf,
        #[command(flatten)]
        seal: SealArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run the float network here, in the clear: what every private answer stands for
    ///
    /// Example: tacit model run net.tacit photo.npy
    Run(RunArgs),
    /// List the back ends that this program has
    Backends,
}

/// Options of a back end, as every command takes them.
#[derive(clap::Args, Clone)]
pub struct BackendArgs {
    /// Option of the back end, e.g. frac_bits=12; may be repeated
    #[arg(short = 'O', long = "option", value_name = "KEY=VALUE,...")]
    options: Vec<String>,
}

impl BackendArgs {
    /// The options, those on the right win.
    pub fn parse(&self) -> anyhow::Result<Options> {
        Ok(self.options.join(",").parse()?)
    }
}

#[derive(clap::Args)]
struct LowerArgs {
    /// Model file
    file: PathBuf,
    /// Back end
    #[arg(long, default_value = DEFAULT)]
    backend: String,
    #[command(flatten)]
    options: BackendArgs,
    #[command(flatten)]
    seal: SealArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct RunArgs {
    /// Model file
    file: PathBuf,
    /// Images (PNG, JPEG) or .npy arrays
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    seal: SealArgs,
    /// Print one JSON object per input
    #[arg(long)]
    json: bool,
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
    /// Back end to lower it for at once; `none` leaves that to `tacit model lower` or `tacit serve`
    #[arg(long, default_value = DEFAULT)]
    backend: String,
    #[command(flatten)]
    options: BackendArgs,
    #[command(flatten)]
    seal: SealArgs,
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
        Command::Lower(args) => run_lower(&args),
        Command::Inspect { file, seal, json } => inspect(&file, &seal, json),
        Command::Run(args) => run_local(&args),
        Command::Backends => {
            for backend in Registry::standard().iter() {
                crate::print::line(&format!("{:<10} {}", backend.id(), backend.about()))?;
            }
            Ok(())
        }
    }
}

fn run_import(args: &ImportArgs) -> anyhow::Result<()> {
    let registry = Registry::standard();
    // A wrong name is told before the work, not after it.
    let backend = (args.backend != "none").then(|| registry.get(&args.backend)).transpose()?;
    let bytes = fs::read(&args.onnx).with_context(|| format!("reading {}", args.onnx.display()))?;
    let mut options = ImportOptions {
        mean: args.mean.clone(),
        std: args.std.clone(),
        pixel_scale: args.pixel_scale,
        output_mode: match args.reveal {
            Reveal::Logits => OutputMode::Logits,
            Reveal::Top1 => OutputMode::Top1,
        },
        folder: Some(folder_of(&args.onnx)),
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
    let model = import(&bytes, &options).with_context(|| args.onnx.display().to_string())?.model;
    let file = tacit_graph::file::write(&model)?;
    let Some(backend) = backend else {
        args.seal.write_model(&args.output, &file)?;
        return show_float(&model, args.json);
    };
    let options = args.options.parse()?;
    let lowered = backend.lower(&model, &options).with_context(|| args.onnx.display().to_string())?;
    args.seal.write_model(&args.output, &file)?;
    args.seal.write_lowered(&args.output, &model, (&**backend, &options), &*lowered)?;
    show_report(&*lowered, args.json)
}

/// The folder of a file.
fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.into(),
        _ => ".".into(),
    }
}

/// Imports with defaults, as `bench` does; warnings go to standard error.
pub fn import_with_defaults(path: &Path, bytes: &[u8]) -> anyhow::Result<Model> {
    let options = ImportOptions { folder: Some(folder_of(path)), ..ImportOptions::default() };
    let model = import(bytes, &options).with_context(|| path.display().to_string())?.model;
    if model.calibration.guessed {
        crate::print::note(
            "warning: no calibration samples: ranges come from seeded random inputs, headroom is a guess",
        );
    }
    Ok(model)
}

fn run_lower(args: &LowerArgs) -> anyhow::Result<()> {
    let registry = Registry::standard();
    let backend = registry.get(&args.backend)?;
    let model = args.seal.read_model(&args.file)?;
    let options = args.options.parse()?;
    let lowered = backend.lower(&model, &options).with_context(|| args.file.display().to_string())?;
    let path = args.seal.write_lowered(&args.file, &model, (&**backend, &options), &*lowered)?;
    if !args.json {
        crate::print::line(&format!("wrote {}", path.display()))?;
    }
    show_report(&*lowered, args.json)
}

fn run_local(args: &RunArgs) -> anyhow::Result<()> {
    let model = args.seal.read_model(&args.file)?;
    for path in &args.inputs {
        for values in input::read(path, &model.interface, Fit::Crop, Units::Network)? {
            model.interface.check_input(&values).with_context(|| path.display().to_string())?;
            let answer = model.interface.finish(&model.run(&values)?);
            crate::print::line(&match args.json {
                true => json!({ "input": path.display().to_string(), "values": answer }).to_string(),
                false => format!("{}  {answer:.4?}", path.display()),
            })?;
        }
    }
    Ok(())
}

fn show_report(lowered: &dyn ServerModel, as_json: bool) -> anyhow::Result<()> {
    match (lowered.report(), as_json) {
        (Some(report), true) => crate::print::json(&report.json()),
        (Some(report), false) => crate::print::line(&report.to_string()),
        (None, true) => crate::print::json(&json!({"costs": lowered.costs(), "numerics": lowered.numerics()})),
        (None, false) => show_costs(&lowered.costs()),
    }
}

fn inspect(path: &Path, seal: &SealArgs, as_json: bool) -> anyhow::Result<()> {
    if path.extension().is_some_and(|e| e == "lowered") {
        let bytes = seal.read_lowered(path)?;
        return show_lowered(&lowered::read(&bytes).with_context(|| path.display().to_string())?, as_json);
    }
    show_float(&seal.read_model(path)?, as_json)
}

/// What a lowered model tells a client, and what it costs.
fn show_lowered(file: &lowered::Lowered<'_>, as_json: bool) -> anyhow::Result<()> {
    let registry = Registry::standard();
    let plan = registry.get(&file.origin.backend)?.open(file.public)?;
    let (costs, interface) = (plan.costs(), plan.interface());
    let digest = crate::print::hex(&plan.digest());
    if as_json {
        return crate::print::json(&json!({
            "backend": file.origin.backend, "options": file.origin.options, "digest": digest, "interface": interface,
            "preparation": plan.preparation(), "setup": plan.setup(), "numerics": plan.numerics(), "costs": costs,
            "public": plan.describe(),
        }));
    }
    crate::print::line(&format!("{} for {}  (digest {})", interface.name, file.origin.backend, &digest[..16]))?;
    show_interface(interface)?;
    show_costs(&costs)?;
    crate::print::line(&format!("answers: {:?}", plan.numerics()))?;
    let nodes = plan.describe();
    for (id, node) in nodes["nodes"].as_array().into_iter().flatten().enumerate() {
        let text = |key: &str| node[key].as_str().map_or_else(|| node[key].to_string(), str::to_owned);
        let bits = format!("{} bits, {} fraction", node["fixed"]["width"], node["fixed"]["frac_bits"]);
        crate::print::line(&format!("{id:>4} {:<10} {:<18} {bits:<24} {}", text("kind"), text("shape"), text("name")))?;
    }
    Ok(())
}

/// What the owner's model says, before any lowering.
fn show_float(model: &Model, as_json: bool) -> anyhow::Result<()> {
    let digest = crate::print::hex(&model.digest());
    let nodes: Vec<_> = model.graph.nodes.iter().map(|n| (n.op.name(), &n.shape, &n.name)).collect();
    if as_json {
        let nodes: Vec<_> =
            nodes.iter().map(|(op, shape, name)| json!({"op": op, "shape": shape, "name": name})).collect();
        return crate::print::json(&json!({
            "digest": digest, "interface": model.interface, "calibration": model.calibration.text,
            "macs": model.graph.macs(), "rewritten": model.notes, "nodes": nodes,
        }));
    }
    crate::print::line(&format!("{}  (digest {})", model.interface.name, &digest[..16]))?;
    crate::print::line(&format!("calibration: {}; {} multiplications", model.calibration.text, model.graph.macs()))?;
    show_interface(&model.interface)?;
    for note in &model.notes {
        crate::print::line(&format!("rewritten: {note}"))?;
    }
    for (id, (op, shape, name)) in nodes.iter().enumerate() {
        crate::print::line(&format!("{id:>4} {op:<14} {:<18} {name}", format!("{shape:?}")))?;
    }
    Ok(())
}

fn show_interface(interface: &Interface) -> anyhow::Result<()> {
    let learns = match (interface.output_mode, interface.final_activation) {
        (OutputMode::Top1, _) => "the best class".to_owned(),
        (OutputMode::Logits, Some(activation)) => format!("all outputs (it applies the final {})", activation.name()),
        (OutputMode::Logits, None) => "all outputs".to_owned(),
    };
    let input = &interface.input;
    crate::print::line(&format!("client learns: {learns}, {:?}", interface.output_shape))?;
    for output in &interface.outputs {
        crate::print::line(&format!("  of which `{}`, {:?}", output.name, output.shape))?;
    }
    crate::print::line(&format!(
        "input: {:?}, (pixel * {} - {:?}) / {:?}, accepted {:?}",
        interface.input_shape, input.pixel_scale, input.mean, input.std, input.range
    ))?;
    if let Some(moved) = &input.moved {
        crate::print::line(&format!("the client then takes it times {:?} plus {:?}", moved.scale, moved.shift))?;
    }
    Ok(())
}

fn show_costs(costs: &Costs) -> anyhow::Result<()> {
    for (name, phase) in [("setup", costs.setup), ("offline", costs.offline), ("online", costs.online)] {
        let [up, down] = [phase.up_bytes, phase.down_bytes].map(crate::print::bytes);
        let [ours, theirs] = [phase.client, phase.server].map(|p| crate::print::bytes(p.stored_bytes));
        crate::print::line(&format!(
            "{name:<8} {up} up, {down} down, {} exchanges, keeps {ours} at the client, {theirs} at the server",
            phase.exchanges
        ))?;
    }
    crate::print::line(&format!("{} comparisons", costs.comparisons))
}
