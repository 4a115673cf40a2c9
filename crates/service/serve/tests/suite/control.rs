//! The control interface: what operators and clients see, in both versions of HTTP, and its OpenAPI document.
use crate::by_hand::prepare;
use crate::common::*;
use crate::tls;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tacit_client::wire::{Ask, InputId, Reply, Request, Terms};
use tacit_graph::Units;
use tacit_ids::MaterialId;
use tacit_net::TlsTransport;
use tacit_store::keys;

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The text of an error.
    fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("no error in {}", self.body)).to_owned()
    }
}

/// Reads a head byte by byte.
fn read_head(stream: &mut TlsTransport) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

fn read_answer(stream: &mut TlsTransport) -> Answer {
    let head = read_head(stream);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    Answer { status: head[9..12].parse().unwrap(), head, body: String::from_utf8(body).unwrap() }
}

fn request(stream: &mut TlsTransport, method: &str, path: &str, more: &str, body: &str) {
    let text =
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{more}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).unwrap();
    stream.flush().unwrap();
}

fn get(stream: &mut TlsTransport, path: &str) -> Answer {
    request(stream, "GET", path, "", "");
    read_answer(stream)
}

fn send_json(stream: &mut TlsTransport, method: &str, path: &str, body: &str) -> Answer {
    request(stream, method, path, "content-type: application/json\r\n", body);
    read_answer(stream)
}

fn put_policy(stream: &mut TlsTransport, body: &str) -> Answer {
    send_json(stream, "PUT", "/v1/policy", body)
}

/// Announces an input over HTTP.
fn announce(stream: &mut TlsTransport, body: &str) -> Answer {
    send_json(stream, "POST", "/v1/inputs", body)
}

/// The path of an announced input.
fn input_path(announced: &Answer) -> String {
    format!("/v1/inputs/{}", announced.json()["name"].as_str().unwrap())
}

#[test]
fn operators_see_all_and_clients_their_own() {
    let server = Running::start(|_| {});
    let mut client = server.client("alice", "one");
    check_answer(&mut client, 1);
    drop(client);
    wait_until("its connection ends", || server.handle.connections() == 0);
    let [mut alice, mut bob, mut ops] = ["alice", "bob", "ops"].map(|name| server.http(name));
    for (path, state) in [("/v1/health/live", "live"), ("/v1/health/ready", "ready")] {
        for stream in [&mut alice, &mut ops] {
            assert_eq!(get(stream, path).json(), json!({ "status": state }));
        }
    }
    for path in ["/", "/metrics", "/v1/events", "/v1/policy"] {
        let refused = get(&mut alice, path);
        assert_eq!(refused.status, 403, "{path}");
        check_contains(&refused.error(), &["role operator"]);
    }
    let own = get(&mut alice, "/v1/status").json();
    let id = identity(&server.dir, "alice").fingerprint.to_string();
    assert_eq!(own["client"]["client"], id);
    // The setup, the offline and the online phase.
    assert_eq!((&own["client"]["requests"], &own["client"]["done"]), (&json!(3), &json!(3)));
    assert!(own.get("jobs").is_none(), "{own}");
    assert!(own.get("clients").is_none(), "{own}");
    assert_eq!(get(&mut bob, "/v1/status").json()["client"]["requests"], 0);
    let models = json!({"models": [{"name": "one", "backends": ["toy"]}, {"name": "two", "backends": ["toy"]}]});
    assert_eq!(get(&mut bob, "/v1/models").json(), models);
    assert_eq!(get(&mut ops, "/v1/models").json()["models"][0]["done"], 1);
    wait_for_fresh_status();
    let all = get(&mut ops, "/v1/status").json();
    assert_eq!((&all["control_connections"], &all["stopping"]), (&json!(3), &json!(false)));
    let jobs = all["jobs"].as_array().unwrap();
    let phases: Vec<&str> = jobs.iter().map(|job| job["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["online", "offline", "setup"]);
    assert!(jobs.iter().all(|job| job["outcome"] == "done" && job["client"] == id.as_str()));
    let is_estimated: Vec<bool> = jobs.iter().map(|job| job["expected_s"].is_f64()).collect();
    assert_eq!(is_estimated, [true, true, false]);
    for row in [&all["clients"][0], &own["client"]] {
        assert!(row["client"] == id.as_str(), "{row}");
        assert!(row["inputs"] == 1, "{row}");
        assert!(row["mean_delay_s"].as_f64() >= row["mean_waiting_s"].as_f64(), "{row}");
        assert_eq!(row["mean_delay_s"], all["models"][0]["mean_delay_s"]);
    }
    let page = get(&mut ops, "/");
    assert_eq!(page.status, 200);
    assert!(page.body.starts_with("<!doctype html>"));
    check_contains(&page.head, &["content-security-policy: default-src 'none'", "cache-control: no-store"]);
    assert!(!page.body.contains("NONCE"));
    assert!(!page.body.contains("http://localhost"));
    let lost = get(&mut alice, "/v1/elsewhere");
    assert_eq!(lost.status, 404);
    check_contains(&lost.error(), &["/v1/elsewhere"]);
}

#[test]
fn compares_estimates_with_measurements() {
    let server = Running::start(|_| {});
    let mut ops = server.http("ops");
    assert_eq!(get(&mut ops, "/v1/status").json()["profile"], json!([]), "no phase has ended");
    let mut client = server.client("alice", "one");
    (0..3).for_each(|_| drop(client.infer(&X).unwrap()));
    drop(client);
    wait_until("its connection ends", || server.handle.connections() == 1);
    // The status may lag.
    let mut rows = Vec::new();
    wait_until("the profile is complete", || {
        rows = get(&mut ops, "/v1/status").json()["profile"].as_array().unwrap().clone();
        rows.iter().filter(|row| row["jobs"] == 3).count() == 2
    });
    let of = |row: &Value| ["model", "backend", "phase"].map(|key| row[key].as_str().unwrap().to_owned());
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), [["one", "toy", "offline"], ["one", "toy", "online"]]);
    for row in &rows {
        assert!(row["device"].as_str().unwrap().starts_with("lan, "), "{row}");
        let [expected, measured] = ["expected_s", "measured_s"].map(|key| row[key].as_f64().unwrap());
        let [median, p95] = ["error_median", "error_p95"].map(|key| row[key].as_f64().unwrap());
        assert!(expected > 0.0, "{row}");
        assert!(measured > 0.0, "{row}");
        assert!(0.0 <= median, "{row}");
        assert!(median <= p95, "{row}");
    }
    let metrics = get(&mut ops, "/metrics").body;
    for phase in ["offline", "online"] {
        let line = format!("tacit_profile_error_ratio_count{{phase=\"{phase}\",model=\"one\",backend=\"toy\"}} 3\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    assert!(get(&mut server.http("alice"), "/v1/status").json().get("profile").is_none());
}

#[test]
fn openapi_document_lists_all_methods() {
    let server = Running::start(|_| {});
    let mut ops = server.http("ops");
    let document = get(&mut ops, "/v1/openapi.json").json();
    for (path, item) in document["paths"].as_object().unwrap() {
        request(&mut ops, "PATCH", path, "", "");
        let refused = read_answer(&mut ops);
        assert_eq!(refused.status, 405, "{path}");
        check_contains(&refused.error(), &["PATCH"]);
        let allowed = refused.head.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap();
        let allowed: BTreeSet<&str> = allowed.split(',').filter(|method| *method != "head").collect();
        assert_eq!(allowed, item.as_object().unwrap().keys().map(String::as_str).collect(), "{path}");
    }
}

#[test]
fn operator_changes_policy() {
    let server = Running::start(|_| {});
    let (mut ops, mut alice) = (server.http("ops"), server.http("alice"));
    for body in
        ["", "{}", "[[[[", r#"{"policy": "lifo"}"#, r#"{"policy": "priority:nan"}"#, r#"{"policy": "srt", "x": 1}"#]
    {
        let refused = put_policy(&mut ops, body);
        let error = refused.error();
        assert_eq!(refused.status, 400, "{body}: {error}");
    }
    request(&mut ops, "PUT", "/v1/policy", "content-type: text/plain\r\n", r#"{"policy": "srt"}"#);
    assert_eq!(read_answer(&mut ops).status, 415);
    assert_eq!(put_policy(&mut alice, r#"{"policy": "srt"}"#).status, 403);
    let good = put_policy(&mut ops, r#"{"policy": "srt"}"#);
    assert_eq!((good.status, good.json()), (200, json!({"policy": "shortest-remaining"})));
    assert_eq!(get(&mut ops, "/v1/policy").json(), json!({"policy": "shortest-remaining"}));
    assert_eq!(put_policy(&mut ops, r#"{"policy": "priority:0.5+fair"}"#).json()["policy"], "priority(0.5)+fair(1)");
}

#[test]
fn operator_reloads_files() {
    let dir = Folder::new();
    let access = dir.join("access.toml");
    fs::write(&access, "").unwrap();
    let server = Running::start_in(&dir, |config| config.access = Some(access.clone()));
    let (mut ops, mut alice) = (server.http("ops"), server.http("alice"));
    let post = |stream: &mut TlsTransport, kind: &str, body: &str| {
        request(stream, "POST", "/v1/reload", &format!("content-type: {kind}\r\n"), body);
        read_answer(stream)
    };
    let json_type = "application/json";
    assert_eq!(post(&mut alice, json_type, "{}").status, 403);
    assert_eq!(post(&mut ops, "text/plain", "{}").status, 415);
    for body in ["", "[]", r#"{"models": true}"#, "[[[["] {
        assert_eq!(post(&mut ops, json_type, body).status, 400, "{body}");
    }
    let done = post(&mut ops, json_type, "{}");
    assert_eq!(done.status, 200, "{}", done.body);
    // This server reloads no certificates and models.
    let none = json!({"added": [], "replaced": [], "withdrawn": [], "kept": []});
    assert_eq!(
        ["access", "certificates", "models"].map(|key| done.json()[key].clone()),
        [json!(true), json!(false), none]
    );
    fs::write(&access, "[default]\nrevokd = true\n").unwrap();
    let wrong = post(&mut ops, json_type, "{}");
    assert_eq!(wrong.status, 422, "{}", wrong.body);
    check_contains(&wrong.error(), &["the rules of access stay as they were", "line 2"]);
    assert!(server.client("alice", "one").infer(&X).is_ok());
}

#[test]
fn warns_of_expiring_certificate() {
    const DAY: u64 = 24 * 3600;
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let mut ops = server.http("ops");
    let all = get(&mut ops, "/v1/status").json();
    let certificates = all["certificates"].as_array().unwrap();
    assert!(certificates.iter().map(|c| c["name"].as_str().unwrap()).eq(["server", "ca"]), "{all}");
    assert!(all["certificates"][0].get("advice").is_none(), "{all}");
    drop((ops, server));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let short = keys::Validity { from: now - 10 * DAY, until: now + DAY / 2 - 60 };
    keys::renew(&dir.join("keys"), "server", Some(short)).unwrap();
    let server = Running::start_in(&dir, |_| {});
    let mut ops = server.http("ops");
    let ready = get(&mut server.http("alice"), "/v1/health/ready");
    let warning = ready.json()["warnings"][0].as_str().unwrap().to_owned();
    assert_eq!(ready.status, 200, "{}", ready.body);
    check_contains(&warning, &["`server` expires in 11 hours"]);
    let row = get(&mut ops, "/v1/status").json()["certificates"][0].clone();
    assert_eq!(row, json!({"name": "server", "expires_s": short.until, "advice": warning}));
    let metrics = get(&mut ops, "/metrics").body;
    let line = format!("tacit_certificate_expiry_timestamp_seconds{{name=\"server\"}} {}\n", short.until);
    check_contains(&metrics, &[&line, "_expiry_timestamp_seconds{name=\"ca\"}"]);
}

#[test]
fn announces_and_cancels_input_over_http() {
    let server = Running::start(|config| config.cores = 1);
    let (mut alice, mut bob) = (server.http("alice"), server.http("bob"));
    for (body, status) in [
        ("{}", 400),
        (r#"{"model": "one", "backend": "toy", "threads": 0}"#, 400),
        (r#"{"model": "one", "backend": "toy", "inputs": 0}"#, 400),
        (r#"{"model": "none", "backend": "toy"}"#, 404),
        (r#"{"model": "one", "backend": "none"}"#, 404),
    ] {
        let refused = announce(&mut alice, body);
        let error = refused.error();
        assert_eq!(refused.status, status, "{body}: {error}");
    }
    let noted = announce(&mut alice, r#"{"model": "one", "backend": "toy", "expected_s": 5}"#);
    let name = noted.json()["name"].as_str().unwrap().to_owned();
    let its_turn = json!({"name": name, "state": "announced", "inputs": 1, "turn": true});
    assert_eq!((noted.status, noted.json()), (201, its_turn.clone()));
    let path = input_path(&noted);
    assert_eq!(get(&mut bob, &path).status, 404);
    assert_eq!(get(&mut alice, &format!("{path}?wait_s=61")).status, 400);
    // The turn of an announced input comes when the only core is free.
    let mut busy = server.ready_channel("bob");
    assert_eq!(ask(&mut busy, &prepare(1)), Reply::Go);
    assert_eq!(get(&mut alice, &path).json()["turn"], false);
    request(&mut alice, "GET", &format!("{path}?wait_s=60"), "", "");
    drop(busy);
    assert_eq!(read_answer(&mut alice).json(), its_turn);
    let mut client = server.client("alice", "one");
    let name = InputId(u64::from_str_radix(&name, 16).unwrap());
    let taken = client.take_up(client.connect_again().unwrap(), name).unwrap();
    wait_until("its material is made", || get(&mut alice, &path).json()["state"] == "ready");
    let answered = client.infer_announced(taken, Units::Network, &X).unwrap();
    assert_eq!(answered.values, expected(1, &X));
    assert!(answered.prepared.is_some());
    assert_eq!(get(&mut alice, &path).status, 404);
    // Only its client may take an input back, once.
    let path = input_path(&announce(&mut alice, r#"{"model": "one", "backend": "toy"}"#));
    for (is_hers, status) in [(false, 404), (true, 204), (true, 404)] {
        let stream = if is_hers { &mut alice } else { &mut bob };
        request(stream, "DELETE", &path, "", "");
        assert_eq!(read_answer(stream).status, status);
    }
}

#[test]
fn restart_loses_notices() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let noted = announce(&mut server.http("alice"), r#"{"model": "one", "backend": "toy"}"#);
    let path = input_path(&noted);
    drop(server);
    let server = Running::start_in(&dir, |_| {});
    let lost = get(&mut server.http("alice"), &path);
    assert_eq!(lost.status, 404);
    assert!(lost.error().ends_with("it is lost"));
}

#[test]
fn server_limits_notice_lifetime() {
    let server = Running::start(|config| config.notice_ttl = Duration::from_millis(50));
    let mut http = server.http("alice");
    let week = r#"{"model": "one", "backend": "toy", "expected_s": 604800, "ttl_s": 604800}"#;
    let noted = announce(&mut http, week);
    let path = input_path(&noted);
    wait_until("it is forgotten", || get(&mut http, &path).status == 404);
}

#[test]
fn request_takes_over_material_of_notice() {
    let server = Running::start(|_| {});
    let mut http = server.http("alice");
    let noted = announce(&mut http, r#"{"model": "one", "backend": "toy"}"#);
    let path = input_path(&noted);
    let name = u64::from_str_radix(path.rsplit('/').next().unwrap(), 16).unwrap();
    let mut channel = server.ready_channel("alice");
    let notice = Some(InputId(name));
    let id = MaterialId::numbered(1);
    assert_eq!(ask(&mut channel, &Request::Prepare { id, folder: None, of: notice }), Reply::Go);
    finish_offline(&mut channel);
    assert_eq!(get(&mut http, &path).json()["state"], "ready");
    // The notice's name stands for its request from now on.
    let asking = Ask { name: InputId(!name), notice, material: None, terms: Terms::default() };
    assert_eq!(ask(&mut channel, &Request::Ask(asking)), Reply::Noted { notice_ignored: None });
    assert_eq!(get(&mut http, &path).json()["state"], "ready");
}

#[test]
fn sends_events_until_server_stops() {
    let server = Running::start(|_| {});
    let mut ops = server.http("ops");
    request(&mut ops, "GET", "/v1/events", "", "");
    let head = read_head(&mut ops);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let mut text = String::new();
    while text.matches("\n\n").count() < 2 {
        let mut piece = [0; 4096];
        let n = ops.read(&mut piece).unwrap();
        assert!(n > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let first: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&first["control_connections"], &first["models"][1]["name"]), (&json!(1), &json!("two")));
    server.handle.shutdown(Duration::ZERO);
    assert_eq!(server.handle.connections(), 0);
    let mut remainder = Vec::new();
    ops.read_to_end(&mut remainder).unwrap();
}

/// A TLS configuration of `alice` for these application protocols.
fn tls_config(dir: &Path, protocols: &[&str]) -> rustls::ClientConfig {
    let certificate = CertificateDer::from_pem_file(dir.join("keys/alice.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join("keys/alice.key")).unwrap();
    let mut config = tls::trusting_config(dir).with_client_auth_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

#[test]
fn http_2_answers_several_requests_at_once() {
    let server = Running::start(|_| {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(several_requests(&server.address, tls_config(&server.dir, &["h2", "http/1.1"])));
}

async fn several_requests(address: &str, config: rustls::ClientConfig) {
    let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let tls = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await.unwrap();
    let driving = tokio::spawn(connection);
    let mut tasks = Vec::new();
    for path in ["/v1/health/ready", "/v1/models", "/metrics", "/v1/none"] {
        let mut sender = sender.clone();
        tasks.push(tokio::spawn(async move {
            let request = hyper::Request::get(format!("https://localhost{path}")).body(Empty::<Bytes>::new()).unwrap();
            let answer = sender.send_request(request).await.unwrap();
            let status = answer.status().as_u16();
            (status, answer.into_body().collect().await.unwrap().to_bytes())
        }));
    }
    let mut statuses = Vec::new();
    for answer in tasks {
        let (status, body) = answer.await.unwrap();
        assert!(serde_json::from_slice::<Value>(&body).unwrap().is_object());
        statuses.push(status);
    }
    assert_eq!(statuses, [200, 200, 403, 404]);
    // A head that is too large is refused, and the connection goes on.
    let large = hyper::Request::get("https://localhost/v1/models").header("x-large", "x".repeat(100 << 10));
    let refused = sender.send_request(large.body(Empty::<Bytes>::new()).unwrap()).await;
    assert!(refused.is_err() || refused.unwrap().status() == 431);
    driving.abort();
}

#[test]
fn refuses_other_application_protocols() {
    let without_control = Running::start(|c| c.max_control = 0);
    let with_control = Running::start(|_| {});
    for (server, protocols) in
        [(&without_control, vec!["h2", "http/1.1"]), (&with_control, vec!["h3"]), (&with_control, vec![])]
    {
        let mut stream = tls::connect(server, tls_config(&server.dir, &protocols));
        let _ = stream.write_all(b"GET /v1/health/live HTTP/1.1\r\nhost: x\r\n\r\n");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        assert!(bytes.is_empty(), "{protocols:?} {bytes:?}");
    }
    check_answer(&mut without_control.client("alice", "one"), 1);
}
