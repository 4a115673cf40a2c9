//! What a server remembers when it starts again, in SQLite beside the ledger: how long phases take, which
//! phases ended how, and how many answers clients have had. Never what was asked or answered.
//!
//! Rows go through a bounded queue to the one thread that writes them, so nobody waits for the disk; what
//! finds no room is counted and told. Only charges against quotas are written by whoever makes them: they are
//! on the disk before the answer begins.
pub(crate) mod schema;

use crate::ServeError;
use crate::quota::{Clock, MAX_AHEAD, QuotaCharge, Quotas, day_of, unix_now};
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, Transaction, named_params, params};
use schema::{NAME, SERVER, Sync, connect, failed, prepare};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tacit_client::wire::InputId;
use tacit_ids::ClientId;

/// Rows that wait to be written.
const QUEUE: usize = 4096;
/// Rows of one transaction.
const AT_ONCE: usize = 256;
/// Classes that estimates are kept of.
const MAX_CLASSES: u32 = 10_000;
/// What the records call a dealing that is for nobody yet, and the class of devices of a pool.
pub(crate) const DEALING: &str = "dealing";
pub(crate) const POOL: &str = "pool";
/// How often the log hears of rows that were lost.
const EVERY: Duration = Duration::from_secs(60);
/// How long a server that stops waits for the last rows.
const LAST: Duration = Duration::from_secs(10);

/// How long a phase takes, and what memory it needs, in so many threads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Learned {
    /// Digest of the plan.
    pub(crate) plan: [u8; 32],
    /// Class of devices.
    pub(crate) device: String,
    pub(crate) phase: &'static str,
    pub(crate) threads: u32,
    pub(crate) seconds: f64,
    pub(crate) memory: u64,
}

/// A phase that has ended, or was refused.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) client: ClientId,
    /// What people call it; empty where nobody has said.
    pub(crate) client_name: Arc<str>,
    /// What its client calls the input; none for stock and setups.
    pub(crate) input: Option<InputId>,
    pub(crate) model: String,
    pub(crate) backend: String,
    pub(crate) phase: &'static str,
    pub(crate) outcome: &'static str,
    /// What its client did wrong.
    pub(crate) fault: Option<&'static str>,
    pub(crate) queued_s: f64,
    pub(crate) run_s: Option<f64>,
    /// Bytes sent and received.
    pub(crate) traffic: Option<[u64; 2]>,
}

/// What is written down.
pub(crate) enum Row {
    Learned(Learned),
    Ended(Ended),
}

/// Takes rows, and never waits. Without a file, rows are dropped.
#[derive(Default)]
pub(crate) struct Keeper(Option<Writing>);

struct Writing {
    rows: SyncSender<Row>,
    lost: Arc<AtomicU64>,
    /// Ends with the thread.
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

    /// Waits until what was taken is written, but not for ever.
    pub(crate) fn close(&mut self) {
        if let Some(Writing { rows, ended, .. }) = self.0.take() {
            drop(rows);
            // Nothing is ever sent: it is the end that comes, or the time is over.
            let _ = ended.recv_timeout(LAST);
        }
    }
}

/// Answers that count against quotas, as they are on the disk.
pub(crate) struct Usage {
    path: PathBuf,
    db: Mutex<Connection>,
}

impl Usage {
    /// Writes a charge; it is on the disk when this returns.
    ///
    /// # Errors
    /// [`ServeError::OverLimit`] if there are as many as there may be, [`ServeError::State`].
    pub(crate) fn charge(&self, charge: &QuotaCharge) -> Result<(), ServeError> {
        // A statement that panics has changed nothing.
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let sql = "INSERT INTO usage (day, client, model, answers) SELECT :day, :client, :model, :inputs WHERE :inputs <= :most
             ON CONFLICT DO UPDATE SET answers = answers + :inputs WHERE answers + :inputs <= :most";
        let named = named_params! {
            ":day": charge.day, ":client": charge.client.0, ":model": charge.model, ":inputs": charge.inputs, ":most": charge.most
        };
        match db.prepare_cached(sql).and_then(|mut sql| sql.execute(named)).map_err(failed(&self.path))? {
            0 => {
                let sql = "SELECT answers FROM usage WHERE day = ? AND client = ? AND model = ?";
                let of = params![charge.day, charge.client.0, charge.model];
                let used: Option<u32> =
                    db.query_row(sql, of, |row| row.get(0)).optional().map_err(failed(&self.path))?;
                let left = charge.most.saturating_sub(used.unwrap_or(0));
                Err(charge.used_up(unix_now(), left))
            }
            _ => Ok(()),
        }
    }
}

/// Estimates of an earlier run, by plan and class of devices.
#[derive(Default)]
pub(crate) struct LearnedDurations(HashMap<([u8; 32], String), Vec<Learned>>);

impl LearnedDurations {
    /// Takes in what is known of a phase from now on.
    pub(crate) fn add(&mut self, row: Learned) {
        self.0.entry((row.plan, row.device.clone())).or_default().push(row);
    }

    /// What is known of a phase: with so many threads, or else what was learned last.
    pub(crate) fn of(&self, plan: [u8; 32], device: &str, phase: &str, threads: u32) -> Option<&Learned> {
        let mut rows = self.0.get(&(plan, device.to_owned()))?.iter().filter(|row| row.phase == phase);
        let first = rows.next()?;
        Some(if first.threads == threads { first } else { rows.find(|row| row.threads == threads).unwrap_or(first) })
    }
}

/// How much is kept of phases that have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) days: u32,
    /// Of the file: where it is larger, the oldest of these go.
    pub(crate) bytes: u64,
}

/// An opened file.
pub(crate) struct State {
    pub(crate) keeper: Keeper,
    pub(crate) usage: Option<Usage>,
    pub(crate) known: LearnedDurations,
    pub(crate) quotas: Quotas,
}

impl State {
    /// Of a server that keeps nothing.
    pub(crate) fn nowhere() -> Self {
        let quotas = Quotas::new(day_of(unix_now()), HashMap::new());
        Self { keeper: Keeper::default(), usage: None, known: LearnedDurations::default(), quotas }
    }

    /// Opens the file of a folder that is this user's alone, or makes it.
    pub(crate) fn open(dir: &Path, most: Most) -> Result<Self, ServeError> {
        let path = dir.join(NAME);
        prepare(&path, &SERVER)?;
        let (rows, usage) = (connect(&path, Sync::Later)?, connect(&path, Sync::AtOnce)?);
        let (known, quotas) = read(&usage).map_err(failed(&path))?;
        let keeper = write_on(rows, &path, most)?;
        Ok(Self { keeper, usage: Some(Usage { path, db: Mutex::new(usage) }), known, quotas })
    }
}

/// What an earlier run has left.
fn read(db: &Connection) -> rusqlite::Result<(LearnedDurations, Quotas)> {
    let mut known = LearnedDurations::default();
    let learned = |row: &SqlRow<'_>| {
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
    };
    let sql = "SELECT plan, device, phase, threads, seconds, memory FROM profile ORDER BY updated DESC LIMIT ?";
    for row in db.prepare(sql)?.query_map([MAX_CLASSES], learned)? {
        known.add(row?);
    }
    // The latest day counts, whatever the clock says; but none that only a clock that was wrong can have
    // shown.
    let (today, believed) = (day_of(unix_now()), day_of(unix_now()) + MAX_AHEAD);
    let latest: Option<i64> =
        db.query_row("SELECT max(day) FROM usage WHERE day <= ?", [believed], |row| row.get(0))?;
    let day = today.max(latest.unwrap_or(i64::MIN));
    let used = |row: &SqlRow<'_>| Ok(((ClientId(row.get("client")?), row.get("model")?), row.get("answers")?));
    let mut select =
        db.prepare("SELECT client, model, min(answers, 4294967295) AS answers FROM usage WHERE day = ?")?;
    let used = select.query_map([day], used)?.collect::<rusqlite::Result<_>>()?;
    Ok((known, Quotas::new(day, used)))
}

/// Forgets what is older than it may be on a day. The latest day of usage stays: it is what a clock that is
/// set back cannot undo.
fn prune(tx: &Transaction<'_>, today: i64, days: u32) -> rusqlite::Result<()> {
    let first = today.saturating_sub(i64::from(days));
    tx.execute("DELETE FROM audit WHERE at < ?", [first.saturating_mul(24 * 3600)])?;
    tx.execute("DELETE FROM usage WHERE day < :first AND day < (SELECT max(day) FROM usage)", [first])?;
    // No more is read at a start.
    tx.execute(
        "DELETE FROM profile WHERE updated < (SELECT updated FROM profile ORDER BY updated DESC LIMIT 1 OFFSET ?)",
        [MAX_CLASSES],
    )?;
    Ok(())
}

/// Bytes of the file that hold something.
fn used_bytes(db: &Connection) -> rusqlite::Result<u64> {
    let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
    Ok(u64::try_from(pages.saturating_mul(number("page_size")?)).unwrap_or(0))
}

/// Removes the oldest ended phases: more than come with one transaction. How many there were.
fn drop_oldest(tx: &Transaction<'_>) -> rusqlite::Result<usize> {
    tx.execute("DELETE FROM audit WHERE seq IN (SELECT seq FROM audit ORDER BY seq LIMIT ?)", [8 * AT_ONCE as i64])
}

/// Starts the thread that owns a connection.
fn write_on(db: Connection, path: &Path, most: Most) -> Result<Keeper, ServeError> {
    let (rows, queue) = sync_channel(QUEUE);
    let (end, ended) = sync_channel(0);
    let lost = Arc::new(AtomicU64::new(0));
    let mut writer = Writer {
        db,
        path: path.to_owned(),
        most,
        clock: Clock::new(),
        pruned: None,
        full: None,
        lost: Arc::clone(&lost),
        told: None,
        why: "they came faster than the disk takes them".into(),
    };
    let thread = thread::Builder::new().name("tacit-state".into()).spawn(move || {
        writer.work(&queue);
        drop(end);
    });
    thread.map_err(ServeError::system("starting the thread that keeps records"))?;
    Ok(Keeper(Some(Writing { rows, lost, ended })))
}

/// What the thread has.
struct Writer {
    db: Connection,
    path: PathBuf,
    most: Most,
    clock: Clock,
    /// The day on which old rows were removed last.
    pruned: Option<i64>,
    /// That on which the log last heard that rows went because there are too many.
    full: Option<i64>,
    lost: Arc<AtomicU64>,
    /// When the log last heard of lost rows.
    told: Option<Instant>,
    /// Why the last were lost.
    why: String,
}

impl Writer {
    fn work(&mut self, queue: &Receiver<Row>) {
        // What is too old goes before anything new comes.
        if let Err(e) = self.write(&[]) {
            tracing::warn!("old rows of {} stay for now: {e}", self.path.display());
        }
        while let Ok(first) = queue.recv() {
            let rows: Vec<Row> = std::iter::once(first).chain(queue.try_iter().take(AT_ONCE - 1)).collect();
            if let Err(e) = self.write(&rows) {
                self.lost.fetch_add(rows.len() as u64, Ordering::Relaxed);
                self.why = e.to_string();
            }
            if self.told.is_none_or(|at| at.elapsed() >= EVERY) {
                self.tell();
            }
        }
        self.tell();
    }

    fn tell(&mut self) {
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lost => {
                tracing::error!("{lost} rows of {} are lost: {}", self.path.display(), self.why);
                self.told = Some(Instant::now());
            }
        }
    }

    fn write(&mut self, rows: &[Row]) -> rusqlite::Result<()> {
        let now = self.clock.now();
        let tx = self.db.transaction()?;
        for row in rows {
            insert(&tx, row, now)?;
        }
        let today = day_of(now);
        if self.pruned != Some(today) {
            prune(&tx, today, self.most.days)?;
        }
        let too_many = used_bytes(&tx)? > self.most.bytes && drop_oldest(&tx)? > 0;
        tx.commit()?;
        self.pruned = Some(today);
        if too_many && self.full != Some(today) {
            self.full = Some(today);
            let (path, most) = (self.path.display(), self.most.bytes >> 20);
            tracing::warn!("the oldest rows of {path} go, before their days are over: it has {most} MiB (--audit-mib)");
        }
        Ok(())
    }
}

/// A size; SQLite's numbers have a sign.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn insert(tx: &Transaction<'_>, row: &Row, now: i64) -> rusqlite::Result<()> {
    match row {
        Row::Learned(l) => tx
            .prepare_cached("REPLACE INTO profile (plan, device, phase, threads, seconds, memory, updated) VALUES (?, ?, ?, ?, ?, ?, ?)")?
            .execute(params![l.plan, l.device, l.phase, l.threads, l.seconds, signed(l.memory), now])?,
        Row::Ended(e) => {
            let input = e.input.map(|name| name.to_string());
            let name = Some(&*e.client_name).filter(|name| !name.is_empty());
            let [sent, received] = [0, 1].map(|i| e.traffic.map(|traffic| signed(traffic[i])));
            tx.prepare_cached(
                "INSERT INTO audit (at, client, name, input, model, backend, phase, outcome, queued_s, run_s, sent, received, fault)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                now, e.client.0, name, input, e.model, e.backend, e.phase, e.outcome, e.queued_s, e.run_s, sent, received, e.fault
            ])?
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests;
