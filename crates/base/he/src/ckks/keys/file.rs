//! Key sets on disk, written and read key by key, with digests bound to the client, the parameters
//! and the place. Evaluation keys are public, so files are not sealed.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `TCTCKEYS` |
//! | 2 | version, 1 |
//! | 32 | digest of the parameters |
//! | 32 | the client |
//! | 2 | number of keys |
//! | 8 each | kind (0 relinearise, 1 Galois, 2 to and 3 from the sparse secret, 4 master, 5 zero), alpha, level (2 bytes), element (4 bytes) |
//! | 32 | digest of all of this |
//! | | per key: packed, then 32 bytes of digest |
//!
//! Packed keys have seeds in place of uniform halves. The version fixes how seeds expand, including
//! the order of [`tacit_arith::sample::uniform`] and of [`tacit_arith::ntt`]. No read is larger
//! than the parameters imply.

use super::super::context::Context;
use super::id::{KeyId, KeyKind};
use super::switch::SwitchKey;
use crate::HeError;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"TCTCKEYS";
const VERSION: u16 = 1;
pub(super) const FIXED: usize = 8 + 2 + 32 + 32 + 2;
pub(super) const ENTRY: usize = 8;
pub(super) const DIGEST: usize = 32;
/// More keys than circuits need; too few for a hostile file to take much memory.
const MAX_KEYS: usize = 4096;
const WHAT: &str = "key file";

/// An open key file with a shared lock, whose header is checked.
pub struct KeyFile {
    path: PathBuf,
    file: File,
    state: FileState,
    bound: [u8; DIGEST],
    /// Each key and its offset in the file.
    entries: Vec<(KeyId, u64)>,
}

/// Identity, length and modification time of a file whose keys were checked. Changes that the state
/// misses are found when a key is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileState {
    device_and_number: [u64; 2],
    len: u64,
    modified: [i64; 2],
}

impl FileState {
    /// The state of this metadata.
    pub fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            device_and_number: [metadata.dev(), metadata.ino()],
            len: metadata.len(),
            modified: [metadata.mtime(), metadata.mtime_nsec()],
        }
    }
}

pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> HeError {
    move |error| HeError::File { file: path.display().to_string(), why: error.to_string() }
}

fn refuse<T>(why: String) -> Result<T, HeError> {
    Err(HeError::Format { what: WHAT, why })
}

fn entry_bytes(id: &KeyId) -> [u8; ENTRY] {
    let (kind, element) = match id.kind {
        KeyKind::Relinearise => (0, 0),
        KeyKind::Galois(element) => (1, element),
        KeyKind::ToSparse => (2, 0),
        KeyKind::FromSparse => (3, 0),
        KeyKind::Master(element) => (4, element),
        KeyKind::Zero => (5, 0),
    };
    let [l0, l1] = (id.level as u16).to_le_bytes();
    let [e0, e1, e2, e3] = element.to_le_bytes();
    [kind, id.alpha as u8, l0, l1, e0, e1, e2, e3]
}

fn read_entry(context: &Context, bytes: [u8; ENTRY]) -> Result<KeyId, HeError> {
    let [kind, alpha, l0, l1, e0, e1, e2, e3] = bytes;
    let element = u32::from_le_bytes([e0, e1, e2, e3]);
    let level = usize::from(u16::from_le_bytes([l0, l1]));
    let is_galois = |e: u32| e % 2 == 1 && e > 1 && (e as usize) < 2 * context.degree();
    let kind = match (kind, element) {
        (0, 0) => KeyKind::Relinearise,
        (1, e) if is_galois(e) => KeyKind::Galois(e),
        (4, e) if is_galois(e) => KeyKind::Master(e),
        (2, 0) => KeyKind::ToSparse,
        (3, 0) => KeyKind::FromSparse,
        (5, 0) => KeyKind::Zero,
        _ => return refuse(format!("no key is of kind {kind} with element {element}")),
    };
    let (levels, special) = (context.parameters().levels(), context.parameters().special_primes().len());
    if level == 0 || level > levels || alpha == 0 || usize::from(alpha) > special {
        return refuse(format!(
            "level {level} with {alpha} special primes: the parameters have {levels} and {special}"
        ));
    }
    let id = KeyId { kind, level, alpha: alpha.into() };
    id.admit(context.parameters())?;
    Ok(id)
}

/// A header without its digest.
pub(super) fn header(context: &Context, client: &[u8; 32], ids: &[KeyId]) -> Result<Vec<u8>, HeError> {
    if ids.len() > MAX_KEYS {
        return refuse(format!("{} keys: at most {MAX_KEYS} are written", ids.len()));
    }
    let mut header = Vec::with_capacity(FIXED + ENTRY * ids.len());
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&context.parameters().digest());
    header.extend_from_slice(client);
    header.extend_from_slice(&(ids.len() as u16).to_le_bytes());
    ids.iter().for_each(|id| header.extend_from_slice(&entry_bytes(id)));
    Ok(header)
}

/// Creates the file that keys are written to. Replaces what a crash left of one, and no other file.
fn new_part(part: &Path) -> io::Result<File> {
    match part.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
        Ok(meta) => {
            let mut begins = Vec::new();
            if meta.is_file() {
                File::open(part)?.take(MAGIC.len() as u64).read_to_end(&mut begins)?;
            }
            if !meta.is_file() || !MAGIC.starts_with(&begins) {
                return Err(io::Error::new(
                    ErrorKind::AlreadyExists,
                    "it is there, and no part of a key file: move it away",
                ));
            }
            std::fs::remove_file(part)?;
        }
    }
    File::create_new(part)
}

/// Name of the file until it is complete.
pub(super) fn part_path(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    PathBuf::from(part)
}

/// Digest of the header, to which those of keys are bound.
pub(super) fn bind(header: &[u8]) -> [u8; DIGEST] {
    blake3::derive_key("tacit ckks key file 1", header)
}

pub(super) fn digest(bound: &[u8; DIGEST], index: usize, bytes: &[u8]) -> [u8; DIGEST] {
    let mut hasher = blake3::Hasher::new_keyed(bound);
    hasher.update(&(index as u64).to_le_bytes()).update(bytes);
    hasher.finalize().into()
}

impl KeyFile {
    /// Writes the keys `ids` of `client`, made one by one by `key`. Never overwrites a file. At
    /// `path` the file is complete or absent; a crash leaves one that ends in `.part`.
    ///
    /// # Errors
    /// [`HeError::File`]; [`HeError::Format`] for more than 4,096 keys; errors of `key`.
    pub fn write(
        path: &Path,
        context: &Context,
        client: &[u8; 32],
        ids: &[KeyId],
        mut key: impl FnMut(KeyId) -> Result<SwitchKey, HeError>,
    ) -> Result<(), HeError> {
        let header = header(context, client, ids)?;
        let bound = bind(&header);
        // Unlike a rename, the link below never replaces a file.
        let part = part_path(path);
        let mut out = BufWriter::new(new_part(&part).map_err(io(&part))?);
        out.write_all(&header).and_then(|()| out.write_all(&bound)).map_err(io(&part))?;
        let mut bytes = Vec::new();
        for (index, &id) in ids.iter().enumerate() {
            bytes.clear();
            key(id)?.write(context, &mut bytes)?;
            out.write_all(&bytes).and_then(|()| out.write_all(&digest(&bound, index, &bytes))).map_err(io(&part))?;
        }
        out.into_inner().map_err(|e| io(&part)(e.into_error()))?.sync_all().map_err(io(&part))?;
        std::fs::hard_link(&part, path).map_err(io(path))?;
        std::fs::remove_file(&part).map_err(io(&part))
    }

    /// Opens a file and checks its header and length.
    ///
    /// # Errors
    /// [`HeError::File`]; [`HeError::Format`] for another format, version, client or parameters, or
    /// a damaged header; [`HeError::Length`].
    pub fn open(path: &Path, context: &Context, client: &[u8; 32]) -> Result<Self, HeError> {
        let file = File::open(path).map_err(io(path))?;
        file.lock_shared().map_err(io(path))?;
        let metadata = file.metadata().map_err(io(path))?;
        if !metadata.is_file() {
            return refuse("no file of bytes".to_owned());
        }
        let len = metadata.len();
        let file_len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut header = vec![0; FIXED];
        if file_len < FIXED {
            return Err(HeError::Length { what: WHAT, got: file_len, expected: FIXED });
        }
        file.read_exact_at(&mut header, 0).map_err(io(path))?;
        if header[..8] != MAGIC || header[8..10] != VERSION.to_le_bytes() {
            return refuse("not a key file of version 1".to_owned());
        }
        if header[10..42] != context.parameters().digest() {
            return refuse("made for other parameters".to_owned());
        }
        if header[42..74] != *client {
            return refuse("the keys of another client".to_owned());
        }
        let count = usize::from(u16::from_le_bytes([header[74], header[75]]));
        let body = FIXED + ENTRY * count + DIGEST;
        if count > MAX_KEYS || file_len < body {
            return Err(HeError::Length { what: WHAT, got: file_len, expected: body });
        }
        header.resize(body, 0);
        file.read_exact_at(&mut header[FIXED..], FIXED as u64).map_err(io(path))?;
        let (header, stored) = header.split_at(body - DIGEST);
        let bound = bind(header);
        if stored != bound {
            return refuse("the header is damaged".to_owned());
        }
        let mut offset = body as u64;
        let mut entries = Vec::with_capacity(count);
        for &bytes in header[FIXED..].as_chunks::<ENTRY>().0 {
            let id = read_entry(context, bytes)?;
            entries.push((id, offset));
            offset += (SwitchKey::packed_bytes(context, id) + DIGEST) as u64;
        }
        if len != offset {
            let expected = usize::try_from(offset).unwrap_or(usize::MAX);
            return Err(HeError::Length { what: WHAT, got: file_len, expected });
        }
        Ok(Self { path: path.to_owned(), file, state: FileState::from_metadata(&metadata), bound, entries })
    }

    /// The keys in the file.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + Clone {
        self.entries.iter().map(|(id, _)| *id)
    }

    /// State of the file when it was opened.
    pub fn state(&self) -> FileState {
        self.state
    }

    /// Checks the digests of all keys.
    ///
    /// # Errors
    /// [`HeError::File`]; [`HeError::Format`] for a damaged key.
    pub fn check(&self, context: &Context) -> Result<(), HeError> {
        (0..self.entries.len()).try_for_each(|index| self.read(context, index).map(drop))
    }

    /// Reads a packed key and checks its digest.
    fn read(&self, context: &Context, index: usize) -> Result<Vec<u8>, HeError> {
        let (id, offset) = self.entries[index];
        let mut bytes = vec![0; SwitchKey::packed_bytes(context, id) + DIGEST];
        self.file.read_exact_at(&mut bytes, offset).map_err(io(&self.path))?;
        let stored = bytes.split_off(bytes.len() - DIGEST);
        if stored != digest(&self.bound, index, &bytes) {
            return refuse(format!("the key for {} is damaged", id.kind));
        }
        Ok(bytes)
    }

    /// Reads the key in place `index` and checks it.
    ///
    /// # Errors
    /// [`HeError::File`]; [`HeError::Format`] for a damaged key; errors of [`SwitchKey::read`].
    pub(super) fn load(&self, context: &Context, index: usize) -> Result<SwitchKey, HeError> {
        SwitchKey::read(context, self.entries[index].0, &self.read(context, index)?)
    }
}
