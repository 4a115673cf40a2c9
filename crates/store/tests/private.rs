//! Folders, files and keys are their user's alone.
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use tacit_ids::{ClientId, MaterialId};
use tacit_store::{Binding, Store, StoreError, keys};

const OWNER: Binding = Binding { client: ClientId([1; 32]), model: [2; 32], plan: [3; 32] };

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn widen(path: &Path) {
    let wide = if path.is_dir() { 0o755 } else { 0o644 };
    fs::set_permissions(path, Permissions::from_mode(wide)).unwrap();
}

fn refused(result: Result<Store, StoreError>, why: &str) {
    let error = result.err().unwrap();
    assert!(matches!(&error, StoreError::NotPrivate { .. }) && error.to_string().contains(why), "{error}");
}

#[test]
fn what_is_open_to_others_is_closed_when_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    let store = Store::open(&folder, None).unwrap();
    store.put(MaterialId([1; 16]), OWNER, "toy", b"x").unwrap();
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(files.len(), 5, "material, lock, and the ledger's three: {files:?}");
    files.iter().for_each(|f| widen(f));
    widen(&folder);
    let second = Store::open(&folder, None).unwrap();
    assert_eq!(mode(&folder), 0o700);
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    drop((store, second));
    // What is narrower already stays so.
    fs::set_permissions(folder.join("lock"), Permissions::from_mode(0o600)).unwrap();
    assert!(Store::open(&folder, None).is_ok());
}

#[test]
fn links_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    drop(Store::open(&real, None).unwrap());
    symlink(&real, &link).unwrap();
    refused(Store::open(&link, None), "symbolic link");
    refused(Store::open(&dir.path().join("link/"), None), "symbolic link");
    for name in ["lock", "ledger.sqlite"] {
        let moved = dir.path().join(name);
        fs::rename(real.join(name), &moved).unwrap();
        symlink(&moved, real.join(name)).unwrap();
        refused(Store::open(&real, None), "symbolic link");
        fs::remove_file(real.join(name)).unwrap();
        fs::rename(&moved, real.join(name)).unwrap();
    }
    assert!(Store::open(&real, None).is_ok());
    fs::write(dir.path().join("file"), b"").unwrap();
    assert!(matches!(Store::open(&dir.path().join("file"), None), Err(StoreError::File { .. })));
}

#[test]
fn what_belongs_to_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    drop(Store::open(&folder, None).unwrap());
    // Only root can give files away; for anybody else there is the system's own folder.
    if chown(&folder, Some(12_345), None).is_err() {
        refused(Store::open(Path::new("/usr"), None), "belongs to user 0");
        return;
    }
    refused(Store::open(&folder, None), "belongs to user 12345");
    chown(&folder, Some(0), None).unwrap();
    chown(folder.join("ledger.sqlite"), Some(12_345), None).unwrap();
    refused(Store::open(&folder, None), "belongs to user 12345");
}

#[test]
fn private_keys_are_closed_to_others_and_certificates_name_clients() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("keys");
    keys::init(&folder, &["example.org".into()], &["alice".into()]).unwrap();
    keys::add_client(&folder, "bob").unwrap();
    assert_eq!(mode(&folder), 0o700);
    for file in ["ca.key", "server.key", "alice.key", "bob.key"] {
        assert_eq!(mode(&folder.join(file)), 0o600);
        widen(&folder.join(file));
    }
    widen(&folder);
    let (alice, bob) = (keys::load_client(&folder, "alice").unwrap(), keys::load_client(&folder, "bob").unwrap());
    assert_ne!(alice.fingerprint, bob.fingerprint);
    assert_eq!(alice.fingerprint, keys::fingerprint(alice.tls.certificate()));
    keys::load_server(&folder).unwrap();
    keys::add_client(&folder, "carol").unwrap();
    assert_eq!(mode(&folder), 0o700);
    for file in ["ca.key", "server.key", "alice.key", "bob.key"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    fs::rename(folder.join("alice.key"), folder.join("moved")).unwrap();
    symlink(folder.join("moved"), folder.join("alice.key")).unwrap();
    assert!(matches!(keys::load_client(&folder, "alice"), Err(StoreError::NotPrivate { .. })));
}

#[test]
fn key_folders_and_names_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    keys::init(dir.path(), &[], &[]).unwrap();
    assert!(matches!(keys::init(dir.path(), &[], &[]), Err(StoreError::CaExists(_))));
    for name in ["", "ca", "server", "../x", "a b", &"x".repeat(65)] {
        assert!(matches!(keys::add_client(dir.path(), name), Err(StoreError::ClientName(n)) if n == name));
        assert!(matches!(keys::load_client(dir.path(), name), Err(StoreError::ClientName(_))));
    }
    keys::add_client(dir.path(), "alice").unwrap();
    let error = keys::add_client(dir.path(), "alice").unwrap_err();
    assert!(error.to_string().contains("never overwritten"), "{error}");
    let error = keys::load_client(dir.path(), "bob").err().unwrap();
    assert!(error.to_string().contains("tacit keys init"), "{error}");
    fs::write(dir.path().join("ca.key"), [0xff; 40]).unwrap();
    assert!(matches!(keys::add_client(dir.path(), "carol"), Err(StoreError::Keys(_))));
}
