//! The paper's tables as data, read from a file and checked. The program does not contain them.
use crate::LabError;
use crate::transport::TransportKind;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// Largest file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Role of the measured device in a transfer; also the name of a workload in a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The device sends.
    Send,
    /// The device receives.
    Receive,
}

/// A value of one of the paper's tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperValue {
    /// Number of the table.
    pub table: u32,
    /// The device in the paper's words; if the peer matters, both, the measured one first: `AGX1 - RPI`.
    pub device: String,
    /// The power mode in the paper's words; empty for a device with one only.
    #[serde(default)]
    pub power_mode: String,
    /// The measured transport; the paper's OpenSSL is `tls`.
    pub transport: TransportKind,
    /// Role of the device.
    pub role: Role,
    /// The number.
    pub value: f64,
    /// Its unit: `MB/s`, `J/MB`, the paper's `mW/MB` (in effect mJ/MB), or another.
    pub unit: String,
}

/// The tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Source of the values.
    pub source: String,
    /// The values.
    pub values: Vec<PaperValue>,
}

impl Paper {
    /// Reads a file in the format of docs/lab.md.
    ///
    /// # Errors
    /// [`LabError::Io`], or [`LabError::Spec`] with the wrong line and key.
    pub fn load(path: &Path) -> Result<Self, LabError> {
        let read = std::fs::File::open(path).and_then(|file| {
            let mut text = String::new();
            file.take(MAX_FILE + 1).read_to_string(&mut text).map(|_| text)
        });
        let text = read.map_err(LabError::io(path))?;
        Self::parse(&path.display().to_string(), &text)
    }

    fn parse(subject: &str, text: &str) -> Result<Self, LabError> {
        if text.len() as u64 > MAX_FILE {
            return Err(LabError::spec(subject, format!("is larger than {MAX_FILE} bytes")));
        }
        let paper: Self = toml::from_str(text).map_err(|e| LabError::spec(subject, e.to_string().trim_end()))?;
        for (i, value) in paper.values.iter().enumerate() {
            if !(value.value.is_finite() && value.value >= 0.0) {
                let detail = format!("values[{i}].value must be a number from 0 up, not {}", value.value);
                return Err(LabError::spec(subject, detail));
            }
            if value.device.is_empty() || value.unit.is_empty() {
                return Err(LabError::spec(subject, format!("values[{i}] needs a device and a unit")));
            }
        }
        Ok(paper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::assert_refused;

    const ENTRY: &str = "table = 3\ndevice = 'Nano'\ntransport = 'tls'\nrole = 'send'\nvalue = 6.0\nunit = 'MB/s'\n";

    #[test]
    fn reads_tables() {
        let plain = ENTRY.replace("'tls'", "'plain'").replace("6.0", "8.0");
        let text =
            format!("source = 'x'\n[[values]]\n{ENTRY}[[values]]\n{plain}[[values]]\n{plain}power_mode = '5W'\n");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paper.toml");
        std::fs::write(&path, text).unwrap();
        let paper = Paper::load(&path).unwrap();
        assert_eq!(paper.values.len(), 3);
        assert_eq!((paper.values[0].role, paper.values[0].transport), (Role::Send, TransportKind::Tls));
    }

    /// The real tables, if present: `../shared/data/vpn24`.
    #[test]
    fn reads_the_tables_of_vpn24() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut folders = root.ancestors().map(|folder| folder.join("shared/data/vpn24/vpn24.toml"));
        let Some(path) = folders.find(|path| path.is_file()) else {
            eprintln!("SKIPPED: no shared/data/vpn24/vpn24.toml above {}", root.display());
            return;
        };
        let paper = Paper::load(&path).unwrap();
        let values_of_table = |table: u32| paper.values.iter().filter(|v| v.table == table).collect::<Vec<_>>();
        assert_eq!((values_of_table(3).len(), values_of_table(4).len(), paper.values.len()), (72, 32, 104));
        assert!(
            values_of_table(3).iter().all(|v| v.unit == "mW/MB") && values_of_table(4).iter().all(|v| v.unit == "MB/s")
        );
    }

    #[test]
    fn wrong_files_are_refused_by_line_or_key() {
        for (old, new, words) in [
            ("6.0", "nan", "values[0].value"),
            ("6.0", "-1.0", "values[0].value"),
            ("'send'", "'both'", "both"),
            ("'tls'", "'ssl'", "ssl"),
            ("unit", "colour = 1\nunit", "colour"),
            ("'Nano'", "''", "device"),
        ] {
            let text = format!("source = 'x'\n[[values]]\n{}", ENTRY.replace(old, new));
            assert_refused(Paper::parse("f", &text), &[words]);
        }
        assert!(Paper::load(Path::new("/nowhere/paper.toml")).is_err());
    }
}
