//! Long work tells how far it is, and asks whether it should go on.

use std::fmt;
use std::sync::Arc;

use crate::GraphError;

/// How far a piece of work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What is being done, for people: "running calibration samples".
    pub what: &'static str,
    /// Parts of it that are done.
    pub done: usize,
    /// Parts that there are; `None` where only the end will tell.
    pub of: Option<usize>,
}

type Listener = dyn Fn(Step) -> bool + Send + Sync;

/// Who is told, and may end the work; by default nobody.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Listener>>);

impl Watch {
    /// Tells `listener`, which answers whether the work should go on.
    pub fn new(listener: impl Fn(Step) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Tells that a part is done.
    ///
    /// # Errors
    /// [`GraphError::Interrupted`]: the work should end.
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
