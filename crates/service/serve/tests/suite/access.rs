//! Access rules: models, quotas, rates and revocation, across restarts and while jobs run; and the audit.
use crate::by_hand::{infer_with, prepare, server_state};
use crate::common::*;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tacit_backends::Backend;
use tacit_client::wire::{REQUEST, Reply, Request, recv_reply, send};
use tacit_client::{Client, ClientError};
use tacit_ids::MaterialId;
use tacit_net::{Channel, Hello, handshake};
use tacit_serve::{ServeError, Server, ServerConfig};
use tacit_store::keys;

fn start(dir: &Path, access: &Path) -> Running {
    Running::start_in(dir, |config| config.access = Some(access.to_owned()))
}

fn refused<T>(result: Result<T, ClientError>) -> String {
    match result {
        Err(ClientError::Refused { reason, .. }) => reason,
        Err(e) => panic!("not refused, but {e:?}"),
        Ok(_) => panic!("not refused"),
    }
}

fn count(dir: &Path, sql: &str) -> i64 {
    server_state(dir).query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The reply to a client's greeting.
fn greeting_reply(server: &Running, name: &str) -> Reply {
    let mut channel = Channel::new(Box::new(server.tls(name)));
    handshake(&mut channel, &Hello::without_model()).unwrap();
    recv_reply(&mut channel).unwrap()
}

/// Asks model `one` and checks its answer.
pub fn infer(client: &mut Client) -> Result<(), ClientError> {
    client.infer(&X).map(|answer| assert_eq!(answer.values, expected(1, &X)))
}

fn offered(server: &Running, name: &str) -> Vec<String> {
    let models = server.connection(name).models().unwrap();
    models.into_iter().map(|model| model.name).collect()
}

#[test]
fn hides_models_not_allowed() {
    let server = Running::start_with_rules("", "models = ['one']", |_| {});
    assert_eq!(offered(&server, "alice"), ["one"]);
    assert_eq!(offered(&server, "bob"), ["one", "two"]);
    let mut channel = server.greeted("alice");
    let open = Request::Open { model: "two".into(), backend: "toy".into(), device: DEVICE };
    let Reply::Refused { reason, .. } = ask(&mut channel, &open) else { panic!("opened") };
    assert!(reason.contains("no model `two`; there are: one"), "{reason}");
    assert!(!reason.contains("one, two"), "{reason}");
    let models = |name| get(&mut server.http(name), "/v1/models");
    check_contains(&models("alice"), &["\"one\""]);
    assert!(!models("alice").contains("\"two\""), "{}", models("alice"));
    check_contains(&models("ops"), &["\"two\""]);
    // New rules hold for models that are open.
    let (mut alice, mut bob) = (server.client("alice", "one"), server.client("bob", "one"));
    infer(&mut alice).unwrap();
    server.change_rules("", "models = []");
    assert!(refused(infer(&mut alice)).contains("no longer offered"));
    infer(&mut bob).unwrap();
}

/// A model whose answers are the class alone.
fn class_alone(salt: u8) -> tacit_graph::Model {
    let mut model = model(salt);
    model.interface.output_mode = tacit_graph::OutputMode::Top1;
    model.interface.output_shape = vec![1];
    model
}

#[test]
fn offers_scores_only_to_allowed_clients() {
    let dir = Folder::new();
    let access = write_rules(&dir, "answers = 'top-1'", "answers = 'all'");
    let mut catalog = catalog();
    let toy = Toy::default();
    catalog.offer("one-class", &toy, toy.lower(&class_alone(1), &"".parse().unwrap()).unwrap()).unwrap();
    let server = Running::serving_in(&dir, catalog, |config| config.access = Some(access.clone()));
    assert_eq!(offered(&server, "alice"), ["one", "one-class", "two"]);
    assert_eq!(offered(&server, "bob"), ["one-class"]);
    let best = |values: &[f64]| if values[1] > values[0] { 1.0 } else { 0.0 };
    assert_eq!(server.client("bob", "one-class").infer(&X).unwrap().values, [best(&expected(1, &X))]);
    let mut alice = server.client("alice", "one");
    infer(&mut alice).unwrap();
    let open = Request::Open { model: "one".into(), backend: "toy".into(), device: DEVICE };
    check_refused(&ask(&mut server.greeted("bob"), &open), "no model `one`; there are: one-class");
    // New rules hold for models that are open.
    server.change_rules("answers = 'top-1'", "rate_per_minute = 1000");
    assert!(refused(infer(&mut alice)).contains("no longer offered"));
}

#[test]
fn quota_costs_no_material_and_outlives_restart() {
    let dir = Folder::new();
    let access = write_rules(&dir, "queries_per_day = 100", "queries_per_day = 2");
    let mut server = start(&dir, &access);
    let mut client = server.client("alice", "one");
    for _ in 0..3 {
        client.prepare().unwrap();
    }
    infer(&mut client).unwrap();
    drop((client, server));
    server = start(&dir, &access);
    let mut client = server.client("alice", "one");
    infer(&mut client).unwrap();
    let reason = refused(infer(&mut client));
    check_contains(&reason, &["quota of 2 answers a day of model `one`", "midnight UTC"]);
    assert_eq!(server_store(&dir).list_of(identity(&dir, "alice").fingerprint).unwrap().len(), 1);
    assert_eq!(client.list_stored().unwrap().len(), 1);
    drop(client);
    // Quotas are by client and model.
    server.client("alice", "two").infer(&X).unwrap();
    infer(&mut server.client("bob", "one")).unwrap();
    assert_eq!(server.client("bob", "one").list_stored().unwrap().len(), 0);
    server.settle();
    drop(server);
    assert_eq!(count(&dir, "SELECT sum(answers) FROM usage"), 4);
}

#[test]
fn refuses_unannounced_input_over_quota() {
    let server = Running::start_with_rules("", "queries_per_day = 0", |_| {});
    let mut channel = server.ready_channel("alice");
    for _ in 0..3 {
        check_refused(&ask(&mut channel, &infer_with(MaterialId::numbered(1))), "quota of 0");
    }
    drop(channel);
    let metrics = get(&mut server.http("ops"), "/metrics");
    check_contains(&metrics, &["tacit_refusals_total{name=\"requests over a daily quota\"} 3"]);
}

/// The answer of the control interface, as far as it comes.
fn get(connection: &mut (impl Read + Write), path: &str) -> String {
    let mut answer = Vec::new();
    // The server may have closed the connection without an alert.
    let _ = write!(connection, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn input_that_leaves_queue_costs_no_quota() {
    let server = Running::start_with_rules("", "queries_per_day = 1", |config| {
        config.cores = 1;
        config.sign_of_life = Duration::from_millis(50);
    });
    let [mut holder, mut queued] = ["bob", "alice"].map(|name| server.ready_channel(name));
    let infer = infer_with(MaterialId::numbered(9));
    assert_eq!(ask(&mut holder, &prepare(1)), Reply::Go);
    assert!(matches!(ask(&mut queued, &infer), Reply::Waiting { .. }));
    let mut second = server.opened("alice", "one");
    check_refused(&ask(&mut second, &infer), "used up");
    drop((queued, second));
    wait_until("alice is gone", || server.handle.connections() == 1);
    drop(holder);
    let mut client = server.client("alice", "one");
    client.infer(&X).unwrap();
    assert!(refused(client.infer(&X)).contains("used up"));
}

#[test]
fn counts_answer_before_it_begins() {
    let server = Running::start_with_rules("", "queries_per_day = 1", |_| {});
    let mut channel = server.ready_channel("alice");
    assert_eq!(ask(&mut channel, &prepare(1)), Reply::Go);
    finish_offline(&mut channel);
    assert_eq!(count(&server.dir, "SELECT count(*) FROM usage"), 0);
    assert_eq!(ask(&mut channel, &infer_with(MaterialId::numbered(1))), Reply::Go);
    // No byte of the answer has been sent.
    assert_eq!(count(&server.dir, "SELECT sum(answers) FROM usage"), 1);
    drop(channel);
    wait_until("alice is gone", || server.handle.connections() == 0);
    assert!(refused(infer(&mut server.client("alice", "one"))).contains("used up"));
}

#[test]
fn clock_set_back_resets_no_quota() {
    let dir = Folder::new();
    let access = write_rules(&dir, "", "queries_per_day = 1");
    let server = start(&dir, &access);
    infer(&mut server.client("alice", "one")).unwrap();
    drop(server);
    // As if the clock had been two days ahead.
    assert_eq!(server_state(&dir).execute("UPDATE usage SET day = day + 2", []).unwrap(), 1);
    let server = start(&dir, &access);
    check_contains(&refused(infer(&mut server.client("alice", "one"))), &["used up"]);
    drop(server);
    // As if the quota had been used up days ago.
    assert_eq!(server_state(&dir).execute("UPDATE usage SET day = day - 4", []).unwrap(), 1);
    infer(&mut start(&dir, &access).client("alice", "one")).unwrap();
}

#[test]
fn revocation_ends_running_job_and_burns_material() {
    let server = Running::start_with_rules("", "", |config| config.cores = 1);
    server.client("alice", "one").prepare().unwrap();
    server.client("bob", "one").prepare().unwrap();
    let mut visitor = server.http("alice");
    let [mut running, mut other] = ["alice", "bob"].map(|name| server.opened(name, "one"));
    let mut idle = server.greeted("alice");
    [&mut running, &mut other].into_iter().for_each(set_up);
    assert_eq!(ask(&mut running, &prepare(1)), Reply::Go);
    send(&mut other, REQUEST, &prepare(2)).unwrap();
    server.change_rules("", "revoked = true");
    // Bob gets the core of Alice's job.
    assert_eq!(next_reply(&mut other), Reply::Go);
    for cut in [&mut running, &mut idle] {
        assert!(recv_reply(cut).is_err());
    }
    assert_eq!(get(&mut visitor, "/v1/status"), "");
    check_is_refused(&server, "alice", "revoked");
    let store = server_store(&server.dir);
    let [alice, bob] = ["alice", "bob"].map(|name| identity(&server.dir, name).fingerprint);
    wait_until("alice's material is destroyed", || store.list_of(alice).unwrap().is_empty());
    assert_eq!(store.list_of(bob).unwrap().len(), 1);
    server.change_rules("", "");
    drop(other);
    infer(&mut server.client("alice", "one")).unwrap();
}

/// Checks that a client is refused for this reason, over both protocols and before it asks anything.
fn check_is_refused(server: &Running, name: &str, reason: &str) {
    check_refused(&greeting_reply(server, name), reason);
    let mut answer = String::new();
    // The server may close the connection without an alert.
    let _ = server.http(name).read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    check_contains(&answer, &[reason]);
}

#[test]
fn revokes_certificate_by_serial_number() {
    let server = Running::start_with_rules("", "", |_| {});
    let keys_dir = server.dir.join("keys");
    server.client("alice", "one").prepare().unwrap();
    let mut visitor = server.http("alice");
    assert!(get(&mut visitor, "/v1/health/live").contains("live"));
    let [mut alice, mut bob] = ["alice", "bob"].map(|name| server.greeted(name));
    let serial = keys::show(&keys_dir, Some("alice")).unwrap().remove(0).serial.to_string();
    let revocation = format!("[revoked]\nserials = [\"{}\"]\n", serial.to_uppercase());
    fs::write(server.dir.join("access.toml"), revocation).unwrap();
    server.handle.reload_access().unwrap();
    assert!(recv_reply(&mut alice).is_err());
    assert_eq!(get(&mut visitor, "/v1/status"), "");
    check_is_refused(&server, "alice", "this certificate was revoked, by its serial number");
    assert!(matches!(ask(&mut bob, &Request::List), Reply::Models(_)));
    // The material is bound to the key, which has a new certificate.
    keys::renew(&keys_dir, "alice", None).unwrap();
    let mut alice = server.client("alice", "one");
    assert_eq!(alice.list_stored().unwrap().len(), 1);
    infer(&mut alice).unwrap();
}

#[test]
fn restart_burns_material_of_revoked_clients() {
    let dir = Folder::new();
    let access = write_rules(&dir, "", "");
    let server = start(&dir, &access);
    for name in ["alice", "bob"] {
        server.client(name, "one").prepare().unwrap();
    }
    drop(server);
    write_rules(&dir, "revoked = true", "revoked = false");
    let server = start(&dir, &access);
    assert!(matches!(greeting_reply(&server, "bob"), Reply::Refused { .. }));
    assert_eq!(server.client("alice", "one").list_stored().unwrap().len(), 1);
    drop(server);
    assert!(server_store(&dir).list_of(identity(&dir, "bob").fingerprint).unwrap().is_empty());
}

#[test]
fn rejects_bad_access_file() {
    let dir = Folder::new();
    let access = write_rules(&dir, "", "models = ['one']");
    let server = start(&dir, &access);
    write_rules(&dir, "querys_per_day = 5", "");
    let error = server.handle.reload_access().unwrap_err();
    assert!(matches!(&error, ServeError::Access { path, .. } if *path == access), "{error}");
    assert_eq!(server.connection("alice").models().unwrap().len(), 1);
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), keys::load_server(&dir.join("keys")).unwrap());
    config.access = Some(access);
    let error = Server::bind(catalog(), config.clone()).err().unwrap().to_string();
    check_contains(&error, &["line 2, `querys_per_day = 5`: unknown field `querys_per_day`"]);
    config.access = Some(dir.join("none.toml"));
    let error = Server::bind(catalog(), config).err().unwrap().to_string();
    check_contains(&error, &["none.toml", "No such file"]);
}

#[test]
fn audits_ended_phases_only() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let name = server.client("alice", "one").infer(&X).unwrap().name;
    let mut broken = server.opened("bob", "two");
    set_up(&mut broken);
    assert_eq!(ask(&mut broken, &prepare(1)), Reply::Go);
    drop(broken);
    server.settle();
    let mut refused = server.opened("bob", "two");
    set_up(&mut refused);
    for _ in 0..100 {
        assert!(matches!(ask(&mut refused, &infer_with(MaterialId::numbered(2))), Reply::Refused { .. }));
    }
    drop(refused);
    drop(server);
    // The audit names an input in its two phases and nowhere else.
    assert_eq!(count(&dir, &format!("SELECT count(*) FROM audit WHERE input = '{name}' AND outcome = 'done'")), 2);
    assert_eq!(count(&dir, "SELECT count(*) FROM audit WHERE input IS NOT NULL"), 2);
    let metadata = fs::metadata(dir.join("server-material/server.sqlite")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let rows = |name: &str, condition: &str| {
        let client = identity(&dir, name).fingerprint;
        count(&dir, &format!("SELECT count(*) FROM audit WHERE hex(client) = upper('{client}') AND {condition}"))
    };
    for phase in ["setup", "offline", "online"] {
        let condition = format!("phase = '{phase}' AND outcome = 'done' AND model = 'one' AND backend = 'toy'");
        assert_eq!(rows("alice", &format!("{condition} AND run_s > 0 AND queued_s >= 0 AND sent + received > 0")), 1);
    }
    assert_eq!(rows("alice", "true"), 3);
    assert_eq!(rows("bob", "phase = 'offline' AND outcome = 'failed' AND sent IS NULL"), 1);
    let refused = rows("bob", "phase = 'online' AND outcome = 'refused'");
    assert!((1..100).contains(&refused), "a flood of refusals does not fill the disk: {refused}");
}

#[test]
fn estimates_outlive_restart() {
    let dir = Folder::new();
    let start = || Running::start_in(&dir, |config| (config.job_memory, config.cores) = (1 << 39, 4));
    let server = start();
    infer(&mut server.client("alice", "one")).unwrap();
    drop(server);
    assert_eq!(count(&dir, "SELECT count(*) FROM profile WHERE seconds > 0 AND threads = 1"), 2);
    // A phase that takes more than the memory of all jobs has run once, so it runs again, but alone.
    server_state(&dir).execute("UPDATE profile SET memory = ? WHERE phase = 'offline'", [1i64 << 40]).unwrap();
    let server = start();
    let [mut first, mut second] = [(); 2].map(|()| server.ready_channel("alice"));
    assert_eq!(ask(&mut first, &prepare(1)), Reply::Go);
    assert!(matches!(ask(&mut second, &prepare(2)), Reply::Waiting { .. }));
    drop(first);
    while recv_reply(&mut second).unwrap() != Reply::Go {}
}

#[test]
fn unusable_state_file_stops_only_quotas() {
    let dir = Folder::new();
    let access = write_rules(&dir, "", "rate_per_minute = 100");
    drop(start(&dir, &access));
    fs::write(dir.join("server-material/server.sqlite"), "no database, but long enough for a header".repeat(9))
        .unwrap();
    infer(&mut start(&dir, &access).client("alice", "one")).unwrap();
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), keys::load_server(&dir.join("keys")).unwrap());
    config.store = Some(dir.join("server-material"));
    config.access = Some(write_rules(&dir, "", "queries_per_day = 1"));
    let error = Server::bind(catalog(), config).err().unwrap();
    assert!(matches!(&error, ServeError::State { what, .. } if what.contains("not a database")), "{error}");
}

#[test]
fn quota_without_folder_lasts_as_long_as_server() {
    let server = Running::start_with_rules("", "queries_per_day = 1", |config| config.store = None);
    let mut client = server.client("alice", "one");
    infer(&mut client).unwrap();
    assert!(refused(infer(&mut client)).contains("used up"));
    assert!(!server.dir.join("server-material").exists());
}
