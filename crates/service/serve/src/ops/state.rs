//! State that outlives a run of the server, in SQLite beside the ledger: learned durations of
//! phases, ended phases with their outcomes, and clients' answers per day. It never holds inputs or
//! results.
//!
//! One thread writes rows from a bounded queue, so that no job waits for the disk. Rows that find
//! the queue full are counted and logged as lost. Quota charges are written directly by the job:
//! they are on disk before the answer begins.
pub(crate) mod schema;

use crate::ServeError;
use crate::jobs::quota::{Clock, MAX_AHEAD, QuotaCharge, Quotas, day_of, unix_now};
use crate::ops::ended::EndedPhase;
use crate::ops::metrics::PhaseLabels;
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, Transaction, named_params, params};
use schema::{Durability, FILE_NAME, SERVER, connect, prepare, state_error};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tacit_ids::ClientId;

/// Most rows that wait to be written.
const MAX_QUEUED_ROWS: usize = 4096;
const ROWS_PER_TRANSACTION: usize = 256;
/// Most rows of the table `profile` that a start reads; pruning deletes older ones.
const MAX_PROFILE_ROWS: u32 = 10_000;
/// Name of the dealing phase of pools, in the records and in the table `profile`.
pub(crate) const DEALING: &str = "dealing";
/// The class of devices of a pool.
pub(crate) const POOL: &str = "pool";
/// Least time between two log messages about lost rows.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long a server that stops waits for the last rows.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a phase takes on `threads` threads, and how much memory it needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Learned {
    pub(crate) plan: [u8; 32],
    pub(crate) device: String,
    pub(crate) phase: &'static str,
    pub(crate) threads: u32,
    pub(crate) seconds: f64,
    pub(crate) memory: u64,
}

pub(crate) enum Row {
    Learned(Learned),
    Ended(EndedPhase),
}

/// Takes rows without blocking. Without a file, rows are dropped.
#[derive(Default)]
pub(crate) struct Keeper(Option<Writing>);

struct Writing {
    rows: SyncSender<Row>,
    lost: Arc<AtomicU64>,
    /// Disconnects when the thread ends.
    ended: Receiver<()>,
}

impl Keeper {
    pub(crate) fn keep(&self, row: Row) {
        if let Some(writing) = &self.0
            && writing.rows.try_send(row).is_err()
        {
            writing.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all rows are written, for at most `CLOSE_TIMEOUT`.
    pub(crate) fn close(&mut self) {
        if let Some(Writing { rows, ended, .. }) = self.0.take() {
            drop(rows);
            // The thread sends nothing: this returns when it ends or time is up.
            let _ = ended.recv_timeout(CLOSE_TIMEOUT);
        }
    }
}

/// Answers that count against quotas, on disk.
pub(crate) struct Usage {
    path: PathBuf,
    db: Mutex<Connection>,
}

impl Usage {
    /// Writes a charge durably, before this returns, or fails with [`ServeError::OverLimit`] if the
    /// quota is used up.
    pub(crate) fn charge(&self, charge: &QuotaCharge) -> Result<(), ServeError> {
        // A statement that panics has changed nothing, so a poisoned lock is usable.
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let sql = "INSERT INTO usage (day, client, model, answers) SELECT :day, :client, :model, :inputs WHERE :inputs <= :most
             ON CONFLICT DO UPDATE SET answers = answers + :inputs WHERE answers + :inputs <= :most";
        let named = named_params! {
            ":day": charge.day, ":client": charge.client.0, ":model": charge.model, ":inputs": charge.inputs, ":most": charge.per_day
        };
        match db.prepare(sql).and_then(|mut sql| sql.execute(named)).map_err(state_error(&self.path))? {
            0 => {
                let sql = "SELECT answers FROM usage WHERE day = ? AND client = ? AND model = ?";
                let key = params![charge.day, charge.client.0, charge.model];
                let used: Option<u32> =
                    db.query_row(sql, key, |row| row.get(0)).optional().map_err(state_error(&self.path))?;
                let remaining = charge.per_day.saturating_sub(used.unwrap_or(0));
                Err(charge.used_up_error(unix_now(), remaining))
            }
            _ => Ok(()),
        }
    }
}

/// Durations that earlier runs have learned, by plan and class of devices.
#[derive(Default)]
pub(crate) struct LearnedDurations(HashMap<([u8; 32], String), Vec<Learned>>);

impl LearnedDurations {
    pub(crate) fn add(&mut self, row: Learned) {
        self.0.entry((row.plan, row.device.clone())).or_default().push(row);
    }

    /// Returns what is known of a phase with this number of threads, or else what was learned last.
    pub(crate) fn get(&self, plan: [u8; 32], device: &str, phase: &str, threads: u32) -> Option<&Learned> {
        let mut rows = self.0.get(&(plan, device.to_owned()))?.iter().filter(|row| row.phase == phase);
        let first = rows.next()?;
        Some(if first.threads == threads { first } else { rows.find(|row| row.threads == threads).unwrap_or(first) })
    }
}

/// How many ended phases the file keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    pub(crate) days: u32,
    /// Bytes of the file; if it is larger, the oldest ended phases are deleted.
    pub(crate) bytes: u64,
}

pub(crate) struct State {
    pub(crate) keeper: Keeper,
    pub(crate) usage: Option<Usage>,
    pub(crate) learned: LearnedDurations,
    pub(crate) quotas: Quotas,
}

impl State {
    pub(crate) fn nowhere() -> Self {
        let quotas = Quotas::new(day_of(unix_now()), HashMap::new());
        Self { keeper: Keeper::default(), usage: None, learned: LearnedDurations::default(), quotas }
    }

    /// Opens the state file in a folder that only this user can access, or creates it.
    pub(crate) fn open(dir: &Path, retention: Retention) -> Result<Self, ServeError> {
        let path = dir.join(FILE_NAME);
        prepare(&path, &SERVER)?;
        let (rows, usage) = (connect(&path, Durability::Eventual)?, connect(&path, Durability::OnCommit)?);
        let (learned, quotas) = read_state(&usage).map_err(state_error(&path))?;
        let keeper = start_writer(rows, &path, retention)?;
        Ok(Self { keeper, usage: Some(Usage { path, db: Mutex::new(usage) }), learned, quotas })
    }
}

fn read_state(db: &Connection) -> rusqlite::Result<(LearnedDurations, Quotas)> {
    let mut durations = LearnedDurations::default();
    let sql = "SELECT plan, device, phase, threads, seconds, memory FROM profile ORDER BY updated DESC LIMIT ?";
    for row in db.prepare(sql)?.query_map([MAX_PROFILE_ROWS], read_profile_row)? {
        durations.add(row?);
    }
    // The latest day counts, whatever the clock shows now. Days that only a wrong clock can have
    // written do not.
    let (today, believed) = (day_of(unix_now()), day_of(unix_now()) + MAX_AHEAD);
    let latest: Option<i64> =
        db.query_row("SELECT max(day) FROM usage WHERE day <= ?", [believed], |row| row.get(0))?;
    let day = today.max(latest.unwrap_or(i64::MIN));
    let mut select =
        db.prepare("SELECT client, model, min(answers, 4294967295) AS answers FROM usage WHERE day = ?")?;
    let used =
        select.query_map([day], |row| Ok(((ClientId(row.get("client")?), row.get("model")?), row.get("answers")?)))?;
    let used = used.collect::<rusqlite::Result<_>>()?;
    Ok((durations, Quotas::new(day, used)))
}

fn read_profile_row(row: &SqlRow<'_>) -> rusqlite::Result<Learned> {
    let phase = match row.get::<_, String>("phase")?.as_str() {
        "online" => "online",
        DEALING => DEALING,
        _ => "offline",
    };
    let memory = row.get::<_, i64>("memory")?;
    Ok(Learned {
        plan: row.get("plan")?,
        device: row.get("device")?,
        phase,
        threads: row.get("threads")?,
        seconds: row.get("seconds")?,
        memory: u64::try_from(memory).unwrap_or(0),
    })
}

/// The latest day of usage stays, so that setting the clock back resets no quota.
fn prune(tx: &Transaction<'_>, today: i64, days: u32) -> rusqlite::Result<()> {
    let first = today.saturating_sub(i64::from(days));
    tx.execute("DELETE FROM audit WHERE at < ?", [first.saturating_mul(24 * 3600)])?;
    tx.execute("DELETE FROM usage WHERE day < :first AND day < (SELECT max(day) FROM usage)", [first])?;
    // A start reads no more than this.
    tx.execute(
        "DELETE FROM profile WHERE updated < (SELECT updated FROM profile ORDER BY updated DESC LIMIT 1 OFFSET ?)",
        [MAX_PROFILE_ROWS],
    )?;
    Ok(())
}

fn used_bytes(db: &Connection) -> rusqlite::Result<u64> {
    let pages = pragma(db, "page_count")?.saturating_sub(pragma(db, "freelist_count")?);
    Ok(u64::try_from(pages.saturating_mul(pragma(db, "page_size")?)).unwrap_or(0))
}

fn pragma(db: &Connection, name: &str) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, name, |row| row.get(0))
}

/// Deletes the oldest ended phases, more than one transaction adds. Returns how many there were.
fn drop_oldest(tx: &Transaction<'_>) -> rusqlite::Result<usize> {
    tx.execute(
        "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit ORDER BY seq LIMIT ?)",
        [8 * ROWS_PER_TRANSACTION as i64],
    )
}

fn start_writer(db: Connection, path: &Path, retention: Retention) -> Result<Keeper, ServeError> {
    let (rows, queue) = sync_channel(MAX_QUEUED_ROWS);
    let (end, ended) = sync_channel(0);
    let lost = Arc::new(AtomicU64::new(0));
    let mut writer = Writer {
        db,
        path: path.to_owned(),
        retention,
        clock: Clock::new(),
        pruned: None,
        full_logged_on: None,
        lost: Arc::clone(&lost),
        last_report: None,
        loss_reason: "they came faster than the disk takes them".into(),
    };
    let thread = thread::Builder::new().name("tacit-state".into()).spawn(move || {
        writer.work(&queue);
        drop(end);
    });
    thread.map_err(ServeError::system("starting the thread that keeps records"))?;
    Ok(Keeper(Some(Writing { rows, lost, ended })))
}

struct Writer {
    db: Connection,
    path: PathBuf,
    retention: Retention,
    clock: Clock,
    /// The day of the last pruning.
    pruned: Option<i64>,
    /// The day of the last log message about rows deleted because the file is full.
    full_logged_on: Option<i64>,
    lost: Arc<AtomicU64>,
    last_report: Option<Instant>,
    loss_reason: String,
}

impl Writer {
    /// Writes rows in batches until all senders are gone.
    fn work(&mut self, queue: &Receiver<Row>) {
        // Prunes before new rows arrive.
        if let Err(e) = self.write(&[]) {
            tracing::warn!("old rows of {} stay for now: {e}", self.path.display());
        }
        while let Ok(first) = queue.recv() {
            let rows: Vec<Row> =
                std::iter::once(first).chain(queue.try_iter().take(ROWS_PER_TRANSACTION - 1)).collect();
            if let Err(e) = self.write(&rows) {
                self.lost.fetch_add(rows.len() as u64, Ordering::Relaxed);
                self.loss_reason = e.to_string();
            }
            if self.last_report.is_none_or(|time| time.elapsed() >= LOG_INTERVAL) {
                self.report_lost();
            }
        }
        self.report_lost();
    }

    fn report_lost(&mut self) {
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lost => {
                tracing::error!("{lost} rows of {} are lost: {}", self.path.display(), self.loss_reason);
                self.last_report = Some(Instant::now());
            }
        }
    }

    /// Writes rows in one transaction, and deletes what the retention no longer allows.
    fn write(&mut self, rows: &[Row]) -> rusqlite::Result<()> {
        let now = self.clock.now();
        let tx = self.db.transaction()?;
        for row in rows {
            insert(&tx, row, now)?;
        }
        let today = day_of(now);
        if self.pruned != Some(today) {
            prune(&tx, today, self.retention.days)?;
        }
        let too_many = used_bytes(&tx)? > self.retention.bytes && drop_oldest(&tx)? > 0;
        tx.commit()?;
        self.pruned = Some(today);
        if too_many && self.full_logged_on != Some(today) {
            self.full_logged_on = Some(today);
            let (path, max_mib) = (self.path.display(), self.retention.bytes >> 20);
            tracing::warn!(
                "the oldest rows of {path} go, before their days are over: it has {max_mib} MiB (--audit-mib)"
            );
        }
        Ok(())
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn insert(tx: &Transaction<'_>, row: &Row, now: i64) -> rusqlite::Result<()> {
    match row {
        Row::Learned(l) => tx
            .prepare("REPLACE INTO profile (plan, device, phase, threads, seconds, memory, updated) VALUES (?, ?, ?, ?, ?, ?, ?)")?
            .execute(params![l.plan, l.device, l.phase, l.threads, l.seconds, signed(l.memory), now])?,
        Row::Ended(e) => {
            let input = e.input.map(|name| name.to_string());
            let name = Some(&*e.client_name).filter(|name| !name.is_empty());
            let [sent, received] = [0, 1].map(|i| e.traffic.map(|traffic| signed(traffic[i])));
            let (queued_s, run_s) = (e.queued_time().as_secs_f64(), e.run_time().map(|time| time.as_secs_f64()));
            let PhaseLabels { phase, model, backend } = &e.labels;
            tx.prepare(
                "INSERT INTO audit (at, client, name, input, model, backend, phase, outcome, queued_s, run_s, sent, received, fault)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                now, e.client.0, name, input, model, backend, phase, e.outcome, queued_s, run_s, sent, received, e.fault
            ])?
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests;
