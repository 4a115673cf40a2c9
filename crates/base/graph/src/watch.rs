//! Progress of long work, and a way to stop it.

use std::fmt;
use std::sync::Arc;

use crate::GraphError;

/// Progress of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Description of the current work, for users: "running calibration samples".
    pub what: &'static str,
    /// Number of finished parts.
    pub done: usize,
    /// Number of all parts; `None` if it is not known in advance.
    pub of: Option<usize>,
}

type Listener = dyn Fn(Step) -> bool + Send + Sync;

/// The listener that gets progress and may stop the work; by default none.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Listener>>);

impl Watch {
    /// A watch that reports to `listener`, which returns whether the work should continue.
    pub fn new(listener: impl Fn(Step) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Reports a finished part.
    ///
    /// # Errors
    /// [`GraphError::Interrupted`] if the listener stops the work.
    pub fn tell(&self, what: &'static str, done: usize, of: Option<usize>) -> Result<(), GraphError> {
        match &self.0 {
            Some(listener) if !listener(Step { what, done, of }) => Err(GraphError::Interrupted),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watch" } else { "nobody" })
    }
}
