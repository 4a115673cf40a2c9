use super::*;
use crate::sampler::{Sampler, SamplerConfig};
use tacit_measure::mark::MarkSender;

/// A sampler whose record is in the folder.
struct Recorder {
    sampler: Sampler,
    folder: tempfile::TempDir,
}

impl Recorder {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = SamplerConfig { output: Some(folder.path().join("r.jsonl")), ..SamplerConfig::default() };
        Self { sampler: Sampler::start(config).unwrap(), folder }
    }

    fn listen(&self) -> (MarkListener, PathBuf) {
        let path = self.folder.path().join("marks");
        (MarkListener::unix(&path, &self.sampler.handle()).unwrap(), path)
    }

    fn record(self) -> crate::record_file::Record {
        self.sampler.stop().unwrap().finish().unwrap();
        crate::record_file::read_record(&self.folder.path().join("r.jsonl")).unwrap()
    }
}

#[test]
fn records_marks_sent_just_before_close() {
    let recorder = Recorder::start();
    let (listener, path) = recorder.listen();
    let address = listener.address();
    std::thread::scope(|scope| {
        for party in ["client", "server"] {
            let address = &address;
            scope.spawn(move || {
                let sender = MarkSender::connect(address, party).unwrap();
                for _ in 0..20 {
                    sender.begin("online").unwrap();
                    sender.end("online", &[("sent_bytes", 12.0)]).unwrap();
                }
                sender.note("done: \u{e9}\n").unwrap();
            });
        }
    });
    // Not yet accepted when `close` begins.
    let late = MarkSender::connect(&address, "late").unwrap();
    late.begin("setup").unwrap();
    listener.close();
    assert!(!path.exists());
    let record = recorder.record();
    let mark_count = |party: &str| record.marks.iter().filter(|m| m.party == party).count();
    assert_eq!((mark_count("client"), mark_count("server"), mark_count("late")), (40, 40, 1));
    assert!(record.notes.iter().any(|n| n.text == "client: done:"), "{:?}", record.notes);
    assert!(record.marks.iter().all(|m| (0.0..60.0).contains(&m.t)));
    let client: Vec<_> = record.marks.iter().filter(|m| m.party == "client").collect();
    assert!(client.windows(2).all(|w| w[0].t <= w[1].t && w[0].edge != w[1].edge));
    assert_eq!(client[1].figures["sent_bytes"], 12.0);
}

#[test]
fn limits_malformed_and_excessive_input() {
    let recorder = Recorder::start();
    let (listener, path) = recorder.listen();
    let mut endless = UnixStream::connect(&path).unwrap();
    let _ = endless.write_all(&[b'a'; 100_000]);
    let mut odd = UnixStream::connect(&path).unwrap();
    odd.write_all(b"\n\xff\xfe\nbegin ../../etc\nbegin future 18446744073709551615\nbegin past 1\nbegin cut").unwrap();
    let mut noisy = UnixStream::connect(&path).unwrap();
    (0..300).for_each(|i| noisy.write_all(format!("note {i}\n").as_bytes()).unwrap());
    drop((endless, odd, noisy));
    let streams: Vec<_> = (0..80).filter_map(|_| UnixStream::connect(&path).ok()).collect();
    listener.close();
    drop(streams);
    let now = recorder.sampler.handle().seconds(monotonic_ns());
    let record = recorder.record();
    let phases: Vec<&str> = record.marks.iter().map(|m| m.phase.as_str()).collect();
    assert_eq!(phases, ["future", "past", "cut"]);
    // Times outside the measurement are those of arrival.
    assert!(record.marks.iter().all(|m| (0.0..=now).contains(&m.t)));
    for (text, count) in
        [("longer than 1024 bytes", 1), ("a mark was ignored", 1), ("more than 64 programs", 1), ("program: ", 100 + 2)]
    {
        assert_eq!(record.notes.iter().filter(|n| n.text.contains(text)).count(), count, "{text}");
    }
}

#[test]
fn sender_survives_lost_listener() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deaf");
    let deaf = UnixListener::bind(&path).unwrap();
    let sender = MarkSender::connect(path.to_str().unwrap(), "client").unwrap();
    let begin = Instant::now();
    let failures = (0..200_000).filter(|_| sender.begin("online").is_err()).count();
    assert_eq!(failures, 1);
    assert!(begin.elapsed() < Duration::from_secs(60));
    drop(deaf);
    // A child that another test is just starting also holds the listener, until its `exec`.
    let is_refused = |_| {
        std::thread::sleep(Duration::from_millis(5));
        MarkSender::connect(path.to_str().unwrap(), "client").is_err()
    };
    assert!((0..2000).any(is_refused));
    assert!(MarkSender::connect("tcp:127.0.0.1:1", "client").is_err());
    assert!(MarkSender::connect("/x", "a b").is_err());
    let recorder = Recorder::start();
    let (listener, _) = recorder.listen();
    let sender = MarkSender::connect(&listener.address(), "client").unwrap();
    assert!(sender.begin("not a name").is_err(), "refused here, and the connection stays");
    sender.begin("online").unwrap();
    listener.close();
    std::thread::sleep(Duration::from_millis(20));
    let error_count = (0..3).filter(|_| sender.end("online", &[]).is_err()).count();
    assert!(error_count <= 1);
    recorder.sampler.stop().unwrap();
}

#[test]
fn tcp_marks_use_clock_of_listener() {
    let recorder = Recorder::start();
    let handle = recorder.sampler.handle();
    let listener = MarkListener::tcp("127.0.0.1:0", &handle).unwrap();
    let sender = MarkSender::connect(&listener.address(), "client").unwrap();
    let before = handle.seconds(monotonic_ns());
    sender.begin("online").unwrap();
    let after = handle.seconds(monotonic_ns());
    let silent = TcpStream::connect(listener.address().strip_prefix("tcp:").unwrap()).unwrap();
    listener.close();
    drop(silent);
    let record = recorder.record();
    // On one host the true offset is 0, so the measured offset is at most half a round trip.
    let slack = 1.0;
    assert!((before - slack..after + slack).contains(&record.marks[0].t), "{before} {} {after}", record.marks[0].t);
}
