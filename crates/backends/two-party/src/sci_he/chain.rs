//! Computes all turns of a ciphertext that a layer needs, with few keys. One decomposition of an
//! anchor gives the seven turns behind it; the anchor moves on by powers of two.

/// Turns that one anchor serves: 0 to 7 places ahead.
const TURNS_PER_ANCHOR: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Moves the anchor by this many slots, a power of two.
    Move(usize),
    /// Takes the turn with this index from the anchor, turned by this many slots (0: the anchor itself).
    Use(usize, usize),
}

/// Returns the steps that visit `turns`, which must ascend.
pub(super) fn chain(turns: &[usize]) -> Vec<Step> {
    let (mut anchor, mut steps) = (0, Vec::new());
    for (index, &turn) in turns.iter().enumerate() {
        while turn - anchor >= TURNS_PER_ANCHOR {
            let step = 1 << (turn - anchor).ilog2();
            steps.push(Step::Move(step));
            anchor += step;
        }
        steps.push(Step::Use(index, turn - anchor));
    }
    steps
}

/// Largest number of consecutive rotations.
pub(super) fn depth(steps: &[Step]) -> usize {
    1 + steps.iter().filter(|step| matches!(step, Step::Move(_))).count()
}

/// Total number of rotations.
pub(super) fn rotations(steps: &[Step]) -> usize {
    steps.iter().filter(|step| !matches!(step, Step::Use(_, 0))).count()
}

/// Total number of decompositions: one for each anchor that is turned or moved.
pub(super) fn raises(steps: &[Step]) -> usize {
    let (mut count, mut fresh) = (0, true);
    for step in steps {
        match step {
            Step::Use(_, 0) => {}
            _ => {
                count += usize::from(fresh);
                fresh = matches!(step, Step::Move(_));
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_visit_every_turn() {
        let turns = [0, 1, 7, 8, 9, 30, 31, 100, 3000, 4095];
        let steps = chain(&turns);
        let mut anchor = 0;
        let mut reached = vec![];
        for step in &steps {
            match step {
                Step::Move(distance) => {
                    assert!(distance.is_power_of_two());
                    assert!(*distance >= TURNS_PER_ANCHOR);
                    anchor += distance;
                }
                Step::Use(index, distance) => {
                    assert!(*distance < TURNS_PER_ANCHOR);
                    reached.push((*index, anchor + distance));
                }
            }
        }
        let expected: Vec<(usize, usize)> = turns.into_iter().enumerate().collect();
        assert_eq!(reached, expected);
        let steps = chain(&[0, 1, 2, 8, 11]);
        assert_eq!((rotations(&steps), raises(&steps), depth(&steps)), (4, 2, 2));
        assert_eq!((rotations(&chain(&[0])), raises(&chain(&[0]))), (0, 0));
    }
}
