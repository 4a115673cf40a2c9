//! The `.tacit` model file, as a whole and by section.

use tacit_backends::Backend;
use tacit_backends::cheetah::Cheetah;
use tacit_graph::file::{self, PublicSummary};
use tacit_graph::model::{InputSpec, LayerWeights, Node};
use tacit_graph::op::{Conv2d, Linear, Op, WeightFacts, Window};
use tacit_graph::{FixedPoint, ModelGraph, ModelSpec, OutputMode, Weights, reference};

/// Models that a mutation made larger than this are accepted, but not computed.
const MAX_WORK: usize = 1 << 16;

/// Bytes of a model file, as read by its owner.
pub(crate) fn model_file(data: &[u8]) {
    if let Ok(model) = file::read(data) {
        let again =
            file::write(model.graph.spec(), &model.weights, &model.summary).expect("what was read can be written");
        assert_eq!(file::read(&again).expect("what was written can be read").weights, model.weights);
        compute(&model.graph, &model.weights);
    }
}

/// `public length u16, public, private`: the same, with digests that are always right, so that mutations reach the contents.
pub(crate) fn sections(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let (public, private) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
    model_file(&assemble(public, private));
}

/// A public section, as a client gets it from a server.
pub(crate) fn public_model(data: &[u8]) {
    if let Ok(model) = file::read_public(data) {
        let uses = model.graph.use_counts();
        assert_eq!(uses.len(), model.graph.nodes().len());
        assert!(file::public_bytes(model.graph.spec(), &model.summary).is_ok(), "what was read can be written");
        // What a client does next; refusing is fine.
        if let Ok(plan) = Cheetah::default().compile(&model.graph) {
            assert!(Cheetah::default().cost(&plan).client_material_bytes > 0);
        }
    }
}

pub(crate) fn model_file_seeds() -> Vec<Vec<u8>> {
    let (spec, weights, summary) = small_model();
    vec![file::write(&spec, &weights, &summary).expect("the small model is right")]
}

pub(crate) fn section_seeds() -> Vec<Vec<u8>> {
    let public = public_model_seeds().swap_remove(0);
    let whole = model_file_seeds().swap_remove(0);
    let sections = &whole[assemble(&[], &[]).len()..];
    vec![[&(public.len() as u16).to_le_bytes()[..], sections].concat()]
}

pub(crate) fn public_model_seeds() -> Vec<Vec<u8>> {
    let (spec, _, summary) = small_model();
    vec![file::public_bytes(&spec, &summary).expect("the small model is right")]
}

/// Runs small models: whatever passed the checks can be computed.
fn compute(graph: &ModelGraph, weights: &Weights) {
    let work: usize = graph.nodes().iter().map(node_work).fold(0, usize::saturating_add);
    if work <= MAX_WORK {
        let zeros = vec![0; graph.input().elements()];
        let output = reference::run(graph, weights, &zeros).expect("a checked model can be computed");
        assert_eq!(output.len(), graph.output().elements());
    }
}

/// A bound on what the node costs: outputs times the window or row that each reads.
fn node_work(node: &Node) -> usize {
    let per_output = match &node.op {
        Op::Conv2d(c) => c.kernel[0].saturating_mul(c.kernel[1]).saturating_mul(64),
        Op::Linear(_) => 64,
        Op::MaxPool(w) | Op::SumPool(w) => w.kernel[0].saturating_mul(w.kernel[1]),
        _ => 1,
    };
    node.elements().saturating_mul(per_output)
}

fn assemble(public: &[u8], private: &[u8]) -> Vec<u8> {
    let mut out = file::MAGIC.to_vec();
    out.extend_from_slice(&file::VERSION.to_le_bytes());
    for section in [public, private] {
        out.extend_from_slice(&(section.len() as u64).to_le_bytes());
        out.extend_from_slice(blake3::hash(section).as_bytes());
    }
    out.extend_from_slice(public);
    out.extend_from_slice(private);
    out
}

pub(crate) fn small_model() -> (ModelSpec, Weights, PublicSummary) {
    let facts = WeightFacts { frac_bits: 6, magnitude_bits: 6, norm_bits: 8 };
    let fixed = |width, frac_bits| FixedPoint { width, frac_bits };
    let node = |name: &str, op, input: usize, shape: &[usize], fixed| Node {
        name: name.into(),
        op,
        inputs: vec![input],
        shape: shape.to_vec(),
        fixed,
    };
    let conv = Op::Conv2d(Conv2d {
        out_channels: 2,
        kernel: [3, 3],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [1, 1, 1, 1],
        groups: 1,
        weights: facts,
    });
    let pool = Op::MaxPool(Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] });
    let input = Node { inputs: vec![], ..node("image", Op::Input, 0, &[1, 4, 4], fixed(30, 6)) };
    let nodes = vec![
        input,
        node("conv", conv, 0, &[2, 4, 4], fixed(30, 12)),
        node("trunc", Op::Truncate { bits: 6 }, 1, &[2, 4, 4], fixed(24, 6)),
        node("pool", pool, 2, &[2, 2, 2], fixed(24, 6)),
        node("relu", Op::Relu, 3, &[2, 2, 2], fixed(30, 6)),
        node("flat", Op::Reshape, 4, &[8], fixed(30, 6)),
        node("fc", Op::Linear(Linear { out_features: 3, weights: facts }), 5, &[3], fixed(30, 12)),
    ];
    let spec = ModelSpec {
        name: "small".into(),
        model_id: [9; 16],
        nodes,
        output: 6,
        output_mode: OutputMode::Logits,
        output_multiplier: 1.0,
        softmax_by_client: false,
        input: InputSpec { mean: vec![], std: vec![], pixel_scale: 1.0, range: [-1.0, 1.0] },
    };
    let weights = Weights {
        layers: vec![
            LayerWeights { node: 1, weights: (0..18).map(|i| i - 9).collect(), bias: vec![5, -5] },
            LayerWeights { node: 6, weights: (0..24).map(|i| 12 - i).collect(), bias: vec![1, 2, 3] },
        ],
    };
    (spec, weights, PublicSummary { calibration: "none".into(), agreement: 1.0, comparisons: 32, macs: 312 })
}
