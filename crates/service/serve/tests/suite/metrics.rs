//! What a monitoring system is told: every figure of the manual and the example, with the values that there
//! are.
use crate::common::*;
use crate::dealers;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tacit_backends::dealer::{Dealings, InProcessDealer};
use tacit_backends::dealt::Dealt;
use tacit_client::ClientError;
use tacit_client::wire::{Reply, Request};

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

#[test]
fn a_scrape_tells_what_the_ledger_the_links_and_the_quotas_have_seen() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "queries_per_day = 2", "");
    let server = Running::start(dir.path(), |c| c.access = Some(access));
    let ledger = |metrics: &str| {
        ["ready", "unsettled", "burnt"].map(|state| value(metrics, &format!("tacit_materials{{name=\"{state}\"}}")))
    };
    let before = scraped(&server, dir.path());
    assert_eq!((ledger(&before), value(&before, "tacit_stored_bytes")), ([0, 0, 0], 0));
    let mut alice = server.client(dir.path(), "alice", "one");
    let stored_sizes: Vec<u64> = (0..3).map(|_| alice.prepare().unwrap().bytes.server).collect();
    let ready = scraped(&server, dir.path());
    assert_eq!((ledger(&ready), value(&ready, "tacit_stored_bytes")), ([3, 0, 0], stored_sizes.iter().sum()));
    let answers = [(); 2].map(|()| alice.infer(&X).unwrap());
    assert!(matches!(alice.infer(&X), Err(ClientError::Refused { .. })), "two are the quota");
    alice.close().unwrap();
    server.settle();
    let after = scraped(&server, dir.path());
    assert_eq!((ledger(&after), value(&after, "tacit_stored_bytes")), ([1, 0, 2], stored_sizes[2]));
    // An inference is two requests in one go, for the input and for its phase.
    assert_eq!(value(&after, "tacit_refusals_total{name=\"requests over a daily quota\"}"), 2);
    let labels = "{phase=\"online\",model=\"one\",backend=\"toy\"}";
    let bytes = [|a: &tacit_client::Figures| a.sent_bytes, |a: &tacit_client::Figures| a.received_bytes]
        .map(|count| answers.iter().map(|answer| count(&answer.online.server)).sum::<u64>());
    let link_bytes = ["sent", "received"].map(|way| value(&after, &format!("tacit_link_{way}_bytes_total{labels}")));
    assert_eq!(link_bytes, bytes);
    assert_eq!(value(&after, &format!("tacit_phase_seconds_count{labels}")), 2);
}

/// Names of metrics in a text, as monitoring systems see them.
fn names_told(metrics: &str) -> BTreeSet<String> {
    let types =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|line| line.split_once(' ').unwrap());
    let names = types.flat_map(|(name, kind)| match kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["bucket", "sum", "count"].map(|part| format!("{name}_{part}")).into(),
        "info" => vec![format!("{name}_info")],
        _ => vec![name.to_owned()],
    });
    names.collect()
}

#[test]
fn metrics_are_what_the_example_and_the_manual_say() {
    let dir = tempfile::tempdir().unwrap();
    let mut offered = catalog();
    offered.offer("later", &Dealt, dealers::lowered(3)).unwrap();
    let server = Running::with(dir.path(), offered, |config| {
        let dealings = Arc::new(Dealings::fresh(dealers::registry(), 1).unwrap());
        config.resources.dealer = Some(Arc::new(InProcessDealer::new(dealings, [1; 32])));
        config.pool = 1 << 30;
    });
    let pooled = "tacit_pooled_materials{model=\"later\",backend=\"dealt\"} 1\n";
    wait_until("one is dealt ahead of time", || scraped(&server, dir.path()).contains(pooled));
    server.client(dir.path(), "alice", "one").infer(&X).unwrap();
    // One that is refused something, and then leaves in the middle of a job.
    let mut bob = server.opened(dir.path(), "bob", "one");
    assert!(matches!(ask(&mut bob, &Request::Infer { id: None, of: None }), Reply::Refused { .. }));
    assert_eq!(ask(&mut bob, &Request::Setup), Reply::Go);
    drop(bob);
    wait_until("their connections end", || server.handle.connections() == 0);
    let answer = scraped(&server, dir.path());
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer}");
    assert!(answer.contains("tacit_served_inputs_total{model=\"one\",backend=\"toy\"} 1"), "{answer}");
    assert!(answer.contains("tacit_connections{name=\"control\"} 1"), "{answer}");
    assert_eq!(["used", "capacity"].map(|name| value(&answer, &format!("tacit_dealings{{name=\"{name}\"}}"))), [0, 4]);
    // Setup, offline, online; and the setup that was broken off.
    assert!(answer.contains("tacit_dispatch_seconds_count 4\n"), "{answer}");
    let exported = names_told(&answer);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let grafana: Value =
        serde_json::from_str(&fs::read_to_string(root.join("examples/grafana.json")).unwrap()).unwrap();
    let mut queries = Vec::new();
    for panel in grafana["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().unwrap();
        queries.extend(targets.iter().map(|target| target["expr"].as_str().unwrap().to_owned()));
    }
    assert!(queries.len() > 8, "{queries:?}");
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("tacit_")).map(str::to_owned).collect()
    };
    for query in queries {
        let queried = names(&query);
        assert!(!queried.is_empty(), "{query} asks for other than {exported:?}");
        assert!(queried.is_subset(&exported), "{query} asks for other than {exported:?}");
    }
    let manual = fs::read_to_string(root.join("docs/serving.md")).unwrap();
    let rows = manual.lines().filter(|line| line.starts_with("| `tacit_"));
    let documented: BTreeSet<String> = rows.flat_map(|row| names(row.split('|').nth(1).unwrap())).collect();
    let types = answer.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    assert_eq!(documented, types.map(|line| line.split_once(' ').unwrap().0.to_owned()).collect());
}
