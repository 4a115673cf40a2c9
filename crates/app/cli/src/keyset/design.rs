//! `tacit keyset design`: chooses the keys of a network for `ckks`.

use super::machine::{best, ntt_s};
use super::measure::{Bench, values};
use crate::output::{self, Alike};
use crate::owner::SealArgs;
use crate::{page, print};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;
use tacit_backends::Options;
use tacit_backends::ckks::keyset::{Budget, Design, Goal, MeasuredOperations, Rates, Wish, design};
use tacit_he::ckks::{Encoder, Evaluator, KeyGroup, ParametersSpec, Segment};

const PAGE: &str = include_str!("page.html");

/// Choose the keys of a network for the back end `ckks`
///
/// The command lists the rotations of the network's layers by level, and the sizes of key sets for
/// these rotations, by the strategies of [KDS25] and of this back end. It chooses the key set of
/// this back end that fits the budget best, with the options for `tacit serve` and a reason for
/// each key. The result goes to standard output, to NAME.keyset.json, and to NAME.keyset.html, a
/// page with plots that needs no other file.
///
/// Seconds are estimates: counted transforms and products, times the seconds of one of each. The
/// command measures these first, in about a second on one thread of this machine, in the ring of
/// the network.
///
/// Example: tacit keyset design net.tacit --upload 800MB --goal balanced
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct DesignArgs {
    /// Model: a .tacit file, or an ONNX file that is imported with defaults
    file: PathBuf,
    /// Most bytes at the server during an inference of one client, with encoded weights, e.g. 6GB
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    memory: Option<Bytes>,
    /// Most bytes of keys that the client sends, e.g. 800MB
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    upload: Option<Bytes>,
    /// Quantity to optimise: latency, upload, memory or balanced
    #[arg(long, default_value = "balanced", help_heading = "Limits")]
    goal: Goal,
    /// Key set: auto (search for one), or a set of [KDS25] to look at: power-of-two, all-required,
    /// alpha=1, max-alpha, dynamic, level-aware
    #[arg(long, default_value = "auto", value_name = "NAME", help_heading = "Model")]
    strategy: String,
    /// Name of the two output files, without .json and .html [default: NAME.keyset of the model's
    /// file]
    #[arg(short, long, value_name = "PATH", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Count a transform as 100 us, a product with a key as 30 us, with a plaintext as 10 us, and
    /// measure nothing
    #[arg(long, help_heading = "Device")]
    fixed_rates: bool,
    /// Option of the back end, e.g. set=B; may be repeated
    #[arg(short = 'O', long = "option", value_name = "KEY=VALUE,...", help_heading = "Model")]
    options: Vec<String>,
    #[command(flatten, next_help_heading = "Model")]
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

pub fn run(args: &DesignArgs, as_json: bool) -> anyhow::Result<()> {
    let model = crate::bench::load(&args.file, &args.seal)?;
    let options: Options = args.options.join(",").parse()?;
    let (rates, rates_source) =
        if args.fixed_rates { (Rates::default(), FIXED_RATES_NOTE.to_owned()) } else { measure_rates()? };
    let budget = Budget { memory: args.memory.map(|b| b.0), upload: args.upload.map(|b| b.0) };
    let wish = Wish { budget, goal: args.goal, strategy: args.strategy.clone(), rates };
    let (watch, progress_bar) = print::watch();
    let found_design = design(&model, &options, &wish, &watch)?;
    progress_bar.finish_and_clear();
    let mut value = serde_json::to_value(&found_design)?;
    value["how"] = rates_source.as_str().into();
    let files = OutputFiles::from_args(args);
    files.write(&value)?;
    if as_json {
        return print::json(&value);
    }
    print::text(&text(&found_design, &rates_source))?;
    print::line(&format!("written: {}, {}", files.json.display(), files.html.display()))
}

const FIXED_RATES_NOTE: &str = "Seconds are of no machine: a transform counts as 100 us, a product with a key as 30 us, with a plaintext as 10 us, at ring degree 2^16.";

/// Measures a transform and a product on this machine.
fn measure_rates() -> anyhow::Result<(Rates, String)> {
    const LOG: u32 = 15;
    let (level, alpha) = (7, 4);
    let spec = ParametersSpec {
        log_degree: LOG,
        base_bits: 46,
        segments: vec![Segment { count: level - 1, bits: 36 }],
        special_bits: 50,
        groups: vec![KeyGroup { up_to_level: level, alpha }],
        encapsulated: false,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| {
        let ntt_s = ntt_s(1 << LOG)?;
        let mut bench = Bench::new(&spec)?;
        let (a, slots) = (bench.encrypt_samples(level)?, 1 << (LOG - 1));
        let scale = bench.context.parameters().scale(level);
        let plain = Encoder::new(&bench.context, slots)?.encode(&values(slots), level, scale)?;
        let keys = bench.rotation_keys(&[1], level)?;
        let evaluator = Evaluator::new(&bench.context, &keys);
        evaluator.rotate(&a, 1)?;
        let rotation_s = best(5, || drop(evaluator.rotate(&a, 1)));
        let plain_product_s = best(5, || drop(evaluator.mul_plain(&a, &plain))) / (2 * level) as f64;
        let took = MeasuredOperations { log_degree: LOG, ntt_s, plain_product_s, rotation_s, level, alpha };
        let rates = Rates::from_measurement(&took);
        let rates_source = format!(
            "Seconds are estimates for one thread: counted transforms and products, times what they take on this machine now, measured at ring \
             degree 2^{LOG}: a transform {:.0} us, a rotation at level {level} with {alpha} special primes {:.1} ms, so that a product with \
             a key and all that comes with it counts {:.0} us; a product with a plaintext {:.0} us; in other rings in proportion.",
            ntt_s * 1e6,
            rotation_s * 1e3,
            rates.product_s * 1e6,
            plain_product_s * 1e6
        );
        Ok((rates, rates_source))
    })
}

/// Text that every page of a design contains.
const TITLE: &str = "<title>tacit keyset design</title>";

struct OutputFiles {
    json: PathBuf,
    html: PathBuf,
}

impl OutputFiles {
    fn from_args(args: &DesignArgs) -> Self {
        let base = match &args.out {
            Some(out) => out.as_os_str().to_owned(),
            None => append(args.file.file_stem().unwrap_or(args.file.as_os_str()), ".keyset"),
        };
        Self { json: append(&base, ".json").into(), html: append(&base, ".html").into() }
    }

    fn write(&self, value: &Value) -> anyhow::Result<()> {
        let mut shortened = value.clone();
        // The problem is input for a solver, and the largest part of the JSON.
        if let Some(fields) = shortened.as_object_mut() {
            fields.remove("problem");
        }
        let html = page::fill_template(PAGE).replace("{{data}}", &page::embed_json(&shortened));
        let json = serde_json::to_string_pretty(value)?;
        output::check(&self.html, Alike::Holds(TITLE))?;
        output::write(&self.json, json.as_bytes(), Alike::Json(value))?;
        output::write(&self.html, html.as_bytes(), Alike::Holds(TITLE))
    }
}

fn append(base: &OsStr, text: &str) -> OsString {
    let mut name = base.to_owned();
    name.push(text);
    name
}

fn text(found_design: &Design, rates_source: &str) -> String {
    let (set, log_degree) = &found_design.parameters;
    let mut lines = vec![format!("{}: parameters {set}, ring degree 2^{log_degree}\n", found_design.model)];
    lines
        .push(format!("{:<32} {:<10} {:>5} {:>9} {:>9}  distances", "node", "step", "level", "diagonals", "rotations"));
    for step in &found_design.steps {
        let name: String = step.node.chars().take(32).collect();
        let rotations: Vec<String> = step.rotations.iter().take(6).map(ToString::to_string).collect();
        let ellipsis = if step.rotations.len() > 6 { " .." } else { "" };
        let boots = if step.bootstrapped { "  (bootstrapped)" } else { "" };
        let (distances, count) = (rotations.join(" "), step.rotations.len());
        lines.push(format!(
            "{name:<32} {:<10} {:>5} {:>9} {count:>9}  {distances}{ellipsis}{boots}",
            step.step, step.level, step.diagonals
        ));
    }
    lines.push(format!(
        "\n{:<30} {:<8} {:>5} {:>9} {:>9} {:>9} {:>10} {:>9}",
        "key set", "", "keys", "GB", "GB server", "rotations", "transforms", "seconds"
    ));
    lines.extend(found_design.choices.iter().map(ToString::to_string));
    let chosen = &found_design.choices[found_design.chosen];
    lines.push(match &chosen.options {
        Some(options) => format!("\nchosen: {}, served with `-O {options}`", chosen.name),
        None => format!("\nlooked at: {}; it is computed only, the back end does not run it", chosen.name),
    });
    lines.push(format!("{}.", chosen.about));
    let mut states: Vec<(&str, usize, u64)> = Vec::new();
    for key in &found_design.keys {
        let kind = key.reason.split(" of ").next().unwrap_or(&key.reason);
        match states.iter_mut().find(|(state_kind, ..)| *state_kind == kind) {
            Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, *bytes + key.bytes),
            None => states.push((kind, 1, key.bytes)),
        }
    }
    for (kind, count, bytes) in states {
        lines.push(format!("  {count:>4} keys, {:>9}, uploaded and resident: {kind}", print::bytes(bytes)));
    }
    for chain in &found_design.chains {
        lines.push(format!(
            "  chained at level {}: {} distances by {:?}, {} key switches",
            chain.level, chain.distances, chain.by, chain.switches
        ));
    }
    lines.push(format!(
        "\nbetween fewest bytes and least time: {} sets that run (in the files)",
        found_design.front.len()
    ));
    lines.push("Bytes are of seeded, packed keys; bytes at the server include encoded weights and the values of a step. Rotations and transforms are those of linear steps.".into());
    lines.push(rates_source.into());
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_bytes_with_units() {
        for (text, expected) in [("800MB", 800_000_000), ("1.5GB", 1_500_000_000), ("2KiB", 2048), ("7", 7)] {
            assert_eq!(text.parse(), Ok(Bytes(expected)));
        }
        assert!("8 GB".parse::<Bytes>().is_err());
        assert!("GB".parse::<Bytes>().is_err());
        assert!("3XB".parse::<Bytes>().is_err());
    }
}
