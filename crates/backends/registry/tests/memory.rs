//! Checks by the memory peaks of this process that neither dealt material nor a dealer's random matrix
//! is ever in memory as a whole. There is one test, because tests share the process.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use tacit_arith::prg::{Prg, Seed};
use tacit_backends::dealer::{Dealings, InProcessDealer};
use tacit_backends::seam::{Spool, Spools};
use tacit_backends::{BackendError, ConnectionResources, Options, Registry, ServerModel};
use tacit_graph::Interval;
use tacit_graph::float::{FloatGraph, FloatOp};
use tacit_graph::geometry::ConvGeometry;
use tacit_graph::import::{ImportOptions, import_network};
use tacit_graph::onnx::Network;
use tacit_graph::rng::SplitMix;
use tacit_mpc::run_pair;

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The peak growth of memory while `run` runs, in bytes; `None` where the peak cannot be reset.
fn growth(run: impl FnOnce()) -> Option<u64> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    let before = status("VmRSS");
    run();
    Some(status("VmHWM").saturating_sub(before))
}

fn lower_network(backend: &str, graph: FloatGraph, options: &str) -> Arc<dyn ServerModel> {
    let import = ImportOptions { range: Some(Interval { low: -1.0, high: 1.0 }), ..ImportOptions::default() };
    let model = import_network(Network::new("large", graph), &import).unwrap().model;
    let options: Options = options.parse().unwrap();
    Registry::standard().get(backend).unwrap().lower(&model, &options).unwrap()
}

fn draw_weights(count: usize) -> Vec<f32> {
    let mut rng = SplitMix::new(4);
    rng.floats(count, -0.02, 0.02)
}

/// A layer of 16 M weights: 64 MiB as a matrix of 4-byte words.
fn wide_layer() -> FloatGraph {
    let n = 4096;
    let mut graph = FloatGraph::new("input", vec![n]).unwrap();
    let dense = FloatOp::Dense { weights: draw_weights(n * n), bias: vec![0.0; n] };
    graph.output = graph.push("dense", dense, &[0], &[]).unwrap();
    graph
}

/// A network of four channels of ReLUs.
fn many_gates(side: usize) -> FloatGraph {
    let mut graph = FloatGraph::new("input", vec![1, side, side]).unwrap();
    let geometry = ConvGeometry::pointwise(4);
    let conv = FloatOp::Conv { geometry, weights: vec![0.5, -0.25, 1.0, -0.75], bias: vec![0.0; 4] };
    let conv = graph.push("conv", conv, &[0], &[]).unwrap();
    graph.output = graph.push("relu", FloatOp::Relu, &[conv], &[]).unwrap();
    graph
}

struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Counter {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        assert_eq!(position, SeekFrom::Start(0));
        self.0 = 0;
        Ok(0)
    }
}

/// Spools halves to disk, as a server with a folder does.
struct OnDisk;

struct OnDiskSpool(fs::File);

impl Spools for OnDisk {
    fn spool(&self, _: u64) -> Result<Box<dyn Spool>, BackendError> {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/memory-spool");
        let file = fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
        fs::remove_file(path).unwrap();
        Ok(Box::new(OnDiskSpool(file)))
    }
}

impl Write for OnDiskSpool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Spool for OnDiskSpool {
    fn contents(mut self: Box<Self>) -> Result<Box<dyn Read + Send>, BackendError> {
        self.0.rewind().unwrap();
        Ok(Box::new(self.0))
    }
}

/// Makes material for both parties in pieces, with a dealer in the process. Returns the bytes of the client's
/// and the server's material, and the growth of memory.
fn make_spooled(server: &Arc<dyn ServerModel>, backend: &str) -> ([u64; 2], Option<u64>) {
    let client = Registry::standard().get(backend).unwrap().open(server.public_bytes()).unwrap();
    let dealings = Arc::new(Dealings::new(Registry::standard(), Prg::from_os().unwrap(), 1));
    let resources = [1, 2].map(|party| ConnectionResources {
        dealer: Some(Arc::new(InProcessDealer::new(Arc::clone(&dealings), [party; 32]))),
        spools: Some(Arc::new(OnDisk)),
        ..ConnectionResources::default()
    });
    let [mut client_counter, mut server_counter] = [Counter(0), Counter(0)];
    let grown = growth(|| {
        run_pair(
            |channel| {
                let mut side = client.clone().connect(&resources[0]).unwrap();
                side.setup(channel).unwrap();
                side.offline_into(channel, &mut client_counter).unwrap();
                channel.flush().unwrap();
            },
            |channel| {
                let mut side = server.clone().connect(&resources[1]).unwrap();
                side.setup(channel).unwrap();
                side.offline_into(channel, &mut server_counter).unwrap();
            },
        );
    });
    ([client_counter.0, server_counter.0], grown)
}

#[test]
fn neither_matrices_nor_material_are_held_in_memory() {
    // As in the dealer's program. Freed memory that the process keeps would hide later growth.
    tacit_arith::heap::give_back_large();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let dealing = {
        let server = lower_network("dealt", wide_layer(), "frac_bits=6");
        let order = server.order().unwrap();
        Registry::standard().get("dealt").unwrap().open_dealer(order.public, order.part).unwrap()
    };
    let mut bytes = 0;
    let grown = growth(|| {
        pool.install(|| {
            dealing.server_half(&Seed([5; 16]), &mut |piece| {
                bytes += piece.len() as u64;
                Ok(())
            })
        })
        .unwrap();
    });
    assert_eq!(bytes, dealing.server_bytes());
    assert!(grown.is_none_or(|grown| grown < 40 << 20), "dealing took {grown:?} bytes beside a matrix of 64 MiB");
    drop(dealing);

    let server = lower_network("dealt", many_gates(512), "frac_bits=16,exchanges=1,audit=0");
    let material = server.spooled_bytes().unwrap();
    assert!(material > 128 << 20, "{material}");
    let (bytes, grown) = make_spooled(&server, "dealt");
    assert_eq!(bytes[1], material);
    // Client, server and dealer together: some tensors, and 64 blocks of gates at a time.
    assert!(grown.is_none_or(|grown| 2 * grown < material), "it took {grown:?} bytes for {material} of material");
    drop(server);

    for (level, limit) in [("l1", 140 << 20), ("l2", 220 << 20)] {
        let server = lower_network("fss", many_gates(256), &format!("frac_bits=16,level={level},audit=0"));
        let (bytes, grown) = make_spooled(&server, "fss");
        let material: u64 = bytes.iter().sum();
        assert_eq!(bytes[1], server.spooled_bytes().unwrap());
        assert!(material > 200 << 20, "{material}");
        // These words take four times the memory of elements.
        assert!(grown.is_none_or(|grown| grown < limit), "{level}: {grown:?} bytes for {material} of material");
    }
}
