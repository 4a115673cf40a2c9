//! GRU, one direction, unrolled over its steps. With `u = 1 - z = sigmoid(-..)` a step computes
//! `h + u c - u h`, so that a product directly follows a function. In encrypted slots the sum is
//! then part of the next layer; `h + u (c - h)` would need its own layer in front of the product.
//! Products with a state of zeros are left out.

use super::proto::NodeProto;
use super::view::Tensor;
use super::{Batch, Reader, Value, attribute, fail, int, unsupported};
use crate::float::FloatOp;
use crate::{Function, GraphError, MAX_STORED_ELEMENTS};

/// The weights of one gate: on the input `[H, F]`, on the state `[H, H]`, and both biases `[H]`.
struct Gate {
    input: Vec<f32>,
    state: Vec<f32>,
    input_bias: Vec<f32>,
    state_bias: Vec<f32>,
}

/// The state between steps.
enum State {
    Known(Vec<f32>),
    Node(usize),
}

/// A GRU layer: its gates in the order of the file (update, reset, candidate).
struct Cell {
    gates: [Gate; 3],
    features: usize,
    hidden: usize,
    /// Whether the reset gate multiplies the product of the state and its weights, instead of the
    /// state.
    reset_after: bool,
}

impl Gate {
    /// `sign (W x + b + added)`.
    fn on_input(&self, sign: f32, added: &[f32]) -> FloatOp {
        FloatOp::Dense {
            weights: self.input.iter().map(|w| sign * w).collect(),
            bias: self.input_bias.iter().zip(added).map(|(b, a)| sign * (b + a)).collect(),
        }
    }

    /// `R h` with its bias.
    fn of_known(&self, h: &[f32]) -> Vec<f32> {
        self.state.chunks(h.len()).zip(&self.state_bias).map(|(row, b)| dot(row, h) + b).collect()
    }

    /// `sign R h` of a node, with or without the bias.
    fn on_state(&self, sign: f32, with_bias: bool) -> FloatOp {
        let bias = self.state_bias.iter().map(|b| if with_bias { sign * b } else { 0.0 }).collect();
        FloatOp::Dense { weights: self.state.iter().map(|w| sign * w).collect(), bias }
    }
}

impl Reader<'_> {
    /// Reads a GRU and returns all states, and the last one.
    pub(super) fn gru(&mut self, n: &NodeProto) -> Result<Vec<Value>, GraphError> {
        let x = self.real(n, 0)?;
        let batch_first = int(n, "layout", 0) != 0;
        let [time, batch] = if batch_first { [1, 0] } else { [0, 1] };
        if x.batch == Some(time) && self.batch != Batch::One {
            let what = "its steps are along the batch of the network's input: export it with the batch first (PyTorch's batch_first=True), \
                        or put a Transpose in front";
            return Err(unsupported(n, what));
        }
        if x.shape.len() != 3 || x.shape[batch] != 1 {
            let order = if batch_first { "[1, steps, features]" } else { "[steps, 1, features]" };
            return Err(fail(n, format!("its input is {:?}: {order} is supported", x.shape)));
        }
        let (steps, features) = (x.shape[time], x.shape[2]);
        let cell = self.cell(n, features)?;
        self.check_steps(n, steps, &cell)?;
        let mut state = self.first_state(n, cell.hidden)?;
        let mut outputs = Vec::with_capacity(steps);
        for t in 0..steps {
            let input = self.select(n, &x, time, &[t])?;
            let input = self.arrange(n, &input, &[&[2]])?;
            let next_state = self.step(n, &cell, input, &state)?;
            outputs.push(next_state);
            state = State::Node(next_state);
        }
        let h = cell.hidden;
        let sequence = self.push(n, FloatOp::Concat, &outputs, &[])?;
        let last_state = *outputs.last().expect("a tensor has no empty axis");
        let (all_shape, last_shape) =
            if batch_first { (vec![1, steps, 1, h], vec![1, 1, h]) } else { (vec![steps, 1, 1, h], vec![1, 1, h]) };
        let batch_axes = if batch_first { [0, 0] } else { [2, 1] };
        let [all_batch, last_batch] = batch_axes.map(|axis| x.batch.map(|_| axis));
        let (sequence, last_state) =
            (Tensor::new(sequence, all_shape, all_batch), Tensor::new(last_state, last_shape, last_batch));
        Ok(vec![Value::Wire(sequence), Value::Wire(last_state)])
    }

    /// Reads the weights and refuses unsupported forms.
    fn cell(&self, n: &NodeProto, features: usize) -> Result<Cell, GraphError> {
        check_attributes(n)?;
        let (w, r) = (self.constant_input(n, 1)?, self.constant_input(n, 2)?);
        let hidden = match (w.shape.as_slice(), r.shape.as_slice()) {
            (&[1, rows, f], &[1, others, h]) if rows == 3 * h && others == rows && f == features && h > 0 => h,
            _ => {
                let what = format!("weights {:?} and {:?} do not fit {features} features", w.shape, r.shape);
                return Err(fail(n, what));
            }
        };
        let b = self.constant(n, 3)?.map_or_else(|| vec![0.0; 6 * hidden], |b| b.to_floats());
        if b.len() != 6 * hidden {
            return Err(fail(n, format!("{} biases for {hidden} hidden units: 6 each are needed", b.len())));
        }
        let (w, r) = (w.to_floats(), r.to_floats());
        let gates = [0, 1, 2].map(|k| Gate {
            input: part(&w, k, hidden * features),
            state: part(&r, k, hidden * hidden),
            input_bias: part(&b, k, hidden),
            state_bias: part(&b, k + 3, hidden),
        });
        Ok(Cell { gates, features, hidden, reset_after: int(n, "linear_before_reset", 0) != 0 })
    }

    /// Checks the number of steps: every step has its own copy of the weights.
    fn check_steps(&self, n: &NodeProto, steps: usize, cell: &Cell) -> Result<(), GraphError> {
        if let Some(lengths) = self.constant(n, 4)?
            && lengths.as_ints() != Some(&[steps as i64][..])
        {
            return Err(unsupported(n, "its sequence is cut short by `sequence_lens`; export it without"));
        }
        let weights_per_step = 3 * cell.hidden.saturating_mul(cell.features.saturating_add(cell.hidden));
        if weights_per_step.saturating_mul(steps) > MAX_STORED_ELEMENTS {
            return Err(unsupported(
                n,
                format!("{steps} steps of it have more than {MAX_STORED_ELEMENTS} weights; give it fewer steps"),
            ));
        }
        Ok(())
    }

    fn first_state(&mut self, n: &NodeProto, hidden: usize) -> Result<State, GraphError> {
        if n.input.get(5).is_none_or(String::is_empty) {
            return Ok(State::Known(vec![0.0; hidden]));
        }
        if self.is_constant(n, 5) {
            let initial_state = self.constant_input(n, 5)?.to_floats();
            return match initial_state.len() {
                l if l == hidden => Ok(State::Known(initial_state)),
                l => Err(fail(n, format!("a first state of {l} numbers for {hidden} hidden units"))),
            };
        }
        let h = self.real(n, 5)?;
        if h.elements() != hidden {
            return Err(fail(n, format!("a first state of shape {:?} for {hidden} hidden units", h.shape)));
        }
        let node = self.arrange_in_axis_order(n, &h)?.node;
        self.push_reshape(n, node, &[hidden]).map(State::Node)
    }

    /// Adds one step and returns the next state, `[H]`, for an input `[F]`.
    fn step(&mut self, n: &NodeProto, cell: &Cell, x: usize, h: &State) -> Result<usize, GraphError> {
        let [update, _, candidate] = &cell.gates;
        // `1 - z`.
        let u = self.gate(n, update, -1.0, x, h)?;
        let zeros = vec![0.0; cell.hidden];
        let bias = if cell.reset_after { &zeros } else { &candidate.state_bias };
        let mut inner = self.push(n, candidate.on_input(1.0, bias), &[x], &[])?;
        if let Some(candidate_state) = self.reset_state(n, cell, x, h)? {
            inner = self.push(n, FloatOp::Add, &[inner, candidate_state], &[])?;
        }
        let candidate = self.push(n, FloatOp::Function(Function::Tanh), &[inner], &[])?;
        let new = self.push(n, FloatOp::Mul, &[u, candidate], &[])?;
        match h {
            State::Known(h) if h.iter().all(|v| *v == 0.0) => Ok(new),
            State::Known(h) => {
                let scale = h.iter().map(|v| -v).collect();
                let old = self.push(n, FloatOp::Affine { scale, shift: h.clone() }, &[u], &[])?;
                self.push(n, FloatOp::Add, &[new, old], &[])
            }
            State::Node(h) => {
                let product = self.push(n, FloatOp::Mul, &[u, *h], &[])?;
                let old = self.push(n, FloatOp::Sub, &[*h, product], &[])?;
                self.push(n, FloatOp::Add, &[old, new], &[])
            }
        }
    }

    /// `sigmoid(sign (W x + R h + b))`.
    fn gate(&mut self, n: &NodeProto, gate: &Gate, sign: f32, x: usize, h: &State) -> Result<usize, GraphError> {
        let sum = match h {
            State::Known(h) => self.push(n, gate.on_input(sign, &gate.of_known(h)), &[x], &[])?,
            State::Node(h) => {
                let contribution = self.push(n, gate.on_state(sign, true), &[*h], &[])?;
                let part = self.push(n, gate.on_input(sign, &vec![0.0; gate.state_bias.len()]), &[x], &[])?;
                self.push(n, FloatOp::Add, &[part, contribution], &[])?
            }
        };
        self.push(n, FloatOp::Function(Function::Sigmoid), &[sum], &[])
    }

    /// Returns the state's part of the candidate's sum, reset before or after its weights; `None`
    /// if it is zero.
    fn reset_state(&mut self, n: &NodeProto, cell: &Cell, x: usize, h: &State) -> Result<Option<usize>, GraphError> {
        let [_, reset, candidate] = &cell.gates;
        let reset_state = match h {
            State::Known(values) => {
                let scale = if cell.reset_after { candidate.of_known(values) } else { values.clone() };
                if scale.iter().all(|v| *v == 0.0) {
                    return Ok(None);
                }
                let r = self.gate(n, reset, 1.0, x, h)?;
                let shift = vec![0.0; scale.len()];
                self.push(n, FloatOp::Affine { scale, shift }, &[r], &[])?
            }
            State::Node(node) => {
                let r = self.gate(n, reset, 1.0, x, h)?;
                let op = candidate.on_state(1.0, true);
                let state_part = if cell.reset_after { self.push(n, op, &[*node], &[])? } else { *node };
                self.push(n, FloatOp::Mul, &[r, state_part], &[])?
            }
        };
        let state_part = if cell.reset_after {
            reset_state
        } else {
            self.push(n, candidate.on_state(1.0, false), &[reset_state], &[])?
        };
        Ok(Some(state_part))
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
}

fn part(list: &[f32], k: usize, len: usize) -> Vec<f32> {
    list[k * len..(k + 1) * len].to_vec()
}

fn check_attributes(n: &NodeProto) -> Result<(), GraphError> {
    if let Some(direction) = attribute(n, "direction").map(|a| lowercase(&a.s)).filter(|d| d != "forward") {
        let what = "of the directions, `forward` is supported; reverse the sequence in front of it (Slice with step -1), and join two layers by Concat";
        return Err(unsupported(n, format!("its direction is `{direction}`: {what}")));
    }
    if let Some(named) = attribute(n, "activations").map(|a| a.strings.iter().map(|s| lowercase(s)).collect::<Vec<_>>())
        && named != ["sigmoid", "tanh"]
    {
        return Err(unsupported(
            n,
            format!("its activations are {named:?}: sigmoid and tanh are supported; train it with these"),
        ));
    }
    if attribute(n, "clip").is_some() {
        return Err(unsupported(n, "it clips what its functions read; export it without `clip`"));
    }
    Ok(())
}

fn lowercase(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_lowercase()
}
