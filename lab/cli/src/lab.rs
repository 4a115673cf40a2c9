//! `tacit lab`: measuring power, energy and links; one file per subcommand.
mod calibrate;
mod compare;
mod conduct;
mod evaluate;
mod files;
mod inputs;
mod link;
mod live;
mod mark;
mod measure;
mod nets;
mod papers;
mod report;
mod run;
mod sensors;
mod study;
mod transport;
mod workload;

use clap::Subcommand;

#[derive(clap::Args)]
#[command(after_help = "Example: tacit lab run pm24-bandwidth --quick -o campaign")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

// A doc comment on a variant would hide the help of its command's own `Args`, so some have none.
#[derive(Subcommand)]
enum Command {
    /// List the power sources of this machine, with a remedy for each source that cannot be used
    Sensors(sensors::Args),
    /// Measure the coefficients of the energy model and write a device profile
    Calibrate(calibrate::Args),
    Run(Box<run::Args>),
    Transport(transport::Args),
    Compare(compare::Args),
    /// Measure the costs of one command on this host
    Measure(measure::Args),
    Mark(mark::Args),
    Report(report::Args),
    Papers(papers::Args),
    /// Run a built-in workload: bulk transfer or ping-pong over a transport
    #[command(subcommand)]
    Workload(workload::Command),
    /// Run one end of a WireGuard tunnel in user space, configured on standard input
    #[command(hide = true)]
    TunnelProcess,
    /// Run a program over an emulated link
    Link(Box<link::Args>),
}

#[cfg(test)]
impl Args {
    pub fn wants_json_of_sensors(&self) -> bool {
        matches!(&self.command, Command::Sensors(args) if args.json)
    }
}

pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Sensors(args) => sensors::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Transport(args) => transport::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Measure(args) => measure::run(&args),
        Command::Mark(args) => mark::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Papers(args) => papers::run(&args),
        Command::Workload(command) => workload::run(&command),
        Command::TunnelProcess => Ok(tacit_experiments::tunnel::run_process()?),
        Command::Link(args) => link::run(&args),
    }
}
