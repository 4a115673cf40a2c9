//! Secrets of keys that servers keep, in the folder of stored material: one file for each plan, for this user
//! alone, sealed if material is.
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tacit_backends::BackendError;
use tacit_backends::seam::Secrets;
use tacit_store::SealKey;
use tacit_store::seal::{Kind, read_file, write_file};
use zeroize::Zeroizing;

/// No secret has more bytes.
const MOST: u64 = 1 << 10;

/// A folder of secrets. One that was not used for as long as material is kept is drawn anew.
pub struct SecretsFolder {
    dir: PathBuf,
    seal: Option<SealKey>,
    expire: Duration,
}

fn keeping(path: &Path) -> impl Fn(io::Error) -> BackendError {
    let path = path.display().to_string();
    move |error| BackendError::Keeping { what: format!("{path}: {error}") }
}

impl SecretsFolder {
    /// Secrets in a folder of stored material, which need not exist yet: in `secrets` there, sealed if there
    /// is a key.
    #[must_use]
    pub fn new(material: &Path, seal: Option<SealKey>, expire: Duration) -> Self {
        Self { dir: material.join("secrets"), seal, expire }
    }

    fn path(&self, plan: &[u8; 32]) -> PathBuf {
        let name: String = plan.iter().map(|b| format!("{b:02x}")).collect();
        self.dir.join(name).with_extension("secret")
    }

    /// Makes the folder, and keeps other processes from drawing a secret until the file is closed.
    fn locked(&self) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(self.dir.join("lock"))?;
        lock.lock()?;
        Ok(lock)
    }

    /// Notes that a secret is used, if it is there and was used lately.
    fn is_used(&self, path: &Path) -> io::Result<bool> {
        let file = match File::options().write(true).open(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        let (now, then) = (SystemTime::now(), file.metadata()?.modified()?);
        // One from the future is of now.
        if now.duration_since(then).unwrap_or_default() >= self.expire {
            return Ok(false);
        }
        file.set_modified(now)?;
        Ok(true)
    }
}

impl Secrets for SecretsFolder {
    fn secret(&self, plan: &[u8; 32], fresh: Zeroizing<Vec<u8>>) -> Result<(Zeroizing<Vec<u8>>, bool), BackendError> {
        let _lock = self.locked().map_err(keeping(&self.dir))?;
        let path = self.path(plan);
        let failed = |error: tacit_store::StoreError| BackendError::Keeping { what: error.to_string() };
        if self.is_used(&path).map_err(keeping(&path))? {
            return Ok((read_file(&path, Kind::Secret, self.seal.as_ref(), MOST).map_err(failed)?, true));
        }
        write_file(&path, Kind::Secret, self.seal.as_ref(), &fresh).map_err(failed)?;
        Ok((fresh, false))
    }

    fn forget(&self, plan: &[u8; 32]) -> Result<(), BackendError> {
        let path = self.path(plan);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(keeping(&path)(e)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn got(folder: &SecretsFolder, plan: u8, fresh: &[u8]) -> (Vec<u8>, bool) {
        let (secret, was_there) = folder.secret(&[plan; 32], Zeroizing::new(fresh.to_vec())).unwrap();
        (secret.to_vec(), was_there)
    }

    #[test]
    fn a_secret_stays_until_it_is_forgotten_or_not_used_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SecretsFolder::new(&dir.path().join("material"), None, DAY);
        assert_eq!(got(&folder, 1, b"one"), (b"one".to_vec(), false));
        assert_eq!(got(&folder, 1, b"two"), (b"one".to_vec(), true));
        assert_eq!(got(&folder, 2, b"two"), (b"two".to_vec(), false));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let path = folder.path(&[1; 32]);
        assert_eq!((mode(&path), mode(&folder.dir)), (0o600, 0o700));
        folder.forget(&[1; 32]).unwrap();
        folder.forget(&[1; 32]).unwrap();
        assert_eq!(got(&folder, 1, b"new"), (b"new".to_vec(), false));
        File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - DAY).unwrap();
        assert_eq!(got(&folder, 1, b"newer"), (b"newer".to_vec(), false));
    }

    #[test]
    fn a_sealed_secret_needs_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let key = || Some(SealKey::from_bytes(&[7; 32]).unwrap());
        let folder = |key| SecretsFolder::new(dir.path(), key, DAY);
        assert_eq!(got(&folder(key()), 1, b"one"), (b"one".to_vec(), false));
        assert_eq!(got(&folder(key()), 1, b"two"), (b"one".to_vec(), true));
        let bytes = fs::read(folder(None).path(&[1; 32])).unwrap();
        assert!(!bytes.windows(3).any(|w| w == b"one"));
        let error = folder(None).secret(&[1; 32], Zeroizing::default()).unwrap_err().to_string();
        assert!(error.contains("sealed"), "{error}");
    }
}
