//! The state file: permissions, schema version, tables.
use crate::ServeError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// Name of the server's file, beside the ledger.
pub(super) const FILE_NAME: &str = "server.sqlite";

/// A kind of state file.
pub(crate) struct Kind {
    /// Application id in the file's header.
    pub(crate) application: i32,
    /// `migrations[v]` leads from schema version v to v + 1. Released ones never change; new ones
    /// are appended.
    pub(crate) migrations: &'static [&'static str],
}

/// The server's file; its application id is "tacs".
pub(super) const SERVER: Kind = Kind { application: 0x7461_6373, migrations: MIGRATIONS };
/// Permissions of the file; SQLite gives its other files the same.
const FILE_MODE: u32 = 0o600;
/// SQLite's page cache in KiB.
const CACHE_KIB: i64 = 128;
/// How long to wait for another holder of the file. A transaction takes milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pages of the write-ahead log (4 KiB each) after which SQLite writes it back, to save disk for
/// material.
const LOG_PAGES: i64 = 32;
const MIGRATIONS: &[&str] = &["
    -- How long phases take: the last estimate of each class.
    CREATE TABLE profile (
        plan BLOB NOT NULL CHECK (length(plan) = 32),    -- digest of the plan
        device TEXT NOT NULL,                            -- class of the client's device and link
        phase TEXT NOT NULL CHECK (phase IN ('offline', 'online')),
        threads INTEGER NOT NULL,
        seconds REAL NOT NULL,
        memory INTEGER NOT NULL,                         -- bytes
        updated INTEGER NOT NULL,                        -- seconds since 1970
        PRIMARY KEY (plan, device, phase, threads)
    ) STRICT, WITHOUT ROWID;
    -- Phases that ended, without any of their data.
    CREATE TABLE audit (
        seq INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,                             -- seconds since 1970
        client BLOB NOT NULL CHECK (length(client) = 32),
        model TEXT NOT NULL,
        backend TEXT NOT NULL,
        phase TEXT NOT NULL,
        outcome TEXT NOT NULL CHECK (outcome IN ('done', 'refused', 'failed')),
        queued_s REAL NOT NULL,
        run_s REAL,                                      -- none if it never started
        sent INTEGER,                                    -- bytes before TLS, as is received; none if it did not end well
        received INTEGER
    ) STRICT;
    CREATE INDEX audit_by_time ON audit (at);
    -- Answers that count against a quota.
    CREATE TABLE usage (
        day INTEGER NOT NULL,                            -- UTC, days since 1970
        client BLOB NOT NULL CHECK (length(client) = 32),
        model TEXT NOT NULL,
        answers INTEGER NOT NULL,
        PRIMARY KEY (day, client, model)
    ) STRICT, WITHOUT ROWID;
", "
    -- What the client calls the input, in hexadecimal: the same stands in its log.
    ALTER TABLE audit ADD COLUMN input TEXT;
    CREATE INDEX audit_by_input ON audit (input) WHERE input IS NOT NULL;
", "
    -- What the client did that the protocol does not allow; none if nothing was found.
    ALTER TABLE audit ADD COLUMN fault TEXT;
", "
    -- Also the time to deal material that belongs to no client yet.
    ALTER TABLE profile RENAME TO earlier;
    CREATE TABLE profile (
        plan BLOB NOT NULL CHECK (length(plan) = 32),
        device TEXT NOT NULL,
        phase TEXT NOT NULL CHECK (phase IN ('offline', 'online', 'dealing')),
        threads INTEGER NOT NULL,
        seconds REAL NOT NULL,
        memory INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        PRIMARY KEY (plan, device, phase, threads)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO profile SELECT * FROM earlier;
    DROP TABLE earlier;
", "
    -- What people call the client; none where nobody has said.
    ALTER TABLE audit ADD COLUMN name TEXT;
"];

/// When a commit is safe against a loss of power.
#[derive(Clone, Copy)]
pub(crate) enum Durability {
    /// When the commit returns.
    OnCommit,
    /// Some time after the commit; the file stays consistent.
    Eventual,
}

/// Wraps an error of a state file with the file's path.
pub(crate) fn state_error<E: ToString>(path: &Path) -> impl Fn(E) -> ServeError {
    move |e| ServeError::State { path: path.to_owned(), what: e.to_string() }
}

/// Creates the file if absent, makes it private and migrates its tables.
pub(crate) fn prepare(path: &Path, kind: &Kind) -> Result<(), ServeError> {
    private(path).map_err(state_error(path))?;
    let mut db = connect(path, Durability::OnCommit)?;
    let mode: String =
        db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(state_error(path))?;
    if mode != "wal" {
        return Err(state_error(path)(format!("SQLite cannot use WAL here (it uses `{mode}`): choose a local disk")));
    }
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(state_error(path))?;
    let (application, version) = (pragma(&tx, "application_id", path)?, pragma(&tx, "user_version", path)?);
    if application != kind.application && (application, version) != (0, 0) {
        return Err(state_error(path)("this is a database of another program"));
    }
    let latest = kind.migrations.len();
    let version = usize::try_from(version).ok().filter(|version| *version <= latest).ok_or_else(|| {
        state_error(path)(format!("it has version {version}, this program knows {latest}: update tacit"))
    })?;
    if version == latest {
        // Starting must succeed even if the disk is full, so write nothing.
        return Ok(());
    }
    for (step, sql) in kind.migrations.iter().enumerate().skip(version) {
        tx.execute_batch(sql).map_err(state_error(path))?;
        tx.pragma_update(None, "user_version", step as i64 + 1).map_err(state_error(path))?;
    }
    tx.pragma_update(None, "application_id", kind.application).map_err(state_error(path))?;
    tx.commit().map_err(state_error(path))
}

fn pragma(db: &Connection, name: &str, path: &Path) -> Result<i32, ServeError> {
    db.pragma_query_value(None, name, |row| row.get(0)).map_err(state_error(path))
}

pub(crate) fn connect(path: &Path, durability: Durability) -> Result<Connection, ServeError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(state_error(path))?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(state_error(path))?;
    let name = match durability {
        Durability::OnCommit => "FULL",
        Durability::Eventual => "NORMAL",
    };
    db.pragma_update(None, "synchronous", name).map_err(state_error(path))?;
    // Rows are added and hardly read, so a large cache would be of no use.
    db.pragma_update(None, "cache_size", -CACHE_KIB).map_err(state_error(path))?;
    db.pragma_update(None, "wal_autocheckpoint", LOG_PAGES).map_err(state_error(path))?;
    Ok(db)
}

/// Creates the file with mode [`FILE_MODE`], or restricts an existing one without opening it:
/// closing it would drop the locks of any SQLite connection of this process to it.
fn private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path) {
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if meta.permissions().mode() & 0o777 & !FILE_MODE != 0 {
        tracing::warn!("{} was open to other users and is closed to them now", path.display());
        fs::set_permissions(path, Permissions::from_mode(FILE_MODE))?;
    }
    Ok(())
}
