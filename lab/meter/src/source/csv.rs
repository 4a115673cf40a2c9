//! The CSV format of external meters (docs/lab.md): a header line, then one line per reading.
//!
//! ```text
//! time_s,watts
//! 0.0,3.21
//! 1.0,3.25
//! ```
//! Columns in any order: `time_s` (seconds from any origin, not decreasing) and one of `watts` or
//! `joules` (cumulative). Other columns, empty lines and lines that begin with `#` are ignored.
//! Commas separate fields and numbers have a decimal point; semicolons may separate fields with
//! decimal commas. Anything else is refused, never guessed.
use super::sysfs::shorten;
use super::trace::{Kind, Trace};
use super::{Rail, Source, SourceInfo, Usage, Value};
use crate::MeterError;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAX_LINE: u64 = 4096;
/// Most bytes that one read takes from a growing file.
const MAX_CHUNK: u64 = 1 << 20;
/// Largest accepted values; sums of accepted values stay finite.
const MAX_SECONDS: f64 = 1e12;
const MAX_WATTS: f64 = 1e6;
const MAX_JOULES: f64 = 1e15;
/// Time without growth after which a file has no reading.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// Columns of time and value in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    semicolons: bool,
    columns: usize,
    time: usize,
    value: usize,
    kind: Kind,
}

impl Format {
    /// Reads a header line.
    ///
    /// # Errors
    /// [`MeterError::malformed`] if it lacks a column or has one twice.
    pub fn parse(header: &str) -> Result<Self, MeterError> {
        let header = header.trim_start_matches('\u{feff}').trim();
        let semicolons = header.contains(';');
        let names: Vec<String> = fields(header, semicolons).map(str::to_ascii_lowercase).collect();
        let time =
            column(header, &names, "time_s")?.ok_or_else(|| wrong_header(header, "there is no column time_s"))?;
        let (value, kind) = match (column(header, &names, "watts")?, column(header, &names, "joules")?) {
            (Some(watts), None) => (watts, Kind::Watts),
            (None, Some(joules)) => (joules, Kind::Joules),
            (None, None) => return Err(wrong_header(header, "there is no column watts or joules")),
            (Some(_), Some(_)) => return Err(wrong_header(header, "columns watts and joules are both there")),
        };
        Ok(Self { semicolons, columns: names.len(), time, value, kind })
    }

    /// The kind of the values.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Reads a line: seconds and value; `None` for an empty line or a comment.
    ///
    /// # Errors
    /// [`MeterError::malformed`] for missing, surplus, non-numeric or out-of-range fields.
    pub fn row(&self, line: &str) -> Result<Option<(f64, f64)>, MeterError> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let fields: Vec<&str> = fields(line, self.semicolons).collect();
        if fields.len() != self.columns {
            let mut detail = format!("{} fields, the header has {}", fields.len(), self.columns);
            if !self.semicolons && fields.len() == 2 * self.columns {
                detail += "; decimal commas? write decimal points, or part fields by semicolons";
            }
            return Err(wrong_line(line, detail));
        }
        let (time, value) = (self.number(line, fields[self.time])?, self.number(line, fields[self.value])?);
        let max = if self.kind == Kind::Watts { MAX_WATTS } else { MAX_JOULES };
        if time.abs() > MAX_SECONDS || value.abs() > max {
            return Err(wrong_line(line, "the number is absurd"));
        }
        Ok(Some((time, value)))
    }

    fn number(&self, line: &str, field: &str) -> Result<f64, MeterError> {
        let point =
            if self.semicolons && !field.contains('.') { field.replacen(',', ".", 1) } else { field.to_string() };
        match point.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(wrong_line(line, format!("{field:?} is no number; write it as 1234.5"))),
        }
    }
}

fn column(header: &str, names: &[String], wanted_name: &str) -> Result<Option<usize>, MeterError> {
    let mut matching = names.iter().enumerate().filter(|(_, name)| *name == wanted_name).map(|(i, _)| i);
    match (matching.next(), matching.next()) {
        (_, Some(_)) => Err(wrong_header(header, format!("column {wanted_name} is there twice"))),
        (first, None) => Ok(first),
    }
}

fn wrong_header(header: &str, detail: impl std::fmt::Display) -> MeterError {
    let detail = format!("{detail}; expected a header such as time_s,watts, found {:?}", shorten(header));
    MeterError::malformed("CSV header", detail)
}

fn wrong_line(line: &str, detail: impl Into<String>) -> MeterError {
    MeterError::malformed(format!("CSV line {:?}", shorten(line)), detail)
}

fn fields(line: &str, semicolons: bool) -> impl Iterator<Item = &str> {
    line.split(if semicolons { ';' } else { ',' }).map(|field| field.trim().trim_matches('"'))
}

/// Lines that may be the header or data.
fn content(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered_lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim_start_matches('\u{feff}').trim()));
    numbered_lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Whether the first line with content looks like a header.
pub(crate) fn has_header(text: &str) -> bool {
    content(text).next().is_some_and(|(_, line)| line.to_ascii_lowercase().contains("time_s"))
}

/// A whole file as a trace.
/// # Errors
/// [`MeterError::malformed`] with the line.
pub fn parse(text: &str) -> Result<Trace, MeterError> {
    let mut lines = content(text);
    let format = Format::parse(lines.next().map_or("", |(_, line)| line))?;
    let (mut times, mut samples) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        let row = format.row(line).map_err(|error| error.behind(&format!("line {number}, ")))?;
        if let Some((time, value)) = row {
            times.push(time);
            samples.push(vec![value]);
        }
    }
    Trace::new(vec![Rail::counted(RAIL)], format.kind, times, samples)
}

/// The one rail of an external meter.
pub(crate) const RAIL: &str = "meter";

/// A CSV file that another program appends to.
///
/// A column `watts` gives the time-weighted mean of the lines since the previous read, a column
/// `joules` the energy since the first line. After ten seconds without a new line the value is
/// missing.
pub struct GrowingCsv {
    info: SourceInfo,
    path: PathBuf,
    format: Format,
    offset: u64,
    /// Time and value of the newest line.
    last: Option<(f64, f64)>,
    /// Energy counter at the first line.
    first: Option<f64>,
    /// Newest value and its time of arrival.
    value: Option<(Value, Instant)>,
}

impl GrowingCsv {
    /// Opens the file, which must already have its header line, and seeks to its end.
    ///
    /// # Errors
    /// [`MeterError::io`], or [`MeterError::malformed`] for a wrong header.
    pub fn open(path: &Path) -> Result<Self, MeterError> {
        let mut file = BufReader::new(File::open(path).map_err(MeterError::io(path))?);
        let (format, after_header) = header(&mut file, path)?;
        let length = file.get_ref().metadata().map_err(MeterError::io(path))?.len();
        let info = SourceInfo::measured(format!("external:{}", path.display()), vec![Rail::counted(RAIL)], 100);
        // The newest line is near the end of the file; older lines are of no use.
        let offset = after_header.max(length.saturating_sub(2 * MAX_LINE));
        let mut source = Self { info, path: path.into(), format, offset, last: None, first: None, value: None };
        if offset > after_header {
            source.skip_line()?;
        }
        Ok(source)
    }

    /// Moves the offset past its current line.
    fn skip_line(&mut self) -> Result<(), MeterError> {
        let text = self.whole_lines()?;
        let first = text.find('\n').map_or(0, |end| end + 1);
        // `whole_lines` advanced to the end of the line.
        self.offset -= (text.len() - first) as u64;
        Ok(())
    }

    /// New whole lines; an unfinished line waits for the next read.
    fn whole_lines(&mut self) -> Result<String, MeterError> {
        let mut file = File::open(&self.path).map_err(MeterError::io(&self.path))?;
        let length = file.metadata().map_err(MeterError::io(&self.path))?.len();
        if length < self.offset {
            // The file was rewritten.
            let (format, start) = header(&mut BufReader::new(&mut file), &self.path)?;
            (self.format, self.offset, self.last, self.first) = (format, start, None, None);
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(MeterError::io(&self.path))?;
        let mut bytes = Vec::new();
        file.take(MAX_CHUNK).read_to_end(&mut bytes).map_err(MeterError::io(&self.path))?;
        let end = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        if end == 0 && bytes.len() as u64 > MAX_LINE {
            self.offset += bytes.len() as u64;
            let detail = format!("a line has more than {MAX_LINE} bytes");
            return Err(MeterError::malformed(self.path.display().to_string(), detail));
        }
        bytes.truncate(end);
        self.offset += end as u64;
        // Bytes that are not text make their field invalid; one replacement each keeps the length.
        Ok(bytes.iter().map(|&b| if b.is_ascii() { char::from(b) } else { '?' }).collect())
    }

    fn take(&mut self, text: &str) -> Result<Option<Value>, MeterError> {
        let (mut energy, mut span, mut newest, mut first_error) = (0.0, 0.0, None, None);
        for line in text.lines() {
            let (time, value) = match self.format.row(line) {
                Ok(Some(row)) => row,
                Ok(None) => continue,
                Err(error) => {
                    first_error.get_or_insert(error);
                    continue;
                }
            };
            if let Some((previous, before)) = self.last {
                if time < previous || (self.format.kind == Kind::Joules && value < before) {
                    let detail =
                        format!("time or energy goes back at {:?}; counting goes on from there", shorten(line));
                    first_error.get_or_insert(MeterError::malformed(self.path.display().to_string(), detail));
                    // The energy so far stays.
                    self.first = self.first.map(|first| first + (value - before));
                } else {
                    energy += (time - previous) * (value + before) / 2.0;
                    span += time - previous;
                }
            }
            self.first.get_or_insert(value);
            self.last = Some((time, value));
            newest = Some(value);
        }
        match (first_error, newest, self.format.kind) {
            (Some(error), ..) => Err(error),
            (None, None, _) => Ok(None),
            (None, Some(value), Kind::Watts) => Ok(Some(Value::Watts(if span > 0.0 { energy / span } else { value }))),
            (None, Some(value), Kind::Joules) => Ok(Some(Value::Joules(value - self.first.unwrap_or(value)))),
        }
    }
}

/// Reads the header; returns it and the offset after it.
fn header(file: &mut impl BufRead, path: &Path) -> Result<(Format, u64), MeterError> {
    let mut offset = 0;
    loop {
        let mut line = Vec::new();
        let read = file.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(MeterError::io(path))?;
        offset += read as u64;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_start_matches('\u{feff}').trim();
        if read == 0 || !(text.is_empty() || text.starts_with('#')) {
            return Ok((Format::parse(text)?, offset));
        }
    }
}

impl Source for GrowingCsv {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read(&mut self, _: &Usage) -> Result<Vec<Value>, MeterError> {
        let text = self.whole_lines()?;
        if let Some(value) = self.take(&text)? {
            self.value = Some((value, Instant::now()));
        }
        let fresh = self.value.filter(|(_, read_at)| read_at.elapsed() < STALE_AFTER);
        Ok(vec![fresh.map_or(Value::Missing, |(value, _)| value)])
    }
}
