//! The schema of a ledger file: tables, version, the party whose halves the folder holds, and a
//! check of its key.
use super::ledger_error;
use crate::entry::Party;
use crate::material_folder::APPLICATION;
use crate::{SealKey, StoreError, clock};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tacit_ids::FolderId;

/// Longest wait for another process that holds the ledger. A transaction takes milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// `MIGRATIONS[v]` migrates schema version v to v + 1. Released entries never change; new ones are
/// appended.
const MIGRATIONS: &[&str] = &[
    "
    -- What this folder is; one row. No seal: it is not sealed.
    CREATE TABLE folder (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        id BLOB NOT NULL CHECK (length(id) = 16),
        party TEXT NOT NULL CHECK (party IN ('client', 'server')),
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
        peer BLOB CHECK (length(peer) = 16),             -- folder that has the other half
        backend TEXT,
        bytes INTEGER,                                   -- of the material, not of a sealed file
        digest BLOB CHECK (length(digest) = 32),         -- BLAKE3 of the file
        created INTEGER NOT NULL,                        -- seconds since 1970
        wanted INTEGER,                                  -- when it was last known to be of use, seconds since 1970
        used INTEGER,                                    -- when it was claimed or burnt, seconds since 1970
        CHECK (state <> 'ready' OR (client IS NOT NULL AND model IS NOT NULL AND plan IS NOT NULL AND peer IS NOT NULL
            AND backend IS NOT NULL AND bytes IS NOT NULL AND digest IS NOT NULL AND wanted IS NOT NULL))
    ) STRICT;
    CREATE INDEX ready_material ON material (client, model, plan, seq) WHERE state = 'ready';
    CREATE INDEX ageing_material ON material (wanted) WHERE state = 'ready';
    CREATE INDEX unsettled_material ON material (state, client) WHERE state IN ('generating', 'claimed');
",
    "
    -- What a client sends once and the server keeps, such as switching keys. Rows stay when the files go.
    CREATE TABLE upload (
        seq INTEGER PRIMARY KEY,
        name BLOB NOT NULL CHECK (length(name) = 32),    -- as the client calls it
        client BLOB NOT NULL CHECK (length(client) = 32),
        plan BLOB NOT NULL CHECK (length(plan) = 32),
        bytes INTEGER NOT NULL,                          -- when all of it is there
        state TEXT NOT NULL CHECK (state IN ('partial', 'whole', 'deleted', 'expired')),
        created INTEGER NOT NULL,                        -- seconds since 1970
        used INTEGER NOT NULL,                           -- when its client last came for it, seconds since 1970
        ended INTEGER                                    -- when its files went, seconds since 1970
    ) STRICT;
    CREATE UNIQUE INDEX kept_upload ON upload (client, name) WHERE state IN ('partial', 'whole');
",
    "
    ALTER TABLE upload ADD COLUMN lasts INTEGER NOT NULL DEFAULT 1 CHECK (lasts IN (0, 1)); -- over the client's runs
    DROP INDEX kept_upload;
    CREATE UNIQUE INDEX kept_upload ON upload (client, plan, name) WHERE state IN ('partial', 'whole');
",
    "
    ALTER TABLE material ADD COLUMN maker BLOB CHECK (length(maker) = 32); -- who made it in its client's place
    -- What a client has ordered from a helper of its own and does not have yet.
    CREATE TABLE ordered (
        id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
        helper BLOB NOT NULL CHECK (length(helper) = 32),
        client BLOB NOT NULL CHECK (length(client) = 32),
        model BLOB NOT NULL CHECK (length(model) = 32),
        plan BLOB NOT NULL CHECK (length(plan) = 32),
        created INTEGER NOT NULL                         -- seconds since 1970
    ) STRICT;
",
    "
    -- When the folder was last used, seconds since 1970; one row.
    CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), seen INTEGER NOT NULL) STRICT;
",
];

/// Sets up a connection, makes missing tables, and checks the key and, if given, the party.
pub(super) fn prepare(
    db: &mut Connection,
    path: &Path,
    party: Option<Party>,
    key: Option<&SealKey>,
) -> Result<(FolderId, i64), StoreError> {
    db.busy_timeout(BUSY_TIMEOUT).map_err(ledger_error(path))?;
    if check_version(db, path)? > 0 {
        // Refuses another party's folder before anything in it is changed.
        check_party(db, party, path)?;
    }
    let mode: String =
        db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(ledger_error(path))?;
    if mode != "wal" {
        let what = format!("SQLite cannot use WAL here (it uses `{mode}`): choose a folder on a local disk");
        return Err(foreign(path, what));
    }
    db.pragma_update(None, "synchronous", "FULL").map_err(ledger_error(path))?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(ledger_error(path))?;
    migrate(&tx, party, key, path)?;
    check_party(&tx, party, path)?;
    check_key(&tx, key, path)?;
    let folder = tx.query_row("SELECT id FROM folder", [], |row| row.get(0)).map_err(ledger_error(path))?;
    let now = clock::now()?.cast_signed();
    let last_use = last_used(&tx, now).map_err(ledger_error(path))?;
    tx.commit().map_err(ledger_error(path))?;
    Ok((FolderId(folder), last_use))
}

/// Schema version of the ledger; 0 if it has no tables yet.
fn check_version(db: &Connection, path: &Path) -> Result<usize, StoreError> {
    let (application, version) = (pragma(db, "application_id", path)?, pragma(db, "user_version", path)?);
    if application != APPLICATION && (application, version) != (0, 0) {
        return Err(foreign(path, "this is a database of another program".into()));
    }
    match usize::try_from(version) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(version),
        _ => {
            let latest = MIGRATIONS.len();
            Err(foreign(path, format!("it has version {version}, this program knows {latest}: update tacit")))
        }
    }
}

fn pragma(db: &Connection, name: &str, path: &Path) -> Result<i32, StoreError> {
    db.pragma_query_value(None, name, |row| row.get(0)).map_err(ledger_error(path))
}

fn foreign(path: &Path, what: String) -> StoreError {
    StoreError::ForeignLedger { path: path.to_owned(), what }
}

fn migrate(tx: &Transaction<'_>, party: Option<Party>, key: Option<&SealKey>, path: &Path) -> Result<(), StoreError> {
    // Checked again: another process may have migrated it meanwhile.
    let version = check_version(tx, path)?;
    if version == 0 && party.is_none() {
        return Err(StoreError::NoFolder(folder_of(path)));
    }
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(version) {
        tx.execute_batch(sql).map_err(ledger_error(path))?;
        tx.pragma_update(None, "user_version", step as i64 + 1).map_err(ledger_error(path))?;
    }
    let (0, Some(party)) = (version, party) else { return Ok(()) };
    tx.pragma_update(None, "application_id", APPLICATION).map_err(ledger_error(path))?;
    let (mut id, mut salt) = ([0; 16], [0; 32]);
    getrandom::fill(&mut id)?;
    getrandom::fill(&mut salt)?;
    let check = key.map(|key| *key.value("folder check", &salt).as_bytes());
    let row = params![id, party.name(), check.map(|_| salt), check];
    let sql = "INSERT INTO folder (one, id, party, seal_salt, seal_check) VALUES (1, ?, ?, ?, ?)";
    tx.execute(sql, row).map_err(ledger_error(path))?;
    Ok(())
}

/// When the folder was last used. If that was not recorded yet, records the latest time in its
/// rows.
fn last_used(tx: &Transaction<'_>, now: i64) -> rusqlite::Result<i64> {
    if let Some(last_use) = tx.query_row("SELECT seen FROM clock", [], |row| row.get(0)).optional()? {
        return Ok(last_use);
    }
    let times = "SELECT max(max(created), coalesce(max(wanted), 0), coalesce(max(used), 0)) FROM material";
    let last_use = tx.query_row(times, [], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(now);
    tx.execute("INSERT INTO clock (one, seen) VALUES (1, ?)", [last_use])?;
    Ok(last_use)
}

/// Checks that the folder holds this party's halves: both parties' halves together would undo the
/// privacy that they give.
fn check_party(db: &Connection, party: Option<Party>, path: &Path) -> Result<(), StoreError> {
    let Some(party) = party else { return Ok(()) };
    let actual: String = db.query_row("SELECT party FROM folder", [], |row| row.get(0)).map_err(ledger_error(path))?;
    if actual == party.name() {
        return Ok(());
    }
    let (path, holds) = (folder_of(path), if party == Party::Client { Party::Server } else { Party::Client });
    Err(StoreError::OtherParty { path, holds: holds.name(), wanted: party.name() })
}

/// Checks that the folder was made with this key, or without one.
fn check_key(tx: &Transaction<'_>, key: Option<&SealKey>, path: &Path) -> Result<(), StoreError> {
    let sealed = tx.query_row("SELECT seal_salt, seal_check FROM folder", [], |row| {
        Ok((row.get::<_, Option<[u8; 32]>>(0)?, row.get::<_, Option<[u8; 32]>>(1)?))
    });
    match (sealed.map_err(ledger_error(path))?, key) {
        ((None, None), None) => Ok(()),
        ((None, None), Some(_)) => Err(StoreError::NotSealed(folder_of(path))),
        (_, None) => Err(StoreError::KeyNeeded(folder_of(path))),
        ((Some(salt), Some(check)), Some(key)) if key.value("folder check", &salt) == check => Ok(()),
        (_, Some(_)) => Err(StoreError::WrongKey(folder_of(path))),
    }
}

pub(super) fn folder_of(path: &Path) -> PathBuf {
    path.parent().expect("a ledger's path is its folder and its name").to_owned()
}
