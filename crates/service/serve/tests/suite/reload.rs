//! Models and certificates that change while the server runs.
use crate::common::*;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tacit_backends::{Backend, ServerModel};
use tacit_client::ClientError;
use tacit_client::wire::{Ask, InputId, REQUEST, Reply, Request, Terms, recv_reply, send};
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{Channel, ServerTls, Tag};
use tacit_serve::{Catalog, Changes, Source, Unusable};
use tacit_store::keys::{self, Validity};

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
const PAD: Tag = Tag::new(0xf101, "toy pad");

type Shelf = Vec<(&'static str, u8)>;

/// Models by name and salt, and a folder of keys, as a test puts them there.
#[derive(Clone)]
struct Shown {
    shelf: Arc<Mutex<Result<Shelf, &'static str>>>,
    keys: std::path::PathBuf,
}

impl Shown {
    fn new(dir: &Path, shelf: Shelf) -> Self {
        Self { shelf: Arc::new(Mutex::new(Ok(shelf))), keys: dir.join("keys") }
    }

    fn put(&self, shelf: Result<Shelf, &'static str>) {
        *self.shelf.lock().unwrap() = shelf;
    }
}

impl Source for Shown {
    fn catalog(&mut self) -> Result<Catalog, Unusable> {
        let mut catalog = Catalog::new(false);
        for (name, salt) in self.shelf.lock().unwrap().clone()? {
            offer(&mut catalog, name, &Toy::default(), salt, "");
        }
        Ok(catalog)
    }

    fn identity(&mut self) -> Result<ServerTls, Unusable> {
        Ok(keys::load_server(&self.keys)?)
    }
}

fn start(dir: &Path, shelf: Shelf) -> (Running, Shown) {
    let shown = Shown::new(dir, shelf);
    let server = Running::reloading(dir, shown.clone().catalog().unwrap(), shown.clone(), |_| {});
    (server, shown)
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn files(dir: &Path) -> usize {
    let folder = fs::read_dir(dir.join("server-material")).unwrap();
    folder.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "material")).count()
}

/// What a client hears whose model is gone.
fn is_told(error: &ClientError) {
    assert!(
        matches!(error, ClientError::Ended { reason, .. } if reason.contains("replaced or withdrawn") && reason.contains("connect again")),
        "{error:?}"
    );
}

#[test]
fn models_come_and_go_and_change_while_clients_of_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (server, shown) = start(dir.path(), vec![("one", 1), ("two", 2), ("three", 3)]);
    let [mut one, mut two] = ["one", "two"].map(|model| server.client(dir.path(), "alice", model));
    one.prepare().unwrap();
    two.prepare().unwrap();
    server.client(dir.path(), "alice", "three").prepare().unwrap();
    let mut bob = server.client(dir.path(), "bob", "two");
    assert_eq!(files(dir.path()), 3);
    shown.put(Ok(vec![("one", 7), ("two", 2), ("four", 4)]));
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
    // Who has it open is told, and connects again.
    is_told(&one.infer(&X).unwrap_err());
    assert_eq!(two.infer(&X).unwrap().values, expected(2, &X));
    assert!(bob.infer(&X).unwrap().prepared.is_some());
    let mut connection = server.connection(dir.path(), "alice");
    let offered: Vec<String> = connection.models().unwrap().into_iter().map(|m| m.name).collect();
    assert_eq!(offered, ["four", "one", "two"]);
    assert_eq!(server.client(dir.path(), "bob", "one").infer(&X).unwrap().values, expected(7, &X));
    assert_eq!(server.client(dir.path(), "bob", "four").infer(&X).unwrap().values, expected(4, &X));
    let error = server.connection(dir.path(), "bob").open("three", None).err().unwrap().to_string();
    assert!(error.contains("no model `three`"), "{error}");
    // Of what was replaced nothing is left; what was withdrawn may come back, and its material with it.
    wait_until("material of what was replaced is destroyed", || files(dir.path()) == 1);
    shown.put(Ok(vec![("three", 3), ("two", 2)]));
    let done = server.handle.reload().unwrap().models;
    assert_eq!((done.added, done.withdrawn), (names(&["three=toy"]), names(&["four=toy", "one=toy"])));
    let mut three = server.client(dir.path(), "alice", "three");
    assert!(three.infer(&X).unwrap().prepared.is_none(), "with what was stored before");
    assert_eq!(two.infer(&X).unwrap().values, expected(2, &X));
}

#[test]
fn what_is_wrong_changes_nothing_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (server, shown) = start(dir.path(), vec![("one", 1)]);
    let mut client = server.client(dir.path(), "alice", "one");
    for (shelf, text) in [(Err("one.tacit: it is damaged"), "it is damaged"), (Ok(vec![]), "at least one")] {
        shown.put(shelf);
        let error = server.handle.reload().unwrap_err().to_string();
        assert!(error.contains("the models stay as they were"), "{error}");
        assert!(error.contains(text), "{error}");
    }
    // The one does not hinder the other.
    shown.put(Ok(vec![("one", 1), ("two", 2)]));
    let key = dir.path().join("keys/server.key");
    let good = fs::read(&key).unwrap();
    fs::write(&key, "nonsense").unwrap();
    let error = server.handle.reload().unwrap_err().to_string();
    assert!(error.contains("the certificates stay as they were"), "{error}");
    assert!(error.contains("server.key"), "{error}");
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    assert_eq!(server.client(dir.path(), "bob", "two").infer(&X).unwrap().values, expected(2, &X));
    fs::write(&key, good).unwrap();
    assert_eq!(server.handle.reload().unwrap().models.kept, names(&["one=toy", "two=toy"]));
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
}

/// The model named `one`, and what becomes of it.
fn watched(dir: &Path, cores: usize) -> (Running, Shown, std::sync::Weak<dyn ServerModel>) {
    let shown = Shown::new(dir, vec![("two", 2)]);
    let lowered = Toy::default().lower(&model(1), &"".parse().unwrap()).unwrap();
    let weak = Arc::downgrade(&lowered);
    let mut catalog = Catalog::new(false);
    catalog.offer("one", &Toy::default(), lowered).unwrap();
    let server = Running::reloading(dir, catalog, shown.clone(), |config| config.cores = cores);
    (server, shown, weak)
}

fn ready(server: &Running, dir: &Path, who: &str) -> Channel {
    let mut channel = server.opened(dir, who, "one");
    set_up(&mut channel);
    channel
}

fn prepare(id: u64) -> Request {
    Request::Prepare { id: MaterialId::numbered(id), folder: Some(FolderId([1; 16])), of: None }
}

#[test]
fn jobs_that_run_end_on_what_they_have_and_those_that_wait_end() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _, weights) = watched(dir.path(), 1);
    let [mut runs, mut waits, mut idle] = ["alice", "bob", "bob"].map(|who| ready(&server, dir.path(), who));
    assert_eq!(ask(&mut runs, &prepare(1)), Reply::Go);
    send(&mut waits, REQUEST, &prepare(2)).unwrap();
    let first_input = Ask { name: InputId(1), notice: None, material: None, terms: Terms::default() };
    assert!(matches!(ask(&mut idle, &Request::Ask(first_input)), Reply::Noted { .. }));
    assert_eq!(server.handle.reload().unwrap().models.withdrawn, names(&["one=toy"]));
    for channel in [&mut waits, &mut idle] {
        let Reply::Goodbye { reason } = recv_reply(channel).unwrap() else { panic!("no goodbye") };
        assert!(reason.contains("replaced or withdrawn"), "{reason}");
    }
    // The others are served beside it.
    let mut list = server.greeted(dir.path(), "bob");
    assert!(matches!(ask(&mut list, &Request::List), Reply::Models(models) if models[0].name == "two"));
    assert!(weights.upgrade().is_some(), "a job runs on it");
    runs.send(PAD, &[1; 8]).unwrap();
    runs.flush().unwrap();
    assert!(matches!(recv_reply(&mut runs).unwrap(), Reply::Done { .. }));
    assert!(matches!(recv_reply(&mut runs).unwrap(), Reply::Goodbye { .. }));
    wait_until("what the last job made is destroyed", || files(dir.path()) == 0);
    wait_until("the weights are freed", || weights.upgrade().is_none());
    assert!(server.client(dir.path(), "alice", "two").infer(&X).is_ok());
}

#[test]
fn one_that_waits_for_a_place_in_memory_does_not_bring_its_model_back() {
    let dir = tempfile::tempdir().unwrap();
    let (server, shown, weights) = watched(dir.path(), 8);
    let mut channels: Vec<Channel> = (0..5).map(|_| ready(&server, dir.path(), "alice")).collect();
    // All places in memory are taken by jobs that run.
    for (id, channel) in channels.iter_mut().enumerate() {
        let request = Request::Prepare { id: MaterialId::numbered(id as u64), folder: None, of: None };
        send(channel, REQUEST, &request).unwrap();
        if id < 4 {
            assert_eq!(recv_reply(channel).unwrap(), Reply::Go);
        }
    }
    server.handle.reload().unwrap();
    let last = &mut channels[4];
    assert!(matches!(recv_reply(last).unwrap(), Reply::Goodbye { .. }));
    drop(channels);
    wait_until("the weights are freed", || weights.upgrade().is_none());
    // It comes back as another model of the scheduler's.
    shown.put(Ok(vec![("one", 1), ("two", 2)]));
    assert_eq!(server.handle.reload().unwrap().models.added, names(&["one=toy"]));
    assert_eq!(server.client(dir.path(), "alice", "one").infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn new_connections_use_new_certificates_and_old_ones_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = start(dir.path(), vec![("one", 1)]);
    let mut old = server.client(dir.path(), "alice", "one");
    let config = server.config(dir.path(), "alice");
    // All of it anew, the CA included.
    fs::rename(dir.path().join("keys"), dir.path().join("old-keys")).unwrap();
    keys::init(&dir.path().join("keys"), &[], &["alice".into()]).unwrap();
    assert!(old.infer(&X).is_ok());
    assert!(server.handle.reload().unwrap().certificates);
    assert_eq!(old.infer(&X).unwrap().values, expected(1, &X), "its connection is the one that it was");
    let error = tacit_client::Connection::connect(registry(), config).err().unwrap().to_string();
    assert!(error.contains("not signed by our CA"), "{error}");
    fs::remove_dir_all(dir.path().join("alice-material")).unwrap();
    assert_eq!(server.client(dir.path(), "alice", "one").infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn a_renewed_client_is_the_same_client_and_an_expired_one_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = start(dir.path(), vec![("one", 1)]);
    let mut client = server.client(dir.path(), "alice", "one");
    client.prepare().unwrap();
    drop(client);
    let folder = dir.path().join("keys");
    let ended = Validity { from: 1_700_000_000, until: 1_700_000_100 };
    keys::renew(&folder, "alice", Some(ended)).unwrap();
    let error =
        tacit_client::Connection::connect(registry(), server.config(dir.path(), "alice")).err().unwrap().to_string();
    assert!(error.contains("our certificate"), "{error}");
    assert!(error.contains("has expired"), "{error}");
    assert!(error.contains("keys renew"), "{error}");
    keys::renew(&folder, "alice", Some(Validity::days(1).unwrap())).unwrap();
    let mut client = server.client(dir.path(), "alice", "one");
    assert!(client.infer(&X).unwrap().prepared.is_none(), "its material is still its own");
    // The other way round.
    keys::renew(&folder, "server", Some(ended)).unwrap();
    assert!(server.handle.reload().unwrap().certificates);
    let error =
        tacit_client::Connection::connect(registry(), server.config(dir.path(), "bob")).err().unwrap().to_string();
    assert!(error.contains("the peer's certificate has expired"), "{error}");
    assert!(error.contains("keys renew"), "{error}");
    keys::renew(&folder, "server", None).unwrap();
    server.handle.reload().unwrap();
    assert!(server.client(dir.path(), "bob", "one").infer(&X).is_ok());
}
