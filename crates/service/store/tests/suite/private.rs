//! Folders, files and keys are their user's alone.
use crate::common::*;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tacit_store::managed::MARK;
use tacit_store::{Party, Role, Store, StoreError, keys, seal};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn widen(path: &Path) {
    let wide = if path.is_dir() { 0o755 } else { 0o644 };
    fs::set_permissions(path, Permissions::from_mode(wide)).unwrap();
}

fn refused(dir: &Path, why: &str) {
    let error = Store::open(dir, Party::Client, None).err().unwrap();
    assert!(matches!(&error, StoreError::NotPrivate { .. }), "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

fn add_client(dir: &Path, name: &str) -> Result<(), StoreError> {
    keys::add(dir, name, Role::Client, None)
}

#[test]
fn opening_narrows_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    let store = open(&folder);
    put(&store, b"x");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    let files: Vec<_> = files.into_iter().filter(|path| !path.ends_with(MARK)).collect();
    assert_eq!(files.len(), 6, "material, lock, held room, and the ledger's three: {files:?}");
    files.iter().for_each(|f| widen(f));
    widen(&folder);
    let second = open(&folder);
    assert_eq!(mode(&folder), 0o700);
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    drop((store, second));
    // A narrow mode stays.
    let lock = folder.join("lock");
    fs::set_permissions(&lock, Permissions::from_mode(0o600)).unwrap();
    open(&folder);
    assert_eq!(mode(&lock), 0o600);
}

#[test]
fn refuses_links() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    drop(open(&real));
    symlink(&real, &link).unwrap();
    refused(&link, "symbolic link");
    refused(&dir.path().join("link/"), "symbolic link");
    for name in ["lock", "ledger.sqlite"] {
        let moved = dir.path().join(name);
        fs::rename(real.join(name), &moved).unwrap();
        symlink(&moved, real.join(name)).unwrap();
        refused(&real, "symbolic link");
        fs::remove_file(real.join(name)).unwrap();
        fs::rename(&moved, real.join(name)).unwrap();
    }
    open(&real);
    fs::write(dir.path().join("file"), b"").unwrap();
    assert!(matches!(Store::open(&dir.path().join("file"), Party::Client, None), Err(StoreError::File { .. })));
}

#[test]
fn refuses_files_of_other_users() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    drop(open(&folder));
    // Only root can give files away; for anybody else there is the system's own folder.
    if chown(&folder, Some(12_345), None).is_err() {
        return refused(Path::new("/usr"), "belongs to user 0");
    }
    refused(&folder, "belongs to user 12345");
    chown(&folder, Some(0), None).unwrap();
    chown(folder.join("ledger.sqlite"), Some(12_345), None).unwrap();
    refused(&folder, "belongs to user 12345");
}

#[test]
fn private_keys_are_narrowed_and_clients_distinct() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("keys");
    keys::init(&folder, &["example.org".into()], &["alice".into()]).unwrap();
    add_client(&folder, "bob").unwrap();
    let private_keys = ["ca.key", "server.key", "alice.key", "bob.key"].map(|file| folder.join(file));
    let closed = || {
        assert_eq!(mode(&folder), 0o700);
        private_keys.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
    };
    closed();
    private_keys.iter().for_each(|file| widen(file));
    widen(&folder);
    let [alice, bob] = ["alice", "bob"].map(|name| keys::load_client(&folder, name).unwrap());
    assert_ne!(alice.fingerprint, bob.fingerprint);
    assert_eq!(Some(alice.fingerprint), keys::fingerprint(alice.tls.certificate()));
    keys::load_server(&folder).unwrap();
    add_client(&folder, "carol").unwrap();
    closed();
    fs::rename(folder.join("alice.key"), folder.join("moved")).unwrap();
    symlink(folder.join("moved"), folder.join("alice.key")).unwrap();
    assert!(matches!(keys::load_client(&folder, "alice"), Err(StoreError::NotPrivate { .. })));
}

/// Lines of the log while something runs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn of(run: impl FnOnce()) -> String {
        let log = Self::default();
        let lines = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || lines.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, run);
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn narrowing_is_logged_once() {
    let dir = tempfile::tempdir().unwrap();
    let (keys_dir, material) = (dir.path().join("keys"), dir.path().join("m"));
    keys::init(&keys_dir, &[], &["alice".into()]).unwrap();
    drop(open(&material));
    let load = || drop(keys::load_client(&keys_dir, "alice").unwrap());
    assert_eq!(Log::of(load), "");
    widen(&keys_dir.join("alice.key"));
    let log = Log::of(load);
    assert!(log.contains("alice.key was open to other users (mode 0644)"), "{log}");
    assert_eq!(Log::of(load), "");
    [&keys_dir, &material].into_iter().for_each(|folder| widen(folder));
    let log = Log::of(|| {
        load();
        drop(open(&material));
    });
    assert_eq!(log.matches("was open to other users (mode 0755)").count(), 2, "{log}");
}

#[test]
fn rewriting_narrows_owner_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.tacit");
    for somebodys in ["made by hand", "0", "MODELING, a novel"] {
        fs::write(&path, somebodys).unwrap();
        let error = seal::write_file(&path, seal::Kind::model(&path), None, b"MODEL...first").unwrap_err();
        assert!(matches!(&error, StoreError::NotReplaced { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), somebodys);
    }
    fs::write(&path, b"").unwrap();
    widen(&path);
    for content in [b"MODEL...first", b"MODEL...again"] {
        seal::write_file(&path, seal::Kind::model(&path), None, content).unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o600, content.to_vec()));
        widen(&path);
    }
}

fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |path: &Path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap());
    fs::read_dir(dir).unwrap().map(|e| read(&e.unwrap().path())).collect()
}

#[test]
fn ca_is_made_completely_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("keys");
    let init = |hosts: &[&str], clients: &[&str]| {
        let text = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        keys::init(&folder, &text(hosts), &text(clients)).map_err(|e| e.to_string())
    };
    for bad in ["a host", "https://server", "server:7878", "", "*.", "sérver", "[::1]"] {
        let error = init(&["good.example", bad], &["alice"]).unwrap_err();
        assert!(error.contains(&format!("`{bad}`")), "{error}");
        assert!(error.contains("without port"), "{error}");
    }
    assert!(init(&[], &["alice", "bob", "alice"]).unwrap_err().contains("`alice` is named twice"));
    assert!(init(&[], &["alice", "../x"]).unwrap_err().contains("cannot name a client"));
    assert!(!folder.exists());
    // Files that are in the way, the first and the last to be written.
    for taken in ["server.pem", "bob.key", "ca.pem"] {
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(taken), b"somebody's").unwrap();
        let error = init(&[], &["alice", "bob"]).unwrap_err();
        assert!(error.contains(taken), "{error}");
        assert!(error.contains("never overwritten"), "{error}");
        assert_eq!(content(&folder), [(taken.to_owned(), b"somebody's".to_vec())].into());
        fs::remove_dir_all(&folder).unwrap();
    }
    // An empty folder is one to fill; nothing is left beside it.
    fs::create_dir(&folder).unwrap();
    init(&["10.0.0.7", "*.example.org", "localhost", "server.example"], &["alice"]).unwrap();
    keys::load_server(&folder).unwrap();
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let before = content(&folder);
    assert_eq!(before.len(), 7, "three pairs and the mark");
    fs::write(folder.join("bob.key"), b"in the way").unwrap();
    assert!(add_client(&folder, "bob").unwrap_err().to_string().contains("never overwritten"));
    fs::remove_file(folder.join("bob.key")).unwrap();
    assert_eq!(content(&folder), before);
}

#[test]
fn refuses_client_certificate_as_servers() {
    let dir = tempfile::tempdir().unwrap();
    keys::init(dir.path(), &[], &["alice".into()]).unwrap();
    keys::load_server(dir.path()).unwrap();
    for ending in ["pem", "key"] {
        let file = |name: &str| dir.path().join(format!("{name}.{ending}"));
        fs::copy(file("alice"), file("server")).unwrap();
    }
    let error = keys::load_server(dir.path()).err().unwrap();
    assert!(matches!(&error, StoreError::NotServer(p) if p.ends_with("server.pem")), "{error}");
    assert!(error.to_string().contains("tacit keys init"), "{error}");
}

#[test]
fn refuses_unusable_key_names() {
    let dir = tempfile::tempdir().unwrap();
    keys::init(dir.path(), &[], &[]).unwrap();
    assert!(matches!(keys::init(dir.path(), &[], &[]), Err(StoreError::CaExists(_))));
    for name in ["", "ca", "server", "../x", "a b", &"x".repeat(65)] {
        assert!(matches!(add_client(dir.path(), name), Err(StoreError::ClientName(n)) if n == name));
        assert!(matches!(keys::load_client(dir.path(), name), Err(StoreError::ClientName(_))));
    }
    add_client(dir.path(), "alice").unwrap();
    keys::add_operator(dir.path(), "ops").unwrap();
    let role = |name| Role::from_certificate(keys::load_client(dir.path(), name).unwrap().tls.certificate());
    assert_eq!([role("alice"), role("ops")], [Role::Client, Role::Operator]);
    let error = add_client(dir.path(), "alice").unwrap_err();
    assert!(error.to_string().contains("never overwritten"), "{error}");
    let error = keys::load_client(dir.path(), "bob").err().unwrap();
    assert!(error.to_string().contains("tacit keys init"), "{error}");
    fs::write(dir.path().join("ca.key"), [0xff; 40]).unwrap();
    assert!(matches!(add_client(dir.path(), "carol"), Err(StoreError::Keys(_))));
}
