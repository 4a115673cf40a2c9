//! The life of stored material: one use, crashes, bindings, damage.
use crate::common::*;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tacit_ids::{ClientId, MaterialId};
use tacit_store::managed::MARK;
use tacit_store::{Binding, Claimed, Origin, Party, Step, Store, StoreError};

fn name(id: MaterialId) -> String {
    format!("{id}.material")
}

fn other_plan() -> Binding {
    Binding { plan: [9; 32], ..OWNER }
}

/// Changes one bit of the file of new material.
fn put_damaged(store: &Store, material: &[u8], at: usize) -> MaterialId {
    let id = put(store, material);
    let mut bytes = fs::read(file(store.dir(), id)).unwrap();
    bytes[at] ^= 1;
    fs::write(file(store.dir(), id), bytes).unwrap();
    id
}

/// Reads all of large material, which was claimed or picked with at most 1000 bytes in memory.
fn read_spooled(claimed: Claimed) -> Vec<u8> {
    let Claimed::Spooled(bytes, mut source) = claimed else { panic!("it is in memory") };
    let mut read = Vec::new();
    source.read_to_end(&mut read).unwrap();
    assert!(bytes == read.len() as u64);
    read
}

/// Material of some chunks, and stores without and with a key.
fn large(len: u32) -> (Vec<u8>, [Option<tacit_store::SealKey>; 2]) {
    ((0..len).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect(), [None, Some(sealing_key())])
}

/// Files of material in a folder.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| n != "lock" && n != "reserve" && n != MARK && !n.starts_with("ledger.sqlite"));
    names.sort();
    names
}

#[test]
fn claim_succeeds_once_and_removes_content() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    let store = open(&folder);
    let id = put(&store, b"secret material");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for file in fs::read_dir(&folder).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
    let entry = store.list(Some(OWNER)).unwrap().remove(0);
    assert_eq!((entry.id, entry.binding, entry.backend.as_str(), entry.bytes), (id, OWNER, "toy", 15));
    assert_eq!(store.claim(id, OWNER).unwrap().as_slice(), b"secret material");
    assert!(names(&folder).is_empty());
    for file in fs::read_dir(&folder).unwrap() {
        assert!(!fs::read(file.unwrap().path()).unwrap().windows(6).any(|w| w == b"secret"));
    }
    for _ in 0..2 {
        assert!(is_burnt(store.claim(id, OWNER), id));
    }
    assert!(is_burnt(store.put(id, OWNER, TOY, b"again"), id));
    assert!(store.discard(&[id], None).unwrap().is_empty());
    assert!(store.list(None).unwrap().is_empty());
    let unknown = MaterialId([9; 16]);
    assert!(matches!(store.claim(unknown, OWNER), Err(StoreError::NoMaterial(i)) if i == unknown));
    // The history outlives the process.
    drop(store);
    assert!(is_burnt(open(&folder).put(id, OWNER, TOY, b"again"), id));
    assert!(names(&folder).is_empty());
}

#[test]
fn unfinished_material_of_other_session_is_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let id = MaterialId::random().unwrap();
    let (other, folder) = (open(dir.path()), dir.path().to_owned());
    // While the first session is in the middle of its work, the second wants the same id.
    let store = Store::open_hooked(dir.path(), Party::Client, None, move |step| {
        if step == Step::Written {
            assert!(matches!(other.put(id, OWNER, TOY, b"mine"), Err(StoreError::Exists(_))));
            assert!(matches!(other.claim(id, OWNER), Err(StoreError::NoMaterial(_))));
            assert!(other.discard(&[id], None).unwrap().is_empty());
            assert!(other.unused_ids().unwrap().contains(&id));
            assert!(other.list(None).unwrap().is_empty());
            assert_eq!(fs::read(folder.join(name(id))).unwrap(), b"all of it");
        }
    })
    .unwrap();
    store.put(id, OWNER, TOY, b"all of it").unwrap();
    // An id that is taken leaves nothing behind.
    assert!(matches!(store.put(id, OWNER, TOY, b"again"), Err(StoreError::Exists(_))));
    assert_eq!(names(dir.path()), [name(id)]);
    assert_eq!(store.claim(id, OWNER).unwrap().as_slice(), b"all of it");
}

#[test]
fn failed_put_can_be_repeated() {
    let (dir, store) = new_store();
    let id = MaterialId::random().unwrap();
    let path = file(dir.path(), id);
    fs::create_dir(&path).unwrap();
    assert!(matches!(store.put(id, OWNER, TOY, b"x"), Err(StoreError::File { .. })));
    fs::remove_dir(&path).unwrap();
    assert!(matches!(store.claim(id, OWNER), Err(StoreError::NoMaterial(_))));
    store.put(id, OWNER, TOY, b"x").unwrap();
    assert_eq!(store.claim(id, OWNER).unwrap().as_slice(), b"x");
}

#[test]
fn one_of_concurrent_puts_succeeds() {
    let (_dir, store) = new_store();
    for _ in 0..10 {
        let id = MaterialId::random().unwrap();
        let stored: Vec<u8> = thread::scope(|scope| {
            let put = |k: u8| store.put(id, OWNER, TOY, &[k; 1000]).is_ok().then_some(k);
            let puts: Vec<_> = (0..8).map(|k| scope.spawn(move || put(k))).collect();
            puts.into_iter().filter_map(|p| p.join().unwrap()).collect()
        });
        assert_eq!(stored.len(), 1);
        assert_eq!(store.claim(id, OWNER).unwrap().as_slice(), [stored[0]; 1000]);
    }
}

#[test]
fn one_of_concurrent_claims_succeeds() {
    let (_dir, store) = new_store();
    for _ in 0..10 {
        let id = put(&store, &[7; 1000]);
        let wins = thread::scope(|scope| {
            let claims: Vec<_> = (0..8).map(|_| scope.spawn(|| store.claim(id, OWNER))).collect();
            let won = claims.into_iter().map(|claim| match claim.join().unwrap() {
                Ok(_) => 1,
                Err(StoreError::Burnt(_)) => 0,
                Err(e) => panic!("{e}"),
            });
            won.sum::<usize>()
        });
        assert_eq!(wins, 1);
    }
}

#[test]
fn refuses_other_bindings() {
    let (dir, store) = new_store();
    let id = put(&store, b"x");
    for (other, text) in [
        (Binding { client: ClientId([9; 32]), ..OWNER }, "another client"),
        (Binding { model: [9; 32], ..OWNER }, "another model"),
        (other_plan(), "another plan"),
    ] {
        assert!(store.claim(id, other).unwrap_err().to_string().contains(text));
    }
    assert!(store.discard(&[id], Some(ClientId([9; 32]))).unwrap().is_empty());
    // A file under another id is no material: the ledger says what there is.
    let stolen = MaterialId([5; 16]);
    fs::copy(file(dir.path(), id), file(dir.path(), stolen)).unwrap();
    assert!(matches!(store.claim(stolen, OWNER), Err(StoreError::NoMaterial(_))));
    assert!(store.claim(id, OWNER).is_ok());
}

#[test]
fn lists_ready_material_in_order() {
    let (_dir, store) = new_store();
    let bob = Binding { client: ClientId([7; 32]), ..OWNER };
    let other_model = Binding { model: [8; 32], ..OWNER };
    let ids = [OWNER, bob, other_model, OWNER].map(|binding| {
        let id = MaterialId::random().unwrap();
        store.put(id, binding, TOY, b"x").unwrap();
        id
    });
    let listed = |binding| -> Vec<MaterialId> { store.list(binding).unwrap().iter().map(|e| e.id).collect() };
    assert_eq!(listed(None), ids);
    assert_eq!(listed(Some(OWNER)), [ids[0], ids[3]]);
    let count = |client| store.list_of(client).unwrap().len();
    assert_eq!((count(OWNER.client), count(bob.client)), (3, 1));
    store.claim(ids[0], OWNER).unwrap();
    assert_eq!(store.discard(&ids[..2], Some(bob.client)).unwrap(), [ids[1]]);
    assert_eq!(listed(None), ids[2..]);
    assert_eq!((count(OWNER.client), count(bob.client), count(ClientId([99; 32]))), (2, 0, 0));
}

#[test]
fn recovery_runs_when_folder_is_unused() {
    let (dir, store) = new_store();
    let (kept, lost) = (put(&store, b"kept"), put(&store, b"lost"));
    let stray = MaterialId([5; 16]);
    fs::write(file(dir.path(), stray), b"no row says what this is").unwrap();
    fs::write(dir.path().join("notes.txt"), b"not ours").unwrap();
    fs::remove_file(file(dir.path(), lost)).unwrap();
    // Another process that opens the folder now must leave our work alone.
    let second = open(dir.path());
    assert!(names(dir.path()).contains(&name(stray)));
    assert_eq!(second.list(None).unwrap().len(), 2);
    drop((store, second));
    let store = open(dir.path());
    let mut all = vec![name(kept), "notes.txt".into(), name(stray)];
    all.sort();
    assert_eq!(names(dir.path()), all);
    assert!(is_burnt(store.claim(lost, OWNER), lost));
    assert!(matches!(store.claim(stray, OWNER), Err(StoreError::NoMaterial(_))));
    assert_eq!(store.claim(kept, OWNER).unwrap().as_slice(), b"kept");
}

#[test]
fn burns_damaged_material() {
    let (dir, store) = new_store();
    let damaged = |id: MaterialId, what: &str| {
        let error = store.claim(id, OWNER).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { id: i, what: w } if *i == id && w.contains(what)), "{error}");
        assert!(is_burnt(store.claim(id, OWNER), id));
        assert!(!file(dir.path(), id).exists());
    };
    // A flipped bit, and truncations (each step syncs the disk, so not every byte).
    for at in (0..80).step_by(7) {
        let id = put(&store, &[3; 40]);
        let path = file(dir.path(), id);
        let mut bytes = fs::read(&path).unwrap();
        if at < bytes.len() {
            bytes[at] ^= 1 << (at % 8);
        } else {
            bytes.truncate(at - 40);
        }
        fs::write(&path, &bytes).unwrap();
        damaged(id, if at < 40 { "checksum" } else { "40 expected" });
    }
    let longer = put(&store, &[3; 40]);
    fs::write(file(dir.path(), longer), [3; 41]).unwrap();
    damaged(longer, "41 bytes");
    let missing = put(&store, &[3; 40]);
    fs::remove_file(file(dir.path(), missing)).unwrap();
    damaged(missing, "missing");
    // Two files exchanged.
    let (a, b) = (put(&store, &[1; 40]), put(&store, &[2; 40]));
    fs::copy(file(dir.path(), a), file(dir.path(), b)).unwrap();
    damaged(b, "checksum");
    assert_eq!(store.claim(a, OWNER).unwrap().as_slice(), [1; 40]);
}

#[test]
fn refuses_foreign_and_newer_ledgers() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.sqlite");
    drop(open(dir.path()));
    let pragma = |name: &str, value: i32| {
        let db = rusqlite::Connection::open(&ledger).unwrap();
        db.pragma_update(None, name, value).unwrap();
    };
    pragma("user_version", 99);
    let error = Store::open(dir.path(), Party::Client, None).err().unwrap();
    assert!(matches!(error, StoreError::ForeignLedger { .. }), "{error}");
    assert!(error.to_string().contains("version 99"), "{error}");
    // A ledger of the first version is migrated.
    const OLD: &str = "DROP TABLE upload; DROP TABLE ordered; DROP TABLE clock; ALTER TABLE material DROP COLUMN maker";
    rusqlite::Connection::open(&ledger).unwrap().execute_batch(OLD).unwrap();
    pragma("user_version", 1);
    assert!(open(dir.path()).uploads().unwrap().is_empty());
    pragma("application_id", 1);
    let error = Store::open(dir.path(), Party::Client, None).err().unwrap();
    assert!(error.to_string().contains("another program"), "{error}");
    fs::write(&ledger, [0x5a; 5000]).unwrap();
    assert!(matches!(Store::open(dir.path(), Party::Client, None), Err(StoreError::Ledger { .. })));
}

#[test]
fn returns_empty_and_multi_chunk_material() {
    let (_dir, store) = new_store();
    for len in [0, 1, 300_000] {
        let material: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let id = put(&store, &material);
        assert_eq!(*store.claim(id, OWNER).unwrap(), material);
    }
}

#[test]
fn streamed_material_round_trips() {
    let (material, keys) = large(200_000);
    for key in keys {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Party::Client, key).unwrap();
        let reserved = || {
            let id = MaterialId::random().unwrap();
            (id, store.reserve(id, OWNER, TOY, None).unwrap())
        };
        let (id, place) = reserved();
        let mut place = place.place(material.len() as u64).unwrap();
        // Anew, after some of it.
        place.write_all(&material[5..100_000]).unwrap();
        place.rewind().unwrap();
        assert!(place.seek(SeekFrom::Start(1)).is_err());
        assert!(place.stream_position().is_err());
        material.chunks(777).for_each(|piece| place.write_all(piece).unwrap());
        assert!(place.write_all(&[0]).is_err(), "more than announced");
        place.finish().unwrap();
        let claimed = store.claim_within(id, OWNER, 1000).unwrap();
        assert!(names(dir.path()).is_empty());
        assert!(read_spooled(claimed) == material);
        assert!(is_burnt(store.claim_within(id, OWNER, 1000), id));
        // Small material is there at once.
        let id = put(&store, b"small");
        assert!(matches!(store.claim_within(id, OWNER, 5).unwrap(), Claimed::Memory(bytes) if *bytes == *b"small"));
        // Damage shows before anything is given out.
        let id = put_damaged(&store, &material, 150_000);
        assert!(matches!(store.claim_within(id, OWNER, 1000), Err(StoreError::Damaged { .. })));
        // Material that is given up, or too short, leaves nothing, and the id may be taken again.
        let (id, place) = reserved();
        let mut place = place.place(10).unwrap();
        place.write_all(b"nine byte").unwrap();
        assert_eq!(names(dir.path()).len(), 1);
        assert!(place.finish().is_err());
        drop(store.reserve(id, OWNER, TOY, None).unwrap().place(10).unwrap());
        assert!(names(dir.path()).is_empty());
        assert!(store.list(None).unwrap().is_empty());
        // A spool has no name from the beginning.
        let mut spool = store.spool(id, material.len() as u64).unwrap();
        assert!(names(dir.path()).is_empty());
        spool.write_all(&material[1..]).unwrap();
        spool.rewind().unwrap();
        spool.write_all(&material).unwrap();
        let mut read = Vec::new();
        spool.finish().unwrap().read_to_end(&mut read).unwrap();
        assert!(read == material);
        assert!(store.spool(id, 3).unwrap().finish().is_err(), "not all was written");
    }
}

#[test]
fn picked_material_is_exclusive_and_stays_ready() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (open(dir.path()), open(dir.path()));
    let id = put(&store, b"secret material");
    let (picked, content) = store.pick(id, OWNER).unwrap().unwrap();
    assert_eq!(content.as_slice(), b"secret material");
    assert!(other.pick(id, OWNER).unwrap().is_none());
    assert!(store.pick(id, OWNER).unwrap().is_none());
    drop(picked);
    assert_eq!(store.list(None).unwrap().len(), 1);
    let (picked, _) = other.pick(id, OWNER).unwrap().unwrap();
    other.claim_picked(picked).unwrap();
    for store in [&store, &other] {
        assert!(is_burnt(store.pick(id, OWNER), id));
        assert!(is_burnt(store.claim(id, OWNER), id));
    }
    assert!(names(dir.path()).is_empty());
    // Destroyed while it is picked, and claimed without being picked.
    for destroy in [true, false] {
        let id = put(&store, b"x");
        let (picked, _) = store.pick(id, OWNER).unwrap().unwrap();
        match destroy {
            true => assert_eq!(other.discard(&[id], None).unwrap(), [id]),
            false => assert_eq!(other.claim(id, OWNER).unwrap().as_slice(), b"x"),
        }
        assert!(is_burnt(store.claim_picked(picked), id));
    }
    // Damaged material is burnt, another's is left alone.
    let id = put(&store, b"material");
    assert!(matches!(store.pick(id, other_plan()), Err(StoreError::WrongBinding { .. })));
    fs::write(file(dir.path(), id), b"Material").unwrap();
    assert!(matches!(store.pick(id, OWNER), Err(StoreError::Damaged { .. })));
    assert!(is_burnt(store.pick(id, OWNER), id));
    assert!(matches!(store.pick(MaterialId([9; 16]), OWNER), Err(StoreError::NoMaterial(_))));
}

#[test]
fn streams_large_picked_material() {
    let (material, keys) = large(100_000);
    for key in keys {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), Party::Client, key.clone()).unwrap();
        let (store, other) = (open(), open());
        let id = put(&store, &material);
        // Dropped, it is as it was.
        drop(store.pick_within(id, OWNER, 1000).unwrap().unwrap());
        let (picked, content) = other.pick_within(id, OWNER, 1000).unwrap().unwrap();
        assert!(store.pick_within(id, OWNER, 1000).unwrap().is_none());
        assert!(store.pick(id, OWNER).unwrap().is_none());
        other.claim_picked(picked).unwrap();
        assert!(names(dir.path()).is_empty());
        assert!(read_spooled(content) == material);
        assert!(is_burnt(store.pick_within(id, OWNER, 1000), id));
        let id = put(&store, b"small");
        let (_, content) = store.pick_within(id, OWNER, 5).unwrap().unwrap();
        assert!(matches!(content, Claimed::Memory(bytes) if *bytes == *b"small"));
        // Damage shows before anything is given out, and burns the material.
        let id = put_damaged(&store, &material, 50_000);
        assert!(matches!(store.pick_within(id, OWNER, 1000), Err(StoreError::Damaged { .. })));
        assert!(is_burnt(store.pick_within(id, OWNER, 1000), id));
    }
}

#[test]
fn orders_persist_until_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (store, helper) = (open(dir.path()), ClientId([9; 32]));
    let ids = [1, 2].map(|n| MaterialId([n; 16]));
    store.order(&ids, OWNER, helper).unwrap();
    assert!(store.order(&[MaterialId([3; 16]), ids[0]], OWNER, helper).is_err());
    assert!(store.list(None).unwrap().is_empty());
    drop(store);
    // No process needs to live for it.
    let store = open(dir.path());
    let ordered: Vec<_> = store.ordered().unwrap().iter().map(|o| (o.id, o.binding, o.helper)).collect();
    assert_eq!(ordered, ids.map(|id| (id, OWNER, helper)));
    assert_eq!(store.unused_ids().unwrap(), ids.into());
    store.put(ids[0], OWNER, Origin { maker: Some(helper), ..TOY }, b"x").unwrap();
    store.end_orders(&ids[..1]).unwrap();
    assert_eq!(store.list(None).unwrap()[0].maker, Some(helper));
    assert_eq!(store.unused_ids().unwrap(), ids.into());
    store.expire(Duration::ZERO).unwrap();
    assert!(store.ordered().unwrap().is_empty());
    assert!(store.unused_ids().unwrap().is_empty());
}
