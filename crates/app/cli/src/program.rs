//! What every program with a command line does: log, parse, run, tell errors.
use crate::print;
use anyhow::Context;
use clap::Parser;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use tacit_program::log::Log;

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    error.to_string() == print::OUTPUT && cause.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

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

/// A parsed command line.
pub trait CommandLine: Parser {
    /// Whether errors are printed as JSON.
    fn json(&self) -> bool;

    /// Runs the command.
    ///
    /// # Errors
    /// Those of the command, for the user.
    fn run(self) -> anyhow::Result<()>;
}

/// Runs a program: starts its log, parses its command line, runs the command and prints its error.
#[must_use]
pub fn run<C: CommandLine>() -> ExitCode {
    let log = match Log::start() {
        Ok(log) => log,
        Err(error) => {
            print::note(&format!("error: starting the log: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let (result, as_json) = match C::try_parse() {
        Ok(line) => {
            let as_json = line.json();
            (line.run().map(|()| ExitCode::SUCCESS), as_json)
        }
        Err(text) => (tell(&text), false),
    };
    match result {
        Ok(code) => code,
        // A closed pipe is no error: 141 is the status that a shell reports for a program that
        // SIGPIPE ended.
        Err(error) if is_closed_pipe(&error) => ExitCode::from(141),
        Err(error) => {
            let text = tacit_program::log::explain(error.as_ref());
            log.say(&match as_json {
                true => as_error(&text),
                false => format!("error: {text}"),
            });
            ExitCode::FAILURE
        }
    }
}

/// Returns the path of a program of tacit in the same folder.
///
/// # Errors
/// The program is not installed.
pub fn find_program(name: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program")?;
    let path = program.with_file_name(name);
    anyhow::ensure!(
        path.exists(),
        "{} is not there: install {name} beside tacit (in a clone, `make binary` builds all programs)",
        path.display()
    );
    Ok(path)
}

/// Replaces this process by the program `name`, which keeps the process id, signals and output.
///
/// # Errors
/// The program is not installed, or cannot be started.
fn become_program(name: &str, arguments: Vec<OsString>, as_json: bool) -> anyhow::Result<()> {
    let program = find_program(name)?;
    let json = (as_json && !arguments.iter().any(|a| a == "--json")).then_some("--json");
    let error = Command::new(&program).args(json).args(arguments).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}

/// Arguments of a command that another program in the same folder runs. `tacit` itself links no
/// async runtime, and nothing that only measures or simulates.
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Forwarded {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Forwarded {
    /// Replaces this process by the program `name`, with `command` in front of the arguments.
    ///
    /// # Errors
    /// The program is not installed, or cannot be started.
    pub fn run(self, name: &str, command: &[&str], as_json: bool) -> anyhow::Result<()> {
        become_program(name, command.iter().map(OsString::from).chain(self.arguments).collect(), as_json)
    }
}

/// Returns every command that has a help text, groups too, with its path: `tacit model import`.
fn commands(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
    let subcommands = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    let below = subcommands.flat_map(|c| commands(c, &format!("{path} {}", c.get_name())));
    [(path.to_owned(), command.clone())].into_iter().chain(below).collect()
}

/// Returns the commands whose help has no example of the command itself, and the number of all.
#[must_use]
pub fn commands_without_example(mut cli: clap::Command) -> (Vec<String>, usize) {
    cli.build();
    let listed_commands = commands(&cli, "tacit");
    let count = listed_commands.len();
    let lacking = listed_commands.into_iter().filter_map(|(path, mut command)| {
        let help = command.render_long_help().to_string();
        let example = help.split_once("Example").is_some_and(|(_, after)| after.contains(&path));
        (!example).then_some(path)
    });
    (lacking.collect(), count)
}
