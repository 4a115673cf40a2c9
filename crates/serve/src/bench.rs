//! What `tacit bench` reports: figures of both parties by phase, and the answer's distance from the fixed-point reference.
use crate::{Answer, Client, ClientConfig, Engine, Figures, Lobby, PhaseReport, ServeError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use tacit_backends::Numerics;
use tacit_graph::file::ModelFile;
use tacit_graph::{GraphError, Interpreter, Node, NodeId, Op, OutputMode, Weights, walk};

/// One party's figures for one phase, as printed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct PartyFigures {
    /// Processor seconds of the party's process.
    pub cpu_s: f64,
    /// Largest resident set during the phase, in bytes.
    pub peak_rss_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// One phase, as printed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// The client's wall time in seconds.
    pub wall_s: f64,
    /// Turns, the larger of both parties' counts.
    pub rounds: u64,
    /// The client.
    pub client: PartyFigures,
    /// The server.
    pub server: PartyFigures,
}

/// Bytes of material at each party.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct MaterialBytes {
    /// The client's half.
    pub client: u64,
    /// The server's half.
    pub server: u64,
}

/// The answer, compared with the reference.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct OutputFigures {
    /// Class of the private answer.
    pub argmax: usize,
    /// Class of the fixed-point reference.
    pub reference_argmax: usize,
    /// Largest difference from the reference in units of the output's last place (0 or the class distance is meaningless for a
    /// top-1 model: 0 if the classes agree, else 1).
    pub max_ulp_error: u64,
    /// Worst case that the declared numerics allow for these weights; far above what happens in deep models. `null` for top-1.
    pub ulp_bound: Option<f64>,
}

/// One inference by a fresh client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// `setup`, `offline`, `online`.
    pub phases: BTreeMap<String, PhaseFigures>,
    /// Size of the material.
    pub material_bytes: MaterialBytes,
    /// The answer.
    pub output: OutputFigures,
}

/// The whole report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Name of the back end.
    pub backend: String,
    /// Threads of each party.
    pub threads: usize,
    /// What carried the bytes.
    pub link: String,
    /// Processor and number of cores.
    pub machine: String,
    /// One entry per run.
    pub runs: Vec<Run>,
}

/// What the client process of a benchmark tells the one that started it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientRun {
    /// Setup of the connection.
    pub setup: PhaseReport,
    /// Offline phase.
    pub offline: PhaseReport,
    /// Online phase.
    pub online: PhaseReport,
    /// Material of the client and the server, in bytes.
    pub material_bytes: [u64; 2],
    /// Integers of the output node.
    pub integers: Vec<i64>,
}

/// Runs the client's side: a fresh connection with its own setup for each run.
///
/// # Errors
/// Of the connection or the protocol.
pub fn client_runs<E: Engine>(
    engine: &E,
    config: &ClientConfig,
    model: &str,
    input: &[i64],
    runs: usize,
) -> Result<Vec<ClientRun>, ServeError> {
    let one = || -> Result<ClientRun, ServeError> {
        let mut client: Client<E> = Lobby::connect(engine.clone(), config.clone())?.open(model)?;
        let Answer { integers, online, setup: Some(setup), prepared: Some(prepared), .. } =
            client.infer_integers(input)?
        else {
            return Err(ServeError::Usage("a benchmark must not use stored material: run it without a store".into()));
        };
        client.close()?;
        Ok(ClientRun { setup, offline: prepared.offline, online, material_bytes: prepared.bytes, integers })
    };
    (0..runs).map(|_| one()).collect()
}

/// Compares a client's run with the reference and brings it into the printed form.
///
/// # Errors
/// The input does not fit the model.
pub fn judge(run: &ClientRun, model: &ModelFile, input: &[i64], numerics: Numerics) -> Result<Run, ServeError> {
    let reference = tacit_graph::reference::run(&model.graph, &model.weights, input)?;
    let top1 = model.graph.spec().output_mode == OutputMode::Top1;
    let class =
        |v: &[i64]| if top1 { v.first().map_or(0, |&c| c.max(0) as usize) } else { crate::client::first_largest(v) };
    let (argmax, reference_argmax) = (class(&run.integers), class(&reference));
    let distance = run.integers.iter().zip(&reference).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
    let output = OutputFigures {
        argmax,
        reference_argmax,
        max_ulp_error: if top1 { u64::from(argmax != reference_argmax) } else { distance },
        ulp_bound: if top1 { None } else { Some(error_bound(model, numerics)?) },
    };
    let phases = [("setup", run.setup), ("offline", run.offline), ("online", run.online)];
    Ok(Run {
        phases: phases.into_iter().map(|(name, report)| (name.to_owned(), printed(&report))).collect(),
        material_bytes: MaterialBytes { client: run.material_bytes[0], server: run.material_bytes[1] },
        output,
    })
}

/// A report's figures in the printed form.
#[must_use]
pub fn printed(report: &PhaseReport) -> PhaseFigures {
    let party =
        |f: &Figures| PartyFigures { cpu_s: f.cpu_s, peak_rss_bytes: f.peak_rss_bytes, sent_bytes: f.sent_bytes };
    PhaseFigures {
        wall_s: report.client.wall_s,
        rounds: report.client.rounds.max(report.server.rounds),
        client: party(&report.client),
        server: party(&report.server),
    }
}

/// Processor model and core count of this machine.
#[must_use]
pub fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(':'));
    let name = name.map_or("unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{name}, {cores} cores")
}

/// Largest possible distance of any output from the reference, in units of the output: every node's declared error, carried on
/// through the largest row norm of each layer. A guarantee, not an estimate.
///
/// # Errors
/// The graph has no weights for a layer.
pub fn error_bound(model: &ModelFile, numerics: Numerics) -> Result<f64, ServeError> {
    let mut bound = Bound { weights: &model.weights, numerics };
    Ok(walk(&model.graph, &mut bound)?)
}

struct Bound<'a> {
    weights: &'a Weights,
    numerics: Numerics,
}

impl Interpreter for Bound<'_> {
    type Wire = f64;
    type Error = GraphError;

    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&f64]) -> Result<f64, GraphError> {
        let (below, above, linear, drop) = match self.numerics {
            Numerics::Exact => (0.0, 0.0, 0.0, 0.0),
            Numerics::UlpPerTruncation { below, above, linear, relu_drop } => {
                let dropped = if relu_drop > 0 { f64::from(relu_drop).exp2() } else { 0.0 };
                (f64::from(below), f64::from(above), f64::from(linear), dropped)
            }
        };
        let worst = inputs.iter().fold(0.0f64, |m, &&e| m.max(e));
        Ok(match &node.op {
            Op::Input => 0.0,
            Op::Conv2d(_) | Op::Linear(_) => {
                let layer = self.weights.get(id);
                let rows = layer.map_or(1, |l| l.bias.len().max(1));
                let len = layer.map_or(0, |l| l.weights.len() / rows).max(1);
                let norm = |row: &[i32]| row.iter().map(|w| f64::from(w.unsigned_abs())).sum::<f64>();
                let largest = layer.map_or(0.0, |l| l.weights.chunks(len).map(norm).fold(0.0, f64::max));
                worst * largest + linear
            }
            Op::Relu => worst + drop,
            Op::Truncate { bits } => (worst * (-f64::from(*bits)).exp2()).ceil() + below.max(above),
            Op::SumPool(w) => worst * (w.kernel[0] * w.kernel[1]) as f64,
            Op::Add | Op::Sub => inputs.iter().map(|e| **e).sum(),
            Op::MulConst { factors, .. } => worst * factors.iter().map(|f| f.unsigned_abs() as f64).fold(0.0, f64::max),
            Op::ShiftLeft { bits } => worst * f64::from(*bits).exp2(),
            Op::MaxPool(_) | Op::AddConst { .. } | Op::Widen | Op::Concat | Op::Slice(_) => worst,
            Op::Pad { .. } | Op::Reshape | Op::ArgMax => worst,
        })
    }
}
