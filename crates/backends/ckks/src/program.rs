//! The server's program: vectors of slots, each made by one step from earlier ones.

use rayon::prelude::*;
use tacit_he::ckks::Polynomial;

use super::lanes::Value;
use super::sparse::Sparse;

/// Index of a vector. A step reads only vectors with smaller indices.
pub(super) type VectorId = usize;

/// A tensor in slots.
pub(super) struct Vector {
    /// Name of the node that the vector belongs to.
    pub name: String,
    pub shape: Vec<usize>,
    /// Scale of each element, whose value is `scale * slot + shift`.
    pub scale: Vec<f64>,
    /// See `scale`.
    pub shift: f64,
    pub step: Step,
    /// Largest `|slot|` on the calibration samples.
    pub largest: f64,
    /// Bound of `|slot|` for all accepted inputs; infinite where none is known.
    pub certain: f64,
    /// The largest `|slot|` that is computed rightly, if there is a limit.
    pub limit: Option<f64>,
}

impl Vector {
    /// A vector with slots of 1 at most on the samples, and without known bounds.
    pub fn new(name: String, shape: Vec<usize>, scale: Vec<f64>, step: Step) -> Self {
        Self { name, shape, scale, shift: 0.0, step, largest: 1.0, certain: f64::INFINITY, limit: None }
    }
}

/// How slots of a vector follow from other vectors. All steps but the first two work element by element.
pub(super) enum Step {
    /// Encrypted by the client.
    Input,
    /// `sum M_k v_k + bias`: one level.
    Linear {
        /// Matrices on the elements of earlier vectors.
        parts: Vec<(VectorId, Sparse)>,
        bias: Vec<f64>,
    },
    /// `v^2 + linear v + constant`: one level.
    Square { argument: VectorId, linear: Vec<f64>, constant: Vec<f64> },
    /// `(square v + linear) v + constant`: two levels.
    Quadratic { argument: VectorId, square: Vec<f64>, linear: Vec<f64>, constant: Vec<f64> },
    /// A polynomial of degree 3 or more, the same for all elements.
    Polynomial { argument: VectorId, polynomial: Polynomial },
    /// Product of two vectors of one layout: one level.
    Product { factors: [VectorId; 2] },
}

impl Step {
    pub fn inputs(&self) -> Vec<VectorId> {
        match self {
            Self::Input => vec![],
            Self::Linear { parts, .. } => parts.iter().map(|(source, _)| *source).collect(),
            Self::Square { argument, .. } | Self::Quadratic { argument, .. } | Self::Polynomial { argument, .. } => {
                vec![*argument]
            }
            Self::Product { factors } => factors.to_vec(),
        }
    }

    /// Number of levels that the step takes.
    pub fn depth(&self) -> usize {
        match self {
            Self::Input => 0,
            Self::Linear { .. } | Self::Square { .. } | Self::Product { .. } => 1,
            Self::Quadratic { .. } => 2,
            Self::Polynomial { polynomial, .. } => polynomial.depth(),
        }
    }

    /// Number of parts of a linear step; 0 for other steps.
    pub fn parts(&self) -> usize {
        if let Self::Linear { parts, .. } = self { parts.len() } else { 0 }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Linear { .. } => "linear",
            Self::Square { .. } => "square",
            Self::Quadratic { .. } => "quadratic",
            Self::Polynomial { .. } => "polynomial",
            Self::Product { .. } => "product",
        }
    }

    /// Computes the step from the slots of all earlier vectors.
    pub fn apply<V: Value>(&self, slots: &[Vec<V>]) -> Vec<V> {
        match self {
            Self::Input => slots[0].clone(),
            Self::Linear { parts, bias } => {
                let mut sum: Vec<V> = bias.iter().map(|&b| V::of(b)).collect();
                for (source, matrix) in parts {
                    sum.iter_mut().zip(matrix.apply(&slots[*source])).for_each(|(s, v)| *s = s.plus(v));
                }
                sum
            }
            Self::Square { argument, linear, constant } => {
                map_slots(&slots[*argument], &|i, v| quadratic(v, 1.0, linear[i], constant[i]))
            }
            Self::Quadratic { argument, square, linear, constant } => {
                map_slots(&slots[*argument], &|i, v| quadratic(v, square[i], linear[i], constant[i]))
            }
            Self::Polynomial { argument, polynomial } => map_slots(&slots[*argument], &|_, v| v.evaluate(polynomial)),
            Self::Product { factors: [a, b] } => map_slots(&slots[*a], &|i, v| v.times(slots[*b][i])),
        }
    }
}

fn map_slots<V: Value>(slots: &[V], f: &(dyn Fn(usize, V) -> V + Sync)) -> Vec<V> {
    slots.par_iter().with_min_len(1 << 10).enumerate().map(|(i, &v)| f(i, v)).collect()
}

fn quadratic<V: Value>(v: V, square: f64, linear: f64, constant: f64) -> V {
    v.times(V::of(square)).plus(V::of(linear)).times(v).plus(V::of(constant))
}

/// All vectors; the first is the input, the last the output.
pub(super) struct Program {
    pub vectors: Vec<Vector>,
}

impl Program {
    pub fn output(&self) -> &Vector {
        &self.vectors[self.vectors.len() - 1]
    }

    pub fn readers(&self) -> Vec<Vec<VectorId>> {
        let mut readers = vec![Vec::new(); self.vectors.len()];
        for (id, vector) in self.vectors.iter().enumerate() {
            vector.step.inputs().into_iter().for_each(|source| readers[source].push(id));
        }
        readers
    }

    /// Runs the program for one input or several side by side. `visit` may change each vector's slots before
    /// they are read.
    pub fn run<V: Value>(&self, input: Vec<V>, mut visit: impl FnMut(VectorId, &mut Vec<V>)) -> Vec<V> {
        let scale = V::of(1.0 / self.vectors[0].scale[0]);
        let mut slots: Vec<Vec<V>> = Vec::with_capacity(self.vectors.len());
        let mut last = vec![0; self.vectors.len()];
        for (id, vector) in self.vectors.iter().enumerate() {
            vector.step.inputs().into_iter().for_each(|source| last[source] = id);
        }
        for (id, vector) in self.vectors.iter().enumerate() {
            let mut result = match vector.step {
                Step::Input => input.iter().map(|v| v.times(scale)).collect(),
                ref step => step.apply(&slots),
            };
            visit(id, &mut result);
            slots.push(result);
            for source in vector.step.inputs().into_iter().filter(|source| last[*source] == id) {
                slots[source] = Vec::new();
            }
        }
        let output = self.output();
        let output_slots = slots.pop().expect("there is an output");
        output_slots.into_iter().zip(&output.scale).map(|(v, &scale)| v.times(V::of(scale))).collect()
    }
}
