//! The level of each vector, and the places of bootstraps.
//!
//! Levels are counted from the result back: each vector is as low as its readers allow, since lower levels
//! cost less. A bootstrap is inserted before a vector that could not be reached otherwise. It follows only
//! steps that scale slots to their range: linear steps, and polynomials on a range.

use super::program::{Program, Step};

/// The levels that bootstraps start from, and the highest that they reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bootstraps {
    pub level_in: usize,
    /// Highest level that a bootstrap reaches.
    pub level_out: usize,
}

/// The level at which each vector is read, and whether it is bootstrapped before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Levels {
    pub level: Vec<usize>,
    pub boots: Vec<bool>,
}

/// Levels for inputs of up to `max_level` levels; `free` levels between the last bootstrap and the result
/// stay unused. `None` if there is no solution.
pub(super) fn assign_levels(
    program: &Program,
    bootstraps: Option<Bootstraps>,
    max_level: usize,
    free: usize,
) -> Option<Levels> {
    // A bootstrap inside an activation needs another one for its argument: that may save bootstraps or cost
    // some.
    let solutions =
        [false, true].into_iter().filter_map(|inside| assign_levels_with(program, bootstraps, max_level, free, inside));
    solutions.min_by_key(Levels::bootstraps)
}

fn assign_levels_with(
    program: &Program,
    bootstraps: Option<Bootstraps>,
    max_level: usize,
    free: usize,
    inside: bool,
) -> Option<Levels> {
    let vectors = &program.vectors;
    // Levels from a vector back to the nearest vectors that may be bootstrapped, and to the input.
    let mut distances: Vec<[Option<usize>; 2]> = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let mut distance = [None; 2];
        for source in vector.step.inputs() {
            let reach = match vectors[source].step {
                Step::Input => [None, Some(0)],
                ref step if may_boot(step, inside) => [Some(0), None],
                _ => distances[source],
            };
            distance
                .iter_mut()
                .zip(reach)
                .for_each(|(distance, reach)| *distance = (*distance).max(reach.map(|d| d + vector.step.depth())));
        }
        distances.push(distance);
    }
    let mut levels = Levels { level: vec![1; vectors.len()], boots: vec![false; vectors.len()] };
    for id in (1..vectors.len()).rev() {
        let mut raw = levels.level[id];
        if let Some(Bootstraps { level_in, level_out }) = bootstraps.filter(|_| may_boot(&vectors[id].step, inside)) {
            let [ranged, input] = distances[id];
            // Going back from the result, the first bootstrap found is the last one.
            let highest = if levels.boots.contains(&true) { level_out } else { level_out.saturating_sub(free) };
            if ranged.is_some_and(|d| raw + d > highest) || input.is_some_and(|d| raw + d > max_level) {
                levels.boots[id] = true;
                raw = level_in;
            }
        }
        for source in vectors[id].step.inputs() {
            levels.level[source] = levels.level[source].max(raw + vectors[id].step.depth());
        }
    }
    let top = bootstraps.map_or(max_level, |b| b.level_out);
    let fits = levels.level[0] <= max_level && levels.level[1..].iter().all(|level| *level <= top);
    fits.then_some(levels)
}

/// Whether a bootstrap may follow a step, `inside` activations too.
fn may_boot(step: &Step, inside: bool) -> bool {
    matches!(step, Step::Linear { .. }) || inside && matches!(step, Step::Polynomial { .. })
}

impl Levels {
    pub fn bootstraps(&self) -> usize {
        self.boots.iter().filter(|boots| **boots).count()
    }

    /// The level at which the vector is made, before a bootstrap.
    pub fn made_level(&self, id: usize, bootstraps: Option<Bootstraps>) -> usize {
        match bootstraps {
            Some(Bootstraps { level_in, .. }) if self.boots[id] => level_in,
            _ => self.level[id],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Vector;
    use crate::sparse::Sparse;
    use tacit_he::ckks::{Basis, Polynomial};

    fn program(steps: Vec<Step>) -> Program {
        let vector = |step| Vector::new("v".into(), vec![1], vec![1.0], step);
        Program { vectors: steps.into_iter().map(vector).collect() }
    }

    fn linear(sources: &[usize]) -> Step {
        Step::Linear { parts: sources.iter().map(|&source| (source, Sparse::identity(1))).collect(), bias: vec![0.0] }
    }

    fn square(argument: usize) -> Step {
        Step::Square { argument, linear: vec![0.0], constant: vec![0.0] }
    }

    /// Layers of a residual network: every second one reads the block's input too.
    fn residual(blocks: usize) -> Program {
        let mut steps = vec![Step::Input, linear(&[0]), square(1)];
        for _ in 0..blocks {
            let input = steps.len() - 1;
            steps.extend([linear(&[input]), square(input + 1), linear(&[input + 2, input]), square(input + 3)]);
        }
        let last = steps.len() - 1;
        steps.push(linear(&[last]));
        program(steps)
    }

    /// Makes layers with composite ReLUs: three polynomials, and a product with the argument.
    fn rectified(layers: usize) -> Program {
        let polynomial = |degree: usize| {
            let coefficients: Vec<f64> = (0..=degree).map(|i| f64::from(u8::from(i == degree))).collect();
            Polynomial::new(Basis::Chebyshev, &coefficients).unwrap()
        };
        let mut steps = vec![Step::Input];
        for _ in 0..layers {
            let x = steps.len();
            steps.push(linear(&[x - 1]));
            for (i, degree) in [15, 15, 27].into_iter().enumerate() {
                steps.push(Step::Polynomial { argument: x + i, polynomial: polynomial(degree) });
            }
            steps.push(Step::Product { factors: [x, x + 3] });
        }
        steps.push(linear(&[steps.len() - 1]));
        program(steps)
    }

    /// Asserts that every vector is read at a level that its readers need.
    fn assert_holds(program: &Program, levels: &Levels, bootstraps: Option<Bootstraps>) {
        for (id, vector) in program.vectors.iter().enumerate() {
            let needed = levels.made_level(id, bootstraps) + vector.step.depth();
            assert!(vector.step.inputs().iter().all(|&source| levels.level[source] >= needed));
        }
    }

    /// Set A: a layer and its ReLU take all levels between two bootstraps. With fewer levels
    /// bootstraps are also needed inside ReLUs.
    #[test]
    fn composite_relu_takes_one_bootstrap() {
        let (program, bootstraps) = (rectified(19), |level_out| Some(Bootstraps { level_in: 4, level_out }));
        let levels = assign_levels(&program, bootstraps(19), 20, 0).unwrap();
        let linear = |id: usize| matches!(program.vectors[id].step, Step::Linear { .. });
        assert_eq!(levels.bootstraps(), 18);
        assert!((0..program.vectors.len()).all(|id| !levels.boots[id] || linear(id)));
        let levels = assign_levels(&program, bootstraps(12), 13, 0).unwrap();
        assert!((0..program.vectors.len()).any(|id| levels.boots[id] && !linear(id)));
        assert!(levels.level.iter().all(|level| *level <= 13));
        assert_eq!(assign_levels(&program, bootstraps(8), 9, 0), None);
    }

    /// Levels that are left free at the end move bootstraps, and may cost more of them.
    #[test]
    fn free_levels_move_bootstraps_to_end() {
        let bootstraps = Some(Bootstraps { level_in: 3, level_out: 9 });
        let program = residual(9);
        let assigned = |free| assign_levels(&program, bootstraps, 10, free).unwrap();
        let last = |levels: &Levels| levels.boots.iter().rposition(|boots| *boots).unwrap();
        let (usual, two, five) = (assigned(0), assigned(2), assigned(5));
        assert!([&usual, &two, &five].is_sorted_by(|a, b| last(a) < last(b)), "{usual:?} {two:?} {five:?}");
        assert!([&usual, &two, &five].is_sorted_by_key(|levels| levels.bootstraps()));
        [usual, two, five].iter().for_each(|levels| assert_holds(&program, levels, bootstraps));
    }

    #[test]
    fn levels_without_bootstraps_are_depths() {
        let levels = assign_levels(&residual(1), None, 10, 0).unwrap();
        assert_eq!((levels.level, levels.boots.contains(&true)), (vec![8, 7, 6, 5, 4, 3, 2, 1], false));
        assert!(assign_levels(&residual(1), None, 7, 0).is_none());
    }

    #[test]
    fn residual_network_takes_few_bootstraps() {
        let bootstraps = Some(Bootstraps { level_in: 3, level_out: 7 });
        let program = residual(9);
        let levels = assign_levels(&program, bootstraps, 8, 0).unwrap();
        assert_eq!(levels.bootstraps(), 8);
        assert_holds(&program, &levels, bootstraps);
        // Bootstraps gain nothing here.
        assert_eq!(assign_levels(&residual(1), bootstraps, 8, 0).unwrap().bootstraps(), 0);
        // A step is deeper than the levels between two bootstraps.
        assert!(assign_levels(&residual(1), Some(Bootstraps { level_in: 3, level_out: 4 }), 8, 0).is_none());
    }
}
