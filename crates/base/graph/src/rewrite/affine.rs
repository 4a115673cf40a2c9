//! Per-channel affine maps (BatchNormalization, constants, the division of averages). A map is
//! folded into a linear layer where that is exact, moved to the client at either end, or else turned
//! into a depthwise convolution.

use super::Work;
use crate::float::FloatOp;
use crate::geometry::ConvGeometry;
use crate::{ChannelAffine, GraphError};

impl Work {
    pub(super) fn fold_affines(&mut self) -> Result<(), GraphError> {
        let mut users = self.graph.users();
        for id in 0..self.graph.nodes.len() {
            let FloatOp::Affine { scale, shift } = &self.graph.nodes[id].op else { continue };
            let (scale, shift) = (scale.clone(), shift.clone());
            if self.graph.nodes[id].inputs.is_empty() {
                continue;
            }
            if self.one_affine(id, &scale, &shift, &users)? {
                users = self.graph.users();
            }
        }
        Ok(())
    }

    fn one_affine(
        &mut self,
        id: usize,
        scale: &[f32],
        shift: &[f32],
        users: &[Vec<usize>],
    ) -> Result<bool, GraphError> {
        let source = self.graph.nodes[id].inputs[0];
        if scale.iter().all(|s| *s == 1.0) && shift.iter().all(|s| *s == 0.0) {
            self.remove(id, "scaling by one removed");
            return Ok(true);
        }
        let alone = users[source].len() == 1 && self.graph.output != source;
        if alone && self.fold_into_producer(source, scale, shift) {
            self.remove(id, "normalisation folded into the layer before");
            return Ok(true);
        }
        // This precedes folding: inputs that the client normalises have the same size in every
        // channel, independent of the data's units.
        if source == 0 && alone {
            self.input_affine = Some(match self.input_affine.take() {
                None => ChannelAffine { scale: scale.to_vec(), shift: shift.to_vec() },
                Some(ChannelAffine { scale: s0, shift: t0 }) => ChannelAffine {
                    scale: s0.iter().zip(scale).map(|(a, b)| a * b).collect(),
                    shift: t0.iter().zip(scale).zip(shift).map(|((t, b), u)| fma(*t, *b, *u)).collect(),
                },
            });
            self.remove(id, "input normalisation left to the client, which learns its numbers");
            return Ok(true);
        }
        if self.graph.output != id && self.fold_into_consumers(id, scale, shift, &users[id]) {
            self.remove(id, "normalisation folded into the layer behind");
            return Ok(true);
        }
        if alone && self.fold_through_sum(id, source, scale, shift, users) {
            self.remove(id, "division of an average folded into the layer before");
            return Ok(true);
        }
        let factor = uniform_factor(scale, shift).filter(|f| *f > 0.0);
        if self.graph.output == id
            && users[id].is_empty()
            && let Some(factor) = factor
        {
            self.output_multiplier *= f64::from(factor);
            self.remove(id, "factor on the output left to the client");
            return Ok(true);
        }
        self.move_forward(id, scale, shift, factor, &users[id])
    }

    fn remove(&mut self, id: usize, why: &'static str) {
        self.bypass(id);
        self.graph.nodes[id].inputs.clear();
        self.graph.nodes[id].op = FloatOp::Input;
        self.count(why);
    }

    /// Folds a map into the linear layer in front: `scale * (W x + b) + shift`. Also folds into an
    /// affine map in front.
    fn fold_into_producer(&mut self, source: usize, scale: &[f32], shift: &[f32]) -> bool {
        match &mut self.graph.nodes[source].op {
            FloatOp::Conv { weights, bias, .. } | FloatOp::Dense { weights, bias } => {
                let row = weights.len() / bias.len().max(1);
                for (o, b) in bias.iter_mut().enumerate() {
                    *b = fma(*b, scale[o], shift[o]);
                    weights[o * row..(o + 1) * row].iter_mut().for_each(|w| *w *= scale[o]);
                }
                true
            }
            FloatOp::Affine { scale: s0, shift: t0 } => {
                for c in 0..s0.len() {
                    t0[c] = fma(t0[c], scale[c], shift[c]);
                    s0[c] *= scale[c];
                }
                true
            }
            _ => false,
        }
    }

    /// Folds a map into every reader: `W (scale * x + shift) + b`. With zero padding an addend is
    /// not exact, since padded zeros do not get it.
    fn fold_into_consumers(&mut self, id: usize, scale: &[f32], shift: &[f32], readers: &[usize]) -> bool {
        let has_shift = shift.iter().any(|s| *s != 0.0);
        let fits = readers.iter().all(|u| match &self.graph.nodes[*u].op {
            FloatOp::Conv { geometry, .. } => !has_shift || geometry.pads == [0; 4],
            FloatOp::Dense { .. } => true,
            _ => false,
        });
        if readers.is_empty() || !fits {
            return false;
        }
        let mut readers = readers.to_vec();
        readers.dedup();
        let channels = self.graph.nodes[id].shape[0];
        for u in readers {
            match &mut self.graph.nodes[u].op {
                FloatOp::Conv { geometry: g, weights, bias } => {
                    let taps = g.kernel[0] * g.kernel[1];
                    let (ins, outs) = (channels / g.groups, g.out_channels / g.groups);
                    for (o, b) in bias.iter_mut().enumerate() {
                        let row = &mut weights[o * ins * taps..(o + 1) * ins * taps];
                        fold_row(row, b, taps, &scale[o / outs * ins..][..ins], &shift[o / outs * ins..][..ins]);
                    }
                }
                FloatOp::Dense { weights, bias } => {
                    for (o, b) in bias.iter_mut().enumerate() {
                        fold_row(&mut weights[o * channels..(o + 1) * channels], b, 1, scale, shift);
                    }
                }
                _ => {}
            }
        }
        true
    }

    /// Folds a map through a sum pool: `scale * sum(W x + b)`. The sum pool must be the only reader
    /// of the linear layer (and windows must be whole, if there is an addend).
    fn fold_through_sum(
        &mut self,
        id: usize,
        source: usize,
        scale: &[f32],
        shift: &[f32],
        users: &[Vec<usize>],
    ) -> bool {
        let FloatOp::SumPool(window) = &self.graph.nodes[source].op else { return false };
        let count = (window.kernel[0] * window.kernel[1]) as f32;
        let is_unpadded = window.pads == [0; 4];
        let layer = self.graph.nodes[source].inputs[0];
        let has_shift = shift.iter().any(|s| *s != 0.0);
        if users[layer].len() != 1 || self.graph.output == layer || (has_shift && !is_unpadded) {
            return false;
        }
        debug_assert_eq!(self.graph.nodes[id].inputs, [source]);
        let share: Vec<f32> = shift.iter().map(|s| s / count).collect();
        self.graph.nodes[layer].op.is_linear() && self.fold_into_producer(layer, scale, &share)
    }

    /// Moves an affine map behind its only reader, towards a linear layer or the output.
    fn move_forward(
        &mut self,
        id: usize,
        scale: &[f32],
        shift: &[f32],
        factor: Option<f32>,
        readers: &[usize],
    ) -> Result<bool, GraphError> {
        let [reader] = *readers else { return Ok(false) };
        if self.graph.output == id {
            return Ok(false);
        }
        match &self.graph.nodes[reader].op {
            FloatOp::Reshape => {
                let (inner, target) =
                    (self.graph.nodes[id].elements() / scale.len(), self.graph.nodes[reader].shape[0]);
                if !(is_uniform(scale) && is_uniform(shift)) && target != inner * scale.len() {
                    return Ok(false);
                }
                self.graph.nodes[id].op = FloatOp::Affine {
                    scale: repeat_channels(scale, inner, target),
                    shift: repeat_channels(shift, inner, target),
                };
                self.swap(id, reader)?;
            }
            FloatOp::Relu | FloatOp::MaxPool(_) | FloatOp::SumPool(_) if factor.is_some() => self.swap(id, reader)?,
            FloatOp::ArgMax if factor.is_some() => self.remove(id, "factor before the arg max removed"),
            _ => return Ok(false),
        }
        self.count("normalisation moved behind an operation it commutes with");
        Ok(true)
    }

    /// Turns maps that could not be folded and differ by channel into depthwise 1x1 convolutions
    /// (their numbers are private weights). Uniform maps remain and become public constants.
    pub(super) fn affines_to_layers(&mut self) -> Result<(), GraphError> {
        self.graph.sort()?;
        for id in 0..self.graph.nodes.len() {
            let FloatOp::Affine { scale, shift } = &self.graph.nodes[id].op else { continue };
            if is_uniform(scale) && is_uniform(shift) {
                continue;
            }
            let (scale, shift) = (scale.clone(), shift.clone());
            let (name, shape) = (self.graph.nodes[id].name.clone(), self.graph.nodes[id].shape.clone());
            let mut source = self.graph.nodes[id].inputs[0];
            let channels = shape[0];
            let image = [channels, 1, shape[1..].iter().product()];
            if shape.len() != 3 {
                source = self.push(&format!("{name}.in"), FloatOp::Reshape, &[source], &image)?;
            }
            let geometry = ConvGeometry { groups: channels, ..ConvGeometry::pointwise(channels) };
            let mut layer =
                self.push(&name, FloatOp::Conv { geometry, weights: scale, bias: shift }, &[source], &[])?;
            if shape.len() != 3 {
                layer = self.push(&format!("{name}.out"), FloatOp::Reshape, &[layer], &shape)?;
            }
            self.redirect(id, layer);
            self.count("normalisation made a depthwise layer");
        }
        Ok(())
    }
}

/// Returns the factor of a map that multiplies everything by one number and adds nothing.
fn uniform_factor(scale: &[f32], shift: &[f32]) -> Option<f32> {
    let uniform = is_uniform(scale) && shift.iter().all(|s| *s == 0.0);
    uniform.then(|| scale[0])
}

fn is_uniform(v: &[f32]) -> bool {
    v.iter().all(|x| *x == v[0])
}

/// Repeats each number `inner` times; equal numbers become `target` of them.
fn repeat_channels(v: &[f32], inner: usize, target: usize) -> Vec<f32> {
    if is_uniform(v) { vec![v[0]; target] } else { v.iter().flat_map(|x| vec![*x; inner]).collect() }
}

fn fma(x: f32, scale: f32, shift: f32) -> f32 {
    (f64::from(x) * f64::from(scale) + f64::from(shift)) as f32
}

fn fold_row(row: &mut [f32], bias: &mut f32, taps: usize, scale: &[f32], shift: &[f32]) {
    let mut sum = f64::from(*bias);
    for (i, block) in row.chunks_mut(taps).enumerate() {
        for w in block {
            sum += f64::from(*w) * f64::from(shift[i]);
            *w *= scale[i];
        }
    }
    *bias = sum as f32;
}
