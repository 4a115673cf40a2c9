//! A dealer's file of facts that must survive: the numbers of materials, so that none is used
//! twice, and which weights each random matrix hides. It holds no material.
use crate::ServeError;
use crate::ops::state::schema::state_error;
use rusqlite::{Connection, params};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tacit_backends::dealer::Hidden;

/// Numbers reserved at a time: a crash loses up to as many.
const RESERVED_AHEAD: u64 = 4096;

/// Takes over random matrices from the table `hidden` of earlier versions, which noted no server:
/// the server is set to zeros.
const TAKE_OVER_SQL: &str = "BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS hidden (mask BLOB PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID;
    INSERT OR IGNORE INTO masks SELECT mask, digest, zeroblob(32) FROM hidden;
    DROP TABLE hidden;
    COMMIT;";

/// Application id in the file's header: "tacn".
const APPLICATION: i32 = 0x7461_636e;

/// Whether a database is empty or a dealer's. Earlier versions set no application id.
fn is_ours(db: &Connection) -> rusqlite::Result<bool> {
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    Ok(application == APPLICATION || (application == 0 && (tables(db, "%")? == 0 || tables(db, "numbers")? == 1)))
}

fn tables(db: &Connection, name: &str) -> rusqlite::Result<i64> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name LIKE ?";
    db.query_row(sql, [name], |row| row.get(0))
}

pub(crate) struct Numbers {
    ledger: Mutex<(Connection, u64)>,
}

impl Numbers {
    /// Opens or creates the file. Also returns the first number that was never reserved.
    pub(crate) fn open(path: &Path) -> Result<(Self, u64), ServeError> {
        let db = Connection::open(path).map_err(state_error(path))?;
        if !is_ours(&db).map_err(state_error(path))? {
            let what = "this is a database of another program: nothing in it was touched; name another file".into();
            return Err(ServeError::State { path: path.to_owned(), what });
        }
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA locking_mode = EXCLUSIVE;
             CREATE TABLE IF NOT EXISTS numbers (one INTEGER PRIMARY KEY CHECK (one = 1), next INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS masks
                 (mask BLOB PRIMARY KEY, digest BLOB NOT NULL, server BLOB NOT NULL) WITHOUT ROWID;
             INSERT OR IGNORE INTO numbers VALUES (1, 1);",
        )
        .map_err(state_error(path))?;
        db.pragma_update(None, "application_id", APPLICATION).map_err(state_error(path))?;
        db.execute_batch(TAKE_OVER_SQL).map_err(state_error(path))?;
        let first: i64 = db.query_row("SELECT next FROM numbers", [], |row| row.get(0)).map_err(state_error(path))?;
        let first = first.cast_unsigned();
        Ok((Self { ledger: Mutex::new((db, first)) }, first))
    }

    fn lock(&self) -> MutexGuard<'_, (Connection, u64)> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hidden(&self) -> Result<Vec<Hidden>, rusqlite::Error> {
        let ledger = self.lock();
        let mut rows = ledger.0.prepare("SELECT mask, digest, server FROM masks")?;
        let rows =
            rows.query_map([], |row| Ok(Hidden { mask: row.get(0)?, digest: row.get(1)?, server: row.get(2)? }))?;
        rows.collect()
    }

    pub(crate) fn hide(&self, hidden: &[Hidden]) -> Result<(), rusqlite::Error> {
        let mut ledger = self.lock();
        let transaction = ledger.0.transaction()?;
        for Hidden { mask, digest, server } in hidden {
            transaction.execute("INSERT OR IGNORE INTO masks VALUES (?1, ?2, ?3)", params![mask, digest, server])?;
        }
        transaction.commit()
    }

    /// Reserves the numbers up to `next` durably, so that no later run uses them.
    pub(crate) fn cover(&self, next: u64) -> Result<(), rusqlite::Error> {
        let mut ledger = self.lock();
        let (db, covered) = &mut *ledger;
        if next >= *covered {
            let reserved = next + RESERVED_AHEAD;
            db.execute("UPDATE numbers SET next = ?1", params![reserved.cast_signed()])?;
            *covered = reserved;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_never_repeat() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dealer.sqlite");
        let mut last = 0;
        for _ in 0..3 {
            let (numbers, first) = Numbers::open(&path).unwrap();
            assert!(first > last, "{first} after {last}");
            for number in [first, first + 1, first + RESERVED_AHEAD, first + 2 * RESERVED_AHEAD] {
                numbers.cover(number).unwrap();
                last = number;
            }
        }
        // Only one dealer at a time may open the file.
        let (numbers, _) = Numbers::open(&path).unwrap();
        let hidden = [1, 3].map(|k| Hidden { mask: [k; 32], digest: [k + 1; 32], server: [9; 32] });
        numbers.hide(&hidden).unwrap();
        assert!(Numbers::open(&path).is_err());
        drop(numbers);
        assert_eq!(Numbers::open(&path).unwrap().0.hidden().unwrap(), hidden);
    }

    #[test]
    fn leaves_database_of_another_program_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("places.sqlite");
        let foreign = Connection::open(&path).unwrap();
        foreign.execute_batch("CREATE TABLE places (url TEXT); INSERT INTO places VALUES ('here');").unwrap();
        drop(foreign);
        let content = std::fs::read(&path).unwrap();
        let error = Numbers::open(&path).err().unwrap().to_string();
        assert!(error.contains("another program"), "{error}");
        assert!(std::fs::read(&path).unwrap() == content);
    }

    #[test]
    fn takes_over_masks_of_earlier_version() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dealer.sqlite");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(
            "CREATE TABLE numbers (one INTEGER PRIMARY KEY CHECK (one = 1), next INTEGER NOT NULL);
             CREATE TABLE hidden (mask BLOB PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID;
             INSERT INTO numbers VALUES (1, 77);",
        )
        .unwrap();
        for k in [1u8, 2] {
            old.execute("INSERT INTO hidden VALUES (?1, ?2)", params![[k; 32], [k + 1; 32]]).unwrap();
        }
        drop(old);
        let noted = [1, 2].map(|k| Hidden { mask: [k; 32], digest: [k + 1; 32], server: [0; 32] });
        for _ in 0..2 {
            let (numbers, first) = Numbers::open(&path).unwrap();
            assert_eq!((first, numbers.hidden().unwrap()), (77, noted.to_vec()));
        }
    }
}
