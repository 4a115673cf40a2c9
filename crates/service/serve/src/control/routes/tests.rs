use super::*;
use crate::ops::snapshot::{
    Amounts, AnswerRates, CertificateRow, JobRow, JobTimes, ModelRow, PoolRow, ProfileRow, Scheduling, Snapshot,
};
use serde_json::Value;
use std::collections::BTreeSet;
use tacit_ids::ClientId;

fn openapi_document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

#[test]
fn openapi_lists_exactly_the_routes() {
    let paths: BTreeSet<&str> = routes().into_iter().map(|(path, _)| path).collect();
    let document = openapi_document();
    assert_eq!(paths, document["paths"].as_object().unwrap().keys().map(String::as_str).collect());
}

/// Checks that a value has exactly the fields and types of a schema of the document.
fn check(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/components/schemas/").unwrap();
        return check(document, &document["components"]["schemas"][name], value, name);
    }
    match schema["type"].as_str().unwrap() {
        "object" => {
            let (properties, fields) = (schema["properties"].as_object().unwrap(), value.as_object().unwrap());
            let is_required = |key: &Value| fields.contains_key(key.as_str().unwrap());
            let required = schema["required"].as_array().unwrap();
            assert!(required.iter().all(is_required), "{place} lacks one of {required:?}");
            for (key, value) in fields {
                let place = format!("{place}.{key}");
                check(document, properties.get(key).unwrap_or_else(|| panic!("{place}")), value, &place);
            }
        }
        "array" => value.as_array().unwrap().iter().for_each(|item| check(document, &schema["items"], item, place)),
        "number" => assert!(value.is_number(), "{place}"),
        "integer" => assert!(value.is_u64(), "{place}"),
        "boolean" => assert!(value.is_boolean(), "{place}"),
        "string" => {
            let text = value.as_str().unwrap_or_else(|| panic!("{place}"));
            let among = schema["enum"].as_array().is_none_or(|choices| choices.iter().any(|choice| choice == text));
            assert!(among, "{place}: {text}");
        }
        kind => panic!("{place}: {kind}"),
    }
}

#[test]
fn openapi_schema_matches_snapshots() {
    let client = ClientId::numbered(1);
    let job = |outcome: Option<&'static str>| JobRow {
        id: 1,
        phase: "online",
        model: "m".into(),
        backend: "b".into(),
        client,
        client_name: "alice".into(),
        input: Some("00000000000000ff".into()),
        threads: 2,
        memory: 3,
        times: JobTimes {
            known_s: 0.25,
            queued_s: 0.5,
            started_s: 1.0,
            expected_s: outcome.map(|_| 0.75),
            ended_s: outcome.map(|_| 2.0),
        },
        outcome,
    };
    let rates = AnswerRates { mean_delay_s: 0.5, ..AnswerRates::default() };
    let snapshot = Snapshot {
        scheduling: Scheduling { capacity: Amounts { cores: 2, ..Amounts::default() }, ..Scheduling::default() },
        jobs: vec![job(None), job(Some("done")), job(Some("failed"))],
        clients: vec![ClientRow { inputs: 1, rates, ..ClientRow::new(client) }],
        profile: vec![ProfileRow {
            model: "m".into(),
            backend: "b",
            phase: "offline",
            device: "lan, 2 threads".into(),
            jobs: 3,
            expected_s: 0.5,
            measured_s: 1.0,
            error_median: 0.5,
            error_p95: 0.75,
        }],
        pools: vec![PoolRow { model: "m".into(), backend: "b", inputs: 2, ready: 3, dealing: 1, bytes: 4 }],
        models: vec![ModelRow { name: "m".into(), backends: vec!["b".into()], ..ModelRow::default() }],
        certificates: vec![
            CertificateRow { name: "server", expires_s: 5, advice: Some("renew it".into()) },
            CertificateRow { name: "ca", expires_s: 6, advice: None },
        ],
        ..Snapshot::default()
    };
    let document = openapi_document();
    let schema = &document["components"]["schemas"]["Snapshot"];
    let value = serde_json::to_value(&snapshot).unwrap();
    check(&document, schema, &value, "Snapshot");
    let names: BTreeSet<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, value.as_object().unwrap().keys().collect());
}
