//! Metrics: their values, and that the manual and the example name those that exist.
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

#[test]
fn scrapes_ledger_links_and_quotas() {
    let server = Running::start_with_rules("queries_per_day = 2", "", |_| {});
    let check_ledger = |materials: [u64; 3], bytes: u64| {
        let metrics = scraped(&server);
        let by_state = ["ready", "unsettled", "burnt"]
            .map(|state| value(&metrics, &format!("tacit_materials{{name=\"{state}\"}}")));
        assert_eq!((by_state, value(&metrics, "tacit_stored_bytes")), (materials, bytes));
        metrics
    };
    check_ledger([0, 0, 0], 0);
    let mut alice = server.client("alice", "one");
    let stored_sizes: Vec<u64> = (0..3).map(|_| alice.prepare().unwrap().bytes.server).collect();
    check_ledger([3, 0, 0], stored_sizes.iter().sum());
    let answers = [(); 2].map(|()| alice.infer(&X).unwrap());
    assert!(matches!(alice.infer(&X), Err(ClientError::Refused { .. })));
    alice.close().unwrap();
    server.settle();
    let after = check_ledger([1, 0, 2], stored_sizes[2]);
    // An inference sends two requests at once, for the input and for its phase.
    assert_eq!(value(&after, "tacit_refusals_total{name=\"requests over a daily quota\"}"), 2);
    let labels = "{phase=\"online\",model=\"one\",backend=\"toy\"}";
    let bytes = [|a: &tacit_client::Figures| a.sent_bytes, |a: &tacit_client::Figures| a.received_bytes]
        .map(|count| answers.iter().map(|answer| count(&answer.online.server)).sum::<u64>());
    let link_bytes = ["sent", "received"].map(|way| value(&after, &format!("tacit_link_{way}_bytes_total{labels}")));
    assert_eq!(link_bytes, bytes);
    assert_eq!(value(&after, &format!("tacit_phase_seconds_count{labels}")), 2);
}

/// Names and kinds of the metrics in a text.
fn metric_types(metrics: &str) -> impl Iterator<Item = (&str, &str)> {
    metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|line| line.split_once(' ').unwrap())
}

/// Names of metrics as monitoring systems see them.
fn exported_names(metrics: &str) -> BTreeSet<String> {
    let names = metric_types(metrics).flat_map(|(name, kind)| match kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["bucket", "sum", "count"].map(|part| format!("{name}_{part}")).into(),
        "info" => vec![format!("{name}_info")],
        _ => vec![name.to_owned()],
    });
    names.collect()
}

#[test]
fn metrics_match_example_and_manual() {
    let mut offered = catalog();
    offered.offer("later", &Dealt, dealers::lowered(3)).unwrap();
    let server = Running::serving(offered, |config| {
        let dealings = Arc::new(Dealings::fresh(dealers::registry(), 1).unwrap());
        config.resources.dealer = Some(Arc::new(InProcessDealer::new(dealings, [1; 32])));
        config.pool = 1 << 30;
    });
    let pooled = "tacit_pooled_materials{model=\"later\",backend=\"dealt\"} 1\n";
    wait_until("one is dealt ahead of time", || scraped(&server).contains(pooled));
    server.client("alice", "one").infer(&X).unwrap();
    // Bob is refused a request, and leaves in the middle of a job.
    let mut bob = server.opened("bob", "one");
    assert!(matches!(ask(&mut bob, &Request::Infer { id: None, of: None }), Reply::Refused { .. }));
    assert_eq!(ask(&mut bob, &Request::Setup), Reply::Go);
    drop(bob);
    wait_until("their connections end", || server.handle.connections() == 0);
    let answer = scraped(&server);
    check_contains(
        &answer,
        &[
            "content-type: application/openmetrics-text; version=1.0.0",
            "tacit_served_inputs_total{model=\"one\",backend=\"toy\"} 1",
            "tacit_connections{name=\"control\"} 1",
        ],
    );
    assert_eq!(["used", "capacity"].map(|name| value(&answer, &format!("tacit_dealings{{name=\"{name}\"}}"))), [0, 4]);
    // Alice's three phases and Bob's setup.
    check_contains(&answer, &["tacit_dispatch_seconds_count 4\n"]);
    let exported = exported_names(&answer);
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
    assert_eq!(documented, metric_types(&answer).map(|(name, _)| name.to_owned()).collect());
}
