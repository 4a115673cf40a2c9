//! `tacit simulate` without the rest of the binary.

use clap::Parser;

#[path = "../../cli/src/simulate.rs"]
mod simulate;

fn main() -> anyhow::Result<()> {
    simulate::run(&simulate::SimulateArgs::parse())
}
