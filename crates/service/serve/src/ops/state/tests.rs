use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use tacit_client::wire::InputId;

const ALICE: ClientId = ClientId([1; 32]);
const LIMITS: Retention = Retention { days: 90, bytes: 64 << 20 };

fn learned_row(device: &str, phase: &'static str, threads: u32, seconds: f64) -> Row {
    Row::Learned(Learned { plan: [7; 32], device: device.into(), phase, threads, seconds, memory: 4096 })
}

fn ended_row(outcome: &'static str) -> Row {
    let is_done = outcome == "done";
    Row::Ended(EndedPhase {
        job: 1,
        client: ALICE,
        client_name: if is_done { "alice, ward 3" } else { "" }.into(),
        input: is_done.then_some(InputId(0xab)),
        labels: PhaseLabels { phase: "online", model: "m".into(), backend: "toy".into() },
        outcome,
        fault: (outcome == "failed").then_some("a wrong word"),
        lasted: Duration::from_millis(750),
        ran: is_done.then_some((Duration::from_millis(250), 1)),
        traffic: is_done.then_some([10, 20]),
        memory: None,
    })
}

fn charge(day: i64, per_day: u32) -> QuotaCharge {
    QuotaCharge { client: ALICE, model: "m".into(), day, inputs: 1, per_day }
}

fn count(dir: &Path, sql: &str) -> i64 {
    Connection::open(dir.join(FILE_NAME)).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn kept_rows_are_read_after_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = State::open(dir.path(), LIMITS).unwrap();
    assert!(state.learned.get([7; 32], "lan", "online", 1).is_none());
    for row in [
        learned_row("lan", "online", 1, 1.0),
        learned_row("lan", "online", 1, 2.0),
        learned_row("lan", "offline", 4, 3.0),
        learned_row(POOL, DEALING, 2, 4.0),
        ended_row("done"),
        ended_row("failed"),
    ] {
        state.keeper.keep(row);
    }
    state.keeper.close();
    state.keeper.keep(ended_row("done"));
    let reopened = State::open(dir.path(), LIMITS).unwrap();
    for (device, phase, threads, expected) in [
        ("lan", "online", 1, Some((1, 2.0))),
        // Of other threads, if there is nothing better.
        ("lan", "offline", 1, Some((4, 3.0))),
        (POOL, DEALING, 2, Some((2, 4.0))),
        (POOL, "offline", 2, None),
        ("slow", "online", 1, None),
    ] {
        let found = reopened.learned.get([7; 32], device, phase, threads).map(|l| (l.threads, l.seconds));
        assert_eq!(found, expected, "{device}, {phase}, {threads} threads");
    }
    assert!(reopened.learned.get([8; 32], "lan", "online", 1).is_none());
    for (condition, rows) in [
        ("TRUE", 2),
        ("run_s = 0.25 AND sent = 10 AND received = 20", 1),
        ("run_s IS NULL AND sent IS NULL", 1),
        ("name = 'alice, ward 3' AND outcome = 'done'", 1),
        ("name IS NULL", 1),
    ] {
        assert_eq!(count(dir.path(), &format!("SELECT count(*) FROM audit WHERE {condition}")), rows, "{condition}");
    }
}

#[test]
fn charges_count_up_to_the_limit_and_for_the_latest_day() {
    let dir = tempfile::tempdir().unwrap();
    let (today, state) = (day_of(unix_now()), State::open(dir.path(), LIMITS).unwrap());
    let usage = state.usage.unwrap();
    for _ in 0..2 {
        usage.charge(&charge(today + 3, 2)).unwrap();
    }
    let error = usage.charge(&charge(today + 3, 2)).unwrap_err();
    assert!(matches!(&error, ServeError::OverLimit { reason, .. } if reason.contains("quota of 2")), "{error}");
    usage.charge(&charge(today, 2)).unwrap();
    let mut reopened = State::open(dir.path(), LIMITS).unwrap().quotas;
    assert!(reopened.take(unix_now(), ALICE, "m", 1, 2).is_err(), "the clock was three days ahead once");
    assert_eq!(reopened.take(unix_now(), ALICE, "m", 1, 3).unwrap().day, today + 3);
}

#[test]
fn old_rows_are_deleted_and_the_latest_day_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = State::open(dir.path(), LIMITS).unwrap();
    state.keeper.keep(ended_row("done"));
    state.keeper.close();
    let (now, today) = (unix_now(), day_of(unix_now()));
    let db = Connection::open(dir.path().join(FILE_NAME)).unwrap();
    let old = now - 92 * 24 * 3600;
    db.execute(
        "INSERT INTO audit SELECT NULL, ?, client, model, backend, phase, outcome, 0, 0, 0, 0, NULL, NULL, NULL FROM audit",
        [old],
    )
    .unwrap();
    for day in [today - 200, today - 100] {
        state.usage.as_ref().unwrap().charge(&charge(day, 9)).unwrap();
    }
    State::open(dir.path(), LIMITS).unwrap().keeper.close();
    assert_eq!(count(dir.path(), "SELECT count(*) FROM audit"), 1);
    assert_eq!(count(dir.path(), "SELECT max(day) - min(day) FROM usage"), 0);
    assert_eq!(count(dir.path(), "SELECT max(day) FROM usage"), today - 100);
}

#[test]
fn migrates_file_of_first_version() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = State::open(dir.path(), LIMITS).unwrap().keeper;
    first.keep(learned_row("lan", "online", 1, 1.0));
    first.close();
    let db = Connection::open(dir.path().join(FILE_NAME)).unwrap();
    db.execute_batch(
        "ALTER TABLE audit DROP COLUMN fault; DROP INDEX audit_by_input; ALTER TABLE audit DROP COLUMN input;
         ALTER TABLE audit DROP COLUMN name;
         PRAGMA user_version = 1",
    )
    .unwrap();
    drop(db);
    let mut state = State::open(dir.path(), LIMITS).unwrap();
    assert_eq!(state.learned.get([7; 32], "lan", "online", 1).map(|l| l.seconds), Some(1.0));
    state.keeper.keep(ended_row("done"));
    state.keeper.close();
    assert_eq!(count(dir.path(), "SELECT count(*) FROM audit WHERE input = '00000000000000ab'"), 1);
}

#[test]
fn file_is_private_and_files_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    drop(State::open(dir.path(), LIMITS).unwrap());
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(State::open(dir.path(), LIMITS).unwrap());
    assert_eq!(mode(), 0o600);
    let error = || State::open(dir.path(), LIMITS).err().unwrap().to_string();
    let db = Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    assert!(error().contains("version 99"), "{}", error());
    db.pragma_update(None, "application_id", 5).unwrap();
    assert!(error().contains("another program"), "{}", error());
    drop(db);
    fs::rename(&path, dir.path().join("moved")).unwrap();
    symlink(dir.path().join("moved"), &path).unwrap();
    assert!(error().contains("no regular file"), "{}", error());
}

#[test]
fn keep_counts_rows_beyond_the_queue_without_waiting() {
    let (rows, _queue) = sync_channel(1);
    let (_end, ended) = sync_channel(0);
    let lost = Arc::new(AtomicU64::new(0));
    let keeper = Keeper(Some(Writing { rows, lost: Arc::clone(&lost), ended }));
    for _ in 0..5 {
        keeper.keep(ended_row("refused"));
    }
    assert_eq!(lost.load(Ordering::Relaxed), 4);
}

#[test]
fn unwritable_audit_loses_rows_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = State::open(dir.path(), LIMITS).unwrap();
    Connection::open(dir.path().join(FILE_NAME)).unwrap().execute_batch("DROP TABLE audit").unwrap();
    state.keeper.keep(ended_row("done"));
    state.keeper.keep(learned_row("lan", "online", 1, 1.0));
    state.keeper.close();
    assert!(state.usage.unwrap().charge(&charge(1, 1)).is_ok());
}

#[test]
fn full_file_loses_its_oldest_rows() {
    let dir = tempfile::tempdir().unwrap();
    let small = Retention { bytes: 1 << 20, ..LIMITS };
    let mut state = State::open(dir.path(), small).unwrap();
    state.usage.as_ref().unwrap().charge(&charge(day_of(unix_now()), 9)).unwrap();
    state.keeper.keep(learned_row("lan", "online", 1, 1.0));
    let pages =
        || count(dir.path(), "SELECT page_count - freelist_count FROM pragma_page_count(), pragma_freelist_count()");
    let rows = || count(dir.path(), "SELECT count(*) FROM audit");
    for round in 0..40 {
        // Fewer rows than the queue has room for.
        for _ in 0..MAX_QUEUED_ROWS / 4 {
            state.keeper.keep(ended_row("done"));
        }
        state.keeper.close();
        assert!(pages() * 4096 <= (1 << 20) + (512 << 10), "{} pages after {round} rounds", pages());
        state = State::open(dir.path(), small).unwrap();
    }
    let last = count(dir.path(), "SELECT max(seq) FROM audit");
    assert_eq!(last, 40 * MAX_QUEUED_ROWS as i64 / 4);
    assert!((1000..last / 2).contains(&rows()), "{} rows", rows());
    assert_eq!(count(dir.path(), "SELECT max(seq) - min(seq) + 1 FROM audit"), rows());
    let size = std::fs::metadata(dir.path().join(FILE_NAME)).unwrap().len();
    assert!(size <= 2 << 20, "{size} bytes on the disk");
    assert!(state.learned.get([7; 32], "lan", "online", 1).is_some());
    assert_eq!(count(dir.path(), "SELECT sum(answers) FROM usage"), 1);
}
