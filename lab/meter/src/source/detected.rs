//! The result of a search for a source.
use super::{Source, Usage};
use crate::MeterError;

/// A source that the detection tried.
pub struct Detected {
    /// Its name, for selection: `rapl`, `hwmon:ina226`.
    pub name: String,
    /// Where the detection searched.
    pub place: String,
    /// Remarks about its figures.
    pub notes: Vec<String>,
    /// Whether the source can be used.
    pub outcome: Outcome,
}

/// Whether a source can be used.
pub enum Outcome {
    /// The source is open and ready.
    Usable(Box<dyn Source>),
    /// The source cannot be used.
    Unusable {
        /// The cause.
        reason: String,
        /// The remedy for the user.
        remedy: String,
    },
}

impl Detected {
    fn new(name: &str, place: &str, outcome: Outcome) -> Self {
        Self { name: name.into(), place: place.into(), notes: Vec::new(), outcome }
    }

    pub(crate) fn usable(place: &str, source: Box<dyn Source>) -> Self {
        Self::new(&source.info().name.clone(), place, Outcome::Usable(source))
    }

    /// Usable if a first reading succeeds; counters start to count here.
    pub(crate) fn probe(place: &str, mut source: Box<dyn Source>) -> Self {
        match source.read(&Usage::default()) {
            Ok(_) => Self::usable(place, source),
            Err(error) => Self::from_error(&source.info().name, place, error),
        }
    }

    pub(crate) fn unusable(name: &str, place: &str, reason: String, remedy: String) -> Self {
        Self::new(name, place, Outcome::Unusable { reason, remedy })
    }

    pub(crate) fn from_error(name: &str, place: &str, error: MeterError) -> Self {
        match error {
            MeterError::Source { reason, remedy, .. } => Self::unusable(name, place, reason, remedy),
            error => Self::unusable(name, place, error.to_string(), "see docs/lab.md".into()),
        }
    }

    pub(crate) fn note(mut self, note: &str) -> Self {
        self.notes.push(note.into());
        self
    }

    pub(crate) fn from_result(name: &str, place: &str, opened: Result<Box<dyn Source>, MeterError>) -> Self {
        match opened {
            Ok(source) => Self::usable(place, source),
            Err(error) => Self::from_error(name, place, error),
        }
    }

    /// Whether it can be used.
    pub fn is_usable(&self) -> bool {
        matches!(self.outcome, Outcome::Usable(_))
    }

    /// The source, ready to be read.
    ///
    /// # Errors
    /// [`MeterError::Source`] with cause and remedy if the source cannot be used.
    pub fn into_source(self) -> Result<Box<dyn Source>, MeterError> {
        match self.outcome {
            Outcome::Usable(source) => Ok(source),
            Outcome::Unusable { reason, remedy } => Err(MeterError::Source { name: self.name, reason, remedy }),
        }
    }
}
