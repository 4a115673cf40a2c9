//! Phase marks: a measured program reports when its phases begin and end, and its own figures for
//! them.
//!
//! The program finds the listener in the environment variable [`ENV_MARKS`] and its own name
//! (`client`, `server`) in [`ENV_PARTY`]. `TACIT_MARKS` is the path of a Unix socket (stream), or
//! `tcp:HOST:PORT` for a listener on another host. The program writes lines of ASCII text, ended by a
//! newline, at most [`MAX_LINE`] bytes each:
//!
//! ```text
//! party NAME                          the party of the lines that follow; `program` before
//! begin PHASE [T_NS]                  a phase begins
//! end PHASE [T_NS] [KEY=VALUE ...]    the phase ends, with figures that the program counted
//! note TEXT                           a remark for the record
//! ping N                              answered by `pong N T_NS`: the listener's clock
//! ```
//!
//! `NAME`, `PHASE` and `KEY` are 1 to 64 characters of `A-Z a-z 0-9 _ . -`. `VALUE` is a finite
//! decimal number, at most 32 of them. `T_NS` is `CLOCK_MONOTONIC` in nanoseconds **on the
//! listener's host** (the same in all its processes; a program on another host converts its own
//! time with the help of `ping`). Without `T_NS`, or with a `T_NS` outside the measurement, the
//! time of arrival counts. Any other line is ignored, and the record notes the first of each
//! connection.
//!
//! In a shell script: `tacit lab mark begin online`.
mod sender;

pub use sender::MarkSender;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Address of the listener: path of a Unix socket, or `tcp:HOST:PORT`.
pub const ENV_MARKS: &str = "TACIT_MARKS";
/// Name of this program's party.
pub const ENV_PARTY: &str = "TACIT_PARTY";
/// Longest line in bytes, with its newline.
pub const MAX_LINE: usize = 1024;
/// Longest name of a party, phase or figure.
pub const MAX_NAME: usize = 64;
/// Most figures at the end of a phase.
pub const MAX_FIGURES: usize = 32;

/// Begin or end of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Edge {
    /// Begin of the phase.
    Begin,
    /// End of the phase.
    End,
}

/// One line of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum MarkLine {
    /// The party of the following lines.
    Party(String),
    /// A phase begins or ends.
    Mark {
        /// Begin or end.
        edge: Edge,
        /// The phase.
        phase: String,
        /// `CLOCK_MONOTONIC` of the listener's host, nanoseconds.
        t_ns: Option<u64>,
        /// Figures of the program.
        figures: BTreeMap<String, f64>,
    },
    /// A remark.
    Note(String),
    /// A request for the listener's clock.
    Ping(u32),
}

impl MarkLine {
    /// Parses a line, with or without its newline.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        if line.len() > MAX_LINE {
            return Err(format!("longer than {MAX_LINE} bytes"));
        }
        let text = std::str::from_utf8(line).ok().filter(|t| t.is_ascii()).ok_or("not ASCII text")?.trim();
        let (kind, fields) = text.split_once(' ').unwrap_or((text, ""));
        match kind {
            "party" => Ok(Self::Party(name(fields.trim())?)),
            "begin" => Self::parse_mark(Edge::Begin, fields),
            "end" => Self::parse_mark(Edge::End, fields),
            "note" => Ok(Self::Note(fields.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned())),
            "ping" => fields.trim().parse().map(Self::Ping).map_err(|_| "ping needs a number".into()),
            _ => Err("expected party, begin, end, note or ping".into()),
        }
    }

    fn parse_mark(edge: Edge, fields_text: &str) -> Result<Self, String> {
        let mut fields = fields_text.split_ascii_whitespace().peekable();
        let phase = name(fields.next().unwrap_or_default())?;
        let t_ns = match fields.next_if(|f| !f.contains('=')) {
            Some(field) => Some(field.parse().map_err(|_| format!("{field:?} is no time in nanoseconds"))?),
            None => None,
        };
        let mut figures = BTreeMap::new();
        for field in fields {
            let (key, value) = field.split_once('=').ok_or_else(|| format!("{field:?} is no KEY=VALUE"))?;
            let value: f64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
            if !value.is_finite() {
                return Err(format!("{key} is not finite"));
            }
            figures.insert(name(key)?, value);
            if figures.len() > MAX_FIGURES {
                return Err(format!("more than {MAX_FIGURES} figures"));
            }
        }
        Ok(Self::Mark { edge, phase, t_ns, figures })
    }
}

impl std::fmt::Display for MarkLine {
    /// The line, with its newline.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Party(name) => writeln!(f, "party {name}"),
            Self::Mark { edge, phase, t_ns, figures } => {
                f.write_str(if *edge == Edge::Begin { "begin " } else { "end " })?;
                f.write_str(phase)?;
                t_ns.iter().try_for_each(|t| write!(f, " {t}"))?;
                for (key, value) in figures {
                    // The plain form of 1e300 has 300 zeros.
                    let (plain, short) = (value.to_string(), format!("{value:e}"));
                    write!(f, " {key}={}", if plain.len() <= short.len() { plain } else { short })?;
                }
                f.write_str("\n")
            }
            Self::Note(text) => writeln!(f, "note {text}"),
            Self::Ping(number) => writeln!(f, "ping {number}"),
        }
    }
}

/// A checked name of a party, phase or figure.
fn name(text: &str) -> Result<String, String> {
    let is_allowed = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    if text.is_empty() || text.len() > MAX_NAME || !is_allowed {
        return Err(format!("a name must have 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ . -"));
    }
    Ok(text.to_owned())
}

/// Converts a TCP connection to a `UnixStream`. Lines are sent without delay, because clocks are compared
/// by them.
///
/// # Errors
/// The system's, if the stream is closed.
pub fn socket(stream: TcpStream) -> io::Result<UnixStream> {
    stream.set_nodelay(true)?;
    Ok(OwnedFd::from(stream).into())
}

/// The next line of a stream without its newline; `None` at its end.
///
/// # Errors
/// The stream's, and [`io::ErrorKind::InvalidData`] for a line of more than [`MAX_LINE`] bytes.
pub fn read_line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    io::Read::take(reader, MAX_LINE as u64).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop_if(|last_byte| *last_byte == b'\n').is_none() && line.len() == MAX_LINE {
        let detail = format!("a line is longer than {MAX_LINE} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests;
