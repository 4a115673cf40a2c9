//! Answers of the latest day by client, in SQLite, so that a restarted front resets no quota.
//!
//! A row is written when a node reports more answers, before the front grants the node its lease.
//! It survives the end of the process; a loss of power may lose the latest rows.
use crate::ServeError;
use crate::jobs::quota::{DAY_S, MAX_AHEAD, day_of, unix_now};
use crate::ops::state::schema::{Durability, Kind, connect, prepare, state_error};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tacit_ids::ClientId;
use tacit_store::clock::MAX_CLOCK_JUMP;
use tacit_store::managed::is_database;
use tacit_store::{FolderKind, ManagedFolder, StoreError};

const FILE_NAME: &str = "front.sqlite";
/// The header says "tacf".
const FRONT: Kind = Kind {
    application: 0x7461_6366,
    migrations: &[
        "
    CREATE TABLE answers (
        client BLOB PRIMARY KEY CHECK (length(client) = 32),
        day INTEGER NOT NULL,                            -- UTC, days since 1970
        answers INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
",
        "
    -- When a front last ran, in seconds since 1970.
    CREATE TABLE clock (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        seen INTEGER NOT NULL
    ) STRICT;
",
    ],
};
const FOLDER: FolderKind = FolderKind::private("front", "answers of the day");
/// Seconds between two notes of the clock.
const CLOCK_INTERVAL_S: u64 = 3600;

#[derive(Default)]
pub(super) struct StoredCounts {
    pub(super) day: i64,
    pub(super) used: BTreeMap<ClientId, u64>,
}

pub(super) struct Counts {
    path: PathBuf,
    db: Connection,
    /// The clock at its last note; `None` before the first.
    noted: Option<i64>,
}

impl Counts {
    /// Opens the file of a folder, or creates both; also returns the counts of the latest day.
    /// `accept_clock` accepts a clock far from when a front last ran there.
    ///
    /// # Errors
    /// The folder holds files that no front made; [`StoreError::ClockJump`] and
    /// [`StoreError::Clock`], with nothing counted.
    pub(super) fn open(dir: &Path, accept_clock: bool) -> Result<(Self, StoredCounts), ServeError> {
        tacit_store::clock::now()?;
        let folder = ManagedFolder::open_or_mark(dir, FOLDER, is_ours)?;
        Self::open_at(folder.path(), unix_now(), accept_clock)
    }

    /// As [`open`](Self::open), in a front's folder with the clock at `now`.
    fn open_at(dir: &Path, now: i64, accept_clock: bool) -> Result<(Self, StoredCounts), ServeError> {
        let path = dir.join(FILE_NAME);
        prepare(&path, &FRONT)?;
        let db = connect(&path, Durability::Eventual)?;
        if let Some(last_run) = last_run(&db).map_err(state_error(&path))?
            && now.abs_diff(last_run) > MAX_CLOCK_JUMP.as_secs()
            && !accept_clock
        {
            let days = now.abs_diff(last_run) / DAY_S.unsigned_abs();
            let way = if now > last_run { "after" } else { "before" };
            return Err(StoreError::ClockJump { folder: dir.to_owned(), days, way }.into());
        }
        let stored = read_latest(&db, day_of(now)).map_err(state_error(&path))?;
        let mut opened = Self { path, db, noted: None };
        if let Err(e) = opened.note_clock(now) {
            // A front starts even if the disk is full.
            tracing::error!("a jump of the clock would not show at the next start: {e}");
        }
        Ok((opened, stored))
    }

    pub(super) fn note_clock(&mut self, now: i64) -> Result<(), ServeError> {
        if self.noted.is_some_and(|noted| noted.abs_diff(now) < CLOCK_INTERVAL_S) {
            return Ok(());
        }
        let result = self.db.execute("REPLACE INTO clock (one, seen) VALUES (1, ?)", [now]);
        result.map_err(state_error(&self.path))?;
        self.noted = Some(now);
        Ok(())
    }

    /// Writes the answers of a day and deletes those of earlier days, in one transaction.
    pub(super) fn keep(&mut self, day: i64, counts: &[(ClientId, u64)]) -> Result<(), ServeError> {
        write_counts(&mut self.db, day, counts).map_err(state_error(&self.path))
    }
}

fn write_counts(db: &mut Connection, day: i64, counts: &[(ClientId, u64)]) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    for (client, answers) in counts {
        let answers = i64::try_from(*answers).unwrap_or(i64::MAX);
        tx.execute("REPLACE INTO answers (client, day, answers) VALUES (?, ?, ?)", params![client.0, day, answers])?;
    }
    tx.execute("DELETE FROM answers WHERE day < ?", [day])?;
    tx.commit()
}

/// Whether a front of version 0.1, which marked no folders, made this file.
fn is_ours(path: &Path) -> bool {
    let beside = ["-wal", "-shm"].map(|ending| format!("{FILE_NAME}{ending}"));
    match path.file_name().and_then(|name| name.to_str()) {
        Some(FILE_NAME) => is_database(path, FRONT.application),
        Some(name) => beside.iter().any(|beside| beside == name),
        None => false,
    }
}

/// When a front last ran here: the noted clock, or else the last counted day.
fn last_run(db: &Connection) -> rusqlite::Result<Option<i64>> {
    let noted: Option<i64> = db.query_row("SELECT max(seen) FROM clock", [], |row| row.get(0))?;
    let counted: Option<i64> = db.query_row("SELECT max(day) FROM answers", [], |row| row.get(0))?;
    Ok(noted.or_else(|| counted.map(|day| day.saturating_mul(DAY_S))))
}

/// Reads the counts of the latest day that is at most [`MAX_AHEAD`] after today.
fn read_latest(db: &Connection, today: i64) -> rusqlite::Result<StoredCounts> {
    let believed = today + MAX_AHEAD;
    let latest: Option<i64> =
        db.query_row("SELECT max(day) FROM answers WHERE day <= ?", [believed], |row| row.get(0))?;
    let Some(day) = latest else { return Ok(StoredCounts::default()) };
    let mut select = db.prepare("SELECT client, answers FROM answers WHERE day = ?")?;
    let used = select.query_map([day], |row| {
        let answers: i64 = row.get("answers")?;
        Ok((ClientId(row.get("client")?), u64::try_from(answers).unwrap_or(0)))
    })?;
    let used = used.collect::<rusqlite::Result<_>>()?;
    Ok(StoredCounts { day, used })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const ALICE: ClientId = ClientId([1; 32]);
    const BOB: ClientId = ClientId([2; 32]);

    #[test]
    fn latest_day_survives_restart() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let (mut counts, stored) = Counts::open(&folder, false).unwrap();
        let today = day_of(unix_now());
        assert_eq!((stored.day, stored.used.len()), (0, 0));
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        counts.keep(today, &[(ALICE, 3), (BOB, 1)]).unwrap();
        counts.keep(today, &[(ALICE, 5)]).unwrap();
        drop(counts);
        let (mut counts, stored) = Counts::open(&folder, false).unwrap();
        assert_eq!((stored.day, stored.used), (today, BTreeMap::from([(ALICE, 5), (BOB, 1)])));
        counts.keep(today + 1, &[(BOB, 2)]).unwrap();
        drop(counts);
        let (_, stored) = Counts::open(&folder, false).unwrap();
        assert_eq!((stored.day, stored.used), (today + 1, BTreeMap::from([(BOB, 2)])));
    }

    #[test]
    fn names_clock_jump_and_keeps_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (noon, week) = (20_000 * DAY_S + DAY_S / 2, 7 * DAY_S);
        let open = |now: i64, accept: bool| Counts::open_at(dir.path(), now, accept);
        let (mut counts, _) = open(noon, false).unwrap();
        counts.keep(day_of(noon), &[(ALICE, 3)]).unwrap();
        drop(counts);
        for (now, expected) in [(noon + 400 * DAY_S, "400 days after"), (noon - 31 * DAY_S, "31 days before")] {
            let error = open(now, false).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("--accept-clock"), "{error}");
        }
        let (mut counts, stored) = open(noon + week, false).unwrap();
        assert_eq!((stored.day, stored.used), (day_of(noon), BTreeMap::from([(ALICE, 3)])));
        // More than a week without an answer is no jump at the next start.
        counts.note_clock(noon + 2 * week).unwrap();
        drop(counts);
        open(noon + 3 * week, false).unwrap();
        // A day in the far future, from a wrong clock, uses up no quota.
        let (mut counts, _) = open(noon + 400 * DAY_S, true).unwrap();
        counts.keep(day_of(noon) + 400, &[(ALICE, 9)]).unwrap();
        drop(counts);
        let (_, stored) = open(noon + 3 * week, true).unwrap();
        assert_eq!((stored.day, stored.used.len()), (0, 0));
    }

    #[test]
    fn leaves_folders_of_others_untouched() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [(FILE_NAME, "taxes"), ("taxes.ods", "taxes")] {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(name), text).unwrap();
            let error = Counts::open(&folder, false).err().unwrap().to_string();
            assert!(error.contains(name), "{error}");
            assert_eq!(std::fs::read(folder.join(name)).unwrap(), text.as_bytes());
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        }
        // A folder as version 0.1 left it.
        let folder = dir.path().join("earlier");
        std::fs::create_dir(&folder).unwrap();
        prepare(&folder.join(FILE_NAME), &FRONT).unwrap();
        Counts::open(&folder, false).unwrap();
        assert!(folder.join(tacit_store::managed::MARK).exists());
    }
}
