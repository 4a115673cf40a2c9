//! The level of each vector, and the places of bootstraps.
//!
//! Levels are counted from the result back: each vector is as low as its readers allow, since lower
//! levels cost less. A bootstrap is inserted before a vector that could not be reached otherwise.
//! It may follow only steps that scale slots to their range: linear steps, and polynomials on a
//! range.

use super::program::{Program, Step};

/// Levels that bootstraps start from and reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bootstraps {
    /// Level that a bootstrap starts from.
    pub from: usize,
    /// Highest level that a bootstrap reaches.
    pub to: usize,
}

/// Levels of all vectors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Levels {
    /// The level at which the vector is read.
    pub level: Vec<usize>,
    /// Whether it is bootstrapped before it is read.
    pub boots: Vec<bool>,
}

/// Computes the levels of a program whose input may have `most` levels. `free` levels between the
/// last bootstrap and the result stay unused. Returns `None` if there is no solution.
pub(super) fn levels(program: &Program, bootstraps: Option<Bootstraps>, most: usize, free: usize) -> Option<Levels> {
    // A bootstrap inside an activation needs another one for the activation's argument: that may
    // save bootstraps or cost some.
    let ways = [false, true].into_iter().filter_map(|inside| levels_with(program, bootstraps, most, free, inside));
    ways.min_by_key(Levels::bootstraps)
}

/// Allows bootstraps after linear steps and, if `inside`, after polynomials inside activations.
fn levels_with(
    program: &Program,
    bootstraps: Option<Bootstraps>,
    most: usize,
    free: usize,
    inside: bool,
) -> Option<Levels> {
    let vectors = &program.vectors;
    // Levels from a vector back to the nearest vectors that may be bootstrapped, and to the input.
    let mut back: Vec<[Option<usize>; 2]> = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let mut own = [None; 2];
        for of in vector.step.inputs() {
            let seen = match vectors[of].step {
                Step::Input => [None, Some(0)],
                ref step if may_boot(step, inside) => [Some(0), None],
                _ => back[of],
            };
            own.iter_mut().zip(seen).for_each(|(own, seen)| *own = (*own).max(seen.map(|d| d + vector.step.depth())));
        }
        back.push(own);
    }
    let mut found = Levels { level: vec![1; vectors.len()], boots: vec![false; vectors.len()] };
    for id in (1..vectors.len()).rev() {
        let mut raw = found.level[id];
        if let Some(Bootstraps { from, to }) = bootstraps.filter(|_| may_boot(&vectors[id].step, inside)) {
            let [ranged, input] = back[id];
            // Going back from the result, the first bootstrap found is the last one.
            let to = if found.boots.contains(&true) { to } else { to.saturating_sub(free) };
            if ranged.is_some_and(|d| raw + d > to) || input.is_some_and(|d| raw + d > most) {
                found.boots[id] = true;
                raw = from;
            }
        }
        for of in vectors[id].step.inputs() {
            found.level[of] = found.level[of].max(raw + vectors[id].step.depth());
        }
    }
    let top = bootstraps.map_or(most, |b| b.to);
    let fits = found.level[0] <= most && found.level[1..].iter().all(|level| *level <= top);
    fits.then_some(found)
}

/// Returns whether a bootstrap may follow a step, `inside` activations too.
fn may_boot(step: &Step, inside: bool) -> bool {
    matches!(step, Step::Linear { .. }) || inside && matches!(step, Step::Polynomial { .. })
}

impl Levels {
    /// Returns the number of bootstraps.
    pub fn bootstraps(&self) -> usize {
        self.boots.iter().filter(|boots| **boots).count()
    }

    /// Returns the level at which the vector is made, before a bootstrap.
    pub fn made(&self, id: usize, bootstraps: Option<Bootstraps>) -> usize {
        match bootstraps {
            Some(Bootstraps { from, .. }) if self.boots[id] => from,
            _ => self.level[id],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::Vector;
    use super::super::sparse::Sparse;
    use super::*;
    use tacit_he::ckks::{Basis, Polynomial};

    fn program(steps: Vec<Step>) -> Program {
        let vector = |step| Vector {
            name: "v".into(),
            shape: vec![1],
            scale: vec![1.0],
            shift: 0.0,
            step,
            largest: 1.0,
            certain: f64::INFINITY,
            limit: None,
        };
        Program { vectors: steps.into_iter().map(vector).collect() }
    }

    fn linear(of: &[usize]) -> Step {
        Step::Linear { parts: of.iter().map(|&of| (of, Sparse::identity(1))).collect(), bias: vec![0.0] }
    }

    fn square(of: usize) -> Step {
        Step::Square { of, linear: vec![0.0], constant: vec![0.0] }
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
                steps.push(Step::Polynomial { of: x + i, polynomial: polynomial(degree) });
            }
            steps.push(Step::Product { of: [x, x + 3] });
        }
        steps.push(linear(&[steps.len() - 1]));
        program(steps)
    }

    /// Set A: a layer and its ReLU take all levels between two bootstraps. With fewer levels
    /// bootstraps are also needed inside ReLUs.
    #[test]
    fn a_composite_takes_one_bootstrap() {
        let (program, bootstraps) = (rectified(19), |to| Some(Bootstraps { from: 4, to }));
        let found = levels(&program, bootstraps(19), 20, 0).unwrap();
        let linear = |id: usize| matches!(program.vectors[id].step, Step::Linear { .. });
        assert_eq!(found.bootstraps(), 18);
        assert!((0..program.vectors.len()).all(|id| !found.boots[id] || linear(id)));
        let found = levels(&program, bootstraps(12), 13, 0).unwrap();
        assert!((0..program.vectors.len()).any(|id| found.boots[id] && !linear(id)));
        assert!(found.level.iter().all(|level| *level <= 13));
        assert_eq!(levels(&program, bootstraps(8), 9, 0), None);
    }

    /// Levels that are left free at the end move bootstraps, and may cost more of them.
    #[test]
    fn bootstraps_come_later_where_levels_are_left_free() {
        let bootstraps = Some(Bootstraps { from: 3, to: 9 });
        let program = residual(9);
        let of = |free| levels(&program, bootstraps, 10, free).unwrap();
        let last = |found: &Levels| found.boots.iter().rposition(|boots| *boots).unwrap();
        let (usual, two, five) = (of(0), of(2), of(5));
        assert!(last(&usual) < last(&two), "{usual:?} {two:?} {five:?}");
        assert!(last(&two) < last(&five), "{usual:?} {two:?} {five:?}");
        assert!(usual.bootstraps() <= two.bootstraps());
        assert!(two.bootstraps() <= five.bootstraps());
        for found in [usual, two, five] {
            for (id, vector) in program.vectors.iter().enumerate() {
                let own = found.made(id, bootstraps) + vector.step.depth();
                assert!(vector.step.inputs().iter().all(|&of| found.level[of] >= own));
            }
        }
    }

    #[test]
    fn without_bootstraps_levels_are_depths() {
        let found = levels(&residual(1), None, 10, 0).unwrap();
        assert_eq!((found.level, found.boots.contains(&true)), (vec![8, 7, 6, 5, 4, 3, 2, 1], false));
        assert!(levels(&residual(1), None, 7, 0).is_none());
    }

    #[test]
    fn bootstraps_are_few_and_every_level_holds() {
        let bootstraps = Some(Bootstraps { from: 3, to: 7 });
        let program = residual(9);
        let found = levels(&program, bootstraps, 8, 0).unwrap();
        let count = |found: &Levels| found.bootstraps();
        assert_eq!(count(&found), 8);
        for (id, vector) in program.vectors.iter().enumerate() {
            for of in vector.step.inputs() {
                assert!(found.level[of] >= found.made(id, bootstraps) + vector.step.depth());
            }
        }
        // Bootstraps gain nothing here.
        assert_eq!(count(&levels(&residual(1), bootstraps, 8, 0).unwrap()), 0);
        // A step is deeper than the levels between two bootstraps.
        assert!(levels(&residual(1), Some(Bootstraps { from: 3, to: 4 }), 8, 0).is_none());
    }
}
