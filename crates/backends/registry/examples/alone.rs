//! Measures the gain of a second thread for each party of `cheetah`. Both parties are recorded together once.
//! Then each runs alone against its recording, with one thread and with two, so that neither waits for the
//! other.
//!
//! `cargo run --release -p tacit-backends --example alone -- net.onnx [options of the back end]`
//!
//! The input is zeros, and the seeds are fixed: what a party replays must be what it recorded.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tacit_arith::prg::{Prg, Seed};
use tacit_backends::cheetah::{Cheetah, ClientParty, Lattice, Plan, ServerParty, compile, online_bytes};
use tacit_backends::ring::{RingGraph, Weights, lower};
use tacit_graph::{ImportOptions, import};
use tacit_net::{Channel, MemTransport, RecordTransport, ReplayTransport, Transport};

type Failure = Box<dyn Error + Send + Sync>;

/// Seconds of the offline and of the online phase.
type Times = [f64; 2];

fn client(plan: &Arc<Plan>, transport: Box<dyn Transport>) -> Result<Times, Failure> {
    let mut channel = Channel::new(transport);
    let mut party = ClientParty::new(Arc::clone(plan), Prg::from_seed(Seed([1; 16])));
    party.setup(&mut channel)?;
    let start = Instant::now();
    let material = party.offline(&mut channel)?;
    let offline = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let input = vec![0; plan.graph().input().elements()];
    party.online(&mut channel, material, &input, &mut |_, _| {})?;
    channel.flush()?;
    Ok([offline, start.elapsed().as_secs_f64()])
}

fn server(plan: &Arc<Plan>, weights: &Arc<Weights>, transport: Box<dyn Transport>) -> Result<Times, Failure> {
    let mut channel = Channel::new(transport);
    let mut party = ServerParty::new(Arc::clone(plan), Arc::clone(weights), Prg::from_seed(Seed([2; 16])));
    party.setup(&mut channel)?;
    let start = Instant::now();
    let material = party.offline(&mut channel)?;
    let offline = start.elapsed().as_secs_f64();
    let start = Instant::now();
    party.online(&mut channel, material, &mut |_, _| {})?;
    channel.flush()?;
    Ok([offline, start.elapsed().as_secs_f64()])
}

/// Runs a party on a pool of `threads` threads.
fn run_on_threads(threads: usize, party: impl FnOnce() -> Result<Times, Failure> + Send) -> Result<Times, Failure> {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build()?.install(party)
}

fn record(plan: &Arc<Plan>, weights: &Arc<Weights>, [client_path, server_path]: [&Path; 2]) -> Result<(), Failure> {
    let (a, b) = MemTransport::pair();
    let (a, b) = (RecordTransport::create(a, client_path)?, RecordTransport::create(b, server_path)?);
    std::thread::scope(|scope| {
        let server_thread = scope.spawn(|| run_on_threads(1, || server(plan, weights, Box::new(b))));
        run_on_threads(1, || client(plan, Box::new(a)))?;
        server_thread.join().expect("the server ends")?;
        Ok(())
    })
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("the ONNX file is missing")?;
    let (options, ring) = Cheetah::parse(&args.next().unwrap_or_default().parse()?)?;
    let model = import(&std::fs::read(file)?, &ImportOptions::default())?.model;
    let price = |graph: &RingGraph| online_bytes::<Cheetah>(graph, &options).map(|bytes| bytes as f64);
    let lowered = lower(&model, &ring, &price)?;
    let (plan, weights) = (Arc::new(compile::<Cheetah>(lowered.graph, options)?), Arc::new(lowered.weights));

    let folder = std::env::temp_dir().join(format!("tacit-alone-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let [client_path, server_path] = ["client", "server"].map(|name| folder.join(name));
    record(&plan, &weights, [&client_path, &server_path])?;
    for run in 1..=3 {
        let mut single = [[0.0; 2]; 2];
        for threads in [1, 2] {
            let replay = |path: &Path| ReplayTransport::open(path, true);
            let times = [
                run_on_threads(threads, || client(&plan, Box::new(replay(&client_path)?)))?,
                run_on_threads(threads, || server(&plan, &weights, Box::new(replay(&server_path)?)))?,
            ];
            for ((name, [offline, online]), single) in ["client", "server"].into_iter().zip(times).zip(&mut single) {
                print!("run {run}, {threads} threads, {name}: offline {offline:.2} s, online {online:.3} s");
                match threads {
                    1 => println!(),
                    _ => println!(" ({:.2}, {:.2} of one thread's)", offline / single[0], online / single[1]),
                }
                *single = [offline, online];
            }
        }
    }
    Ok(std::fs::remove_dir_all(folder)?)
}
