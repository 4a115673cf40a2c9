//! The key for sealing, and its sources.
use crate::StoreError;
use std::env;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Least bytes of a key, before derivation.
const MIN_KEY_BYTES: usize = 16;
/// Most bytes of a key: catches a wrong file name.
const MAX_KEY_BYTES: u64 = 4096;

/// The key that seals files: 32 bytes, derived with BLAKE3 from at least 16 bytes of the user's.
///
/// The derivation is fast and does not strengthen a weak passphrase: give random bytes, such as
/// `head -c 32 /dev/urandom | base64`. Line ends after the key are ignored.
#[derive(Clone, ZeroizeOnDrop)]
pub struct SealKey([u8; 32]);

impl SealKey {
    /// Reads the key from a file with mode 0600 or less.
    ///
    /// # Errors
    /// [`StoreError::SealKey`]: the file cannot be read, others may read it, or it holds fewer than
    /// 16 bytes.
    pub fn from_file(path: &Path) -> Result<Self, StoreError> {
        let origin = format!("file {}", path.display());
        let file = File::open(path).map_err(|e| unusable(&origin, e.to_string()))?;
        let mode = file.metadata().map_err(|e| unusable(&origin, e.to_string()))?.mode() & 0o777;
        if mode & 0o077 != 0 {
            let path = path.display();
            let what = format!(
                "others may use it (mode {mode:04o}): replace the key if they might have, then `chmod 600 {path}`"
            );
            return Err(unusable(&origin, what));
        }
        Self::read(&origin, file)
    }

    /// Reads the key from an environment variable. Children of this process inherit the variable.
    ///
    /// # Errors
    /// [`StoreError::SealKey`]: the variable is not set or holds fewer than 16 bytes.
    pub fn from_env(name: &str) -> Result<Self, StoreError> {
        let origin = format!("environment variable {name}");
        match env::var_os(name).map(|v| Zeroizing::new(v.into_vec())) {
            Some(value) => Self::derive(&origin, &value),
            None => Err(unusable(&origin, "it is not set".into())),
        }
    }

    /// Reads the key from the output of a command line, run by `sh -c`, such as `pass show tacit`.
    /// The command may ask on the terminal.
    ///
    /// # Errors
    /// [`StoreError::SealKey`]: the command cannot be run, fails, or writes fewer than 16 bytes.
    pub fn from_command(command: &str) -> Result<Self, StoreError> {
        let origin = format!("command `{command}`");
        let started = Command::new("sh").arg("-c").arg(command).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|e| unusable(&origin, e.to_string()))?;
        let output = child.stdout.take().expect("standard output was asked for as a pipe");
        let key = Self::read(&origin, output);
        let status = child.wait().map_err(|e| unusable(&origin, e.to_string()))?;
        // A command that fails may have written output before.
        if status.success() { key } else { Err(unusable(&origin, format!("it failed ({status})"))) }
    }

    /// Reads the key from a source in the form of a command-line option: `env:NAME`, `cmd:COMMAND`,
    /// or else the name of a file.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env), [`from_command`](Self::from_command),
    /// [`from_file`](Self::from_file).
    pub fn from_text(text: &str) -> Result<Self, StoreError> {
        match text.split_once(':') {
            Some(("env", name)) => Self::from_env(name),
            Some(("cmd", command)) => Self::from_command(command),
            _ => Self::from_file(Path::new(text)),
        }
    }

    /// Makes the key from bytes in memory.
    ///
    /// # Errors
    /// [`StoreError::SealKey`]: fewer than 16 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        Self::derive("memory", bytes)
    }

    fn read(origin: &str, source: impl Read) -> Result<Self, StoreError> {
        // Never grows, so that no copy of the key is left in memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_KEY_BYTES as usize + 64));
        source.take(MAX_KEY_BYTES + 1).read_to_end(&mut bytes).map_err(|e| unusable(origin, e.to_string()))?;
        if bytes.len() as u64 > MAX_KEY_BYTES {
            return Err(unusable(origin, format!("more than {MAX_KEY_BYTES} bytes: this is no key")));
        }
        Self::derive(origin, &bytes)
    }

    fn derive(origin: &str, bytes: &[u8]) -> Result<Self, StoreError> {
        let end = bytes.iter().rposition(|b| !matches!(b, b'\n' | b'\r')).map_or(0, |last| last + 1);
        let bytes = &bytes[..end];
        if bytes.len() < MIN_KEY_BYTES {
            let what = match bytes.len() {
                0 => "it is empty".into(),
                n => format!("{n} bytes are too few for a key: at least {MIN_KEY_BYTES}, random, are"),
            };
            return Err(unusable(origin, what));
        }
        Ok(Self(blake3::derive_key("tacit 2026-11 sealing key", bytes)))
    }

    /// A value derived from this key for one purpose and 32 random bytes; independent of those for
    /// other purposes.
    pub(crate) fn value(&self, purpose: &'static str, salt: &[u8; 32]) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.0).update(salt).update(purpose.as_bytes()).finalize()
    }
}

fn unusable(origin: &str, what: String) -> StoreError {
    StoreError::SealKey { origin: origin.to_owned(), what }
}
