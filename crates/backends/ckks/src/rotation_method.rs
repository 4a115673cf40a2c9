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
    pub fn he_method(self) -> Method {
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
pub(super) struct RotationMethod {
    pub steps: Steps,
    /// log2 of the bound of baby steps; `None` for the cheapest bound, and for hoisted steps, which have
    /// none.
    pub log_babies: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RotationMethods {
    All(RotationMethod),
    Each(Vec<RotationMethod>),
}

impl RotationMethod {
    pub const HOISTED: Self = Self { steps: Steps::Hoisted, log_babies: None };
    pub const FLAT: Self = Self { steps: Steps::Flat, log_babies: None };
    pub const PAIRED: Self = Self { steps: Steps::Paired, log_babies: None };
    pub const CHAINED: Self = Self { steps: Steps::Chained, log_babies: None };
    pub const POWERS: Self = Self { steps: Steps::Powers, log_babies: None };
    /// The five methods, each with the cheapest bound.
    pub const ALL: [Self; 5] = [Self::HOISTED, Self::FLAT, Self::PAIRED, Self::CHAINED, Self::POWERS];

    pub fn he_method(self) -> Method {
        self.steps.he_method()
    }

    /// Plans a transform with diagonals at `offsets`.
    pub fn plan(
        self,
        slots: usize,
        level: usize,
        offsets: impl Iterator<Item = i64>,
    ) -> Result<TransformPlan, HeError> {
        match self.log_babies {
            None => TransformPlan::new(slots, level, self.he_method(), offsets),
            Some(log) => TransformPlan::with_babies(slots, level, self.he_method(), offsets, log.into()),
        }
    }

    pub fn is_keyed(self) -> bool {
        !self.he_method().is_chained()
    }
}

impl RotationMethods {
    pub fn get(&self, index: usize) -> Option<RotationMethod> {
        match self {
            Self::All(method) => Some(*method),
            Self::Each(methods) => methods.get(index).copied(),
        }
    }

    /// Number of transforms in a list; `None` for one way for all.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::All(_) => None,
            Self::Each(methods) => Some(methods.len()),
        }
    }

    /// The shortest form.
    pub fn from_list(methods: Vec<RotationMethod>) -> Self {
        match methods.first() {
            // The lowering replaces the default `All(HOISTED)` by chained where keys are large, so an
            // explicit list of hoisted methods stays a list.
            Some(first) if RotationMethod::ALL[1..].contains(first) && methods.iter().all(|method| method == first) => {
                Self::All(*first)
            }
            None => Self::All(RotationMethod::HOISTED),
            _ => Self::Each(methods),
        }
    }
}

impl FromStr for RotationMethods {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(steps) = text.parse() {
            return Ok(Self::All(RotationMethod { steps, log_babies: None }));
        }
        let mut methods = Vec::new();
        for run in text.split('+') {
            let (steps, letter) =
                *LETTERS.iter().find(|(_, letter)| run.contains(*letter)).ok_or_else(expected_form)?;
            let (count, babies) = run.split_once(letter).expect("it has just been found");
            let count: usize = if count.is_empty() { 1 } else { count.parse().map_err(|_| expected_form())? };
            let log_babies = match babies {
                "" => None,
                _ if steps == Steps::Hoisted => return Err(expected_form()),
                _ => Some(babies.parse().ok().filter(|log: &u8| *log < 32).ok_or_else(expected_form)?),
            };
            let total = methods.len().saturating_add(count);
            if count == 0 || total > MAX_TRANSFORMS {
                return Err(format!("1 to {MAX_TRANSFORMS} transforms, not {total}"));
            }
            methods.extend(std::iter::repeat_n(RotationMethod { steps, log_babies }, count));
        }
        Ok(Self::Each(methods))
    }
}

fn expected_form() -> String {
    "`hoisted`, `flat`, `paired`, `chained`, `powers`, or a way for each transform such as `3h+2c+f5`".to_owned()
}

impl fmt::Display for RotationMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = match self {
            Self::All(method) => return write!(f, "{}", method.steps),
            Self::Each(methods) => methods,
        };
        for (i, run) in methods.chunk_by(|a, b| a == b).enumerate() {
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
    fn methods_round_trip_as_text() {
        for text in ["hoisted", "flat", "paired", "chained", "powers", "3h+2c+f5", "c0", "4096c", "h+f+p3+c+2w4+h"] {
            assert_eq!(text.parse::<RotationMethods>().unwrap().to_string(), text);
        }
        let methods: RotationMethods = "2h+c5".parse().unwrap();
        assert_eq!((methods.len(), methods.get(0), methods.get(3)), (Some(3), Some(RotationMethod::HOISTED), None));
        assert_eq!(methods.get(2), Some(RotationMethod { steps: Steps::Chained, log_babies: Some(5) }));
        assert_eq!(
            RotationMethods::from_list(vec![RotationMethod::CHAINED; 3]),
            RotationMethods::All(RotationMethod::CHAINED)
        );
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
            assert!(bad.parse::<RotationMethods>().is_err(), "{bad}");
        }
    }
}
