use super::*;
use crate::record::{Edge, PartySample};
use crate::source::{Provenance, Rail, SourceInfo};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn header() -> Header {
    let rails = vec![Rail { name: "package-0".into(), counted: true }];
    Header {
        format: FORMAT.into(),
        version: VERSION,
        host: "pi".into(),
        started_unix_ns: 1_700_000_000_000_000_001,
        interval_s: 0.1,
        sources: vec![SourceInfo { name: "rapl".into(), provenance: Provenance::Measured, rails, min_interval_ms: 1 }],
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
fn a_record_comes_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.jsonl");
    write(&path, &lines());
    let record = read_record(&path).unwrap();
    assert_eq!(record.header, header());
    let lines_read: Vec<Line> = [
        Line::Sample(record.samples[0].clone()),
        Line::Mark(record.marks[0].clone()),
        Line::Note(record.notes[0].clone()),
        Line::Sample(record.samples[1].clone()),
        Line::Summary(record.summary.clone().unwrap()),
    ]
    .to_vec();
    assert_eq!((lines_read, record.incomplete), (lines(), None));
}

#[test]
fn a_record_cut_anywhere_is_read_up_to_its_last_whole_line() {
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
fn a_record_replaces_a_record_and_nothing_else() {
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
fn what_is_no_record_is_refused_with_a_reason() {
    let header_line = serde_json::to_string(&Line::Header(header())).unwrap();
    let refuse = |text: &str| parse_record(text.as_bytes(), "r").unwrap_err().to_string();
    assert!(refuse("").contains("empty"));
    assert!(refuse("t,w\n0,1\n").contains("is this a record?"));
    assert!(refuse(&header_line.replace("tacit-record", "other")).contains("format is \"other\""));
    assert!(
        refuse(&header_line.replace("\"version\":1", "\"version\":2"))
            .contains("version is 2, this program reads version 1")
    );
    assert!(refuse(&format!("{header_line}\n{header_line}\n")).contains("line 2: a second header"));
    assert!(refuse(&format!("{header_line}\nrubbish\n{{}}\n")).contains("r, line 2"));
    let summary = serde_json::to_string(&Line::Summary(Summary::default())).unwrap();
    assert!(refuse(&format!("{header_line}\n{summary}\n{summary}\n")).contains("goes on after its summary"));
    assert!(refuse(&format!("{header_line}\n{}", " ".repeat(MAX_LINE + 1))).contains("longer than"));
    assert!(read_record(Path::new("/nonexistent/r.jsonl")).unwrap_err().to_string().contains("/nonexistent"));
    // Readers ignore fields of later versions.
    let extended = header_line.replacen('{', "{\"colour\":[1],", 1);
    assert_eq!(parse_record(extended.as_bytes(), "r").unwrap().header, header());
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..200) {
        let _ = parse_line(&bytes);
        let mut text = serde_json::to_vec(&Line::Header(header())).unwrap();
        text.push(b'\n');
        text.extend(bytes);
        let _ = parse_record(&text[cut.min(text.len())..], "r");
    }
}

fn mount(args: &[&str]) -> bool {
    std::process::Command::new(args[0]).args(&args[1..]).status().is_ok_and(|s| s.success())
}

/// A child that another test is just starting holds these files until its `exec`.
fn unmount(root: &str) {
    let is_unmounted = (0..600).any(|_| {
        let done = mount(&["umount", root]);
        (!done).then(|| std::thread::sleep(std::time::Duration::from_millis(100)));
        done
    });
    assert!(is_unmounted, "{root} stays mounted");
}

/// On a separate file system of 64 kB.
#[test]
fn on_a_full_disk_the_record_keeps_every_whole_line_and_can_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", root]) {
        eprintln!("skipped: a full disk needs root and mount (tmpfs)");
        return;
    }
    let path = folder.path().join("r.jsonl");
    let result = std::panic::catch_unwind(|| {
        let mut writer = RecordWriter::create(&path, &header()).unwrap();
        let note = |i: usize| Line::Note(Note { t: i as f64, text: "x".repeat(1000) });
        let line_count = (0..).find(|&i| writer.append(&note(i)).is_err()).unwrap();
        assert!((40..70).contains(&line_count), "{line_count}");
        let error = writer.append(&note(0)).unwrap_err().to_string();
        assert!(error.contains("r.jsonl"), "{error}");
        assert!(error.contains("space"), "{error}");
        let record = read_record(&path).unwrap();
        assert_eq!(record.notes.len(), line_count);
        assert_eq!(record.incomplete.as_deref(), Some("the record ended without a summary"), "no torn line");
        assert!(mount(&["mount", "-o", "remount,size=256k", root]));
        writer.append(&note(7)).unwrap();
        writer.append(&Line::Summary(Summary::default())).unwrap();
        let record = read_record(&path).unwrap();
        assert_eq!((record.notes.len(), record.incomplete), (line_count + 1, None));
    });
    unmount(root);
    result.unwrap();
}

#[test]
fn a_sampler_on_a_full_disk_goes_on_and_says_so() {
    use crate::sampler::{Sampler, SamplerConfig};
    let config = |output: &Path| SamplerConfig {
        output: Some(output.to_owned()),
        interval: std::time::Duration::from_millis(2),
        keep_samples: true,
        ..SamplerConfig::default()
    };
    assert!(Sampler::start(config(Path::new("/dev/full"))).is_err(), "known from the start");
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", root]) {
        eprintln!("skipped: a full disk needs root and mount (tmpfs)");
        return;
    }
    let path = folder.path().join("r.jsonl");
    let result = std::panic::catch_unwind(|| {
        let sampler = Sampler::start(config(&path)).unwrap();
        (0..400).for_each(|_| sampler.sample_now());
        let stopped = sampler.stop().unwrap();
        assert!(stopped.lost_lines > 0);
        assert!(stopped.samples.len() >= 402, "all samples are in memory");
        assert_eq!(stopped.notes.iter().filter(|n| n.text.contains("sampling goes on")).count(), 1);
        assert!(stopped.notes.iter().any(|n| n.text.contains("lines are lost")));
        let count = stopped.samples.len() as u64 - stopped.lost_lines;
        // The summary is short and may just fit.
        let finished = stopped.finish().is_ok();
        let record = read_record(&path).unwrap();
        assert!(!record.samples.is_empty());
        assert!(record.samples.len() as u64 <= count + 2);
        assert_eq!(record.summary.is_some(), finished);
    });
    unmount(root);
    result.unwrap();
}
