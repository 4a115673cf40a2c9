//! Queues, workers, lost servers, and material that is kept ready.
use crate::common::served::{Folder, Running, expected, wait_until};
use crate::common::{self, Answer, Sidecar};
use serde_json::json;
use std::thread;

const INFER: &str = "/v2/models/one/infer";
const X: [f32; 4] = [1.5, -2.0, 3.0, 0.25];

fn request(n: usize, timeout_us: u64) -> String {
    let data: Vec<f32> = std::iter::repeat_n(X, n).flatten().collect();
    json!({"parameters": {"timeout": timeout_us},
        "inputs": [{"name": "input", "shape": [n, 1, 2, 2], "datatype": "FP32", "data": data}]})
    .to_string()
}

fn infer_one(sidecar: &Sidecar) -> Answer {
    sidecar.post(INFER, &request(1, 0))
}

#[test]
fn full_queue_and_timeouts_leave_lane_usable() {
    let (_server, gate, sidecar) = Sidecar::gated(|c| c.queue = 2);
    let lane = sidecar.fleet.lane("one", "").unwrap();
    gate.set(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| infer_one(&sidecar));
        wait_until("it runs", || lane.running() == 1);
        let waiting = sidecar.abandon(INFER, &request(2, 0));
        wait_until("the others wait", || lane.waiting() == 2);
        let full = infer_one(&sidecar);
        assert_eq!((full.code, full.header("retry-after")), (429, Some("1")), "{full:?}");
        drop(waiting);
        wait_until("an abandoned request makes room", || lane.waiting() == 0);
        assert_eq!(sidecar.post(INFER, &request(2, 300_000)).code, 504);
        assert_eq!((lane.waiting(), lane.running()), (0, 1));
        gate.set(true);
        assert_eq!(running.join().unwrap().code, 200);
    });
    gate.set(false);
    assert_eq!(sidecar.post(INFER, &request(1, 300_000)).code, 504);
    wait_until("its connection was ended", || lane.running() == 0);
    gate.set(true);
    wait_until("there is another", || infer_one(&sidecar).code == 200);
}

#[test]
fn reports_lost_server_and_reconnects() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let address = server.address.clone();
    let sidecar = Sidecar::start(&server, |_| {});
    assert_eq!(infer_one(&sidecar).code, 200);
    drop(server);
    wait_until("the loss is noticed", || infer_one(&sidecar).code == 503);
    let response = sidecar.get("/v2/models/one/ready");
    assert!(response.code == 503, "{response:?}");
    assert!(response.error().contains("cannot reach the server"), "{response:?}");
    assert_eq!(sidecar.get("/v2/health/live").code, 200);
    let index = sidecar.post("/v2/repository/index", "").json();
    assert_eq!(index[0]["state"], "UNAVAILABLE");
    let _again = Running::start_in(&dir, |c| c.listen = address.parse().unwrap());
    wait_until("it is found", || sidecar.get("/v2/models/one/ready").code == 200);
    let response = infer_one(&sidecar).json();
    assert_eq!(response["outputs"][0]["data"], json!(expected(1, &X)));
}

#[test]
fn notices_lost_server_while_idle() {
    let (server, sidecar) = Sidecar::with_server();
    assert_eq!(sidecar.get("/v2/health/ready").code, 200);
    drop(server);
    // The sidecar sees the end of an idle connection before its check every 30 s.
    let dropped_at = std::time::Instant::now();
    wait_until("the loss is noticed", || sidecar.get("/v2/health/ready").code == 503);
    assert!(dropped_at.elapsed().as_secs() < 15, "{:?}", dropped_at.elapsed());
}

#[test]
fn reconnects_between_requests() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let address = server.address.clone();
    let sidecar = Sidecar::start(&server, |_| {});
    drop(server);
    let _again = Running::start_in(&dir, |c| c.listen = address.parse().unwrap());
    let response = infer_one(&sidecar);
    assert_eq!(response.code, 200, "{response:?}");
}

#[test]
fn keeps_material_ready() {
    let server = Running::start(|_| {});
    let sidecar = Sidecar::start(&server, |c| {
        c.client.store = Some(server.dir.join("ready"));
        c.models = vec![("one".into(), None)];
        c.ready = 2;
    });
    let count = || {
        let mut config = server.config("alice");
        config.store = Some(server.dir.join("ready"));
        let connection = tacit_client::Connection::connect(common::served::registry(), config).unwrap();
        connection.open("one", None).unwrap().list_stored().unwrap().len()
    };
    // An unknown client gets one material in stock, a client that asks gets two.
    wait_until("it is ready", || count() == 1);
    let response = infer_one(&sidecar).json();
    assert_eq!(response["outputs"][0]["data"], json!(expected(1, &X)));
    wait_until("it is ready again, and more of it", || count() == 2);
}

#[test]
fn opens_clear_back_end_only_if_named() {
    let mut catalog = tacit_serve::Catalog::new(true);
    common::served::offer(&mut catalog, "one", &common::served::open_toy(), 1, "");
    let server = Running::serving(catalog, |_| {});
    let unasked = Sidecar::unready(&server, |_| {});
    let why = || unasked.get("/v2/models/one/ready");
    wait_until("the server was asked", || why().error().contains("server sees the input"));
    assert_eq!(why().code, 503);
    let asked = Sidecar::start(&server, |c| c.models = vec![("one".into(), Some("open".into()))]);
    assert_eq!(asked.post(INFER, &request(1, 0)).code, 200);
}

#[test]
fn workers_share_a_batch() {
    let (_server, gate, sidecar) = Sidecar::gated(|c| c.workers = 2);
    let lane = sidecar.fleet.lane("one", "").unwrap();
    thread::scope(|scope| {
        // Both workers get an input once both are connected.
        wait_until("both work", || {
            gate.set(false);
            let asking = scope.spawn(|| sidecar.post(INFER, &request(2, 0)));
            wait_until("one works", || lane.running() > 0);
            thread::sleep(std::time::Duration::from_millis(50));
            let both_work = lane.running() == 2;
            gate.set(true);
            let response = asking.join().unwrap();
            assert_eq!(response.json()["outputs"][0]["data"], json!(expected(1, &X).repeat(2)));
            both_work
        });
    });
}

#[test]
fn panicking_input_fails_alone() {
    let (_server, sidecar) = Sidecar::with_server();
    let poison = request(1, 0).replace("1.5", &tacit_backends::toy::PANIC.to_string());
    let response = sidecar.post(INFER, &poison);
    assert_eq!(response.code, 503, "{response:?}");
    wait_until("others are answered", || infer_one(&sidecar).code == 200);
    let counts = sidecar.get("/v2/models/one/stats").json()["model_stats"][0]["inference_stats"].clone();
    assert!(counts["fail"]["count"].as_u64() >= Some(1), "{counts}");
}

#[test]
fn reports_progress() {
    let (_server, gate, sidecar) = Sidecar::gated(|_| {});
    let progress = || sidecar.get("/page/progress?model=one").json();
    let idle = json!({"waiting": 0, "running": []});
    assert_eq!(progress(), idle);
    gate.set(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| infer_one(&sidecar));
        wait_until("it runs", || sidecar.fleet.lane("one", "").unwrap().running() == 1);
        let next = scope.spawn(|| infer_one(&sidecar));
        wait_until("the other waits", || progress()["waiting"] == 1);
        // Pieces pass one by one until a phase has begun.
        while progress()["running"] == json!([]) {
            assert!(!asking.is_finished(), "no phase was reported");
            gate.let_one_pass();
            thread::sleep(std::time::Duration::from_millis(50));
        }
        let now = progress();
        let phase = &now["running"][0];
        assert!(["setup", "offline", "online"].iter().any(|name| phase["phase"] == *name), "{now}");
        assert!(phase["fraction"].as_f64().is_some_and(|done| (0.0..1.0).contains(&done)), "{now}");
        assert_eq!(now["waiting"], 1, "{now}");
        gate.set(true);
        assert_eq!((asking.join().unwrap().code, next.join().unwrap().code), (200, 200));
    });
    wait_until("nothing is left", || progress() == idle);
    assert_eq!(sidecar.get("/page/progress?model=none").code, 404);
    assert_eq!(sidecar.ask_as("GET", "/page/progress?model=one", &[], b"").code, 401, "without the token");
}
