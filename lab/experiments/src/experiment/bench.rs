//! One run: link set up and measured, tunnel, server, sampler, client, and the results.
use super::checked::{Experiment, Workload};
use super::command::{CommandLine, fill};
use super::meter::Meter;
use super::plan::{self, Job};
use super::port;
use super::program::{Place, Program, Start, WaitEnd, name, pause, wait_client, wait_ready};
use super::scratch::Scratch;
use crate::LabError;
use crate::campaign::{self, Idle, IdlePower, LinkFigures, Run};
use crate::link::{Link, Side};
use crate::tunnel::{self, Tunnel};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tacit_measure::mark::{ENV_MARKS, ENV_PARTY};
use tacit_meter::marks::MarkListener;
use tacit_meter::record::Edge;
use tacit_meter::sampler::{Since, Stopped};
use tacit_store::keys;

/// Port of the server on a link, where every port is free.
const SERVER_PORT: u16 = 7878;
const DEALER_PORT: u16 = 7879;
/// Party and file name of a dealer, which runs on the server's side.
const DEALER: &str = "dealer";
/// Longest time until a server is ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a server to print its results after the client's end.
const RESULTS_TIMEOUT: Duration = Duration::from_millis(500);

enum RunError {
    /// Affects this run only.
    Run(String),
    /// Would affect every other run too: missing rights, full disk.
    All(LabError),
    Stopped,
}

impl From<LabError> for RunError {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Failed { .. } | LabError::Net(_) => Self::Run(error.to_string()),
            _ => Self::All(error),
        }
    }
}

pub(super) struct Bench<'a> {
    pub experiment: &'a Experiment,
    /// The campaign's folder, absolute.
    pub dir: &'a Path,
    /// Program that the name `tacit` stands for.
    pub program: &'a Path,
    pub meter: Meter,
    pub stop: &'a AtomicBool,
}

/// Link, tunnel and addresses of a run. The tunnel is dropped first.
struct Site {
    tunnel: Option<Tunnel>,
    place: Place,
    client: Ipv4Addr,
    server: Ipv4Addr,
    port: u16,
    dealer_port: u16,
}

impl Site {
    fn emulator_s(&self) -> f64 {
        match &self.place {
            Place::Host => 0.0,
            Place::Link(link) => link.emulator_cpu().as_secs_f64(),
        }
    }
}

struct Setting<'a> {
    job: &'a Job,
    stem: String,
    workload: &'a Workload,
    site: &'a Site,
    values: BTreeMap<String, String>,
    scratch: &'a Scratch,
}

impl Bench<'_> {
    /// Performs one run; `None` if the user asked to stop. An error of this run only is its [`Run::failure`].
    pub(super) fn conduct(&mut self, job: &Job) -> Result<Option<Run>, LabError> {
        let stem = plan::file_stem(self.experiment, job);
        let mut run =
            Run { cell: plan::labels(self.experiment, job.cell), repetition: job.repetition, ..Run::default() };
        match self.attempt(job, stem, &mut run) {
            Ok(()) => {}
            Err(RunError::Run(failure)) => run.failure = Some(failure),
            Err(RunError::All(error)) => return Err(error),
            Err(RunError::Stopped) => return Ok(None),
        }
        Ok(Some(run))
    }

    fn attempt(&mut self, job: &Job, stem: String, run: &mut Run) -> Result<(), RunError> {
        let scratch = Scratch::new()?;
        let experiment = self.experiment;
        let (site, link) = self.site(job)?;
        run.link = link;
        let workload = &experiment.workloads()[job.cell.workload];
        let values = self.values(job, &site, scratch.path())?;
        let setting = Setting { job, stem, workload, site: &site, values, scratch: &scratch };
        self.measure(&setting, run)
    }

    fn site(&self, job: &Job) -> Result<(Site, Option<LinkFigures>), RunError> {
        let link = &self.experiment.links()[job.cell.link];
        let Some(spec) = &link.spec else {
            let home = Ipv4Addr::LOCALHOST;
            let (place, port, dealer_port) = (Place::Host, free_port()?, free_port()?);
            return Ok((Site { tunnel: None, place, client: home, server: home, port, dealer_port }, None));
        };
        let link_up = Link::up(spec)?;
        let effort = self.experiment.spec().measure_s;
        let figures = (effort > 0.0).then(|| link_up.measure(Duration::from_secs_f64(effort))).transpose()?;
        let transport = self.experiment.transports()[job.cell.transport];
        let options = tunnel::Options::for_program(self.program);
        let tunnel = transport.is_tunnelled().then(|| Tunnel::up(&link_up, &options)).transpose()?;
        let [client, server] = [Side::Client, Side::Server]
            .map(|side| tunnel.as_ref().map_or_else(|| link_up.address(side), |t| t.address(side)));
        let place = Place::Link(Box::new(link_up));
        let (port, dealer_port) = (SERVER_PORT, DEALER_PORT);
        Ok((Site { tunnel, place, client, server, port, dealer_port }, figures))
    }

    /// Values of the placeholders. Creates keys if a command uses them.
    fn values(&self, job: &Job, site: &Site, scratch: &Path) -> Result<BTreeMap<String, String>, LabError> {
        let (spec, transport) = (self.experiment.spec(), self.experiment.transports()[job.cell.transport]);
        let pace = self.experiment.paces()[job.cell.pace];
        let (keys, dir) = (scratch.join("keys"), scratch.join("dir"));
        std::fs::create_dir(&dir).map_err(LabError::io(&dir))?;
        let workload = &self.experiment.workloads()[job.cell.workload];
        let mut dealing = BTreeMap::new();
        if workload.dealer.is_some() {
            dealing = dealer_values(site, &keys)?;
        } else if transport.uses_tls() || workload.uses("keys") {
            keys::init_closed(&keys)?;
        }
        let campaign = self.dir.display().to_string();
        let of_campaign = BTreeMap::from([("campaign".to_owned(), campaign.clone())]);
        let mut values: BTreeMap<String, String> =
            spec.values.iter().map(|(k, v)| (k.clone(), fill(v, &of_campaign))).collect();
        values.extend(dealing);
        values.extend(
            [
                ("server", site.server.to_string()),
                ("client", site.client.to_string()),
                ("port", site.port.to_string()),
                ("transport", transport.to_string()),
                ("keys", keys.display().to_string()),
                ("pace", pace.map_or_else(String::new, |p| p.to_string())),
                ("pace_bps", pace.map_or(0, |p| p.bits_per_second()).to_string()),
                ("seconds", spec.seconds.to_string()),
                ("dir", dir.display().to_string()),
                ("campaign", campaign),
            ]
            .map(|(k, v)| (k.to_owned(), v)),
        );
        Ok(values)
    }

    fn start(
        &self,
        setting: &Setting<'_>,
        party: &'static str,
        side: Side,
        command: &CommandLine,
        socket: &Path,
    ) -> Result<Program, LabError> {
        let mut words = command.expand(&setting.values);
        if words[0] == "tacit" {
            words[0] = self.program.display().to_string();
        }
        let variables = setting.workload.environment.iter().map(|(k, v)| (k.clone(), fill(v, &setting.values)));
        let mut environment: BTreeMap<String, String> = variables.collect();
        environment.insert(ENV_MARKS.into(), socket.display().to_string());
        environment.insert(ENV_PARTY.into(), party.into());
        let (log, dir) = (self.dir.join("logs").join(&setting.stem), Path::new(&setting.values["dir"]));
        let (environment, scratch) = (&environment, setting.scratch);
        let start = Start { party, side, words: &words, environment, dir, log: &log, scratch };
        Program::start(&setting.site.place, &start)
    }

    /// Starts a program, if there is a command, on the server's side and waits until it is ready.
    fn start_ready(
        &self,
        setting: &Setting<'_>,
        party: &'static str,
        command: Option<&CommandLine>,
        ready: Option<&str>,
        socket: &Path,
    ) -> Result<Option<Program>, RunError> {
        let Some(command) = command else { return Ok(None) };
        let mut program = self.start(setting, party, Side::Server, command, socket)?;
        let patience = START_TIMEOUT.min(Duration::from_secs_f64(self.experiment.spec().timeout_s));
        match wait_ready(&mut program, ready, setting.site.port, patience, self.stop)? {
            WaitEnd::Done => Ok(Some(program)),
            WaitEnd::Stopped => Err(RunError::Stopped),
            WaitEnd::TimedOut => {
                let action =
                    ready.map_or_else(|| format!("listen at port {}", setting.site.port), |r| format!("print {r:?}"));
                let words = program.last_words();
                Err(RunError::Run(format!("the {party} did not {action} within {} s{words}", patience.as_secs_f64())))
            }
            WaitEnd::PeerGone => {
                let status = program.end()?;
                let ending = program.failure(status).unwrap_or_else(|| format!("the {party} ended"));
                Err(RunError::Run(format!("{ending} before it was ready")))
            }
        }
    }

    fn measure(&mut self, setting: &Setting<'_>, run: &mut Run) -> Result<(), RunError> {
        let socket = setting.scratch.path().join("marks");
        // Bound before the server starts, since it may connect at once.
        let door = UnixListener::bind(&socket).map_err(LabError::io(&socket))?;
        let Workload { server, dealer, ready, .. } = setting.workload;
        let dealer = self.start_ready(setting, DEALER, dealer.as_ref(), Some("listening"), &socket)?;
        let mut server = self.start_ready(setting, name(Side::Server), server.as_ref(), ready.as_deref(), &socket)?;
        let record = format!("records/{}.jsonl", setting.stem);
        let mut labels = run.cell.clone();
        labels.insert("repetition".into(), setting.job.repetition.to_string());
        let facts = setting.site.tunnel.as_ref().map(|t| t.facts().clone()).unwrap_or_default();
        let emulator_before_s = setting.site.emulator_s();
        let sampler = self.meter.start(self.dir.join(&record), labels, &facts, None)?;
        let marks = MarkListener::from_unix(door, &socket, &sampler.handle()).map_err(LabError::from)?;
        for side in [Side::Client, Side::Server] {
            let tunnel = setting.site.tunnel.as_ref().map(|t| t.processes(side)).unwrap_or_default();
            let program = server.as_ref().filter(|_| side == Side::Server).map(Program::pid);
            for pid in tunnel.into_iter().chain(program) {
                sampler.add_process(name(side), pid, Since::Now);
            }
        }
        if let Some(dealer) = &dealer {
            sampler.add_process(DEALER, dealer.pid(), Since::Now);
        }
        // At least one sample of a server that ends before the next regular one.
        sampler.sample_now();
        sampler.mark("runner", "run", Edge::Begin, BTreeMap::new());
        let started = self.start(setting, name(Side::Client), Side::Client, &setting.workload.client, &socket);
        let ended = started.and_then(|mut client| {
            sampler.add_process("client", client.pid(), Since::Birth);
            let patience = Duration::from_secs_f64(self.experiment.spec().timeout_s);
            let begun_at = Instant::now();
            let waited = wait_client(&mut client, server.as_mut(), patience, self.stop);
            let took = begun_at.elapsed();
            match waited {
                WaitEnd::Done => client.reap(&sampler.handle())?,
                _ => sampler.sample_now(),
            }
            Ok((client, waited, took))
        });
        sampler.mark("runner", "run", Edge::End, BTreeMap::new());
        marks.close();
        let mut stopped = sampler.stop().map_err(LabError::from)?;
        let emulator_s = setting.site.emulator_s() - emulator_before_s;
        self.meter.take_back(&mut stopped);
        let outcome = match ended {
            Ok((mut client, waited, took)) => {
                self.judge(&mut client, waited, &mut server).map(|results| keep(results, took, &mut stopped))
            }
            Err(error) => Err(error.into()),
        };
        self.close(setting, stopped, emulator_s, &record, run)?;
        outcome
    }

    fn judge(
        &self,
        client: &mut Program,
        waited: WaitEnd,
        server: &mut Option<Program>,
    ) -> Result<BTreeMap<String, f64>, RunError> {
        match waited {
            WaitEnd::Done => {}
            WaitEnd::Stopped => return Err(RunError::Stopped),
            WaitEnd::TimedOut => {
                let limit = self.experiment.spec().timeout_s;
                return Err(RunError::Run(format!("the client did not end within {limit} s{}", client.last_words())));
            }
            WaitEnd::PeerGone => {
                let words = server.as_ref().map(Program::last_words).unwrap_or_default();
                return Err(RunError::Run(format!("the server ended and the client did not{words}")));
            }
        }
        let status = client.end()?;
        if let Some(failure) = client.failure(status) {
            return Err(RunError::Run(failure));
        }
        let mut results = client.results().map_err(RunError::Run)?;
        if let Some(server) = server {
            let by_itself = server.ended_within(RESULTS_TIMEOUT);
            let status = server.end()?;
            if let Some(failure) = server.failure(status).filter(|_| by_itself) {
                return Err(RunError::Run(failure));
            }
            let server_results = server.results().map_err(RunError::Run)?;
            results.extend(server_results.into_iter().map(|(k, v)| (format!("server.{k}"), v)));
        }
        Ok(results)
    }

    /// Completes the record, and copies its figures into the run's line.
    fn close(
        &self,
        setting: &Setting<'_>,
        mut stopped: Stopped,
        emulator_s: f64,
        record: &str,
        run: &mut Run,
    ) -> Result<(), RunError> {
        let results = &stopped.summary.results;
        // On loopback the sampler cannot separate the parties' bytes: the client's count serves for both.
        let counted_bytes = ["sent_bytes", "received_bytes"].iter().filter_map(|k| results.get(*k)).sum::<f64>();
        let bytes = match setting.site.place {
            Place::Host => ["client", "server"].map(|p| (p.to_owned(), counted_bytes)).into(),
            Place::Link(_) => BTreeMap::new(),
        };
        run.energy = self.meter.settle(&mut stopped, &bytes, emulator_s);
        run.parties = stopped.summary.parties.clone();
        run.results = stopped.summary.results.clone();
        run.duration_s = stopped.summary.duration_s;
        run.record = record.to_owned();
        let lost_lines = stopped.lost_lines;
        stopped.finish().map_err(LabError::from)?;
        if lost_lines > 0 {
            return Err(RunError::Run(format!(
                "{lost_lines} lines of the record could not be written: is the disk full?"
            )));
        }
        Ok(())
    }

    /// Measures the host at rest; `None` if the user asked to stop.
    pub(super) fn idle(&mut self, when: &str, number: usize) -> Result<Option<Idle>, LabError> {
        let length = Duration::from_secs_f64(self.experiment.spec().idle_s);
        let record = format!("records/idle-{number:02}-{when}.jsonl");
        let labels = BTreeMap::from([("idle".to_owned(), when.to_owned())]);
        let interval = self.meter.idle_interval(length);
        let sampler = self.meter.start(self.dir.join(&record), labels, &BTreeMap::new(), Some(interval))?;
        let was_full = pause(length, self.stop);
        let mut stopped = sampler.stop()?;
        let baselines = self.meter.set_baselines(&stopped);
        self.meter.take_back(&mut stopped);
        let duration_s = stopped.summary.duration_s;
        stopped.finish()?;
        let power = baselines
            .into_iter()
            .map(|(k, b)| (k, IdlePower { mean_w: b.mean_w, sd_w: b.sd_w, n: b.n, mean_sd_w: b.mean_sd_w }))
            .collect();
        Ok(was_full.then_some(Idle { when: when.into(), record, duration_s, power }))
    }
}

fn free_port() -> Result<u16, RunError> {
    port::find().map_err(|e| RunError::Run(format!("finding a free port: {e}")))
}

/// Values of the placeholders of a workload with a dealer; creates the keys of all three parties.
fn dealer_values(site: &Site, folder: &Path) -> Result<BTreeMap<String, String>, LabError> {
    let hosts = [site.server.to_string()];
    keys::init(folder, &hosts, &[name(Side::Client).into()])?;
    keys::add_dealer(folder, &hosts)?;
    // As in runs without a dealer, no party can be added later.
    let authority = folder.join("ca.key");
    campaign::remove(&authority).map_err(LabError::io(&authority))?;
    let address = format!("{}:{}", site.server, site.dealer_port);
    Ok([("dealer", address), ("dealer_pin", keys::dealer_pin(folder)?.to_string())]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
}

/// Adds the programs' results, with figures of the runner, to the summary.
fn keep(mut results: BTreeMap<String, f64>, took: Duration, stopped: &mut Stopped) {
    // Latency as defined by [PM24]: of the whole computation, with connection and keys.
    let total_s = results.get("seconds").copied().unwrap_or(took.as_secs_f64());
    results.entry("latency_s".into()).or_insert(total_s);
    for (party, bytes) in &stopped.party_bytes {
        results.insert(format!("{party}_wire_bytes"), *bytes as f64);
    }
    stopped.summary.results = results;
}
