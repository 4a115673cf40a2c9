//! How each linear transform of a network computes its rotations, as an option: `hoisted`, `flat`, `paired`,
//! `chained` or `powers` for all transforms, or a list in the order of the lowering. For example, `3h+2c+f5`
//! is three hoisted, two chained, and one flat with baby steps below 2^5.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tacit_he::HeError;
use tacit_he::ckks::{Method, TransformPlan};

const MAX_TRANSFORMS: usize = 4096;

/// Which steps have keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Steps {
    /// Every baby step, every giant step of a block, and every block.
    Hoisted,
    /// Each step, on its own (fewest number-theoretic transforms).
    Flat,
    /// Few steps, which are chained, with one more key for two baby steps at a time.
    Paired,
    /// Few steps, which are chained (fewest bytes).
    Chained,
    /// Powers of two, shared by all transforms.
    Powers,
}

const NAMES: [(Steps, &str); 5] = [
    (Steps::Hoisted, "hoisted"),
    (Steps::Flat, "flat"),
    (Steps::Paired, "paired"),
    (Steps::Chained, "chained"),
    (Steps::Powers, "powers"),
];

const LETTERS: [(Steps, char); 5] =
    [(Steps::Hoisted, 'h'), (Steps::Flat, 'f'), (Steps::Paired, 'p'), (Steps::Chained, 'c'), (Steps::Powers, 'w')];

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(steps, _)| steps == self).map(|(_, name)| *name);
        f.write_str(name.expect("each has a name"))
    }
}

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let steps = NAMES.iter().find(|(_, name)| *name == text).map(|(steps, _)| *steps);
        steps.ok_or_else(|| format!("`{}`", NAMES.map(|(_, name)| name).join("`, `")))
    }
}

impl Steps {
    pub fn method(self) -> Method {
        match self {
            Self::Hoisted => Method::Hoisted,
            Self::Flat => Method::Flat,
            Self::Paired => Method::Paired,
            Self::Chained => Method::Chained,
            Self::Powers => Method::Powers,
        }
    }
}

/// How one transform computes its rotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Way {
    pub steps: Steps,
    /// log2 of the bound of baby steps; `None` for the cheapest bound, and for hoisted steps, which have
    /// none.
    pub log_babies: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ways {
    All(Way),
    Each(Vec<Way>),
}

impl Way {
    pub const HOISTED: Self = Self { steps: Steps::Hoisted, log_babies: None };
    pub const FLAT: Self = Self { steps: Steps::Flat, log_babies: None };
    pub const PAIRED: Self = Self { steps: Steps::Paired, log_babies: None };
    pub const CHAINED: Self = Self { steps: Steps::Chained, log_babies: None };
    pub const POWERS: Self = Self { steps: Steps::Powers, log_babies: None };
    /// All ways with the cheapest bound, in order of falling number of keys.
    pub const ALL: [Self; 5] = [Self::HOISTED, Self::FLAT, Self::PAIRED, Self::CHAINED, Self::POWERS];

    pub fn method(self) -> Method {
        self.steps.method()
    }

    /// Plans a transform with diagonals at `offsets`.
    pub fn plan(
        self,
        slots: usize,
        level: usize,
        offsets: impl Iterator<Item = i64>,
    ) -> Result<TransformPlan, HeError> {
        match self.log_babies {
            None => TransformPlan::new(slots, level, self.method(), offsets),
            Some(log) => TransformPlan::with_babies(slots, level, self.method(), offsets, log.into()),
        }
    }

    pub fn is_keyed(self) -> bool {
        !self.method().is_chained()
    }
}

impl Ways {
    pub fn get(&self, index: usize) -> Option<Way> {
        match self {
            Self::All(way) => Some(*way),
            Self::Each(ways) => ways.get(index).copied(),
        }
    }

    /// Number of transforms in a list; `None` for one way for all.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::All(_) => None,
            Self::Each(ways) => Some(ways.len()),
        }
    }

    /// The shortest form.
    pub fn from_list(ways: Vec<Way>) -> Self {
        match ways.first() {
            // `All(HOISTED)` means chained where keys are large; the ways here are explicit.
            Some(first) if Way::ALL[1..].contains(first) && ways.iter().all(|way| way == first) => Self::All(*first),
            None => Self::All(Way::HOISTED),
            _ => Self::Each(ways),
        }
    }
}

impl FromStr for Ways {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(steps) = text.parse() {
            return Ok(Self::All(Way { steps, log_babies: None }));
        }
        let mut ways = Vec::new();
        for run in text.split('+') {
            let (steps, letter) = *LETTERS.iter().find(|(_, letter)| run.contains(*letter)).ok_or_else(wrong)?;
            let (count, babies) = run.split_once(letter).expect("it has just been found");
            let count: usize = if count.is_empty() { 1 } else { count.parse().map_err(|_| wrong())? };
            let log_babies = match babies {
                "" => None,
                _ if steps == Steps::Hoisted => return Err(wrong()),
                _ => Some(babies.parse().ok().filter(|log: &u8| *log < 32).ok_or_else(wrong)?),
            };
            let total = ways.len().saturating_add(count);
            if count == 0 || total > MAX_TRANSFORMS {
                return Err(format!("1 to {MAX_TRANSFORMS} transforms, not {total}"));
            }
            ways.extend(std::iter::repeat_n(Way { steps, log_babies }, count));
        }
        Ok(Self::Each(ways))
    }
}

fn wrong() -> String {
    "`hoisted`, `flat`, `paired`, `chained`, `powers`, or a way for each transform such as `3h+2c+f5`".to_owned()
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ways = match self {
            Self::All(way) => return write!(f, "{}", way.steps),
            Self::Each(ways) => ways,
        };
        for (i, run) in ways.chunk_by(|a, b| a == b).enumerate() {
            let plus = if i > 0 { "+" } else { "" };
            let count = if run.len() > 1 { run.len().to_string() } else { String::new() };
            let (_, letter) = LETTERS.iter().find(|(steps, _)| *steps == run[0].steps).expect("each has a letter");
            write!(f, "{plus}{count}{letter}{}", run[0].log_babies.map_or(String::new(), |log| log.to_string()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_round_trip_as_text() {
        for text in ["hoisted", "flat", "paired", "chained", "powers", "3h+2c+f5", "c0", "4096c", "h+f+p3+c+2w4+h"] {
            assert_eq!(text.parse::<Ways>().unwrap().to_string(), text);
        }
        let ways: Ways = "2h+c5".parse().unwrap();
        assert_eq!((ways.len(), ways.get(0), ways.get(3)), (Some(3), Some(Way::HOISTED), None));
        assert_eq!(ways.get(2), Some(Way { steps: Steps::Chained, log_babies: Some(5) }));
        assert_eq!(Ways::from_list(vec![Way::CHAINED; 3]), Ways::All(Way::CHAINED));
        for bad in [
            "",
            "fast",
            "0h",
            "4097h",
            "3h+",
            "h+-c",
            "f99",
            "h5",
            "hh",
            "99999999999999999999h",
            "h+18446744073709551615h",
            "2h2h",
        ] {
            assert!(bad.parse::<Ways>().is_err(), "{bad}");
        }
    }
}
