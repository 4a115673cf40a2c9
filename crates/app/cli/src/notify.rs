//! `tacit notify`: announces inputs over HTTP.
use crate::print;
use clap::Subcommand;
use serde_json::{Value, json};
use std::time::Duration;
use tacit_backends::Registry;
use tacit_client::wire::{InputId, LinkClass, ModelAndBackend};
use tacit_client::{ClientConfig, MAX_THREADS, Notices, Standing, UNKNOWN_INPUT_MESSAGE};
use tacit_program::args::{DeviceArgs, ServerArgs, count};

/// Announce an input over HTTP, without a standing connection, for devices that sleep until its
/// turn
///
/// `tacit infer --notice NAME` asks for the input later.
///
/// Example: tacit notify new --model digits --server server.example:7878 --keys keys --client alice
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Seconds that the server's answer may take
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    #[arg(help_heading = "Limits")]
    timeout: u64,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Announce an input, and show the name that the server gives to the input
    ///
    /// Example: tacit notify new --model digits --expected 600 --link slow
    New(New),
    /// Show the state of an announced input (announced, offline, ready or online) and its turn
    ///
    /// Example: tacit notify look 3fa9c2d107be5e10 --wait 600
    Look {
        /// Name of the announced input
        name: InputId,
        /// Longest wait, in seconds, until the turn of the input has come
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=604_800))]
        #[arg(help_heading = "Limits")]
        wait: u64,
    },
    /// Withdraw an announced input
    ///
    /// Example: tacit notify withdraw 3fa9c2d107be5e10
    Withdraw {
        /// Name of the announced input
        name: InputId,
    },
}

#[derive(clap::Args)]
struct New {
    /// Model of the input [default: the only model of the server]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    model: Option<String>,
    /// Back end to use [default: the first private back end that the server offers for the model]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    backend: Option<String>,
    /// Number of inputs of the batch; the server says how many inputs it accepts as one batch
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1024), help_heading = "Input")]
    inputs: usize,
    /// Seconds from now until `tacit infer` asks for the input
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=604_800))]
    #[arg(help_heading = "Limits")]
    expected: Option<u64>,
    /// Seconds after the expected time until the server may drop the input [default and most: the
    /// limit of the server]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=604_800))]
    #[arg(help_heading = "Limits")]
    ttl: Option<u64>,
    /// Threads for arithmetic of the later `tacit infer`
    #[arg(long, default_value_t = 1, value_parser = count(MAX_THREADS as u64), help_heading = "Device")]
    threads: usize,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    let mut config = ClientConfig::new(&args.server.server, args.server.identity()?);
    config.server_name.clone_from(&args.server.server_name);
    config.connect_timeout = Duration::from_secs(args.timeout);
    match args.command {
        Command::New(new) => {
            config.threads = new.threads;
            new.device.apply(&mut config);
            let timeout = Duration::from_secs(args.timeout);
            config.connect_timeout =
                if config.link == LinkClass::Slow { config.connect_timeout.max(timeout) } else { timeout };
            let notices = Notices::new(&config)?;
            let ModelAndBackend { model, backend } =
                notices.choose(&Registry::standard(), new.model.as_deref(), new.backend.as_deref())?;
            let [expected, ttl] = [new.expected, new.ttl].map(|seconds| seconds.map(Duration::from_secs));
            show(&notices.announce(&model, &backend, new.inputs, expected, ttl)?, as_json)
        }
        Command::Look { name, wait } => {
            let standing = Notices::new(&config)?.wait_for_turn(name, Duration::from_secs(wait))?;
            show(&standing.ok_or_else(|| anyhow::anyhow!(UNKNOWN_INPUT_MESSAGE))?, as_json)
        }
        Command::Withdraw { name } => {
            anyhow::ensure!(Notices::new(&config)?.take_back(name)?, UNKNOWN_INPUT_MESSAGE);
            let value = json!({ "name": name.to_string(), "state": Value::Null });
            print::json_or_line(as_json, &value, &format!("{name} was taken back"))
        }
    }
}

fn show(standing: &Standing, as_json: bool) -> anyhow::Result<()> {
    let Standing { name, state, inputs, turn } = standing;
    let value = json!({ "name": name.to_string(), "state": state.to_string(), "inputs": inputs, "turn": turn });
    let turn = if *turn { "it would start at once" } else { "it would wait" };
    let batch = if *inputs == 1 { String::new() } else { format!(", {inputs} inputs as one") };
    print::json_or_line(as_json, &value, &format!("{name} {state}{batch}; {turn}"))
}
