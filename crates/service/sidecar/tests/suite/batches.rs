//! Requests of several inputs: the phases that they take at the server, and quotas.
use crate::common::served::{
    Folder, Running, batching, expected, identity, serving_batches, serving_batches_in, two_layers, wait_until,
    write_rules,
};
use crate::common::{Answer, Gate, Sidecar};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tacit_client::Control;
use tacit_sidecar::fleet::FleetConfig;

const INFER: &str = "/v2/models/net/infer";

fn inputs(count: usize) -> Vec<Vec<f32>> {
    (0..count).map(|i| (0..4).map(|j| ((5 * i + 3 * j) % 9) as f32 / 4.0 - 1.0).collect()).collect()
}

fn request(count: usize) -> String {
    json!({"inputs": [{"name": "input", "shape": [count, 1, 2, 2], "datatype": "FP32", "data": inputs(count).concat()}]})
        .to_string()
}

/// A sidecar of `net`, whose back end runs batches.
fn sidecar_of_net(server: &Running, tune: impl FnOnce(&mut FleetConfig)) -> Sidecar {
    Sidecar::start(server, |c| {
        (c.registry, c.models, c.queue) = (batching(), vec![("net".into(), None)], 16);
        tune(c);
    })
}

/// Asks `net` for several inputs and checks the answers.
fn check_answers(sidecar: &Sidecar, count: usize) {
    let response = sidecar.post(INFER, &request(count));
    assert_eq!(response.code, 200, "{response:?}");
    let values: Vec<f64> = serde_json::from_value(response.json()["outputs"][0]["data"].clone()).unwrap();
    let expected_values: Vec<f64> = inputs(count).iter().flat_map(|input| two_layers().run(input).unwrap()).collect();
    assert!(values.len() == expected_values.len(), "{values:?}");
    assert!(values.iter().zip(&expected_values).all(|(a, b)| (a - b).abs() < 0.1), "{values:?}");
}

fn status(server: &Running) -> Value {
    let control = Control::new(&server.address, &identity(&server.dir, "ops"), None, Duration::from_secs(20)).unwrap();
    control.get("/v1/status").unwrap()
}

/// Offline and online phases that have ended at the server, and the inputs that it has answered.
fn at_server(server: &Running) -> ([usize; 2], u64) {
    let status = status(server);
    let jobs = status["jobs"].as_array().unwrap();
    (["offline", "online"].map(|phase| jobs.iter().filter(|job| job["phase"] == phase).count()), server.handle.served())
}

/// Checks how many answers the server has given. It counts an answer after it is sent.
fn check_served(server: &Running, answers: u64) {
    wait_until("the answers are counted", || server.handle.served() >= answers);
    assert_eq!(server.handle.served(), answers);
}

/// Waits until the server's status shows these phases and answers. It may lag by a tenth of a second.
fn wait_for_phases(server: &Running, phases: [usize; 2], served: u64) {
    wait_until(&format!("{phases:?} phases for {served} answers"), || at_server(server) == (phases, served));
}

/// Offline phases of announcements. An announced input has a name for each phase.
fn announced(server: &Running) -> usize {
    let status = status(server);
    let jobs = status["jobs"].as_array().unwrap().clone();
    let names = |phase: &str| -> BTreeSet<String> {
        let jobs = jobs.iter().filter(|job| job["phase"] == phase);
        jobs.map(|job| job["input"].as_str().unwrap().to_owned()).collect()
    };
    names("offline").difference(&names("online")).count()
}

fn statistics(sidecar: &Sidecar) -> Value {
    sidecar.get("/v2/models/net/stats").json()["model_stats"][0].clone()
}

#[test]
fn runs_several_inputs_as_one_batch() {
    let server = serving_batches(|_| {});
    let sidecar = sidecar_of_net(&server, |_| {});
    check_answers(&sidecar, 5);
    wait_for_phases(&server, [1, 1], 5);
    check_answers(&sidecar, 1);
    wait_for_phases(&server, [2, 2], 6);
    let stats = statistics(&sidecar);
    assert_eq!((&stats["inference_count"], &stats["execution_count"]), (&json!(6), &json!(2)), "{stats}");
    let batch_stats =
        |at: usize| [&stats["batch_stats"][at]["batch_size"], &stats["batch_stats"][at]["compute_infer"]["count"]];
    assert_eq!([batch_stats(0), batch_stats(1)], [[&json!(1), &json!(1)], [&json!(5), &json!(1)]], "{stats}");
}

#[test]
fn splits_requests_above_batch_limit() {
    let server = serving_batches(|c| c.max_batch = 2);
    let sidecar = sidecar_of_net(&server, |_| {});
    check_answers(&sidecar, 5);
    wait_for_phases(&server, [3, 3], 5);
    // Several workers share a request.
    let sidecar = sidecar_of_net(&server, |c| c.workers = 2);
    check_answers(&sidecar, 12);
    check_served(&server, 17);
}

#[test]
fn unbatched_back_end_runs_inputs_one_by_one() {
    let server = Running::start(|_| {});
    let sidecar = Sidecar::start(&server, |c| c.models = vec![("one".into(), None)]);
    let response = sidecar.post("/v2/models/one/infer", &request(3));
    assert_eq!(response.code, 200, "{response:?}");
    wait_for_phases(&server, [3, 3], 3);
}

#[test]
fn request_above_quota_costs_nothing() {
    let dir = Folder::new();
    let access = write_rules(&dir, "queries_per_day = 4", "");
    let server = serving_batches_in(&dir, |c| (c.access, c.max_batch) = (Some(access), 2));
    let sidecar = sidecar_of_net(&server, |_| {});
    let response = sidecar.post(INFER, &request(5));
    let refused = |response: &Answer, why: &str| {
        assert!(response.code == 429, "{response:?}");
        assert!(response.error().contains(why), "{response:?}");
        response.header("retry-after").unwrap().parse::<u64>().unwrap()
    };
    let until_tomorrow = refused(&response, "has 4 left, and 5 inputs were asked for");
    assert!((1..=86_400).contains(&until_tomorrow), "{response:?}");
    assert_eq!(at_server(&server), ([0, 0], 0));
    check_answers(&sidecar, 4);
    let response = sidecar.post(INFER, &request(1));
    assert!(refused(&response, "is used up") <= until_tomorrow, "{response:?}");
    wait_for_phases(&server, [2, 2], 4);
}

#[test]
fn announces_waiting_inputs() {
    let (server, gate, sidecar) = Sidecar::gated(|c| c.queue = 8);
    let lane = sidecar.fleet.lane("one", "").unwrap();
    let burst = || {
        gate.set(false);
        std::thread::scope(|scope| {
            let ask = || sidecar.post("/v2/models/one/infer", &request(1));
            let first = scope.spawn(ask);
            wait_until("the first runs", || lane.running() == 1);
            let others: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            wait_until("the others wait", || lane.waiting() == 4);
            gate.set(true);
            for handle in others.into_iter().chain([first]) {
                let response = handle.join().unwrap();
                assert_eq!(response.code, 200, "{response:?}");
                assert_eq!(response.json()["outputs"][0]["data"], json!(expected(1, &inputs(1)[0])));
            }
        });
    };
    let mut bursts = 0;
    wait_until("there is a connection for announcements, and inputs are announced", || {
        burst();
        bursts += 1;
        announced(&server) > 0
    });
    wait_until("each has one offline and one online phase", || at_server(&server).0 == [5 * bursts; 2]);
    check_served(&server, 5 * bursts as u64);
    wait_until("the queues of the server are empty", || {
        let queues = status(&server)["queues"].clone();
        queues.as_object().unwrap().values().all(|n| n == 0)
    });
}

#[test]
fn announces_waiting_batches_whole() {
    let server = serving_batches(|_| {});
    let gate = Gate::to(&server);
    let sidecar = sidecar_of_net(&server, |c| c.client.address = gate.address.clone());
    let lane = sidecar.fleet.lane("net", "").unwrap();
    let mut bursts = 0;
    wait_until("there is a connection for announcements, and batches are announced", || {
        gate.set(false);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| check_answers(&sidecar, 3));
            wait_until("the first runs", || lane.running() == 3);
            let others = [(); 3].map(|()| scope.spawn(|| check_answers(&sidecar, 3)));
            wait_until("the others wait", || lane.waiting() == 9);
            gate.set(true);
            others.into_iter().chain([first]).for_each(|handle| handle.join().unwrap());
        });
        bursts += 1;
        announced(&server) > 0
    });
    wait_for_phases(&server, [4 * bursts; 2], 12 * bursts as u64);
}

#[test]
fn keeps_batches_ready() {
    let server = serving_batches(|_| {});
    let sidecar = sidecar_of_net(&server, |c| {
        c.client.store = Some(server.dir.join("ready"));
        (c.queue, c.ready, c.ready_batch) = (4, 3, 3);
    });
    wait_for_phases(&server, [1, 0], 0);
    check_answers(&sidecar, 3);
    // The idle server makes the next batch.
    wait_for_phases(&server, [2, 1], 3);
    check_answers(&sidecar, 2);
    // A batch is burnt whole, and counts whole.
    wait_for_phases(&server, [3, 2], 6);
}

#[test]
fn disconnect_ends_running_request() {
    let (server, gate, sidecar) = Sidecar::gated(|c| c.queue = 4);
    let lane = sidecar.fleet.lane("one", "").unwrap();
    gate.set(false);
    let abandoned = sidecar.abandon("/v2/models/one/infer", &request(3));
    wait_until("the first runs, and the others wait", || (lane.running(), lane.waiting()) == (1, 2));
    drop(abandoned);
    wait_until("nothing of it is left", || (lane.running(), lane.waiting()) == (0, 0));
    gate.set(true);
    let ask = || sidecar.post("/v2/models/one/infer", &request(1));
    wait_until("another is answered, on another connection", || ask().code == 200);
    check_served(&server, 1);
}
