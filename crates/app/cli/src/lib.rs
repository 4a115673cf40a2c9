//! The `tacit` command: parses arguments and prints results; other crates do the work. `tacit-lab`
//! shares its parts.
#![forbid(unsafe_code)]

pub mod bench;
mod calibrate;
mod check;
mod choose;
mod client_work;
mod cluster;
mod connect;
pub mod files;
mod health;
mod helper;
mod infer;
mod keys;
pub mod keyset;
pub mod lowering;
mod material;
pub mod model;
mod notify;
pub mod operator;
pub mod output;
pub mod owner;
mod page;
mod plan;
mod prepare;
pub mod print;
pub mod program;
pub mod python;
mod reload;
pub mod report;
mod scratch;
mod status;
mod top;
mod zoo;

use clap::{Parser, Subcommand};
use program::Forwarded;

/// Run private neural-network inference: a client gets a model's answer on its input, and the
/// server never sees the input
#[derive(Parser)]
#[command(version, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    /// Print JSON on standard output, and errors as JSON on standard error; before or after the subcommand
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Example, two machines:
  server$ tacit keys init keys --host server.example --client alice
  server$ tacit model import net.onnx --calibrate samples.npy -o net.tacit
  server$ tacit serve net.tacit --keys keys --listen 0.0.0.0:7878
  client$ tacit infer photo.png --server server.example:7878 --keys keys --client alice --model net
The client needs keys/ca.pem, keys/alice.pem and keys/alice.key, and nothing else of the folder.
Log output: set TACIT_LOG, e.g. TACIT_LOG=info or TACIT_LOG=tacit_client=debug.";

// A command without a doc comment here shows the help of its arguments, with examples; a doc
// comment here would hide that help. Commands that share `Forwarded` have theirs here.
#[derive(Subcommand)]
enum Command {
    /// Make a private CA, a server certificate and client certificates
    Keys(keys::Args),
    /// Import, lower, check, show, run and seal models
    Model(model::Args),
    /// Serve models to authenticated clients (runs the program tacit-server; `tacit serve --help` shows
    /// its options)
    ///
    /// Example: tacit serve digits.tacit squeezenet.tacit --keys keys --listen 0.0.0.0:7878
    Serve(Forwarded),
    /// Make material for servers and their clients, as a third party (runs the program tacit-dealer;
    /// `tacit dealer --help` shows its options)
    ///
    /// Example: tacit dealer --keys keys --listen 0.0.0.0:7879
    Dealer(Forwarded),
    Status(status::Args),
    Top(top::Args),
    Reload(reload::Args),
    Health(health::Args),
    Helper(helper::Args),
    /// Answer Open Inference Protocol requests on this machine by private inference (runs the program
    /// tacit-sidecar; `tacit sidecar --help` shows its options)
    ///
    /// Example: tacit sidecar --server server.example:7878 --keys keys --client alice --token-file token --new-token
    Sidecar(Forwarded),
    Cluster(cluster::Args),
    Infer(infer::Args),
    Notify(notify::Args),
    Prepare(prepare::Args),
    /// List or destroy stored material
    Material(material::Args),
    /// Choose, measure, list and delete switching keys of the back end `ckks`
    Keyset(keyset::Args),
    Bench(bench::Args),
    Calibrate(calibrate::Args),
    Plan(plan::Args),
    Zoo(zoo::Args),
    /// Play workloads against the scheduler in virtual time (runs the program tacit-lab)
    ///
    /// Example: tacit simulate run --profile shark.json --rate 1 --policy fcfs -o runs.json
    Simulate(Forwarded),
    /// Measure power, energy and links: experiments and their reports (runs the program tacit-lab)
    ///
    /// Example: tacit lab run pm24-bandwidth --quick -o campaign
    Lab(Forwarded),
    /// Run the client process of `bench`
    #[command(hide = true)]
    BenchClient(bench::ClientArgs),
}

impl program::CommandLine for Cli {
    fn json(&self) -> bool {
        self.json
    }

    fn run(self) -> anyhow::Result<()> {
        run(self.command, self.json)
    }
}

fn run(command: Command, json: bool) -> anyhow::Result<()> {
    match command {
        Command::Keys(args) => keys::run(args, json),
        Command::Model(args) => model::run(args, json),
        Command::Serve(args) => args.run("tacit-server", &[], json),
        Command::Dealer(args) => args.run("tacit-dealer", &[], json),
        Command::Status(args) => status::run(&args, json),
        Command::Top(args) => top::run(&args, json),
        Command::Reload(args) => reload::run(&args, json),
        Command::Health(args) => health::run(&args, json),
        Command::Helper(args) => helper::run(args, json),
        Command::Sidecar(args) => args.run("tacit-sidecar", &[], json),
        Command::Cluster(args) => cluster::run(args, json),
        Command::Infer(args) => infer::run(args, json),
        Command::Notify(args) => notify::run(args, json),
        Command::Prepare(args) => prepare::run(args, json),
        Command::Material(args) => material::run(args, json),
        Command::Keyset(args) => keyset::run(args, json),
        Command::Bench(args) => bench::run(args, json),
        Command::Calibrate(args) => calibrate::run(&args, json),
        Command::Plan(args) => plan::run(&args, json),
        Command::Zoo(args) => zoo::run(args, json),
        Command::Simulate(args) => args.run("tacit-lab", &["simulate"], json),
        Command::Lab(args) => args.run("tacit-lab", &["lab"], json),
        Command::BenchClient(args) => bench::run_client(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_lines_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_has_an_example_of_its_command() {
        let (lacking, count) = program::commands_without_example(Cli::command());
        assert!(count > 25, "{count}");
        assert!(lacking.is_empty(), "no example of the command itself in the help of {lacking:?}");
    }

    #[test]
    fn json_is_accepted_before_and_after_every_command() {
        for line in [
            "tacit --json model inspect x",
            "tacit model --json inspect x",
            "tacit model inspect x --json",
            "tacit model inspect --json x",
            "tacit --json material list",
            "tacit material list --json",
            "tacit prepare --json",
            "tacit status --json",
            "tacit --json bench --model x",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(cli.json, "{line}");
        }
        assert!(!Cli::try_parse_from(["tacit", "model", "backends"]).unwrap().json);
    }

    #[test]
    fn options_of_material_may_follow_its_subcommand() {
        for line in [
            "tacit material --server there:1 --keys k --model m list",
            "tacit material list --server there:1 --keys k --model m",
            "tacit material --server there:1 discard --all --keys k --model m",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"));
            let Command::Material(args) = cli.command else { panic!("{line}") };
            assert_eq!(args.connect.named(), ("there:1", "k", Some("m")), "{line}");
        }
    }

    #[test]
    fn errors_name_each_cause_once() {
        let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let path = || "x.json".into();
        let error = anyhow::Error::new(tacit_measure::MeasureError::Io { path: path(), source: missing() });
        let explain = |error: anyhow::Error| tacit_program::log::explain(error.as_ref());
        assert_eq!(explain(error.context("reading the plan")), "reading the plan: x.json: no such file");
        assert_eq!(explain(anyhow::Error::new(missing()).context("x.json")), "x.json: no such file");
    }
}
