//! The plan in the clear: what a run gives but for its errors, with errors drawn by their estimates, and how
//! near slots come to what is computed rightly.

use tacit_graph::rng::SplitMix;

use super::noise;
use super::plan::Plan;
use crate::Strain;

/// Largest slot that a bootstrap brings back: beyond, its sine leaves the line.
const BOOTSTRAPPED: f64 = 4.0;

impl Plan {
    /// The real value of a slot of 1 of the program's result, over that of the answer.
    fn multiplier(&self) -> f64 {
        self.public.output.unit / self.program.output().scale[0]
    }

    /// The answer, exactly.
    pub fn reference(&self, input: &[f32]) -> Vec<f64> {
        self.answer(self.program.run(input, |_, _| {}))
    }

    /// An answer with errors of the size that is estimated; the same for the same input.
    pub fn simulate(&self, input: &[f32]) -> Vec<f64> {
        let bits = input.iter().fold(0u64, |sum, v| sum.rotate_left(7) ^ u64::from(v.to_bits()));
        let result = noise::drawn(&self.program, &self.noise, input, &mut SplitMix::new(bits));
        self.answer(result).into_iter().map(|value| self.public.rounded(value)).collect()
    }

    /// The answer for the program's result.
    fn answer(&self, result: Vec<f64>) -> Vec<f64> {
        let multiplier = self.multiplier();
        result.into_iter().map(|v| v * multiplier).collect()
    }

    /// The largest `|slot|` of a vector that is computed rightly.
    fn limit(&self, id: usize) -> f64 {
        let (vector, place) = (&self.program.vectors[id], &self.places[id]);
        let parameters = self.context.parameters();
        // Half of the modulus, over the scale.
        let modulus = (parameters.modulus_log2(place.made, 0) - 1.0 - place.scale.log2()).exp2();
        let bootstrapped = if place.boots { BOOTSTRAPPED } else { f64::INFINITY };
        modulus.min(bootstrapped).min(vector.limit.unwrap_or(f64::INFINITY))
    }

    /// How near each vector comes to its limit for an input.
    pub fn strain(&self, input: &[f32]) -> Vec<Strain> {
        let mut strains = Vec::with_capacity(self.program.vectors.len());
        self.program.run(input, |id, slots| {
            let wild = slots.iter().any(|v| !v.is_finite());
            let largest = slots.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
            let share = if wild { f64::MAX } else { largest / self.limit(id) };
            strains.push(Strain { node: self.program.vectors[id].name.clone(), share });
        });
        strains
    }
}
