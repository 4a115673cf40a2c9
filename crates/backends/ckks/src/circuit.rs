//! Runs a plan's steps on ciphertexts.

use tacit_graph::Watch;
use tacit_he::HeError;
use tacit_he::ckks::{Ciphertext, Complex, Encoder, Evaluator, LinearTransform, Scale, TransformSpec};

use super::layout;
use super::levelled_program::{Part, backend_error, part};
use super::noise::Place;
use super::plan::Plan;
use super::program::{Step, VectorId};
use tacit_backend_api::Result;
use tacit_backend_api::seam::Stop;

/// The encoded weights of a plan.
pub(super) struct Circuit {
    encoder: Encoder,
    /// Parts of each vector's step; empty unless the step is linear.
    linear: Vec<Vec<(VectorId, Compiled)>>,
}

/// A matrix, encoded to be applied to a ciphertext.
struct Compiled {
    product: Product,
    /// Distances over which the result is rotated and added to itself.
    folds: Vec<usize>,
}

/// How a matrix is applied to slots.
enum Product {
    Slots(Vec<Complex>, Scale),
    Transform(LinearTransform),
}

impl Circuit {
    /// Encodes the weights.
    ///
    /// # Errors
    /// Weights that are too large to be encoded.
    pub fn new(plan: &Plan) -> Result<Self> {
        let encoder = Encoder::new(&plan.context, plan.context.degree() / 2).map_err(backend_error)?;
        // Not parallel over steps: the unencoded diagonals of one step are the peak of memory, and their
        // encoding uses all threads.
        let ids = 0..plan.program.vectors.len();
        let linear = ids.map(|id| Compiled::parts(plan, &encoder, id)).collect::<Result<_, _>>()?;
        Ok(Self { encoder, linear })
    }

    #[cfg(test)]
    pub fn memory_bytes(&self) -> usize {
        let bytes = self.linear.iter().flatten().map(|(_, compiled)| match &compiled.product {
            Product::Slots(values, _) => 16 * values.len(),
            Product::Transform(transform) => transform.memory_bytes(),
        });
        bytes.sum()
    }

    /// Computes the result for an encrypted input.
    ///
    /// # Errors
    /// Missing keys, or an end by `stop`.
    pub fn run(
        &self,
        plan: &Plan,
        evaluator: &Evaluator<'_>,
        input: Ciphertext,
        stop: &Stop,
        watch: &Watch,
    ) -> Result<Ciphertext> {
        let mut readers: Vec<usize> = plan.program.readers().iter().map(Vec::len).collect();
        let mut computed: Vec<Option<Ciphertext>> = Vec::with_capacity(readers.len());
        for (id, vector) in plan.program.vectors.iter().enumerate() {
            stop.begin()?;
            let run = Run { circuit: self, plan, evaluator, computed: &computed, place: plan.places[id], id };
            let result = match &vector.step {
                Step::Input => Ok(input.clone()),
                step => run.step(step),
            };
            let mut result = result.map_err(backend_error)?;
            watch.tell(vector.step.name(), id, Some(readers.len()))?;
            if run.place.boots {
                result = run.bootstrap(&result).map_err(backend_error)?;
                watch.tell("bootstrap", id, Some(readers.len()))?;
            }
            let result = result.with_magnitude(vector.largest.max(2f64.powi(-10)));
            for source in vector.step.inputs() {
                readers[source] -= 1;
                if readers[source] == 0 {
                    computed[source] = None;
                }
            }
            computed.push(Some(result));
        }
        Ok(computed.pop().flatten().expect("a program has a result, which nothing reads"))
    }
}

impl Compiled {
    fn parts(plan: &Plan, encoder: &Encoder, id: VectorId) -> Result<Vec<(VectorId, Self)>> {
        let Step::Linear { parts, .. } = &plan.program.vectors[id].step else { return Ok(Vec::new()) };
        parts.iter().enumerate().map(|(i, (source, _))| Ok((*source, Self::new(plan, encoder, i, id)?))).collect()
    }

    fn new(plan: &Plan, encoder: &Encoder, index: usize, id: VectorId) -> Result<Self> {
        let Step::Linear { parts, .. } = &plan.program.vectors[id].step else { unreachable!("asked for linear steps") };
        let (source, ref matrix) = parts[index];
        let (n, level) = (encoder.slots(), plan.places[id].made_level + 1);
        let parameters = plan.context.parameters();
        // The factor from the source's scale to the canonical scale one level below.
        let target_scale = parameters.scale(level - 1).times_prime(parameters.primes()[level - 1]);
        let scale = target_scale.over(plan.places[source].scale);
        let (input, output) = (&plan.layouts[source], &plan.layouts[id]);
        let moves = layout::moves(matrix, input, output);
        let mut diagonals = layout::diagonals(matrix, input, output, n, &moves);
        let method = plan.rotation_method(&plan.options, id, index);
        let product = match part(&plan.context, method, &moves.offsets, level)? {
            Part::Slots => Product::Slots(diagonals.remove(&0).expect("its only one"), scale),
            Part::Transform(steps) => {
                let spec =
                    TransformSpec { diagonals: &diagonals, level, scale, method: method.he_method(), cache_bytes: 0 };
                Product::Transform(LinearTransform::with_plan(encoder, &spec, steps).map_err(backend_error)?)
            }
        };
        Ok(Self { product, folds: moves.folds })
    }
}

/// The evaluation of one step.
struct Run<'a> {
    circuit: &'a Circuit,
    plan: &'a Plan,
    evaluator: &'a Evaluator<'a>,
    computed: &'a [Option<Ciphertext>],
    place: Place,
    id: VectorId,
}

impl Run<'_> {
    fn step(&self, step: &Step) -> Result<Ciphertext, HeError> {
        match step {
            Step::Input => unreachable!("the input comes from the client"),
            Step::Linear { bias, .. } => self.linear(bias),
            Step::Square { argument, linear, constant } => self.square(*argument, linear, constant),
            Step::Quadratic { argument, square, linear, constant } => {
                self.quadratic(*argument, square, linear, constant)
            }
            Step::Polynomial { argument, polynomial } => {
                let x = self.source(*argument, self.place.made_level + polynomial.depth())?;
                let powers = self.evaluator.powers(&x, &[polynomial])?;
                self.evaluator.polynomial_at(&powers, polynomial, self.place.made_level, self.canonical_scale())
            }
            Step::Product { factors: [a, b] } => {
                let level = self.place.made_level + 1;
                self.evaluator.mul_rescale(&self.source(*a, level)?, &self.source(*b, level)?)
            }
        }
    }

    /// Bootstraps a vector to the level at which it is read.
    fn bootstrap(&self, vector: &Ciphertext) -> Result<Ciphertext, HeError> {
        let boot = self.plan.bootstrapper.as_ref().expect("a plan with bootstraps has the tables");
        boot.bootstrap(self.evaluator, vector)?.drop_to(self.place.level)
    }

    /// The scale of the level at which the vector is made.
    fn canonical_scale(&self) -> Scale {
        self.plan.context.parameters().scale(self.place.made_level)
    }

    fn source(&self, vector: VectorId, level: usize) -> Result<Ciphertext, HeError> {
        self.computed[vector].as_ref().expect("vectors live until their last reader").drop_to(level)
    }

    /// Adds a number to each element, unless all are zero.
    fn add_values(&self, a: Ciphertext, values: &[f64]) -> Result<Ciphertext, HeError> {
        if values.iter().all(|v| *v == 0.0) {
            return Ok(a);
        }
        let plain = self.circuit.encoder.encode(&self.to_slots(values), a.level(), a.scale())?;
        self.evaluator.add_plain(&a, &plain)
    }

    fn to_slots(&self, values: &[f64]) -> Vec<Complex> {
        self.plan.layouts[self.id].to_complex_slots(values, self.circuit.encoder.slots())
    }

    fn linear(&self, bias: &[f64]) -> Result<Ciphertext, HeError> {
        let level = self.place.made_level + 1;
        let mut sum: Option<Ciphertext> = None;
        for (vector, compiled) in &self.circuit.linear[self.id] {
            let source = self.source(*vector, level)?;
            let mut term = match &compiled.product {
                Product::Transform(transform) => self.evaluator.transform(&source, transform)?,
                Product::Slots(values, scale) => {
                    let plain = self.circuit.encoder.encode(values, level, *scale)?;
                    self.evaluator.rescale(&self.evaluator.mul_plain(&source, &plain)?)?
                }
            };
            for distance in &compiled.folds {
                term = self.evaluator.add(&term, &self.evaluator.rotate(&term, *distance as i64)?)?;
            }
            sum = Some(match sum {
                Some(sum) => self.evaluator.add(&sum, &term)?,
                None => term,
            });
        }
        self.add_values(sum.expect("a linear step has a part"), bias)
    }

    fn square(&self, argument: VectorId, linear: &[f64], constant: &[f64]) -> Result<Ciphertext, HeError> {
        let x = self.source(argument, self.place.made_level + 1)?;
        let mut sum = self.evaluator.square(&x)?;
        if linear.iter().any(|v| *v != 0.0) {
            let plain = self.circuit.encoder.encode(&self.to_slots(linear), x.level(), x.scale())?;
            sum = self.evaluator.add(&sum, &self.evaluator.mul_plain(&x, &plain)?)?;
        }
        self.add_values(self.evaluator.rescale(&sum)?, constant)
    }

    fn quadratic(
        &self,
        argument: VectorId,
        square: &[f64],
        linear: &[f64],
        constant: &[f64],
    ) -> Result<Ciphertext, HeError> {
        let level = self.place.made_level + 2;
        let x = self.source(argument, level)?;
        // Encoded at the prime's size, so that rescaling leaves the scale unchanged.
        let prime = Scale::ONE.times_prime(self.plan.context.parameters().primes()[level - 1]);
        let plain = self.circuit.encoder.encode(&self.to_slots(square), level, prime)?;
        let factor = self.evaluator.rescale(&self.evaluator.mul_plain(&x, &plain)?)?;
        let factor = self.add_values(factor, linear)?;
        let product = self.evaluator.mul_rescale(&factor, &x.drop_to(level - 1)?)?;
        self.add_values(product, constant)
    }
}
