//! The life of stored material: one use, crashes, bindings, damage.
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tacit_ids::{ClientId, FolderId, MaterialId};
use tacit_store::managed::MARK;
use tacit_store::{Binding, Claimed, Origin, Party, SealKey, Step, Store, StoreError};

const OWNER: Binding = Binding { client: ClientId([1; 32]), model: [2; 32], plan: [3; 32] };
const TOY: Origin<'_> = Origin { backend: "toy", peer: FolderId([4; 16]), maker: None };

fn open(dir: &Path) -> Store {
    Store::open(dir, Party::Client, None).unwrap()
}

fn put(store: &Store, material: &[u8]) -> MaterialId {
    let id = MaterialId::random().unwrap();
    store.put(id, OWNER, TOY, material).unwrap();
    id
}

fn name(id: MaterialId) -> String {
    format!("{id}.material")
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
fn material_is_claimed_once_and_its_content_is_gone_then() {
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
        assert!(matches!(store.claim(id, OWNER), Err(StoreError::Burnt(i)) if i == id));
    }
    assert!(matches!(store.put(id, OWNER, TOY, b"again"), Err(StoreError::Burnt(_))));
    assert!(store.discard(&[id], None).unwrap().is_empty());
    assert!(store.list(None).unwrap().is_empty());
    let unknown = MaterialId([9; 16]);
    assert!(matches!(store.claim(unknown, OWNER), Err(StoreError::NoMaterial(i)) if i == unknown));
    // The history outlives the process.
    drop(store);
    let store = open(&folder);
    assert!(matches!(store.put(id, OWNER, TOY, b"again"), Err(StoreError::Burnt(_))));
    assert!(names(&folder).is_empty());
}

#[test]
fn material_that_another_session_is_writing_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let id = MaterialId::random().unwrap();
    let (other, folder) = (open(dir.path()), dir.path().to_owned());
    // While the first session is in the middle of its work, the second wants the same id.
    let store = Store::open_hooked(dir.path(), Party::Client, None, move |step| {
        if step == Step::Written {
            assert!(matches!(other.put(id, OWNER, TOY, b"mine"), Err(StoreError::Exists(_))));
            assert!(matches!(other.claim(id, OWNER), Err(StoreError::NoMaterial(_))));
            assert!(other.discard(&[id], None).unwrap().is_empty());
            assert!(other.unused_ids().unwrap().contains(&id), "it is being made");
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
fn a_put_that_fails_leaves_nothing_and_may_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let id = MaterialId::random().unwrap();
    fs::create_dir(dir.path().join(name(id))).unwrap();
    assert!(matches!(store.put(id, OWNER, TOY, b"x"), Err(StoreError::File { .. })));
    fs::remove_dir(dir.path().join(name(id))).unwrap();
    assert!(matches!(store.claim(id, OWNER), Err(StoreError::NoMaterial(_))));
    store.put(id, OWNER, TOY, b"x").unwrap();
    assert_eq!(store.claim(id, OWNER).unwrap().as_slice(), b"x");
}

#[test]
fn of_many_puts_at_once_one_wins_and_its_content_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
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
fn of_many_claims_at_once_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for _ in 0..10 {
        let id = put(&store, &[7; 1000]);
        let wins: usize = thread::scope(|scope| {
            let claims: Vec<_> = (0..8).map(|_| scope.spawn(|| store.claim(id, OWNER))).collect();
            claims
                .into_iter()
                .map(|c| c.join().unwrap())
                .filter(|r| match r {
                    Ok(_) => true,
                    Err(StoreError::Burnt(_)) => false,
                    Err(e) => panic!("{e}"),
                })
                .count()
        });
        assert_eq!(wins, 1);
    }
}

#[test]
fn other_bindings_are_refused_and_leave_the_material_ready() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let id = put(&store, b"x");
    let others = [
        (Binding { client: ClientId([9; 32]), ..OWNER }, "another client"),
        (Binding { model: [9; 32], ..OWNER }, "another model"),
        (Binding { plan: [9; 32], ..OWNER }, "another plan"),
    ];
    for (other, text) in others {
        assert!(store.claim(id, other).unwrap_err().to_string().contains(text));
    }
    assert!(store.discard(&[id], Some(ClientId([9; 32]))).unwrap().is_empty());
    // A file under another id is no material: the ledger says what there is.
    let stolen = MaterialId([5; 16]);
    fs::copy(dir.path().join(name(id)), dir.path().join(name(stolen))).unwrap();
    assert!(matches!(store.claim(stolen, OWNER), Err(StoreError::NoMaterial(_))));
    assert!(store.claim(id, OWNER).is_ok());
}

#[test]
fn what_is_ready_is_listed_in_order_and_counted_by_client() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let bob = Binding { client: ClientId([7; 32]), ..OWNER };
    let other_model = Binding { model: [8; 32], ..OWNER };
    let ids: Vec<MaterialId> = [OWNER, bob, other_model, OWNER]
        .into_iter()
        .map(|binding| {
            let id = MaterialId::random().unwrap();
            store.put(id, binding, TOY, b"x").unwrap();
            id
        })
        .collect();
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
fn recovery_waits_until_nobody_uses_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (kept, lost) = (put(&store, b"kept"), put(&store, b"lost"));
    let stray = MaterialId([5; 16]);
    fs::write(dir.path().join(name(stray)), b"no row says what this is").unwrap();
    fs::write(dir.path().join("notes.txt"), b"not ours").unwrap();
    fs::remove_file(dir.path().join(name(lost))).unwrap();
    // Another process that opens the folder now must leave our work alone.
    let second = open(dir.path());
    assert!(names(dir.path()).contains(&name(stray)));
    assert_eq!(second.list(None).unwrap().len(), 2);
    drop((store, second));
    let store = open(dir.path());
    let mut all = vec![name(kept), "notes.txt".into(), name(stray)];
    all.sort();
    assert_eq!(names(dir.path()), all, "what the ledger never knew is not ours, and of no use");
    assert!(matches!(store.claim(lost, OWNER), Err(StoreError::Burnt(_))));
    assert!(matches!(store.claim(stray, OWNER), Err(StoreError::NoMaterial(_))));
    assert_eq!(store.claim(kept, OWNER).unwrap().as_slice(), b"kept");
}

#[test]
fn damaged_files_are_burnt_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let damaged = |id: MaterialId, what: &str| {
        let error = store.claim(id, OWNER).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { id: i, what: w } if *i == id && w.contains(what)), "{error}");
        assert!(matches!(store.claim(id, OWNER), Err(StoreError::Burnt(_))));
        assert!(!dir.path().join(name(id)).exists());
    };
    // A flipped bit, and truncations (each step syncs the disk, so not every byte).
    for at in (0..80).step_by(7) {
        let id = put(&store, &[3; 40]);
        let path = dir.path().join(name(id));
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
    fs::write(dir.path().join(name(longer)), [3; 41]).unwrap();
    damaged(longer, "41 bytes");
    let missing = put(&store, &[3; 40]);
    fs::remove_file(dir.path().join(name(missing))).unwrap();
    damaged(missing, "missing");
    // Two files exchanged.
    let (a, b) = (put(&store, &[1; 40]), put(&store, &[2; 40]));
    fs::copy(dir.path().join(name(a)), dir.path().join(name(b))).unwrap();
    damaged(b, "checksum");
    assert_eq!(store.claim(a, OWNER).unwrap().as_slice(), [1; 40]);
}

#[test]
fn foreign_and_newer_ledgers_are_refused() {
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
    // One of the first version is brought to this one.
    const OLD: &str = "DROP TABLE upload; DROP TABLE ordered; DROP TABLE clock; ALTER TABLE material DROP COLUMN maker";
    rusqlite::Connection::open(&ledger).unwrap().execute_batch(OLD).unwrap();
    pragma("user_version", 1);
    assert!(Store::open(dir.path(), Party::Client, None).unwrap().uploads().unwrap().is_empty());
    pragma("application_id", 1);
    let error = Store::open(dir.path(), Party::Client, None).err().unwrap();
    assert!(error.to_string().contains("another program"), "{error}");
    fs::write(&ledger, [0x5a; 5000]).unwrap();
    assert!(matches!(Store::open(dir.path(), Party::Client, None), Err(StoreError::Ledger { .. })));
}

#[test]
fn empty_material_and_material_of_several_chunks_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for len in [0, 1, 300_000] {
        let material: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let id = put(&store, &material);
        assert_eq!(*store.claim(id, OWNER).unwrap(), material);
    }
}

/// Large material is written as it comes and read as it is used, sealed or not: the same bytes, once.
#[test]
fn material_in_pieces_is_the_same_material() {
    let key = SealKey::from_bytes(&[7; 32]).unwrap();
    let material: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    for key in [None, Some(key)] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Party::Client, key.clone()).unwrap();
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
        let Claimed::Spooled(bytes, mut source) = store.claim_within(id, OWNER, 1000).unwrap() else {
            panic!("it is larger than what may be in memory")
        };
        assert!(names(dir.path()).is_empty(), "its file has no name any more");
        let mut read = Vec::new();
        source.read_to_end(&mut read).unwrap();
        assert!(read == material);
        assert!(bytes == material.len() as u64);
        assert!(matches!(store.claim_within(id, OWNER, 1000), Err(StoreError::Burnt(_))));
        // Small material is there at once.
        let id = put(&store, b"small");
        assert!(matches!(store.claim_within(id, OWNER, 5).unwrap(), Claimed::Memory(bytes) if *bytes == *b"small"));
        // Damage shows before anything is given out.
        let id = put(&store, &material);
        let path = dir.path().join(name(id));
        let mut bytes = fs::read(&path).unwrap();
        bytes[150_000] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(matches!(store.claim_within(id, OWNER, 1000), Err(StoreError::Damaged { .. })));
        // What is given up, or too short, leaves nothing, and the id may be taken again.
        let (id, place) = reserved();
        let mut place = place.place(10).unwrap();
        place.write_all(b"nine byte").unwrap();
        assert_eq!(names(dir.path()).len(), 1);
        assert!(place.finish().is_err());
        drop(store.reserve(id, OWNER, TOY, None).unwrap().place(10).unwrap());
        assert!(names(dir.path()).is_empty());
        assert!(store.list(None).unwrap().is_empty());
        // Without a name from the beginning.
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
fn what_is_in_hand_is_nobody_elses_and_is_not_used_up() {
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
        assert!(matches!(store.pick(id, OWNER), Err(StoreError::Burnt(i)) if i == id));
        assert!(matches!(store.claim(id, OWNER), Err(StoreError::Burnt(_))));
    }
    assert!(names(dir.path()).is_empty());
    // Destroyed while it is in hand, and claimed by somebody who does not look whether it is.
    for destroy in [true, false] {
        let id = put(&store, b"x");
        let (picked, _) = store.pick(id, OWNER).unwrap().unwrap();
        match destroy {
            true => assert_eq!(other.discard(&[id], None).unwrap(), [id]),
            false => assert_eq!(other.claim(id, OWNER).unwrap().as_slice(), b"x"),
        }
        assert!(matches!(store.claim_picked(picked), Err(StoreError::Burnt(i)) if i == id));
    }
    // What is damaged is burnt, what is another's is left alone.
    let id = put(&store, b"material");
    assert!(matches!(store.pick(id, Binding { plan: [9; 32], ..OWNER }), Err(StoreError::WrongBinding { .. })));
    fs::write(dir.path().join(name(id)), b"Material").unwrap();
    assert!(matches!(store.pick(id, OWNER), Err(StoreError::Damaged { .. })));
    assert!(matches!(store.pick(id, OWNER), Err(StoreError::Burnt(_))));
    assert!(matches!(store.pick(MaterialId([9; 16]), OWNER), Err(StoreError::NoMaterial(_))));
}

#[test]
fn large_material_in_hand_is_read_as_it_is_used() {
    let key = SealKey::from_bytes(&[7; 32]).unwrap();
    let material: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    for key in [None, Some(key)] {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), Party::Client, key.clone()).unwrap();
        let (store, other) = (open(), open());
        let id = put(&store, &material);
        // Dropped, it is as it was.
        drop(store.pick_within(id, OWNER, 1000).unwrap().unwrap());
        let Some((picked, Claimed::Spooled(bytes, mut source))) = other.pick_within(id, OWNER, 1000).unwrap() else {
            panic!("it is larger than what may be in memory")
        };
        assert!(store.pick_within(id, OWNER, 1000).unwrap().is_none());
        assert!(store.pick(id, OWNER).unwrap().is_none());
        other.claim_picked(picked).unwrap();
        assert!(names(dir.path()).is_empty(), "its file has no name any more");
        let mut read = Vec::new();
        source.read_to_end(&mut read).unwrap();
        assert!(read == material);
        assert!(bytes == material.len() as u64);
        assert!(matches!(store.pick_within(id, OWNER, 1000), Err(StoreError::Burnt(_))));
        let id = put(&store, b"small");
        let (_, content) = store.pick_within(id, OWNER, 5).unwrap().unwrap();
        assert!(matches!(content, Claimed::Memory(bytes) if *bytes == *b"small"));
        // Damage shows before anything is given out, and burns it.
        let id = put(&store, &material);
        let path = dir.path().join(name(id));
        let mut bytes = fs::read(&path).unwrap();
        bytes[50_000] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(matches!(store.pick_within(id, OWNER, 1000), Err(StoreError::Damaged { .. })));
        assert!(matches!(store.pick_within(id, OWNER, 1000), Err(StoreError::Burnt(_))));
    }
}

#[test]
fn what_is_ordered_is_no_stock_and_is_not_lost_until_it_is_given_up() {
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
    assert!(store.ordered().unwrap().is_empty(), "both were old");
    assert!(store.unused_ids().unwrap().is_empty(), "both were old");
}
