//! Power rails in the output of NVIDIA's `tegrastats`.
//!
//! Three dialects: `POM_5V_IN 920/920` (Jetson Nano, TX2: milliwatts without unit, now/average),
//! `VDD_IN 5542mW/5542mW` (JetPack 5 and later), and the same among the prompts and messages of a
//! terminal. A rail is a word of capital letters, digits and underscores followed by such a pair;
//! the rest of the line is ignored. The present value counts, not the average since the start of
//! tegrastats.
use super::trace::{Kind, Trace};
use super::{Rail, Source, SourceInfo, Usage, Value, rails};
use crate::MeterError;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest accepted line: tegrastats writes a few hundred bytes.
const MAX_LINE: u64 = 16 << 10;
const MAX_RAILS: usize = 64;
const NAME: &str = "tegrastats";

/// The rails in a line: name and watts. Empty for a line without any.
pub fn parse_line(line: &str) -> Vec<(String, f64)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let pairs = words.windows(2).filter_map(|w| Some((rail_name(w[0])?.to_string(), watts(w[1])?)));
    pairs.take(MAX_RAILS).collect()
}

fn rail_name(word: &str) -> Option<&str> {
    let fits = word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    let is_rail_name = fits && word.bytes().next()?.is_ascii_uppercase() && word.len() <= 32;
    // Memory, if a version prints it without unit; unconnected rails.
    (is_rail_name && !["RAM", "SWAP", "IRAM", "NC"].contains(&word)).then_some(word)
}

/// The first number of `920/920` or `5542mW/5542mW`.
fn watts(word: &str) -> Option<f64> {
    let (current, average) = word.split_once('/')?;
    milliwatts(average)?;
    Some(f64::from(milliwatts(current)?) / 1e3)
}

/// Milliwatts, `920` or `5542mW`.
fn milliwatts(text: &str) -> Option<u32> {
    text.strip_suffix("mW").unwrap_or(text).parse::<u32>().ok()
}

/// Seconds, from a fixed day, of a line that begins with `MM-DD-YYYY HH:MM:SS`, as JetPack 5 writes
/// it.
fn stamp(line: &str) -> Option<f64> {
    let mut words = line.split_ascii_whitespace();
    let date: Vec<u32> = words.next()?.split('-').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let time: Vec<u32> = words.next()?.split(':').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let (&[month @ 1..=12, day @ 1..=31, year @ 1970..=9999], &[hour, minute, second]) = (&date[..], &time[..]) else {
        return None;
    };
    // Days by the civil calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    Some(f64::from(days) * 86_400.0 + f64::from(hour.min(24) * 3600 + minute.min(60) * 60 + second.min(60)))
}

/// Parses a recorded log. Times are the lines' own stamps, or `interval_s` apart without stamps;
/// lines without rails are ignored.
///
/// # Errors
/// [`MeterError::malformed`] if no line has rails, or a line has other rails than the first.
pub fn parse_log(text: &str, interval_s: f64) -> Result<Trace, MeterError> {
    let subject = "tegrastats log";
    let (mut names, mut times, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    for (number, line) in text.lines().enumerate() {
        let line_values = parse_line(line);
        if line_values.is_empty() {
            continue;
        }
        let (found_names, watts): (Vec<String>, Vec<f64>) = line_values.into_iter().unzip();
        if names.is_empty() {
            names = found_names;
        } else if names != found_names {
            let detail = format!("line {} has rails {found_names:?}, the first line {names:?}", number + 1);
            return Err(MeterError::malformed(subject, detail));
        }
        let counted = times.len() as f64 * interval_s;
        let time = stamp(line).map_or(counted, |s| s - *first.get_or_insert(s));
        times.push(time.max(times.last().copied().unwrap_or(0.0)));
        samples.push(watts);
    }
    if names.is_empty() {
        return Err(MeterError::malformed(subject, "no line has a power rail such as VDD_IN 5542mW/5542mW"));
    }
    Trace::new(rails::count(names), Kind::Watts, times, samples)
}

#[derive(Default)]
struct Latest {
    rails: Vec<(String, f64)>,
    at: Option<Instant>,
    ended: bool,
}

type Shared = Arc<(Mutex<Latest>, Condvar)>;

fn lock(shared: &Shared) -> MutexGuard<'_, Latest> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running `tegrastats`.
pub struct Tegrastats {
    info: SourceInfo,
    child: Child,
    latest: Shared,
    stale: Duration,
}

impl Tegrastats {
    /// Starts `program --interval MS` and waits for the first line with rails.
    ///
    /// # Errors
    /// [`MeterError::io`] if the program does not start, [`MeterError::Source`] if no rails arrive
    /// in time.
    pub fn start(program: &Path, interval: Duration) -> Result<Self, MeterError> {
        let interval_ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX).max(10);
        let mut command = Command::new(program);
        command.arg("--interval").arg(interval_ms.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(MeterError::io(program))?;
        let latest = Shared::default();
        if let Some(output) = child.stdout.take() {
            let latest = latest.clone();
            std::thread::spawn(move || follow(output, &latest));
        }
        let info = SourceInfo::measured(NAME, Vec::new(), interval_ms);
        let mut source = Self { info, child, latest, stale: interval * 3 + Duration::from_secs(2) };
        source.info.rails = source.first_rails(interval + Duration::from_secs(4))?;
        Ok(source)
    }

    fn first_rails(&self, patience: Duration) -> Result<Vec<Rail>, MeterError> {
        let guard = lock(&self.latest);
        let waited = self.latest.1.wait_timeout_while(guard, patience, |latest| latest.at.is_none() && !latest.ended);
        let (latest, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if latest.at.is_none() {
            let reason = format!("no power rails in its output within {:.0} s", patience.as_secs_f64());
            return Err(Self::failure(reason));
        }
        Ok(rails::count(latest.rails.iter().map(|(name, _)| name.clone())))
    }

    fn failure(reason: String) -> MeterError {
        let remedy = "run `tegrastats` by hand: its lines must hold pairs such as VDD_IN 5542mW/5542mW".into();
        MeterError::Source { name: NAME.into(), reason, remedy }
    }
}

fn follow(output: impl Read, latest: &Shared) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while (&mut output).take(MAX_LINE).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let rails = parse_line(&String::from_utf8_lossy(&line));
        if !rails.is_empty() {
            let mut latest = lock(latest);
            (latest.rails, latest.at) = (rails, Some(Instant::now()));
        }
        latest.1.notify_all();
        line.clear();
    }
    lock(latest).ended = true;
    latest.1.notify_all();
}

impl Source for Tegrastats {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read(&mut self, _: &Usage) -> Result<Vec<Value>, MeterError> {
        let latest = lock(&self.latest);
        if latest.ended {
            return Err(Self::failure("the program has ended".into()));
        }
        let fresh = latest.at.is_some_and(|read_at| read_at.elapsed() <= self.stale);
        let values = self.info.rails.iter().map(|rail| {
            let reading = latest.rails.iter().find(|(name, _)| *name == rail.name).filter(|_| fresh);
            reading.map_or(Value::Missing, |(_, watts)| Value::Watts(*watts))
        });
        Ok(values.collect())
    }
}

impl Drop for Tegrastats {
    fn drop(&mut self) {
        // The program may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
