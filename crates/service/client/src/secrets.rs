//! Secrets of keys that servers store, in the folder of stored material: one file per plan,
//! readable by this user alone, sealed if material is. The folder also holds the master keys of
//! this client's helpers. Without its master key, material that was ordered from a helper is lost.
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tacit_backends::BackendError;
use tacit_backends::seam::Secrets;
use tacit_store::clock::MAX_CLOCK_JUMP;
use tacit_store::managed::hex_stem;
use tacit_store::seal::{Kind, open_renamed, read_own_file, sync_folder, unfinished_of, write_file};
use tacit_store::{FolderKind, ManagedFolder, Party, SealKey, StoreError, material_folder, open_private};
use zeroize::Zeroizing;

const MAX_SECRET_BYTES: u64 = 1 << 10;
const MAX_FILE_BYTES: u64 = 2 << 10;
const LOCK: &str = "lock";
const FOLDER: FolderKind = FolderKind::private("client", "secrets");

/// Plain and sealed.
const MASTER_KEY_FILE_BYTES: [u64; 2] = [32, 149];

#[derive(Clone, Copy, PartialEq, Eq)]
enum SecretPurpose {
    /// Keys that a server stores; they can be made again.
    Keys,
    /// Orders from a helper; without the secret they are lost.
    Helper,
}

impl SecretPurpose {
    fn ending(self) -> &'static str {
        match self {
            Self::Keys => ".secret",
            Self::Helper => ".master",
        }
    }
}

/// The purpose of a file of secrets, finished or left unfinished by a crash; `None` for other
/// files.
fn purpose_of(path: &Path) -> Option<SecretPurpose> {
    let whole = unfinished_of(path).unwrap_or_else(|| path.to_owned());
    let purpose = [SecretPurpose::Keys, SecretPurpose::Helper]
        .into_iter()
        .find(|purpose| hex_stem(&whole, purpose.ending(), 64).is_some())?;
    let meta = path.symlink_metadata().ok().filter(|meta| meta.is_file() && meta.len() <= MAX_FILE_BYTES)?;
    // Version 0.1 named a master key like the secret of a key; its length tells them apart.
    Some(if MASTER_KEY_FILE_BYTES.contains(&meta.len()) { SecretPurpose::Helper } else { purpose })
}

fn is_ours(path: &Path) -> bool {
    purpose_of(path).is_some()
        || path.ends_with(LOCK) && path.symlink_metadata().is_ok_and(|m| m.is_file() && m.len() == 0)
}

/// A folder of secrets. Secrets that were unused for the lifetime of stored material are destroyed.
pub struct SecretsFolder {
    material: PathBuf,
    dir: PathBuf,
    seal: Option<SealKey>,
    expire: Duration,
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> BackendError {
    let path = path.display().to_string();
    move |error| BackendError::Keeping { what: format!("{path}: {error}") }
}

fn store_error(error: StoreError) -> BackendError {
    let what = match error {
        StoreError::NotSealed(path) => format!(
            "{} was made without sealing, so a key cannot protect it: `tacit keyset delete --all` deletes it",
            path.display()
        ),
        other => other.to_string(),
    };
    BackendError::Keeping { what }
}

impl SecretsFolder {
    /// Returns the folder `secrets` in a folder of stored material, which need not exist yet.
    /// Secrets are sealed if there is a key.
    #[must_use]
    pub fn new(material: &Path, seal: Option<SealKey>, expire: Duration) -> Self {
        Self { material: material.to_owned(), dir: material.join("secrets"), seal, expire }
    }

    /// Destroys all secrets of keys, durably, without the servers, and returns their number. Master
    /// keys of helpers stay.
    ///
    /// # Errors
    /// [`BackendError::Keeping`].
    pub fn forget_all(&self) -> Result<usize, BackendError> {
        if !self.is_there()? {
            return Ok(0);
        }
        self.remove(&self.lock()?, |_, purpose| Ok(purpose == SecretPurpose::Keys))
    }

    /// Returns the master key for a helper under a name; stores `fresh`, durably, if there is none.
    ///
    /// # Errors
    /// [`BackendError::Keeping`].
    pub fn master(&self, name: &[u8; 32], fresh: Zeroizing<Vec<u8>>) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        let lock = self.lock()?;
        self.remove_old(&lock)?;
        let path = self.path(name, SecretPurpose::Helper);
        // Version 0.1 named it like the secret of a key.
        let earlier = self.path(name, SecretPurpose::Keys);
        if path.symlink_metadata().is_err() && earlier.symlink_metadata().is_ok() {
            let mut master = Zeroizing::new(Vec::new());
            let opened = open_renamed(&earlier, Kind::secret(&earlier), self.seal.as_ref()).map_err(store_error)?;
            opened.0.take(MAX_SECRET_BYTES).read_to_end(&mut master).map_err(io_error(&earlier))?;
            write_file(&path, Kind::secret(&path), self.seal.as_ref(), &master).map_err(store_error)?;
            fs::remove_file(&earlier).map_err(io_error(&earlier))?;
        }
        self.load_or_store(&path, fresh).map(|(master, _)| master)
    }

    fn path(&self, plan: &[u8; 32], purpose: SecretPurpose) -> PathBuf {
        let name: String = plan.iter().map(|b| format!("{b:02x}")).collect();
        self.dir.join(name + purpose.ending())
    }

    /// The content of a file, marked as used now, and whether it existed; else stores `fresh`,
    /// durably.
    fn load_or_store(
        &self,
        path: &Path,
        fresh: Zeroizing<Vec<u8>>,
    ) -> Result<(Zeroizing<Vec<u8>>, bool), BackendError> {
        match path.symlink_metadata() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                write_file(path, Kind::secret(path), self.seal.as_ref(), &fresh).map_err(store_error)?;
                Ok((fresh, false))
            }
            other => {
                other.map_err(io_error(path))?;
                let secret = read_own_file(path, Kind::secret(path), self.seal.as_ref(), MAX_SECRET_BYTES)
                    .map_err(store_error)?;
                let used = File::options().write(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
                used.map_err(io_error(path))?;
                Ok((secret, true))
            }
        }
    }

    fn is_there(&self) -> Result<bool, BackendError> {
        self.dir.try_exists().map_err(io_error(&self.dir))
    }

    /// Makes the folder. Until the returned file is closed, other processes cannot draw or destroy
    /// a secret.
    fn lock(&self) -> Result<File, BackendError> {
        material_folder(&self.material, Party::Client)
            .and_then(|_| ManagedFolder::open_or_mark(&self.dir, FOLDER, is_ours))
            .map_err(store_error)?;
        let path = self.dir.join(LOCK);
        let lock = open_private(&path).map_err(store_error)?;
        lock.lock().map_err(io_error(&path))?;
        Ok(lock)
    }

    /// Destroys the secrets that `is_gone` selects, and their unfinished files, durably; returns
    /// the number of secrets.
    fn remove(
        &self,
        _lock: &File,
        is_gone: impl Fn(&Path, SecretPurpose) -> io::Result<bool>,
    ) -> Result<usize, BackendError> {
        let (mut removed, mut secrets) = (0, 0);
        for entry in fs::read_dir(&self.dir).map_err(io_error(&self.dir))? {
            let path = entry.map_err(io_error(&self.dir))?.path();
            let Some(purpose) = purpose_of(&path) else { continue };
            if is_gone(&path, purpose).map_err(io_error(&path))? {
                fs::remove_file(&path).map_err(io_error(&path))?;
                removed += 1;
                secrets += usize::from(unfinished_of(&path).is_none());
            }
        }
        if removed > 0 {
            sync_folder(&self.dir).map_err(store_error)?;
        }
        Ok(secrets)
    }

    /// Destroys secrets that were not used lately. Destroys nothing if the clock is far later than
    /// at the last use of the folder: the clock may be wrong.
    fn remove_old(&self, lock: &File) -> Result<(), BackendError> {
        let now = SystemTime::now();
        let last = lock.metadata().and_then(|meta| meta.modified()).map_err(io_error(&self.dir))?;
        lock.set_modified(now).map_err(io_error(&self.dir))?;
        if now.duration_since(last).unwrap_or_default() > MAX_CLOCK_JUMP {
            tracing::warn!("{} was not used for long, or the clock is wrong: nothing expires now", self.dir.display());
            return Ok(());
        }
        // A time in the future counts as now.
        let removed = self.remove(lock, |path, _| {
            let then = path.symlink_metadata()?.modified()?;
            Ok(now.duration_since(then).unwrap_or_default() >= self.expire)
        });
        removed.map(drop)
    }
}

impl Secrets for SecretsFolder {
    fn secret(&self, plan: &[u8; 32], fresh: Zeroizing<Vec<u8>>) -> Result<(Zeroizing<Vec<u8>>, bool), BackendError> {
        let lock = self.lock()?;
        self.remove_old(&lock)?;
        self.load_or_store(&self.path(plan, SecretPurpose::Keys), fresh)
    }

    fn forget(&self, plan: &[u8; 32]) -> Result<(), BackendError> {
        if !self.is_there()? {
            return Ok(());
        }
        let path = self.path(plan, SecretPurpose::Keys);
        self.remove(&self.lock()?, |found, _| Ok(found == path)).map(drop)
    }

    fn expire(&self) -> Result<(), BackendError> {
        match self.is_there()? {
            true => self.remove_old(&self.lock()?),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn fetch_secret(folder: &SecretsFolder, plan: u8, fresh: &[u8]) -> (Vec<u8>, bool) {
        let (secret, was_there) = folder.secret(&[plan; 32], Zeroizing::new(fresh.to_vec())).unwrap();
        (secret.to_vec(), was_there)
    }

    fn secret_error(folder: &SecretsFolder, plan: u8) -> String {
        folder.secret(&[plan; 32], Zeroizing::default()).unwrap_err().to_string()
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    fn set_modified(path: &Path, time: SystemTime) {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn secrets_last_until_forgotten_or_expired() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SecretsFolder::new(&dir.path().join("material"), None, DAY);
        assert_eq!(fetch_secret(&folder, 1, b"one"), (b"one".to_vec(), false));
        assert_eq!(fetch_secret(&folder, 1, b"two"), (b"one".to_vec(), true));
        assert_eq!(fetch_secret(&folder, 2, b"two"), (b"two".to_vec(), false));
        let path = folder.path(&[1; 32], SecretPurpose::Keys);
        assert_eq!((mode(&path), mode(&folder.dir)), (0o600, 0o700));
        folder.forget(&[1; 32]).unwrap();
        folder.forget(&[1; 32]).unwrap();
        assert_eq!(fetch_secret(&folder, 1, b"new"), (b"new".to_vec(), false));
        let age = |path: &Path, age| set_modified(path, SystemTime::now() - age);
        age(&path, DAY);
        assert_eq!(fetch_secret(&folder, 1, b"newer"), (b"newer".to_vec(), false));
        // Secrets of models that are never used again expire, too, and so do unfinished files.
        let left = folder.path(&[3; 32], SecretPurpose::Keys).with_extension("secret.123-0.part");
        fs::write(&left, b"three").unwrap();
        [&path, &left].into_iter().for_each(|path| age(path, DAY));
        assert_eq!(fetch_secret(&folder, 2, b"new"), (b"two".to_vec(), true));
        assert!(!path.exists() && !left.exists());
        age(&folder.path(&[2; 32], SecretPurpose::Keys), DAY);
        // After a jump of the clock nothing expires at first.
        age(&folder.dir.join(LOCK), MAX_CLOCK_JUMP + DAY);
        folder.expire().unwrap();
        assert!(folder.path(&[2; 32], SecretPurpose::Keys).exists());
        folder.expire().unwrap();
        assert_eq!(fs::read_dir(&folder.dir).unwrap().count(), 2, "the lock and the mark");
    }

    #[test]
    fn forget_all_deletes_every_key_secret() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SecretsFolder::new(dir.path(), None, DAY);
        assert_eq!(folder.forget_all().unwrap(), 0);
        folder.expire().unwrap();
        assert!(!folder.dir.exists());
        assert_eq!([1, 2].map(|plan| fetch_secret(&folder, plan, b"one").1), [false; 2]);
        assert_eq!(folder.forget_all().unwrap(), 2);
        assert_eq!(fetch_secret(&folder, 1, b"new"), (b"new".to_vec(), false));
    }

    #[test]
    fn forget_all_keeps_masters_and_other_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SecretsFolder::new(&dir.path().join("material"), None, DAY);
        let master = |fresh: &[u8]| folder.master(&[1; 32], Zeroizing::new(fresh.to_vec())).unwrap().to_vec();
        assert_eq!((master(b"one"), fetch_secret(&folder, 1, b"key")), (b"one".to_vec(), (b"key".to_vec(), false)));
        for name in ["taxes.ods", "notes.secret", "lock.old"] {
            fs::write(folder.dir.join(name), b"precious").unwrap();
            set_modified(&folder.dir.join(name), SystemTime::UNIX_EPOCH);
        }
        assert_eq!(folder.forget_all().unwrap(), 1);
        folder.expire().unwrap();
        assert_eq!(master(b"two"), b"one");
        assert_eq!(fs::read_dir(&folder.dir).unwrap().count(), 6, "lock, mark, master, and three strange files");
        // The name in version 0.1.
        fs::rename(folder.path(&[1; 32], SecretPurpose::Helper), folder.path(&[1; 32], SecretPurpose::Keys)).unwrap();
        assert_eq!(master(b"three"), b"one");
    }

    #[test]
    fn narrows_modes_and_refuses_links() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SecretsFolder::new(dir.path(), None, DAY);
        let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        fetch_secret(&folder, 1, b"one");
        let path = folder.path(&[1; 32], SecretPurpose::Keys);
        chmod(&folder.dir, 0o755);
        chmod(&path, 0o644);
        assert_eq!(fetch_secret(&folder, 1, b"two"), (b"one".to_vec(), true));
        assert_eq!((mode(&path), mode(&folder.dir)), (0o600, 0o700));
        let refused = || {
            let error = secret_error(&folder, 1);
            assert!(error.contains("symbolic link"), "{error}");
        };
        let other = dir.path().join("other");
        fs::rename(&path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        refused();
        fs::rename(&folder.dir, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &folder.dir).unwrap();
        refused();
    }

    #[test]
    fn sealed_secret_needs_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let key = || Some(SealKey::from_bytes(&[7; 32]).unwrap());
        let folder = |key| SecretsFolder::new(dir.path(), key, DAY);
        assert_eq!(fetch_secret(&folder(key()), 1, b"one"), (b"one".to_vec(), false));
        assert_eq!(fetch_secret(&folder(key()), 1, b"two"), (b"one".to_vec(), true));
        let bytes = fs::read(folder(None).path(&[1; 32], SecretPurpose::Keys)).unwrap();
        assert!(!bytes.windows(3).any(|w| w == b"one"));
        let error = secret_error(&folder(None), 1);
        assert!(error.contains("sealed"), "{error}");
        // A secret in the clear is not accepted as a sealed one, and can be deleted.
        fetch_secret(&folder(None), 2, b"two");
        let error = secret_error(&folder(key()), 2);
        assert!(error.contains("without sealing") && error.contains("keyset delete --all"), "{error}");
        assert_eq!(folder(key()).forget_all().unwrap(), 2);
    }
}
