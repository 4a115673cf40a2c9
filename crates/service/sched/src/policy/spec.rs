//! Policies by name, for configuration files, replay files and the command line.

use super::adaptive::Adaptive;
use super::classic::{FairShare, Fcfs, Priority, Sequential, ShortestRemaining};
use super::facts::{Choice, ClassFacts, Discipline, JobFacts, Policy, Score};
use super::ss26::{Ss26, Ss26Order};
use crate::error::SchedError;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A policy as data; is itself a [`Policy`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "name")]
pub enum PolicySpec {
    /// First come, first served ([`Fcfs`]).
    Fcfs,
    /// Estimated length minus weighted age, the lowest first ([`Priority`]).
    Priority {
        /// Weight of age.
        beta: f64,
    },
    /// One request at a time, in order of arrival ([`Sequential`]).
    Sequential,
    /// Shortest remaining time first ([`ShortestRemaining`]).
    ShortestRemaining,
    /// The paper's order, with deadline classes and threads by their cost ([`Adaptive`]).
    Adaptive(Adaptive),
    /// [SS26] Algorithm 1 as printed ([`Ss26`]).
    Ss26(Ss26),
    /// Fair share between clients, on top of another policy ([`FairShare`]).
    Fair {
        /// Weight of a client's backlog.
        strength: f64,
        /// The policy underneath.
        inner: Box<Self>,
    },
}

impl PolicySpec {
    fn with<R>(&self, run: impl FnOnce(&dyn Policy) -> R) -> R {
        match self {
            Self::Fcfs => run(&Fcfs),
            Self::Priority { beta } => run(&Priority { beta: *beta }),
            Self::Sequential => run(&Sequential),
            Self::ShortestRemaining => run(&ShortestRemaining),
            Self::Adaptive(adaptive) => run(adaptive),
            Self::Ss26(ss26) => run(ss26),
            Self::Fair { strength, inner } => run(&FairShare { strength: *strength, inner: (**inner).clone() }),
        }
    }
}

impl Policy for PolicySpec {
    fn name(&self) -> String {
        self.with(|p| p.name())
    }
    fn tag(&self, job: &JobFacts) -> Score {
        self.with(|p| p.tag(job))
    }
    fn rank(&self, class: &ClassFacts) -> Score {
        self.with(|p| p.rank(class))
    }
    fn threads(&self, choice: &Choice<'_>) -> Option<u32> {
        self.with(|p| p.threads(choice))
    }
    fn keeps_room(&self) -> bool {
        self.with(|p| p.keeps_room())
    }
    fn discipline(&self) -> Discipline {
        self.with(|p| p.discipline())
    }
}

impl FromStr for PolicySpec {
    type Err = SchedError;

    /// `fcfs`, `priority`, `priority:BETA`, `sequential`, `srt`, `adaptive`, `ss26:fcfs`, `ss26:fcfs:entry`,
    /// `ss26:priority`, `ss26:priority:BETA`, these with an optional `+exclusive`; each with an optional `+fair` or
    /// `+fair:STRENGTH`.
    fn from_str(text: &str) -> Result<Self, SchedError> {
        if let Some((inner, fair)) = text.rsplit_once("+fair") {
            let strength = match fair.strip_prefix(':') {
                Some(value) => weight(value, text)?,
                None if fair.is_empty() => 1.0,
                None => return Err(unknown(text)),
            };
            return Ok(Self::Fair { strength, inner: Box::new(inner.parse()?) });
        }
        if let Some(rest) = text.strip_prefix("ss26:") {
            let (order, exclusive) = rest.strip_suffix("+exclusive").map_or((rest, false), |order| (order, true));
            let order = match order {
                "fcfs:entry" => Ss26Order::FcfsByEntry,
                _ => match order.parse::<Self>()? {
                    Self::Fcfs => Ss26Order::Fcfs,
                    Self::Priority { beta } => Ss26Order::Priority { beta },
                    _ => return Err(unknown(text)),
                },
            };
            return Ok(Self::Ss26(Ss26 { order, exclusive }));
        }
        match text.split_once(':') {
            Some(("priority", beta)) => Ok(Self::Priority { beta: weight(beta, text)? }),
            Some(_) => Err(unknown(text)),
            None => match text {
                "fcfs" => Ok(Self::Fcfs),
                "priority" => Ok(Self::Priority { beta: 0.1 }),
                "sequential" => Ok(Self::Sequential),
                "srt" | "shortest-remaining" => Ok(Self::ShortestRemaining),
                "adaptive" => Ok(Self::Adaptive(Adaptive::default())),
                _ => Err(unknown(text)),
            },
        }
    }
}

/// Parses a weight in the text of a policy.
fn weight(value: &str, policy: &str) -> Result<f64, SchedError> {
    match value.parse::<f64>() {
        Ok(value) if (0.0..=1e6).contains(&value) => Ok(value),
        _ => Err(unknown(policy)),
    }
}

/// Returns the error for a text that names no policy.
fn unknown(policy: &str) -> SchedError {
    SchedError::UnknownPolicy(policy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_print() {
        for (text, name) in [
            ("fcfs", "fcfs"),
            ("priority:0.5", "priority(0.5)"),
            ("srt", "shortest-remaining"),
            ("fcfs+fair:2", "fcfs+fair(2)"),
            ("adaptive+fair", "adaptive+fair(1)"),
            ("ss26:fcfs", "ss26:fcfs"),
            ("ss26:fcfs:entry+exclusive", "ss26:fcfs(entry)+exclusive"),
            ("ss26:priority:0.5+exclusive", "ss26:priority(0.5)+exclusive"),
            ("ss26:priority+fair", "ss26:priority(0.1)+fair(1)"),
        ] {
            assert_eq!(text.parse::<PolicySpec>().unwrap().name(), name);
        }
        for text in [
            "",
            "lifo",
            "priority:x",
            "priority:-1",
            "fcfs:2",
            "fcfs+fairly",
            "priority:nan",
            "fcfs+exclusive",
            "ss26:srt",
            "ss26:",
            "ss26:ss26:fcfs",
        ] {
            assert!(text.parse::<PolicySpec>().is_err(), "{text}");
        }
    }
}
