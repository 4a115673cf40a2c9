//! The ledger: what material there is and in which state, in SQLite.
//!
//! WAL with `synchronous=FULL`: every commit is synced to the disk before it returns, and of two processes that change one row one comes
//! first. All writing transactions are `IMMEDIATE`, so none reads what another is about to change. The row of used material is
//! kept for ever, without what it was bound to (about 50 bytes): its id is refused for ever.
use crate::store::{Binding, Entry};
use crate::{SealKey, StoreError, private};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, named_params, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tacit_ids::{ClientId, MaterialId};

const NAME: &str = "ledger.sqlite";
/// What the file's header says that it is: "tacm".
const APPLICATION: i32 = 0x7461_636d;
/// How long another process may hold the ledger. A transaction takes milliseconds.
const BUSY: Duration = Duration::from_secs(30);
/// `MIGRATIONS[v]` leads from schema version v to v + 1. Never changed once released, only added to.
const MIGRATIONS: &[&str] = &["
    -- What this folder is; one row. Both NULL: not sealed.
    CREATE TABLE folder (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        seal_salt BLOB CHECK (length(seal_salt) = 32),
        seal_check BLOB CHECK (length(seal_check) = 32)
    ) STRICT;
    CREATE TABLE material (
        seq INTEGER PRIMARY KEY,                         -- rises with time: rows are removed only before they are ready
        id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
        state TEXT NOT NULL CHECK (state IN ('generating', 'ready', 'claimed', 'burnt')),
        client BLOB CHECK (length(client) = 32),
        model BLOB CHECK (length(model) = 32),
        plan BLOB CHECK (length(plan) = 32),
        backend TEXT,
        bytes INTEGER,                                   -- of the material, not of a sealed file
        digest BLOB CHECK (length(digest) = 32),         -- BLAKE3 of the file
        created INTEGER NOT NULL,                        -- seconds since 1970
        used INTEGER,                                    -- when it was claimed or burnt, seconds since 1970
        CHECK (state <> 'ready' OR (client IS NOT NULL AND model IS NOT NULL AND plan IS NOT NULL AND backend IS NOT NULL
            AND bytes IS NOT NULL AND digest IS NOT NULL))
    ) STRICT;
    CREATE INDEX ready_material ON material (client, model, plan, seq) WHERE state = 'ready';
    CREATE INDEX unsettled_material ON material (state) WHERE state IN ('generating', 'claimed');
"];

/// Where material is in its life. It only goes forward.
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

/// What a file must be to be the material that was stored.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    /// Of the material.
    pub(crate) bytes: u64,
    /// BLAKE3 of the file.
    pub(crate) digest: [u8; 32],
}

pub(crate) struct Ledger {
    path: PathBuf,
    db: Mutex<Connection>,
}

impl Ledger {
    /// Opens the ledger of a folder, or makes it, sealed if there is a key.
    pub(crate) fn open(dir: &Path, key: Option<&SealKey>) -> Result<Self, StoreError> {
        let path = dir.join(NAME);
        // SQLite gives its other files the mode of this one; an empty file is an empty database.
        private::made_empty(&path)?;
        for suffix in ["-wal", "-shm", "-journal"] {
            private::close_to_others(&dir.join(format!("{NAME}{suffix}")))?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&path, flags).map_err(failed(&path))?;
        prepare(&mut db, &path, dir, key)?;
        Ok(Self { path, db: Mutex::new(db) })
    }

    /// Takes an id for material that is being made.
    pub(crate) fn reserve(&self, id: MaterialId, binding: Binding, backend: &str) -> Result<(), StoreError> {
        let created = now()?;
        self.write(|tx| {
            if let Some(state) = state_of(tx, id)? {
                let used = matches!(state, State::Claimed | State::Burnt);
                return Ok(Err(if used { StoreError::Burnt(id) } else { StoreError::Exists(id) }));
            }
            tx.prepare_cached(
                "INSERT INTO material (id, state, client, model, plan, backend, created)
                 VALUES (:id, :state, :client, :model, :plan, :backend, :created)",
            )?
            .execute(named_params! {
                ":id": id.0, ":state": State::Generating, ":client": binding.client.0, ":model": binding.model,
                ":plan": binding.plan, ":backend": backend, ":created": created,
            })?;
            Ok(Ok(()))
        })
    }

    /// Gives a reserved id back; nothing was stored.
    pub(crate) fn release(&self, id: MaterialId) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute("DELETE FROM material WHERE id = ? AND state = ?", params![id.0, State::Generating])?;
            Ok(Ok(()))
        })
    }

    /// The material of a reserved id is on the disk.
    pub(crate) fn finish(&self, id: MaterialId, stored: Stored) -> Result<(), StoreError> {
        // At most `MAX_MATERIAL_BYTES`.
        let bytes = stored.bytes as i64;
        self.write(|tx| {
            let changed = tx
                .prepare_cached("UPDATE material SET state = ?, bytes = ?, digest = ? WHERE id = ? AND state = ?")?
                .execute(params![State::Ready, bytes, stored.digest, id.0, State::Generating])?;
            Ok(if changed == 1 { Ok(()) } else { Err(StoreError::NoMaterial(id)) })
        })
    }

    /// Takes ready material for its one use, of one binding or any: nobody else gets it, however this process ends.
    pub(crate) fn claim(&self, id: MaterialId, binding: Option<Binding>) -> Result<Stored, StoreError> {
        let used = now()?;
        self.write(|tx| {
            match state_of(tx, id)? {
                None | Some(State::Generating) => return Ok(Err(StoreError::NoMaterial(id))),
                Some(State::Claimed | State::Burnt) => return Ok(Err(StoreError::Burnt(id))),
                Some(State::Ready) => {}
            }
            let sql = "SELECT client, model, plan, bytes, digest FROM material WHERE id = ?";
            let read = |row: &Row<'_>| Ok((binding_of(row)?, unsigned(row, "bytes")?, row.get("digest")?));
            let (bound, bytes, digest) = tx.prepare_cached(sql)?.query_row([id.0], read)?;
            if let Some(what) = binding.and_then(|wanted| bound.other(&wanted)) {
                return Ok(Err(StoreError::WrongBinding { id, what }));
            }
            tx.prepare_cached("UPDATE material SET state = ?, used = ? WHERE id = ?")?.execute(params![
                State::Claimed,
                used,
                id.0
            ])?;
            Ok(Ok(Stored { bytes, digest }))
        })
    }

    /// The material of these ids is gone from the disk.
    pub(crate) fn burn(&self, ids: &[MaterialId]) -> Result<(), StoreError> {
        let used = now()?;
        self.write(|tx| {
            let mut burn = tx.prepare_cached(
                "UPDATE material SET state = :burnt, used = coalesce(used, :used), client = NULL, model = NULL, plan = NULL,
                     backend = NULL, bytes = NULL, digest = NULL
                 WHERE id = :id",
            )?;
            for id in ids {
                burn.execute(named_params! { ":burnt": State::Burnt, ":used": used, ":id": id.0 })?;
            }
            Ok(Ok(()))
        })
    }

    /// Ready material of a binding or of all, in the order in which it was stored.
    pub(crate) fn list(&self, binding: Option<Binding>) -> Result<Vec<Entry>, StoreError> {
        const ALL: &str = "SELECT id, client, model, plan, backend, bytes, created FROM material
             WHERE state = 'ready' ORDER BY seq";
        const BOUND: &str = "SELECT id, client, model, plan, backend, bytes, created FROM material
             WHERE state = 'ready' AND client = ? AND model = ? AND plan = ? ORDER BY seq";
        self.read(|db| match binding {
            None => db.prepare_cached(ALL)?.query_map([], entry_of)?.collect(),
            Some(b) => db.prepare_cached(BOUND)?.query_map(params![b.client.0, b.model, b.plan], entry_of)?.collect(),
        })
    }

    /// Ready material of a client, whatever model and plan it is for.
    pub(crate) fn ready_count(&self, client: ClientId) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) AS n FROM material WHERE state = 'ready' AND client = ?";
        self.read(|db| db.prepare_cached(sql)?.query_row([client.0], |row| unsigned(row, "n")))
    }

    /// Ids whose material is ready, being made, or claimed and not burnt yet.
    pub(crate) fn live(&self) -> Result<BTreeMap<MaterialId, State>, StoreError> {
        self.read(|db| {
            // One by one, so that each is found by its index and used ids, of which there are many, are not read.
            let mut live = BTreeMap::new();
            for state in ["state = 'ready'", "state IN ('generating', 'claimed')"] {
                let mut select = db.prepare(&format!("SELECT id, state FROM material WHERE {state}"))?;
                let rows = select.query_map([], |row| Ok((MaterialId(row.get(0)?), row.get(1)?)))?;
                for row in rows {
                    let (id, state) = row?;
                    live.insert(id, state);
                }
            }
            Ok(live)
        })
    }

    /// Forgets what was never finished.
    pub(crate) fn release_unfinished(&self) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute("DELETE FROM material WHERE state = 'generating'", [])?;
            Ok(Ok(()))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A transaction that panics is rolled back.
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, run: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        run(&self.lock()).map_err(failed(&self.path))
    }

    /// Runs a transaction; on `Ok(Ok(..))` it is on the disk when this returns, on any error nothing has changed.
    fn write<T>(
        &self,
        run: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut db = self.lock();
        let committed = db.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|tx| match run(&tx)? {
            Ok(value) => tx.commit().map(|()| Ok(value)),
            Err(e) => Ok(Err(e)),
        });
        committed.map_err(failed(&self.path))?
    }
}

/// Sets a connection up, brings the schema up to date, and compares the key.
fn prepare(db: &mut Connection, path: &Path, dir: &Path, key: Option<&SealKey>) -> Result<(), StoreError> {
    db.busy_timeout(BUSY).map_err(failed(path))?;
    check_version(db, path)?;
    let mode: String =
        db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(failed(path))?;
    if mode != "wal" {
        let what = format!("SQLite cannot use WAL here (it uses `{mode}`): choose a folder on a local disk");
        return Err(StoreError::ForeignLedger { path: path.to_owned(), what });
    }
    db.pragma_update(None, "synchronous", "FULL").map_err(failed(path))?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed(path))?;
    migrate(&tx, key, path)?;
    check_key(&tx, key, path, dir)?;
    tx.commit().map_err(failed(path))
}

/// Schema version of the ledger; 0 where there is none yet.
fn check_version(db: &Connection, path: &Path) -> Result<usize, StoreError> {
    let pragma = |name| db.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(failed(path));
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let foreign = |what: String| StoreError::ForeignLedger { path: path.to_owned(), what };
    if application != APPLICATION && (application, version) != (0, 0) {
        return Err(foreign("this is a database of another program".into()));
    }
    match usize::try_from(version) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(version),
        _ => Err(foreign(format!("it has version {version}, this program knows {}: update tacit", MIGRATIONS.len()))),
    }
}

fn migrate(tx: &Transaction<'_>, key: Option<&SealKey>, path: &Path) -> Result<(), StoreError> {
    // Read again: another process may have been faster.
    let version = check_version(tx, path)?;
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(version) {
        tx.execute_batch(sql).map_err(failed(path))?;
        tx.pragma_update(None, "user_version", step as i64 + 1).map_err(failed(path))?;
    }
    if version > 0 {
        return Ok(());
    }
    tx.pragma_update(None, "application_id", APPLICATION).map_err(failed(path))?;
    let mut salt = [0; 32];
    getrandom::fill(&mut salt)?;
    let check = key.map(|key| *key.value("folder check", &salt).as_bytes());
    let row = params![check.map(|_| salt), check];
    tx.execute("INSERT INTO folder (one, seal_salt, seal_check) VALUES (1, ?, ?)", row).map_err(failed(path))?;
    Ok(())
}

/// Whether the folder was made with this key, or without one.
fn check_key(tx: &Transaction<'_>, key: Option<&SealKey>, path: &Path, dir: &Path) -> Result<(), StoreError> {
    let read = |row: &Row<'_>| Ok((row.get::<_, Option<[u8; 32]>>(0)?, row.get::<_, Option<[u8; 32]>>(1)?));
    let sealed = tx.query_row("SELECT seal_salt, seal_check FROM folder", [], read).map_err(failed(path))?;
    match (sealed, key) {
        ((None, None), None) => Ok(()),
        ((None, None), Some(_)) => Err(StoreError::NotSealed(dir.to_owned())),
        (_, None) => Err(StoreError::KeyNeeded(dir.to_owned())),
        ((Some(salt), Some(check)), Some(key)) if key.value("folder check", &salt) == check => Ok(()),
        (_, Some(_)) => Err(StoreError::WrongKey(dir.to_owned())),
    }
}

fn state_of(tx: &Transaction<'_>, id: MaterialId) -> rusqlite::Result<Option<State>> {
    tx.prepare_cached("SELECT state FROM material WHERE id = ?")?.query_row([id.0], |row| row.get(0)).optional()
}

fn binding_of(row: &Row<'_>) -> rusqlite::Result<Binding> {
    Ok(Binding { client: ClientId(row.get("client")?), model: row.get("model")?, plan: row.get("plan")? })
}

/// A size or time; SQLite's numbers have a sign.
fn unsigned(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, value))
}

fn entry_of(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        id: MaterialId(row.get("id")?),
        binding: binding_of(row)?,
        backend: row.get("backend")?,
        created: unsigned(row, "created")?,
        bytes: unsigned(row, "bytes")?,
    })
}

/// Seconds since 1970.
fn now() -> Result<i64, StoreError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| StoreError::Clock)?;
    Ok(since.as_secs() as i64)
}

fn failed(path: &Path) -> impl FnOnce(rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Ledger { path, source }
}
