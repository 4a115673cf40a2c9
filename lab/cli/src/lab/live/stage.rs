//! Runs a server and its clients on this machine: the networks alone, or one cell.
use super::clients::{self, ClientReport};
use super::dealer::{self, Dealer};
use super::pin::{Cores, pin_thread};
use super::profile::{self, Profile};
use super::results;
use super::server::{DEALINGS, Server, Start};
use super::settings::{Cell, Settings};
use super::watch::{Phases, Watched, watch};
use crate::lab::files::replace;
use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::{Registry, Trust};
use tacit_cli::lowering::Lowering;
use tacit_experiments::campaign::{self, Run};
use tacit_experiments::experiment::Scratch;
use tacit_measure::clock::process_cpu_s;
use tacit_meter::process_tree::{ProcessTree, Since};
use tacit_meter::record::PartySample;
use tacit_sim::{Arrival, Comparison, RecordedInput, Recording, RunFile, Scenario, Summary};
use tacit_store::keys;

pub struct Stage<'a> {
    pub settings: &'a Settings,
    pub lowering: &'a Lowering,
    pub dir: &'a Path,
    /// The models' files, in the order of the networks.
    pub models: &'a [PathBuf],
    /// A core for each party, if they are pinned.
    pub cores: Option<Cores>,
    pub scratch: &'a Scratch,
    pub stop: &'a AtomicBool,
    /// Number of finished requests of the cell.
    pub done: &'a AtomicUsize,
}

struct CellRecord {
    reports: Vec<ClientReport>,
    watched: Watched,
    /// Resources that the server used from the first request on.
    server: PartySample,
    dealer: Option<PartySample>,
    /// Processor seconds of this process, which runs all clients.
    clients_cpu_s: f64,
}

struct Parties {
    server: Server,
    dealer: Option<Dealer>,
}

fn watch_process(pid: u32) -> anyhow::Result<ProcessTree> {
    let mut tree = ProcessTree::new("/proc");
    anyhow::ensure!(tree.add(pid, Since::Now), "process {pid} has ended");
    Ok(tree)
}

impl Stage<'_> {
    /// Makes keys for this many clients and an operator; returns the clients' fingerprints.
    pub fn make_keys(&self, clients: usize) -> anyhow::Result<Vec<String>> {
        let folder = self.keys();
        if folder.exists() {
            fs::remove_dir_all(&folder).context("removing earlier keys")?;
        }
        let names: Vec<String> = (0..clients).map(clients::name).collect();
        keys::init(&folder, &[], &names)?;
        keys::add_operator(&folder, "ops")?;
        if self.has_dealer()? {
            dealer::make_keys(self.scratch, &names)?;
        }
        names.iter().map(|name| Ok(keys::load_client(&folder, name)?.fingerprint.to_string())).collect()
    }

    fn keys(&self) -> PathBuf {
        self.scratch.path().join("keys")
    }

    fn has_dealer(&self) -> anyhow::Result<bool> {
        Ok(Registry::standard().get(&self.settings.backend)?.trust() == Trust::Dealer)
    }

    /// Starts a dealer, if the back end has one, and then a server.
    fn start(&self, policy: &str, connections: usize, learned: Option<&Path>, log: &str) -> anyhow::Result<Parties> {
        let core = self.cores.map(|cores| cores.dealer);
        let dealer = if self.has_dealer()? {
            Some(Dealer::start(core, &self.log_file(log, "dealer"), self.scratch)?)
        } else {
            None
        };
        let start = Start {
            models: self.models,
            lowering: self.lowering,
            policy,
            cores: self.settings.cores,
            // A few more, for ended connections that the server has not yet noticed.
            connections: connections + 16,
            core: self.cores.map(|cores| cores.server),
            learned,
            dealer: dealer.as_ref(),
            log: &self.log_file(log, "server"),
        };
        Ok(Parties { server: Server::start(&start, self.scratch)?, dealer })
    }

    fn log_file(&self, log: &str, party: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{log}.{party}.err"))
    }

    /// Runs `work` in a thread on the clients' core.
    fn as_client<T: Send>(&self, work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let core = self.cores.map(|cores| cores.clients);
        thread::scope(|scope| {
            let thread = scope.spawn(move || pin_thread(core).and_then(|()| work()));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn play(&self, parties: &Parties, arrivals: &[Arrival], in_turn: bool) -> anyhow::Result<Option<CellRecord>> {
        let (keys, stop) = (self.keys(), self.stop);
        let (nets, backend) = (self.settings.nets.as_slice(), self.settings.backend.as_str());
        let Parties { server, dealer } = parties;
        let interface = server.interface(&keys)?;
        let ready = self
            .as_client(|| clients::connect(server.address(), &keys, nets, backend, dealer.as_ref(), arrivals, stop))?;
        let Some(ready) = ready else { return Ok(None) };
        let mut tree = watch_process(server.pid()).context("the server")?;
        let mut dealers =
            dealer.as_ref().map(|dealer| watch_process(dealer.pid()).context("the dealer")).transpose()?;
        let (cpu_s, is_over) = (process_cpu_s(), AtomicBool::new(false));
        // Leave time to start the threads before the first request.
        let start = Instant::now() + Duration::from_millis(300);
        let (reports, watched) = thread::scope(|scope| {
            let watching = scope.spawn(|| watch(&interface, start, &is_over));
            let reports = self.as_client(|| match in_turn {
                true => clients::drive_in_turn(ready, start, stop, self.done),
                false => clients::drive(ready, start, stop, self.done),
            });
            is_over.store(true, Ordering::Release);
            (reports, watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (reports, watched) = (reports?, watched.context("watching the server")?);
        let (server, dealer) = (tree.sample(true), dealers.as_mut().map(|tree| tree.sample(true)));
        Ok(Some(CellRecord { reports, watched, server, dealer, clients_cpu_s: process_cpu_s() - cpu_s }))
    }

    /// Measures the costs of the networks alone, and keeps the server's learned profile in
    /// `learned`. None if stopped.
    pub fn measure_alone(&self, learned: &Path) -> anyhow::Result<Option<Profile>> {
        let runs = profile::runs(self.settings.nets.len());
        let clients = self.make_keys(runs.len())?;
        let parties = self.start("fcfs", runs.len(), None, "alone")?;
        let Some(played) = self.play(&parties, &runs, true)? else { return Ok(None) };
        if let Some(failure) = played.reports.iter().find_map(|report| report.failure.as_ref()) {
            return Err(anyhow!("{failure}").context("measuring the networks alone"));
        }
        campaign::own_folder(learned)?;
        parties.server.stop(Some(learned))?;
        Profile::from_runs(self.settings, &played.watched, &clients).map(Some)
    }

    /// Runs a cell and writes its files into the campaign's folder under this stem; none if stopped.
    /// A failure of server or clients gives a failed run, one in writing files is an error.
    pub fn cell(&self, cell: &Cell, stem: &str, profile: &Profile, learned: &Path) -> anyhow::Result<Option<Run>> {
        let began_at = Instant::now();
        let mut run = Run { cell: cell.labels(), ..Run::default() };
        match self.measure(cell, stem, profile, learned) {
            Ok(None) => return Ok(None),
            Ok(Some((recording, played))) => self.note(&mut run, stem, &recording, &played)?,
            // A run that the user stops has not failed.
            Err(_) if self.stop.load(Ordering::Relaxed) => return Ok(None),
            Err(error) => {
                run.failure = Some(format!("{error:#}"));
                run.duration_s = began_at.elapsed().as_secs_f64();
            }
        }
        Ok(Some(run))
    }

    fn measure(
        &self,
        cell: &Cell,
        stem: &str,
        profile: &Profile,
        learned: &Path,
    ) -> anyhow::Result<Option<(Recording, CellRecord)>> {
        let rate = profile.rates.get(&cell.workload).copied().context("the profile has no rate for the workload")?;
        let (workload, arrivals) = self.settings.draw(cell, profile.requests, rate)?;
        let clients = self.make_keys(arrivals.len())?;
        let parties = self.start(&cell.policy, 2 * arrivals.len(), Some(learned), stem)?;
        let Some(played) = self.play(&parties, &arrivals, false)? else { return Ok(None) };
        parties.server.stop(None)?;
        let inputs = inputs(&arrivals, &clients, &played);
        // D is the mean over the known jobs, so a missing job would falsify it silently.
        let mut pairs = played.reports.iter().zip(&inputs);
        if let Some(lost) = pairs.position(|(report, input)| report.failure.is_none() && input.on.is_none()) {
            anyhow::bail!("the server answered request {lost}, and its status has no online job of this request");
        }
        let recording = Recording {
            believed: profile.models(&self.settings.backend, self.has_dealer()?),
            cores: self.settings.cores,
            dealings: DEALINGS,
            policy: cell.policy.parse()?,
            workload,
            arrivals,
            inputs,
        };
        Ok(Some((recording, played)))
    }

    /// Computes the figures, and writes the data behind them.
    fn note(&self, run: &mut Run, stem: &str, recording: &Recording, played: &CellRecord) -> anyhow::Result<()> {
        let (comparison, simulated) = Comparison::from_recording(recording)?;
        let (live, slots) = (recording.run(), recording.replay(self.settings.slots, true));
        let slots = slots.run(0).map(|run| (slots, run))?;
        let summary = Summary::from_run(&live, &simulated.0);
        let on_slots = Summary::from_run(&slots.1, &slots.0);
        run.duration_s = summary.makespan;
        run.parties = [("server".to_owned(), played.server)].into();
        run.parties.extend(played.dealer.map(|dealer| ("dealer".to_owned(), dealer)));
        let mut figures = figures(recording, played, &summary);
        figures
            .extend(results::comparison_figures(&comparison).into_iter().map(|(key, value)| (key.to_owned(), value)));
        figures.extend([
            ("slots.delay_s".into(), on_slots.all.input_delay),
            ("slots.waiting_s".into(), on_slots.all.waiting_time),
            ("slots.makespan_s".into(), on_slots.makespan),
            ("slots.throughput_per_s".into(), on_slots.throughput),
        ]);
        run.results = figures.into_iter().filter(|(_, value)| value.is_finite()).collect();
        let failures: Vec<&String> = played.reports.iter().filter_map(|report| report.failure.as_ref()).collect();
        run.failure = failures.first().map(|first| {
            let (failed, total) = (failures.len(), played.reports.len());
            format!("{failed} of {total} requests were not answered; the first because of: {first}")
        });
        let (scenario, simulated) = &simulated;
        let on_slots = format!("simulated on {} slots", self.settings.slots);
        let timelines = [
            self.timeline(scenario, &live, "live")?,
            self.timeline(scenario, simulated, "simulated")?,
            self.timeline(&slots.0, &slots.1, &on_slots)?,
        ];
        self.write("timelines", stem, &json!(timelines))?;
        self.write("cells", stem, &self.raw(&run.cell, recording, played))
    }

    /// Returns a run as JSON, with `name` beside the name of the policy.
    fn timeline(&self, scenario: &Scenario, run: &tacit_sim::Run, name: &str) -> serde_json::Result<Value> {
        let mut file = RunFile::from_run(scenario, self.settings.seed, run);
        file.policy = format!("{}, {name}", file.policy);
        serde_json::to_value(file)
    }

    fn raw(&self, cell: &campaign::Cell, recording: &Recording, played: &CellRecord) -> Value {
        let nets = &self.settings.nets;
        let arrivals = recording.arrivals.iter().map(|a| {
            let lead_s = a.lead.map(|lead| lead.secs());
            json!({"at_s": a.at.secs(), "client": a.client, "net": nets[a.model as usize], "lead_s": lead_s})
        });
        json!({
            "cell": cell,
            "arrivals": arrivals.collect::<Vec<_>>(),
            "clients": played.reports,
            "server": recording.inputs,
            "learned": recording.learned_models(),
        })
    }

    fn write(&self, folder: &str, stem: &str, value: &Value) -> anyhow::Result<()> {
        let folder = self.dir.join(folder);
        campaign::own_folder(&folder)?;
        replace(&folder.join(format!("{stem}.json")), value.to_string())
    }
}

/// The outcome of each request: the server's record of its jobs, by the client's fingerprint.
fn inputs(arrivals: &[Arrival], clients: &[String], played: &CellRecord) -> Vec<RecordedInput> {
    let phases = played.watched.phases();
    let inputs = arrivals.iter().enumerate().map(|(i, arrival)| {
        let Phases { known, offline: pre, online: on } = phases.get(clients[i].as_str()).copied().unwrap_or_default();
        // A request arrives with its first phase, unless it was announced: then that phase may be long over.
        let first = pre.or(on).filter(|_| arrival.lead.is_none()).map(|job| job.queued);
        let arrived = first.unwrap_or(played.reports[i].asked_s);
        RecordedInput { known: known.unwrap_or(arrived), arrived, pre, on }
    });
    inputs.collect()
}

fn figures(recording: &Recording, played: &CellRecord, summary: &Summary) -> BTreeMap<String, f64> {
    let (reports, last) = (&played.reports, &played.watched.last);
    let answered: Vec<&ClientReport> = reports.iter().filter(|report| report.failure.is_none()).collect();
    let waited_s: f64 = answered.iter().map(|report| report.answered_s - report.asked_s).sum();
    let late = reports.iter().zip(&recording.arrivals).map(|(report, arrival)| report.asked_s - arrival.at.secs());
    let announced = recording.arrivals.iter().filter(|arrival| arrival.lead.is_some());
    let makespan = summary.makespan;
    let mut figures: BTreeMap<String, f64> = [
        ("requests", reports.len() as f64),
        ("answered", answered.len() as f64),
        ("announced", announced.count() as f64),
        ("rate_per_s", recording.workload.arrivals.rate()),
        ("delay_s", last.mean_delay_s),
        ("waiting_s", last.mean_waiting_s),
        ("throughput_per_s", per_second(answered.len() as f64, makespan)),
        ("makespan_s", makespan),
        ("client.delay_s", waited_s / answered.len().max(1) as f64),
        ("client.late_s", late.fold(0.0, tacit_floats::larger)),
        ("client.core_use", per_second(played.clients_cpu_s, makespan)),
        ("server.core_use", per_second(cpu_s(&played.server), makespan)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    let dealer = played.dealer.iter().map(|sample| ("dealer.core_use".to_owned(), per_second(cpu_s(sample), makespan)));
    figures.extend(dealer);
    for model in &last.models {
        figures.insert(format!("net.{}.answered", model.name), model.done as f64);
        figures.insert(format!("net.{}.delay_s", model.name), model.mean_delay_s);
        figures.insert(format!("net.{}.waiting_s", model.name), model.mean_waiting_s);
    }
    figures
}

/// Divides by the makespan; returns 0 if there is none.
fn per_second(amount: f64, makespan: f64) -> f64 {
    if makespan > 0.0 { amount / makespan } else { 0.0 }
}

fn cpu_s(sample: &PartySample) -> f64 {
    sample.user_s + sample.system_s
}
