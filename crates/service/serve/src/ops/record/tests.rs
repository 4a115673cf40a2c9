use super::*;
use crate::ops::snapshot::Snapshot;
use tacit_ids::MaterialId;

const BINDING: Binding = Binding { client: ClientId([1; 32]), model: [2; 32], plan: [3; 32] };

fn record() -> Record {
    let mut record = Record::new(&Catalog::new(false), Arc::new(Metrics::new()), Keeper::default(), Traces::default());
    record.names.insert(([2; 32], [3; 32]), ("m".into(), "toy".into()));
    record.models.insert("m".into(), Model { backends: vec!["toy".into()], ..Model::default() });
    record
}

fn offer_name() -> OfferName {
    OfferName { model: "m".into(), backend: "toy" }
}

fn infer() -> Request {
    Request::Infer { id: Some(MaterialId::numbered(1)), of: None }
}

fn measured(phase: Phase) -> Measured {
    let figures = Figures { wall_s: 0.25, sent_bytes: 10, received_bytes: 20, ..Figures::default() };
    Measured { phase, figures, memory: None }
}

#[test]
fn job_is_recorded_from_request_to_end() {
    let (mut record, client) = (record(), BINDING.client);
    record.record_connection(client, None);
    record.record_request(1, client, &Request::List, None);
    record.record_request(1, client, &infer(), Some(BINDING));
    let Snapshot { clients, .. } = record.snapshot();
    assert_eq!((clients[0].queued, clients[0].requests), (1, 1));
    record.record_start(1, 3, Some(Planned { expected: Span::from_secs(0.5), known_since: Instant::now() }));
    let running = record.snapshot();
    assert_eq!((running.jobs.len(), running.jobs[0].threads, running.clients[0].queued), (1, 3, 0));
    assert_eq!((running.jobs[0].outcome, running.jobs[0].times.expected_s), (None, Some(0.5)));
    record.record_end(1, Some(&measured(Phase::Online)));
    record.record_answer(client, &offer_name(), 2.0, 1.5);
    record.record_duration(&offer_name(), JobPhase::On, Span::from_secs(0.5), Span::from_secs(0.25));
    let snapshot = record.snapshot();
    assert_eq!((snapshot.jobs[0].outcome, snapshot.models[0].done, snapshot.clients[0].done), (Some("done"), 1, 1));
    assert!(snapshot.jobs[0].times.ended_s >= Some(snapshot.jobs[0].times.started_s));
    assert!((snapshot.rates.mean_delay_s, snapshot.rates.mean_waiting_s) == (2.0, 1.5));
    assert!(snapshot.rates.throughput_per_s > 0.0);
    let text = record.metrics.text(&snapshot, &tacit_store::Counts::default());
    for line in [
        r#"tacit_served_inputs_total{model="m",backend="toy"} 1"#,
        r#"tacit_phase_seconds_sum{phase="online",model="m",backend="toy"} 0.25"#,
        r#"tacit_profile_error_ratio_sum{phase="online",model="m",backend="toy"} 1.0"#,
        r#"tacit_link_received_bytes_total{phase="online",model="m",backend="toy"} 20"#,
        r#"tacit_connections{name="client"} 0"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn delays_and_throughput_are_counted_by_client_and_by_model() {
    let mut record = record();
    let second_model = Model { backends: vec!["toy".into()], ..Model::default() };
    record.models.insert("n".into(), second_model);
    let [alice, bob] = [1, 2].map(ClientId::numbered);
    record.record_answer(alice, &offer_name(), 2.0, 1.0);
    record.record_answer(alice, &OfferName { model: "n".into(), backend: "toy" }, 4.0, 3.0);
    record.record_answer(bob, &offer_name(), 6.0, 5.0);
    // A model no longer offered still counts for its client.
    record.record_answer(bob, &OfferName { model: "gone".into(), backend: "toy" }, 12.0, 9.0);
    let snapshot = record.snapshot();
    let row = |client| snapshot.clients.iter().find(|row| row.client == client).unwrap();
    let figures = |row: &ClientRow| (row.inputs, row.rates.mean_delay_s, row.rates.mean_waiting_s);
    assert_eq!((figures(row(alice)), figures(row(bob))), ((2, 3.0, 2.0), (2, 9.0, 7.0)));
    let models: Vec<_> =
        snapshot.models.iter().map(|m| (&*m.name, m.done, m.rates.mean_delay_s, m.rates.mean_waiting_s)).collect();
    assert_eq!(models, [("m", 2, 4.0, 3.0), ("n", 1, 4.0, 3.0)]);
    assert_eq!((snapshot.rates.mean_delay_s, snapshot.rates.mean_waiting_s), (6.0, 4.5));
    // All rates cover the same time: a minute, or the time since the start.
    let rates: Vec<f64> = snapshot.clients.iter().map(|row| row.rates.throughput_per_s).collect();
    assert!(rates[0] > 0.0, "{rates:?}");
    assert_eq!(rates[0], rates[1]);
    assert_eq!(snapshot.rates.throughput_per_s, rates[0] + rates[1]);
    assert_eq!(snapshot.models[0].rates.throughput_per_s, 2.0 * snapshot.models[1].rates.throughput_per_s);
}

#[test]
fn refused_and_failed_jobs_are_told_apart() {
    let (mut record, client) = (record(), BINDING.client);
    for number in 0..4 {
        record.record_request(number, client, &Request::Setup, Some(BINDING));
    }
    record.record_start(0, 1, None);
    record.record_start(1, 1, None);
    // In this order: refused by the worker, broken off, refused by the driver, left while waiting.
    record.record_end(0, None);
    record.record_failure(1);
    record.record_end(2, None);
    record.record_failure(3);
    // The end of an unknown job changes nothing.
    record.record_end(9, Some(&measured(Phase::Online)));
    let Snapshot { jobs, clients, .. } = record.snapshot();
    assert_eq!(jobs.iter().map(|j| j.outcome).collect::<Vec<_>>(), [Some("failed"), Some("refused")]);
    assert_eq!((clients[0].refused, clients[0].failed, clients[0].queued, clients[0].done), (2, 2, 0, 0));
    let unknown = Binding { plan: [9; 32], ..BINDING };
    record.record_request(5, client, &infer(), Some(unknown));
    assert_eq!(record.snapshot().clients[0].refused, 3);
}

#[test]
fn record_stays_within_its_bounds() {
    let mut record = record();
    let faithful = ClientId::numbered(0);
    record.record_connection(faithful, Some("ada".into()));
    for n in 1..3000 {
        let client = ClientId::numbered(n);
        record.record_connection(client, None);
        record.record_request(n, client, &infer(), Some(BINDING));
        record.record_start(n, 1, None);
        record.record_end(n, Some(&measured(Phase::Online)));
        record.record_answer(client, &offer_name(), 1.0, 0.5);
        record.record_disconnection(client);
        record.record_refusal("strangers");
    }
    let snapshot = record.snapshot();
    assert_eq!(
        (snapshot.jobs.len(), snapshot.clients.len(), snapshot.peers.refusals),
        (MAX_ENDED_JOBS, MAX_CLIENTS, 2999)
    );
    let faithful_row = snapshot.clients.iter().find(|row| row.client == faithful);
    assert_eq!(faithful_row.map(|row| &*row.client_name), Some("ada"), "a connected client is kept");
    assert_eq!((snapshot.jobs[0].id, snapshot.models[0].done), (2999, 2999), "newest first");
    let mut recent = Recent::default();
    (0..1000).for_each(|second| recent.count(second));
    assert!(recent.0.len() as u64 <= WINDOW_S);
    assert_eq!((recent.per_second(999), recent.per_second(999 + WINDOW_S)), (1.0, 0.0));
}
