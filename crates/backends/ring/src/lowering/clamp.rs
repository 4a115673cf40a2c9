//! Optional clamps that keep every accepted input inside the rings ([`RingOptions::clamp`]).
//!
//! The bounds of the module `range` grow from layer to layer by the sum of magnitudes of a layer's weights. A
//! layer's input is clamped if its bound exceeds the calibrated magnitude (with its guard, and the room for
//! extreme inputs) by more than a factor. The clamp is `min(x, c) = c - relu(c - x)`: one comparison per
//! element, or two where `x` may also be far below zero. The bounds of the clamped network choose its rings.
//! A larger factor takes fewer clamps and wider rings; the back end's price decides.

use tacit_graph::float::FloatOp;
use tacit_graph::{Model, Watch};

use super::emit::{self, Emitted};
use super::scheme::Scheme;
use super::{Problem, RingOptions, Target, range};
use crate::{Op, RingError};
use tacit_backend_api::{BackendError, Result};

const ROOM_LOGS: std::ops::RangeInclusive<i32> = 0..=10;
/// Medium scales at which prices are compared.
const TYPICAL_SCHEME: Scheme = Scheme::Relative { activations: 7, weights: 9, most: 12 };

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Clamp {
    pub node: usize,
    /// Largest magnitude let through.
    pub limit: f64,
    /// Whether values below `-limit` are clamped as well.
    pub below: bool,
}

/// The model with the clamps that cost least in the target back end.
pub(super) fn clamped(model: &Model, options: &RingOptions, target: &Target, watch: &Watch) -> Result<Model> {
    let plain = RingOptions { clamp: false, ..options.clone() };
    let scheme = options.frac_bits.map_or(TYPICAL_SCHEME, |f| Scheme::fixed(f, options.weight_bits.unwrap_or(f)));
    let emitted = emit::emit(&Problem::new(model, &plain, watch), &scheme, false)?;
    let mut tried = Vec::new();
    let mut best: Option<(f64, Model)> = None;
    let mut refused = None;
    for room in ROOM_LOGS {
        watch.tell("choosing clamps, attempts", tried.len(), None)?;
        let clamps = find(model, options, &emitted, f64::from(room).exp2());
        if tried.contains(&clamps) {
            continue;
        }
        let candidate = insert(model, &clamps)?;
        tried.push(clamps);
        let price = emit::emit(&Problem::new(&candidate, options, watch), &scheme, false)
            .map_err(BackendError::from)
            .and_then(|emitted| (target.price)(&emitted.graph, *options.relu_drop.start()));
        match price {
            Ok(price) if best.as_ref().is_none_or(|(best_price, _)| price < *best_price) => {
                best = Some((price, candidate))
            }
            Ok(_) => {}
            Err(error)
                if matches!(error, BackendError::Unsupported { .. })
                    || matches!(RingError::find_in(&error), Some(RingError::NoRing { .. })) =>
            {
                refused = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    best.map(|(_, model)| model).ok_or_else(|| refused.expect("every candidate without a price was refused"))
}

/// Finds tensors that layers read and whose bounds, after the clamps before them, exceed the likely magnitude
/// by more than `room`.
fn find(model: &Model, options: &RingOptions, emitted: &Emitted, room: f64) -> Vec<Clamp> {
    let (graph, stats) = (&model.graph, &model.calibration);
    let read_by_layer: Vec<bool> =
        graph.users().iter().map(|users| users.iter().any(|&u| graph.nodes[u].op.is_linear())).collect();
    let mut clamps: Vec<Clamp> = Vec::new();
    let (range, error) = (model.interface.input.range.ends(), options.linear_error);
    range::walk_bounds(&emitted.graph, &emitted.weights, range, error, &mut |id, spans| {
        let (node, source) = (&emitted.graph.nodes()[id], emitted.origin[id]);
        let limit = likely_magnitude(stats.max_abs[source], stats.extreme[source], options);
        if !read_by_layer[source] || matches!(node.op, Op::Input) || limit == 0.0 {
            return;
        }
        let units = limit * f64::from(node.fixed.frac_bits).exp2();
        let [low, high] = range::join(spans.iter().copied());
        if low.abs().max(high) <= units * room && clamps.iter().all(|c| c.node != source) {
            return;
        }
        let below = low < -units;
        match clamps.iter_mut().find(|c| c.node == source) {
            Some(clamp) => clamp.below |= below,
            None => clamps.push(Clamp { node: source, limit, below }),
        }
        let floor = if below { -units } else { f64::NEG_INFINITY };
        spans.iter_mut().for_each(|s| *s = s.map(|v| v.clamp(floor, units)));
    });
    clamps
}

/// The magnitude that a ring would hold without clamps: calibration with the guard, and extreme inputs with
/// their margin.
fn likely_magnitude(max_abs: f64, extreme: f64, options: &RingOptions) -> f64 {
    (max_abs * options.guard_bits.exp2()).max(extreme * emit::EXTREME_MARGIN)
}

/// All readers of a clamped tensor read the clamped values.
fn insert(model: &Model, clamps: &[Clamp]) -> Result<Model, RingError> {
    let mut clamped = model.clone();
    let old = std::mem::take(&mut clamped.graph.nodes);
    let mut origin = Vec::with_capacity(old.len());
    let mut new_ids: Vec<usize> = Vec::with_capacity(old.len());
    for (id, mut node) in old.into_iter().enumerate() {
        node.inputs.iter_mut().for_each(|i| *i = new_ids[*i]);
        clamped.graph.nodes.push(node);
        origin.push(id);
        let mut last_id = clamped.graph.nodes.len() - 1;
        if let Some(clamp) = clamps.iter().find(|c| c.node == id) {
            let (name, channels) = (clamped.graph.nodes[last_id].name.clone(), clamped.graph.nodes[last_id].shape[0]);
            let limit = clamp.limit;
            let (mut ops, mut top) = (Vec::new(), limit);
            if clamp.below {
                (ops, top) = (vec![affine(channels, 1.0, limit), FloatOp::Relu], 2.0 * limit);
            }
            ops.extend([affine(channels, -1.0, top), FloatOp::Relu, affine(channels, -1.0, limit)]);
            for (k, op) in ops.into_iter().enumerate() {
                let name = format!("{name}.clamp{k}");
                last_id = clamped.graph.push(&name, op, &[last_id], &[]).map_err(|what| RingError::NoRing { what })?;
                origin.push(id);
            }
        }
        new_ids.push(last_id);
    }
    clamped.graph.output = new_ids[clamped.graph.output];
    for sizes in
        [&mut clamped.calibration.max_abs, &mut clamped.calibration.mean_square, &mut clamped.calibration.extreme]
    {
        *sizes = origin.iter().map(|&i| sizes[i]).collect();
    }
    let two_sided = clamps.iter().filter(|c| c.below).count();
    clamped.notes.push(format!(
        "{} tensors are clamped to what calibration and extreme inputs reach, with room ({two_sided} of them on both sides)",
        clamps.len()
    ));
    Ok(clamped)
}

/// The same factor and addend for each channel.
fn affine(channels: usize, scale: f64, shift: f64) -> FloatOp {
    FloatOp::Affine { scale: vec![scale as f32; channels], shift: vec![shift as f32; channels] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::tiny_cnn;
    use crate::lowering::fixtures::lowered;
    use crate::{Node, reference};
    use tacit_graph::OutputMode;
    use tacit_graph::rng::SplitMix;

    /// Random inputs of the tiny network from both ends of the range.
    fn inputs(count: usize) -> Vec<Vec<f32>> {
        let mut rng = SplitMix::new(5);
        (0..count).map(|_| (0..64).map(|_| rng.range(-1.0, 1.0).signum() as f32).collect()).collect()
    }

    #[test]
    fn clamped_model_cannot_overflow() {
        for output_mode in [OutputMode::Logits, OutputMode::Top1] {
            let mut model = tiny_cnn(output_mode);
            let plain = lowered(&model, &RingOptions::default());
            assert!(plain.report.overflow.likely > 0);
            // A calibration with tiny magnitudes: rings would be far too narrow.
            for size in model.calibration.max_abs[1..].iter_mut().chain(&mut model.calibration.extreme[1..]) {
                *size *= 0.1;
            }
            let clamped = lowered(&model, &RingOptions { clamp: true, ..RingOptions::default() });
            assert_eq!(clamped.report.overflow.likely, 0);
            assert!(clamped.report.notes.iter().any(|n| n.contains("clamped")), "{:?}", clamped.report.notes);
            for x in inputs(20) {
                let ints = reference::quantize_input(&clamped.graph, &x).unwrap();
                assert!(reference::range_check(&clamped.graph, &clamped.weights, &ints).unwrap().is_empty());
                assert!(clamped.graph.nodes().iter().any(|n: &Node| n.name.contains(".clamp")));
            }
        }
    }

    #[test]
    fn clamps_keep_likely_values() {
        let model = tiny_cnn(OutputMode::Logits);
        let every_node: Vec<Clamp> = (1..model.graph.nodes.len())
            .filter(|&id| model.graph.users()[id].iter().any(|&u| model.graph.nodes[u].op.is_linear()))
            .map(|node| Clamp { node, limit: model.calibration.extreme[node].max(1.0) * 2.0, below: node % 2 == 0 })
            .collect();
        assert!(!every_node.is_empty());
        let clamped = insert(&model, &every_node).unwrap();
        clamped.check().unwrap();
        for x in inputs(5) {
            let (a, b) = (model.run(&x).unwrap(), clamped.run(&x).unwrap());
            assert_eq!(tacit_floats::first_largest(&a), tacit_floats::first_largest(&b));
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4), "{a:?} {b:?}");
        }
        // The clamps take effect: no larger value passes.
        let narrow: Vec<Clamp> = every_node.iter().map(|c| Clamp { limit: 1e-3, below: true, ..*c }).collect();
        let cut = insert(&model, &narrow).unwrap();
        let mut clamp_count = 0;
        tacit_graph::float::run::run_tapped(&cut.graph, &inputs(1)[0], &mut |_, node, values| {
            if node.name.ends_with(".clamp4") {
                clamp_count += 1;
                assert!(values.iter().all(|v| v.abs() <= 1.1e-3), "{}", node.name);
            }
        })
        .unwrap();
        assert_eq!(clamp_count, narrow.len());
    }
}
