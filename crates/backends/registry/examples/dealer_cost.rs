//! Measures an inference with a dealer, with both parties and the dealer in this process: bytes of the halves
//! and between the parties, and times of the phases.
//!
//! `cargo run --release -p tacit-backends --example dealer_cost -- BACKEND NETWORK [OPTIONS]`, NETWORK one of
//! `tacit zoo` or an ONNX file, OPTIONS as `key=value,key=value`. Samples are random: times and bytes depend
//! on shapes and scales only. Phases run one party at a time wherever one waits for the other.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use tacit_backends::dealer::{Dealings, InProcessDealer};
use tacit_backends::seam::{ConnectionResources, fresh_seed};
use tacit_backends::{BackendError, ClientModel, Options, Registry, ServerModel};
use tacit_graph::rng::SplitMix;
use tacit_graph::{ImportOptions, Interface, import, zoo};
use tacit_mpc::run_pair;
use tacit_net::Phase;

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [backend, network, options @ ..] = args.as_slice() else { return Err("which back end, which network?".into()) };
    let options: Options = options.join(",").parse()?;
    let network = if network.ends_with(".onnx") { std::fs::read(network)? } else { zoo::build(network, 1)? };
    let model = import(&network, &ImportOptions::default())?.model;
    let registry = Registry::standard();
    let backend = registry.get(backend)?;
    let server = backend.lower(&model, &options)?;
    let client = backend.open(server.public_bytes())?;
    let costs = server.costs();
    println!("comparisons {}  masked weights {:.1} MB", costs.comparisons, mb(costs.setup.down_bytes));
    let [up, down] = [costs.offline.up_bytes, costs.offline.down_bytes].map(mb);
    println!("offline {up:.3} MB up, {down:.3} MB down, {} exchanges", costs.offline.exchanges);
    let [up, down] = [costs.online.up_bytes, costs.online.down_bytes].map(mb);
    println!("online {up:.3} MB up, {down:.3} MB down, {} exchanges", costs.online.exchanges);
    let order = server.order().ok_or("nobody deals for this back end")?;
    let dealt = backend.open_dealer(order.public, order.part)?;
    let seed = fresh_seed()?;
    let start = Instant::now();
    let (mut client_bytes, mut server_bytes) = (0, 0);
    dealt.client_half(&seed, &mut |bytes| {
        client_bytes += bytes.len() as u64;
        Ok(())
    })?;
    let client_s = start.elapsed().as_secs_f64();
    dealt.server_half(&seed, &mut |bytes| {
        server_bytes += bytes.len() as u64;
        Ok(())
    })?;
    let total_s = start.elapsed().as_secs_f64();
    println!("halves {:.1} / {:.1} MB, client / server", mb(client_bytes), mb(server_bytes));
    println!("dealing {client_s:.3} s for the client's, {:.3} s for the server's", total_s - client_s);
    inferences(&registry, &server, &client, &model.interface)
}

fn inferences(
    registry: &Registry,
    server: &Arc<dyn ServerModel>,
    client: &Arc<dyn ClientModel>,
    interface: &Interface,
) -> Result<(), Box<dyn Error>> {
    let dealings = Arc::new(Dealings::fresh(registry.clone(), 1)?);
    let [client_resources, server_resources] = [1, 2].map(|party| ConnectionResources {
        dealer: Some(Arc::new(InProcessDealer::new(Arc::clone(&dealings), [party; 32]))),
        ..ConnectionResources::default()
    });
    let mut rng = SplitMix::new(1);
    let input: Vec<f32> = rng.floats(interface.input_len(), -1.0, 1.0);
    let (answer, served) = run_pair(
        |channel| {
            let mut side = client.clone().connect(&client_resources)?;
            side.setup(channel)?;
            for round in 0..3 {
                channel.set_phase(Phase::Offline);
                let start = Instant::now();
                let material = side.offline(channel)?;
                let offline = start.elapsed().as_secs_f64();
                channel.set_phase(Phase::Online);
                let start = Instant::now();
                let answer = side.online(channel, material, &input)?;
                println!(
                    "round {round}: offline with dealing {offline:.3} s  online {:.3} s",
                    start.elapsed().as_secs_f64()
                );
                if round == 2 {
                    return Ok(answer);
                }
            }
            Err(BackendError::Misuse("there are three rounds"))
        },
        |channel| {
            let mut side = server.clone().connect(&server_resources)?;
            side.setup(channel)?;
            for _ in 0..3 {
                let material = side.offline(channel)?;
                side.online(channel, material)?;
            }
            Ok::<_, BackendError>(())
        },
    );
    served?;
    let (answer, reference) = (answer?, server.reference(&input)?);
    let distance = answer.iter().zip(&reference).map(|(a, b)| (a - b).abs()).fold(0.0, tacit_floats::larger);
    println!(
        "largest distance from the reference {distance:.5}, of {:.5} that is declared",
        server.error_bound(&reference)
    );
    Ok(())
}
