//! Only the ledger decides which material exists: restored or forged files in the folder change nothing,
//! and the other party's folder is refused.
use crate::common::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tacit_ids::{ClientId, MaterialId};
use tacit_store::{Binding, Party, Store, StoreError};

fn open(dir: &Path) -> Store {
    Store::open(dir, Party::Server, None).unwrap()
}

fn ids(store: &Store) -> Vec<MaterialId> {
    store.list(None).unwrap().iter().map(|e| e.id).collect()
}

#[test]
fn refuses_restored_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (used, discarded) = (put(&store, b"one use"), put(&store, b"one use"));
    let copies = [used, discarded].map(|id| (file(dir.path(), id), fs::read(file(dir.path(), id)).unwrap()));
    store.claim(used, OWNER).unwrap();
    store.discard(&[discarded], None).unwrap();
    let come_back = || copies.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    let refused = |store: &Store| {
        for id in [used, discarded] {
            assert!(is_burnt(store.claim(id, OWNER), id));
            assert!(is_burnt(store.put(id, OWNER, TOY, b"again"), id));
        }
        assert!(store.list(None).unwrap().is_empty());
        assert!(store.list_of(OWNER.client).unwrap().is_empty());
        assert!(store.unused_ids().unwrap().is_empty());
    };
    come_back();
    // The running store, a second one beside it, and one after a restart.
    refused(&store);
    refused(&open(dir.path()));
    drop(store);
    come_back();
    refused(&open(dir.path()));
    assert!(copies.iter().all(|(path, _)| !path.exists()));
}

#[test]
fn ignores_files_unknown_to_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let real = put(&store, b"one use");
    let invented = MaterialId([9; 16]);
    fs::copy(file(dir.path(), real), file(dir.path(), invented)).unwrap();
    for ending in ["ready", "generating", "claimed", "burnt"] {
        for id in [real, invented] {
            fs::copy(file(dir.path(), real), dir.path().join(format!("{id}.{ending}"))).unwrap();
        }
    }
    assert!(matches!(store.claim(invented, OWNER), Err(StoreError::NoMaterial(i)) if i == invented));
    assert_eq!(ids(&store), [real]);
    assert!(store.reserve(invented, OWNER, TOY, Some(2)).is_ok());
    assert!(store.claim(real, OWNER).is_ok());
    assert!(is_burnt(store.claim(real, OWNER), real));
}

#[test]
fn reservations_count_towards_client_limit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let reserve = |binding, max| store.reserve(MaterialId::random().unwrap(), binding, TOY, Some(max));
    let reservations: Vec<_> = thread::scope(|scope| {
        let asking: Vec<_> = (0..16).map(|_| scope.spawn(|| reserve(OWNER, 3))).collect();
        asking.into_iter().filter_map(|a| a.join().unwrap().ok()).collect()
    });
    assert_eq!(reservations.len(), 3);
    let full = reserve(OWNER, 3).err().unwrap();
    assert!(matches!(full, StoreError::Full { held: 3 }), "{full}");
    // The limit is per client, whatever the model.
    assert!(reserve(Binding { client: ClientId([7; 32]), ..OWNER }, 1).is_ok());
    assert!(reserve(Binding { model: [8; 32], ..OWNER }, 3).is_err());
    let mut reservations = reservations.into_iter();
    reservations.next().unwrap().put(b"x").unwrap();
    assert!(reserve(OWNER, 3).is_err(), "ready material counts");
    drop(reservations);
    assert!(reserve(OWNER, 3).is_ok(), "released ids do not count");
    assert_eq!(store.list_of(OWNER.client).unwrap().len(), 1);
}

#[test]
fn expires_long_unwanted_material() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (old, lately, fresh) = (put(&store, b"x"), put(&store, b"x"), put(&store, b"x"));
    let age = |id: MaterialId, seconds: i64| {
        let db = rusqlite::Connection::open(dir.path().join("ledger.sqlite")).unwrap();
        let sql = "UPDATE material SET wanted = wanted - ? WHERE id = ?";
        assert_eq!(db.execute(sql, rusqlite::params![seconds, id.0]).unwrap(), 1);
    };
    age(old, 10_000);
    age(lately, 10_000);
    store.mark_wanted(&[lately, MaterialId([9; 16])]).unwrap();
    assert_eq!(store.expire(Duration::from_secs(20_000)).unwrap(), 0);
    assert_eq!(store.expire(Duration::from_secs(9_000)).unwrap(), 1);
    assert!(is_burnt(store.claim(old, OWNER), old));
    assert!(!file(dir.path(), old).exists());
    assert_eq!(ids(&store), [lately, fresh]);
    assert_eq!(store.expire(Duration::from_secs(u64::MAX)).unwrap(), 0);
    assert_eq!(store.expire(Duration::ZERO).unwrap(), 2);
}

fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).map(|p| (p.clone(), fs::read(p).unwrap())).collect()
}

#[test]
fn refuses_folder_of_other_party_untouched() {
    let dir = tempfile::tempdir().unwrap();
    for (first, second) in [(Party::Server, Party::Client), (Party::Client, Party::Server)] {
        let folder = dir.path().join(format!("{first:?}"));
        let store = Store::open(&folder, first, None).unwrap();
        let refused = || {
            let error = Store::open(&folder, second, None).err().unwrap();
            assert!(matches!(&error, StoreError::OtherParty { path, .. } if *path == folder), "{error}");
            assert!(error.to_string().contains("a folder of its own"), "{error}");
        };
        put(&store, b"x");
        refused();
        // A file as a crash leaves it: only the folder's own party removes it.
        fs::write(file(&folder, MaterialId([5; 16])), b"left").unwrap();
        drop(store);
        let before = content(&folder);
        refused();
        assert_eq!(content(&folder), before);
        assert_eq!(ids(&Store::open_existing(&folder, None).unwrap()).len(), 1);
        assert_eq!(ids(&Store::open(&folder, first, None).unwrap()).len(), 1);
    }
}

#[test]
fn open_existing_makes_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    for empty in [dir.path().join("none"), dir.path().to_owned()] {
        assert!(matches!(Store::open_existing(&empty, None), Err(StoreError::NoFolder(p)) if p == empty));
    }
    assert_eq!(content(dir.path()).len(), 0);
    let (a, b) = (open(&dir.path().join("a")), open(&dir.path().join("b")));
    assert_ne!(a.folder(), b.folder());
    assert_eq!(open(&dir.path().join("a")).folder(), a.folder());
}
