//! `tacit keyset tables`: the tables of [KDS25] by formula, on our lowering, and measured.

mod measured;
mod networks;

use anyhow::ensure;
use measured::What;
use networks::Table4;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tacit_backends::ckks::keyset::{
    KeySetChoice, PAPER_ALPHAS, Wish, allowed_alphas, design, dynamic_key_bytes, paper_key_bytes, stage_keys, table_5,
};
use tacit_cli::owner::SealArgs;
use tacit_cli::print;

/// Print the tables and figures of [KDS25] beside ours
///
/// The command prints at once, by formula: Table 5, Fig. 3 and parts of Tables 6 and 7. For each
/// named network it prints Tables 6 and 7 on our lowering (half a minute for ResNet-20). --measure
/// adds Table 3 (half a minute, 2 GB), or Fig. 7 and 8 (five minutes and 5 GB), or Table 4 with
/// Fig. 10 and 11. For Table 4, each named network answers two of its calibration samples with each
/// of five key sets, both parties in this process (ResNet-20 with squares: five minutes and 5 GB).
///
/// Examples: tacit keyset tables
///           tacit keyset tables resnet20_aespa.tacit --measure networks
///           tacit keyset tables resnet20.tacit -O tolerance=0.002,margin=2 --measure networks
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct TablesArgs {
    /// Networks, .tacit or ONNX: ResNet-20, SqueezeNet, the GRU; the name of a file selects the
    /// paper's network to compare with
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Measurement to add: on one thread table3 (half a minute) or bootstraps (Fig. 7, 8: five
    /// minutes, 5 GB), on all threads networks (Table 4, Fig. 10 and 11)
    #[arg(long, value_name = "WHAT", help_heading = "Output")]
    measure: Vec<measured::What>,
    /// Option of the back end for the networks, e.g. tolerance=0.002; may be repeated
    #[arg(short = 'O', long = "option", value_name = "KEY=VALUE,...", help_heading = "Model")]
    options: Vec<String>,
    #[command(flatten, next_help_heading = "Model")]
    seal: SealArgs,
}

struct Network {
    name: &'static str,
    /// Words that the file's name may contain.
    words: &'static [&'static str],
    not: &'static [&'static str],
    /// Key sizes in the paper, in millions of bytes, in the order of `STRATEGIES`.
    printed: [u64; 5],
    /// Times end to end in the paper's Table 4.
    table_4: Option<Table4>,
}

/// Our strategies that correspond to the lines of the paper's Tables 6 and 7.
const STRATEGIES: [&str; 5] = ["dynamic", "all-required", "power-of-two, dynamic", "power-of-two", "level-aware"];

const SQUARES: [&str; 3] = ["aespa", "square", "herpn"];

const NETWORKS: [Network; 5] = [
    Network {
        name: "GRU + MLP",
        words: &["gru", "detector"],
        not: &[],
        printed: [553_648, 307_090, 83_752, 55_835, 52_026],
        table_4: None,
    },
    Network {
        name: "SqueezeNet MPCNN",
        words: &["squeezenet"],
        not: &SQUARES,
        printed: [490_968, 253_403, 108_179, 55_835, 45_353],
        table_4: None,
    },
    Network {
        name: "SqueezeNet AESPA",
        words: &["squeezenet"],
        not: &[],
        printed: [490_968, 253_403, 108_179, 55_835, 46_016],
        table_4: None,
    },
    Network {
        name: "ResNet-20 MPCNN",
        words: &["resnet20"],
        not: &SQUARES,
        printed: [534_656, 275_952, 108_179, 55_835, 47_320],
        table_4: Some([[25.264, 66.082, 10.823], [12.919, 66.082, 10.823]]),
    },
    Network {
        name: "ResNet-20 AESPA",
        words: &["resnet20"],
        not: &[],
        printed: [534_656, 275_952, 108_179, 55_835, 53_511],
        table_4: Some([[47.507, 27.824, 4.210], [24.637, 27.824, 6.210]]),
    },
];

/// Returns the paper's network that a file's name matches.
fn network(file: &Path) -> Option<&'static Network> {
    let name = file.file_stem()?.to_string_lossy().to_lowercase();
    NETWORKS.iter().find(|network| has_any(&name, network.words) && !has_any(&name, network.not))
}

fn has_any(name: &str, words: &[&str]) -> bool {
    words.iter().any(|word| name.contains(word))
}

#[derive(Serialize)]
struct OurKeys {
    network: String,
    file: String,
    parameters: String,
    /// Options of the key set that `design` chooses.
    chosen: Option<String>,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    strategy: String,
    rotation_keys: usize,
    /// Size of the rotation keys with both halves and 8 bytes a residue, as the paper counts.
    plain_bytes: u64,
    /// Size of the same keys, seeded and packed.
    packed_bytes: u64,
    paper_bytes: Option<u64>,
}

impl Line {
    fn for_choice(choice: &KeySetChoice, network: Option<&Network>) -> Self {
        let place = STRATEGIES.iter().position(|name| *name == choice.name);
        Self {
            strategy: choice.name.clone(),
            rotation_keys: choice.rotation_keys,
            plain_bytes: choice.plain_bytes,
            packed_bytes: choice.rotation_bytes,
            paper_bytes: place.and_then(|i| Some(network?.printed[i] * 1_000_000)),
        }
    }
}

pub fn run(args: &TablesArgs, as_json: bool) -> anyhow::Result<()> {
    ensure!(
        !args.files.is_empty() || !args.measure.contains(&What::Networks),
        "--measure networks needs a network: name at least one file"
    );
    let options = args.options.join(",");
    let mut own_choices = Vec::new();
    for file in &args.files {
        own_choices.push(design_keys(file, &options, &args.seal)?);
    }
    let missing: Vec<&str> =
        NETWORKS.iter().map(|n| n.name).filter(|n| own_choices.iter().all(|o| o.network != *n)).collect();
    let measured = args.measure.iter().filter_map(|measurement| measured::measure(*measurement).transpose());
    let measured = measured.collect::<anyhow::Result<Vec<Value>>>()?;
    let run_by_sets =
        if args.measure.contains(&What::Networks) { measure_by_set(args, &own_choices, &options)? } else { Vec::new() };
    let stages = (1..=16).rev().map(stage_keys).collect::<Result<Vec<_>, _>>()?;
    let alphas = allowed_alphas()?;
    if as_json {
        return print::json(&json!({
            "table_5": table_5(), "table_5_our_bootstraps": stages, "figure_3": alphas, "key_bytes_depth_16": paper_key_bytes(16, 1),
            "tables_6_and_7": formulas(), "our_lowering": own_choices, "not_given": missing, "measured": measured,
            "table_4": run_by_sets,
        }));
    }
    print_table_5()?;
    print_stages(&stages)?;
    print::line(
        "\nTables 6 and 7 by formula, in GB: so many keys, each with these alphas at the highest level that has 128 bits",
    )?;
    for line in PAPER_ALPHAS {
        let (label, keys, own_gb) = (line.what, line.keys, gb(line.keys * dynamic_key_bytes(line.alphas)));
        print::line(&format!(
            "{label:<40} {keys:>4} keys {own_gb:>9}   paper {:>9}  {:?}",
            gb(line.printed * 1_000_000),
            line.alphas
        ))?;
    }
    print::line(
        "\nFig. 3, most special primes with 128 bits at N = 2^16: level, set A's primes and special ones of 50 bits; those that divide it; the paper's",
    )?;
    for row in &alphas {
        let paper = row.paper.map_or("-".into(), |alpha| alpha.to_string());
        print::line(&format!("{:>5} {:>5} {paper:>5}  {:?}", row.level, row.largest, row.whole))?;
    }
    for network in &own_choices {
        print_ours(network)?;
    }
    if !missing.is_empty() {
        print::line(&format!("\nTables 6 and 7 on our lowering: no file was given for {}", missing.join(", ")))?;
    }
    measured.iter().try_for_each(|value| print::line(&format!("\n{}", serde_json::to_string_pretty(value)?)))?;
    run_by_sets.iter().try_for_each(networks::show)
}

fn measure_by_set(
    args: &TablesArgs,
    own_choices: &[OurKeys],
    options: &str,
) -> anyhow::Result<Vec<networks::Measured>> {
    let requests = args.files.iter().zip(own_choices).map(|(file, choice)| {
        let request = networks::MeasureRequest {
            name: &choice.network,
            paper: network(file).and_then(|network| network.table_4),
            options,
            chosen: choice.chosen.as_deref(),
        };
        networks::measure(file, &request, &args.seal)
    });
    requests.collect()
}

fn gb(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 / 1e9)
}

fn formulas() -> Vec<Value> {
    let lines = PAPER_ALPHAS.map(|line| {
        json!({
            "what": line.what, "keys": line.keys, "alphas": line.alphas,
            "bytes": line.keys * dynamic_key_bytes(line.alphas), "paper_bytes": line.printed * 1_000_000,
        })
    });
    lines.into()
}

fn print_table_5() -> anyhow::Result<()> {
    print::line(
        "[KDS25] Table 5, rotation keys of a bootstrap in GB, by formula: 38 keys with alpha = 1, 45 with the largest alpha, 38 of each alpha \
         where it is dynamic (the paper's figure beside it)",
    )?;
    print::line(&format!(
        "{:>5} {:>10} {:>14} {:>6} {:>10} {:>10}  alphas",
        "depth", "alpha = 1", "largest alpha", "alpha", "dynamic", "paper"
    ))?;
    for row in &table_5() {
        let (alpha, bytes) =
            row.largest.map_or(("-".into(), "-".into()), |(alpha, bytes)| (alpha.to_string(), gb(bytes)));
        let paper = row.paper.map_or("-".into(), |[dynamic, _]| gb(dynamic * 1_000_000));
        let (dynamic, alphas) = row
            .dynamic
            .as_ref()
            .map_or(("-".into(), String::new()), |(alphas, bytes)| (gb(*bytes), format!("{alphas:?}")));
        let line = format!(
            "{:>5} {:>10} {bytes:>14} {alpha:>6} {dynamic:>10} {paper:>10}  {alphas}",
            row.depth,
            gb(row.single)
        );
        print::line(line.trim_end())?;
    }
    Ok(())
}

fn print_stages(stages: &[tacit_backends::ckks::keyset::StageKeys]) -> anyhow::Result<()> {
    let distances = stages.iter().map(|row| row.distances).max().unwrap_or(0);
    print::line(&format!(
        "\nTable 5, our split of a bootstrap (3 + 3 transforms of 63 diagonals, {distances} distances) in the paper's bytes and with its budget, alpha \
         of 1, 2, 4, 8, 16 by level, each distance with the alphas of its own levels only; the paper has 38 keys",
    ))?;
    print::line(&format!("{:>5} {:>10} {:>12} {:>12} {:>12}", "depth", "dynamic", "paper", "level-aware", "paper"))?;
    for (row, paper) in stages.iter().zip(table_5()) {
        let [dynamic, level_aware] = [0, 1].map(|i| paper.paper.map_or("-".into(), |sizes| gb(sizes[i] * 1_000_000)));
        print::line(&format!(
            "{:>5} {:>10} {dynamic:>12} {:>12} {level_aware:>12}",
            row.depth,
            gb(row.dynamic),
            gb(row.level_aware)
        ))?;
    }
    Ok(())
}

/// Computes the keys of each strategy on our lowering of a network.
fn design_keys(file: &Path, options: &str, seal: &SealArgs) -> anyhow::Result<OurKeys> {
    let model = tacit_cli::bench::load(file, seal)?;
    let (watch, progress_bar) = print::watch();
    let found_design = design(&model, &options.parse()?, &Wish::default(), &watch)?;
    progress_bar.finish_and_clear();
    let network_of_file = network(file);
    Ok(OurKeys {
        network: network_of_file.map_or_else(|| found_design.model.clone(), |network| network.name.to_owned()),
        file: file.display().to_string(),
        parameters: format!("{}, ring degree 2^{}", found_design.parameters.0, found_design.parameters.1),
        chosen: found_design.choices[found_design.chosen].options.clone(),
        lines: found_design.choices.iter().map(|choice| Line::for_choice(choice, network_of_file)).collect(),
    })
}

fn print_ours(choice: &OurKeys) -> anyhow::Result<()> {
    print::line(&format!(
        "\nTables 6 and 7 on our lowering: {} ({}), parameters {}; rotation keys in GB, with both halves and 8 bytes a residue as the paper \
         counts, and seeded and packed",
        choice.network, choice.file, choice.parameters
    ))?;
    print::line(&format!("{:<36} {:>5} {:>10} {:>10} {:>10}", "key set", "keys", "GB", "packed", "paper"))?;
    for Line { strategy, rotation_keys, plain_bytes, packed_bytes, paper_bytes } in &choice.lines {
        let paper = paper_bytes.map_or("-".into(), gb);
        let (plain, packed) = (gb(*plain_bytes), gb(*packed_bytes));
        print::line(&format!("{strategy:<36} {rotation_keys:>5} {plain:>10} {packed:>10} {paper:>10}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_known_by_file_names() {
        let name = |file: &str| network(Path::new(file)).map(|network| network.name);
        assert_eq!(name("a/resnet20_aespa_cifar10.onnx"), Some("ResNet-20 AESPA"));
        assert_eq!(name("resnet20_cifar10.onnx"), Some("ResNet-20 MPCNN"));
        assert_eq!(name("squeezenet_square.onnx"), Some("SqueezeNet AESPA"));
        assert_eq!(name("SqueezeNet.tacit"), Some("SqueezeNet MPCNN"));
        assert_eq!(name("nsl_gru.onnx"), Some("GRU + MLP"));
        assert_eq!(name("digits.onnx"), None);
    }
}
