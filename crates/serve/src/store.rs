//! Material on disk: made ahead of time, used at most once.
//!
//! One file per material, named by its id and its state: `ID.generating -> ID.ready -> ID.claimed -> ID.burnt`. A state changes by atomic
//! rename, and the file and the folder are synced before the change counts. [`Store::claim`] returns the material only after the
//! claim **and** the burning are durable, so no byte of an online phase can leave before; a crash at any point leaves material
//! that is ready and unused, or material that can never be used: opening the store burns what was claimed and removes
//! what was never finished. Files have mode 0600, the folder 0700. They are not encrypted; restoring an old copy of the folder
//! defeats all this (see the threat model).
mod header;

use crate::ServeError;
use crate::error::random;
use header::{HEADER_BYTES, Header};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Largest material file accepted, in bytes.
pub const MAX_MATERIAL_BYTES: u64 = 8 << 30;
/// How long the header of used material is kept, to tell "used" from "unknown".
const TOMBSTONE_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Names one material at both parties. Random, chosen by the client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MaterialId(pub [u8; 16]);

impl MaterialId {
    /// A fresh id.
    ///
    /// # Errors
    /// [`ServeError::Random`].
    pub fn random() -> Result<Self, ServeError> {
        Ok(Self(random()?))
    }
}

impl fmt::Display for MaterialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for MaterialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MaterialId {
    type Err = ServeError;
    fn from_str(text: &str) -> Result<Self, ServeError> {
        let bad = || ServeError::Usage(format!("`{text}` is no material id: 32 hexadecimal digits are"));
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut id = [0; 16];
        for (byte, i) in id.iter_mut().zip((0..32).step_by(2)) {
            *byte = u8::from_str_radix(&text[i..i + 2], 16).map_err(|_| bad())?;
        }
        Ok(Self(id))
    }
}

/// What material is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The client: fingerprint of its certificate.
    pub client: [u8; 32],
    /// Digest of the model's public section.
    pub model: [u8; 32],
    /// Digest of the compiled plan.
    pub plan: [u8; 32],
}

/// Ready material, as listed.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub id: MaterialId,
    /// What it is bound to.
    pub binding: Binding,
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// Bytes of the material without the file's header.
    pub bytes: u64,
}

/// A folder of material.
pub struct Store {
    dir: PathBuf,
    /// Held for the store's life: recovery runs only when no other process uses the folder.
    _lock: File,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Generating,
    Ready,
    Claimed,
    Burnt,
}

impl State {
    const fn extension(self) -> &'static str {
        match self {
            State::Generating => "generating",
            State::Ready => "ready",
            State::Claimed => "claimed",
            State::Burnt => "burnt",
        }
    }
}

impl Store {
    /// Opens or makes the folder. If no other process uses it, material that a crash left claimed is burnt and material that
    /// was never finished is removed.
    ///
    /// # Errors
    /// [`ServeError::File`] if the folder cannot be used.
    pub fn open(dir: &Path) -> Result<Self, ServeError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(ServeError::file("making the material folder", dir))?;
        let path = dir.join("lock");
        let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = opened.map_err(ServeError::file("opening", &path))?;
        let store = Self { dir: dir.to_owned(), _lock: lock };
        match store._lock.try_lock() {
            Ok(()) => {
                store.recover()?;
                store._lock.unlock().map_err(ServeError::file("unlocking", &path))?;
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(ServeError::file("locking", &path)(e)),
        }
        store._lock.lock_shared().map_err(ServeError::file("locking", &path))?;
        Ok(store)
    }

    /// Stores material; it is ready, durably, when this returns.
    ///
    /// # Errors
    /// [`ServeError::Burnt`] if the id was ever used here, [`ServeError::Usage`] if it is in use, [`ServeError::File`] if the disk refuses.
    pub fn put(&self, id: MaterialId, binding: Binding, material: &[u8]) -> Result<(), ServeError> {
        let path = self.path(id, State::Generating);
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = opened.map_err(|e| match e.kind() {
            // Another session's file: it must be left alone.
            io::ErrorKind::AlreadyExists => ServeError::Usage(format!("material {id} is being made already")),
            _ => ServeError::file("writing material", &path)(e),
        })?;
        if let Err(e) = self.fill(file, id, binding, material) {
            // A file that is cut short is no use to anybody; recovery removes it if this fails too.
            let _ = fs::remove_file(&path);
            return Err(e);
        }
        self.advance(id, State::Generating, State::Ready)
    }

    /// Writes a new file. The id is checked now that this session holds its name: states only go forward, so going through
    /// them in order misses none.
    fn fill(&self, mut file: File, id: MaterialId, binding: Binding, material: &[u8]) -> Result<(), ServeError> {
        for state in [State::Ready, State::Claimed, State::Burnt] {
            if self.path(id, state).exists() {
                return Err(match state {
                    State::Burnt => ServeError::Burnt(id),
                    _ => ServeError::Usage(format!("material {id} exists already")),
                });
            }
        }
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let header = Header::new(id, binding, created, material).to_bytes();
        let written = file.write_all(&header).and_then(|()| file.write_all(material)).and_then(|()| file.sync_all());
        written.map_err(ServeError::file("writing material", &self.path(id, State::Generating)))
    }

    /// Takes material for its one use: claimed and burnt, durably, when this returns.
    ///
    /// # Errors
    /// [`ServeError::Burnt`] on any second claim, [`ServeError::NoMaterial`], [`ServeError::WrongBinding`] (the material stays ready),
    /// [`ServeError::Damaged`] (it is burnt), [`ServeError::File`].
    pub fn claim(&self, id: MaterialId, binding: Binding) -> Result<Zeroizing<Vec<u8>>, ServeError> {
        let ready = self.path(id, State::Ready);
        let (header, _) = match self.read_header(&ready) {
            Err(ServeError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(self.gone(id));
            }
            // Unreadable headers cannot be trusted to name the owner: nobody gets this material.
            Err(ServeError::Content { what, .. }) => return self.burn_damaged(id, State::Ready, what),
            other => other?,
        };
        header.check(id, binding)?;
        self.advance(id, State::Ready, State::Claimed)?;
        let claimed = self.path(id, State::Claimed);
        let material = match self.read_header(&claimed).and_then(|(header, file)| header.read_payload(file, &claimed)) {
            Ok(material) => material,
            Err(ServeError::Content { what, .. }) => return self.burn_damaged(id, State::Claimed, what),
            Err(e) => return Err(e),
        };
        self.burn(id, State::Claimed)?;
        Ok(material)
    }

    /// Ready material of a binding, oldest first; of all bindings without one. Files that cannot be read are left out.
    ///
    /// # Errors
    /// [`ServeError::File`] if the folder cannot be listed.
    pub fn list(&self, binding: Option<Binding>) -> Result<Vec<Entry>, ServeError> {
        let mut entries: Vec<Entry> = self
            .files()?
            .into_iter()
            .filter(|(_, state)| *state == State::Ready)
            .filter_map(|(id, _)| Some(self.read_header(&self.path(id, State::Ready)).ok()?.0.entry()))
            .filter(|e| binding.is_none_or(|b| b == e.binding))
            .collect();
        entries.sort_by_key(|e| (e.created, e.id));
        Ok(entries)
    }

    /// Destroys ready material.
    ///
    /// # Errors
    /// [`ServeError::NoMaterial`] or [`ServeError::Burnt`] if it is not ready.
    pub fn discard(&self, id: MaterialId) -> Result<(), ServeError> {
        self.advance(id, State::Ready, State::Claimed)?;
        self.burn(id, State::Claimed)
    }

    /// As [`discard`](Self::discard), for material of `binding` only.
    ///
    /// # Errors
    /// As [`discard`](Self::discard), and [`ServeError::WrongBinding`].
    pub fn discard_bound(&self, id: MaterialId, binding: Binding) -> Result<(), ServeError> {
        match self.read_header(&self.path(id, State::Ready)) {
            Ok((header, _)) => header.check(id, binding)?,
            Err(_) => return Err(self.gone(id)),
        }
        self.discard(id)
    }

    fn path(&self, id: MaterialId, state: State) -> PathBuf {
        self.dir.join(format!("{id}.{}", state.extension()))
    }

    fn gone(&self, id: MaterialId) -> ServeError {
        let used = [State::Claimed, State::Burnt].iter().any(|s| self.path(id, *s).exists());
        if used { ServeError::Burnt(id) } else { ServeError::NoMaterial(id) }
    }

    /// Renames and syncs the folder. Exactly one of several callers wins; the others are told the material is gone.
    fn advance(&self, id: MaterialId, from: State, to: State) -> Result<(), ServeError> {
        let (old, new) = (self.path(id, from), self.path(id, to));
        match fs::rename(&old, &new) {
            Ok(()) => self.sync_dir(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(self.gone(id)),
            Err(e) => Err(ServeError::file("renaming", &old)(e)),
        }
    }

    /// Drops the content, keeps the header as a tombstone.
    fn burn(&self, id: MaterialId, from: State) -> Result<(), ServeError> {
        let path = self.path(id, from);
        let cut = OpenOptions::new().write(true).open(&path).and_then(|file| {
            let len = file.metadata()?.len();
            file.set_len(len.min(HEADER_BYTES as u64))?;
            file.sync_all()
        });
        cut.map_err(ServeError::file("emptying", &path))?;
        self.advance(id, from, State::Burnt)
    }

    fn burn_damaged<T>(&self, id: MaterialId, state: State, what: String) -> Result<T, ServeError> {
        self.burn(id, state)?;
        Err(ServeError::Damaged { id, what })
    }

    fn sync_dir(&self) -> Result<(), ServeError> {
        let synced = File::open(&self.dir).and_then(|d| d.sync_all());
        synced.map_err(ServeError::file("syncing", &self.dir))
    }

    fn read_header(&self, path: &Path) -> Result<(Header, File), ServeError> {
        let mut file = File::open(path).map_err(ServeError::file("opening material", path))?;
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact(&mut bytes).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => content(path, "the header is cut short"),
            _ => ServeError::file("reading material", path)(e),
        })?;
        Ok((Header::parse(&bytes).map_err(|what| content(path, what))?, file))
    }

    fn files(&self) -> Result<Vec<(MaterialId, State)>, ServeError> {
        let listing = fs::read_dir(&self.dir).map_err(ServeError::file("listing", &self.dir))?;
        let mut files = Vec::new();
        for entry in listing {
            let name = entry.map_err(ServeError::file("listing", &self.dir))?.file_name();
            let Some((id, extension)) = name.to_str().and_then(|n| n.split_once('.')) else { continue };
            let states = [State::Generating, State::Ready, State::Claimed, State::Burnt];
            let state = states.into_iter().find(|s| s.extension() == extension);
            if let (Ok(id), Some(state)) = (id.parse(), state) {
                files.push((id, state));
            }
        }
        Ok(files)
    }

    fn recover(&self) -> Result<(), ServeError> {
        for (id, state) in self.files()? {
            let path = self.path(id, state);
            match state {
                State::Generating => fs::remove_file(&path).map_err(ServeError::file("removing", &path))?,
                State::Claimed => self.burn(id, state)?,
                State::Burnt => {
                    let age = fs::metadata(&path).and_then(|m| m.modified()).map(|t| t.elapsed().unwrap_or_default());
                    if age.is_ok_and(|age| age > TOMBSTONE_AGE) {
                        fs::remove_file(&path).map_err(ServeError::file("removing", &path))?;
                    }
                }
                State::Ready => {}
            }
        }
        self.sync_dir()
    }
}

fn content(path: &Path, what: impl Into<String>) -> ServeError {
    ServeError::Content { path: path.to_owned(), what: what.into() }
}
