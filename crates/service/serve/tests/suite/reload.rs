//! Models and certificates that change while the server runs.
use crate::by_hand::prepare;
use crate::common::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tacit_backends::{Backend, ServerModel};
use tacit_client::wire::{Ask, InputId, REQUEST, Reply, Request, Terms, recv_reply, send};
use tacit_client::{ClientConfig, ClientError, Connection};
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{Channel, ServerTls};
use tacit_serve::{Catalog, Changes, Source, Unusable};
use tacit_store::keys::{self, Validity};

/// Models by name and salt.
type Models = Vec<(&'static str, u8)>;

/// A source of models and keys that a test changes.
#[derive(Clone)]
struct TestSource {
    models: Arc<Mutex<Result<Models, &'static str>>>,
    keys: PathBuf,
}

impl TestSource {
    fn new(dir: &Path, models: Models) -> Self {
        Self { models: Arc::new(Mutex::new(Ok(models))), keys: dir.join("keys") }
    }

    fn put(&self, models: Result<Models, &'static str>) {
        *self.models.lock().unwrap() = models;
    }
}

impl Source for TestSource {
    fn catalog(&mut self) -> Result<Catalog, Unusable> {
        let mut catalog = Catalog::new(false);
        for (name, salt) in self.models.lock().unwrap().clone()? {
            offer(&mut catalog, name, &Toy::default(), salt, "");
        }
        Ok(catalog)
    }

    fn identity(&mut self) -> Result<ServerTls, Unusable> {
        Ok(keys::load_server(&self.keys)?)
    }
}

fn start(dir: &Path, models: Models) -> (Running, TestSource) {
    let source = TestSource::new(dir, models);
    let server = Running::reloading(dir, source.clone().catalog().unwrap(), source.clone(), |_| {});
    (server, source)
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn material_count(dir: &Path) -> usize {
    material_files(&dir.join("server-material")).len()
}

/// Checks what a client learns whose model is gone.
fn check_told(error: &ClientError) {
    assert!(
        matches!(error, ClientError::Ended { reason, .. } if reason.contains("replaced or withdrawn") && reason.contains("connect again")),
        "{error:?}"
    );
}

#[test]
fn reloads_models_while_clients_run() {
    let dir = Folder::new();
    let (server, source) = start(&dir, vec![("one", 1), ("two", 2), ("three", 3)]);
    let [mut one, mut two] = ["one", "two"].map(|model| server.client("alice", model));
    one.prepare().unwrap();
    two.prepare().unwrap();
    server.client("alice", "three").prepare().unwrap();
    let mut bob = server.client("bob", "two");
    assert_eq!(material_count(&dir), 3);
    source.put(Ok(vec![("one", 7), ("two", 2), ("four", 4)]));
    let done = server.handle.reload().unwrap();
    let changes = Changes {
        added: names(&["four=toy"]),
        replaced: names(&["one=toy"]),
        withdrawn: names(&["three=toy"]),
        kept: names(&["two=toy"]),
    };
    assert!(done.models == changes, "{done:?}");
    assert!(done.certificates, "{done:?}");
    assert!(!done.access, "{done:?}");
    // A client that has a replaced model open must connect again.
    check_told(&one.infer(&X).unwrap_err());
    check_answer(&mut two, 2);
    assert!(bob.infer(&X).unwrap().prepared.is_some());
    let mut connection = server.connection("alice");
    let offered: Vec<String> = connection.models().unwrap().into_iter().map(|m| m.name).collect();
    assert_eq!(offered, ["four", "one", "two"]);
    check_answer(&mut server.client("bob", "one"), 7);
    check_answer(&mut server.client("bob", "four"), 4);
    let error = server.connection("bob").open("three", None).err().unwrap().to_string();
    assert!(error.contains("no model `three`"), "{error}");
    // A replaced model's material is destroyed; a withdrawn model may come back with its material.
    wait_until("material of what was replaced is destroyed", || material_count(&dir) == 1);
    source.put(Ok(vec![("three", 3), ("two", 2)]));
    let done = server.handle.reload().unwrap().models;
    assert_eq!((done.added, done.withdrawn), (names(&["three=toy"]), names(&["four=toy", "one=toy"])));
    let mut three = server.client("alice", "three");
    assert!(three.infer(&X).unwrap().prepared.is_none());
    check_answer(&mut two, 2);
}

#[test]
fn unusable_files_change_nothing() {
    let dir = Folder::new();
    let (server, source) = start(&dir, vec![("one", 1)]);
    let mut client = server.client("alice", "one");
    for (models, text) in [(Err("one.tacit: it is damaged"), "it is damaged"), (Ok(vec![]), "at least one")] {
        source.put(models);
        let error = server.handle.reload().unwrap_err().to_string();
        check_contains(&error, &["the models stay as they were", text]);
    }
    // Models change although the certificates are unusable.
    source.put(Ok(vec![("one", 1), ("two", 2)]));
    let key = dir.join("keys/server.key");
    let good = fs::read(&key).unwrap();
    fs::write(&key, "nonsense").unwrap();
    let error = server.handle.reload().unwrap_err().to_string();
    check_contains(&error, &["the certificates stay as they were", "server.key"]);
    check_answer(&mut client, 1);
    check_answer(&mut server.client("bob", "two"), 2);
    fs::write(&key, good).unwrap();
    assert_eq!(server.handle.reload().unwrap().models.kept, names(&["one=toy", "two=toy"]));
    check_answer(&mut client, 1);
}

/// Serves a model `one`, which the source does not have, and returns a reference to it.
fn watched(dir: &Path, cores: usize) -> (Running, TestSource, std::sync::Weak<dyn ServerModel>) {
    let source = TestSource::new(dir, vec![("two", 2)]);
    let lowered = Toy::default().lower(&model(1), &"".parse().unwrap()).unwrap();
    let weak = Arc::downgrade(&lowered);
    let mut catalog = Catalog::new(false);
    catalog.offer("one", &Toy::default(), lowered).unwrap();
    let server = Running::reloading(dir, catalog, source.clone(), |config| config.cores = cores);
    (server, source, weak)
}

fn prepare_stored(number: u64) -> Request {
    Request::Prepare { id: MaterialId::numbered(number), folder: Some(FolderId([1; 16])), of: None }
}

#[test]
fn withdrawn_model_ends_waiting_jobs() {
    let dir = Folder::new();
    let (server, _, weights) = watched(&dir, 1);
    let [mut runs, mut waits, mut idle] = ["alice", "bob", "bob"].map(|who| server.ready_channel(who));
    assert_eq!(ask(&mut runs, &prepare_stored(1)), Reply::Go);
    send(&mut waits, REQUEST, &prepare_stored(2)).unwrap();
    let first_input = Ask { name: InputId(1), notice: None, material: None, terms: Terms::default() };
    assert!(matches!(ask(&mut idle, &Request::Ask(first_input)), Reply::Noted { .. }));
    assert_eq!(server.handle.reload().unwrap().models.withdrawn, names(&["one=toy"]));
    for channel in [&mut waits, &mut idle] {
        let Reply::Goodbye { reason } = recv_reply(channel).unwrap() else { panic!("no goodbye") };
        assert!(reason.contains("replaced or withdrawn"), "{reason}");
    }
    // Other models are served beside the job.
    assert!(
        matches!(ask(&mut server.greeted("bob"), &Request::List), Reply::Models(models) if models[0].name == "two")
    );
    assert!(weights.upgrade().is_some());
    finish_offline(&mut runs);
    assert!(matches!(recv_reply(&mut runs).unwrap(), Reply::Goodbye { .. }));
    wait_until("what the last job made is destroyed", || material_count(&dir) == 0);
    wait_until("the weights are freed", || weights.upgrade().is_none());
    assert!(server.client("alice", "two").infer(&X).is_ok());
}

#[test]
fn waiting_job_does_not_revive_withdrawn_model() {
    let dir = Folder::new();
    let (server, source, weights) = watched(&dir, 8);
    let mut channels: Vec<Channel> = (0..5).map(|_| server.ready_channel("alice")).collect();
    // Four jobs take all places in memory.
    for (number, channel) in channels.iter_mut().enumerate() {
        send(channel, REQUEST, &prepare(number as u64)).unwrap();
        if number < 4 {
            assert_eq!(recv_reply(channel).unwrap(), Reply::Go);
        }
    }
    server.handle.reload().unwrap();
    assert!(matches!(recv_reply(&mut channels[4]).unwrap(), Reply::Goodbye { .. }));
    drop(channels);
    wait_until("the weights are freed", || weights.upgrade().is_none());
    // The model may be offered again.
    source.put(Ok(vec![("one", 1), ("two", 2)]));
    assert_eq!(server.handle.reload().unwrap().models.added, names(&["one=toy"]));
    check_answer(&mut server.client("alice", "one"), 1);
}

fn connection_error(config: ClientConfig) -> String {
    Connection::connect(registry(), config).err().unwrap().to_string()
}

#[test]
fn reload_replaces_certificates() {
    let dir = Folder::new();
    let (server, _) = start(&dir, vec![("one", 1)]);
    let mut old = server.client("alice", "one");
    let config = server.config("alice");
    // All keys are replaced, that of the CA included.
    fs::rename(dir.join("keys"), dir.join("old-keys")).unwrap();
    keys::init(&dir.join("keys"), &[], &["alice".into()]).unwrap();
    assert!(old.infer(&X).is_ok());
    assert!(server.handle.reload().unwrap().certificates);
    check_answer(&mut old, 1);
    check_contains(&connection_error(config), &["not signed by our CA"]);
    fs::remove_dir_all(dir.join("alice-material")).unwrap();
    check_answer(&mut server.client("alice", "one"), 1);
}

#[test]
fn renewed_client_keeps_its_material() {
    let dir = Folder::new();
    let (server, _) = start(&dir, vec![("one", 1)]);
    let mut client = server.client("alice", "one");
    client.prepare().unwrap();
    drop(client);
    let folder = dir.join("keys");
    let ended = Validity { from: 1_700_000_000, until: 1_700_000_100 };
    keys::renew(&folder, "alice", Some(ended)).unwrap();
    check_contains(&connection_error(server.config("alice")), &["our certificate", "has expired", "keys renew"]);
    keys::renew(&folder, "alice", Some(Validity::for_days(1).unwrap())).unwrap();
    let mut client = server.client("alice", "one");
    assert!(client.infer(&X).unwrap().prepared.is_none());
    keys::renew(&folder, "server", Some(ended)).unwrap();
    assert!(server.handle.reload().unwrap().certificates);
    check_contains(&connection_error(server.config("bob")), &["the peer's certificate has expired", "keys renew"]);
    keys::renew(&folder, "server", None).unwrap();
    server.handle.reload().unwrap();
    assert!(server.client("bob", "one").infer(&X).is_ok());
}
