//! Numbers of materials, on disk: none is given out twice, whatever happens to the process.
use crate::ServeError;
use rusqlite::{Connection, params};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Numbers that are set aside at a time: a crash loses as many.
const AHEAD: u64 = 4096;

/// The file.
pub(crate) struct Numbers {
    ledger: Mutex<(Connection, u64)>,
}

impl Numbers {
    /// Opens or makes the file; gives the first number that was never set aside.
    pub(crate) fn open(path: &Path) -> Result<(Self, u64), ServeError> {
        let failed = |e: rusqlite::Error| ServeError::State { path: path.to_owned(), what: e.to_string() };
        let db = Connection::open(path).map_err(failed)?;
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA locking_mode = EXCLUSIVE;
             CREATE TABLE IF NOT EXISTS numbers (one INTEGER PRIMARY KEY CHECK (one = 1), next INTEGER NOT NULL);
             INSERT OR IGNORE INTO numbers VALUES (1, 1);",
        )
        .map_err(failed)?;
        let first: i64 = db.query_row("SELECT next FROM numbers", [], |row| row.get(0)).map_err(failed)?;
        let first = first.cast_unsigned();
        Ok((Self { ledger: Mutex::new((db, first)) }, first))
    }

    /// Makes sure that the numbers below `next + 1` are never given out again.
    pub(crate) fn cover(&self, next: u64) -> Result<(), rusqlite::Error> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let (db, covered) = &mut *ledger;
        if next >= *covered {
            let until = next + AHEAD;
            db.execute("UPDATE numbers SET next = ?1", params![until.cast_signed()])?;
            *covered = until;
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
        let mut given = 0;
        for _ in 0..3 {
            let (numbers, first) = Numbers::open(&path).unwrap();
            assert!(first > given, "{first} after {given}");
            for number in [first, first + 1, first + AHEAD, first + 2 * AHEAD] {
                numbers.cover(number).unwrap();
                given = number;
            }
        }
        // One dealer at a time.
        let (_numbers, _) = Numbers::open(&path).unwrap();
        assert!(Numbers::open(&path).is_err());
    }
}
