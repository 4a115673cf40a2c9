//! Material on disk: made ahead of time, used at most once.
//!
//! A folder holds a ledger (`ledger.sqlite`), one file per material (`ID.material`) that has its bytes and
//! nothing else, `lock`, and room that is held for a full disk (`reserve`). The ledger alone says what a file
//! is: `generating -> ready -> claimed -> burnt`.
//!
//! | step | how | after a crash, once nobody uses the folder |
//! | --- | --- | --- |
//! | put | row `generating` committed (before the material is made, so that one who counts sees it); file written, synced, folder synced; row `ready` committed | `generating`: file and row are removed |
//! | claim | row `claimed` committed: exactly one caller wins, across processes | burnt |
//! | burn | file read and unlinked, folder synced; row `burnt` committed | files whose rows are not `ready` are removed |
//!
//! Commits are synced (see the ledger), and [`Store::claim`] returns the material after the last of these
//! steps, so no byte of an online phase can leave before. A crash at any point leaves material that is ready
//! and unused, or material that can never be used. Recovery runs when a folder is opened that no other
//! process uses.
//!
//! A claim costs three syncs and reading the file, and is part of the online phase. Measured once for 1 MiB,
//! with six busy processes on two cores of an AMD EPYC and ext4 on a virtual disk: median 8 ms, best 2.2 ms
//! (sealed 10 and 4.9 ms), where one sync of 4 KiB alone took 7 ms; on tmpfs, where a sync costs nothing, 1.2
//! ms. Large material is bound by reading and hashing: 50 MiB took 380 ms there.
//!
//! A file that lies there says nothing: one that was copied back after its material was used, or invented, is
//! never granted, listed or counted, and the next recovery removes it. Restoring an old copy of the whole
//! folder, its ledger included, defeats all this, sealed or not (see the threat model).
//!
//! Each party's row names the folder of the other that has the other half ([`Store::folder`]), so that when
//! they meet each can destroy what the other has lost, and only that: a client may have several folders, and
//! a folder material of several servers.
use crate::ledger::{Ledger, State, Stored, Which, now};
use crate::reserve::Reserve;
use crate::seal::{Kind, Reader, SealFault, SealKey, read_sealed, sealed_bytes, sync_folder, write_content};
use crate::step::{Step, Steps};
use crate::{StoreError, private};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tacit_ids::{ClientId, FolderId, MaterialId};
use zeroize::Zeroizing;

/// How long material is kept of which nobody says that it is of use, unless another time is chosen.
pub const EXPIRE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Largest material accepted, in bytes.
pub const MAX_MATERIAL_BYTES: u64 = 8 << 30;

/// What material is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The client that it was made with.
    pub client: ClientId,
    /// Digest of the model's public part.
    pub model: [u8; 32],
    /// Digest of the compiled plan, options and back end included.
    pub plan: [u8; 32],
}

impl Binding {
    /// What differs first in another binding: `client`, `model` or `plan`, as an error says it.
    #[must_use]
    pub fn other(&self, wanted: &Self) -> Option<&'static str> {
        if self.client != wanted.client {
            Some("client")
        } else if self.model != wanted.model {
            Some("model")
        } else if self.plan != wanted.plan {
            Some("plan (another version or other options of this program)")
        } else {
            None
        }
    }
}

/// Whose halves a folder holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

/// How material comes about.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The back end that makes it.
    pub backend: &'a str,
    /// The folder that gets the other half.
    pub peer: FolderId,
}

/// Ready material, as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub id: MaterialId,
    /// What it is bound to.
    pub binding: Binding,
    /// The folder that has the other half.
    pub peer: FolderId,
    /// The back end that made it.
    pub backend: String,
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// When it was last known to be of use ([`Store::still_wanted`]), seconds since 1970.
    pub wanted: u64,
    /// Bytes of the material; a sealed file has some more.
    pub bytes: u64,
}

/// A folder of material. Threads may share it.
pub struct Store {
    dir: PathBuf,
    key: Option<SealKey>,
    ledger: Ledger,
    reserve: Reserve,
    steps: Steps,
    /// Held for the store's life: recovery runs only when no other process uses the folder.
    _lock: File,
}

impl Store {
    /// Opens or makes the folder for one party's halves, sealed if there is a key: both are settled for good
    /// when it is made. Folder and files are closed to other users. If no other process uses the folder,
    /// material that a crash left claimed is burnt, and what was never finished is removed.
    ///
    /// # Errors
    /// [`StoreError::NotPrivate`]: the folder is a link or another user's; [`StoreError::OtherParty`]:
    /// nothing was written then; [`StoreError::KeyNeeded`], [`StoreError::WrongKey`],
    /// [`StoreError::NotSealed`]; [`StoreError::Ledger`], [`StoreError::ForeignLedger`],
    /// [`StoreError::File`].
    pub fn open(dir: &Path, party: Party, key: Option<SealKey>) -> Result<Self, StoreError> {
        Self::open_with(private::made_folder(dir)?, Some(party), key, Steps::default())
    }

    /// As [`open`](Self::open), but takes a folder as it is, whichever party's, and makes none.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`StoreError::NoFolder`].
    pub fn open_existing(dir: &Path, key: Option<SealKey>) -> Result<Self, StoreError> {
        if !Ledger::is_in(dir) {
            return Err(StoreError::NoFolder(dir.to_owned()));
        }
        Self::open_with(private::folder(dir)?, None, key, Steps::default())
    }

    /// As [`open`](Self::open), and calls `hook` between the steps of everything that changes the folder,
    /// recovery included.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[cfg(any(test, feature = "test-util"))]
    pub fn open_hooked(
        dir: &Path,
        party: Party,
        key: Option<SealKey>,
        hook: impl Fn(Step) + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        Self::open_with(private::made_folder(dir)?, Some(party), key, Steps { hook: Some(Box::new(hook)) })
    }

    fn open_with(dir: PathBuf, party: Option<Party>, key: Option<SealKey>, steps: Steps) -> Result<Self, StoreError> {
        let path = dir.join("lock");
        let lock = private::made_file(&path)?;
        let alone = match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(e)) => return Err(StoreError::file("locking", &path)(e)),
        };
        if !alone {
            // Waits for a process that recovers.
            lock.lock_shared().map_err(StoreError::file("locking", &path))?;
        }
        let ledger = Ledger::open(&dir, party, key.as_ref())?;
        let reserve = Reserve::of(&dir);
        let store = Self { dir, key, ledger, reserve, steps, _lock: lock };
        for id in store.files()? {
            private::close_to_others(&store.path(id))?;
        }
        store.reserve.close_to_others()?;
        if alone {
            store.roomy(|| store.recover())?;
            store._lock.unlock().map_err(StoreError::file("unlocking", &path))?;
            store._lock.lock_shared().map_err(StoreError::file("locking", &path))?;
        }
        Ok(store)
    }

    /// By what the other party knows this folder: random, made with it, no secret.
    #[must_use]
    pub fn folder(&self) -> FolderId {
        self.ledger.folder()
    }

    /// Takes an id for material that will be made, if its client then has no more than `room`, what is being
    /// made included.
    ///
    /// # Errors
    /// [`StoreError::Burnt`] if the id was ever used here, [`StoreError::Exists`] if it is in use,
    /// [`StoreError::Full`], [`StoreError::Ledger`].
    pub fn reserve(
        &self,
        id: MaterialId,
        binding: Binding,
        origin: Origin<'_>,
        room: Option<u64>,
    ) -> Result<Reserved<'_>, StoreError> {
        // First, so that what is refused for want of room takes none.
        self.reserve.hold()?;
        self.ledger.reserve(id, binding, origin, room)?;
        self.steps.done(Step::Reserved);
        Ok(Reserved { store: self, id, finished: false })
    }

    /// Stores material; it is ready, durably, when this returns.
    ///
    /// # Errors
    /// [`StoreError::Burnt`] if the id was ever used here, [`StoreError::Exists`] if it is in use,
    /// [`StoreError::TooLarge`]; [`StoreError::File`] and [`StoreError::Ledger`] if the disk refuses.
    pub fn put(&self, id: MaterialId, binding: Binding, origin: Origin<'_>, material: &[u8]) -> Result<(), StoreError> {
        self.reserve(id, binding, origin, None)?.put(material)
    }

    /// Takes material for its one use: claimed and burnt, durably, when this returns, whatever it returns but
    /// [`StoreError::NoMaterial`] and [`StoreError::WrongBinding`].
    ///
    /// # Errors
    /// [`StoreError::Burnt`] on any second claim, [`StoreError::NoMaterial`], [`StoreError::WrongBinding`]
    /// (the material stays ready), [`StoreError::Damaged`] (it is burnt), [`StoreError::File`],
    /// [`StoreError::Ledger`].
    pub fn claim(&self, id: MaterialId, binding: Binding) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let stored = self.roomy(|| self.ledger.claim(id, binding))?;
        self.steps.done(Step::Claimed);
        // It is used, whatever comes of reading it.
        let material = self.read(id, stored);
        self.burn(&[id])?;
        material
    }

    /// Ready material of a binding, oldest first; of all bindings without one.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn list(&self, binding: Option<Binding>) -> Result<Vec<Entry>, StoreError> {
        self.ledger.list(binding.map_or(Which::All, Which::Binding))
    }

    /// Ready material of a client for all models and plans, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn list_of(&self, client: ClientId) -> Result<Vec<Entry>, StoreError> {
        self.ledger.list(Which::Client(client))
    }

    /// Ids whose material is ready or being made.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn unused_ids(&self) -> Result<BTreeSet<MaterialId>, StoreError> {
        let unused = |(id, state)| matches!(state, State::Ready | State::Generating).then_some(id);
        Ok(self.ledger.live()?.into_iter().filter_map(unused).collect())
    }

    /// Destroys what is ready of these, of one client or any, and leaves the rest alone; the ids that are
    /// gone now.
    ///
    /// # Errors
    /// [`StoreError::File`], [`StoreError::Ledger`]; some may be gone then, none can be used.
    pub fn discard(&self, ids: &[MaterialId], client: Option<ClientId>) -> Result<Vec<MaterialId>, StoreError> {
        let taken = self.roomy(|| self.ledger.claim_ready(ids, client))?;
        if !taken.is_empty() {
            self.steps.done(Step::Claimed);
            self.burn(&taken)?;
        }
        Ok(taken)
    }

    /// Notes that ready material of these ids is of use: it expires later.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn still_wanted(&self, ids: &[MaterialId]) -> Result<(), StoreError> {
        if ids.is_empty() { Ok(()) } else { self.ledger.still_wanted(ids) }
    }

    /// Destroys material that was last of use so long ago, or earlier; how much that was.
    ///
    /// # Errors
    /// As [`discard`](Self::discard).
    pub fn expire(&self, age: Duration) -> Result<usize, StoreError> {
        let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        let old = self.ledger.unwanted_since(now()?.saturating_sub(age))?;
        Ok(self.discard(&old, None)?.len())
    }

    /// Runs a write for what is there already, if need be in the room that is held for it.
    fn roomy<T>(&self, write: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.reserve.roomy(|| self.ledger.shrink(), write)
    }

    fn path(&self, id: MaterialId) -> PathBuf {
        self.dir.join(format!("{id}.material"))
    }

    /// Writes a new file and syncs it and its name. Returns the digest of what is in it.
    fn fill(&self, file: File, id: MaterialId, material: &[u8]) -> Result<[u8; 32], StoreError> {
        let mut out = Digesting { inner: file, hasher: blake3::Hasher::new() };
        let written = write_content(&mut out, Kind::Material(id), self.key.as_ref(), material);
        self.steps.done(Step::Written);
        let written = written.and_then(|()| out.inner.sync_all());
        written.map_err(StoreError::file("writing material", &self.path(id)))?;
        sync_folder(&self.dir)?;
        Ok(*out.hasher.finalize().as_bytes())
    }

    fn read(&self, id: MaterialId, stored: Stored) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let path = self.path(id);
        let damaged = |what: String| StoreError::Damaged { id, what };
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(damaged("its file is missing".into())),
            other => other.map_err(StoreError::file("reading material", &path))?,
        };
        let found = file.metadata().map_err(StoreError::file("reading material", &path))?.len();
        let wanted = if self.key.is_some() { sealed_bytes(stored.bytes) } else { stored.bytes };
        // Checked before allocating what the ledger says.
        if found != wanted {
            return Err(damaged(format!("{found} bytes in the file, {wanted} expected")));
        }
        let mut source = Digesting { inner: file, hasher: blake3::Hasher::new() };
        let read = match &self.key {
            None => {
                let mut material = Zeroizing::new(vec![0; stored.bytes as usize]);
                source.read_exact(&mut material).map(|()| material).map_err(SealFault::Io)
            }
            Some(key) => Reader::new(&mut source, key, Kind::Material(id)).and_then(|r| read_sealed(r, found)),
        };
        let material = match read {
            Err(SealFault::Io(e)) => return Err(StoreError::file("reading material", &path)(e)),
            Err(fault) => return Err(damaged(fault.to_string())),
            Ok(material) => material,
        };
        if source.hasher.finalize() != stored.digest {
            return Err(damaged("the content fails its checksum".into()));
        }
        Ok(material)
    }

    /// Removes what was claimed, then says so in the ledger.
    fn burn(&self, ids: &[MaterialId]) -> Result<(), StoreError> {
        ids.iter().try_for_each(|&id| self.unlink(id))?;
        sync_folder(&self.dir)?;
        self.steps.done(Step::Unlinked);
        self.roomy(|| self.ledger.burn(ids))?;
        self.steps.done(Step::Burnt);
        Ok(())
    }

    fn unlink(&self, id: MaterialId) -> Result<(), StoreError> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StoreError::file("removing", &path)(e)),
            _ => Ok(()),
        }
    }

    /// Ids that have files.
    fn files(&self) -> Result<BTreeSet<MaterialId>, StoreError> {
        let listing = fs::read_dir(&self.dir).map_err(StoreError::file("listing", &self.dir))?;
        let mut ids = BTreeSet::new();
        for entry in listing {
            let name = entry.map_err(StoreError::file("listing", &self.dir))?.file_name();
            let id = name.to_str().and_then(|n| n.strip_suffix(".material"));
            ids.extend(id.and_then(|id| id.parse::<MaterialId>().ok()));
        }
        Ok(ids)
    }

    /// Settles what a crash left, while nobody else uses the folder: files and ledger agree afterwards.
    fn recover(&self) -> Result<(), StoreError> {
        let (files, live) = (self.files()?, self.ledger.live()?);
        for id in &files {
            if live.get(id) != Some(&State::Ready) {
                self.unlink(*id)?;
            }
        }
        sync_folder(&self.dir)?;
        self.steps.done(Step::Swept);
        let lost = |(id, state): (&MaterialId, &State)| match state {
            State::Claimed => true,
            State::Ready => !files.contains(id),
            State::Generating | State::Burnt => false,
        };
        let lost: Vec<MaterialId> = live.iter().filter(|(id, state)| lost((id, state))).map(|(id, _)| *id).collect();
        self.ledger.burn(&lost)?;
        self.ledger.release_unfinished()
    }
}

/// An id that is taken for material that is being made. Dropped without material it is given back.
pub struct Reserved<'a> {
    store: &'a Store,
    id: MaterialId,
    finished: bool,
}

impl Reserved<'_> {
    /// Stores the material; it is ready, durably, when this returns.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`]; [`StoreError::File`] and [`StoreError::Ledger`] if the disk refuses.
    pub fn put(mut self, material: &[u8]) -> Result<(), StoreError> {
        let (store, id, bytes) = (self.store, self.id, material.len() as u64);
        if bytes > MAX_MATERIAL_BYTES {
            return Err(StoreError::TooLarge { id, bytes });
        }
        let path = store.path(id);
        let opened = OpenOptions::new().write(true).create_new(true).mode(private::FILE_MODE).open(&path);
        let file = opened.map_err(StoreError::file("writing material", &path))?;
        let digest = store.fill(file, id, material).inspect_err(|_| {
            // A file that is cut short is no use to anybody; recovery removes it if this fails too.
            let _ = fs::remove_file(&path);
        })?;
        store.steps.done(Step::Synced);
        store.ledger.finish(id, Stored { bytes, digest })?;
        self.finished = true;
        store.steps.done(Step::Ready);
        Ok(())
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // So that the caller may try again; recovery does it if this fails.
            let _ = self.store.ledger.release(self.id);
        }
    }
}

/// Digests what goes through it.
struct Digesting<T> {
    inner: T,
    hasher: blake3::Hasher,
}

impl<T: Read> Read for Digesting<T> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.hasher.update(&out[..n]);
        Ok(n)
    }
}

impl<T: Write> Write for Digesting<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
