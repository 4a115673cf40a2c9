//! `tacit lab papers`: claims of the papers, with the commands that reproduce them.
use super::figures::{self, Asked};
use anyhow::{Context, bail};
use serde_json::json;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tacit_cli::print;
use tacit_experiments::papers::{Claim, DATA, Quick, claims, counts, quick, told};

/// List tables, figures and numbered claims of the papers that tacit builds on, with our results
///
/// Each entry has the figure that came out here, and the command that reproduces the figure.
/// docs/reproduction.md is the same list.
///
/// With --run, the command runs the quick entries (seconds, without root), and compares their
/// output with the list. Without a named paper, it also checks figures in the documents of a clone
/// (README.md, docs/) that follow from no clock: bytes, keys, rounds, counts. For a wrong figure it
/// shows the value of the document and the value of the figure's command. --heavy also runs
/// commands that take minutes, --update writes the figures anew.
///
/// Examples: tacit lab papers
///           tacit lab papers KDS25 --json
///           tacit lab papers --run --data ../shared/data
///           tacit lab papers --run --heavy --update
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Paper to list: PM24, SS26, KDS25 or VPN24 [default: all]
    paper: Option<String>,
    /// Run the quick commands; the run fails if an output differs from the list
    #[arg(long, help_heading = "Input")]
    run: bool,
    /// Folder of the shared data, which some commands read
    #[arg(long, value_name = "DIR", default_value = DATA, help_heading = "Input")]
    data: PathBuf,
    /// Folder of the clone whose documents are checked
    #[arg(long, value_name = "DIR", default_value = ".", requires = "run", help_heading = "Input")]
    clone: PathBuf,
    /// Run also commands that take minutes, for figures of the documents
    #[arg(long, requires = "run", conflicts_with = "paper", help_heading = "Input")]
    heavy: bool,
    /// Write the figures of the commands into the documents
    #[arg(long, requires = "run", conflicts_with = "paper", help_heading = "Output")]
    update: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut claims = claims();
    if let Some(paper) = &args.paper {
        let mut known: Vec<String> = claims.iter().map(|c| c.paper.clone()).collect();
        claims.retain(|c| c.paper.eq_ignore_ascii_case(paper));
        if claims.is_empty() {
            known.dedup();
            bail!("there is no paper {paper}; there are {}", known.join(", "));
        }
    }
    if args.run {
        return check(args, &claims);
    }
    if args.json {
        return print::json(&json!({ "claims": claims }));
    }
    claims.iter().try_for_each(|claim| print::line(&entry(claim, args)))?;
    print::line(&format!("{} in all: {}", claims.len(), told(&counts(&claims))))
}

/// Formats a claim for people.
fn entry(claim: &Claim, args: &Args) -> String {
    let Claim { paper, place, claim: what, theirs, ours, ratio, why, .. } = claim;
    let mark = if claim.holds.is_empty() { "" } else { "   (quick)" };
    let command = claim.command.replace("{data}", &args.data.display().to_string());
    let verdict = claim.verdict.name();
    let why = if why == "-" { String::new() } else { format!(": {why}") };
    format!(
        "[{paper}] {place}: {what}\n  paper    {theirs}\n  here     {ours}\n  ratio    {ratio}\n  verdict  {verdict}{why}\n  {command}{mark}\n"
    )
}

/// The outcome of a quick command.
enum Outcome {
    Skipped(String),
    RunReport(Vec<(usize, Option<String>)>),
}

fn check(args: &Args, claims: &[Claim]) -> anyhow::Result<()> {
    let data = args.data.to_str().context("the name of the folder of --data is not UTF-8")?;
    let mut failed = 0;
    let mut shown = Vec::new();
    for command in quick(claims, data)? {
        let outcome = carry_out(&command, args)?;
        failed += usize::from(
            matches!(&outcome, Outcome::RunReport(checks) if checks.iter().any(|(_, lacks)| lacks.is_some())),
        );
        if args.json {
            shown.push(as_json(&command, &outcome, claims));
        } else {
            tell(&command, &outcome, claims)?;
        }
    }
    let figures = if args.paper.is_none() { figures::check(&asked(args))? } else { Vec::new() };
    if args.json {
        print::json(&json!({ "commands": shown, "figures": figures }))?;
    } else if claims.iter().all(|claim| claim.holds.is_empty()) {
        print::line("none of these commands is quick")?;
    } else if !figures.is_empty() {
        print::line("figures of the documents")?;
        figures.iter().try_for_each(|figure| print::line(&figure.told()))?;
    }
    let drifted = figures.iter().filter(|figure| figure.differs()).count();
    let mut wrong = Vec::new();
    if failed > 0 {
        wrong.push(format!("the output of {failed} commands differs from the list"));
    }
    if drifted > 0 {
        let remedy = "--update writes them anew";
        wrong.push(format!("{drifted} figures of the documents are not what their commands say ({remedy})"));
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    Ok(())
}

fn asked(args: &Args) -> Asked<'_> {
    Asked { data: &args.data, clone: &args.clone, heavy: args.heavy, update: args.update }
}

fn carry_out(command: &Quick, args: &Args) -> anyhow::Result<Outcome> {
    if let Some(file) = command.needs.as_ref().filter(|file| !args.data.join(file).exists()) {
        return Ok(Outcome::Skipped(format!("{} is not there (--data)", args.data.join(file).display())));
    }
    let program = tacit_cli::program::beside("tacit")?;
    let line = command.words.join(" ");
    let ran = Command::new(program)
        .args(&command.words)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting tacit {line}"))?;
    if !ran.status.success() {
        bail!("tacit {line}: {}", ran.status);
    }
    let output = String::from_utf8_lossy(&ran.stdout);
    let checks = command.checks.iter().map(|(claim, texts)| {
        let lacks = texts.iter().find(|text| !output.contains(text.as_str())).cloned();
        (*claim, lacks)
    });
    Ok(Outcome::RunReport(checks.collect()))
}

fn tell(command: &Quick, outcome: &Outcome, claims: &[Claim]) -> anyhow::Result<()> {
    print::line(&format!("tacit {}", command.words.join(" ")))?;
    match outcome {
        Outcome::Skipped(reason) => print::line(&format!("  skipped: {reason}")),
        Outcome::RunReport(checks) => checks.iter().try_for_each(|(number, lacks)| {
            let Claim { paper, place, claim, .. } = &claims[*number];
            print::line(&match lacks {
                None => format!("  holds: [{paper}] {place}: {claim}"),
                Some(text) => format!("  DIFFERS: [{paper}] {place}: {claim}: no `{text}` in the output"),
            })
        }),
    }
}

fn as_json(command: &Quick, outcome: &Outcome, claims: &[Claim]) -> serde_json::Value {
    let words = &command.words;
    match outcome {
        Outcome::Skipped(reason) => json!({ "command": words, "skipped": reason }),
        Outcome::RunReport(checks) => {
            let checked = checks.iter().map(|(number, lacks)| {
                let Claim { paper, place, claim, .. } = &claims[*number];
                json!({ "paper": paper, "place": place, "claim": claim, "holds": lacks.is_none(), "lacks": lacks })
            });
            json!({ "command": words, "claims": checked.collect::<Vec<_>>() })
        }
    }
}
