//! The control interface: who sees what, in both versions of HTTP, and what the document and the example say
//! of it.
use crate::common::*;
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
use tacit_client::wire::{Reply, Request};
use tacit_net::TlsTransport;
use tacit_store::keys;

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

/// An answer: its status, its head, its body.
pub struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

/// A whole head, byte by byte.
fn head(stream: &mut TlsTransport) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

fn answer(stream: &mut TlsTransport) -> Answer {
    let head = head(stream);
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
    answer(stream)
}

fn put_policy(stream: &mut TlsTransport, body: &str) -> Answer {
    request(stream, "PUT", "/v1/policy", "content-type: application/json\r\n", body);
    answer(stream)
}

#[test]
fn operators_see_everything_and_clients_what_is_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut client = server.client(dir.path(), "alice", "one");
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    drop(client);
    wait_until("its connection ends", || server.handle.connections() == 0);
    let (mut alice, mut bob, mut ops) =
        (server.http(dir.path(), "alice"), server.http(dir.path(), "bob"), server.http(dir.path(), "ops"));
    for (path, state) in [("/v1/health/live", "live"), ("/v1/health/ready", "ready")] {
        for stream in [&mut alice, &mut ops] {
            assert_eq!(get(stream, path).json(), json!({ "status": state }));
        }
    }
    for path in ["/", "/metrics", "/v1/events", "/v1/policy"] {
        let refused = get(&mut alice, path);
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(refused.status == 403, "{path}: {error}");
        assert!(error.contains("role operator"), "{path}: {error}");
    }
    let own = get(&mut alice, "/v1/status").json();
    let id = keys::load_client(&dir.path().join("keys"), "alice").unwrap().fingerprint.to_string();
    assert_eq!(own["client"]["client"], id);
    // Setup, offline, online.
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
    let phases: Vec<&str> = all["jobs"].as_array().unwrap().iter().map(|j| j["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["online", "offline", "setup"]);
    assert!(all["jobs"].as_array().unwrap().iter().all(|j| j["outcome"] == "done" && j["client"] == id.as_str()));
    let told: Vec<bool> = all["jobs"].as_array().unwrap().iter().map(|j| j["expected_s"].is_f64()).collect();
    assert_eq!(told, [true, true, false], "nothing is expected of a setup");
    for row in [&all["clients"][0], &own["client"]] {
        assert!(row["client"] == id.as_str(), "{row}");
        assert!(row["inputs"] == 1, "{row}");
        assert!(row["mean_delay_s"].as_f64() >= row["mean_waiting_s"].as_f64(), "{row}");
        assert_eq!(row["mean_delay_s"], all["models"][0]["mean_delay_s"], "its one input is the model's one");
    }
    let page = get(&mut ops, "/");
    assert!(page.status == 200);
    assert!(page.body.starts_with("<!doctype html>"));
    assert!(page.head.contains("content-security-policy: default-src 'none'"));
    assert!(!page.body.contains("NONCE"));
    assert!(page.head.contains("cache-control: no-store"));
    assert!(!page.body.contains("http://localhost"));
    let lost = get(&mut alice, "/v1/elsewhere");
    assert!(lost.status == 404);
    assert!(lost.json()["error"].as_str().unwrap().contains("/v1/elsewhere"));
}

#[test]
fn the_profile_is_compared_with_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut ops = server.http(dir.path(), "ops");
    assert_eq!(get(&mut ops, "/v1/status").json()["profile"], json!([]), "no phase has ended");
    let mut client = server.client(dir.path(), "alice", "one");
    (0..3).for_each(|_| drop(client.infer(&X).unwrap()));
    drop(client);
    wait_until("its connection ends", || server.handle.connections() == 1);
    // What is told may be a moment old.
    let mut rows = Vec::new();
    wait_until("all is told", || {
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
    assert!(get(&mut server.http(dir.path(), "alice"), "/v1/status").json().get("profile").is_none());
}

#[test]
fn the_document_lists_exactly_the_methods() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut ops = server.http(dir.path(), "ops");
    let document = get(&mut ops, "/v1/openapi.json").json();
    for (path, item) in document["paths"].as_object().unwrap() {
        request(&mut ops, "PATCH", path, "", "");
        let refused = answer(&mut ops);
        assert!(refused.status == 405, "{path}");
        assert!(refused.json()["error"].as_str().unwrap().contains("PATCH"), "{path}");
        let allowed = refused.head.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap();
        let allowed: BTreeSet<&str> = allowed.split(',').filter(|method| *method != "head").collect();
        assert_eq!(allowed, item.as_object().unwrap().keys().map(String::as_str).collect(), "{path}");
    }
}

#[test]
fn an_operator_changes_the_policy_and_a_bad_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let (mut ops, mut alice) = (server.http(dir.path(), "ops"), server.http(dir.path(), "alice"));
    for body in
        ["", "{}", "[[[[", r#"{"policy": "lifo"}"#, r#"{"policy": "priority:nan"}"#, r#"{"policy": "srt", "x": 1}"#]
    {
        let refused = put_policy(&mut ops, body);
        assert!(refused.status == 400, "{body}: {}", refused.body);
        assert!(refused.json()["error"].is_string(), "{body}: {}", refused.body);
    }
    request(&mut ops, "PUT", "/v1/policy", "content-type: text/plain\r\n", r#"{"policy": "srt"}"#);
    assert_eq!(answer(&mut ops).status, 415);
    assert_eq!(put_policy(&mut alice, r#"{"policy": "srt"}"#).status, 403);
    let good = put_policy(&mut ops, r#"{"policy": "srt"}"#);
    assert_eq!((good.status, good.json()), (200, json!({"policy": "shortest-remaining"})));
    assert_eq!(get(&mut ops, "/v1/policy").json(), json!({"policy": "shortest-remaining"}));
    assert_eq!(put_policy(&mut ops, r#"{"policy": "priority:0.5+fair"}"#).json()["policy"], "priority(0.5)+fair(1)");
}

#[test]
fn an_operator_has_files_looked_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let access = dir.path().join("access.toml");
    fs::write(&access, "").unwrap();
    let server = Running::start(dir.path(), |config| config.access = Some(access.clone()));
    let (mut ops, mut alice) = (server.http(dir.path(), "ops"), server.http(dir.path(), "alice"));
    let post = |stream: &mut TlsTransport, kind: &str, body: &str| {
        request(stream, "POST", "/v1/reload", &format!("content-type: {kind}\r\n"), body);
        answer(stream)
    };
    let json_type = "application/json";
    assert_eq!(post(&mut alice, json_type, "{}").status, 403);
    assert_eq!(post(&mut ops, "text/plain", "{}").status, 415);
    for body in ["", "[]", r#"{"models": true}"#, "[[[["] {
        assert_eq!(post(&mut ops, json_type, body).status, 400, "{body}");
    }
    let done = post(&mut ops, json_type, "{}");
    assert_eq!((done.status, &done.json()["access"]), (200, &json!(true)), "{}", done.body);
    // What a library's server has no files for is as it was.
    let none = json!({"added": [], "replaced": [], "withdrawn": [], "kept": []});
    assert_eq!((&done.json()["certificates"], &done.json()["models"]), (&json!(false), &none));
    fs::write(&access, "[default]\nrevokd = true\n").unwrap();
    let wrong = post(&mut ops, json_type, "{}");
    let why = wrong.json()["error"].as_str().unwrap().to_owned();
    assert!(wrong.status == 422, "{}", wrong.body);
    assert!(why.contains("the rules of access stay as they were"), "{}", wrong.body);
    assert!(why.contains("line 2"), "{why}");
    assert!(server.client(dir.path(), "alice", "one").infer(&X).is_ok(), "{why}");
}

#[test]
fn who_looks_is_told_of_a_certificate_that_ends() {
    const DAY: u64 = 24 * 3600;
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut ops = server.http(dir.path(), "ops");
    let all = get(&mut ops, "/v1/status").json();
    let names: Vec<&str> =
        all["certificates"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(names == ["server", "ca"], "{all}");
    assert!(all["certificates"][0].get("advice").is_none(), "{all}");
    drop((ops, server));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let short = keys::Validity { from: now - 10 * DAY, until: now + DAY / 2 - 60 };
    keys::renew(&dir.path().join("keys"), "server", Some(short)).unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut ops = server.http(dir.path(), "ops");
    let ready = get(&mut server.http(dir.path(), "alice"), "/v1/health/ready");
    let warning = ready.json()["warnings"][0].as_str().unwrap().to_owned();
    assert!(ready.status == 200, "{}", ready.body);
    assert!(warning.contains("`server` expires in 11 hours"), "{}", ready.body);
    let row = get(&mut ops, "/v1/status").json()["certificates"][0].clone();
    assert_eq!(row, json!({"name": "server", "expires_s": short.until, "advice": warning}));
    let metrics = get(&mut ops, "/metrics").body;
    let line = format!("tacit_certificate_expiry_timestamp_seconds{{name=\"server\"}} {}\n", short.until);
    assert!(metrics.contains(&line), "{metrics}");
    assert!(metrics.contains("_expiry_timestamp_seconds{name=\"ca\"}"), "{metrics}");
}

/// Announces an input over HTTP; its name.
fn announce(stream: &mut TlsTransport, body: &str) -> Answer {
    request(stream, "POST", "/v1/inputs", "content-type: application/json\r\n", body);
    answer(stream)
}

#[test]
fn an_input_is_announced_waited_for_and_taken_back_without_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |config| config.cores = 1);
    let (mut alice, mut bob) = (server.http(dir.path(), "alice"), server.http(dir.path(), "bob"));
    for (body, status) in [
        ("{}", 400),
        (r#"{"model": "one", "backend": "toy", "threads": 0}"#, 400),
        (r#"{"model": "one", "backend": "toy", "inputs": 0}"#, 400),
        (r#"{"model": "none", "backend": "toy"}"#, 404),
        (r#"{"model": "one", "backend": "none"}"#, 404),
    ] {
        let refused = announce(&mut alice, body);
        assert!(refused.status == status, "{body}: {}", refused.body);
        assert!(refused.json()["error"].is_string(), "{body}: {}", refused.body);
    }
    let noted = announce(&mut alice, r#"{"model": "one", "backend": "toy", "expected_s": 5}"#);
    let name = noted.json()["name"].as_str().unwrap().to_owned();
    assert_eq!(
        (noted.status, noted.json()),
        (201, json!({"name": name, "state": "announced", "inputs": 1, "turn": true}))
    );
    let path = format!("/v1/inputs/{name}");
    assert_eq!(get(&mut bob, &path).status, 404, "it is another client's");
    assert_eq!(get(&mut alice, &format!("{path}?wait_s=61")).status, 400);
    // While the one core is taken its turn does not come; then it does.
    let mut busy = server.opened(dir.path(), "bob", "one");
    set_up(&mut busy);
    let id = tacit_ids::MaterialId::numbered(1);
    assert_eq!(ask(&mut busy, &Request::Prepare { id, folder: None, of: None }), Reply::Go);
    assert_eq!(get(&mut alice, &path).json()["turn"], false);
    request(&mut alice, "GET", &format!("{path}?wait_s=60"), "", "");
    drop(busy);
    assert_eq!(answer(&mut alice).json(), json!({"name": name, "state": "announced", "inputs": 1, "turn": true}));
    // Its phases come over the protocol, under its name.
    let mut client = server.client(dir.path(), "alice", "one");
    let name = tacit_client::wire::InputId(u64::from_str_radix(&name, 16).unwrap());
    let taken = client.take_up(client.again().unwrap(), name).unwrap();
    wait_until("its material is made", || get(&mut alice, &path).json()["state"] == "ready");
    let answered = client.infer_announced(taken, tacit_graph::Units::Network, &X).unwrap();
    assert!(answered.values == expected(1, &X));
    assert!(answered.prepared.is_some());
    assert_eq!(get(&mut alice, &path).status, 404, "it has ended");
    // Taken back, by its client alone, once.
    let second = announce(&mut alice, r#"{"model": "one", "backend": "toy"}"#).json();
    let path = format!("/v1/inputs/{}", second["name"].as_str().unwrap());
    for (is_hers, status) in [(false, 404), (true, 204), (true, 404)] {
        let stream = if is_hers { &mut alice } else { &mut bob };
        request(stream, "DELETE", &path, "", "");
        assert_eq!(answer(stream).status, status);
    }
}

#[test]
fn what_was_announced_to_a_server_that_was_started_anew_is_lost_and_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let noted = announce(&mut server.http(dir.path(), "alice"), r#"{"model": "one", "backend": "toy"}"#);
    let path = format!("/v1/inputs/{}", noted.json()["name"].as_str().unwrap());
    drop(server);
    let server = Running::start(dir.path(), |_| {});
    let lost = get(&mut server.http(dir.path(), "alice"), &path);
    assert!(lost.status == 404);
    assert!(lost.json()["error"].as_str().unwrap().ends_with("it is lost"));
}

#[test]
fn no_notice_is_kept_for_longer_than_the_server_keeps_any() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |config| config.notice_ttl = Duration::from_millis(50));
    let mut http = server.http(dir.path(), "alice");
    let week = r#"{"model": "one", "backend": "toy", "expected_s": 604800, "ttl_s": 604800}"#;
    let noted = announce(&mut http, week);
    let path = format!("/v1/inputs/{}", noted.json()["name"].as_str().unwrap());
    wait_until("it is forgotten", || get(&mut http, &path).status == 404);
}

#[test]
fn what_was_made_for_a_notice_is_there_for_its_request() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut http = server.http(dir.path(), "alice");
    let noted = announce(&mut http, r#"{"model": "one", "backend": "toy"}"#);
    let path = format!("/v1/inputs/{}", noted.json()["name"].as_str().unwrap());
    let name = u64::from_str_radix(path.rsplit('/').next().unwrap(), 16).unwrap();
    let mut channel = server.opened(dir.path(), "alice", "one");
    set_up(&mut channel);
    let notice = Some(tacit_client::wire::InputId(name));
    let id = tacit_ids::MaterialId::numbered(1);
    assert_eq!(ask(&mut channel, &Request::Prepare { id, folder: None, of: notice }), Reply::Go);
    channel.send(tacit_net::Tag::new(0xf101, "toy pad"), &[1; 8]).unwrap();
    channel.flush().unwrap();
    assert!(matches!(tacit_client::wire::recv_reply(&mut channel).unwrap(), Reply::Done { .. }));
    assert_eq!(get(&mut http, &path).json()["state"], "ready");
    // The notice's name tells of the request from now on.
    let (name, terms) = (tacit_client::wire::InputId(!name), Default::default());
    let asking = tacit_client::wire::Ask { name, notice, material: None, terms };
    assert_eq!(ask(&mut channel, &Request::Ask(asking)), Reply::Noted { notice_ignored: None });
    assert_eq!(get(&mut http, &path).json()["state"], "ready");
}

#[test]
fn events_come_until_the_server_stops() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut ops = server.http(dir.path(), "ops");
    request(&mut ops, "GET", "/v1/events", "", "");
    let head = head(&mut ops);
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

/// A TLS configuration of `alice` that speaks what it is told to.
fn speaking(dir: &Path, spoken: &[&str]) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("keys/ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(dir.join("keys/alice.pem")).unwrap()],
            PrivateKeyDer::from_pem_file(dir.join("keys/alice.key")).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = spoken.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

#[test]
fn http_2_answers_several_requests_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(several_requests(&server.address, speaking(dir.path(), &["h2", "http/1.1"])));
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
fn who_speaks_something_else_or_has_no_interface_to_speak_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.max_control = 0);
    let other = tempfile::tempdir().unwrap();
    let with = Running::start(other.path(), |_| {});
    for (server, dir, spoken) in
        [(&server, &dir, vec!["h2", "http/1.1"]), (&with, &other, vec!["h3"]), (&with, &other, vec![])]
    {
        let config = Arc::new(speaking(dir.path(), &spoken));
        let session = rustls::ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        let mut stream = rustls::StreamOwned::new(session, std::net::TcpStream::connect(&server.address).unwrap());
        stream.sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = stream.write_all(b"GET /v1/health/live HTTP/1.1\r\nhost: x\r\n\r\n");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        assert!(bytes.is_empty(), "{spoken:?} {bytes:?}");
    }
    let mut client = server.client(dir.path(), "alice", "one");
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
}
