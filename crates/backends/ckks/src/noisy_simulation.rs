//! The plan in the clear: exact runs, runs with estimated errors, and how near slots come to their limits.

use rayon::prelude::*;
use tacit_graph::rng::SplitMix;

use super::argmax;
use super::lanes::{LANES, pack_lanes, to_doubles};
use super::plan::Plan;
use tacit_backend_api::{DryRun, Strain};

/// Largest slot that a bootstrap restores: beyond it, the sine is not linear.
const MAX_BOOTSTRAPPED_SLOT: f64 = 4.0;

fn input_rng(input: &[f32]) -> SplitMix {
    SplitMix::new(input.iter().fold(0u64, |sum, v| sum.rotate_left(7) ^ u64::from(v.to_bits())))
}

impl Plan {
    /// Value of the answer for a slot of 1 of the program's result.
    fn multiplier(&self) -> f64 {
        self.public.output.unit / self.program.output().scale[0]
    }

    /// A slot after its vector's bootstrap. Without one, a slot beyond the ciphertext's modulus becomes NaN.
    fn slot_when_read(&self, id: usize, slot: f64) -> f64 {
        let boot = self.bootstrapper.as_ref().filter(|_| self.places[id].boots);
        match boot {
            Some(boot) => boot.slot_after(slot),
            // Coefficients are off by multiples of the modulus, and slots by more: there is no
            // answer.
            None if slot.abs() > self.largest_slot(id) => f64::NAN,
            None => slot,
        }
    }

    pub fn reference(&self, input: &[f32]) -> Vec<f64> {
        self.answer(self.program.run(to_doubles(input), |id, slots: &mut Vec<f64>| {
            slots.iter_mut().for_each(|v| *v = self.slot_when_read(id, *v));
        }))
    }

    /// An answer with errors of the estimated size; the same for the same input.
    pub fn simulate(&self, input: &[f32]) -> Vec<f64> {
        let mut rng = input_rng(input);
        self.rounded_answer(self.program.run(to_doubles(input), |id, slots: &mut Vec<f64>| {
            slots.iter_mut().for_each(|v| *v = self.slot_when_read(id, *v + rng.normal() * self.noise[id]));
        }))
    }

    /// Returns answers as [`Plan::simulate`], and how near each vector came to its limit.
    pub fn rehearse(&self, inputs: &[&[f32]]) -> Vec<DryRun> {
        inputs.chunks(LANES).flat_map(|chunk| self.rehearse_chunk(chunk)).collect()
    }

    /// Runs up to [`LANES`] inputs side by side.
    fn rehearse_chunk(&self, inputs: &[&[f32]]) -> Vec<DryRun> {
        let mut rngs: Vec<SplitMix> = inputs.iter().map(|input| input_rng(input)).collect();
        let mut strains: Vec<Vec<Strain>> = vec![Vec::new(); inputs.len()];
        let result = self.program.run(pack_lanes(inputs), |id, slots: &mut Vec<[f64; LANES]>| {
            let errors: Vec<Vec<f64>> = rngs
                .par_iter_mut()
                .map(|rng| (0..slots.len()).map(|_| rng.normal() * self.noise[id]).collect())
                .collect();
            for (lane, errors) in errors.iter().enumerate() {
                slots.iter_mut().zip(errors).for_each(|(v, error)| v[lane] += error);
            }
            for (lane, strains) in strains.iter_mut().enumerate() {
                strains.push(self.vector_strain(id, slots.iter().map(|v| v[lane])));
            }
            slots.iter_mut().flatten().for_each(|v| *v = self.slot_when_read(id, *v));
        });
        let answers = (0..inputs.len()).map(|lane| self.rounded_answer(result.iter().map(|v| v[lane]).collect()));
        answers.zip(strains).map(|(answer, strains)| DryRun { answer, strains }).collect()
    }

    fn rounded_answer(&self, result: Vec<f64>) -> Vec<f64> {
        self.answer(result).into_iter().map(|value| self.public.round(value)).collect()
    }

    fn answer(&self, result: Vec<f64>) -> Vec<f64> {
        let multiplier = self.multiplier();
        let values: Vec<f64> = result.into_iter().map(|v| v * multiplier).collect();
        match self.public.compared {
            Some(n) => {
                // Round to the bits that are compared: nearer outputs are tied.
                let step = self.public.output.unit * argmax::TIED_SHARE;
                let outputs = argmax::outputs(&values, n as usize);
                argmax::class(&outputs.iter().map(|v| (v / step).round()).collect::<Vec<_>>())
            }
            None => values,
        }
    }

    /// The largest `|slot|` that is computed rightly.
    fn limit(&self, id: usize) -> f64 {
        let bootstrapped = if self.places[id].boots { MAX_BOOTSTRAPPED_SLOT } else { f64::INFINITY };
        let limit = self.program.vectors[id].limit.unwrap_or(f64::INFINITY);
        tacit_floats::smaller(self.largest_slot(id), tacit_floats::smaller(bootstrapped, limit))
    }

    /// Half of the modulus at which a vector is made, divided by the scale.
    fn largest_slot(&self, id: usize) -> f64 {
        let place = &self.places[id];
        // A bootstrap returns slots at the canonical scale of its level.
        let scale = if place.boots { self.context.parameters().scale(place.made_level) } else { place.scale };
        (self.context.parameters().modulus_log2(place.made_level, 0) - 1.0 - scale.log2()).exp2()
    }

    /// Whether no accepted input makes a slot beyond its limit.
    pub fn is_certain(&self) -> bool {
        (0..self.program.vectors.len()).all(|id| self.program.vectors[id].certain <= self.limit(id))
    }

    pub fn strain(&self, input: &[f32]) -> Vec<Strain> {
        let mut strains = Vec::with_capacity(self.program.vectors.len());
        self.program.run(to_doubles(input), |id, slots: &mut Vec<f64>| {
            strains.push(self.vector_strain(id, slots.iter().copied()));
            slots.iter_mut().for_each(|v| *v = self.slot_when_read(id, *v));
        });
        strains
    }

    fn vector_strain(&self, id: usize, slots: impl Iterator<Item = f64>) -> Strain {
        // NaN counts as beyond every limit.
        let largest = tacit_floats::largest_magnitude(slots);
        let share = if largest.is_finite() { largest / self.limit(id) } else { f64::MAX };
        Strain { node: self.program.vectors[id].name.clone(), share }
    }
}
