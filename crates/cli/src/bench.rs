//! `tacit bench`
use crate::model;
use crate::print;
use anyhow::{Context, bail};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tacit_backends::Backend;
use tacit_backends::cheetah::Cheetah;
use tacit_graph::file::ModelFile;
use tacit_graph::reference::quantize_input;
use tacit_graph::rng::SplitMix;
use tacit_serve::ClientConfig;
use tacit_serve::bench::{ClientRun, Report, client_runs, judge, machine};
use tacit_serve::input::{self, Fit};
use tacit_store::keys;

/// Measures private inference: server and client as two processes on this machine, over TLS on loopback.
///
/// Every run is a new client with its own setup. Processor time, memory, bytes and rounds are each party's own.
///
/// Example: tacit bench --model squeezenet.onnx --runs 3 --json bench.json
#[derive(clap::Args)]
pub struct Args {
    /// Model: a .tacit file, or an ONNX file that is imported with defaults
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Back end
    #[arg(long, default_value = "cheetah")]
    backend: String,
    /// Input: an image or .npy; without one, seeded values in the model's range
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Threads of each party
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Inferences measured, one after the other
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Write the report to this file; `-` prints it
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct ClientArgs {
    #[arg(long)]
    server: String,
    #[arg(long)]
    keys: PathBuf,
    #[arg(long)]
    input: PathBuf,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    runs: usize,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if args.backend != "cheetah" {
        bail!("there is no back end `{}`; there is: cheetah", args.backend);
    }
    let scratch = tempfile::tempdir().context("making a scratch folder")?;
    let (path, model) = load(&args.model, scratch.path())?;
    let input = choose_input(&args, &model)?;
    let key_dir = scratch.path().join("keys");
    keys::init(&key_dir, &[], &["client".into()])?;
    let input_file = scratch.path().join("input.json");
    fs::write(&input_file, serde_json::to_vec(&input)?)?;
    let (_server, address) = start_server(&path, &key_dir, args.threads)?;
    let backend = Cheetah::default();
    let numerics = backend.numerics(&backend.compile(&model.graph)?);
    let bar = print::bar(args.runs, "measuring");
    let mut runs = Vec::new();
    for _ in 0..args.runs {
        let run = run_client_process(&address, &key_dir, &input_file, args.threads)?;
        runs.push(judge(&run, &model, &input, numerics)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report {
        model: model.graph.spec().name.clone(),
        backend: args.backend,
        threads: args.threads,
        link: "loopback, TCP, TLS 1.3".into(),
        machine: machine(),
        runs,
    };
    match &args.json {
        Some(path) if path.as_os_str() == "-" => println!("{}", serde_json::to_string_pretty(&report)?),
        Some(path) => {
            fs::write(path, serde_json::to_vec_pretty(&report)?)
                .with_context(|| format!("writing {}", path.display()))?;
            show(&report);
        }
        None => show(&report),
    }
    Ok(())
}

fn show(report: &Report) {
    println!(
        "{} with {}, {} threads a party, {}, {}",
        report.model, report.backend, report.threads, report.link, report.machine
    );
    for (i, run) in report.runs.iter().enumerate() {
        println!("run {i}");
        for name in ["setup", "offline", "online"] {
            let Some(p) = run.phases.get(name) else { continue };
            println!("  {}", print::figures_line(name, p));
        }
        let (m, o) = (run.material_bytes, run.output);
        println!("  material {} at the client, {} at the server", print::bytes(m.client), print::bytes(m.server));
        println!("  class {} (reference {}), off by {} ulp at most", o.argmax, o.reference_argmax, o.max_ulp_error);
    }
}

/// The model file to serve, and what is in it.
fn load(path: &Path, scratch: &Path) -> anyhow::Result<(PathBuf, ModelFile)> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    if path.extension().is_some_and(|e| e == "onnx") {
        let imported = model::import_with_defaults(path, &bytes)?;
        let file = imported.to_file()?;
        let stem = path.file_stem().map_or_else(|| "model".into(), |s| s.to_string_lossy().into_owned());
        let made = scratch.join(format!("{stem}.tacit"));
        fs::write(&made, &file)?;
        return Ok((made, tacit_graph::file::read(&file)?));
    }
    let model = tacit_graph::file::read(&bytes).with_context(|| path.display().to_string())?;
    Ok((path.to_owned(), model))
}

fn choose_input(args: &Args, model: &ModelFile) -> anyhow::Result<Vec<i64>> {
    let values = match &args.input {
        Some(path) => {
            let mut inputs = input::read(path, &model.graph, Fit::Crop, false)?;
            if inputs.is_empty() {
                bail!("{} holds no input", path.display());
            }
            inputs.swap_remove(0)
        }
        None => {
            let [low, high] = model.graph.spec().input.range;
            let mut rng = SplitMix::new(1);
            // 24 bits, as many as an f32 holds.
            let unit = |word: u64| (word >> 40) as f32 / (1u64 << 24) as f32;
            (0..model.graph.input().elements()).map(|_| low + (high - low) * unit(rng.next_u64())).collect()
        }
    };
    Ok(quantize_input(&model.graph, &values)?)
}

/// A child process that is ended when it is no longer needed.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn this_program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("finding this program")?))
}

fn start_server(model: &Path, keys: &Path, threads: usize) -> anyhow::Result<(Killed, String)> {
    let mut command = this_program()?;
    command.arg("serve").arg(model).args(["--listen", "127.0.0.1:0", "--stall", "600"]);
    command.arg("--keys").arg(keys).args(["--threads", &threads.to_string()]);
    let mut child = Killed(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("starting the server")?);
    let stdout: ChildStdout = child.0.stdout.take().context("the server's output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line.strip_prefix("listening on ").and_then(|l| l.split_whitespace().next());
    Ok((child, address.context("the server did not start; its message is above")?.to_owned()))
}

fn run_client_process(address: &str, keys: &Path, input: &Path, threads: usize) -> anyhow::Result<ClientRun> {
    let mut command = this_program()?;
    command.args(["bench-client", "--server", address, "--threads", &threads.to_string(), "--runs", "1"]);
    let output = command.arg("--keys").arg(keys).arg("--input").arg(input).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("the client failed; its message is above");
    }
    let mut runs: Vec<ClientRun> = serde_json::from_slice(&output.stdout)?;
    runs.pop().context("the client reports no run")
}

pub fn run_client(args: ClientArgs) -> anyhow::Result<()> {
    let config = ClientConfig {
        threads: args.threads.max(1),
        ..ClientConfig::new(&args.server, Some(keys::load_client(&args.keys, "client")?))
    };
    let input: Vec<i64> = serde_json::from_slice(&fs::read(&args.input)?)?;
    let model = tacit_serve::Lobby::connect(Cheetah::default(), config.clone())?.models()?;
    let name = &model.first().context("the server has no model")?.name;
    let runs = client_runs(&Cheetah::default(), &config, name, &input, args.runs)?;
    println!("{}", serde_json::to_string(&runs)?);
    Ok(())
}
