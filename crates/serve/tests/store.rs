//! The life of stored material: one use, crashes, bindings, damage.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use tacit_serve::{Binding, MaterialId, ServeError, Store};

const OWNER: Binding = Binding { client: [1; 32], model: [2; 32], plan: [3; 32] };

fn put(store: &Store, material: &[u8]) -> MaterialId {
    let id = MaterialId::random().unwrap();
    store.put(id, OWNER, material).unwrap();
    id
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| n != "lock");
    names.sort();
    names
}

#[test]
fn material_is_claimed_once_and_its_content_is_gone_then() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    let store = Store::open(&folder).unwrap();
    let id = put(&store, b"secret material");
    let file = folder.join(format!("{id}.ready"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(store.list(Some(OWNER)).unwrap()[0].bytes, 15);
    assert_eq!(store.claim(id, OWNER).unwrap().as_slice(), b"secret material");
    assert_eq!(names(&folder), [format!("{id}.burnt")]);
    let left = fs::read(folder.join(format!("{id}.burnt"))).unwrap();
    assert!(!left.windows(6).any(|w| w == b"secret"));
    for _ in 0..2 {
        assert!(matches!(store.claim(id, OWNER), Err(ServeError::Burnt(i)) if i == id));
    }
    assert!(matches!(store.put(id, OWNER, b"again"), Err(ServeError::Burnt(_))));
    assert!(matches!(store.discard(id), Err(ServeError::Burnt(_))));
    assert!(store.list(None).unwrap().is_empty());
    let unknown = MaterialId([9; 16]);
    assert!(matches!(store.claim(unknown, OWNER), Err(ServeError::NoMaterial(i)) if i == unknown));
}

#[test]
fn material_that_another_session_is_writing_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let id = MaterialId::random().unwrap();
    let file = dir.path().join(format!("{id}.generating"));
    fs::write(&file, b"half of it").unwrap();
    assert!(matches!(store.put(id, OWNER, b"mine"), Err(ServeError::Usage(_))));
    assert_eq!(fs::read(&file).unwrap(), b"half of it");
    fs::remove_file(&file).unwrap();
    // An id that is taken leaves nothing behind.
    store.put(id, OWNER, b"mine").unwrap();
    assert!(matches!(store.put(id, OWNER, b"again"), Err(ServeError::Usage(_))));
    assert_eq!(names(dir.path()), [format!("{id}.ready")]);
    assert_eq!(store.claim(id, OWNER).unwrap().as_slice(), b"mine");
}

#[test]
fn of_many_puts_at_once_one_wins_and_its_content_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    for _ in 0..10 {
        let id = MaterialId::random().unwrap();
        let stored: Vec<u8> = thread::scope(|scope| {
            let put = |k: u8| store.put(id, OWNER, &[k; 1000]).is_ok().then_some(k);
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
    let store = Store::open(dir.path()).unwrap();
    for _ in 0..10 {
        let id = put(&store, &[7; 1000]);
        let wins: usize = thread::scope(|scope| {
            let claims: Vec<_> = (0..8).map(|_| scope.spawn(|| store.claim(id, OWNER))).collect();
            claims
                .into_iter()
                .map(|c| c.join().unwrap())
                .filter(|r| match r {
                    Ok(_) => true,
                    Err(ServeError::Burnt(_)) => false,
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
    let store = Store::open(dir.path()).unwrap();
    let id = put(&store, b"x");
    let others = [
        (Binding { client: [9; 32], ..OWNER }, "another client"),
        (Binding { model: [9; 32], ..OWNER }, "another model"),
        (Binding { plan: [9; 32], ..OWNER }, "another plan"),
    ];
    for (other, text) in others {
        assert!(store.claim(id, other).unwrap_err().to_string().contains(text));
        assert!(store.discard_bound(id, other).unwrap_err().to_string().contains(text));
    }
    // Renamed onto another id: refused as well.
    let stolen = MaterialId([5; 16]);
    fs::copy(dir.path().join(format!("{id}.ready")), dir.path().join(format!("{stolen}.ready"))).unwrap();
    assert!(store.claim(stolen, OWNER).unwrap_err().to_string().contains("renamed"));
    assert!(store.claim(id, OWNER).is_ok());
}

#[test]
fn what_a_crash_leaves_is_burnt_or_removed_when_nobody_uses_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (kept, claimed, unfinished) = (put(&store, b"kept"), put(&store, b"claimed"), put(&store, b"unfinished"));
    let rename = |id: MaterialId, to: &str| {
        fs::rename(dir.path().join(format!("{id}.ready")), dir.path().join(format!("{id}.{to}"))).unwrap();
    };
    rename(claimed, "claimed");
    rename(unfinished, "generating");
    // Another process that opens the folder now must leave our work alone.
    let second = Store::open(dir.path()).unwrap();
    assert!(names(dir.path()).contains(&format!("{unfinished}.generating")));
    drop((store, second));
    let store = Store::open(dir.path()).unwrap();
    let mut want = vec![format!("{kept}.ready"), format!("{claimed}.burnt")];
    want.sort();
    assert_eq!(names(dir.path()), want);
    assert!(matches!(store.claim(claimed, OWNER), Err(ServeError::Burnt(_))));
    assert!(matches!(store.claim(unfinished, OWNER), Err(ServeError::NoMaterial(_))));
    assert_eq!(store.claim(kept, OWNER).unwrap().as_slice(), b"kept");
}

#[test]
fn damaged_files_are_burnt_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let whole = {
        let id = put(&store, &[3; 40]);
        fs::read(dir.path().join(format!("{id}.ready"))).unwrap()
    };
    // A flipped bit in every field, and truncations (each step syncs the disk, so not every byte).
    for at in (0..2 * whole.len()).step_by(7) {
        let id = put(&store, &[3; 40]);
        let path = dir.path().join(format!("{id}.ready"));
        let mut bytes = fs::read(&path).unwrap();
        if at < bytes.len() {
            bytes[at] ^= 1 << (at % 8)
        } else {
            bytes.truncate(at - whole.len())
        }
        fs::write(&path, &bytes).unwrap();
        let error = store.claim(id, OWNER).unwrap_err();
        assert!(matches!(error, ServeError::Damaged { .. }), "{at}: {error}");
        assert!(matches!(store.claim(id, OWNER), Err(ServeError::Burnt(_))), "{at}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    let id = put(&store, &[3; 40]);
    fs::write(dir.path().join(format!("{id}.ready")), &longer).unwrap();
    assert!(store.claim(id, OWNER).is_err());
}

#[test]
fn ids_are_written_and_read() {
    let id = MaterialId::random().unwrap();
    assert_eq!(id.to_string().parse::<MaterialId>().unwrap(), id);
    for bad in ["", "xyz", &"g".repeat(32), &"0".repeat(33), "../../../../etc/passwd0000000000"] {
        assert!(bad.parse::<MaterialId>().is_err());
    }
}
