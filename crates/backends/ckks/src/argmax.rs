//! Mode top-1, which reveals the best class alone. The last linear step puts the outputs into coefficients,
//! and the server hides all coefficients under a uniform mask. `cheetah`'s gates compute the arg max of the
//! resulting shares. Neither party sees an output.
//!
//! *Outputs as coefficients.* A message whose slots repeat after P is a polynomial in `Y = X^(N / 2P)`. The
//! slots `sum_k v_k 2 cos(pi k 5^j / 2P)`, j < P, belong to `sum_k v_k (Y^k + Y^-k)`: for k = 1 .. n < P,
//! coefficient `k N / 2P` is v_k. So the map from outputs to coefficients is one more factor of the last
//! matrix, and takes no level.

use std::f64::consts::PI;
use std::sync::Arc;

use tacit_graph::{InputSpec, Interface, Interval, OutputMode};
use tacit_he::ckks::Parameters;

use super::sparse::Sparse;
use super::wrong;
use tacit_backend_api::Result;
use tacit_ring::{FixedPoint, Node, Op, RingGraph, RingSpec};
use tacit_two_party::cheetah::{self, Cheetah, Plan};

/// Bits below the outputs' range that are compared.
const COMPARED_BITS: u32 = 16;
/// Outputs that differ by less than this share of their range count as tied.
pub(super) const TIED_SHARE: f64 = 1.0 / (1 << COMPARED_BITS) as f64;
/// Most outputs that can be compared.
const MAX_OUTPUTS: usize = 1 << 12;

/// The number of slots for `n` outputs, after which they repeat.
pub(super) const fn period(n: usize) -> usize {
    (n + 1).next_power_of_two()
}

/// Returns `2 cos(pi k 5^j / 2P)` for slot j and output k - 1.
fn cosines(n: usize) -> impl Iterator<Item = Vec<f64>> {
    let twice = 2 * period(n);
    let powers = std::iter::successors(Some(1), move |power| Some(5 * power % (2 * twice)));
    powers
        .take(twice / 2)
        .map(move |power| (1..=n).map(|k| 2.0 * (PI * (k * power % (2 * twice)) as f64 / twice as f64).cos()).collect())
}

/// The matrix from `n` outputs to slots.
pub(super) fn matrix(n: usize) -> Sparse {
    Sparse::from_rows(n, cosines(n).map(|row| row.iter().enumerate().map(|(k, &v)| (k as u32, v as f32)).collect()))
}

/// The `n` outputs from slots.
pub(super) fn outputs(slots: &[f64], n: usize) -> Vec<f64> {
    let mut outputs = vec![0.0; n];
    for (row, slot) in cosines(n).zip(slots) {
        outputs.iter_mut().zip(row).for_each(|(v, c)| *v += c * slot / (2 * slots.len()) as f64);
    }
    outputs
}

/// The class of outputs in the form of an answer; NaN if any output is NaN.
pub(super) fn class(outputs: &[f64]) -> Vec<f64> {
    vec![tacit_floats::first_largest(outputs).map_or(f64::NAN, |class| class as f64)]
}

pub(super) struct ArgMax {
    /// Plan of `cheetah`, on shares of the coefficients.
    pub plan: Arc<Plan<Cheetah>>,
    n: usize,
}

impl ArgMax {
    /// Makes the arg max for the outputs of a ciphertext at level 1.
    ///
    /// # Errors
    /// Too few outputs, too many, or parameters that leave too little room.
    pub fn new(n: usize, parameters: &Parameters) -> Result<Self> {
        let (prime, scale) = (parameters.primes()[0] as f64, parameters.scale(1).to_f64());
        let width = COMPARED_BITS + (prime / scale).log2().ceil() as u32;
        if !(2..=MAX_OUTPUTS).contains(&n) || period(n) > parameters.degree() / 2 {
            return wrong(format!("the best of {n} outputs: 2 to {MAX_OUTPUTS} are compared"));
        }
        if f64::from(width) > prime.log2().floor() || prime >= 50f64.exp2() {
            return wrong(format!("shares of {width} bits from a prime of {:.0}", prime.log2()));
        }
        let nodes = vec![
            node("outputs", Op::Input, vec![], vec![n], width),
            node("best", Op::ArgMax, vec![0], vec![1], n.ilog2() + 3),
        ];
        let input = InputSpec::plain(Interval { low: -1.0, high: 1.0 });
        let interface = Interface {
            name: "best".into(),
            input_shape: vec![n],
            input,
            output_shape: vec![1],
            output_mode: OutputMode::Top1,
            outputs: vec![],
            final_activation: None,
        };
        let spec = RingSpec { model_id: [0; 16], interface, nodes, output: 1, output_multiplier: 1.0 };
        let graph = RingGraph::new(spec)?;
        let plan = Arc::new(cheetah::compile(graph, cheetah::Options::default())?);
        Ok(Self { plan, n })
    }

    /// The bits of the ring of the shares.
    pub fn width(&self) -> u32 {
        self.plan.graph().input().fixed.width
    }

    /// The shares of the outputs from a party's shares of all N coefficients.
    pub fn shares(&self, coefficients: &[u64]) -> Vec<u64> {
        let distance = coefficients.len() / (2 * period(self.n));
        (1..=self.n).map(|k| coefficients[k * distance]).collect()
    }
}

fn node(name: &str, op: Op, inputs: Vec<usize>, shape: Vec<usize>, width: u32) -> Node {
    Node { name: name.into(), op, inputs, shape, fixed: FixedPoint { width, frac_bits: 0 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_invert_matrix() {
        for n in [2, 3, 4, 10, 31, 100] {
            let values: Vec<f64> = (0..n).map(|k| (k as f64 * 1.7).sin()).collect();
            let slots = matrix(n).apply(&values);
            assert_eq!(slots.len(), period(n));
            let result = outputs(&slots, n);
            assert!(values.iter().zip(&result).all(|(v, r)| (v - r).abs() < 1e-5), "{n}: {values:?} {result:?}");
        }
    }
}
