//! The `tacit` command: parses arguments and prints results; other crates do the work.
#![forbid(unsafe_code)]

mod bench;
mod calibrate;
mod check;
mod choose;
mod client_work;
mod cluster;
mod connect;
mod dealer;
mod files;
mod health;
mod helper;
mod infer;
mod keys;
mod keyset;
mod lab;
mod lowering;
mod material;
mod model;
mod notify;
mod operator;
mod output;
mod owner;
mod page;
mod plan;
mod prepare;
mod print;
mod python;
mod reload;
mod serve;
mod sidecar;
mod simulate;
mod status;
mod top;
mod zoo;

use anyhow::Context;
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tacit_log::Log;

/// Private neural-network inference: a client gets a model's answer on its input, and the server never sees
/// the input.
#[derive(Parser)]
#[command(version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
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
// comment here would hide that help.
#[derive(Subcommand)]
enum Command {
    /// Make a private CA, a server certificate and client certificates
    Keys(keys::Args),
    /// Import an ONNX network, or show what is in a model file
    Model(model::Args),
    Serve(serve::Args),
    Dealer(dealer::Args),
    Status(status::Args),
    Top(top::Args),
    Reload(reload::Args),
    Health(health::Args),
    Helper(helper::Args),
    Sidecar(sidecar::Args),
    Cluster(cluster::Args),
    Infer(infer::Args),
    Notify(notify::Args),
    Prepare(prepare::Args),
    /// List or destroy material that was made ahead of time
    Material(material::Args),
    /// Switching keys of the back end `ckks`: which a network needs, and what they take
    Keyset(keyset::Args),
    Bench(bench::Args),
    Calibrate(calibrate::Args),
    Plan(plan::Args),
    Zoo(zoo::Args),
    /// Play workloads against the scheduler in virtual time
    Simulate(simulate::SimulateArgs),
    /// Measure power, energy and links: experiments and their reports
    Lab(lab::Args),
    /// The client process of `bench`
    #[command(hide = true)]
    BenchClient(bench::ClientArgs),
}

/// Whether the reader of standard output has closed it.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    error.to_string() == print::OUTPUT && cause.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Formats an error as JSON.
fn as_error(text: &str) -> String {
    serde_json::json!({ "error": text }).to_string()
}

/// Prints help, or a mistake in the command line, on the right stream.
fn tell(text: &clap::Error) -> anyhow::Result<ExitCode> {
    // The command line could not be parsed, so look for `--json` alone.
    let asks_json = std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    if text.use_stderr() && asks_json {
        let text = text.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        print::note(&as_error(text));
    } else {
        text.print().context(print::OUTPUT)?;
    }
    // 0 for help, 2 for mistakes.
    Ok(ExitCode::from(text.exit_code() as u8))
}

fn main() -> ExitCode {
    let log = match Log::start() {
        Ok(log) => log,
        Err(error) => {
            print::note(&format!("error: starting the log: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let (result, as_json) = match Cli::try_parse() {
        Ok(Cli { json, command }) => (run(command, json).map(|()| ExitCode::SUCCESS), json),
        Err(text) => (tell(&text), false),
    };
    match result {
        Ok(code) => code,
        // A closed pipe is no error: 141 is the status that a shell reports for a program that
        // SIGPIPE ended.
        Err(error) if is_closed_pipe(&error) => ExitCode::from(141),
        Err(error) => {
            let text = tacit_log::explain(error.as_ref());
            log.say(&match as_json {
                true => as_error(&text),
                false => format!("error: {text}"),
            });
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, json: bool) -> anyhow::Result<()> {
    match command {
        Command::Keys(args) => keys::run(args, json),
        Command::Model(args) => model::run(args, json),
        Command::Serve(args) => serve::run(args, json),
        Command::Dealer(args) => dealer::run(args, json),
        Command::Status(args) => status::run(&args, json),
        Command::Top(args) => top::run(&args, json),
        Command::Reload(args) => reload::run(&args, json),
        Command::Health(args) => health::run(&args, json),
        Command::Helper(args) => helper::run(args, json),
        Command::Sidecar(args) => sidecar::run(args, json),
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
        Command::Simulate(args) => simulate::run(&args, json),
        Command::Lab(args) => lab::run(args),
        Command::BenchClient(args) => bench::run_client(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Returns every command that has a help text, groups too, with its path: `tacit model import`.
    fn commands(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
        let below = shown.flat_map(|c| commands(c, &format!("{path} {}", c.get_name())));
        [(path.to_owned(), command.clone())].into_iter().chain(below).collect()
    }

    #[test]
    fn the_options_of_all_commands_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_has_an_example_of_its_command() {
        let mut cli = Cli::command();
        cli.build();
        let all = commands(&cli, "tacit");
        assert!(all.len() > 25 && all.iter().any(|(path, _)| path == "tacit model import"), "{}", all.len());
        let without = |(path, mut command): (String, clap::Command)| {
            let help = command.render_long_help().to_string();
            let example = help.split_once("Example").is_some_and(|(_, after)| after.contains(&path));
            (!example).then_some(path)
        };
        let lacking: Vec<String> = all.into_iter().filter_map(without).collect();
        assert!(lacking.is_empty(), "no example of the command itself in the help of {lacking:?}");
    }

    #[test]
    fn json_may_stand_before_and_after_every_command() {
        for line in [
            "tacit --json model inspect x",
            "tacit model --json inspect x",
            "tacit model inspect x --json",
            "tacit model inspect --json x",
            "tacit --json material list",
            "tacit material list --json",
            "tacit prepare --json",
            "tacit --json lab sensors",
            "tacit lab sensors --json",
            "tacit status --json",
            "tacit --json bench --model x",
            "tacit simulate replay --json x",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(cli.json, "{line}");
            if let Command::Lab(args) = cli.command {
                assert!(args.wants_json_of_sensors(), "{line}");
            }
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
    fn a_cause_is_told_once() {
        let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let path = || "x.json".into();
        let error = anyhow::Error::new(tacit_lab::LabError::Io { path: path(), source: missing() });
        let explain = |error: anyhow::Error| tacit_log::explain(error.as_ref());
        assert_eq!(explain(error.context("reading the plan")), "reading the plan: x.json: no such file");
        assert_eq!(explain(anyhow::Error::new(missing()).context("x.json")), "x.json: no such file");
    }
}
