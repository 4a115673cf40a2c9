//! `tacit keyset`: switching keys of the back end `ckks`
mod bench;
mod kept;
mod machine;
mod params;

use crate::owner::SealArgs;
use crate::print;
use clap::Subcommand;
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;
use std::str::FromStr;
use tacit_backends::Options;
use tacit_backends::ckks::keyset::{Budget, Design, Goal, design, paper_key_bytes, table_5};

#[derive(clap::Args)]
#[command(after_help = "Example: tacit keyset params")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Design(DesignArgs),
    Params(params::ParamsArgs),
    Bench(bench::BenchArgs),
    List(kept::ListArgs),
    Delete(kept::DeleteArgs),
    /// Bytes of rotation keys by the formulas behind the tables of [KDS25], to compare with
    ///
    /// Example: tacit keyset tables
    Tables,
}

/// Choose the keys of a network for the back end `ckks`
///
/// Says which rotations its layers need, at which level, what key sets for them take by the strategies of
/// [KDS25] and by those that this back end runs, and which of the latter fits a budget best, with the options
/// that serve it.
///
/// Example: tacit keyset design net.tacit --upload 800MB --goal balanced
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct DesignArgs {
    /// Model: a .tacit file, or an ONNX file that is imported with defaults
    file: PathBuf,
    /// Most bytes at the server while it computes for one client, encoded weights included, e.g. 6GB
    #[arg(long, value_name = "BYTES")]
    memory: Option<Bytes>,
    /// Most bytes of keys that the client sends, e.g. 800MB
    #[arg(long, value_name = "BYTES")]
    upload: Option<Bytes>,
    /// What the set is to be best at: latency, upload, memory or balanced
    #[arg(long, default_value = "balanced")]
    goal: Goal,
    /// Option of the back end, e.g. set=B; may be repeated
    #[arg(short = 'O', long = "option", value_name = "KEY=VALUE,...")]
    options: Vec<String>,
    #[command(flatten)]
    seal: SealArgs,
}

/// A number of bytes with a unit: B, kB, MB, GB (powers of ten) or KiB, MiB, GiB.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bytes(u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cut = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(cut);
        let factor = match unit {
            "" | "B" => 1.0,
            "kB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "KiB" => 1024.0,
            "MiB" => 1_048_576.0,
            "GiB" => 1_073_741_824.0,
            _ => return Err("a number with B, kB, MB, GB, KiB, MiB or GiB".into()),
        };
        let value: f64 = number.parse().map_err(|_| "no number".to_owned())?;
        Ok(Self((value * factor) as u64))
    }
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    match args.command {
        Command::Design(args) => run_design(&args, as_json),
        Command::Params(args) => params::run(&args, as_json),
        Command::Bench(args) => bench::run(&args, as_json),
        Command::List(args) => kept::list(&args, as_json),
        Command::Delete(args) => kept::delete(&args, as_json),
        Command::Tables => tables(as_json),
    }
}

fn run_design(args: &DesignArgs, as_json: bool) -> anyhow::Result<()> {
    let model = crate::bench::load(&args.file, &args.seal)?;
    let options: Options = args.options.join(",").parse()?;
    let budget = Budget { memory: args.memory.map(|b| b.0), upload: args.upload.map(|b| b.0) };
    let (watch, shown) = print::watch();
    let found = design(&model, &options, budget, args.goal, &watch)?;
    shown.finish_and_clear();
    if as_json {
        return print::json(&serde_json::to_value(&found)?);
    }
    print::text(&page(&found))
}

fn page(found: &Design) -> String {
    let (set, log_degree) = &found.parameters;
    let mut out = format!("{}: parameters {set}, ring degree 2^{log_degree}\n\n", found.model);
    let mut line = |text: String| writeln!(out, "{text}").expect("a string takes all text");
    line(format!("{:<32} {:<10} {:>5} {:>9} {:>9}  distances", "node", "step", "level", "diagonals", "rotations"));
    for step in &found.steps {
        let name: String = step.node.chars().take(32).collect();
        let shown: Vec<String> = step.rotations.iter().take(6).map(ToString::to_string).collect();
        let more = if step.rotations.len() > 6 { " .." } else { "" };
        let boots = if step.bootstrapped { "  (bootstrapped)" } else { "" };
        let (distances, count) = (shown.join(" "), step.rotations.len());
        line(format!(
            "{name:<32} {:<10} {:>5} {:>9} {count:>9}  {distances}{more}{boots}",
            step.step, step.level, step.diagonals
        ));
    }
    line(format!(
        "\n{:<52} {:>6} {:>9} {:>9} {:>9} {:>11}",
        "key set", "keys", "GB", "GB server", "rotations", "transforms"
    ));
    for choice in &found.choices {
        line(choice.to_string());
    }
    let chosen = &found.choices[found.chosen];
    line(format!("\nchosen: {}, served with `-O {}`", chosen.name, chosen.options.as_deref().unwrap_or_default()));
    line("Bytes are of seeded, packed keys; those at the server with encoded weights and what a step holds. Transforms are those of rotations in linear steps.".into());
    out
}

fn tables(as_json: bool) -> anyhow::Result<()> {
    let rows = table_5();
    if as_json {
        return print::json(&json!({ "table_5": rows, "key_bytes_depth_16": paper_key_bytes(16, 1) }));
    }
    let gb = |bytes: u64| format!("{:.3}", bytes as f64 / 1e9);
    print::line(
        "[KDS25] Table 5, rotation keys of a bootstrap in GB, by formula: 38 keys with alpha = 1, 45 with the largest alpha",
    )?;
    print::line(&format!("{:>5} {:>10} {:>14} {:>6}", "depth", "alpha = 1", "largest alpha", "alpha"))?;
    for row in &rows {
        let (alpha, bytes) =
            row.largest.map_or(("-".into(), "-".into()), |(alpha, bytes)| (alpha.to_string(), gb(bytes)));
        print::line(&format!("{:>5} {:>10} {bytes:>14} {alpha:>6}", row.depth, gb(row.single)))?;
    }
    print::line("\nTables 6 and 7, alpha = 1, all levels, in GB: so many keys at depth 16")?;
    for (what, keys) in [
        ("GRU + MLP, all-required", 286),
        ("GRU + MLP, power-of-two", 52),
        ("SqueezeNet, all-required", 236),
        ("ResNet-20, all-required", 257),
        ("SqueezeNet and ResNet-20, power-of-two", 52),
    ] {
        print::line(&format!("{what:<40} {keys:>4} keys {:>9}", gb(keys * paper_key_bytes(16, 1))))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        for (text, wanted) in [("800MB", 800_000_000), ("1.5GB", 1_500_000_000), ("2KiB", 2048), ("7", 7)] {
            assert_eq!(text.parse(), Ok(Bytes(wanted)));
        }
        assert!("8 GB".parse::<Bytes>().is_err() && "GB".parse::<Bytes>().is_err() && "3XB".parse::<Bytes>().is_err());
    }
}
