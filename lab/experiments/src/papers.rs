//! The papers' figures, this project's figures, and the commands that reproduce them: [PM24],
//! [SS26], [KDS25], [VPN24].
//!
//! One file (`papers.toml`) is the source of `tacit lab papers` and `docs/reproduction.md`; a test
//! compares the document with it.
use crate::LabError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

const TEXT: &str = include_str!("../papers.toml");
/// Folder of the shared data beside a clone.
pub const DATA: &str = "../shared/data";

/// Comparison of this project's figure with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// The same figure, or the same finding.
    #[serde(rename = "reproduced")]
    Reproduced,
    /// Faster, smaller or more than in the paper.
    #[serde(rename = "better")]
    Better,
    /// Partly, or by other means; the reason is stated.
    #[serde(rename = "in part")]
    InPart,
    /// A finding that differs from the paper's.
    #[serde(rename = "differs")]
    Differs,
    /// This project has no figure.
    #[serde(rename = "not measured")]
    NotMeasured,
}

impl Verdict {
    /// The printed form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Better => "better",
            Self::InPart => "in part",
            Self::Differs => "differs",
            Self::NotMeasured => "not measured",
        }
    }
}

/// A table, a figure or a numbered claim of a paper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Key of the paper, as in `docs/references.md`.
    pub paper: String,
    /// Place in the paper.
    pub place: String,
    /// The claim.
    pub claim: String,
    /// The paper's figure.
    pub theirs: String,
    /// This project's figure.
    pub ours: String,
    /// This project's figure over the paper's, or why there is no ratio.
    pub ratio: String,
    /// Command that reproduces the figure; `{data}` stands for the folder of shared data.
    pub command: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for the verdict, in a line.
    pub why: String,
    /// Texts that the command's output must contain. Commands with such texts are quick.
    #[serde(default)]
    pub holds: Vec<String>,
    /// A required file of the shared data.
    #[serde(default)]
    pub needs: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    claims: Vec<Claim>,
}

/// All claims, in the order of the document.
#[must_use]
pub fn claims() -> Vec<Claim> {
    toml::from_str::<Claims>(TEXT).expect("the built-in file is read in a test").claims
}

/// A command that checks claims in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quick {
    /// Its words after `tacit`.
    pub words: Vec<String>,
    /// Its input file below the folder of shared data.
    pub needs: Option<String>,
    /// For each checked claim: its index in the list, and the texts that the output must contain.
    pub checks: Vec<(usize, Vec<String>)>,
}

/// The quick commands of `claims`, each once, with the folder of shared data filled in.
///
/// # Errors
/// [`LabError::Spec`] if a quick command is not one of `tacit`.
pub fn quick(claims: &[Claim], data: &str) -> Result<Vec<Quick>, LabError> {
    let mut found: Vec<Quick> = Vec::new();
    for (number, claim) in claims.iter().enumerate().filter(|(_, claim)| !claim.holds.is_empty()) {
        let words = words(&claim.command, &[("{data}", data)])?;
        let check = (number, claim.holds.clone());
        match found.iter_mut().find(|q| q.words == words) {
            Some(known) => known.checks.push(check),
            None => found.push(Quick { words, needs: claim.needs.clone(), checks: vec![check] }),
        }
    }
    Ok(found)
}

/// The words of a command of `tacit` after its name, with each name of `filled` replaced by its
/// text.
///
/// # Errors
/// [`LabError::Spec`] if the command is not one of `tacit`.
pub fn words(command: &str, filled: &[(&str, &str)]) -> Result<Vec<String>, LabError> {
    let words = shlex::split(command).ok_or_else(|| LabError::spec(command, "its quotes do not end"))?;
    match words.split_first() {
        Some((first, rest)) if first == "tacit" => {
            let words =
                rest.iter().map(|word| filled.iter().fold(word.clone(), |word, (name, text)| word.replace(name, text)));
            Ok(words.collect())
        }
        _ => Err(LabError::spec(command, "it is no command of tacit")),
    }
}

/// Number of claims for each verdict.
#[must_use]
pub fn counts(claims: &[Claim]) -> BTreeMap<Verdict, usize> {
    claims.iter().fold(BTreeMap::new(), |mut counts, claim| {
        *counts.entry(claim.verdict).or_default() += 1;
        counts
    })
}

/// Describes `counts`: "20 reproduced, 3 differs".
#[must_use]
pub fn told(counts: &BTreeMap<Verdict, usize>) -> String {
    counts.iter().map(|(verdict, n)| format!("{n} {}", verdict.name())).collect::<Vec<_>>().join(", ")
}

const HEAD: &str = "# What the papers say, and what came out here

Written by `lab/experiments/tests/papers.rs` from `lab/experiments/papers.toml` (`UPDATE_DOCS=1 cargo test -p tacit-experiments --test papers`). Tables, figures and numbered claims of the four papers that this
project stands on ([references.md](references.md)): those whose figures are known to us and that were tried, not all. `tacit lab papers` prints the same, `--json` for programs, and
`tacit lab papers --run` runs those marked *quick* and looks whether their output still holds what stands here. Bytes and keys of the others are compared with their commands by `--run --heavy`
(`lab/experiments/figures.toml`); times are of the day and machine that stand beside them in the documents below.

Our figures are those of [performance.md](performance.md), [lab.md](lab.md), [keysets.md](keysets.md), [serving.md](serving.md), [notes/ckks.md](notes/ckks.md) and [notes/scheduler.md](notes/scheduler.md), where machine,
day and load stand beside them; \"not measured\" where there is none. **The papers' machines are others than ours, and no machine here has a power sensor**, so a ratio to a paper's time or energy is given only where it means
something; else the reason stands in its place. Commands write to folders of the reader's choice; models come from `tacit zoo` and `tacit model import`.
";

/// The text of `docs/reproduction.md`.
#[must_use]
pub fn page(claims: &[Claim]) -> String {
    let mut out = String::from(HEAD);
    let mut paper = "";
    for claim in claims {
        if claim.paper != paper {
            paper = &claim.paper;
            let own: Vec<Claim> = claims.iter().filter(|c| c.paper == paper).cloned().collect();
            let (count, told) = (own.len(), told(&counts(&own)));
            write!(out, "\n## [{paper}]\n\n{count}: {told}.\n\n").expect("a string takes all text");
            out += "| where | what | command | paper | here | ratio, or why none | verdict |\n";
            out += "| --- | --- | --- | --- | --- | --- | --- |\n";
        }
        let mark = if claim.holds.is_empty() { "" } else { " *quick*" };
        let command = claim.command.replace("{data}", DATA);
        let Claim { place, claim: what, theirs, ours, ratio, why, .. } = claim;
        let verdict = claim.verdict.name();
        let why = if why == "-" { String::new() } else { format!(": {why}") };
        writeln!(out, "| {place} | {what} | `{command}`{mark} | {theirs} | {ours} | {ratio} | **{verdict}**{why} |")
            .expect("a string takes all text");
    }
    out
}
