//! Material on disk at both parties: lost halves, files without a ledger row, withdrawn models, quotas.
use crate::by_hand::{infer_with, prepare};
use crate::common::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tacit_client::wire::{MAX_IDS, REQUEST, Reply, Request, recv_reply, send};
use tacit_client::{Client, ClientConfig, ClientError, Connection, Reconciled, Usability, infer_many};
use tacit_graph::Units;
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{Channel, Tag};
use tacit_serve::Catalog;
use tacit_store::{Origin, Party, Store, StoreError};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn at_server(dir: &Path) -> PathBuf {
    dir.join("server-material")
}

fn at_alice(dir: &Path) -> PathBuf {
    dir.join("alice-material")
}

fn alices_store(dir: &Path) -> Store {
    Store::open(&at_alice(dir), Party::Client, None).unwrap()
}

/// Alice's configuration on another machine.
fn elsewhere(server: &Running) -> ClientConfig {
    ClientConfig { store: Some(server.dir.join("elsewhere")), ..server.config("alice") }
}

/// Halves that were destroyed at the client and at the server.
fn reconciled(connection: &Connection) -> [usize; 2] {
    let Reconciled { destroyed_here, destroyed_there } = connection.reconciliation().unwrap();
    [destroyed_here, destroyed_there]
}

fn states(connection: &mut Connection) -> Vec<Usability> {
    connection.material().unwrap().iter().map(|entry| entry.state).collect()
}

/// Files of material in a folder, with their contents.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    material_files(dir).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Changes a ledger without its owner.
fn execute_sql(folder: &Path, text: &str) -> usize {
    let db = rusqlite::Connection::open(folder.join("ledger.sqlite")).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    db.execute(text, []).unwrap()
}

/// Requests material that both parties store.
fn prepare_stored(number: u64, folder: FolderId) -> Request {
    Request::Prepare { id: MaterialId::numbered(number), folder: Some(folder), of: None }
}

/// The offline phase by hand: the server has its half, durably, when this returns.
fn prepare_at_server(channel: &mut Channel, number: u64, folder: FolderId) -> Reply {
    match ask(channel, &prepare_stored(number, folder)) {
        Reply::Go => {}
        refused => return refused,
    }
    channel.send(Tag::new(0xf101, "toy pad"), &[1; 8]).unwrap();
    channel.flush().unwrap();
    recv_reply(channel).unwrap()
}

#[test]
fn refuses_restored_copies_of_burnt_material() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let mut client = server.client("alice", "one");
    let id = client.prepare().unwrap().id;
    let saved: Vec<_> = [at_server(&dir), at_alice(&dir)].iter().flat_map(|d| files(d)).collect();
    assert_eq!(saved.len(), 2);
    let copy_back = || saved.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    assert!(client.infer(&X).unwrap().prepared.is_none());
    copy_back();
    let refused = |server: &Running, client: &mut Client| {
        assert!(client.list_stored().unwrap().is_empty());
        assert!(client.stored_at_server().unwrap().is_empty());
        assert!(client.infer(&X).unwrap().prepared.is_some());
        check_refused(&ask(&mut server.opened("alice", "one"), &infer_with(id)), "used already");
        let claimed = alices_store(&dir).claim(id, client.binding());
        assert!(matches!(claimed, Err(StoreError::Burnt(burnt)) if burnt == id));
    };
    // A connected client and a new one.
    refused(&server, &mut client);
    refused(&server, &mut server.client("alice", "one"));
    drop((client, server));
    let is_free = |folder: PathBuf| fs::File::open(folder.join("lock")).unwrap().try_lock().is_ok();
    wait_until("nobody uses the folders", || is_free(at_server(&dir)) && is_free(at_alice(&dir)));
    copy_back();
    let server = Running::start_in(&dir, |_| {});
    refused(&server, &mut server.client("alice", "one"));
    assert!(files(&at_server(&dir)).is_empty());
    assert!(files(&at_alice(&dir)).is_empty());
}

#[test]
fn ignores_files_without_ledger_row() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let mut client = server.client("alice", "one");
    client.prepare().unwrap();
    let invented = MaterialId::numbered(77);
    for folder in [at_server(&dir), at_alice(&dir)] {
        let (path, _) = files(&folder).pop_first().unwrap();
        for ending in ["material", "ready"] {
            fs::copy(&path, folder.join(format!("{invented}.{ending}"))).unwrap();
        }
    }
    assert_eq!((client.list_stored().unwrap().len(), client.stored_at_server().unwrap().len()), (1, 1));
    check_refused(&ask(&mut server.opened("alice", "one"), &infer_with(invented)), "does not exist");
}

#[test]
fn reconciles_lost_halves() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |c| c.stored_per_client = 4);
    let mut client = server.client("alice", "one");
    let ids: Vec<MaterialId> = (0..4).map(|_| client.prepare().unwrap().id).collect();
    drop(client);
    server.settle();
    // The client has lost a file and the server a row; a client is killed before it stores its half.
    fs::remove_file(at_alice(&dir).join(format!("{}.material", ids[0]))).unwrap();
    Store::open_existing(&at_server(&dir), None).unwrap().discard(&ids[1..2], None).unwrap();
    let folder = alices_store(&dir).folder();
    let mut killed = server.ready_channel("alice");
    assert!(matches!(prepare_at_server(&mut killed, 5, folder), Reply::Done { .. }));
    check_refused(&prepare_at_server(&mut killed, 6, folder), "tacit material discard --orphans");
    drop(killed);
    server.settle();
    let mut connection = server.connection("alice");
    assert_eq!(reconciled(&connection), [1, 2]);
    assert_eq!(states(&mut connection), [Usability::Ready; 2]);
    for folder in [at_alice(&dir), at_server(&dir)] {
        assert_eq!(files(&folder).len(), 2, "{}", folder.display());
    }
    let mut client = connection.open("one", None).unwrap();
    assert_eq!(client.list_stored().unwrap().iter().map(|e| e.id).collect::<Vec<_>>(), ids[2..]);
    for _ in 0..2 {
        assert!(client.infer(&X).unwrap().prepared.is_none());
    }
    assert_eq!(reconciled(&server.connection("alice")), [0, 0]);
}

#[test]
fn claimed_half_is_no_orphan_while_connected() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let mut client = server.client("alice", "one");
    let ids: Vec<MaterialId> = (0..2).map(|_| client.prepare().unwrap().id).collect();
    // Claimed at the client, and not yet at the server.
    alices_store(&dir).claim(ids[0], client.binding()).unwrap();
    let mut second = server.connection("alice");
    assert_eq!(reconciled(&second), [0, 0]);
    assert_eq!(states(&mut second), [Usability::Ready]);
    assert_eq!(client.stored_at_server().unwrap().len(), 2);
    // Connections of Bob and of Alice's other machine do not matter.
    let _bob = server.client("bob", "one");
    let _elsewhere = Connection::connect(registry(), elsewhere(&server)).unwrap();
    drop((client, second));
    wait_until("both have gone", || server.handle.connections() == 2);
    assert_eq!(reconciled(&server.connection("alice")), [0, 1]);
}

#[test]
fn reconciles_one_folder_with_one_server() {
    let server = Running::start(|_| {});
    server.client("alice", "one").prepare().unwrap();
    let config = elsewhere(&server);
    let mut elsewhere = Connection::connect(registry(), config.clone()).unwrap();
    assert_eq!(states(&mut elsewhere), [Usability::Elsewhere]);
    let mut client = Connection::connect(registry(), config).unwrap().open("one", None).unwrap();
    client.prepare().unwrap();
    assert_eq!(client.list_stored().unwrap().len(), 1);
    let listed = states(&mut elsewhere);
    assert!(listed.len() == 2, "{listed:?}");
    assert!(listed.contains(&Usability::Elsewhere), "{listed:?}");
    assert!(listed.contains(&Usability::Ready), "{listed:?}");
    // A server of another CA, with the same folder of the client's.
    let far = Running::start(|_| {});
    let config = ClientConfig { store: server.config("alice").store, ..far.config("alice") };
    let mut at_far = Connection::connect(registry(), config).unwrap();
    assert_eq!((reconciled(&at_far), states(&mut at_far).len()), ([0, 0], 0));
    at_far.open("one", None).unwrap().prepare().unwrap();
    // A second server of the same CA, to which Alice's material belongs to another server.
    let twin = Folder::new();
    fs::create_dir(twin.join("keys")).unwrap();
    for name in ["ca.pem", "server.pem", "server.key", "alice.pem", "alice.key"] {
        fs::copy(server.dir.join("keys").join(name), twin.join("keys").join(name)).unwrap();
    }
    let second = Running::start_in(&twin, |_| {});
    let config = ClientConfig { address: second.address.clone(), ..server.config("alice") };
    let mut at_second = Connection::connect(registry(), config).unwrap();
    assert_eq!((reconciled(&at_second), states(&mut at_second)), ([0, 0], vec![Usability::OtherServer]));
    let mut client = at_second.open("one", None).unwrap();
    assert!(client.list_stored().unwrap().is_empty());
    assert!(client.infer(&X).unwrap().prepared.is_some());
    // The other folder learns of a discard when it connects again.
    let ids: Vec<MaterialId> = elsewhere.material().unwrap().iter().map(|entry| entry.id).collect();
    assert_eq!(elsewhere.discard(&ids).unwrap(), 2);
    assert_eq!(reconciled(&server.connection("alice")), [1, 0]);
}

/// Model `one` with other weights, and no model `two`.
fn imported_again() -> Catalog {
    let mut catalog = Catalog::new(false);
    offer(&mut catalog, "one", &Toy::default(), 7, "");
    catalog
}

#[test]
fn lists_and_destroys_material_of_gone_models() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let mut client = server.client("alice", "one");
    for _ in 0..2 {
        client.prepare().unwrap();
    }
    let old = client.binding();
    drop((client, server));
    let server = Running::serving_in(&dir, imported_again(), |c| c.stored_per_client = 3);
    let mut client = server.client("alice", "one");
    assert_ne!(client.binding().model, old.model);
    assert!(client.list_stored().unwrap().is_empty());
    client.prepare().unwrap();
    check_contains(
        &client.prepare().unwrap_err().to_string(),
        &["3 materials are stored for you", "2 of them for models that are gone", "`tacit material discard --orphans`"],
    );
    let mut connection = server.connection("alice");
    assert_eq!(states(&mut connection), [Usability::ModelGone, Usability::ModelGone, Usability::Ready]);
    let listed = connection.material().unwrap();
    assert!(listed[..2].iter().all(|entry| (entry.model, entry.plan) == (old.model, old.plan)));
    let orphans: Vec<MaterialId> =
        listed.iter().filter(|entry| entry.state.is_orphan()).map(|entry| entry.id).collect();
    assert_eq!(connection.discard(&orphans).unwrap(), 2);
    assert_eq!(files(&at_alice(&dir)).len(), 1);
    client.prepare().unwrap();
    assert_eq!(client.list_stored().unwrap().len(), 2);
}

#[test]
fn expires_material_of_gone_models_and_absent_clients() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    server.client("alice", "one").prepare().unwrap();
    server.client("alice", "two").prepare().unwrap();
    server.client("bob", "one").prepare().unwrap();
    server.settle();
    let age = |days: u64| {
        let seconds = days * DAY.as_secs();
        let text = format!("UPDATE material SET wanted = wanted - {seconds} WHERE state = 'ready'");
        execute_sql(&at_server(&dir), &text)
    };
    assert_eq!(age(29), 3);
    // Alice connects in time and thereby renews her material for offered models; Bob does not.
    assert_eq!(reconciled(&server.connection("alice")), [0, 0]);
    drop(server);
    assert_eq!(age(2), 3);
    let server = Running::serving_in(&dir, imported_again(), |_| {});
    assert_eq!(files(&at_server(&dir)).len(), 2);
    let mut bob = server.connection("bob");
    assert_eq!((reconciled(&bob), states(&mut bob)), ([1, 0], vec![]));
    // Connecting does not renew material of models that are not offered.
    assert_eq!(states(&mut server.connection("alice")), [Usability::ModelGone; 2]);
    assert_eq!(age(28), 2);
    let mut alice = server.connection("alice");
    assert_eq!((reconciled(&alice), states(&mut alice)), ([2, 0], vec![]));
    assert!(files(&at_server(&dir)).is_empty());
    assert!(files(&at_alice(&dir)).is_empty());
}

#[test]
fn connections_share_material_quota() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |c| c.stored_per_client = 3);
    let folder = FolderId([9; 16]);
    let mut channels: Vec<Channel> = (0..6).map(|_| server.ready_channel("alice")).collect();
    // Material that is being made counts.
    let mut begun = Vec::new();
    for (i, channel) in channels.iter_mut().enumerate() {
        match ask(channel, &prepare_stored(i as u64, folder)) {
            Reply::Go => begun.push(channel),
            Reply::Refused { reason, .. } => assert!(reason.contains("3 materials are stored"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(begun.len(), 3);
    for channel in begun {
        finish_offline(channel);
    }
    assert_eq!(files(&at_server(&dir)).len(), 3);
    // A place whose job failed is free again.
    Store::open_existing(&at_server(&dir), None).unwrap().expire(Duration::ZERO).unwrap();
    for round in 10..13 {
        let mut failing = server.ready_channel("alice");
        assert_eq!(ask(&mut failing, &prepare_stored(round, folder)), Reply::Go);
    }
    wait_until("they have failed", || server.handle.connections() == 6);
    for round in 20..23 {
        let reply = prepare_at_server(&mut channels[0], round, folder);
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
}

#[test]
fn connections_of_one_client_share_memory_places() {
    let server = Running::start(|c| c.memory_per_client = 1);
    let answers = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client("alice", "one");
                let inputs = vec![X.to_vec(); 6];
                infer_many(&mut client, Units::Network, &inputs, |_, answer| {
                    assert_eq!(answer.values, expected(1, &X));
                    answers.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
                .unwrap();
            });
        }
    });
    assert_eq!(answers.into_inner(), 24);
}

#[test]
fn waits_for_memory_place_until_timeout_or_shutdown() {
    let start = |memory_wait| Running::start(|c| (c.memory_per_client, c.memory_wait) = (1, memory_wait));
    let server = start(Duration::from_millis(200));
    let mut holder = server.ready_channel("alice");
    assert_eq!(ask(&mut holder, &prepare(1)), Reply::Go);
    let mut waiting = server.ready_channel("alice");
    check_refused(&ask(&mut waiting, &prepare(2)), "materials for 1 inputs are held");
    drop(server);
    let server = start(100 * DAY);
    let mut holder = server.ready_channel("alice");
    assert_eq!(ask(&mut holder, &prepare(1)), Reply::Go);
    let mut waiting = server.ready_channel("alice");
    send(&mut waiting, REQUEST, &prepare(2)).unwrap();
    drop(holder);
    assert_eq!(recv_reply(&mut waiting).unwrap(), Reply::Go);
    let mut last = server.ready_channel("alice");
    send(&mut last, REQUEST, &prepare(3)).unwrap();
    server.handle.shutdown(Duration::from_millis(200));
    let end = recv_reply(&mut last);
    assert!(matches!(end, Err(_) | Ok(Reply::Goodbye { .. })), "{end:?}");
}

#[test]
fn refuses_one_folder_for_both_parties() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    server.client("bob", "one").prepare().unwrap();
    server.settle();
    let before = files(&at_server(&dir));
    let config = ClientConfig { store: Some(at_server(&dir)), ..server.config("alice") };
    let error = Connection::connect(registry(), config).err().unwrap();
    assert!(matches!(&error, ClientError::Store(StoreError::OtherParty { .. })), "{error}");
    assert!(error.to_string().contains("the server's halves"), "{error}");
    assert_eq!(files(&at_server(&dir)), before);
}

#[test]
fn serves_without_folder() {
    let server = Running::start(|c| c.store = None);
    let mut connection = server.connection("alice");
    assert_eq!((reconciled(&connection), states(&mut connection).len()), ([0, 0], 0));
    let mut client = connection.open("one", None).unwrap();
    let error = client.prepare().unwrap_err();
    assert!(error.to_string().contains("stores no material"), "{error}");
    check_answer(&mut client, 1);
}

#[test]
fn reconciles_more_orphans_than_one_message_holds() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |_| {});
    let binding = server.client("alice", "one").binding();
    server.settle();
    let peer = alices_store(&dir).folder();
    let store = Store::open_existing(&at_server(&dir), None).unwrap();
    let first = MaterialId::random().unwrap();
    store.put(first, binding, Origin { backend: "toy", peer, maker: None }, b"x").unwrap();
    let many = 2 * MAX_IDS + 5;
    let copies = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})
         INSERT INTO material (id, state, client, model, plan, peer, backend, bytes, digest, created, wanted)
         SELECT randomblob(16), 'ready', client, model, plan, peer, backend, bytes, digest, created, wanted
         FROM material CROSS JOIN n WHERE state = 'ready'",
        many - 1
    );
    assert_eq!(execute_sql(&at_server(&dir), &copies), many - 1);
    assert!(server.connection("bob").material().unwrap().is_empty());
    let listed = Connection::connect(registry(), elsewhere(&server)).unwrap().material().unwrap();
    assert_eq!(listed.len(), many);
    assert_eq!(reconciled(&server.connection("alice")), [0, many]);
    assert!(store.list(None).unwrap().is_empty());
}
