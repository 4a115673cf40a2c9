//! Uploads: data that clients send a server once, such as switching keys. They are files in the
//! material folder that grow as bytes arrive, and rows of the ledger, which stay when the files are
//! deleted. Their writer must check their content, which is neither secret nor limited to one use.
use crate::file_lock::FileLock;
use crate::ledger::now;
use crate::managed::is_hex_named;
use crate::seal::sync_folder;
use crate::{FolderKind, ManagedFolder, Store, StoreError};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;
use tacit_ids::ClientId;

const FOLDER: &str = "uploads";
const KIND: FolderKind = FolderKind::private("server", "uploads of clients");
/// Ending of incomplete files.
const UNFINISHED: &str = "part";

/// An upload of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upload {
    /// The client's name for it.
    pub name: [u8; 32],
    /// The client that sends it.
    pub client: ClientId,
    /// Digest of its plan.
    pub plan: [u8; 32],
    /// Bytes of the complete upload.
    pub bytes: u64,
    /// Whether it is complete.
    pub is_whole: bool,
    /// When it was begun, seconds since 1970.
    pub created: u64,
    /// When its client last used it, seconds since 1970.
    pub used: u64,
    /// Whether its client still knows it after a restart.
    pub lasts: bool,
}

/// Why an upload has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Its client or the operator deleted it.
    Deleted,
    /// Its client did not use it for too long.
    Expired,
}

impl Ended {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Expired => "expired",
        }
    }
}

/// File name of a client's upload, by plan and name.
fn file_name(client: ClientId, plan: &[u8; 32], name: &[u8; 32]) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("tacit 2026-11 kept upload");
    hasher.update(&client.0).update(plan).update(name).finalize().to_hex().to_string()
}

impl Store {
    /// Returns the file of a client's upload of `bytes` bytes, and whether
    /// [`set_upload_complete`](Self::set_upload_complete) has recorded it as complete; until then
    /// the file has another name. Begins the upload if there is none and the client then has at
    /// most `max_bytes` bytes. Records that it is used now. Whoever has the file open must lock it.
    /// Whoever has made it must call `set_upload_complete` before it grows: a file that was deleted
    /// meanwhile would otherwise grow uncounted.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`], [`StoreError::File`], [`StoreError::Ledger`].
    pub fn open_upload(
        &self,
        client: ClientId,
        plan: &[u8; 32],
        name: &[u8; 32],
        bytes: u64,
        max_bytes: u64,
        lasts: bool,
    ) -> Result<(PathBuf, bool), StoreError> {
        let folder = ManagedFolder::open_or_mark(&self.dir().join(FOLDER), KIND, is_upload)?;
        let is_whole = self.ledger().open_upload(client, plan, name, bytes, max_bytes, lasts)?;
        Ok((folder.path().join(file_name(client, plan, name)), is_whole))
    }

    /// Records whether an upload is complete.
    ///
    /// # Errors
    /// [`StoreError::UploadEnded`]: the upload has ended; files made for it since are deleted as
    /// well. [`StoreError::File`], [`StoreError::Ledger`].
    pub fn set_upload_complete(
        &self,
        client: ClientId,
        plan: &[u8; 32],
        name: &[u8; 32],
        is_whole: bool,
    ) -> Result<(), StoreError> {
        if self.ledger().set_upload_complete(client, plan, name, is_whole)? {
            return Ok(());
        }
        let folder = self.dir().join(FOLDER);
        remove_both(&folder.join(file_name(client, plan, name)))?;
        sync_folder(&folder)?;
        Err(StoreError::UploadEnded)
    }

    /// Lists the uploads of all clients, in the order in which they were begun.
    ///
    /// # Errors
    /// [`StoreError::Ledger`].
    pub fn uploads(&self) -> Result<Vec<Upload>, StoreError> {
        self.ledger().uploads()
    }

    /// Deletes these uploads at once, even if other processes have their files open; returns how
    /// many existed. The ledger records how they ended.
    ///
    /// # Errors
    /// [`StoreError::File`], [`StoreError::Ledger`].
    pub fn end_uploads(&self, which: &[Upload], how: Ended) -> Result<usize, StoreError> {
        if which.is_empty() {
            return Ok(0);
        }
        // Files that a crash leaves are deleted when the folder is next opened.
        let count = self.ledger().end_uploads(which, how)?;
        let folder = self.dir().join(FOLDER);
        for upload in which {
            remove_both(&folder.join(file_name(upload.client, &upload.plan, &upload.name)))?;
        }
        sync_folder(&folder)?;
        Ok(count)
    }

    /// Deletes uploads that their clients last used `age` ago or earlier and do not use now;
    /// returns how many.
    ///
    /// # Errors
    /// As [`end_uploads`](Self::end_uploads).
    pub fn expire_uploads(&self, age: Duration) -> Result<usize, StoreError> {
        let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        let cutoff = u64::try_from(now()?.saturating_sub(age)).unwrap_or(0);
        let mut old = self.uploads()?;
        old.retain(|upload| upload.used <= cutoff && self.is_idle(upload));
        if old.is_empty() {
            return Ok(0);
        }
        self.check_clock()?;
        self.end_uploads(&old, Ended::Expired)
    }

    /// Deletes one upload that later runs of the client will not know: the least recently used one
    /// that is not in use. Returns whether there was one.
    ///
    /// # Errors
    /// As [`end_uploads`](Self::end_uploads).
    pub fn end_idle(&self, client: ClientId) -> Result<bool, StoreError> {
        let mut idle = self.uploads()?;
        idle.retain(|upload| upload.client == client && !upload.lasts && self.is_idle(upload));
        let oldest = idle.iter().min_by_key(|upload| upload.used);
        Ok(self.end_uploads(oldest.map_or(&[], slice::from_ref), Ended::Expired)? > 0)
    }

    /// Whether no process has the file open.
    fn is_idle(&self, upload: &Upload) -> bool {
        let path = self.dir().join(FOLDER).join(file_name(upload.client, &upload.plan, &upload.name));
        !is_held(&path) && !is_held(&path.with_extension(UNFINISHED))
    }

    /// Deletes files of uploads that have ended, while no other process uses the folder.
    pub(crate) fn sweep_uploads(&self) -> Result<(), StoreError> {
        let folder = self.dir().join(FOLDER);
        let listing = StoreError::if_found(fs::read_dir(&folder), "listing", &folder)?;
        let Some(listing) = listing else { return Ok(()) };
        let mut strays: BTreeSet<PathBuf> = BTreeSet::new();
        for entry in listing {
            let path = entry.map_err(StoreError::file("listing", &folder))?.path();
            strays.extend(is_upload(&path).then_some(path));
        }
        for upload in self.uploads()? {
            strays.retain(|path| !files(&folder, upload.client, &upload.plan, &upload.name).contains(path));
        }
        if strays.is_empty() {
            return Ok(());
        }
        let mut removable = Vec::new();
        self.ledger().visit_ended(|client, plan, name| {
            removable.extend(files(&folder, client, &plan, &name).into_iter().filter(|path| strays.remove(path)));
        })?;
        removable.iter().try_for_each(|path| remove(path))
    }
}

/// Whether a file has the name of an upload, complete or not.
fn is_upload(path: &Path) -> bool {
    is_hex_named(path, "", 64) || is_hex_named(path, ".part", 64)
}

fn is_held(path: &Path) -> bool {
    File::open(path).and_then(FileLock::try_exclusive).is_ok_and(|lock| lock.is_none())
}

/// Both names that the file of an upload may have.
fn files(folder: &Path, client: ClientId, plan: &[u8; 32], name: &[u8; 32]) -> [PathBuf; 2] {
    let path = folder.join(file_name(client, plan, name));
    [path.with_extension(UNFINISHED), path]
}

fn remove_both(path: &Path) -> Result<(), StoreError> {
    remove(&path.with_extension(UNFINISHED))?;
    remove(path)
}

/// Deletes a file and frees its space at once, even if a connection has it open.
fn remove(path: &Path) -> Result<(), StoreError> {
    let removed = File::options().write(true).open(path).and_then(|file| {
        fs::remove_file(path)?;
        file.set_len(0)
    });
    StoreError::if_found(removed, "removing", path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Party;

    const ALICE: ClientId = ClientId([1; 32]);
    const BOB: ClientId = ClientId([2; 32]);
    const PLAN: [u8; 32] = [3; 32];

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Party::Server, None).unwrap();
        (dir, store)
    }

    fn place(store: &Store, client: ClientId, name: u8, bytes: u64) -> Result<(PathBuf, bool), StoreError> {
        store.open_upload(client, &PLAN, &[name; 32], bytes, 100, true)
    }

    fn states(store: &Store) -> Vec<(u8, bool)> {
        store.uploads().unwrap().iter().map(|u| (u.name[0], u.is_whole)).collect()
    }

    fn delete(store: &Store, client: ClientId) -> usize {
        let which: Vec<Upload> = store.uploads().unwrap().into_iter().filter(|u| u.client == client).collect();
        store.end_uploads(&which, Ended::Deleted).unwrap()
    }

    #[test]
    fn uploads_respect_quota_and_ledger_records_their_end() {
        let (dir, store) = store();
        let (path, is_whole) = place(&store, ALICE, 7, 60).unwrap();
        let part = path.with_extension("part");
        assert!(!is_whole);
        assert!(!path.exists());
        fs::write(&part, b"some").unwrap();
        assert!(matches!(place(&store, ALICE, 8, 41), Err(StoreError::NoRoom { held: 60, most: 100 })));
        assert_ne!(path, place(&store, BOB, 7, 100).unwrap().0);
        fs::rename(part, &path).unwrap();
        let complete = || store.set_upload_complete(ALICE, &PLAN, &[7; 32], true).unwrap();
        complete();
        assert_eq!(place(&store, ALICE, 7, 60).unwrap(), (path.clone(), true));
        assert_eq!(states(&store), [(7, true), (7, false)]);
        // An upload of another length begins anew.
        assert!(matches!(place(&store, ALICE, 7, 101), Err(StoreError::NoRoom { held: 0, most: 100 })));
        assert!(!place(&store, ALICE, 7, 90).unwrap().1);
        complete();
        let bobs: Vec<Upload> = store.uploads().unwrap().into_iter().filter(|u| u.client == BOB).collect();
        assert_eq!([(); 2].map(|()| store.end_uploads(&bobs, Ended::Deleted).unwrap()), [1, 0]);
        assert_eq!(store.expire_uploads(Duration::from_secs(60)).unwrap(), 0);
        assert!(path.exists());
        assert_eq!(store.expire_uploads(Duration::ZERO).unwrap(), 1);
        assert!(!path.exists());
        assert!(states(&store).is_empty());
        drop(store);
        let db = rusqlite::Connection::open(dir.path().join("ledger.sqlite")).unwrap();
        let mut states = db.prepare("SELECT state FROM upload WHERE ended IS NOT NULL ORDER BY seq").unwrap();
        let states: Vec<String> = states.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(states, ["expired", "deleted"]);
    }

    /// Promised bytes count under any name; otherwise a client could fill the disk.
    #[test]
    fn same_name_for_two_plans_counts_twice() {
        let (_dir, store) = store();
        let (large, _) = place(&store, ALICE, 7, 90).unwrap();
        let (plan, name) = (&[4; 32], &[7; 32]);
        let refused = store.open_upload(ALICE, plan, name, 20, 100, true);
        assert!(matches!(refused, Err(StoreError::NoRoom { held: 90, most: 100 })), "{refused:?}");
        let (small, _) = store.open_upload(ALICE, plan, name, 10, 100, true).unwrap();
        assert_ne!(large, small);
        store.set_upload_complete(ALICE, plan, name, true).unwrap();
        assert_eq!(states(&store), [(7, false), (7, true)]);
        assert!(!place(&store, ALICE, 7, 90).unwrap().1);
        assert_eq!(delete(&store, ALICE), 2);
    }

    /// Otherwise the runs of a client that stores no secrets would use up its share.
    #[test]
    fn ends_least_recently_used_idle_upload() {
        let (_dir, store) = store();
        place(&store, ALICE, 1, 10).unwrap();
        place(&store, BOB, 1, 10).unwrap();
        let [used, _] = [2, 3].map(|name| store.open_upload(ALICE, &PLAN, &[name; 32], 10, 100, false).unwrap().0);
        let open = File::create(&used).unwrap();
        open.lock().unwrap();
        let end_idle = || [(); 2].map(|()| store.end_idle(ALICE).unwrap());
        assert_eq!(end_idle(), [true, false]);
        assert_eq!(states(&store), [(1, false), (1, false), (2, false)]);
        drop(open);
        assert_eq!(end_idle(), [true, false]);
        assert!(!used.exists());
    }

    #[test]
    fn deleted_upload_frees_space_while_open() {
        let (_dir, store) = store();
        let (path, _) = place(&store, ALICE, 7, 60).unwrap();
        let part = path.with_extension("part");
        fs::write(&part, b"some").unwrap();
        let open = File::open(&part).unwrap();
        open.lock().unwrap();
        assert_eq!(store.expire_uploads(Duration::ZERO).unwrap(), 0);
        assert_eq!(delete(&store, ALICE), 1);
        assert_eq!(open.metadata().unwrap().len(), 0);
        // A writer may make the files between the deletion of the row and that of the file.
        for is_whole in [false, true] {
            for path in [&part, &path] {
                fs::write(path, b"more").unwrap();
            }
            let result = store.set_upload_complete(ALICE, &PLAN, &[7; 32], is_whole);
            assert!(matches!(result, Err(StoreError::UploadEnded)), "{result:?}");
            assert!(!path.exists());
            assert!(!part.exists());
        }
    }

    #[test]
    fn sweep_deletes_only_files_of_ended_uploads() {
        let (dir, store) = store();
        let (path, _) = place(&store, ALICE, 7, 60).unwrap();
        let part = path.with_extension("part");
        // The state after a crash between the deletion of the row and that of the file.
        let (ended_path, _) = place(&store, BOB, 7, 60).unwrap();
        delete(&store, BOB);
        let strangers = ["taxes.ods", "stray.part", &"0".repeat(64)].map(|name| path.with_file_name(name));
        for path in [&part, &ended_path].into_iter().chain(&strangers) {
            fs::write(path, b"some").unwrap();
        }
        drop(store);
        let store = Store::open(dir.path(), Party::Server, None).unwrap();
        assert!(part.exists());
        assert!(!ended_path.exists());
        assert_eq!(states(&store), [(7, false)]);
        assert!(strangers.iter().all(|path| path.exists()));
    }
}
