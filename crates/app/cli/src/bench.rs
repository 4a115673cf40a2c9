//! `tacit bench`: measures private inference with both parties on this machine.
use crate::lowering::Lowering;
use crate::output::{self, Alike};
use crate::owner::SealArgs;
use crate::print;
use crate::scratch::Scratch;
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use tacit_backends::{Backend, Costs, LOWER_BOUND, Options, Registry, ServerModel, Trust};
use tacit_client::bench::{ClientRun, Report, Run, client_runs, judge, machine};
use tacit_client::input::{self, Fit};
use tacit_client::{ClientConfig, Connection, MAX_THREADS};
use tacit_graph::rng::SplitMix;
use tacit_graph::{Interface, Model, Units};
use tacit_measure::clock::process_cpu_s;
use tacit_plan::LOCAL;
use tacit_program::args::count;
use tacit_store::keys;

/// Measure private inference, with server and client as two processes over TLS on loopback
///
/// Every run is a new client with its own setup. Processor time, memory, bytes and rounds are each
/// party's own. The command also measures two lower bounds, which are not private: `clear` (the
/// server computes on the plain input) and `local` (the client has the model).
///
/// Bytes are those of the protocol, before TLS.
///
/// Examples: tacit bench --model squeezenet.onnx --runs 3 -o bench.json
///           tacit bench --model digits.tacit --backend clear --json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Model: a .tacit file, or an ONNX file that is imported with defaults
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    model: PathBuf,
    #[command(flatten)]
    lowering: Lowering,
    /// Input, an image or an array [default: seeded values in the model's range]
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    input: Option<PathBuf>,
    /// Threads of each party
    #[arg(long, default_value_t = 1, value_parser = count(MAX_THREADS as u64), help_heading = "Device")]
    threads: usize,
    /// Number of inferences to measure, one after the other
    #[arg(long, default_value_t = 1, value_parser = count(100_000), help_heading = "Input")]
    runs: usize,
    /// Write the report to this file, as JSON
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct ClientArgs {
    /// Server to ask; without one, the model is run here in the clear
    #[arg(long)]
    server: Option<String>,
    #[arg(long)]
    keys: PathBuf,
    #[arg(long)]
    model: PathBuf,
    #[arg(long)]
    backend: String,
    #[arg(long)]
    input: PathBuf,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    dealer: Option<String>,
    #[command(flatten)]
    seal: SealArgs,
}

/// The float model, run by the client in a process of its own.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Local {
    wall_s: f64,
    cpu_s: f64,
    peak_rss_bytes: u64,
}

/// Dealing the material for one input in this process: the dealer's work alone.
#[derive(Debug, Clone, Copy, Serialize)]
struct Dealing {
    wall_s: f64,
    cpu_s: f64,
    client_bytes: u64,
    server_bytes: u64,
}

#[derive(Debug, Clone, Serialize)]
struct LowerBounds {
    clear: Run,
    local: Local,
}

#[derive(Serialize)]
struct FullReport {
    #[serde(flatten)]
    report: Report,
    /// Dealing, for back ends whose material comes from a dealer.
    #[serde(skip_serializing_if = "Option::is_none")]
    dealing: Option<Dealing>,
    lower_bounds: LowerBounds,
}

struct Both {
    runs: Vec<Run>,
    dealing: Option<Dealing>,
}

/// A model measured on a back end, and its float network run without a protocol.
pub struct Measured {
    /// The costs that the lowering declares.
    pub costs: Costs,
    /// The runs, one client each, for each number of threads.
    pub runs: Vec<(usize, Vec<Run>)>,
    /// Processor seconds of the float network.
    pub local_cpu_s: f64,
    /// Multiplications of the float network.
    pub local_macs: u64,
}

/// Measures a model file on a back end with default options, for each number of threads a party.
///
/// # Errors
/// The back end cannot lower the model, or a party fails.
pub fn measure_model(model: &Path, backend: &str, runs: usize, threads: &[usize]) -> anyhow::Result<Measured> {
    let lowering = Lowering::with_defaults(backend);
    let args = Args { model: model.to_owned(), lowering, input: None, threads: 1, runs, output: None };
    let scratch = Scratch::new()?;
    let mut bench = Bench::new(&args, scratch.path())?;
    let (registry, options, hidden) = (Registry::standard(), Options::default(), indicatif::ProgressBar::hidden());
    let backend = &**registry.get(backend)?;
    let lowered = bench.lower(backend, &options)?;
    let mut observations = Vec::new();
    for &threads in threads {
        bench.threads = threads;
        observations.push((threads, bench.two_parties(backend, &options, &*lowered, runs, &hidden)?.runs));
    }
    let local: Local = serde_json::from_str(&bench.client(None, LOCAL)?)?;
    let local_macs = bench.model.graph.macs();
    Ok(Measured { costs: lowered.costs(), runs: observations, local_cpu_s: local.cpu_s, local_macs })
}

struct Bench<'a> {
    args: &'a Args,
    threads: usize,
    scratch: &'a Path,
    /// Path of the model in the scratch folder.
    path: PathBuf,
    model: Model,
    input: Vec<f32>,
}

pub(crate) fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    let registry = Registry::standard();
    let (backend, clear) = (registry.get(&args.lowering.backend)?, registry.get(LOWER_BOUND)?);
    let scratch = Scratch::new()?;
    let bench = Bench::new(&args, scratch.path())?;
    let bar = print::bar(args.runs + 2, "measuring");
    let options = args.lowering.options()?;
    let lowered = bench.lower(&**backend, &options)?;
    let Both { runs, dealing } = bench.two_parties(&**backend, &options, &*lowered, args.runs, &bar)?;
    let (options, lowered) = (Options::default(), bench.lower(&**clear, &Options::default())?);
    let clear = bench.two_parties(&**clear, &options, &*lowered, 1, &bar)?.runs.pop();
    let clear = clear.context("one run was asked for")?;
    let local: Local = serde_json::from_str(&bench.client(None, LOCAL)?)?;
    bar.finish_and_clear();
    let report = Report {
        model: bench.model.interface.name.clone(),
        backend: args.lowering.backend.clone(),
        threads: args.threads,
        link: "loopback, TCP, TLS 1.3".into(),
        machine: machine(),
        runs,
    };
    let full_report = FullReport { report, dealing, lower_bounds: LowerBounds { clear, local } };
    if let Some(path) = &args.output {
        let value = serde_json::to_value(&full_report)?;
        output::write(path, &serde_json::to_vec_pretty(&full_report)?, Alike::Json(&value))?;
    }
    match as_json {
        true => print::json(&serde_json::to_value(&full_report)?),
        false => show(&full_report),
    }
}

fn show(full_report: &FullReport) -> anyhow::Result<()> {
    let report = &full_report.report;
    print::line(&format!(
        "{} with {}, {} threads a party, {}, {}",
        report.model, report.backend, report.threads, report.link, report.machine
    ))?;
    for (i, run) in report.runs.iter().enumerate() {
        print::line(&format!("run {i}"))?;
        show_run(run)?;
    }
    if let Some(Dealing { wall_s, cpu_s, client_bytes, server_bytes }) = full_report.dealing {
        let [client, server] = [client_bytes, server_bytes].map(print::bytes);
        print::line(&format!(
            "dealing one input's material, alone: {wall_s:.3} s  CPU {cpu_s:.3} s  {client} to the client, {server} to the server"
        ))?;
    }
    print::line("lower bounds, not private")?;
    print::line(&format!("{LOWER_BOUND}: the server computes on the plain input"))?;
    show_run(&full_report.lower_bounds.clear)?;
    let local = &full_report.lower_bounds.local;
    let rss = print::bytes(local.peak_rss_bytes);
    print::line(&format!(
        "{LOCAL}: the client has the model\n  {:<8} {:>8.3} s  CPU {:>7.3} s  peak {rss}",
        "online", local.wall_s, local.cpu_s
    ))
}

fn show_run(run: &Run) -> anyhow::Result<()> {
    for name in ["setup", "offline", "online"] {
        let Some(p) = run.phases.get(name) else { continue };
        print::line(&format!("  {}", print::figures_line(name, p)))?;
    }
    let (m, o) = (run.material_bytes, run.output);
    print::line(&format!(
        "  request to answer {:.3} s, the claim of stored material included",
        run.request_to_answer_s
    ))?;
    print::line(&format!(
        "  material {} at the client, {} at the server",
        print::bytes(m.client),
        print::bytes(m.server)
    ))?;
    let error_text = o.max_ulp_error.map_or_else(|| format!("{:.3e}", o.max_error), |ulp| format!("{ulp} ulp"));
    print::line(&format!("  class {} (reference {}), off by {error_text} at most", o.argmax, o.reference_argmax))
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args, scratch: &'a Path) -> anyhow::Result<Self> {
        let model = load(&args.model, &args.lowering.seal)?;
        let input = choose_input(args, &model.interface)?;
        let stem = args.model.file_stem().context("the model's file has no name")?;
        let path = scratch.join(stem).with_extension("tacit");
        args.lowering.seal.write_model(&path, &tacit_graph::file::write(&model)?)?;
        fs::write(scratch.join("input.json"), serde_json::to_vec(&input)?)?;
        keys::init(&scratch.join("keys"), &[], &["client".into()])?;
        Ok(Self { args, threads: args.threads, scratch, path, model, input })
    }

    /// Lowers the model for a back end and writes the lowering beside the model's file.
    fn lower(&self, backend: &dyn Backend, options: &Options) -> anyhow::Result<Arc<dyn ServerModel>> {
        let lowered = backend.lower(&self.model, options)?;
        self.args.lowering.seal.write_lowered(&self.path, &self.model, backend, options, &*lowered)?;
        Ok(lowered)
    }

    fn two_parties(
        &self,
        backend: &dyn Backend,
        options: &Options,
        lowered: &dyn ServerModel,
        runs: usize,
        bar: &indicatif::ProgressBar,
    ) -> anyhow::Result<Both> {
        let dealing = self.deal(backend, lowered)?;
        let dealer = dealing.map(|_| self.start_dealer()).transpose()?;
        let dealer = dealer.as_ref().map(|(_, address)| address.as_str());
        let (_server, address) = self.start_server(backend, options, dealer)?;
        let mut judged = Vec::new();
        for _ in 0..runs {
            let run = self.client(Some((&address, dealer)), backend.id())?;
            let run: ClientRun = serde_json::from_str(&run)?;
            judged.push(judge(&run, lowered, &self.input)?);
            bar.inc(1);
        }
        Ok(Both { runs: judged, dealing })
    }

    fn deal(&self, backend: &dyn Backend, lowered: &dyn ServerModel) -> anyhow::Result<Option<Dealing>> {
        let Some(order) = lowered.order() else { return Ok(None) };
        let model = backend.open_dealer(order.public, order.part)?;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads).build()?;
        let mut server_bytes = 0;
        let (start, cpu) = (Instant::now(), process_cpu_s());
        let seed = tacit_backends::seam::fresh_seed()?;
        let client_bytes = pool.install(|| {
            model.server_half(&seed, &mut |bytes| {
                server_bytes += bytes.len() as u64;
                Ok(())
            })?;
            let mut bytes = 0;
            model.client_half(&seed, &mut |piece| {
                bytes += piece.len() as u64;
                Ok(())
            })?;
            Ok::<_, tacit_backends::BackendError>(bytes)
        })?;
        let (wall_s, cpu_s) = (start.elapsed().as_secs_f64(), process_cpu_s() - cpu);
        Ok(Some(Dealing { wall_s, cpu_s, client_bytes, server_bytes }))
    }

    fn start_dealer(&self) -> anyhow::Result<(Killed, String)> {
        let keys = self.scratch.join("keys");
        if !keys.join("dealer.pem").exists() {
            keys::add_dealer(&keys, &[])?;
        }
        let mut command = Command::new(crate::program::find_program("tacit-dealer")?);
        command.args(["--listen", "127.0.0.1:0", "--threads", &self.threads.to_string()]).arg("--keys").arg(keys);
        start_listening(command.arg("--numbers").arg(self.scratch.join("dealer.sqlite")), "dealer")
    }

    fn start_server(
        &self,
        backend: &dyn Backend,
        options: &Options,
        dealer: Option<&str>,
    ) -> anyhow::Result<(Killed, String)> {
        let mut command = Command::new(crate::program::find_program("tacit-server")?);
        command.arg(&self.path).args(["--listen", "127.0.0.1:0", "--stall", "600", "--backend", backend.id()]);
        command.arg("--keys").arg(self.scratch.join("keys")).args(["--threads", &self.threads.to_string()]);
        command.arg("--material").arg(self.scratch.join("server-material"));
        command.arg("--no-warm-up").args(self.args.lowering.seal.arguments());
        for (key, value) in options.iter() {
            command.arg("-O").arg(format!("{key}={value}"));
        }
        if backend.trust() == Trust::ServerSeesInput {
            command.arg("--allow-clear");
        }
        if let Some(dealer) = dealer {
            let pin = keys::dealer_pin(&self.scratch.join("keys"))?.to_string();
            command.args(["--dealer", dealer, "--dealer-pin", &pin]);
        }
        start_listening(&mut command, "server")
    }

    /// `server` holds the addresses of a server and, optionally, a dealer.
    fn client(&self, server: Option<(&str, Option<&str>)>, backend: &str) -> anyhow::Result<String> {
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.args(["bench-client", "--backend", backend, "--threads", &self.threads.to_string()]);
        command.arg("--keys").arg(self.scratch.join("keys")).arg("--input").arg(self.scratch.join("input.json"));
        command.arg("--model").arg(&self.path).args(self.args.lowering.seal.arguments());
        if let Some((server, dealer)) = server {
            command.args(["--server", server]).args(dealer.iter().flat_map(|dealer| ["--dealer", dealer]));
        }
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            bail!("the client failed; its message is above");
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Starts a program and returns the address that it prints when it listens.
fn start_listening(command: &mut Command, name: &str) -> anyhow::Result<(Killed, String)> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = Killed(child.with_context(|| format!("starting the {name}"))?);
    let stdout: ChildStdout = child.0.stdout.take().context("a child's output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line.strip_prefix("listening on ").and_then(|l| l.split_whitespace().next());
    let address = address.with_context(|| format!("the {name} did not start; its message is above"))?.to_owned();
    Ok((child, address))
}

/// Reads the owner's model; imports an ONNX file with defaults.
pub fn load(path: &Path, seal: &SealArgs) -> anyhow::Result<Model> {
    if path.extension().is_none_or(|e| e != "onnx") {
        return seal.read_model(path);
    }
    let bytes = crate::files::read_onnx(path)?;
    crate::model::import_with_defaults(path, &bytes)
}

/// Returns one input of seeded values in the model's range.
pub fn seeded_input(interface: &Interface) -> Vec<f32> {
    let [low, high] = interface.input.range.ends();
    let mut rng = SplitMix::new(1);
    // 24 bits fit an f32 exactly.
    let units = (0..interface.input_len()).map(|_| (rng.next_u64() >> 40) as f32 / (1u64 << 24) as f32);
    let mut values = units.map(|unit| low + (high - low) * unit).collect::<Vec<_>>();
    interface.clip(&mut values);
    values
}

fn choose_input(args: &Args, interface: &Interface) -> anyhow::Result<Vec<f32>> {
    let values = match &args.input {
        Some(path) => {
            let mut inputs = input::read(path, interface, Fit::Crop, Units::Network)?;
            if inputs.is_empty() {
                bail!("{} holds no input", path.display());
            }
            inputs.swap_remove(0)
        }
        None => seeded_input(interface),
    };
    interface.check_input(&values)?;
    Ok(values)
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The child may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run_client(args: ClientArgs) -> anyhow::Result<()> {
    let input: Vec<f32> = serde_json::from_slice(&fs::read(&args.input)?)?;
    let Some(server) = &args.server else {
        return print::line(&serde_json::to_string(&run_local(&args, &input)?)?);
    };
    let identity = keys::load_client(&args.keys, "client")?;
    let mut config = ClientConfig {
        threads: args.threads,
        store: Some(args.keys.with_file_name("client-material")),
        seal: args.seal.key().cloned(),
        ..ClientConfig::new(server, identity.clone())
    };
    let pin = args.dealer.as_ref().map(|_| keys::dealer_pin(&args.keys)).transpose()?;
    config.resources = tacit_client::resources(args.dealer.as_deref().zip(pin), &identity, None)?;
    let registry = Registry::standard();
    let model = Connection::connect(registry.clone(), config.clone())?.models()?;
    let name = &model.first().context("the server has no model")?.name;
    let mut runs = client_runs(&registry, &config, name, Some(&args.backend), Units::Normalised, &input, 1)?;
    print::line(&serde_json::to_string(&runs.pop().context("one run was asked for")?)?)
}

/// Runs the float model in this process. Loading is not measured, because a client would load the
/// model once.
fn run_local(args: &ClientArgs, input: &[f32]) -> anyhow::Result<Local> {
    let model = args.seal.read_model(&args.model)?;
    let (start, cpu) = (Instant::now(), process_cpu_s());
    let answer = model.run(input)?;
    anyhow::ensure!(answer.len() == model.interface.output_len(), "the model gave another number of outputs");
    let (wall_s, cpu_s) = (start.elapsed().as_secs_f64(), process_cpu_s() - cpu);
    let peak_rss_bytes = tacit_measure::usage::high_water_bytes(Path::new("/proc/self")).unwrap_or(0);
    Ok(Local { wall_s, cpu_s, peak_rss_bytes })
}
