//! Records on disk: written line by line, read back, exported as CSV.
use crate::MeterError;
use crate::record::{FORMAT, Header, Line, Mark, Note, Sample, Summary, VERSION};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Longest line of a record, in bytes; a sample of a host with 1000 cores has some 100 kB.
pub const MAX_LINE: usize = 4 << 20;

/// Writes a record. Every line goes to the file at once, whole or not at all.
pub struct RecordWriter {
    path: PathBuf,
    file: File,
    /// Length of the file up to the last whole line.
    len: u64,
    buffer: Vec<u8>,
}

impl RecordWriter {
    /// Creates the file and writes its header. Replaces an existing record and refuses any other
    /// file.
    ///
    /// # Errors
    /// [`MeterError::io`].
    pub fn create(path: impl Into<PathBuf>, header: &Header) -> Result<Self, MeterError> {
        let path = path.into();
        check_replaced(&path).map_err(MeterError::io(&path))?;
        let file = File::create(&path).map_err(MeterError::io(&path))?;
        let mut writer = Self { path, file, len: 0, buffer: Vec::new() };
        writer.append(&Line::Header(header.clone()))?;
        Ok(writer)
    }

    /// Appends a line.
    ///
    /// # Errors
    /// [`MeterError::io`], for example on a full disk. The file then has all earlier lines and no
    /// part of this one, and a later call may succeed.
    pub fn append(&mut self, line: &Line) -> Result<(), MeterError> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, line)
            .map_err(|e| MeterError::malformed("line of a record", e.to_string()))?;
        self.buffer.push(b'\n');
        match self.file.write_all(&self.buffer) {
            Ok(()) => {
                self.len += self.buffer.len() as u64;
                Ok(())
            }
            Err(error) => {
                // If this fails too, the reader drops the torn line.
                let _ = self.file.set_len(self.len);
                let _ = self.file.seek(SeekFrom::Start(self.len));
                Err(MeterError::io(&self.path)(error))
            }
        }
    }

    /// Makes the lines so far durable against a power cut.
    ///
    /// # Errors
    /// [`MeterError::io`].
    pub fn sync(&mut self) -> Result<(), MeterError> {
        self.file.sync_data().map_err(MeterError::io(&self.path))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A record in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The header.
    pub header: Header,
    /// Samples, by time.
    pub samples: Vec<Sample>,
    /// Phase marks in the order of their arrival.
    pub marks: Vec<Mark>,
    /// Remarks.
    pub notes: Vec<Note>,
    /// Figures over the whole record; absent if the record was cut short.
    pub summary: Option<Summary>,
    /// Why the record is incomplete: a torn last line, no summary. `None` for a complete one.
    pub incomplete: Option<String>,
}

/// First bytes of every record.
const HEADER_START: &[u8] = b"{\"type\":\"header\",\"format\":";

/// Whether a record may be written here: no file, an empty one, a record, or a device that stores
/// no bytes.
fn check_replaced(path: &Path) -> std::io::Result<()> {
    let meta = match path.metadata() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !meta.is_file() || meta.len() == 0 {
        return Ok(());
    }
    let mut line = Vec::new();
    BufReader::new(File::open(path)?.take(MAX_LINE as u64)).read_until(b'\n', &mut line)?;
    // A record that a full disk or a crash has cut inside its first line counts, too.
    let is_torn = line.starts_with(HEADER_START) && !line.ends_with(b"\n");
    match parse_header(&line) {
        Ok(_) => Ok(()),
        Err(_) if is_torn => Ok(()),
        Err(_) => Err(std::io::Error::other("it exists and is no record, and is not overwritten; choose another name")),
    }
}

/// Reads a record.
///
/// # Errors
/// [`MeterError::io`]; [`MeterError::malformed`] if the file is not a record, has another version,
/// or is damaged before its last line.
pub fn read_record(path: &Path) -> Result<Record, MeterError> {
    let file = File::open(path).map_err(MeterError::io(path))?;
    parse_record(BufReader::new(file), &path.display().to_string())
}

/// As [`read_record`], from any reader; `name` stands for the file in errors.
///
/// # Errors
/// As [`read_record`].
pub fn parse_record(mut reader: impl BufRead, name: &str) -> Result<Record, MeterError> {
    let mut line = Vec::new();
    let mut number = 1;
    if !next_line(&mut reader, name, 1, &mut line)? {
        return Err(malformed(name, 1, "the file is empty: not even a header was written"));
    }
    let header = parse_header(&line).map_err(|detail| malformed(name, 1, detail))?;
    let mut record = Record { header, samples: vec![], marks: vec![], notes: vec![], summary: None, incomplete: None };
    loop {
        number += 1;
        if !next_line(&mut reader, name, number, &mut line)? {
            break;
        }
        match parse_line(&line) {
            Ok(_) if record.summary.is_some() => {
                return Err(malformed(name, number, "the record goes on after its summary"));
            }
            Ok(Line::Header(_)) => return Err(malformed(name, number, "a second header")),
            Ok(Line::Sample(sample)) => record.samples.push(sample),
            Ok(Line::Mark(mark)) => record.marks.push(mark),
            Ok(Line::Note(note)) => record.notes.push(note),
            Ok(Line::Summary(summary)) => record.summary = Some(summary),
            Err(detail) if line.last() == Some(&b'\n') => return Err(malformed(name, number, detail)),
            Err(_) => {
                record.incomplete = Some(format!("line {number}, the last, is torn and was left out"));
                break;
            }
        }
    }
    if record.summary.is_none() && record.incomplete.is_none() {
        record.incomplete = Some("the record ended without a summary".into());
    }
    Ok(record)
}

/// Reads a line; false at the end.
fn next_line(reader: &mut impl BufRead, name: &str, number: u64, line: &mut Vec<u8>) -> Result<bool, MeterError> {
    line.clear();
    let bytes_read = reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', line).map_err(MeterError::io(name))?;
    if bytes_read > MAX_LINE {
        return Err(malformed(name, number, format!("longer than {MAX_LINE} bytes")));
    }
    Ok(bytes_read > 0)
}

fn malformed(name: &str, number: u64, detail: impl Into<String>) -> MeterError {
    MeterError::malformed(format!("{name}, line {number}"), detail)
}

/// Parses one line of a record.
///
/// # Errors
/// A description of the fault.
pub fn parse_line(line: &[u8]) -> Result<Line, String> {
    if line.len() > MAX_LINE {
        return Err(format!("longer than {MAX_LINE} bytes"));
    }
    serde_json::from_slice(line).map_err(|e| e.to_string())
}

fn parse_header(line: &[u8]) -> Result<Header, String> {
    #[derive(serde::Deserialize)]
    struct Probe {
        format: String,
        version: u32,
    }
    let probe: Probe =
        serde_json::from_slice(line).map_err(|e| format!("no header of a {FORMAT} ({e}); is this a record?"))?;
    if probe.format != FORMAT {
        return Err(format!("format is {:?}, expected {FORMAT:?}", probe.format));
    }
    if probe.version != VERSION {
        return Err(format!("version is {}, this program reads version {VERSION}", probe.version));
    }
    match parse_line(line)? {
        Line::Header(header) => Ok(header),
        _ => Err("the first line must be the header".into()),
    }
}

#[cfg(test)]
mod tests;
