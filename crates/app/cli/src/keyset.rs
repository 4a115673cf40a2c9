//! `tacit keyset`: switching keys of the back end `ckks`
mod bench;
mod design;
mod kept;
mod machine;
mod measure;
mod measured;
mod networks;
mod params;
mod tables;

use clap::Subcommand;

#[derive(clap::Args)]
#[command(after_help = "Example: tacit keyset params")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Design(design::DesignArgs),
    Params(params::ParamsArgs),
    Bench(bench::BenchArgs),
    List(kept::ListArgs),
    Delete(kept::DeleteArgs),
    Tables(tables::TablesArgs),
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    match args.command {
        Command::Design(args) => design::run(&args, as_json),
        Command::Params(args) => params::run(&args, as_json),
        Command::Bench(args) => bench::run(&args, as_json),
        Command::List(args) => kept::list(&args, as_json),
        Command::Delete(args) => kept::delete(&args, as_json),
        Command::Tables(args) => tables::run(&args, as_json),
    }
}
