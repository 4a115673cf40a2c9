//! A phase whose stop flag is raised begins no further layer and returns no result, and its peer ends
//! too: for every back end whose phases have layers, in both phases, at either party.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::conformance::models::largest_model;
use crate::conformance::parties::{Models, resources};
use tacit_backends::seam::Stop;
use tacit_backends::{BackendError, ClientSide, Material, Registry, ServerSide};
use tacit_net::{Channel, MemTransport, Phase, Transport};

/// The limit of a party that is never stopped.
const NEVER: u64 = u64::MAX;

/// Stops a party when it reads or writes after `limit` layers, and notes how many had begun.
#[derive(Clone)]
struct Trip {
    stop: Stop,
    limit: u64,
    begun: Arc<AtomicU64>,
}

impl Trip {
    fn new(limit: u64) -> Self {
        Self { stop: Stop::default(), limit, begun: Arc::new(AtomicU64::new(NEVER)) }
    }

    fn check(&self) {
        if self.stop.begun_layers() >= self.limit && self.begun.load(SeqCst) == NEVER {
            self.begun.store(self.stop.raise(), SeqCst);
        }
    }
}

struct Tripping(MemTransport, Trip);

impl Read for Tripping {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.1.check();
        self.0.read(buf)
    }
}

impl Write for Tripping {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.1.check();
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Transport for Tripping {
    fn peer(&self) -> String {
        self.0.peer()
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.set_stall_timeout(timeout)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.0.set_deadline(deadline);
    }
}

/// The run of a party: layers begun by the end of setup, offline and online phase; and why it ended.
struct PartyRun {
    begun: Vec<u64>,
    end: Result<(), BackendError>,
}

/// Runs all phases of one input, each party until its end or its stop.
fn run(models: &Models, input: &[f32], trips: &[Trip; 2]) -> [PartyRun; 2] {
    let [client_resources, server_resources] = resources();
    let client_resources = client_resources.stopped_by(&trips[0].stop);
    let server_resources = server_resources.stopped_by(&trips[1].stop);
    let (a, b) = MemTransport::pair();
    macro_rules! party {
        ($side:expr, $transport:expr, $trip:expr, $online:expr) => {{
            let (mut side, mut begun) = ($side, Vec::new());
            let mut channel = Channel::new(Box::new(Tripping($transport, $trip.clone())));
            let mut phases = || {
                side.setup(&mut channel)?;
                channel.flush()?;
                begun.push($trip.stop.begun_layers());
                channel.set_phase(Phase::Offline);
                let material = side.offline(&mut channel)?;
                channel.flush()?;
                begun.push($trip.stop.begun_layers());
                channel.set_phase(Phase::Online);
                $online(&mut side, &mut channel, material)?;
                channel.flush()?;
                begun.push($trip.stop.begun_layers());
                Ok(())
            };
            let end = phases();
            PartyRun { begun, end }
        }};
    }
    thread::scope(|scope| {
        let client_thread = scope.spawn(|| {
            let side = models.client.clone().connect(&client_resources).unwrap();
            party!(side, a, trips[0], |side: &mut Box<dyn ClientSide>, channel, material: Material| {
                side.online(channel, material, input)
            })
        });
        let side = models.server.clone().connect(&server_resources).unwrap();
        let server_run = party!(side, b, trips[1], |side: &mut Box<dyn ServerSide>, channel, material| side
            .online(channel, material));
        [client_thread.join().unwrap(), server_run]
    })
}

#[test]
fn no_layer_begins_after_the_stop_flag() {
    let model = largest_model();
    let input = vec![0.1; model.interface.input_len()];
    let mut stopped = Vec::new();
    let variants = [("cheetah", ""), ("sci-he", ""), ("dealt", ""), ("dealt", "linear=he"), ("fss", "")];
    for (id, options) in variants {
        let registry = Registry::standard();
        let backend = registry.get(id).unwrap();
        let models = Models::lower(&**backend, &model, &options.parse().unwrap());
        let id = format!("{id} {options}").trim_end().to_owned();
        let complete = run(&models, &input, &[Trip::new(NEVER), Trip::new(NEVER)]);
        for (party, name) in ["client", "server"].into_iter().enumerate() {
            let layers = &complete[party].begun;
            assert!(complete[party].end.is_ok(), "{id}, {name}: {layers:?}");
            assert!(layers[0] == 0, "{id}, {name}: {layers:?}");
            for (phase, share) in [(1, 2), (1, u64::MAX), (2, 2)] {
                // In the middle of the phase, and after its first layer: a peer may
                // receive several layers at once.
                let first = layers[phase - 1];
                let limit = first + ((layers[phase] - first) / share).max(1);
                let mut trips = [Trip::new(NEVER), Trip::new(NEVER)];
                trips[party].limit = limit;
                let runs = run(&models, &input, &trips);
                let begun_at_flag = trips[party].begun.load(SeqCst);
                if begun_at_flag >= layers[phase] {
                    // The party had sent and received all messages of this phase before.
                    continue;
                }
                let case = format!("{id}, {name}, phase {phase}");
                assert!(matches!(runs[party].end, Err(BackendError::Stopped)), "{case}");
                assert_eq!(trips[party].stop.begun_layers(), begun_at_flag, "{case}: a layer began after the flag");
                assert_eq!(runs[party].begun.len(), phase, "{case}: the phase gave something");
                assert!(runs[1 - party].end.is_err(), "{case}: the peer was told nothing");
                stopped.push(case);
            }
        }
    }
    for case in [
        "cheetah, server, phase 1",
        "cheetah, client, phase 1",
        "cheetah, server, phase 2",
        "sci-he, server, phase 1",
        "sci-he, client, phase 1",
        "sci-he, server, phase 2",
        "dealt, server, phase 1",
        "dealt linear=he, server, phase 1",
        "dealt linear=he, client, phase 1",
        "fss, server, phase 1",
    ] {
        assert!(stopped.iter().any(|stopped_case| stopped_case == case), "{case} was not stopped: {stopped:?}");
    }
}
