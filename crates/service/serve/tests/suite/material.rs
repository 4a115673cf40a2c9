//! Material on disk at both parties: what has lost its other half, what lies there without being granted,
//! models that are gone, quotas.
use crate::common::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tacit_client::wire::{MAX_IDS, Reply, Request, recv_reply};
use tacit_client::{Client, ClientError, Connection, Reconciled, Usability, infer_many};
use tacit_graph::Units;
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{Channel, Tag};
use tacit_serve::Catalog;
use tacit_store::{Origin, Party, Store, StoreError, keys};

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
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

fn settled(connection: &Connection) -> [usize; 2] {
    let Reconciled { destroyed_here, destroyed_there } = connection.reconciled().unwrap();
    [destroyed_here, destroyed_there]
}

fn states(connection: &mut Connection) -> Vec<Usability> {
    connection.material().unwrap().iter().map(|entry| entry.state).collect()
}

/// Files of material in a folder, with what is in them.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let material = paths.filter(|p| p.extension().is_some_and(|e| e == "material"));
    material.map(|p| (p.clone(), fs::read(p).unwrap())).collect()
}

/// Changes a ledger behind its owner's back.
fn sql(folder: &Path, text: &str) -> usize {
    let db = rusqlite::Connection::open(folder.join("ledger.sqlite")).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    db.execute(text, []).unwrap()
}

/// The offline phase by hand: the server has its half, durably, when this returns.
fn prepare_at_server(channel: &mut Channel, id: MaterialId, folder: FolderId) -> Reply {
    match ask(channel, &Request::Prepare { id, folder: Some(folder), of: None }) {
        Reply::Go => {}
        refused => return refused,
    }
    channel.send(Tag::new(0xf101, "toy pad"), &[1; 8]).unwrap();
    channel.flush().unwrap();
    recv_reply(channel).unwrap()
}

#[test]
fn what_is_copied_back_at_both_parties_is_refused_by_a_running_server_and_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut client = server.client(dir.path(), "alice", "one");
    let id = client.prepare().unwrap().id;
    let saved: Vec<_> = [at_server(dir.path()), at_alice(dir.path())].iter().flat_map(|d| files(d)).collect();
    assert_eq!(saved.len(), 2);
    let copy_back = || saved.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    assert!(client.infer(&X).unwrap().prepared.is_none(), "the stored material was used");
    copy_back();
    let refused = |server: &Running, client: &mut Client| {
        assert!(client.stored().unwrap().is_empty());
        assert!(client.stored_at_server().unwrap().is_empty());
        assert!(client.infer(&X).unwrap().prepared.is_some(), "new material is made");
        let mut direct = server.opened(dir.path(), "alice", "one");
        let reply = ask(&mut direct, &Request::Infer { id: Some(id), of: None });
        assert!(matches!(&reply, Reply::Refused { reason, .. } if reason.contains("used already")), "{reply:?}");
        let claimed = alices_store(dir.path()).claim(id, client.binding());
        assert!(matches!(claimed, Err(StoreError::Burnt(burnt)) if burnt == id));
    };
    // By those who were there all the time, and by a client that comes now.
    refused(&server, &mut client);
    refused(&server, &mut server.client(dir.path(), "alice", "one"));
    drop((client, server));
    let is_free = |folder: PathBuf| fs::File::open(folder.join("lock")).unwrap().try_lock().is_ok();
    wait_until("nobody uses the folders", || is_free(at_server(dir.path())) && is_free(at_alice(dir.path())));
    copy_back();
    let server = Running::start(dir.path(), |_| {});
    refused(&server, &mut server.client(dir.path(), "alice", "one"));
    assert!(files(&at_server(dir.path())).is_empty());
    assert!(files(&at_alice(dir.path())).is_empty());
}

#[test]
fn invented_files_are_granted_to_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut client = server.client(dir.path(), "alice", "one");
    client.prepare().unwrap();
    let invented = MaterialId::numbered(77);
    for folder in [at_server(dir.path()), at_alice(dir.path())] {
        let (path, _) = files(&folder).pop_first().unwrap();
        for ending in ["material", "ready"] {
            fs::copy(&path, folder.join(format!("{invented}.{ending}"))).unwrap();
        }
    }
    assert_eq!((client.stored().unwrap().len(), client.stored_at_server().unwrap().len()), (1, 1));
    let mut direct = server.opened(dir.path(), "alice", "one");
    let reply = ask(&mut direct, &Request::Infer { id: Some(invented), of: None });
    assert!(matches!(&reply, Reply::Refused { reason, .. } if reason.contains("does not exist")), "{reply:?}");
}

#[test]
fn each_party_learns_what_the_other_has_lost() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.stored_per_client = 4);
    let mut client = server.client(dir.path(), "alice", "one");
    let ids: Vec<MaterialId> = (0..4).map(|_| client.prepare().unwrap().id).collect();
    drop(client);
    server.settle();
    // A file that is gone here, a row that is gone there, a client that was killed before it stored its half.
    fs::remove_file(at_alice(dir.path()).join(format!("{}.material", ids[0]))).unwrap();
    Store::open_existing(&at_server(dir.path()), None).unwrap().discard(&ids[1..2], None).unwrap();
    let folder = alices_store(dir.path()).folder();
    let mut killed = server.opened(dir.path(), "alice", "one");
    set_up(&mut killed);
    assert!(matches!(prepare_at_server(&mut killed, MaterialId::numbered(5), folder), Reply::Done { .. }));
    let full = prepare_at_server(&mut killed, MaterialId::numbered(6), folder);
    assert!(
        matches!(&full, Reply::Refused { reason, .. } if reason.contains("tacit material discard --orphans")),
        "{full:?}"
    );
    drop(killed);
    server.settle();
    let mut connection = server.connection(dir.path(), "alice");
    assert_eq!(settled(&connection), [1, 2]);
    assert_eq!(states(&mut connection), [Usability::Ready; 2]);
    for folder in [at_alice(dir.path()), at_server(dir.path())] {
        assert_eq!(files(&folder).len(), 2, "no orphan stays");
    }
    let mut client = connection.open("one", None).unwrap();
    assert_eq!(client.stored().unwrap().iter().map(|e| e.id).collect::<Vec<_>>(), ids[2..]);
    for _ in 0..2 {
        assert!(client.infer(&X).unwrap().prepared.is_none());
    }
    assert_eq!(settled(&server.connection(dir.path(), "alice")), [0, 0]);
}

#[test]
fn what_another_connection_has_taken_out_is_no_orphan_until_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut client = server.client(dir.path(), "alice", "one");
    let ids: Vec<MaterialId> = (0..2).map(|_| client.prepare().unwrap().id).collect();
    // As if it were about to ask: claimed here, not yet there.
    alices_store(dir.path()).claim(ids[0], client.binding()).unwrap();
    let mut second = server.connection(dir.path(), "alice");
    assert_eq!(settled(&second), [0, 0]);
    assert_eq!(states(&mut second), [Usability::Ready], "what is in the air is not listed");
    assert_eq!(client.stored_at_server().unwrap().len(), 2);
    // Bob, and a folder of Alice's on another machine, have nothing to do with it.
    let _bob = server.client(dir.path(), "bob", "one");
    let mut config = server.config(dir.path(), "alice");
    config.store = Some(dir.path().join("elsewhere"));
    let _elsewhere = Connection::connect(registry(), config).unwrap();
    drop((client, second));
    wait_until("both have gone", || server.handle.connections() == 2);
    assert_eq!(settled(&server.connection(dir.path(), "alice")), [0, 1]);
}

#[test]
fn other_folders_and_other_servers_are_left_alone() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Running::start(dir.path(), |_| {});
    server.client(dir.path(), "alice", "one").prepare().unwrap();
    // Another machine of hers.
    let mut config = server.config(dir.path(), "alice");
    config.store = Some(dir.path().join("elsewhere"));
    let mut elsewhere = Connection::connect(registry(), config.clone()).unwrap();
    assert_eq!(states(&mut elsewhere), [Usability::Elsewhere]);
    let mut client = Connection::connect(registry(), config).unwrap().open("one", None).unwrap();
    client.prepare().unwrap();
    assert_eq!(client.stored().unwrap().len(), 1);
    let listed = states(&mut elsewhere);
    assert!(listed.len() == 2, "{listed:?}");
    assert!(listed.contains(&Usability::Elsewhere), "{listed:?}");
    assert!(listed.contains(&Usability::Ready), "{listed:?}");
    // Another server, with the same folder of the client's.
    let far = Running::start(other.path(), |_| {});
    let identity = keys::load_client(&other.path().join("keys"), "alice").unwrap();
    let config = tacit_client::ClientConfig { identity, ..server.config(dir.path(), "alice") };
    let mut at_far =
        Connection::connect(registry(), tacit_client::ClientConfig { address: far.address.clone(), ..config }).unwrap();
    assert_eq!((settled(&at_far), states(&mut at_far).len()), ([0, 0], 0), "another CA's client has nothing here");
    at_far.open("one", None).unwrap().prepare().unwrap();
    // A second server of the same CA: Alice's material is of another server, for it.
    fs::create_dir(other.path().join("twin")).unwrap();
    let twin = other.path().join("twin");
    let copied = |name: &str| fs::copy(dir.path().join("keys").join(name), twin.join("keys").join(name)).unwrap();
    fs::create_dir(twin.join("keys")).unwrap();
    for name in ["ca.pem", "server.pem", "server.key", "alice.pem", "alice.key"] {
        copied(name);
    }
    let second = Running::start(&twin, |_| {});
    let address = second.address.clone();
    let config = tacit_client::ClientConfig { address, ..server.config(dir.path(), "alice") };
    let mut at_second = Connection::connect(registry(), config).unwrap();
    assert_eq!((settled(&at_second), states(&mut at_second)), ([0, 0], vec![Usability::OtherServer]));
    let mut client = at_second.open("one", None).unwrap();
    assert!(client.stored().unwrap().is_empty());
    assert!(client.infer(&X).unwrap().prepared.is_some(), "the first server's material is not tried here");
    // Whoever gives up a folder's material says so; the folder learns it when it comes back.
    let ids: Vec<MaterialId> = elsewhere.material().unwrap().iter().map(|entry| entry.id).collect();
    assert_eq!(elsewhere.discard(&ids).unwrap(), 2);
    assert_eq!(settled(&server.connection(dir.path(), "alice")), [1, 0]);
}

/// Models as they are after another import: same names, other weights.
fn imported_again() -> Catalog {
    let mut catalog = Catalog::new(false);
    offer(&mut catalog, "one", &Toy::default(), 7, "");
    catalog
}

#[test]
fn material_of_a_model_that_is_gone_is_listed_counted_and_destroyed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut client = server.client(dir.path(), "alice", "one");
    for _ in 0..2 {
        client.prepare().unwrap();
    }
    let old = client.binding();
    drop((client, server));
    let server = Running::with(dir.path(), imported_again(), |c| c.stored_per_client = 3);
    let mut client = server.client(dir.path(), "alice", "one");
    assert_ne!(client.binding().model, old.model);
    assert!(client.stored().unwrap().is_empty());
    client.prepare().unwrap();
    let refused = client.prepare().unwrap_err().to_string();
    assert!(refused.contains("3 materials are stored for you"));
    assert!(refused.contains("2 of them for models that are gone"));
    assert!(refused.contains("`tacit material discard --orphans`"), "{refused}");
    let mut connection = server.connection(dir.path(), "alice");
    assert_eq!(states(&mut connection), [Usability::ModelGone, Usability::ModelGone, Usability::Ready]);
    let listed = connection.material().unwrap();
    assert!(listed[..2].iter().all(|entry| (entry.model, entry.plan) == (old.model, old.plan)));
    let orphans: Vec<MaterialId> =
        listed.iter().filter(|entry| entry.state.is_orphan()).map(|entry| entry.id).collect();
    assert_eq!(connection.discard(&orphans).unwrap(), 2);
    assert_eq!(files(&at_alice(dir.path())).len(), 1, "at both parties");
    client.prepare().unwrap();
    assert_eq!(client.stored().unwrap().len(), 2);
}

#[test]
fn material_expires_whose_model_is_gone_or_whose_client_stays_away() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    server.client(dir.path(), "alice", "one").prepare().unwrap();
    server.client(dir.path(), "alice", "two").prepare().unwrap();
    server.client(dir.path(), "bob", "one").prepare().unwrap();
    server.settle();
    let age = |days: u64| {
        let seconds = days * DAY.as_secs();
        let text = format!("UPDATE material SET wanted = wanted - {seconds} WHERE state = 'ready'");
        sql(&at_server(dir.path()), &text)
    };
    assert_eq!(age(29), 3);
    // Alice comes back within the time: what she has for models on offer is as good as new. Bob does not.
    assert_eq!(settled(&server.connection(dir.path(), "alice")), [0, 0]);
    drop(server);
    assert_eq!(age(2), 3);
    let server = Running::with(dir.path(), imported_again(), |_| {});
    assert_eq!(files(&at_server(dir.path())).len(), 2, "Bob's is gone");
    let mut bob = server.connection(dir.path(), "bob");
    assert_eq!((settled(&bob), states(&mut bob)), ([1, 0], vec![]));
    // Neither of Alice's models is on offer any more: coming back does not help them.
    assert_eq!(states(&mut server.connection(dir.path(), "alice")), [Usability::ModelGone; 2]);
    assert_eq!(age(28), 2);
    let mut alice = server.connection(dir.path(), "alice");
    assert_eq!((settled(&alice), states(&mut alice)), ([2, 0], vec![]));
    assert!(files(&at_server(dir.path())).is_empty());
    assert!(files(&at_alice(dir.path())).is_empty());
}

#[test]
fn no_number_of_connections_passes_the_quota() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.stored_per_client = 3);
    let folder = FolderId([9; 16]);
    let mut channels: Vec<Channel> = (0..6).map(|_| server.opened(dir.path(), "alice", "one")).collect();
    channels.iter_mut().for_each(set_up);
    // All at the same point: what is being made counts.
    let mut begun = Vec::new();
    for (i, channel) in channels.iter_mut().enumerate() {
        let id = MaterialId::numbered(i as u64);
        match ask(channel, &Request::Prepare { id, folder: Some(folder), of: None }) {
            Reply::Go => begun.push(channel),
            Reply::Refused { reason, .. } => assert!(reason.contains("3 materials are stored"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(begun.len(), 3);
    for channel in begun {
        channel.send(Tag::new(0xf101, "toy pad"), &[1; 8]).unwrap();
        channel.flush().unwrap();
        assert!(matches!(recv_reply(channel).unwrap(), Reply::Done { .. }));
    }
    assert_eq!(files(&at_server(dir.path())).len(), 3);
    // A place whose job failed is free again.
    Store::open_existing(&at_server(dir.path()), None).unwrap().expire(Duration::ZERO).unwrap();
    for round in 10..13 {
        let mut failing = server.opened(dir.path(), "alice", "one");
        set_up(&mut failing);
        let id = MaterialId::numbered(round);
        assert_eq!(ask(&mut failing, &Request::Prepare { id, folder: Some(folder), of: None }), Reply::Go);
    }
    wait_until("they have failed", || server.handle.connections() == 6);
    for round in 20..23 {
        let reply = prepare_at_server(&mut channels[0], MaterialId::numbered(round), folder);
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
}

#[test]
fn batches_of_one_client_wait_for_each_others_places_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.memory_per_client = 1);
    let answers = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client(dir.path(), "alice", "one");
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
fn waiting_for_a_place_in_memory_ends_with_a_word_or_with_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| {
        c.memory_per_client = 1;
        c.memory_wait = Duration::from_millis(200);
    });
    let prepare = |number| Request::Prepare { id: MaterialId::numbered(number), folder: None, of: None };
    let mut holder = server.opened(dir.path(), "alice", "one");
    set_up(&mut holder);
    assert_eq!(ask(&mut holder, &prepare(1)), Reply::Go);
    let mut waiting = server.opened(dir.path(), "alice", "one");
    set_up(&mut waiting);
    let refused = ask(&mut waiting, &prepare(2));
    assert!(
        matches!(&refused, Reply::Refused { reason, .. } if reason.contains("materials for 1 inputs are held")),
        "{refused:?}"
    );
    drop(server);
    let server = Running::start(dir.path(), |c| {
        c.memory_per_client = 1;
        c.memory_wait = 100 * DAY;
    });
    let mut holder = server.opened(dir.path(), "alice", "one");
    set_up(&mut holder);
    assert_eq!(ask(&mut holder, &prepare(1)), Reply::Go);
    let mut waiting = server.opened(dir.path(), "alice", "one");
    set_up(&mut waiting);
    tacit_client::wire::send(&mut waiting, tacit_client::wire::REQUEST, &prepare(2)).unwrap();
    drop(holder);
    assert_eq!(recv_reply(&mut waiting).unwrap(), Reply::Go, "the place came free");
    let mut last = server.opened(dir.path(), "alice", "one");
    set_up(&mut last);
    tacit_client::wire::send(&mut last, tacit_client::wire::REQUEST, &prepare(3)).unwrap();
    server.handle.shutdown(Duration::from_millis(200));
    // Told that the server stops, or just closed; not left waiting.
    let end = recv_reply(&mut last);
    assert!(matches!(end, Err(_) | Ok(Reply::Goodbye { .. })), "{end:?}");
}

#[test]
fn one_folder_for_both_parties_is_refused_before_anything_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    server.client(dir.path(), "bob", "one").prepare().unwrap();
    server.settle();
    let before = files(&at_server(dir.path()));
    let mut config = server.config(dir.path(), "alice");
    config.store = Some(at_server(dir.path()));
    let error = Connection::connect(registry(), config).err().unwrap();
    assert!(matches!(&error, ClientError::Store(StoreError::OtherParty { .. })), "{error}");
    assert!(error.to_string().contains("the server's halves"), "{error}");
    assert_eq!(files(&at_server(dir.path())), before);
}

#[test]
fn a_server_without_a_folder_says_so_and_serves() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.store = None);
    let mut connection = server.connection(dir.path(), "alice");
    assert_eq!((settled(&connection), states(&mut connection).len()), ([0, 0], 0));
    let mut client = connection.open("one", None).unwrap();
    let error = client.prepare().unwrap_err();
    assert!(error.to_string().contains("stores no material"), "{error}");
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn more_orphans_than_one_message_holds_are_all_found() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let binding = server.client(dir.path(), "alice", "one").binding();
    server.settle();
    let peer = alices_store(dir.path()).folder();
    let store = Store::open_existing(&at_server(dir.path()), None).unwrap();
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
    assert_eq!(sql(&at_server(dir.path()), &copies), many - 1);
    let mut bob = Connection::connect(registry(), server.config(dir.path(), "bob")).unwrap();
    assert!(bob.material().unwrap().is_empty());
    let mut config = server.config(dir.path(), "alice");
    config.store = Some(dir.path().join("elsewhere"));
    let listed = Connection::connect(registry(), config).unwrap().material().unwrap();
    assert_eq!(listed.len(), many);
    assert_eq!(settled(&server.connection(dir.path(), "alice")), [0, many]);
    assert!(store.list(None).unwrap().is_empty());
}
