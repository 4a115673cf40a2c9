//! `docs/reproduction.md` is made from `papers.toml`, and what that file says can be run.
//! `UPDATE_DOCS=1 cargo test -p tacit-experiments --test papers` writes the document.

use std::collections::BTreeSet;
use tacit_experiments::figures::{Template, figures};
use tacit_experiments::papers::{Verdict, claims, counts, page, quick, words};

const CLONE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.md");

#[test]
fn the_document_is_what_the_file_says() {
    let made = page(&claims());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(DOCS, &made).unwrap();
    }
    let kept = std::fs::read_to_string(DOCS).unwrap_or_default();
    let first = kept.lines().zip(made.lines()).find(|(a, b)| a != b);
    assert!(
        kept == made,
        "docs/reproduction.md is not what papers.toml says (first difference: {first:?}): UPDATE_DOCS=1 cargo test -p tacit-experiments --test papers"
    );
}

#[test]
fn every_claim_is_whole() {
    let claims = claims();
    let papers: BTreeSet<&str> = claims.iter().map(|c| c.paper.as_str()).collect();
    assert_eq!(papers, BTreeSet::from(["KDS25", "PM24", "SS26", "VPN24"]));
    for c in &claims {
        let fields = [&c.place, &c.claim, &c.theirs, &c.ours, &c.ratio, &c.command, &c.why];
        for text in fields {
            // A cell of a table.
            assert!(!text.is_empty(), "{}: {text:?}", c.claim);
            assert!(text.trim() == text, "{}: {text:?}", c.claim);
            assert!(!text.contains(['|', '\n']), "{}: {text:?}", c.claim);
        }
        assert_eq!(c.verdict == Verdict::NotMeasured, c.ours.starts_with("not measured"), "{}", c.claim);
        assert!(c.needs.is_none() || !c.holds.is_empty(), "{}: only quick commands need a file", c.claim);
    }
    assert_eq!(counts(&claims).values().sum::<usize>(), claims.len());
}

#[test]
fn quick_commands_run_once() {
    let claims = claims();
    let found = quick(&claims, "there").unwrap();
    let checked: usize = found.iter().map(|q| q.checks.len()).sum();
    assert_eq!(checked, claims.iter().filter(|c| !c.holds.is_empty()).count());
    let simulated = found.iter().find(|q| q.words[0] == "simulate").unwrap();
    assert_eq!(simulated.words[3], "there/profiles/shark-1thread.json");
    assert_eq!(simulated.needs.as_deref(), Some("profiles/shark-1thread.json"));
    assert!(simulated.checks.len() > 14, "the table's rows and what is claimed of it");
    assert_eq!(found.iter().filter(|q| q.words[0] == "simulate").count(), 1);
    let mut wrong = claims[0].clone();
    (wrong.command, wrong.holds) = ("cargo test".into(), vec!["ok".into()]);
    assert!(quick(&[wrong], "there").unwrap_err().to_string().contains("no command of tacit"));
}

#[test]
fn every_figure_has_one_place_and_commands_of_ours() {
    let all = figures();
    assert!(all.iter().any(|bound| !bound.heavy));
    assert!(all.iter().map(|bound| bound.texts.len()).sum::<usize>() > 40);
    for bound in &all {
        let document = std::fs::read_to_string(format!("{CLONE}/{}", bound.document)).unwrap();
        for text in &bound.texts {
            let found = Template::parse(text).unwrap().places(&document).len();
            assert_eq!(found, 1, "{}: {text}", bound.document);
        }
        for command in bound.commands.iter().chain(&bound.after) {
            words(command, &[]).unwrap();
        }
        assert!(bound.commands.iter().all(|command| command.contains("--json")), "{:?}", bound.commands);
    }
}
