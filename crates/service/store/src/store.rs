//! Material on disk: made ahead of time, used at most once.
//!
//! A folder holds a ledger (`ledger.sqlite`), one file per material (`ID.material`) with the
//! material's bytes alone, `lock`, and room that is reserved for a full disk (`reserve`). The
//! ledger alone decides the state of a file: `generating -> ready -> claimed -> burnt`.
//!
//! | step | how | after a crash, once no process uses the folder |
//! | --- | --- | --- |
//! | put | row `generating` committed (before the material is made, so that counts include it); file written, synced, folder synced; row `ready` committed | `generating`: file and row are removed |
//! | claim | row `claimed` committed: exactly one caller wins, across processes | burnt |
//! | burn | file read and unlinked, folder synced; row `burnt` committed | files whose rows are not `ready` are removed |
//!
//! Commits are synced (see the ledger). [`Store::claim`] and [`Store::claim_picked`] return after
//! the last of these steps, so no byte of an online phase is sent before. A crash at any point
//! leaves material that is ready and unused, or material that can never be used. Recovery runs when
//! a folder is opened that no other process uses.
//!
//! A claim costs three syncs and reading and hashing the file, and is part of the online phase.
//! Measured once on two busy cores of an AMD EPYC: 1 MiB took a median of 8 ms on ext4 on a virtual
//! disk (sealed 10 ms), where one sync of 4 KiB alone took 7 ms, and 1.2 ms on tmpfs; 50 MiB took
//! 380 ms on tmpfs.
//!
//! The existence of a file proves nothing. A file that was copied back after its use, or invented,
//! is never granted, listed or counted, and the next recovery removes it. Restoring an old copy of
//! the whole folder, its ledger included, defeats all this, sealed or not (see the threat model).
//!
//! Each party's row names the other party's folder that has the other half ([`Store::folder`]).
//! When the parties connect, each can destroy exactly the halves that the other has lost.
mod pick;
mod put;

use crate::entry::{Binding, Entry, Ordered, Origin, Party};
use crate::file_lock::FileLock;
use crate::ledger::{Counts, Ledger, State, Stored, Which, now};
use crate::material_folder::{MATERIAL_ENDING, material_folder, party_in};
use crate::reserve::Reserve;
use crate::seal::{Kind, Reader, SealFault, SealKey, read_sealed, sealed_bytes, sync_folder};
use crate::spool::{self, Claimed, Digesting, Spool};
use crate::step::{Step, Steps};
use crate::{StoreError, private};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tacit_ids::{ClientId, FolderId, MaterialId};
use zeroize::Zeroizing;

pub use pick::{Picked, PickedContent};
pub use put::{Placing, Reserved};

/// Default lifetime of material that is not known to be wanted.
pub const DEFAULT_EXPIRY: Duration = Duration::from_secs(30 * 24 * 3600);

/// A folder of material. Threads may share it.
pub struct Store {
    dir: PathBuf,
    key: Option<SealKey>,
    ledger: Ledger,
    reserve: Reserve,
    steps: Steps,
    /// Held for the store's life: recovery runs only when no other process uses the folder.
    _lock: FileLock,
}

impl Store {
    /// Opens or makes the folder for one party's halves, sealed if there is a key: party and
    /// sealing are fixed when it is made. Closes folder and files to other users. If no other
    /// process uses the folder, settles what a crash left.
    ///
    /// # Errors
    /// [`StoreError::NotPrivate`]: the folder is a link or another user's;
    /// [`StoreError::OtherParty`]: nothing was written then; [`StoreError::KeyNeeded`],
    /// [`StoreError::WrongKey`], [`StoreError::NotSealed`]; [`StoreError::Ledger`],
    /// [`StoreError::ForeignLedger`], [`StoreError::File`].
    pub fn open(dir: &Path, party: Party, key: Option<SealKey>) -> Result<Self, StoreError> {
        Self::open_with(material_folder(dir, party)?.path().to_owned(), Some(party), key, Steps::default())
    }

    /// As [`open`](Self::open), but accepts a folder of either party, and makes none.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`StoreError::NoFolder`].
    pub fn open_existing(dir: &Path, key: Option<SealKey>) -> Result<Self, StoreError> {
        let party = if Ledger::is_in(dir) { party_in(dir) } else { None };
        let party = party.ok_or_else(|| StoreError::NoFolder(dir.to_owned()))?;
        let dir = material_folder(dir, party)?.path().to_owned();
        Self::open_with(dir, None, key, Steps::default())
    }

    /// As [`open`](Self::open); calls `hook` between the steps of every change, recovery included.
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
        let dir = material_folder(dir, party)?.path().to_owned();
        Self::open_with(dir, Some(party), key, Steps { hook: Some(Box::new(hook)) })
    }

    fn open_with(dir: PathBuf, party: Option<Party>, key: Option<SealKey>, steps: Steps) -> Result<Self, StoreError> {
        let path = dir.join("lock");
        let failed = || StoreError::file("locking", &path);
        let (lock, alone) = match FileLock::try_exclusive(private::open_private(&path)?).map_err(failed())? {
            Some(lock) => (lock, true),
            // Waits for a process that runs recovery.
            None => (FileLock::shared(private::open_private(&path)?).map_err(failed())?, false),
        };
        let ledger = Ledger::open(&dir, party, key.as_ref())?;
        let reserve = Reserve::new(&dir);
        let store = Self { dir, key, ledger, reserve, steps, _lock: lock };
        for id in store.files()? {
            if store.ledger.is_known(id)? {
                private::close_to_others(&store.path(id))?;
            }
        }
        store.reserve.close_to_others()?;
        if alone {
            store.retry_with_reserve(|| store.recover())?;
            store._lock.downgrade().map_err(StoreError::file("locking", &path))?;
        }
        Ok(store)
    }

    /// The id by which the other party knows this folder: random, made with the folder, not secret.
    #[must_use]
    pub fn folder(&self) -> FolderId {
        self.ledger.folder()
    }

    /// Its path.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Reserves an id for material that will be made. `max_materials` limits the client's
    /// materials, those being made included.
    ///
    /// # Errors
    /// [`StoreError::Burnt`] if the id was ever used here, [`StoreError::Exists`] if it is in use,
    /// [`StoreError::Full`], [`StoreError::Ledger`].
    pub fn reserve(
        &self,
        id: MaterialId,
        binding: Binding,
        origin: Origin<'_>,
        max_materials: Option<u64>,
    ) -> Result<Reserved<'_>, StoreError> {
        // Holds the reserve first: a refusal for lack of room then leaves no row.
        self.reserve.allocate()?;
        self.ledger.reserve(id, binding, origin, max_materials)?;
        self.steps.report(Step::Reserved);
        Ok(Reserved { store: self, id, finished: false })
    }

    /// Stores material; it is ready, durably, when this returns.
    ///
    /// # Errors
    /// [`StoreError::Burnt`] if the id was ever used here, [`StoreError::Exists`] if it is in use,
    /// [`StoreError::TooLarge`]; [`StoreError::File`] and [`StoreError::Ledger`] if the disk
    /// refuses.
    pub fn put(&self, id: MaterialId, binding: Binding, origin: Origin<'_>, material: &[u8]) -> Result<(), StoreError> {
        self.reserve(id, binding, origin, None)?.put(material)
    }

    /// Claims material for its single use. It is burnt, durably, when this returns, except with
    /// [`StoreError::NoMaterial`] and [`StoreError::WrongBinding`].
    ///
    /// # Errors
    /// [`StoreError::Burnt`] on any second claim, [`StoreError::NoMaterial`],
    /// [`StoreError::WrongBinding`] (the material stays ready), [`StoreError::Damaged`] (it is
    /// burnt), [`StoreError::File`], [`StoreError::Ledger`].
    pub fn claim(&self, id: MaterialId, binding: Binding) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        self.claim_with(id, binding, |stored| self.read(id, stored))
    }

    /// As [`claim`](Self::claim); material of more than `in_memory` bytes is read while it is used.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn claim_within(&self, id: MaterialId, binding: Binding, in_memory: u64) -> Result<Claimed, StoreError> {
        self.claim_with(id, binding, |stored| {
            if stored.bytes <= in_memory {
                return Ok(Claimed::Memory(self.read(id, stored)?));
            }
            let file = self.claimed_file(id, stored)?;
            Ok(Claimed::Spooled(stored.bytes, self.checked_contents(id, file, stored)?))
        })
    }

    /// As [`claim`](Self::claim), with what `load` makes of the file; burns the material even if
    /// `load` fails.
    fn claim_with<T>(
        &self,
        id: MaterialId,
        binding: Binding,
        load: impl FnOnce(&Stored) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let stored = self.retry_with_reserve(|| self.ledger.claim(id, binding))?;
        self.steps.report(Step::Claimed);
        let material = load(&stored);
        self.burn(&[id])?;
        material
    }

    /// Temporary space on this folder's disk: it has no row and no file name, and is deleted when
    /// the process ends.
    ///
    /// # Errors
    /// [`StoreError::File`].
    pub fn spool(&self, id: MaterialId, bytes: u64) -> Result<Spool, StoreError> {
        let path = self.path(id);
        let spool = new_file(&path).and_then(|file| {
            fs::remove_file(&path)?;
            Spool::new(file, self.key.as_ref(), Kind::Material(id), bytes)
        });
        spool.map_err(StoreError::file("writing material", &path))
    }

    /// Lists ready material of a binding, or of all, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn list(&self, binding: Option<Binding>) -> Result<Vec<Entry>, StoreError> {
        self.ledger.list(binding.map_or(Which::All, Which::Binding))
    }

    /// Lists ready material of a client for all models and plans, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn list_of(&self, client: ClientId) -> Result<Vec<Entry>, StoreError> {
        self.ledger.list(Which::Client(client))
    }

    /// Counts materials by state: some milliseconds for a million ids ever used.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn counts(&self) -> Result<Counts, StoreError> {
        self.ledger.counts()
    }

    /// Ids whose material is ready, being made, or ordered from a helper.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn unused_ids(&self) -> Result<BTreeSet<MaterialId>, StoreError> {
        // Orders are read first: an order that is fulfilled meanwhile is then among the ready ones.
        let ordered = self.ledger.ordered()?.into_iter().map(|order| order.id);
        let live = self.ledger.live()?.into_iter();
        let unused = live.filter(|(_, state)| matches!(state, State::Ready | State::Generating)).map(|(id, _)| id);
        Ok(ordered.chain(unused).collect())
    }

    /// Records that material of these new ids is ordered from a helper, durably.
    ///
    /// # Errors
    /// [`StoreError::Ledger`]; none is recorded then.
    pub fn order(&self, ids: &[MaterialId], binding: Binding, helper: ClientId) -> Result<(), StoreError> {
        self.ledger.order(ids, binding, helper)
    }

    /// Lists orders that are neither fulfilled nor given up, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn ordered(&self) -> Result<Vec<Ordered>, StoreError> {
        self.ledger.ordered()
    }

    /// Records that the orders of these ids are fulfilled or given up.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn end_orders(&self, ids: &[MaterialId]) -> Result<(), StoreError> {
        self.ledger.end_orders(ids)
    }

    /// Destroys those of these ids that are ready, of one client or any; returns them.
    ///
    /// # Errors
    /// [`StoreError::File`], [`StoreError::Ledger`]; some may be destroyed then, and none can be
    /// used.
    pub fn discard(&self, ids: &[MaterialId], client: Option<ClientId>) -> Result<Vec<MaterialId>, StoreError> {
        let claimed = self.retry_with_reserve(|| self.ledger.claim_for_destruction(ids, client))?;
        if !claimed.is_empty() {
            self.steps.report(Step::Claimed);
            self.burn(&claimed)?;
        }
        Ok(claimed)
    }

    /// Records that ready material is wanted now, which delays its expiry.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn mark_wanted(&self, ids: &[MaterialId]) -> Result<(), StoreError> {
        if ids.is_empty() { Ok(()) } else { self.ledger.mark_wanted(ids) }
    }

    /// Checks that the clock is close to its expected time, judged by the last use of the folder.
    ///
    /// # Errors
    /// [`StoreError::ClockJump`], [`StoreError::Ledger`].
    pub fn check_clock(&self) -> Result<(), StoreError> {
        self.ledger.check_clock()
    }

    /// Accepts the clock, whatever it showed when the folder was last used.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn accept_clock(&self) -> Result<(), StoreError> {
        self.ledger.accept_clock()
    }

    /// Destroys material that was last wanted `age` ago or earlier, and gives up orders of that
    /// age; returns the number of materials.
    ///
    /// # Errors
    /// As [`discard`](Self::discard); [`StoreError::ClockJump`]: material would expire, and the
    /// clock may be wrong.
    pub fn expire(&self, age: Duration) -> Result<usize, StoreError> {
        let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        let cutoff = now()?.saturating_sub(age);
        let mut orders = self.ordered()?;
        orders.retain(|order| i64::try_from(order.created).is_ok_and(|created| created <= cutoff));
        let orders: Vec<MaterialId> = orders.into_iter().map(|order| order.id).collect();
        let old = self.ledger.unwanted_since(cutoff)?;
        if orders.is_empty() && old.is_empty() {
            return self.ledger.settle_clock().map(|()| 0);
        }
        self.check_clock()?;
        if !orders.is_empty() {
            self.end_orders(&orders)?;
        }
        Ok(self.discard(&old, None)?.len())
    }

    /// Runs a write, using the reserved room if the disk is full.
    fn retry_with_reserve<T>(&self, write: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.reserve.retry_with_reserve(|| self.ledger.shrink(), write)
    }

    fn path(&self, id: MaterialId) -> PathBuf {
        self.dir.join(format!("{id}{MATERIAL_ENDING}"))
    }

    /// Opens the file of claimed material, if it has the expected length.
    fn claimed_file(&self, id: MaterialId, stored: &Stored) -> Result<File, StoreError> {
        let path = self.path(id);
        let file = StoreError::if_found(File::open(&path), "reading material", &path)?
            .ok_or_else(|| StoreError::Damaged { id, what: "its file is missing".into() })?;
        let actual = file.metadata().map_err(StoreError::file("reading material", &path))?.len();
        let wanted = if self.key.is_some() { sealed_bytes(stored.bytes) } else { stored.bytes };
        // Checked before memory of that size is allocated.
        if actual != wanted {
            return Err(StoreError::Damaged { id, what: format!("{actual} bytes in the file, {wanted} expected") });
        }
        Ok(file)
    }

    fn read(&self, id: MaterialId, stored: &Stored) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        self.read_from(id, &self.claimed_file(id, stored)?, stored)
    }

    fn read_from(&self, id: MaterialId, file: &File, stored: &Stored) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let mut source = Digesting { inner: file, hasher: blake3::Hasher::new() };
        let result = match &self.key {
            None => {
                let mut material = Zeroizing::new(vec![0; stored.bytes as usize]);
                source.read_exact(&mut material).map(|()| material).map_err(SealFault::Io)
            }
            Some(key) => Reader::new(&mut source, key, Kind::Material(id))
                .and_then(|reader| read_sealed(reader, sealed_bytes(stored.bytes))),
        };
        let material = result.map_err(|fault| self.unreadable(id, fault))?;
        check_digest(id, source.hasher.finalize(), stored)?;
        Ok(material)
    }

    /// Reads the file once to detect damage before use.
    fn checked_contents(
        &self,
        id: MaterialId,
        mut file: File,
        stored: &Stored,
    ) -> Result<Box<dyn Read + Send>, StoreError> {
        let digest = spool::digest(&mut file).map_err(|e| self.unreadable(id, SealFault::Io(e)))?;
        check_digest(id, digest, stored)?;
        spool::contents(file, self.key.as_ref(), Kind::Material(id)).map_err(|fault| self.unreadable(id, fault))
    }

    fn unreadable(&self, id: MaterialId, fault: SealFault) -> StoreError {
        match fault {
            SealFault::Io(e) => StoreError::file("reading material", &self.path(id))(e),
            fault => StoreError::Damaged { id, what: fault.to_string() },
        }
    }

    /// Deletes the files of claimed material, then records that in the ledger.
    fn burn(&self, ids: &[MaterialId]) -> Result<(), StoreError> {
        ids.iter().try_for_each(|&id| self.unlink(id))?;
        sync_folder(&self.dir)?;
        self.steps.report(Step::Unlinked);
        self.retry_with_reserve(|| self.ledger.burn(ids))?;
        self.steps.report(Step::Burnt);
        Ok(())
    }

    fn unlink(&self, id: MaterialId) -> Result<(), StoreError> {
        let path = self.path(id);
        StoreError::if_found(fs::remove_file(&path), "removing", &path)?;
        Ok(())
    }

    fn files(&self) -> Result<BTreeSet<MaterialId>, StoreError> {
        let listing = fs::read_dir(&self.dir).map_err(StoreError::file("listing", &self.dir))?;
        let mut ids = BTreeSet::new();
        for entry in listing {
            let name = entry.map_err(StoreError::file("listing", &self.dir))?.file_name();
            let id = name.to_str().and_then(|n| n.strip_suffix(MATERIAL_ENDING));
            ids.extend(id.and_then(|id| id.parse::<MaterialId>().ok()));
        }
        Ok(ids)
    }

    /// Settles the state after a crash, while no other process uses the folder: files and ledger
    /// agree afterwards.
    fn recover(&self) -> Result<(), StoreError> {
        let (files, live) = (self.files()?, self.ledger.live()?);
        for id in &files {
            if live.get(id) == Some(&State::Ready) {
                continue;
            }
            // An empty file is left by a spool after a crash. Other files that the ledger never
            // knew are not ours: they stay and are never used.
            let path = self.path(*id);
            let is_ours =
                self.ledger.is_known(*id)? || fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() && m.len() == 0);
            match is_ours {
                true => self.unlink(*id)?,
                false => tracing::warn!("{}: no material of this folder's ledger, left alone", path.display()),
            }
        }
        sync_folder(&self.dir)?;
        self.steps.report(Step::Swept);
        let lost = live.iter().filter(|&(id, state)| match state {
            State::Claimed => true,
            State::Ready => !files.contains(id),
            State::Generating | State::Burnt => false,
        });
        let lost: Vec<MaterialId> = lost.map(|(id, _)| *id).collect();
        self.ledger.burn(&lost)?;
        self.ledger.release_unfinished()?;
        self.sweep_uploads()
    }
}

fn check_digest(id: MaterialId, digest: blake3::Hash, stored: &Stored) -> Result<(), StoreError> {
    if digest != stored.digest {
        return Err(StoreError::Damaged { id, what: "the content fails its checksum".into() });
    }
    Ok(())
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(private::FILE_MODE).open(path)
}
