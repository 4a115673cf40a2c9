//! `tacit lab compare`: compares two campaigns, cell by cell.
use std::path::PathBuf;
use tacit_cli::print;
use tacit_experiments::campaign;
use tacit_experiments::compare::{Comparison, Options, Row, Verdict, compare, describe, plain};

/// Compare campaign B to campaign A, cell by cell
///
/// For every cell of both campaigns, the command prints the ratio of means (B over A) of latency,
/// goodput, processor time and energy. Each ratio has a 95 % confidence interval (Fieller's, for
/// two independent samples with variances of their own).
///
/// An interval that contains 1 shows no difference. Of many comparisons, one in twenty shows a
/// difference by chance alone.
///
/// Examples: tacit lab compare before after
///           tacit lab compare tls wireguard --ignore transport --json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Folder of the first campaign, the base of the ratios
    a: PathBuf,
    /// Folder of the second campaign
    b: PathBuf,
    /// Label that may differ in matching cells: link, transport, workload, pace
    #[arg(long, value_name = "LABEL", value_delimiter = ',', help_heading = "Input")]
    ignore: Vec<String>,
    /// Compare all figures that both campaigns have
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let options = Options { ignore: args.ignore.iter().cloned().collect(), all: args.all };
    let (a, b) = (campaign::load(&args.a)?, campaign::load(&args.b)?);
    let result = compare(&a, &b, &options);
    if args.json {
        print::line(&serde_json::to_string_pretty(&result)?)?;
        return Ok(());
    }
    if result.rows.is_empty() {
        anyhow::bail!(
            "the campaigns have no cell in common; --ignore LABEL matches cells that differ in a label (of {} and {})",
            count(&result.only_a),
            count(&result.only_b)
        );
    }
    show(&result)
}

fn count(cells: &[tacit_experiments::campaign::Cell]) -> String {
    cells.first().map_or_else(|| "none".into(), |c| format!("{} such as \"{}\"", cells.len(), describe(c)))
}

fn show(result: &Comparison) -> anyhow::Result<()> {
    let mut cell = None;
    for row in &result.rows {
        if cell != Some(&row.cell) {
            print::line(&describe(&row.cell))?;
            cell = Some(&row.cell);
        }
        print::line(&format!("  {}", line(row)))?;
    }
    for (name, cells) in [("A", &result.only_a), ("B", &result.only_b)] {
        for cell in cells {
            print::line(&format!("only in {name}: {}", describe(cell)))?;
        }
    }
    for note in &result.notes {
        print::line(&format!("note: {note}"))?;
    }
    print::line(
        "B over A, ratio of means, 95 % interval by Fieller; of many comparisons one in twenty differs by chance",
    )
}

fn line(row: &Row) -> String {
    let means = format!("{:>12} -> {:<12}", number(row.a.mean), number(row.b.mean));
    let runs = format!("n = {}, {}", row.a.n, row.b.n);
    let ratio = match row.ratio.interval {
        Some(i) => format!("x {:.3} [{:.3}, {:.3}]", row.ratio.ratio, i.low, i.high),
        None => format!("x {:.3}", row.ratio.ratio),
    };
    let verdict = match row.verdict {
        Verdict::Smaller => "smaller",
        Verdict::Larger => "larger",
        Verdict::NoDifferenceSeen => "no difference seen",
        Verdict::Unknown => "too few runs or too noisy to tell",
    };
    let kind = row.provenance.map_or(String::new(), |p| format!(" ({})", format!("{p:?}").to_lowercase()));
    format!("{:<22} {means} {ratio:<28} {verdict}, {runs}{kind}", plain(&row.metric))
}

/// Formats a number with four digits, whatever its size.
fn number(x: f64) -> String {
    let size = x.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) { format!("{x:.3e}") } else { format!("{x:.4}") }
}
