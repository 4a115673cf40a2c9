//! A lowered model: the public part, as a client gets it, and the private part, as the server caches it; of
//! the ring level, of every back end, and in a file.

use std::sync::{Arc, LazyLock};

use tacit_arith::prg::Seed;
use tacit_backends::cheetah::{self, compile, costs};
use tacit_backends::lowered::{self, Origin};
use tacit_backends::ring::{
    Conv2d, FixedPoint, LayerWeights, Linear, Node, Op, RingGraph, RingSpec, WeightFacts, Weights, public_bytes,
    read_public, read_weights, reference, weights_to_bytes,
};
use tacit_backends::seam::Claim;
use tacit_backends::{Backend, BackendError, Options, Plan, Registry, ServerModel};
use tacit_client::dealer::wire::Ask;
use tacit_client::helper::wire as helper;
use tacit_graph::geometry::{ConvGeometry, Window};
use tacit_graph::{ImportOptions, InputSpec, Interface, Interval, OutputMode, SortedGraph, import, zoo};
use tacit_ids::{FolderId, MaterialId};

/// Models that a mutation made larger than this are accepted, but not computed.
const MAX_WORK: usize = 1 << 16;

/// A public part, as a client gets it from a server.
pub(crate) fn public_model(data: &[u8]) {
    if let Ok(graph) = read_public(data) {
        assert_eq!(graph.use_counts().len(), graph.nodes().len());
        let again = public_bytes(&graph).expect("what was read can be written");
        assert_eq!(read_public(&again).expect("what was written can be read"), graph);
        // What a client does next; refusing is fine.
        if let Ok(plan) = compile::<cheetah::Cheetah>(graph, cheetah::Options::default()) {
            assert!(costs(&plan).offline.client.stored_bytes > 0);
        }
    }
}

/// `public length u16, public, private`: weights for whatever graph comes with them.
pub(crate) fn private_model(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let (public, private) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
    let Ok(graph) = read_public(public) else {
        return;
    };
    if let Ok(weights) = read_weights(private, &graph) {
        let again = weights_to_bytes(&weights);
        assert_eq!(read_weights(&again, &graph).expect("what was written can be read"), weights);
        compute(&graph, &weights);
    }
}

/// A back end, and what it made of a model.
type Lowered = (Arc<dyn Backend>, Arc<dyn ServerModel>);

/// A small model lowered for each back end there is.
static SMALL: LazyLock<Vec<Lowered>> = LazyLock::new(|| {
    let options = ImportOptions { model_id: Some([9; 16]), ..ImportOptions::default() };
    let model = |onnx: &[u8]| import(onnx, &options).expect("the seed is a network").model;
    let pooled = model(include_bytes!("../seeds/conv.onnx"));
    // Without a maximum, which not every back end has.
    let plain = model(&zoo::build("tiny-mlp", 1).expect("the zoo has it"));
    let lower = |backend: &Arc<dyn Backend>| {
        let lowered = match backend.lower(&pooled, &Options::default()) {
            Err(BackendError::Unsupported { .. }) => backend.lower(&plain, &Options::default()),
            other => other,
        };
        (Arc::clone(backend), lowered.expect("every back end takes one of the small networks"))
    };
    Registry::standard().iter().map(lower).collect()
});

/// `back end u8, public length u16, public, private`: what a client opens, and what a server loads.
pub(crate) fn parts(data: &[u8]) {
    let [which, low, high, rest @ ..] = data else { return };
    let (backend, _) = &SMALL[usize::from(*which) % SMALL.len()];
    let (public, private) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
    if let Ok(model) = backend.open(public) {
        stated(&*model);
        // Refusing is fine.
        if let Ok(server) = backend.load(public, private) {
            assert_eq!(server.digest(), model.digest(), "both parties plan alike");
        }
    }
}

/// `public length u16, public, part`: a model that a server registers with its dealer.
pub(crate) fn registered(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let (public, part) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
    for (backend, _) in &*SMALL {
        // Refusing is fine.
        let Ok(model) = backend.open_dealer(public, part) else { continue };
        let client = backend.open(public).expect("what a dealer takes a client opens");
        assert_eq!(client.digest(), model.digest(), "the dealer plans like the parties");
        assert_eq!(client.costs().dealing.server_bytes, model.server_bytes());
        if model.server_bytes() < MAX_WORK as u64 {
            let (seed, mut dealt) = (Seed([3; 16]), 0);
            let sink = &mut |bytes: &[u8]| {
                dealt += bytes.len() as u64;
                Ok(())
            };
            model.server_half(&seed, sink).expect("a sink that takes everything");
            assert_eq!(dealt, model.server_bytes());
        }
    }
}

pub(crate) fn registered_seeds() -> Vec<Vec<u8>> {
    let orders = SMALL.iter().filter_map(|(_, model)| model.order());
    orders.map(|order| [&(order.public.len() as u16).to_le_bytes(), order.public, order.part].concat()).collect()
}

/// What a party asks its dealer.
pub(crate) fn dealer_request(data: &[u8]) {
    if let Ok(request) = Ask::from_bytes(data) {
        let again = postcard::to_stdvec(&request).expect("plain data can be written");
        assert_eq!(Ask::from_bytes(&again).expect("what was written can be read"), request);
    }
}

pub(crate) fn dealer_request_seeds() -> Vec<Vec<u8>> {
    let asks = [
        Ask::Register { backend: "dealt".into(), public: 1000, part: 32 },
        Ask::Deal { digest: [7; 32], batch: 1, seal: [8; 32] },
        Ask::Fetch { ticket: [9; 32], claim: Claim { nonce: [1; 32], digest: [2; 32] } },
        Ask::Taken { ticket: [9; 32] },
        Ask::Ahead { digest: [7; 32], batch: 2 },
        Ask::Bind { ticket: [9; 32], seal: [8; 32] },
    ];
    asks.iter().map(|ask| postcard::to_stdvec(ask).expect("plain data can be written")).collect()
}

/// What a device asks its helper. It holds secrets, which compare as bytes only.
pub(crate) fn helper_request(data: &[u8]) {
    if let Ok(request) = helper::Ask::from_bytes(data) {
        let bytes = |ask: &helper::Ask| postcard::to_stdvec(ask).expect("plain data can be written");
        let again = helper::Ask::from_bytes(&bytes(&request)).expect("what was written can be read");
        assert_eq!(bytes(&again), bytes(&request));
    }
}

pub(crate) fn helper_request_seeds() -> Vec<Vec<u8>> {
    let id = MaterialId([3; 16]);
    let what = helper::What {
        model: "digits".into(),
        backend: "cheetah".into(),
        public: [1; 32],
        plan: [2; 32],
        folder: FolderId([4; 16]),
    };
    let asks = [
        helper::Ask::Make { what, jobs: vec![helper::Job { id, seed: [5; 16], seal: [6; 32] }] },
        helper::Ask::Stand { ids: vec![id; 3] },
        helper::Ask::Fetch { id, from: 1 << 20 },
        helper::Ask::Taken { ids: vec![id] },
    ];
    asks.iter().map(|ask| postcard::to_stdvec(ask).expect("plain data can be written")).collect()
}

/// What a client asks an opened model before it says anything.
fn stated(plan: &(impl Plan + ?Sized)) {
    plan.interface().check().expect("an opened model was checked");
    let costs = plan.costs();
    assert!(costs.online.up_bytes > 0 && costs.online.down_bytes > 0, "a question and an answer");
    assert!(plan.describe().is_object() && plan.error_bound(&[1.0]) >= 0.0);
}

pub(crate) fn parts_seeds() -> Vec<Vec<u8>> {
    let seed = |(index, (_, model)): (usize, &Lowered)| {
        let (public, private) = (model.public_bytes(), model.private_bytes().expect("a small model fits"));
        let length = (public.len() as u16).to_le_bytes();
        [&[index as u8, length[0], length[1]], public, &private].concat()
    };
    SMALL.iter().enumerate().map(seed).collect()
}

/// The file of a lowering.
pub(crate) fn file(data: &[u8]) {
    if let Ok(file) = lowered::read(data) {
        let registry = Registry::standard();
        if let Ok(model) = registry.get(&file.origin.backend).and_then(|backend| file.load(&**backend)) {
            assert_eq!(lowered::write(&file.origin, &*model).expect("what was read can be written").len(), data.len());
        }
    }
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    let seed = |(backend, model): &Lowered| {
        let origin = Origin { model: [7; 32], backend: backend.id().into(), options: Options::default() };
        lowered::write(&origin, &**model).expect("a small model fits its file").to_vec()
    };
    SMALL.iter().map(seed).collect()
}

pub(crate) fn public_model_seeds() -> Vec<Vec<u8>> {
    vec![public_bytes(&small_model().0).expect("a small model fits")]
}

pub(crate) fn private_model_seeds() -> Vec<Vec<u8>> {
    let public = public_model_seeds().swap_remove(0);
    vec![[&(public.len() as u16).to_le_bytes()[..], &public, &weights_to_bytes(&small_model().1)].concat()]
}

/// Runs small models: whatever passed the checks can be computed.
fn compute(graph: &RingGraph, weights: &Weights) {
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
        Op::Conv2d(c) => c.geometry.kernel[0].saturating_mul(c.geometry.kernel[1]).saturating_mul(64),
        Op::Linear(_) => 64,
        Op::MaxPool(w) | Op::SumPool(w) => w.kernel[0].saturating_mul(w.kernel[1]),
        _ => 1,
    };
    node.elements().saturating_mul(per_output)
}

pub(crate) fn small_model() -> (RingGraph, Weights) {
    let facts = WeightFacts { frac_bits: 6, magnitude_bits: 6, norm_bits: 8 };
    let fixed = |width, frac_bits| FixedPoint { width, frac_bits };
    let node = |name: &str, op, input: usize, shape: &[usize], fixed| Node {
        name: name.into(),
        op,
        inputs: vec![input],
        shape: shape.to_vec(),
        fixed,
    };
    let geometry = ConvGeometry {
        out_channels: 2,
        kernel: [3, 3],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [1, 1, 1, 1],
        groups: 1,
    };
    let conv = Op::Conv2d(Conv2d { geometry, weights: facts });
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
    let spec = RingSpec {
        model_id: [9; 16],
        interface: Interface {
            name: "small".into(),
            input_shape: vec![1, 4, 4],
            input: InputSpec {
                mean: vec![],
                std: vec![],
                pixel_scale: 1.0,
                moved: None,
                range: Interval { low: -1.0, high: 1.0 },
                declared: vec![],
            },
            output_shape: vec![3],
            output_mode: OutputMode::Logits,
            outputs: vec![],
            final_activation: None,
        },
        nodes,
        output: 6,
        output_multiplier: 1.0,
    };
    let weights = Weights {
        layers: vec![
            LayerWeights { node: 1, weights: (0..18).map(|i| i - 9).collect(), bias: vec![5, -5] },
            LayerWeights { node: 6, weights: (0..24).map(|i| 12 - i).collect(), bias: vec![1, 2, 3] },
        ],
    };
    (RingGraph::new(spec).expect("the small model is right"), weights)
}
