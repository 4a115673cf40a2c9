//! `tacit keyset`: switching keys of the back end `ckks`
mod bench;
mod design;
pub mod machine;
pub mod measure;
pub mod params;
mod uploads;

use crate::program::Forwarded;
use clap::Subcommand;

#[derive(clap::Args)]
#[command(after_help = "Example: tacit keyset params")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Design(design::DesignArgs),
    Params(params::ParamsArgs),
    Bench(bench::BenchArgs),
    List(uploads::ListArgs),
    Delete(uploads::DeleteArgs),
    /// Print the tables and figures of [KDS25] beside ours (runs the program tacit-lab)
    ///
    /// Example: tacit keyset tables resnet20_aespa.tacit --measure networks
    Tables(Forwarded),
}

pub(crate) fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    match args.command {
        Command::Design(args) => design::run(&args, as_json),
        Command::Params(args) => params::run(&args, as_json),
        Command::Bench(args) => bench::run(&args, as_json),
        Command::List(args) => uploads::list(&args, as_json),
        Command::Delete(args) => uploads::delete(&args, as_json),
        Command::Tables(args) => args.run("tacit-lab", &["keyset", "tables"], as_json),
    }
}
