//! A toy back end without any secrecy, a toy model, and a server on a free port.
#![allow(dead_code)]
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tacit_graph::file::{ModelFile, PublicSummary, read, write};
use tacit_graph::op::{Linear, Op, WeightFacts};
use tacit_graph::{FixedPoint, InputSpec, LayerWeights, ModelGraph, ModelSpec, Node, OutputMode, Weights};
use tacit_mpc::Role;
use tacit_mpc::wire::PackedMessages;
use tacit_net::{Channel, NetError, Phase, Tag};
use tacit_serve::*;
use tacit_store::keys;

const PAD: Tag = Tag::new(0xf101, "toy pad");
const INPUT: Tag = Tag::new(0xf102, "toy input");
const OUTPUT: Tag = Tag::new(0xf103, "toy output");

/// An input that makes the toy server panic.
pub const PANIC: i64 = 6666;

/// Hides nothing: the server undoes the pad and runs the reference. Answers are right only if both halves belong together.
#[derive(Clone, Copy, Default)]
pub struct Toy {
    pub parameters: u8,
}

#[derive(Debug, thiserror::Error)]
pub enum ToyError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("toy material has {0} bytes")]
    Length(usize),
    #[error("toy: {0}")]
    Other(String),
}

impl Engine for Toy {
    type Plan = ModelGraph;
    type Session = Channel;
    type Keys = u64;
    type Material = u64;
    type Error = ToyError;

    fn name(&self) -> &'static str {
        "toy"
    }
    fn parameters(&self) -> [u8; 32] {
        [self.parameters; 32]
    }
    fn compile(&self, graph: &ModelGraph) -> Result<ModelGraph, ToyError> {
        Ok(graph.clone())
    }
    fn plan_digest(&self, plan: &ModelGraph) -> [u8; 32] {
        [plan.nodes().len() as u8; 32]
    }
    fn session(&self, _: Role, channel: Channel) -> Result<Channel, ToyError> {
        Ok(channel)
    }
    fn channel<'a>(&self, session: &'a mut Channel) -> &'a mut Channel {
        session
    }
    fn setup(&self, _: &ModelGraph, session: &mut Channel) -> Result<u64, ToyError> {
        assert_eq!(session.phase(), Phase::Setup);
        session.send_words(PAD, &[7])?;
        Ok(session.recv_words(PAD, 1)?[0])
    }
    fn offline(
        &self,
        _: &ModelGraph,
        _: &mut u64,
        weights: Option<&Weights>,
        session: &mut Channel,
    ) -> Result<u64, ToyError> {
        assert_eq!(session.phase(), Phase::Offline);
        if weights.is_some() {
            return Ok(session.recv_words(PAD, 1)?[0]);
        }
        let pad = u64::from(std::process::id()) << 20
            ^ std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        // The client's half is told by its top bit, so that swapped halves show.
        session.send_words(PAD, &[pad])?;
        Ok(pad)
    }
    fn online_client(
        &self,
        plan: &ModelGraph,
        pad: u64,
        input: &[i64],
        session: &mut Channel,
    ) -> Result<Vec<i64>, ToyError> {
        assert_eq!(session.phase(), Phase::Online);
        let padded: Vec<u64> = input.iter().map(|&x| (x as u64).wrapping_add(pad)).collect();
        session.send_words(INPUT, &padded)?;
        let output = session.recv_words(OUTPUT, plan.output().elements())?;
        Ok(output.into_iter().map(|v| v as i64).collect())
    }
    fn online_server(
        &self,
        plan: &ModelGraph,
        pad: u64,
        weights: &Weights,
        session: &mut Channel,
    ) -> Result<(), ToyError> {
        let padded = session.recv_words(INPUT, plan.input().elements())?;
        let input: Vec<i64> = padded.iter().map(|&x| x.wrapping_sub(pad) as i64).collect();
        assert!(input[0] != PANIC, "the toy server panics on purpose");
        let output = tacit_graph::reference::run(plan, weights, &input).map_err(|e| ToyError::Other(e.to_string()))?;
        let output: Vec<u64> = output.into_iter().map(|v| v as u64).collect();
        Ok(session.send_words(OUTPUT, &output)?)
    }
    fn material_to_bytes(&self, _: &ModelGraph, material: &u64) -> Vec<u8> {
        material.to_le_bytes().to_vec()
    }
    fn material_from_bytes(&self, _: &ModelGraph, _: Role, bytes: &[u8]) -> Result<u64, ToyError> {
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ToyError::Length(bytes.len()))?))
    }
    fn material_bytes(&self, _: &ModelGraph, _: Role) -> u64 {
        8
    }
}

/// `y = W x + b` with two outputs of four inputs; `salt` makes it another model.
pub fn model(salt: u8) -> ModelFile {
    let fixed = FixedPoint { width: 30, frac_bits: 8 };
    let facts = WeightFacts { frac_bits: 8, magnitude_bits: 8, norm_bits: 10 };
    let node = |name: &str, op, inputs, shape, frac_bits| Node {
        name: name.into(),
        op,
        inputs,
        shape,
        fixed: FixedPoint { frac_bits, ..fixed },
    };
    let spec = ModelSpec {
        name: "tiny".into(),
        model_id: [salt; 16],
        nodes: vec![
            node("x", Op::Input, vec![], vec![1, 2, 2], 8),
            node("flat", Op::Reshape, vec![0], vec![4], 8),
            node("fc", Op::Linear(Linear { out_features: 2, weights: facts }), vec![1], vec![2], 16),
        ],
        output: 2,
        output_mode: OutputMode::Logits,
        output_multiplier: 1.0,
        softmax_by_client: false,
        input: InputSpec { mean: vec![], std: vec![], pixel_scale: 1.0 / 255.0, range: [-1e6, 1e6] },
    };
    let weights = Weights {
        layers: vec![LayerWeights { node: 2, weights: vec![1, 2, 3, 4, 5, 6, 7, 8], bias: vec![i64::from(salt), 100] }],
    };
    read(&write(&spec, &weights, &PublicSummary::default()).unwrap()).unwrap()
}

pub fn expected(salt: u8, x: &[i64]) -> Vec<i64> {
    let m = model(salt);
    tacit_graph::reference::run(&m.graph, &m.weights, x).unwrap()
}

/// A server with the models `one` and `two` and TLS keys for the clients `alice` and `bob` in `dir/keys`.
pub struct Running {
    pub handle: ServerHandle<Toy>,
    pub address: String,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(dir: &Path, tune: impl FnOnce(&mut ServerConfig)) -> Self {
        let key_dir = dir.join("keys");
        if !key_dir.exists() {
            keys::init(&key_dir, &[], &["alice".into(), "bob".into()]).unwrap();
        }
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), Some(keys::load_server(&key_dir).unwrap()));
        config.store = Some(dir.join("server-material"));
        tune(&mut config);
        let mut catalog = Catalog::new(Toy::default());
        catalog.add("one", model(1)).unwrap();
        catalog.add("two", model(2)).unwrap();
        let server = Server::bind(catalog, config).unwrap();
        let (handle, address) = (server.handle(), server.address().to_string());
        let thread = Some(thread::spawn(move || server.run()));
        Self { handle, address, thread }
    }

    pub fn config(&self, dir: &Path, who: &str) -> ClientConfig {
        let mut config = ClientConfig::new(&self.address, Some(keys::load_client(&dir.join("keys"), who).unwrap()));
        config.store = Some(dir.join(format!("{who}-material")));
        config.stall_timeout = Duration::from_secs(20);
        config
    }

    pub fn client(&self, dir: &Path, who: &str, model: &str) -> Client<Toy> {
        Lobby::connect(Toy::default(), self.config(dir, who)).unwrap().open(model).unwrap()
    }

    /// Waits until all sessions have ended, so that what they did is on disk.
    pub fn settle(&self) {
        for _ in 0..6000 {
            if self.handle.connections() == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("sessions do not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.shutdown(Duration::from_millis(200));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
