//! `tacit model`: imports, shows, runs and checks models.
use crate::lowering::Lowering;
use crate::owner::SealArgs;
use crate::print;
use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use tacit_backends::{Costs, Registry, ServerModel, lowered};
use tacit_client::input::{self, Fit};
use tacit_client::wire::public_digest;
use tacit_graph::import::{ImportOptions, import};
use tacit_graph::{Interface, Interval, Model, OutputMode, Units};

#[derive(clap::Args)]
#[command(after_help = "Example: tacit model import net.onnx --calibrate samples.npy -o net.tacit")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Convert an ONNX network to a model file, and lower the model for a back end
    ///
    /// Example: tacit model import net.onnx --calibrate samples.npy --pixel-scale 0.00392157 --mean 0.485,0.456,0.406 --std
    /// 0.229,0.224,0.225 -o net.tacit
    ///
    /// `--backend none` leaves the lowering to `tacit model lower` or `tacit serve`.
    Import(Box<ImportArgs>),
    /// Lower a model for a back end ahead of time, so that a server starts faster
    ///
    /// Example: tacit model lower net.tacit --backend cheetah -O frac_bits=12
    Lower(LowerArgs),
    Check(crate::check::Args),
    /// Show the contents of a model file or of a lowered model
    ///
    /// Example: tacit model inspect net.cheetah.lowered --json
    Inspect {
        /// Model file (.tacit) or lowered model (.lowered)
        file: PathBuf,
        #[command(flatten, next_help_heading = "Model")]
        seal: SealArgs,
    },
    /// Seal a model file and its lowerings, plain files as well as renamed ones
    ///
    /// A sealed file opens only under the name that it was sealed under, so that nobody can put one
    /// model in the place of another. The user of this command vouches for the files as they are.
    ///
    /// Example: tacit model seal net.tacit -o renamed.tacit --seal key
    Seal {
        /// Model file
        file: PathBuf,
        /// Model file to write, with its lowerings beside it [default: in place]
        #[arg(short, long, value_name = "FILE.tacit", help_heading = "Output")]
        output: Option<PathBuf>,
        #[command(flatten, next_help_heading = "Model")]
        seal: SealArgs,
    },
    /// Run the float network here, in the clear: the reference for every private answer
    ///
    /// Example: tacit model run net.tacit photo.npy
    Run(RunArgs),
    /// List the back ends of this program
    ///
    /// Example: tacit model backends --json
    Backends,
}

#[derive(clap::Args)]
struct LowerArgs {
    /// Model file
    file: PathBuf,
    #[command(flatten)]
    lowering: Lowering,
}

#[derive(clap::Args)]
struct RunArgs {
    /// Model file
    file: PathBuf,
    /// Images (PNG, JPEG), or arrays: .npy, .npz with one array, FILE.npz:NAME
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "Model")]
    seal: SealArgs,
}

#[derive(clap::Args)]
struct ImportArgs {
    /// ONNX file
    onnx: PathBuf,
    /// Model file to write; clients ask for the model by the name of the file
    #[arg(short, long, value_name = "FILE.tacit", help_heading = "Output")]
    output: PathBuf,
    /// Calibration samples [N, ...input] as .npy or .npz (FILE.npz:NAME): bytes are raw pixels,
    /// other numbers are inputs as they are
    #[arg(long, value_name = "FILE.npy", help_heading = "Input")]
    calibrate: Option<PathBuf>,
    /// Mean to subtract from pixels, per channel, after --pixel-scale
    #[arg(long, value_delimiter = ',', num_args = 1, value_name = "X,...", allow_hyphen_values = true)]
    #[arg(help_heading = "Input")]
    mean: Vec<f32>,
    /// Standard deviation to divide pixels by, per channel
    #[arg(long, value_delimiter = ',', value_name = "X,...", help_heading = "Input")]
    std: Vec<f32>,
    /// Factor to multiply raw 8-bit pixels by, e.g. 0.00392157
    #[arg(long, default_value_t = 1.0, help_heading = "Input")]
    pixel_scale: f32,
    /// Range of the network's input, if neither samples nor a normalisation give the range
    #[arg(long, value_delimiter = ',', num_args = 1, value_name = "LOW,HIGH", allow_hyphen_values = true)]
    #[arg(help_heading = "Input")]
    range: Vec<f32>,
    /// Outputs that the client learns
    #[arg(long, value_enum, default_value_t = Reveal::Logits, help_heading = "Output")]
    reveal: Reveal,
    #[command(flatten)]
    lowering: Lowering,
}

#[derive(Clone, Copy, ValueEnum)]
enum Reveal {
    /// All outputs
    Logits,
    /// The best class only (a secure arg max)
    Top1,
}

pub(crate) fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    match args.command {
        Command::Import(args) => run_import(&args, as_json),
        Command::Lower(args) => run_lower(&args, as_json),
        Command::Check(args) => crate::check::run(&args, as_json),
        Command::Inspect { file, seal } => inspect(&file, &seal, as_json),
        Command::Seal { file, output, seal } => {
            let sealed_paths = seal.seal_anew(&file, output.as_ref().unwrap_or(&file))?;
            sealed_paths.iter().try_for_each(|path| print::line(&format!("sealed {}", path.display())))
        }
        Command::Run(args) => run_local(&args, as_json),
        Command::Backends => show_backends(as_json),
    }
}

fn show_backends(as_json: bool) -> anyhow::Result<()> {
    let registry = Registry::standard();
    if as_json {
        let rows = registry.iter().map(|b| json!({"id": b.id(), "about": b.about(), "trust": b.trust()}));
        return print::json(&rows.collect());
    }
    registry.iter().try_for_each(|b| print::line(&format!("{:<10} {}", b.id(), b.about())))
}

fn run_import(args: &ImportArgs, as_json: bool) -> anyhow::Result<()> {
    let registry = Registry::standard();
    let Lowering { backend, seal, .. } = &args.lowering;
    // Refuse a wrong name before the work.
    let backend = (backend != "none").then(|| registry.get(backend)).transpose()?;
    seal.check_output(&args.output, backend.map(|backend| backend.id()))?;
    let bytes = crate::files::read_onnx(&args.onnx)?;
    let (watch, progress_bar) = print::watch();
    let mut options = ImportOptions {
        watch: watch.clone(),
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
        &[low, high] => Some(Interval { low, high }),
        bounds => anyhow::bail!("--range takes two numbers, LOW,HIGH; {} were given", bounds.len()),
    };
    if let Some(path) = &args.calibrate {
        options.calibration = Some(input::array(path)?);
    }
    let model = import(&bytes, &options).with_context(|| args.onnx.display().to_string())?.model;
    let file = tacit_graph::file::write(&model)?;
    let Some(backend) = backend else {
        progress_bar.finish_and_clear();
        seal.write_model(&args.output, &file)?;
        return show_float(&model, as_json);
    };
    let options = args.lowering.options()?;
    let lowered = backend.lower_watched(&model, &options, &watch).with_context(|| args.onnx.display().to_string())?;
    progress_bar.finish_and_clear();
    seal.write_model(&args.output, &file)?;
    seal.write_lowered(&args.output, &model, &**backend, &options, &*lowered)?;
    show_report(&*lowered, as_json)
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.into(),
        _ => ".".into(),
    }
}

/// Imports with default options; warnings go to standard error.
pub fn import_with_defaults(path: &Path, bytes: &[u8]) -> anyhow::Result<Model> {
    let options = ImportOptions { folder: Some(folder_of(path)), ..ImportOptions::default() };
    let model = import(bytes, &options).with_context(|| path.display().to_string())?.model;
    if model.calibration.guessed {
        print::note("warning: no calibration samples: ranges come from seeded random inputs, headroom is a guess");
    }
    Ok(model)
}

fn run_lower(args: &LowerArgs, as_json: bool) -> anyhow::Result<()> {
    let LowerArgs { file, lowering } = args;
    let registry = Registry::standard();
    let backend = registry.get(&lowering.backend)?;
    let model = lowering.seal.read_model(file)?;
    let options = lowering.options()?;
    let (watch, progress_bar) = print::watch();
    let lowered = backend.lower_watched(&model, &options, &watch).with_context(|| file.display().to_string())?;
    progress_bar.finish_and_clear();
    let path = lowering.seal.write_lowered(file, &model, &**backend, &options, &*lowered)?;
    if !as_json {
        print::line(&format!("wrote {}", path.display()))?;
    }
    show_report(&*lowered, as_json)
}

fn run_local(args: &RunArgs, as_json: bool) -> anyhow::Result<()> {
    let model = args.seal.read_model(&args.file)?;
    for path in &args.inputs {
        for values in input::read(path, &model.interface, Fit::Crop, Units::Network)? {
            model.interface.check_input(&values).with_context(|| path.display().to_string())?;
            let answer = model.interface.finish(&model.run(&values)?);
            let value = json!({ "input": path.display().to_string(), "values": answer });
            print::row(as_json, &value, &format!("{}  {answer:.4?}", path.display()))?;
        }
    }
    Ok(())
}

fn show_report(lowered: &dyn ServerModel, as_json: bool) -> anyhow::Result<()> {
    match (lowered.report(), as_json) {
        (Some(report), true) => print::json(&report.json()),
        (Some(report), false) => print::line(&report.to_string()),
        (None, true) => print::json(&json!({"costs": lowered.costs(), "numerics": lowered.numerics()})),
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

fn show_lowered(file: &lowered::Lowered<'_>, as_json: bool) -> anyhow::Result<()> {
    let registry = Registry::standard();
    let plan = registry.get(&file.origin.backend)?.open(file.public)?;
    let (costs, interface) = (plan.costs(), plan.interface());
    let [digest, pinned] = [plan.digest(), public_digest(file.public)].map(|digest| print::hex(&digest));
    if as_json {
        return print::json(&json!({
            "backend": file.origin.backend, "options": file.origin.options, "digest": digest,
            "public_digest": pinned, "interface": interface,
            "preparation": plan.preparation(), "setup": plan.setup(), "numerics": plan.numerics(), "costs": costs,
            "public": plan.describe(),
        }));
    }
    print::line(&format!("{} for {}  (plan {})", interface.name, file.origin.backend, &digest[..16]))?;
    print::line(&format!("clients pin it by its public part: --require public={pinned}"))?;
    show_interface(interface)?;
    show_costs(&costs)?;
    print::line(&format!("answers: {:?}", plan.numerics()))?;
    let nodes = plan.describe();
    for (id, node) in nodes["nodes"].as_array().into_iter().flatten().enumerate() {
        let [kind, shape, name] = ["kind", "shape", "name"]
            .map(|key| node[key].as_str().map_or_else(|| node[key].to_string(), str::to_owned));
        let bits = format!("{} bits, {} fraction", node["fixed"]["width"], node["fixed"]["frac_bits"]);
        print::line(&format!("{id:>4} {kind:<10} {shape:<18} {bits:<24} {name}"))?;
    }
    Ok(())
}

fn show_float(model: &Model, as_json: bool) -> anyhow::Result<()> {
    let digest = print::hex(&model.digest());
    let nodes: Vec<_> = model.graph.nodes.iter().map(|n| (n.op.name(), &n.shape, &n.name)).collect();
    if as_json {
        let nodes: Vec<_> =
            nodes.iter().map(|(op, shape, name)| json!({"op": op, "shape": shape, "name": name})).collect();
        return print::json(&json!({
            "digest": digest, "interface": model.interface, "calibration": model.calibration.text,
            "macs": model.graph.macs(), "rewritten": model.notes, "nodes": nodes,
        }));
    }
    print::line(&format!("{}  (digest {})", model.interface.name, &digest[..16]))?;
    print::line(&format!("calibration: {}; {} multiplications", model.calibration.text, model.graph.macs()))?;
    show_interface(&model.interface)?;
    for note in &model.notes {
        print::line(&format!("rewritten: {note}"))?;
    }
    for (id, (op, shape, name)) in nodes.iter().enumerate() {
        print::line(&format!("{id:>4} {op:<14} {:<18} {name}", format!("{shape:?}")))?;
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
    print::line(&format!("client learns: {learns}, {:?}", interface.output_shape))?;
    for output in &interface.outputs {
        print::line(&format!("  of which `{}`, {:?}", output.name, output.shape))?;
    }
    print::line(&format!(
        "input: {:?}, (pixel * {} - {:?}) / {:?}, accepted {:?}",
        interface.input_shape,
        input.pixel_scale,
        input.mean,
        input.std,
        input.range.ends()
    ))?;
    let declared: Vec<[f32; 2]> = input.declared.iter().map(|range| range.ends()).collect();
    match declared.as_slice() {
        [] => {}
        [range] => print::line(&format!("declared of the network's own inputs: {range:?}"))?,
        ranges => print::line(&format!("declared of the network's own inputs, by channel: {ranges:?}"))?,
    }
    if let Some(transform) = &input.moved {
        print::line(&format!("the client then takes it times {:?} plus {:?}", transform.scale, transform.shift))?;
    }
    Ok(())
}

fn show_costs(costs: &Costs) -> anyhow::Result<()> {
    for (name, phase) in [("setup", costs.setup), ("offline", costs.offline), ("online", costs.online)] {
        let [up, down] = [phase.up_bytes, phase.down_bytes].map(print::bytes);
        let [client_bytes, server_bytes] = [phase.client, phase.server].map(|p| print::bytes(p.stored_bytes));
        print::line(&format!(
            "{name:<8} {up} up, {down} down (before TLS), {} exchanges, keeps {client_bytes} at the client, {server_bytes} at the server",
            phase.exchanges
        ))?;
    }
    print::line(&format!("{} comparisons", costs.comparisons))
}
