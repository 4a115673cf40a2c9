//! Answers of the latest day by client, in SQLite: a front that is started anew gives nobody a new quota.
//!
//! A row is written when a node has told of more answers, before the node is granted its lease. It outlives
//! the front's process; of a loss of power the last moments may be missing.
use crate::ServeError;
use crate::state::schema::{Kind, Sync, connect, failed, prepare};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tacit_ids::ClientId;

/// Its name in its folder.
const NAME: &str = "front.sqlite";
/// The header says "tacf".
const FRONT: Kind = Kind {
    application: 0x7461_6366,
    migrations: &["
    CREATE TABLE answers (
        client BLOB PRIMARY KEY CHECK (length(client) = 32),
        day INTEGER NOT NULL,                            -- UTC, days since 1970
        answers INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
"],
};

/// What was kept of a day.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) day: i64,
    pub(super) used: BTreeMap<ClientId, u64>,
}

/// The open file.
pub(super) struct Counts {
    path: PathBuf,
    db: Connection,
}

impl Counts {
    /// Opens the file of a folder, or makes both; what it has of the latest day.
    pub(super) fn open(dir: &Path) -> Result<(Self, Kept), ServeError> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))?;
        let path = dir.join(NAME);
        prepare(&path, &FRONT)?;
        let db = connect(&path, Sync::Later)?;
        let kept = read(&db).map_err(failed(&path))?;
        Ok((Self { path, db }, kept))
    }

    /// Writes how many answers clients have had of a day. Those of earlier days go.
    pub(super) fn keep(&mut self, day: i64, counts: &[(ClientId, u64)]) -> Result<(), ServeError> {
        let write = |db: &mut Connection| {
            let tx = db.transaction()?;
            for (client, answers) in counts {
                let answers = i64::try_from(*answers).unwrap_or(i64::MAX);
                tx.prepare_cached("REPLACE INTO answers (client, day, answers) VALUES (?, ?, ?)")?
                    .execute(params![client.0, day, answers])?;
            }
            tx.prepare_cached("DELETE FROM answers WHERE day < ?")?.execute([day])?;
            tx.commit()
        };
        write(&mut self.db).map_err(failed(&self.path))
    }
}

fn read(db: &Connection) -> rusqlite::Result<Kept> {
    let latest: Option<i64> = db.query_row("SELECT max(day) FROM answers", [], |row| row.get(0))?;
    let Some(day) = latest else { return Ok(Kept::default()) };
    let mut select = db.prepare("SELECT client, answers FROM answers WHERE day = ?")?;
    let row = |row: &rusqlite::Row<'_>| {
        let answers: i64 = row.get("answers")?;
        Ok((ClientId(row.get("client")?), u64::try_from(answers).unwrap_or(0)))
    };
    let used = select.query_map([day], row)?.collect::<rusqlite::Result<_>>()?;
    Ok(Kept { day, used })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const ALICE: ClientId = ClientId([1; 32]);
    const BOB: ClientId = ClientId([2; 32]);

    #[test]
    fn the_latest_day_is_kept_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let (mut counts, kept) = Counts::open(&folder).unwrap();
        assert_eq!((kept.day, kept.used.len()), (0, 0));
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        counts.keep(7, &[(ALICE, 3), (BOB, 1)]).unwrap();
        counts.keep(7, &[(ALICE, 5)]).unwrap();
        drop(counts);
        let (mut counts, kept) = Counts::open(&folder).unwrap();
        assert_eq!((kept.day, kept.used), (7, BTreeMap::from([(ALICE, 5), (BOB, 1)])));
        counts.keep(8, &[(BOB, 2)]).unwrap();
        drop(counts);
        let (_, kept) = Counts::open(&folder).unwrap();
        assert_eq!((kept.day, kept.used), (8, BTreeMap::from([(BOB, 2)])));
    }

    #[test]
    fn a_file_of_another_program_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), "taxes").unwrap();
        assert!(Counts::open(dir.path()).is_err());
        assert_eq!(std::fs::read(dir.path().join(NAME)).unwrap(), b"taxes");
    }
}
