//! The ledger, in SQLite: which material exists, and in which state.
//!
//! WAL with `synchronous=FULL`: every commit is synced to the disk before it returns, and changes
//! of one row by two processes are serialized. All writing transactions are `IMMEDIATE`: none reads
//! a row that another is about to change. The row of used material stays for ever, without its
//! binding (about 50 bytes), so that its id is refused for ever.
//!
//! No statement reads rows of other used material. Where SQLite might choose a full scan, the
//! statement names its index; the tests count steps.
mod last_use;
mod orders;
mod schema;
mod uploads;

#[cfg(test)]
mod tests;

use crate::entry::{Binding, Entry, Origin, Party};
use crate::material_folder::{LEDGER, SQLITE_ENDINGS};
use crate::{SealKey, StoreError, clock, private};
use last_use::LastUse;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, named_params, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tacit_ids::{ClientId, FolderId, MaterialId};

/// State of material. It only moves forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Generating,
    Ready,
    Claimed,
    Burnt,
}

impl State {
    const ALL: [Self; 4] = [Self::Generating, Self::Ready, Self::Claimed, Self::Burnt];

    const fn name(self) -> &'static str {
        match self {
            Self::Generating => "generating",
            Self::Ready => "ready",
            Self::Claimed => "claimed",
            Self::Burnt => "burnt",
        }
    }
}

impl ToSql for State {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.name().into())
    }
}

impl FromSql for State {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        Self::ALL.into_iter().find(|s| s.name() == name).ok_or(FromSqlError::InvalidType)
    }
}

/// The expected length and digest of stored material.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) bytes: u64,
    pub(crate) digest: [u8; 32],
}

/// Number of materials of a folder by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Materials that are ready to be used.
    pub ready: u64,
    /// Bytes of ready materials.
    pub ready_bytes: u64,
    /// Materials that are being made, or claimed and not yet burnt.
    pub unsettled: u64,
    /// Materials that were used or destroyed; they take no space.
    pub burnt: u64,
}

pub(crate) struct Ledger {
    path: PathBuf,
    folder: FolderId,
    db: Mutex<Connection>,
    last_use: Mutex<LastUse>,
}

impl Ledger {
    /// Opens the ledger of a folder. Makes it if a party is given and there is none; seals it if
    /// there is a key.
    pub(crate) fn open(dir: &Path, party: Option<Party>, key: Option<&SealKey>) -> Result<Self, StoreError> {
        let path = dir.join(LEDGER);
        // SQLite gives its other files the mode of this one; an empty file is an empty database.
        private::create_empty(&path)?;
        for suffix in SQLITE_ENDINGS {
            private::close_to_others(&dir.join(format!("{LEDGER}{suffix}")))?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&path, flags).map_err(ledger_error(&path))?;
        let (folder, last_use) = schema::prepare(&mut db, &path, party, key)?;
        Ok(Self { path, folder, db: Mutex::new(db), last_use: Mutex::new(LastUse::by_earlier_process(last_use)) })
    }

    pub(crate) fn is_in(dir: &Path) -> bool {
        dir.join(LEDGER).exists()
    }

    /// The id by which the other party knows this folder.
    pub(crate) fn folder(&self) -> FolderId {
        self.folder
    }

    /// Reserves an id for material that is being made. `max_materials` limits the client's
    /// materials, those being made included.
    pub(crate) fn reserve(
        &self,
        id: MaterialId,
        binding: Binding,
        origin: Origin<'_>,
        max_materials: Option<u64>,
    ) -> Result<(), StoreError> {
        let created = now()?;
        self.write(|tx| {
            if let Some(state) = state_of(tx, id)? {
                let used = matches!(state, State::Claimed | State::Burnt);
                return Ok(Err(if used { StoreError::Burnt(id) } else { StoreError::Exists(id) }));
            }
            if let Some(max_materials) = max_materials {
                let count = held_by(tx, binding.client)?;
                if count >= max_materials {
                    return Ok(Err(StoreError::Full { held: count }));
                }
            }
            tx.prepare(
                "INSERT INTO material (id, state, client, model, plan, peer, backend, maker, created)
                 VALUES (:id, :state, :client, :model, :plan, :peer, :backend, :maker, :created)",
            )?
            .execute(named_params! {
                ":id": id.0, ":state": State::Generating, ":client": binding.client.0, ":model": binding.model,
                ":plan": binding.plan, ":peer": origin.peer.0, ":backend": origin.backend, ":maker": origin.maker.map(|maker| maker.0),
                ":created": created,
            })?;
            Ok(Ok(()))
        })
    }

    pub(crate) fn release(&self, id: MaterialId) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute("DELETE FROM material WHERE id = ? AND state = ?", params![id.0, State::Generating])?;
            Ok(Ok(()))
        })
    }

    pub(crate) fn finish(&self, id: MaterialId, stored: Stored) -> Result<(), StoreError> {
        // The cast is safe: the size is at most `MAX_MATERIAL_BYTES`.
        let (bytes, wanted) = (stored.bytes as i64, now()?);
        self.write(|tx| {
            let changed = tx
                .prepare("UPDATE material SET state = ?, bytes = ?, digest = ?, wanted = ? WHERE id = ? AND state = ?")?
                .execute(params![State::Ready, bytes, stored.digest, wanted, id.0, State::Generating])?;
            Ok(if changed == 1 { Ok(()) } else { Err(StoreError::NoMaterial(id)) })
        })
    }

    /// Claims ready material for its single use: no later claim succeeds.
    pub(crate) fn claim(&self, id: MaterialId, binding: Binding) -> Result<Stored, StoreError> {
        let used = now()?;
        self.write(|tx| {
            let stored = match ready(tx, id, binding)? {
                Ok(stored) => stored,
                Err(e) => return Ok(Err(e)),
            };
            tx.prepare("UPDATE material SET state = ?, used = ? WHERE id = ?")?.execute(params![
                State::Claimed,
                used,
                id.0
            ])?;
            Ok(Ok(stored))
        })
    }

    /// The expected length and digest of ready material, which stays ready.
    pub(crate) fn ready(&self, id: MaterialId, binding: Binding) -> Result<Stored, StoreError> {
        self.read(|db| ready(db, id, binding))?
    }

    /// Claims those of these ids that are ready, of one client or any, for destruction; returns
    /// them.
    pub(crate) fn claim_for_destruction(
        &self,
        ids: &[MaterialId],
        client: Option<ClientId>,
    ) -> Result<Vec<MaterialId>, StoreError> {
        let used = now()?;
        self.write(|tx| {
            let mut claim = tx.prepare(
                "UPDATE material SET state = 'claimed', used = :used
                 WHERE id = :id AND state = 'ready' AND (:client IS NULL OR client = :client)",
            )?;
            let mut claimed = Vec::new();
            for id in ids {
                let named = named_params! { ":used": used, ":id": id.0, ":client": client.map(|c| c.0) };
                if claim.execute(named)? == 1 {
                    claimed.push(*id);
                }
            }
            Ok(Ok(claimed))
        })
    }

    /// Records that the files of these ids are deleted.
    pub(crate) fn burn(&self, ids: &[MaterialId]) -> Result<(), StoreError> {
        let used = now()?;
        self.write(|tx| {
            let mut burn = tx.prepare(
                "UPDATE material SET state = :burnt, used = coalesce(used, :used), client = NULL, model = NULL, plan = NULL,
                     peer = NULL, backend = NULL, maker = NULL, bytes = NULL, digest = NULL, wanted = NULL
                 WHERE id = :id",
            )?;
            for id in ids {
                burn.execute(named_params! { ":burnt": State::Burnt, ":used": used, ":id": id.0 })?;
            }
            Ok(Ok(()))
        })
    }

    /// Lists ready material in the order of storing: of a binding, a client, or all.
    pub(crate) fn list(&self, which: Which) -> Result<Vec<Entry>, StoreError> {
        const COLUMNS: &str =
            "SELECT id, client, model, plan, peer, backend, maker, bytes, created, wanted FROM material
             INDEXED BY ready_material WHERE state = 'ready'";
        self.read(|db| match which {
            Which::All => db.prepare(&format!("{COLUMNS} ORDER BY seq"))?.query_map([], entry_of)?.collect(),
            Which::Client(client) => db
                .prepare(&format!("{COLUMNS} AND client = ? ORDER BY seq"))?
                .query_map([client.0], entry_of)?
                .collect(),
            Which::Binding(b) => db
                .prepare(&format!("{COLUMNS} AND client = ? AND model = ? AND plan = ? ORDER BY seq"))?
                .query_map(params![b.client.0, b.model, b.plan], entry_of)?
                .collect(),
        })
    }

    /// Ids of ready material that was last wanted at `time` or earlier, in seconds since 1970.
    pub(crate) fn unwanted_since(&self, time: i64) -> Result<Vec<MaterialId>, StoreError> {
        let sql = "SELECT id FROM material INDEXED BY ageing_material WHERE state = 'ready' AND wanted <= ?";
        self.read(|db| db.prepare(sql)?.query_map([time], |row| row.get("id").map(MaterialId))?.collect())
    }

    pub(crate) fn mark_wanted(&self, ids: &[MaterialId]) -> Result<(), StoreError> {
        let now = now()?;
        self.write(|tx| {
            let sql = "UPDATE material SET wanted = :now WHERE id = :id AND state = 'ready' AND wanted <= :now - 3600";
            let mut update = tx.prepare(sql)?;
            for id in ids {
                update.execute(named_params! { ":now": now, ":id": id.0 })?;
            }
            Ok(Ok(()))
        })
    }

    pub(crate) fn counts(&self) -> Result<Counts, StoreError> {
        self.read(|db| {
            let [ready, ready_bytes] = count(db, "INDEXED BY ready_material WHERE state = 'ready'")?;
            let [unsettled, _] = count(db, "INDEXED BY unsettled_material WHERE state IN ('generating', 'claimed')")?;
            // Counted in the index of ids, without reading the many rows of used ids.
            let total =
                db.prepare("SELECT count(*) AS number FROM material")?.query_row([], |row| unsigned(row, "number"))?;
            let burnt = total.saturating_sub(ready + unsettled);
            Ok(Counts { ready, ready_bytes, unsettled, burnt })
        })
    }

    /// Ids whose material is ready, being made, or claimed and not yet burnt.
    pub(crate) fn live(&self) -> Result<BTreeMap<MaterialId, State>, StoreError> {
        self.read(|db| {
            // One query per state, so that each uses its index and none reads the many used ids.
            let mut live = BTreeMap::new();
            for condition in [
                "INDEXED BY ready_material WHERE state = 'ready'",
                "INDEXED BY unsettled_material WHERE state IN ('generating', 'claimed')",
            ] {
                let mut select = db.prepare(&format!("SELECT id, state FROM material {condition}"))?;
                let rows = select.query_map([], |row| Ok((MaterialId(row.get(0)?), row.get(1)?)))?;
                for row in rows {
                    let (id, state) = row?;
                    live.insert(id, state);
                }
            }
            Ok(live)
        })
    }

    pub(crate) fn is_known(&self, id: MaterialId) -> Result<bool, StoreError> {
        self.read(|db| state_of(db, id).map(|state| state.is_some()))
    }

    /// Writes the log back into the database and truncates it, if possible now.
    pub(crate) fn shrink(&self) {
        // This fails if others read the log now or the disk is full; the next write reports that.
        let _ = self.lock().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Deletes rows of material that was never finished.
    pub(crate) fn release_unfinished(&self) -> Result<(), StoreError> {
        self.write(|tx| {
            // SQLite uses the index only if the statement names both of its states.
            tx.execute(
                "DELETE FROM material INDEXED BY unsettled_material
                 WHERE state IN ('generating', 'claimed') AND state = 'generating'",
                [],
            )?;
            Ok(Ok(()))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A transaction that panics is rolled back, so a poisoned lock is safe to use.
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, run: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        run(&self.lock()).map_err(ledger_error(&self.path))
    }

    /// Runs a transaction. After `Ok(Ok(..))` it is on the disk; after any error nothing has
    /// changed.
    fn write<T>(
        &self,
        run: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut db = self.lock();
        let committed = db.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|tx| match run(&tx)? {
            Ok(value) => tx.commit().map(|()| Ok(value)),
            Err(e) => Ok(Err(e)),
        });
        committed.map_err(ledger_error(&self.path))?
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Which {
    All,
    Client(ClientId),
    Binding(Binding),
}

/// Counts materials of a client, those being made included.
fn held_by(tx: &Transaction<'_>, client: ClientId) -> rusqlite::Result<u64> {
    tx.prepare(
        "SELECT (SELECT count(*) FROM material INDEXED BY ready_material WHERE state = 'ready' AND client = :client)
              + (SELECT count(*) FROM material INDEXED BY unsettled_material
                 WHERE state IN ('generating', 'claimed') AND state = 'generating' AND client = :client) AS n",
    )?
    .query_row(named_params! { ":client": client.0 }, |row| unsigned(row, "n"))
}

/// The expected length and digest of ready material of a binding, or why there is none.
fn ready(db: &Connection, id: MaterialId, binding: Binding) -> rusqlite::Result<Result<Stored, StoreError>> {
    let sql = "SELECT state, client, model, plan, bytes, digest FROM material WHERE id = ?";
    Ok(match db.prepare(sql)?.query_row([id.0], stored_of).optional()? {
        None | Some(Err(State::Generating)) => Err(StoreError::NoMaterial(id)),
        Some(Err(_)) => Err(StoreError::Burnt(id)),
        Some(Ok((bound, stored))) => match bound.first_difference(&binding) {
            Some(what) => Err(StoreError::WrongBinding { id, what }),
            None => Ok(stored),
        },
    })
}

/// The binding and file of ready material; the state of other material.
fn stored_of(row: &Row<'_>) -> rusqlite::Result<Result<(Binding, Stored), State>> {
    match row.get("state")? {
        State::Ready => {
            let stored = Stored { bytes: unsigned(row, "bytes")?, digest: row.get("digest")? };
            Ok(Ok((binding_of(row)?, stored)))
        }
        state => Ok(Err(state)),
    }
}

fn count(db: &Connection, source: &str) -> rusqlite::Result<[u64; 2]> {
    let sql = format!("SELECT count(*) AS number, coalesce(sum(bytes), 0) AS bytes FROM material {source}");
    db.prepare(&sql)?.query_row([], |row| Ok([unsigned(row, "number")?, unsigned(row, "bytes")?]))
}

fn state_of(tx: &Connection, id: MaterialId) -> rusqlite::Result<Option<State>> {
    tx.prepare("SELECT state FROM material WHERE id = ?")?.query_row([id.0], |row| row.get(0)).optional()
}

fn binding_of(row: &Row<'_>) -> rusqlite::Result<Binding> {
    Ok(Binding { client: ClientId(row.get("client")?), model: row.get("model")?, plan: row.get("plan")? })
}

/// Reads a size or time; SQLite's integers are signed.
fn unsigned(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, value))
}

fn entry_of(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        id: MaterialId(row.get("id")?),
        binding: binding_of(row)?,
        peer: FolderId(row.get("peer")?),
        backend: row.get("backend")?,
        maker: row.get::<_, Option<[u8; 32]>>("maker")?.map(ClientId),
        created: unsigned(row, "created")?,
        wanted: unsigned(row, "wanted")?,
        bytes: unsigned(row, "bytes")?,
    })
}

/// Seconds since 1970.
pub(crate) fn now() -> Result<i64, StoreError> {
    clock::now().map(u64::cast_signed)
}

fn ledger_error(path: &Path) -> impl FnOnce(rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Ledger { path, source }
}
