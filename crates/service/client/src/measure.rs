//! The cost of a phase for one party: wall time, processor time, peak memory, bytes and rounds. If
//! `TACIT_MARKS` names a listener (`tacit lab`), phases are also marked for it.
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tacit_measure::MeasureError;
use tacit_measure::clock::process_cpu_s;
use tacit_measure::mark::MarkSender;
use tacit_measure::usage::high_water_bytes;
use tacit_net::{Channel, Phase, Traffic};

/// One party's figures for one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Wall time in seconds.
    pub wall_s: f64,
    /// Processor time of the whole process in seconds: of all its threads and sessions.
    pub cpu_s: f64,
    /// Largest resident set of the process during the phase, in bytes; 0 if the system does not
    /// report it.
    pub peak_rss_bytes: u64,
    /// Bytes sent, with frame headers, without TLS and TCP.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Round trips, counted as turns from sending to waiting.
    pub rounds: u64,
}

/// Both parties' figures for one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// The client's figures, measured here.
    pub client: Figures,
    /// The server's figures, as the server reports them.
    pub server: Figures,
}

/// The listener for phase marks, if this process is measured from outside.
#[derive(Clone, Default)]
pub struct Marks(Option<Arc<MarkSender>>);

impl Marks {
    /// Connects to the listener in `TACIT_MARKS`, if that is set. A missing listener causes a
    /// warning: measuring must not stop work.
    #[must_use]
    pub fn from_env(party: &str) -> Self {
        match MarkSender::from_env(party) {
            Ok(sender) => Self(sender.map(Arc::new)),
            Err(error) => {
                tracing::warn!("phases are not marked: {error}");
                Self(None)
            }
        }
    }

    fn tell(&self, mark: impl FnOnce(&MarkSender) -> Result<(), MeasureError>) {
        if let Some(Err(error)) = self.0.as_deref().map(mark) {
            tracing::warn!("phases are no longer marked: {error}");
        }
    }
}

/// A running measurement.
pub struct Meter {
    start: Instant,
    cpu_s: f64,
    phase: Phase,
    traffic: Traffic,
    open: OpenPhase,
}

/// A marked phase that has not ended; dropping it marks the phase as failed.
struct OpenPhase {
    marks: Marks,
    phase: Phase,
}

impl OpenPhase {
    fn end(mut self, figures: &Figures) {
        let told = [
            ("sent_bytes", figures.sent_bytes as f64),
            ("received_bytes", figures.received_bytes as f64),
            ("rounds", figures.rounds as f64),
        ];
        std::mem::take(&mut self.marks).tell(|sender| sender.end(self.phase.name(), &told));
    }
}

impl Drop for OpenPhase {
    fn drop(&mut self) {
        self.marks.tell(|sender| sender.end(self.phase.name(), &[("failed", 1.0)]));
    }
}

impl Meter {
    /// Starts measuring and books the channel's traffic on `phase`.
    #[must_use]
    pub fn start(channel: &mut Channel, phase: Phase, marks: &Marks) -> Self {
        // If this reset of the high-water mark is not allowed, the peak is that of the whole life.
        let _ = fs::write("/proc/self/clear_refs", "5");
        channel.set_phase(phase);
        marks.tell(|sender| sender.begin(phase.name()));
        let open = OpenPhase { marks: marks.clone(), phase };
        Self { start: Instant::now(), cpu_s: process_cpu_s(), phase, traffic: channel.traffic(phase), open }
    }

    /// The measured phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the figures since the start.
    pub fn stop(self, channel: &Channel) -> Figures {
        let traffic = channel.traffic(self.phase) - self.traffic;
        let figures = Figures {
            wall_s: self.start.elapsed().as_secs_f64(),
            cpu_s: process_cpu_s() - self.cpu_s,
            peak_rss_bytes: high_water_bytes(Path::new("/proc/self")).unwrap_or(0),
            sent_bytes: traffic.sent,
            received_bytes: traffic.received,
            rounds: traffic.rounds,
        };
        self.open.end(&figures);
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use tacit_measure::mark::{Edge, MarkLine};
    use tacit_net::{Tag, mem_pair};

    #[test]
    fn marks_phases_with_figures() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("marks");
        let listener = UnixListener::bind(&socket).unwrap();
        let marks = Marks(Some(Arc::new(MarkSender::connect(socket.to_str().unwrap(), "client").unwrap())));
        let (stream, _) = listener.accept().unwrap();
        let (mut channel, mut peer) = mem_pair();
        let meter = Meter::start(&mut channel, Phase::Offline, &marks);
        let tag = Tag::new(1, "test");
        channel.send(tag, b"four").unwrap();
        channel.flush().unwrap();
        assert_eq!(peer.recv_max(tag, 10).unwrap(), b"four");
        let figures = meter.stop(&channel);
        drop(Meter::start(&mut channel, Phase::Online, &marks));
        // Without a listener, marks do nothing.
        Meter::start(&mut channel, Phase::Online, &Marks::default()).stop(&channel);
        drop(marks);
        let lines = BufReader::new(stream).lines().map(|line| MarkLine::parse(line.unwrap().as_bytes()).unwrap());
        let lines: Vec<MarkLine> = lines.collect();
        assert_eq!(lines[0], MarkLine::Party("client".into()));
        let marked = lines[1..].iter().map(|line| match line {
            MarkLine::Mark { edge, phase, figures, .. } => (phase.as_str(), *edge, figures),
            other => panic!("{other} is no mark"),
        });
        let marked: Vec<_> = marked.collect();
        let edges: Vec<_> = marked.iter().map(|(phase, edge, _)| (*phase, *edge)).collect();
        let [begin, end] = [Edge::Begin, Edge::End];
        assert_eq!(edges, [("offline", begin), ("offline", end), ("online", begin), ("online", end)]);
        let told = marked[1].2;
        assert_eq!(told["sent_bytes"], figures.sent_bytes as f64);
        assert!(figures.sent_bytes >= 4);
        assert!(told.contains_key("received_bytes"));
        assert!(told.contains_key("rounds"));
        assert_eq!(marked[3].2["failed"], 1.0);
    }
}
