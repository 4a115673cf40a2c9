//! The `tacit` command: argument parsing and printing; the work is done in the other crates.
#![forbid(unsafe_code)]

mod bench;
mod connect;
mod infer;
mod keys;
mod lab;
mod model;
mod owner;
mod prepare;
mod print;
mod serve;
mod simulate;
mod zoo;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// Private neural-network inference: a client gets a model's answer on its input, and the server never sees the input.
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

// A command without words here has those of its arguments, examples included: words here would hide them.
#[derive(Subcommand)]
enum Command {
    /// Make a private CA, a server certificate and client certificates
    Keys(keys::Args),
    /// Import an ONNX network, or show what is in a model file
    Model(model::Args),
    Serve(serve::Args),
    Infer(infer::Args),
    Prepare(prepare::Args),
    Bench(bench::Args),
    Zoo(zoo::Args),
    /// Play workloads against the scheduler in virtual time
    Simulate(simulate::SimulateArgs),
    /// Measure power, energy and links: experiments and their reports
    Lab(lab::Args),
    /// The client process of `bench`
    #[command(hide = true)]
    BenchClient(bench::ClientArgs),
}

/// `tacit ... | head`: whoever reads our output may stop reading, which is no failure to be shown. A server must not end for a closed
/// socket, so the signal for it stays ignored, as Rust has it.
fn end_quietly_without_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            // What a shell reports for a program that SIGPIPE ended.
            std::process::exit(141);
        }
        usual(panic);
    }));
}

/// The error and its causes in one line; a cause that the line already ends with is not repeated.
fn explain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |line, cause| match line.as_str() {
        "" => cause,
        said if said.ends_with(&cause) => line,
        said => format!("{said}: {cause}"),
    })
}

/// Whether standard output was closed by its reader.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    error.to_string() == print::OUTPUT && cause.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

fn main() -> ExitCode {
    end_quietly_without_reader();
    let filter = tracing_subscriber::EnvFilter::try_from_env("TACIT_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let Cli { json, command } = Cli::parse();
    let result = match command {
        Command::Keys(args) => keys::run(args, json),
        Command::Model(args) => model::run(args, json),
        Command::Serve(args) => serve::run(args, json),
        Command::Infer(args) => infer::run(args, json),
        Command::Prepare(args) => prepare::run(args, json),
        Command::Bench(args) => bench::run(args, json),
        Command::Zoo(args) => zoo::run(args, json),
        Command::Simulate(args) => simulate::run(&args, json),
        Command::Lab(args) => lab::run(args),
        Command::BenchClient(args) => bench::run_client(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output may stop reading: what a shell reports for a program that SIGPIPE ended.
        Err(error) if is_closed_pipe(&error) => ExitCode::from(141),
        Err(error) => {
            // There may be nobody to tell.
            let text = explain(&error);
            let said = if json { serde_json::json!({ "error": text }).to_string() } else { format!("error: {text}") };
            let _ = writeln!(std::io::stderr(), "{said}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Every command that a user can call, with its path: `model import`.
    fn leaves(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
        let below: Vec<_> = shown.flat_map(|c| leaves(c, &format!("{path} {}", c.get_name()))).collect();
        if below.is_empty() || !command.is_subcommand_required_set() {
            return below.into_iter().chain([(path.to_owned(), command.clone())]).collect();
        }
        below
    }

    #[test]
    fn the_options_of_all_commands_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_has_an_example_of_its_command() {
        let mut cli = Cli::command();
        cli.build();
        let all = leaves(&cli, "tacit");
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
            "tacit --json prepare list",
            "tacit prepare list --json",
            "tacit --json lab sensors",
            "tacit lab sensors --json",
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
    fn options_of_prepare_may_follow_its_subcommand() {
        for line in [
            "tacit prepare --server there:1 --keys k --model m list",
            "tacit prepare list --server there:1 --keys k --model m",
            "tacit prepare --server there:1 discard --all --keys k --model m",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"));
            let Command::Prepare(args) = cli.command else { panic!("{line}") };
            assert_eq!(args.connect.named(), ("there:1", "k", Some("m")), "{line}");
        }
    }

    #[test]
    fn a_cause_is_told_once() {
        let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let path = || "x.json".into();
        let error = anyhow::Error::new(tacit_lab::LabError::Io { path: path(), source: missing() });
        assert_eq!(explain(&error.context("reading the plan")), "reading the plan: x.json: no such file");
        assert_eq!(explain(&anyhow::Error::new(missing()).context("x.json")), "x.json: no such file");
    }
}
