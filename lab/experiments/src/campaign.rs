//! The folder of a campaign.
//!
//! ```text
//! DIR/campaign.json      what was asked for and where it ran: [`Campaign`]
//! DIR/runs.jsonl         one [`Run`] per finished run, appended and synced; what is here is not measured again on resume
//! DIR/idle.jsonl         one [`Idle`] per idle baseline, before and after the runs of each session
//! DIR/records/*.jsonl    raw records of the meter, one per run and idle baseline (see `tacit_meter::record`)
//! DIR/logs/*             what the programs of a run printed: `NAME.client.out`, `NAME.client.err`, ...
//! DIR/report.html        written by `tacit lab report`, with the plots beside it as PNG and SVG
//! ```
mod cell;
mod managed;

use crate::LabError;
pub use cell::{Cell, describe};
pub use managed::{managed_folder, own_folder};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tacit_meter::record::{EnergyFigure, PartySample};

/// Version of the folder's layout.
pub const VERSION: u32 = 1;

/// `campaign.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the experiment: `pm24-bandwidth`.
    pub experiment: String,
    /// Purpose, one sentence.
    pub description: String,
    /// The experiment file as it was run, defaults filled in (TOML text).
    pub spec: String,
    /// Facts about the machine: CPU, cores, governor, kernel, versions.
    pub machine: BTreeMap<String, String>,
    /// Seconds since 1970 (UTC).
    pub started_unix_s: u64,
}

impl Campaign {
    /// Describes a campaign that starts now.
    #[must_use]
    pub fn new(experiment: String, description: String, spec: String, machine: BTreeMap<String, String>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { version: VERSION, experiment, description, spec, machine, started_unix_s: now.as_secs() }
    }
}

/// A line of `runs.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Labels of this run's cell: `{"link": "lte", "transport": "tls", "workload": "bulk"}`.
    pub cell: Cell,
    /// Repetition within the cell, from 0; warm-up runs are not listed.
    pub repetition: u32,
    /// The raw record, relative to the campaign's folder; empty if none was stored.
    pub record: String,
    /// Why the run failed; absent for a successful run. A resumed campaign repeats failed runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Length of the measured part, seconds.
    pub duration_s: f64,
    /// The link as measured just before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkFigures>,
    /// By party: energy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub energy: BTreeMap<String, EnergyFigure>,
    /// By party: processor time and peak memory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parties: BTreeMap<String, PartySample>,
    /// Results reported by the workload: `latency_s`, `goodput_bps`, `sent_bytes`, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<String, f64>,
}

/// A link as requested and as measured ([PM24] measures it before each run).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkFigures {
    /// Requested TCP goodput, client to server, bit/s; absent if unlimited.
    pub target_up_bps: Option<f64>,
    /// Requested TCP goodput, server to client, bit/s.
    pub target_down_bps: Option<f64>,
    /// Requested round-trip time, seconds.
    pub target_rtt_s: f64,
    /// TCP goodput achieved, client to server, bit/s.
    pub up_bps: f64,
    /// TCP goodput achieved, server to client, bit/s.
    pub down_bps: f64,
    /// Median round-trip time of the idle link, seconds.
    pub rtt_s: f64,
    /// Median round-trip time while the link is full, seconds.
    pub loaded_rtt_s: f64,
}

/// A line of `idle.jsonl`: the host's power while no program of the experiment ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// `before` or `after` the runs.
    pub when: String,
    /// The raw record, relative to the campaign's folder.
    pub record: String,
    /// Length, seconds.
    pub duration_s: f64,
    /// By power source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub power: BTreeMap<String, IdlePower>,
}

/// Idle power by one source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdlePower {
    /// Mean power, watts.
    pub mean_w: f64,
    /// Standard deviation of single samples, watts.
    pub sd_w: f64,
    /// Number of samples.
    pub n: usize,
    /// Standard uncertainty of the mean, watts; neighbouring samples are correlated.
    pub mean_sd_w: f64,
}

/// A campaign as read from its folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// `campaign.json`.
    pub campaign: Campaign,
    /// The runs; of a repeated run, only the last.
    pub runs: Vec<Run>,
}

/// Whether the folder holds a campaign, readable or not.
#[must_use]
pub fn is_there(dir: &Path) -> bool {
    dir.join(CAMPAIGN).exists()
}

/// Reads a campaign's folder. Ignores a truncated last line (power cut, full disk).
///
/// # Errors
/// [`LabError::Io`]; [`LabError::Spec`] if the folder holds no campaign, one of a later version, or
/// damaged lines.
pub fn load(dir: &Path) -> Result<Loaded, LabError> {
    let path = dir.join(CAMPAIGN);
    let text = match read_bounded(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let detail = format!("holds no campaign ({CAMPAIGN} is missing); `tacit lab run` makes one");
            return Err(LabError::spec(dir.display().to_string(), detail));
        }
        read => read.map_err(LabError::io(&path))?,
    };
    let subject = path.display().to_string();
    // Reads the version first: a later layout may differ everywhere else.
    let version: Version =
        serde_json::from_slice(&text).map_err(|e| LabError::spec(&subject, format!("not a campaign: {e}")))?;
    if version.version != VERSION {
        let detail = format!("layout version {}, this program reads version {VERSION}", version.version);
        return Err(LabError::spec(subject, detail));
    }
    let campaign = serde_json::from_slice(&text).map_err(|e| LabError::spec(subject, e.to_string()))?;
    let path = dir.join(RUNS);
    if !path.exists() {
        return Ok(Loaded { campaign, runs: vec![] });
    }
    Ok(Loaded { campaign, runs: load_runs(&path)? })
}

/// For each cell and repetition the last line of `runs.jsonl`, in the order of these lines.
fn load_runs(path: &Path) -> Result<Vec<Run>, LabError> {
    let text = read_bounded(path).map_err(LabError::io(path))?;
    let mut runs: BTreeMap<(Cell, u32), (usize, Run)> = BTreeMap::new();
    for (number, line) in whole_lines(&text).split(|&b| b == b'\n').enumerate().filter(|(_, l)| !l.is_empty()) {
        let run: Run = serde_json::from_slice(line).map_err(|e| LabError::Spec {
            what: format!("{}, line {}", path.display(), number + 1),
            detail: format!("not a run: {e}"),
        })?;
        runs.insert((run.cell.clone(), run.repetition), (number, run));
    }
    let mut runs: Vec<(usize, Run)> = runs.into_values().collect();
    runs.sort_by_key(|(number, _)| *number);
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = vec![];
    File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(std::io::Error::other(format!("more than {} MiB: this is no file of the lab", MAX_FILE >> 20)));
    }
    Ok(text)
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Largest accepted file: a million runs have some hundred MB.
const MAX_FILE: u64 = 1 << 30;
const CAMPAIGN: &str = "campaign.json";
const RUNS: &str = "runs.jsonl";
const IDLE: &str = "idle.jsonl";

/// Opens a file of a campaign for reading. Refuses a link.
///
/// # Errors
/// The system's error.
pub fn open(path: &Path) -> std::io::Result<File> {
    own_file().read(true).open(path)
}

/// Creates a file of a campaign anew. Never writes to an existing file, which may be a link.
///
/// # Errors
/// The system's error.
pub fn create(path: &Path) -> std::io::Result<File> {
    remove(path)?;
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Removes a file of a campaign, if it exists.
///
/// # Errors
/// The system's error.
pub fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Options that open files, but no links.
fn own_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    &text[..end]
}

/// A campaign's folder, open for writing by this process alone.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    runs: File,
    lock: File,
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread is just starting has the file open too.
        _ = self.lock.unlock();
    }
}

impl Folder {
    /// Opens or creates the folder and locks it. Removes a truncated last line of `runs.jsonl`.
    ///
    /// # Errors
    /// [`LabError::Io`]; [`LabError::Unavailable`] while another process runs a campaign in the
    /// folder.
    pub fn open(dir: &Path) -> Result<Self, LabError> {
        managed_folder(dir)?;
        for part in ["records", "logs"] {
            own_folder(&dir.join(part))?;
        }
        let path = dir.join(".lock");
        let lock = own_file().create(true).truncate(false).write(true).open(&path).map_err(LabError::io(&path))?;
        lock.try_lock().map_err(|_| {
            let (reason, remedy) = ("another process runs a campaign there", "wait for it, or choose another folder");
            LabError::unavailable(format!("running in {}", dir.display()), reason, remedy)
        })?;
        let path = dir.join(RUNS);
        let runs = own_file().create(true).append(true).read(true).open(&path).map_err(LabError::io(&path))?;
        let text = fs::read(&path).map_err(LabError::io(&path))?;
        let whole_len = whole_lines(&text).len();
        if whole_len < text.len() {
            runs.set_len(whole_len as u64).map_err(LabError::io(&path))?;
        }
        Ok(Self { dir: dir.to_owned(), runs, lock })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Writes `campaign.json`, whole or not at all.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn begin(&self, campaign: &Campaign) -> Result<(), LabError> {
        let (path, draft) = (self.dir.join(CAMPAIGN), self.dir.join(".campaign.json.new"));
        let text = serde_json::to_vec_pretty(campaign).map_err(|e| LabError::io(&path)(e.into()))?;
        let result = create(&draft).and_then(|mut f| f.write_all(&text).and_then(|()| f.sync_all()));
        result.map_err(LabError::io(&draft))?;
        fs::rename(&draft, &path).map_err(LabError::io(&path))?;
        File::open(&self.dir).and_then(|d| d.sync_all()).map_err(LabError::io(&self.dir))
    }

    /// Appends a run and waits until it is on disk.
    ///
    /// # Errors
    /// [`LabError::Io`], for example a full disk; the earlier runs stay as they are.
    pub fn append(&mut self, run: &Run) -> Result<(), LabError> {
        append(&mut self.runs, &self.dir.join(RUNS), run)
    }

    /// Number of idle baselines so far.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn count_idle(&self) -> Result<usize, LabError> {
        let path = self.dir.join(IDLE);
        match fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
            read => Ok(read.map_err(LabError::io(&path))?.iter().filter(|b| **b == b'\n').count()),
        }
    }

    /// Appends an idle baseline to `idle.jsonl`.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn append_idle(&self, idle: &Idle) -> Result<(), LabError> {
        let path = self.dir.join(IDLE);
        let mut file = own_file().create(true).append(true).open(&path).map_err(LabError::io(&path))?;
        append(&mut file, &path, idle)
    }
}

fn append(file: &mut File, path: &Path, line: &impl Serialize) -> Result<(), LabError> {
    let mut text = serde_json::to_vec(line).map_err(|e| LabError::io(path)(e.into()))?;
    text.push(b'\n');
    let before = file.metadata().map_err(LabError::io(path))?.len();
    let result = file.write_all(&text).and_then(|()| file.sync_data());
    result.map_err(|e| {
        // The next opening of the folder removes a partial line that cannot be removed now.
        let _ = file.set_len(before);
        LabError::io(path)(e)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tests::assert_refused;

    fn run(link: &str, repetition: u32) -> Run {
        Run {
            cell: [("link".to_owned(), link.to_owned())].into(),
            repetition,
            record: format!("records/{link}-{repetition}.jsonl"),
            duration_s: 1.5,
            results: [("latency_s".to_owned(), 0.25)].into(),
            ..Run::default()
        }
    }

    pub(crate) fn campaign() -> Campaign {
        Campaign { version: VERSION, experiment: "test".into(), started_unix_s: 1, ..Campaign::default() }
    }

    #[test]
    fn a_repeated_run_replaces_the_failed_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(dir.path()).unwrap();
        folder.begin(&campaign()).unwrap();
        let failed = Run { failure: Some("timed out".into()), ..run("lan", 0) };
        for run in [&failed, &run("lan", 1), &run("lan", 0)] {
            folder.append(run).unwrap();
        }
        let loaded = load(dir.path()).unwrap();
        assert_eq!(loaded.campaign, campaign());
        assert_eq!(loaded.runs, [run("lan", 1), run("lan", 0)]);
    }

    #[test]
    fn truncated_line_is_skipped_and_removed_on_resume() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(dir.path()).unwrap();
        folder.begin(&campaign()).unwrap();
        folder.append(&run("lan", 0)).unwrap();
        let runs = dir.path().join(RUNS);
        OpenOptions::new().append(true).open(&runs).unwrap().write_all(b"{\"cell\": {\"li").unwrap();
        assert_eq!(load(dir.path()).unwrap().runs, [run("lan", 0)]);
        drop(folder);
        Folder::open(dir.path()).unwrap().append(&run("lan", 1)).unwrap();
        assert_eq!(load(dir.path()).unwrap().runs, [run("lan", 0), run("lan", 1)]);
        // A crash leaves a broken line only at the end.
        fs::write(&runs, "{\"cell\n{}\n").unwrap();
        assert_refused(load(dir.path()), &["runs.jsonl, line 1"]);
    }

    #[test]
    fn full_disk_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let appended = append(&mut full, &dir.path().join(RUNS), &run("lan", 0));
        assert_refused(appended, &["runs.jsonl", "No space left"]);
    }

    #[test]
    fn links_in_the_folder_are_not_followed() {
        use std::os::unix::fs::symlink;
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = outside.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        for name in [".lock", RUNS] {
            symlink(&victim, dir.path().join(name)).unwrap();
            assert!(Folder::open(dir.path()).is_err(), "{name}");
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        let folder = Folder::open(dir.path()).unwrap();
        symlink(&victim, dir.path().join(".campaign.json.new")).unwrap();
        folder.begin(&campaign()).unwrap();
        assert!(dir.path().join(CAMPAIGN).symlink_metadata().unwrap().is_file());
        symlink(&victim, dir.path().join(IDLE)).unwrap();
        let idle = Idle { when: "before".into(), record: String::new(), duration_s: 1.0, power: BTreeMap::new() };
        folder.append_idle(&idle).unwrap_err();
        let log = dir.path().join("logs/c000-r00.client.out");
        symlink(&victim, &log).unwrap();
        create(&log).unwrap().write_all(b"printed").unwrap();
        assert_eq!((fs::read(&log).unwrap(), fs::read(&victim).unwrap()), (b"printed".to_vec(), b"precious".to_vec()));
        drop(folder);
        fs::remove_dir_all(dir.path().join("logs")).unwrap();
        symlink(outside.path(), dir.path().join("logs")).unwrap();
        assert_refused(Folder::open(dir.path()), &["logs: is a link"]);
    }

    #[test]
    fn refuses_a_second_process() {
        let dir = tempfile::tempdir().unwrap();
        let first = Folder::open(dir.path()).unwrap();
        assert_refused(Folder::open(dir.path()), &["another process"]);
        drop(first);
        Folder::open(dir.path()).unwrap();
    }

    #[test]
    fn refuses_a_folder_without_campaign() {
        let dir = tempfile::tempdir().unwrap();
        assert_refused(load(dir.path()), &["holds no campaign"]);
        for (text, words) in [("{\"version\": 9, \"new\": true}", "layout version 9"), ("[]", "not a campaign")] {
            fs::write(dir.path().join(CAMPAIGN), text).unwrap();
            assert_refused(load(dir.path()), &[words]);
        }
    }
}
