//! Who may use what: models, quotas, rates and revocation, across restarts and while jobs run; and what is
//! written down.
use crate::common::*;
use rusqlite::Connection;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tacit_backends::Backend;
use tacit_client::wire::{REQUEST, Reply, Request, recv_reply, send};
use tacit_client::{Client, ClientError};
use tacit_ids::{ClientId, MaterialId};
use tacit_net::{Channel, Hello, Tag, handshake};
use tacit_serve::{ServeError, Server, ServerConfig};
use tacit_store::{Party, Store, keys};

const PAD: Tag = Tag::new(0xf101, "toy pad");
const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

fn who(dir: &Path, name: &str) -> ClientId {
    keys::load_client(&dir.join("keys"), name).unwrap().fingerprint
}

fn start(dir: &Path, access: &Path) -> Running {
    Running::start(dir, |config| config.access = Some(access.to_owned()))
}

fn refused<T>(result: Result<T, ClientError>) -> String {
    match result {
        Err(ClientError::Refused { reason, .. }) => reason,
        Err(e) => panic!("not refused, but {e:?}"),
        Ok(_) => panic!("not refused"),
    }
}

fn db(dir: &Path) -> Connection {
    Connection::open(dir.join("server-material/server.sqlite")).unwrap()
}

fn count(dir: &Path, sql: &str) -> i64 {
    db(dir).query_row(sql, [], |row| row.get(0)).unwrap()
}

/// What a client hears that greets in vain.
fn greeting(server: &Running, dir: &Path, name: &str) -> Reply {
    let mut channel = Channel::new(Box::new(server.tls(dir, name)));
    handshake(&mut channel, &Hello::opening()).unwrap();
    recv_reply(&mut channel).unwrap()
}

fn infer(client: &mut Client) -> Result<(), ClientError> {
    client.infer(&X).map(|answer| assert_eq!(answer.values, expected(1, &X)))
}

#[test]
fn models_that_are_not_on_the_list_do_not_exist() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "models = ['one']");
    let server = start(dir.path(), &access);
    let names = |name: &str| {
        let models = server.connection(dir.path(), name).models().unwrap();
        models.into_iter().map(|model| model.name).collect::<Vec<_>>()
    };
    assert_eq!((names("alice"), names("bob")), (vec!["one".into()], vec!["one".to_owned(), "two".into()]));
    let mut channel = server.greeted(dir.path(), "alice");
    let open = Request::Open { model: "two".into(), backend: "toy".into(), device: DEVICE };
    let Reply::Refused { reason, .. } = ask(&mut channel, &open) else { panic!("opened") };
    assert!(reason.contains("no model `two`; there are: one"), "{reason}");
    assert!(!reason.contains("one, two"), "{reason}");
    let models = |name| get(&mut server.http(dir.path(), name), "/v1/models");
    assert!(models("alice").contains("\"one\""), "{}", models("alice"));
    assert!(!models("alice").contains("\"two\""), "{}", models("alice"));
    assert!(models("ops").contains("\"two\""));
    // What is open already is of no further use when the rules change.
    let (mut alice, mut bob) = (server.client(dir.path(), "alice", "one"), server.client(dir.path(), "bob", "one"));
    infer(&mut alice).unwrap();
    rules(dir.path(), "", "models = []");
    server.handle.reload_access().unwrap();
    assert!(refused(infer(&mut alice)).contains("no longer offered"));
    infer(&mut bob).unwrap();
}

/// A model that says the class and nothing else.
fn class_alone(salt: u8) -> tacit_graph::Model {
    let mut model = model(salt);
    model.interface.output_mode = tacit_graph::OutputMode::Top1;
    model.interface.output_shape = vec![1];
    model
}

#[test]
fn the_same_network_twice_and_who_may_have_more_than_the_class() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "answers = 'top-1'", "answers = 'all'");
    let mut catalog = catalog();
    let toy = Toy::default();
    catalog.offer("one-class", &toy, toy.lower(&class_alone(1), &"".parse().unwrap()).unwrap()).unwrap();
    let server = Running::with(dir.path(), catalog, |config| config.access = Some(access.clone()));
    let names = |name: &str| {
        let models = server.connection(dir.path(), name).models().unwrap();
        models.into_iter().map(|model| model.name).collect::<Vec<_>>()
    };
    assert_eq!(
        (names("alice"), names("bob")),
        (vec!["one".into(), "one-class".into(), "two".into()], vec!["one-class".to_owned()])
    );
    let best = |values: &[f64]| if values[1] > values[0] { 1.0 } else { 0.0 };
    assert_eq!(server.client(dir.path(), "bob", "one-class").infer(&X).unwrap().values, [best(&expected(1, &X))]);
    let mut alice = server.client(dir.path(), "alice", "one");
    infer(&mut alice).unwrap();
    let mut channel = server.greeted(dir.path(), "bob");
    let open = Request::Open { model: "one".into(), backend: "toy".into(), device: DEVICE };
    let Reply::Refused { reason, .. } = ask(&mut channel, &open) else { panic!("opened") };
    assert!(reason.contains("no model `one`; there are: one-class"), "{reason}");
    // One that is open already is of no further use when less is allowed.
    rules(dir.path(), "answers = 'top-1'", "rate_per_minute = 1000");
    server.handle.reload_access().unwrap();
    assert!(refused(infer(&mut alice)).contains("no longer offered"));
}

#[test]
fn a_quota_is_refused_before_material_is_claimed_and_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "queries_per_day = 100", "queries_per_day = 2");
    let mut server = start(dir.path(), &access);
    let mut client = server.client(dir.path(), "alice", "one");
    for _ in 0..3 {
        client.prepare().unwrap();
    }
    infer(&mut client).unwrap();
    drop((client, server));
    server = start(dir.path(), &access);
    let mut client = server.client(dir.path(), "alice", "one");
    infer(&mut client).unwrap();
    let reason = refused(infer(&mut client));
    assert!(reason.contains("quota of 2 answers a day of model `one`"), "{reason}");
    assert!(reason.contains("midnight UTC"), "{reason}");
    let store = Store::open(&dir.path().join("server-material"), Party::Server, None).unwrap();
    assert_eq!(store.list_of(who(dir.path(), "alice")).unwrap().len(), 1, "what was refused is not used up");
    assert_eq!(client.stored().unwrap().len(), 1, "at neither party");
    drop((client, store));
    // Another model and another client have quotas of their own.
    server.client(dir.path(), "alice", "two").infer(&X).unwrap();
    infer(&mut server.client(dir.path(), "bob", "one")).unwrap();
    assert_eq!(server.client(dir.path(), "bob", "one").stored().unwrap().len(), 0);
    server.settle();
    drop(server);
    assert_eq!(count(dir.path(), "SELECT sum(answers) FROM usage"), 4);
}

#[test]
fn an_input_that_comes_straight_is_refused_too_and_its_material_stays() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "queries_per_day = 0");
    let server = start(dir.path(), &access);
    let mut channel = server.opened(dir.path(), "alice", "one");
    set_up(&mut channel);
    let id = MaterialId::numbered(1);
    for _ in 0..3 {
        let Reply::Refused { reason, .. } = ask(&mut channel, &Request::Infer { id: Some(id), of: None }) else {
            panic!("answered")
        };
        assert!(reason.contains("quota of 0"), "{reason}");
    }
    drop(channel);
    let mut operator = server.http(dir.path(), "ops");
    let metrics = get(&mut operator, "/metrics");
    assert!(metrics.contains("tacit_refusals_total{name=\"requests over a daily quota\"} 3"), "{metrics}");
}

/// The answer of the control interface.
fn get(connection: &mut (impl Read + Write), path: &str) -> String {
    let mut answer = Vec::new();
    // The other end may have closed, and without TLS's goodbye.
    let _ = write!(connection, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn an_input_that_leaves_the_queue_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "queries_per_day = 1");
    let server = Running::start(dir.path(), |config| {
        config.access = Some(access);
        config.cores = 1;
        config.sign_of_life = Duration::from_millis(50);
    });
    let [mut holder, mut queued] = ["bob", "alice"].map(|name| server.opened(dir.path(), name, "one"));
    [&mut holder, &mut queued].into_iter().for_each(set_up);
    let infer = Request::Infer { id: Some(MaterialId::numbered(9)), of: None };
    let prepare = Request::Prepare { id: MaterialId::numbered(1), folder: None, of: None };
    assert_eq!(ask(&mut holder, &prepare), Reply::Go);
    assert!(matches!(ask(&mut queued, &infer), Reply::Waiting { .. }));
    let mut second = server.opened(dir.path(), "alice", "one");
    let reason = ask(&mut second, &infer);
    assert!(matches!(&reason, Reply::Refused { reason, .. } if reason.contains("used up")), "set aside: {reason:?}");
    drop((queued, second));
    wait_until("she is gone", || server.handle.connections() == 1);
    drop(holder);
    let mut client = server.client(dir.path(), "alice", "one");
    client.infer(&X).unwrap();
    assert!(refused(client.infer(&X)).contains("used up"));
}

#[test]
fn an_answer_is_written_down_before_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "queries_per_day = 1");
    let server = start(dir.path(), &access);
    let mut channel = server.opened(dir.path(), "alice", "one");
    set_up(&mut channel);
    let id = MaterialId::numbered(1);
    assert_eq!(ask(&mut channel, &Request::Prepare { id, folder: None, of: None }), Reply::Go);
    channel.send(PAD, &[1; 8]).unwrap();
    channel.flush().unwrap();
    assert!(matches!(recv_reply(&mut channel).unwrap(), Reply::Done { .. }));
    assert_eq!(count(dir.path(), "SELECT count(*) FROM usage"), 0);
    assert_eq!(ask(&mut channel, &Request::Infer { id: Some(id), of: None }), Reply::Go);
    assert_eq!(count(dir.path(), "SELECT sum(answers) FROM usage"), 1, "nothing of the answer was sent yet");
    drop(channel);
    wait_until("she is gone", || server.handle.connections() == 0);
    assert!(refused(infer(&mut server.client(dir.path(), "alice", "one"))).contains("used up"), "broken off counts");
}

#[test]
fn a_clock_that_went_back_resets_no_quota() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "queries_per_day = 1");
    let server = start(dir.path(), &access);
    infer(&mut server.client(dir.path(), "alice", "one")).unwrap();
    drop(server);
    // As if the clock had been two days ahead until now.
    assert_eq!(db(dir.path()).execute("UPDATE usage SET day = day + 2", []).unwrap(), 1);
    let server = start(dir.path(), &access);
    let reason = refused(infer(&mut server.client(dir.path(), "alice", "one")));
    assert!(reason.contains("used up"), "{reason}");
    drop(server);
    // As if it had been used up days ago.
    assert_eq!(db(dir.path()).execute("UPDATE usage SET day = day - 4", []).unwrap(), 1);
    infer(&mut start(dir.path(), &access).client(dir.path(), "alice", "one")).unwrap();
}

#[test]
fn revocation_ends_all_that_a_client_has_while_a_job_runs() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "");
    let server = Running::start(dir.path(), |config: &mut ServerConfig| {
        config.access = Some(access.clone());
        config.cores = 1;
    });
    let mut stocked = server.client(dir.path(), "alice", "one");
    stocked.prepare().unwrap();
    drop(stocked);
    server.client(dir.path(), "bob", "one").prepare().unwrap();
    let mut visitor = server.http(dir.path(), "alice");
    let [mut running, mut other] = ["alice", "bob"].map(|name| server.opened(dir.path(), name, "one"));
    let mut idle = server.greeted(dir.path(), "alice");
    [&mut running, &mut other].into_iter().for_each(set_up);
    let prepare = |id| Request::Prepare { id: MaterialId::numbered(id), folder: None, of: None };
    assert_eq!(ask(&mut running, &prepare(1)), Reply::Go);
    send(&mut other, REQUEST, &prepare(2)).unwrap();
    rules(dir.path(), "", "revoked = true");
    server.handle.reload_access().unwrap();
    // Her core is another's now.
    assert_eq!(turn(&mut other), Reply::Go);
    assert!(recv_reply(&mut running).is_err(), "cut");
    assert!(recv_reply(&mut idle).is_err(), "cut");
    assert_eq!(get(&mut visitor, "/v1/status"), "", "so is HTTP");
    let reason = greeting(&server, dir.path(), "alice");
    assert!(matches!(&reason, Reply::Refused { reason, .. } if reason.contains("revoked")), "{reason:?}");
    let mut answer = String::new();
    // It is said before anything is asked; the other end may close without TLS's goodbye.
    let _ = server.http(dir.path(), "alice").read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("revoked"), "{answer}");
    let store = Store::open(&dir.path().join("server-material"), Party::Server, None).unwrap();
    let [alice, bob] = ["alice", "bob"].map(|name| who(dir.path(), name));
    wait_until("her material is destroyed", || store.list_of(alice).unwrap().is_empty());
    assert_eq!(store.list_of(bob).unwrap().len(), 1);
    // Taken back, she is a client again.
    rules(dir.path(), "", "");
    server.handle.reload_access().unwrap();
    drop(other);
    infer(&mut server.client(dir.path(), "alice", "one")).unwrap();
}

#[test]
fn a_certificate_is_revoked_by_its_serial_number_and_its_client_goes_on_with_another() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "");
    let keys_dir = dir.path().join("keys");
    let server = start(dir.path(), &access);
    let mut stocked = server.client(dir.path(), "alice", "one");
    stocked.prepare().unwrap();
    drop(stocked);
    let mut visitor = server.http(dir.path(), "alice");
    assert!(get(&mut visitor, "/v1/health/live").contains("live"));
    let [mut hers, mut his] = ["alice", "bob"].map(|name| server.greeted(dir.path(), name));
    let serial = keys::show(&keys_dir, Some("alice")).unwrap().remove(0).serial.to_string();
    fs::write(&access, format!("[revoked]\nserials = [\"{}\"]\n", serial.to_uppercase())).unwrap();
    server.handle.reload_access().unwrap();
    assert!(recv_reply(&mut hers).is_err(), "cut");
    assert_eq!(get(&mut visitor, "/v1/status"), "", "so is HTTP");
    let reason = greeting(&server, dir.path(), "alice");
    let says = |reason: &str| reason.contains("this certificate was revoked, by its serial number");
    assert!(matches!(&reason, Reply::Refused { reason, .. } if says(reason)), "{reason:?}");
    let mut answer = String::new();
    // It is said before anything is asked; the other end may close without TLS's goodbye.
    let _ = server.http(dir.path(), "alice").read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(says(&answer), "{answer}");
    assert!(matches!(ask(&mut his, &Request::List), Reply::Models(_)), "others are as before");
    // Her key is as good as it was, with a new certificate, and so is what is bound to it.
    keys::renew(&keys_dir, "alice", None).unwrap();
    let mut alice = server.client(dir.path(), "alice", "one");
    assert_eq!(alice.stored().unwrap().len(), 1);
    infer(&mut alice).unwrap();
}

/// The next answer that says more than that the server lives.
fn turn(channel: &mut Channel) -> Reply {
    loop {
        match recv_reply(channel).unwrap() {
            Reply::Waiting { .. } => {}
            reply => return reply,
        }
    }
}

#[test]
fn who_was_revoked_while_the_server_was_down_has_nothing_left() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "");
    let server = start(dir.path(), &access);
    for name in ["alice", "bob"] {
        server.client(dir.path(), name, "one").prepare().unwrap();
    }
    drop(server);
    rules(dir.path(), "revoked = true", "revoked = false");
    let server = start(dir.path(), &access);
    assert!(matches!(greeting(&server, dir.path(), "bob"), Reply::Refused { .. }), "only those named");
    assert_eq!(server.client(dir.path(), "alice", "one").stored().unwrap().len(), 1);
    drop(server);
    let store = Store::open(&dir.path().join("server-material"), Party::Server, None).unwrap();
    assert!(store.list_of(who(dir.path(), "bob")).unwrap().is_empty());
}

#[test]
fn a_bad_file_is_an_error_at_the_start_and_changes_nothing_later() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "models = ['one']");
    let server = start(dir.path(), &access);
    rules(dir.path(), "querys_per_day = 5", "");
    let error = server.handle.reload_access().unwrap_err();
    assert!(matches!(&error, ServeError::Access { path, .. } if *path == access), "{error}");
    assert_eq!(server.connection(dir.path(), "alice").models().unwrap().len(), 1, "the old rules hold");
    let mut config =
        ServerConfig::new("127.0.0.1:0".parse().unwrap(), keys::load_server(&dir.path().join("keys")).unwrap());
    config.access = Some(access);
    let error = Server::bind(catalog(), config.clone()).err().unwrap().to_string();
    assert!(error.contains("line 2, `querys_per_day = 5`: unknown field `querys_per_day`"), "{error}");
    config.access = Some(dir.path().join("none.toml"));
    let error = Server::bind(catalog(), config).err().unwrap().to_string();
    assert!(error.contains("none.toml"), "{error}");
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn ended_phases_are_written_down_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let name = server.client(dir.path(), "alice", "one").infer(&X).unwrap().name;
    let mut broken = server.opened(dir.path(), "bob", "two");
    set_up(&mut broken);
    let [done, never] = [1, 2].map(MaterialId::numbered);
    assert_eq!(ask(&mut broken, &Request::Prepare { id: done, folder: None, of: None }), Reply::Go);
    drop(broken);
    server.settle();
    let mut refused = server.opened(dir.path(), "bob", "two");
    set_up(&mut refused);
    for _ in 0..100 {
        assert!(matches!(ask(&mut refused, &Request::Infer { id: Some(never), of: None }), Reply::Refused { .. }));
    }
    drop(refused);
    drop(server);
    // Both phases of an input are found by the name that its client knows, and nothing else has it.
    assert_eq!(
        count(dir.path(), &format!("SELECT count(*) FROM audit WHERE input = '{name}' AND outcome = 'done'")),
        2
    );
    assert_eq!(count(dir.path(), "SELECT count(*) FROM audit WHERE input IS NOT NULL"), 2);
    let path = dir.path().join("server-material/server.sqlite");
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let rows = |name: &str, condition: &str| {
        let sql = format!(
            "SELECT count(*) FROM audit WHERE hex(client) = upper('{}') AND {condition}",
            who(dir.path(), name)
        );
        count(dir.path(), &sql)
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
fn what_was_learned_of_a_phase_is_the_first_estimate_of_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        Running::start(dir.path(), |config| {
            (config.job_memory, config.cores) = (1 << 39, 4);
        })
    };
    let server = start();
    infer(&mut server.client(dir.path(), "alice", "one")).unwrap();
    drop(server);
    assert_eq!(count(dir.path(), "SELECT count(*) FROM profile WHERE seconds > 0 AND threads = 1"), 2);
    // Larger than all that jobs may take now: it has run, so it is not refused, but nothing runs beside it.
    db(dir.path()).execute("UPDATE profile SET memory = ? WHERE phase = 'offline'", [1i64 << 40]).unwrap();
    let server = start();
    let [mut first, mut second] = ["alice", "alice"].map(|who| server.opened(dir.path(), who, "one"));
    let prepare = |id| Request::Prepare { id: MaterialId::numbered(id), folder: None, of: None };
    [&mut first, &mut second].into_iter().for_each(set_up);
    assert_eq!(ask(&mut first, &prepare(1)), Reply::Go);
    assert!(matches!(ask(&mut second, &prepare(2)), Reply::Waiting { .. }));
    drop(first);
    while recv_reply(&mut second).unwrap() != Reply::Go {}
}

#[test]
fn records_that_cannot_be_kept_stop_only_quotas() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "rate_per_minute = 100");
    drop(start(dir.path(), &access));
    fs::write(dir.path().join("server-material/server.sqlite"), "no database, but long enough for a header".repeat(9))
        .unwrap();
    infer(&mut start(dir.path(), &access).client(dir.path(), "alice", "one")).unwrap();
    let mut config =
        ServerConfig::new("127.0.0.1:0".parse().unwrap(), keys::load_server(&dir.path().join("keys")).unwrap());
    config.store = Some(dir.path().join("server-material"));
    config.access = Some(rules(dir.path(), "", "queries_per_day = 1"));
    let error = Server::bind(catalog(), config).err().unwrap();
    assert!(matches!(&error, ServeError::State { what, .. } if what.contains("not a database")), "{error}");
}

#[test]
fn without_a_folder_rules_hold_as_long_as_the_server_runs() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "queries_per_day = 1");
    let server = Running::start(dir.path(), |config| {
        config.access = Some(access);
        config.store = None;
    });
    let mut client = server.client(dir.path(), "alice", "one");
    infer(&mut client).unwrap();
    assert!(refused(infer(&mut client)).contains("used up"));
    assert!(!dir.path().join("server-material").exists());
}
