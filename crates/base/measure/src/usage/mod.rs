//! Resource use of processes and of the host, from `/proc` and `/sys`.
//!
//! Every reader takes the root of `/proc` (or `/sys`) as a parameter, for tests. A process, core or
//! interface that vanishes during a read is no error: its last figures stay.
mod cgroup;
mod host;
mod limits;
mod net;
mod wait;

pub use cgroup::{Cgroup, CgroupUsage};
pub use host::{HostReader, busy_s, is_in_other_namespace};
pub use limits::ProcessLimits;
pub use net::{NetReader, link_bytes};
pub use wait::wait_until_ended;

use crate::MeasureError;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Largest readable pseudo-file; `/proc/stat` of a large server has some hundred kilobytes.
const MAX_BYTES: usize = 16 << 20;

/// Where the pseudo-filesystems are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

/// A pseudo-file that stays open and is read repeatedly from its start.
pub(crate) struct Kept {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
}

impl Kept {
    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Self, MeasureError> {
        let path = path.into();
        let file = File::open(&path).map_err(MeasureError::io(&path))?;
        Ok(Self { path, file, buffer: vec![0; 8192] })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn read(&mut self) -> Result<&[u8], MeasureError> {
        let mut len = 0;
        loop {
            if len == self.buffer.len() {
                if len >= MAX_BYTES {
                    let detail = format!("more than {MAX_BYTES} bytes");
                    return Err(MeasureError::Malformed { what: self.path.display().to_string(), detail });
                }
                self.buffer.resize(len * 2, 0);
            }
            match self.file.read_at(&mut self.buffer[len..], len as u64) {
                Ok(0) => return Ok(&self.buffer[..len]),
                Ok(n) => len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(MeasureError::io(&self.path)(e)),
            }
        }
    }
}

/// The lines of a pseudo-file, as text; skips lines that are not UTF-8 (an interface's odd name).
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes.split(|&b| b == b'\n').filter_map(|line| std::str::from_utf8(line).ok())
}

/// Peak resident set of a process (since its last reset), bytes; `None` if the kernel does not
/// report it. `process` is its folder, such as `/proc/self`. (`getrusage` would include the memory of the
/// program that started the process.)
#[must_use]
pub fn high_water_bytes(process: &Path) -> Option<u64> {
    bytes_of_line(&fs::read(process.join("status")).ok()?, "VmHWM:")
}

/// The value of a line such as `VmSize:  12 kB`, in bytes.
pub(crate) fn bytes_of_line(text: &[u8], name: &str) -> Option<u64> {
    let value = lines(text).find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests;
