use super::*;
use crate::record::{Edge, PartySample};
use crate::sampler::{Sampler, SamplerConfig};
use crate::source::{Rail, SourceInfo};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

fn header() -> Header {
    let source = SourceInfo::measured("rapl", vec![Rail::counted("package-0")], 1);
    Header {
        format: FORMAT.into(),
        version: VERSION,
        host: "pi".into(),
        started_unix_ns: 1_700_000_000_000_000_001,
        interval_s: 0.1,
        sources: vec![source],
        machine: BTreeMap::new(),
        labels: BTreeMap::from([("rate".to_owned(), "lte".to_owned())]),
    }
}

fn lines() -> Vec<Line> {
    let party = PartySample { user_s: 0.1, system_s: 0.2, rss_bytes: 3, processes: 4 };
    let parties = BTreeMap::from([("client".to_owned(), party)]);
    let mark =
        Mark { t: 0.5, party: "client".into(), phase: "online".into(), edge: Edge::Begin, figures: BTreeMap::new() };
    vec![
        Line::Sample(Sample { t: 0.1 + 0.2, parties: parties.clone(), memory_bytes: 7, ..Sample::default() }),
        Line::Mark(mark),
        Line::Note(Note { t: 0.6, text: "line\nbreak, \"quotes\" \u{1f50c}".into() }),
        Line::Sample(Sample { t: 1.0, ..Sample::default() }),
        Line::Summary(Summary { duration_s: 1.0, parties, ..Summary::default() }),
    ]
}

fn write(path: &Path, lines: &[Line]) {
    let mut writer = RecordWriter::create(path, &header()).unwrap();
    lines.iter().for_each(|line| writer.append(line).unwrap());
    writer.sync().unwrap();
    assert_eq!(writer.path(), path);
}

#[test]
fn record_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.jsonl");
    write(&path, &lines());
    let record = read_record(&path).unwrap();
    assert_eq!(record.header, header());
    let lines_read = vec![
        Line::Sample(record.samples[0].clone()),
        Line::Mark(record.marks[0].clone()),
        Line::Note(record.notes[0].clone()),
        Line::Sample(record.samples[1].clone()),
        Line::Summary(record.summary.clone().unwrap()),
    ];
    assert_eq!((lines_read, record.incomplete), (lines(), None));
}

#[test]
fn reads_truncated_record_to_last_whole_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.jsonl");
    write(&path, &lines());
    let content = std::fs::read(&path).unwrap();
    let first = content.iter().position(|&b| b == b'\n').unwrap() + 1;
    for end in first..content.len() {
        let record = parse_record(&content[..end], "r").unwrap();
        let count =
            record.samples.len() + record.marks.len() + record.notes.len() + usize::from(record.summary.is_some());
        let newline_count = content[first..end].iter().filter(|&&b| b == b'\n').count();
        // Only the newline is missing, so the line is whole.
        let newline_missing = content[end] == b'\n';
        assert_eq!(count, newline_count + usize::from(newline_missing), "cut at {end}");
        assert_eq!(record.incomplete.is_some(), end < content.len() - 1, "cut at {end}");
    }
    for end in 0..first - 1 {
        assert!(parse_record(&content[..end], "r").is_err(), "cut at {end}");
    }
}

#[test]
fn replaces_only_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.jsonl");
    write(&path, &lines());
    write(&path, &[]);
    let content = std::fs::read(&path).unwrap();
    // A full disk or a crash cut the record inside its first line.
    std::fs::write(&path, &content[..content.len() / 2]).unwrap();
    write(&path, &[]);
    for precious in ["taxes", "{\"type\":\"header\"}\n", "{}\n"] {
        std::fs::write(&path, precious).unwrap();
        let error = RecordWriter::create(&path, &header()).err().unwrap().to_string();
        assert!(error.contains("is not overwritten"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), precious);
    }
}

#[test]
fn rejects_malformed_records() {
    let header_line = serde_json::to_string(&Line::Header(header())).unwrap();
    let summary = serde_json::to_string(&Line::Summary(Summary::default())).unwrap();
    for (text, wanted) in [
        (String::new(), "empty"),
        ("t,w\n0,1\n".into(), "is this a record?"),
        (header_line.replace("tacit-record", "other"), "format is \"other\""),
        (header_line.replace("\"version\":1", "\"version\":2"), "version is 2, this program reads version 1"),
        (format!("{header_line}\n{header_line}\n"), "line 2: a second header"),
        (format!("{header_line}\nrubbish\n{{}}\n"), "r, line 2"),
        (format!("{header_line}\n{summary}\n{summary}\n"), "goes on after its summary"),
        (format!("{header_line}\n{}", " ".repeat(MAX_LINE + 1)), "longer than"),
    ] {
        let error = parse_record(text.as_bytes(), "r").unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}; {wanted}");
    }
    assert!(read_record(Path::new("/nonexistent/r.jsonl")).unwrap_err().to_string().contains("/nonexistent"));
    // Readers ignore fields of later versions.
    let extended = header_line.replacen('{', "{\"colour\":[1],", 1);
    assert_eq!(parse_record(extended.as_bytes(), "r").unwrap().header, header());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..200) {
        let _ = parse_line(&bytes);
        let mut text = serde_json::to_vec(&Line::Header(header())).unwrap();
        text.push(b'\n');
        text.extend(bytes);
        let _ = parse_record(&text[cut.min(text.len())..], "r");
    }
}

fn succeeds(command: &[&str]) -> bool {
    std::process::Command::new(command[0]).args(&command[1..]).status().is_ok_and(|s| s.success())
}

/// Runs a test on a file system of its own, of a given size: with its path, and with that of a record there.
fn on_small_disk(size: &str, test: impl FnOnce(&str, &Path) + std::panic::UnwindSafe) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    if !succeeds(&["mount", "-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", root]) {
        eprintln!("skipped: a full disk needs root and mount (tmpfs)");
        return;
    }
    let path = folder.path().join("r.jsonl");
    let result = std::panic::catch_unwind(|| test(root, &path));
    // A child that another test is just starting holds these files until its `exec`.
    let is_unmounted = (0..600).any(|_| {
        let done = succeeds(&["umount", root]);
        (!done).then(|| std::thread::sleep(Duration::from_millis(100)));
        done
    });
    assert!(is_unmounted, "{root} stays mounted");
    result.unwrap();
}

#[test]
fn full_disk_keeps_whole_lines() {
    on_small_disk("64k", |root, path| {
        let mut writer = RecordWriter::create(path, &header()).unwrap();
        let note = |i: usize| Line::Note(Note { t: i as f64, text: "x".repeat(1000) });
        let line_count = (0..).find(|&i| writer.append(&note(i)).is_err()).unwrap();
        assert!((40..70).contains(&line_count), "{line_count}");
        let error = writer.append(&note(0)).unwrap_err().to_string();
        assert!(error.contains("r.jsonl"), "{error}");
        assert!(error.contains("space"), "{error}");
        let record = read_record(path).unwrap();
        assert_eq!(record.notes.len(), line_count);
        assert_eq!(record.incomplete.as_deref(), Some("the record ended without a summary"));
        assert!(succeeds(&["mount", "-o", "remount,size=256k", root]));
        writer.append(&note(7)).unwrap();
        writer.append(&Line::Summary(Summary::default())).unwrap();
        let record = read_record(path).unwrap();
        assert_eq!((record.notes.len(), record.incomplete), (line_count + 1, None));
    });
}

#[test]
fn sampler_continues_on_full_disk() {
    let config = |output: &Path| SamplerConfig {
        output: Some(output.to_owned()),
        interval: Duration::from_millis(2),
        keep_samples: true,
        ..SamplerConfig::default()
    };
    assert!(Sampler::start(config(Path::new("/dev/full"))).is_err());
    on_small_disk("16k", |_, path| {
        let sampler = Sampler::start(config(path)).unwrap();
        (0..400).for_each(|_| sampler.sample_now());
        let stopped = sampler.stop().unwrap();
        assert!(stopped.lost_lines > 0);
        assert!(stopped.samples.len() >= 402, "all samples are in memory");
        assert_eq!(stopped.notes.iter().filter(|n| n.text.contains("sampling goes on")).count(), 1);
        assert!(stopped.notes.iter().any(|n| n.text.contains("lines are lost")));
        let count = stopped.samples.len() as u64 - stopped.lost_lines;
        // The summary is short and may just fit.
        let finished = stopped.finish().is_ok();
        let record = read_record(path).unwrap();
        assert!(!record.samples.is_empty());
        assert!(record.samples.len() as u64 <= count + 2);
        assert_eq!(record.summary.is_some(), finished);
    });
}
