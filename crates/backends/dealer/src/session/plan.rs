//! A compiled model: the steps of a graph, and the digests that bind material to it.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tacit_arith::prg::Prg;
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::dealt::{LookUp, Value};
use tacit_mpc::gate::WrapSpec;

use super::lattice::Layers;
use tacit_backend_api::seam::{self, Stop};
use tacit_backend_api::{BackendError, Numerics};
use tacit_ring::share::{
    self, Added, ClientPhase, ClientWalk, Compile, ServerPhase, ServerWalk, Step, StepTypes, Times, conv_spec,
};
use tacit_ring::{Node, RingGraph, RingOptions, Table};

/// Public options of a back end, which both parties and the dealer must share.
pub(crate) trait DealerOptions: Copy + Serialize + DeserializeOwned + Send + Sync {
    /// Reads the options of the protocol and of the lowering to a ring.
    ///
    /// # Errors
    /// [`BackendError::Option`] names an option that is unknown or out of range.
    fn parse(text: &seam::Options) -> Result<(Self, RingOptions), BackendError>;
    /// Checks options from outside.
    ///
    /// # Errors
    /// [`BackendError::Option`] names an option that is out of range.
    fn check(&self) -> Result<(), BackendError>;
    /// Sets the low bits that ReLU's sign test drops.
    fn with_relu_drop(self, relu_drop: u32) -> Self;
    /// Low bits that ReLU's sign test drops.
    fn relu_drop(&self) -> u32;
    /// Audited materials per thousand.
    fn audit_rate(&self) -> u32;
}

/// How a back end compiles a graph.
pub(crate) trait Scheme:
    StepTypes<Linear = ConvSpec, Gate: Times + Send + Sync, Widen: Times + Send + Sync> + Sized + Send + Sync + 'static
{
    const NAME: &'static str;
    /// Version of the public part and of its protocol.
    const VERSION: u32;
    type Options: DealerOptions;
    /// Whether layers may use lattices instead of the dealer.
    const LATTICES: bool = false;

    /// Makes a batch of `n` gates whose sign test drops `drop` bits of `width`.
    fn gate(options: &Self::Options, n: usize, width: u32, drop: u32, values: Vec<Value>) -> Self::Gate;
    /// Makes a widening of a tensor to a larger ring.
    fn widen(options: &Self::Options, spec: WrapSpec) -> Self::Widen;
    /// Refuses tables that the back end does not look up; the error says why.
    fn check_look_up(_: &Self::Options, _look_up: &LookUp, _: &Table) -> Result<(), String> {
        Ok(())
    }
    /// Material and multiplications of a step of one input beside those of its weights.
    fn added(step: &Step<Self>, node: &Node, options: &Self::Options) -> Added;
    /// Makes the decisions beside the steps.
    ///
    /// # Errors
    /// `Unsupported` names the first node that cannot be compiled.
    fn choose(graph: &RingGraph, steps: &[Step<Self>], options: &Self::Options) -> Result<Choices, BackendError>;
    /// Size and costs of a batch of gates as the plan's digest covers them.
    fn canonical_gate(gate: &Self::Gate) -> impl Serialize;
    /// Whether biases are masked too, as the entries after a layer's weights.
    fn masks_biases(_: &Self::Options) -> bool {
        false
    }
}

/// Decisions of compiling beside the steps.
#[derive(Default)]
pub(crate) struct Choices {
    /// For each node, whether the client moves its share of the tensor; empty if it moves none.
    pub(crate) moved_tensors: Vec<bool>,
    /// The linear layers that use lattices instead of the dealer.
    pub(crate) lattice: Layers,
}

#[derive(Clone, Copy)]
pub(crate) struct LinearLayer<'a> {
    pub(crate) id: NodeId,
    /// Its shape for one input.
    pub(crate) conv: &'a ConvSpec,
    pub(crate) width: u32,
    pub(crate) batch: usize,
}

pub(super) fn domain<C: Scheme>(suffix: &str) -> String {
    format!("tacit 2026-11 {}{suffix}", C::NAME)
}

/// A compiled model.
pub(crate) struct Plan<C: Scheme> {
    pub(crate) graph: Arc<RingGraph>,
    /// The steps, for all inputs of the batch.
    pub(crate) steps: Vec<Step<C>>,
    /// Number of inputs of one offline and one online phase.
    pub(crate) batch: usize,
    pub(crate) choices: Choices,
    options: C::Options,
    binding: [u8; 32],
}

impl<C: Scheme> Plan<C> {
    /// Compiles a graph.
    ///
    /// # Errors
    /// `Unsupported` names the first node that cannot be compiled.
    pub(crate) fn compile(graph: RingGraph, options: C::Options) -> Result<Self, BackendError> {
        let steps = steps::<C>(&graph, &options)?;
        share::check_sizes(&graph, &steps, |step, node| C::added(step, node, &options))?;
        let choices = C::choose(&graph, &steps, &options)?;
        let binding = digest::<C>(&graph, &options, &steps, &choices.lattice);
        Ok(Self { graph: Arc::new(graph), steps, batch: 1, choices, options, binding })
    }

    /// Returns the plan for `batch` inputs from the plan for one, with the same exchanges.
    ///
    /// # Panics
    /// If this is the plan of a batch.
    pub(crate) fn batched(&self, batch: usize) -> Self {
        assert_eq!(self.batch, 1, "plans of batches are made from the plan for one input");
        let steps = self.steps.iter().map(|step| step.times(batch)).collect();
        let Choices { moved_tensors, lattice } = &self.choices;
        let (graph, choices) =
            (Arc::clone(&self.graph), Choices { moved_tensors: moved_tensors.clone(), lattice: lattice.times(batch) });
        let binding = seam::batch_digest(&self.binding, batch);
        Self { graph, steps, batch, choices, options: self.options, binding }
    }

    /// Binds a plan as [`compile`](Self::compile) makes it to a model, by the digests that the
    /// public part states.
    pub(crate) fn bound_to(self, stated: &[[u8; 32]]) -> Self {
        let parts: Vec<&[u8]> = std::iter::once(&self.binding).chain(stated).map(|digest| &digest[..]).collect();
        Self { binding: seam::digest(&domain::<C>(""), &parts), ..self }
    }

    /// Digest that material is bound to: the plan, the model ([`bound_to`](Self::bound_to)), and
    /// the batch.
    pub(crate) fn binding(&self) -> [u8; 32] {
        self.binding
    }

    pub(crate) fn graph(&self) -> &RingGraph {
        &self.graph
    }

    pub(crate) fn options(&self) -> &C::Options {
        &self.options
    }

    /// Number of elements of a node's tensor, over all inputs of the batch.
    pub(crate) fn elements(&self, node: &Node) -> usize {
        self.batch * node.elements()
    }

    /// The linear layer `id` of shape `conv`.
    pub(crate) fn layer<'a>(&self, id: NodeId, conv: &'a ConvSpec) -> LinearLayer<'a> {
        LinearLayer { id, conv, width: self.graph.nodes()[id].fixed.width, batch: self.batch }
    }

    /// The linear layers whose weights are masked. The client gets nothing of other nodes.
    pub(crate) fn masked_layers(&self) -> impl Iterator<Item = LinearLayer<'_>> {
        self.steps.iter().enumerate().filter_map(|(id, step)| match step {
            Step::Linear(conv) if self.choices.lattice.place(id).is_none() => Some(self.layer(id, conv)),
            _ => None,
        })
    }

    /// The relation of results to the reference: truncating both shares is off by at most one unit.
    pub(crate) fn numerics(&self) -> Numerics {
        let (linear, relu_drop) = (self.choices.lattice.max_error(), self.options.relu_drop());
        Numerics::UlpPerTruncation { below: 1, above: 1, linear, relu_drop }
    }

    /// Walks over the client's shares, which are drawn from `seed`. Returns the share of the
    /// result, and the phase.
    pub(crate) fn walk_client<P: ClientPhase<C>>(
        &self,
        seed: Prg,
        phase: P,
        stop: &Stop,
    ) -> Result<(Vec<u64>, P), BackendError> {
        let Self { graph, steps, batch, .. } = self;
        let mut walk = ClientWalk { graph, steps, batch: *batch, seed, phase, tap: &mut |_, _| {} };
        let share = stop.walk(&**graph, &mut walk)?;
        Ok((share, walk.phase))
    }

    /// Walks over the server's shares. Returns the share of the result, and the phase.
    pub(crate) fn walk_server<P: ServerPhase<C>>(&self, phase: P, stop: &Stop) -> Result<(Vec<u64>, P), BackendError> {
        let Self { graph, steps, batch, .. } = self;
        let mut walk = ServerWalk { graph, steps, batch: *batch, phase, tap: &mut |_, _| {} };
        let share = stop.walk(&**graph, &mut walk)?;
        Ok((share, walk.phase))
    }
}

pub(crate) fn steps<C: Scheme>(graph: &RingGraph, options: &C::Options) -> Result<Vec<Step<C>>, BackendError> {
    share::steps(graph, &mut StepMaker::<C> { graph, options })
}

/// Digest of what the parties and the dealer must have alike, for the plan for one input.
fn digest<C: Scheme>(graph: &RingGraph, options: &C::Options, steps: &[Step<C>], lattice: &Layers) -> [u8; 32] {
    let steps: Vec<_> =
        steps.iter().map(|step| (step.number(), step.gates().map(C::canonical_gate).collect::<Vec<_>>())).collect();
    let canonical = postcard::to_stdvec(&(graph.spec(), options, steps)).and_then(|canonical| match C::LATTICES {
        true => postcard::to_extend(&lattice.choices(), canonical),
        false => Ok(canonical),
    });
    let canonical = canonical.expect("plain data in memory can be encoded");
    seam::digest(&domain::<C>(" plan"), &[&canonical])
}

struct StepMaker<'a, C: Scheme> {
    graph: &'a RingGraph,
    options: &'a C::Options,
}

impl<C: Scheme> Compile<C> for StepMaker<'_, C> {
    fn linear(&mut self, tensor: NodeId, id: NodeId) -> ConvSpec {
        conv_spec(self.graph, tensor, id)
    }

    fn relu(&mut self, n: usize, width: u32, wide: u32, tests_all_bits: bool) -> Result<C::Gate, String> {
        let drop = if tests_all_bits { 0 } else { self.options.relu_drop().min(width - 4) };
        Ok(C::gate(self.options, n, width, drop, vec![Value::Tested { wide }]))
    }

    fn maximum(&mut self, n: usize, width: u32, index: Option<u32>) -> C::Gate {
        let values = std::iter::once(Value::Tested { wide: width }).chain(index.map(|width| Value::Other { width }));
        C::gate(self.options, n, width, 0, values.collect())
    }

    fn carry(&mut self, n: usize, bits: u32, width: u32) -> C::Gate {
        C::gate(self.options, n, bits + 1, 0, vec![Value::MinusOne { width }])
    }

    fn look_up(&mut self, n: usize, width: u32, table: &Table) -> Result<LookUp, String> {
        let look_up = table.look_up(n, width)?;
        C::check_look_up(self.options, &look_up, table).map(|()| look_up)
    }

    fn widen(&mut self, n: usize, width: u32, extra: u32) -> C::Widen {
        C::widen(self.options, WrapSpec { n, width, extra })
    }
}
