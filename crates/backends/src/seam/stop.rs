//! Ending a phase between two of its layers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tacit_graph::{Interpreter, NodeId, SortedGraph, walk};

use crate::BackendError;

/// Set once a connection's phases are to end.
const RAISED: u64 = 1 << 63;

/// Ends the phases of a connection, from any thread: a phase begins no further layer once it was raised, and
/// fails with [`BackendError::Stopped`]. What the phase has made goes with its error, and so does the
/// material that it used. For good: the connection is of no further use. Clones are of one connection.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicU64>);

impl Stop {
    /// Ends them. Gives how many layers the connection's phases have begun, and will ever have.
    pub fn raise(&self) -> u64 {
        self.0.fetch_or(RAISED, Relaxed) & !RAISED
    }

    /// How many layers the connection's phases have begun.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.0.load(Relaxed) & !RAISED
    }

    /// A layer begins, if any still may.
    ///
    /// # Errors
    /// [`BackendError::Stopped`].
    pub fn begin(&self) -> Result<(), BackendError> {
        let next = |seen: u64| (seen & RAISED == 0).then_some(seen + 1);
        self.0.fetch_update(Relaxed, Relaxed, next).map(drop).map_err(|_| BackendError::Stopped)
    }

    /// Walks a graph, each node a layer.
    ///
    /// # Errors
    /// [`BackendError::Stopped`], or whatever the interpreter returned first.
    pub(crate) fn walk<G, I>(&self, graph: &G, interpreter: &mut I) -> Result<I::Wire, BackendError>
    where
        G: SortedGraph,
        I: Interpreter<Node = G::Node, Error = BackendError>,
    {
        walk(graph, &mut Stoppable { interpreter, stop: self })
    }
}

/// An interpreter that begins no node once it is to stop.
struct Stoppable<'a, I> {
    interpreter: &'a mut I,
    stop: &'a Stop,
}

impl<I: Interpreter<Error = BackendError>> Interpreter for Stoppable<'_, I> {
    type Node = I::Node;
    type Wire = I::Wire;
    type Error = BackendError;

    fn node(&mut self, id: NodeId, node: &I::Node, inputs: &[&I::Wire]) -> Result<I::Wire, BackendError> {
        self.stop.begin()?;
        self.interpreter.node(id, node, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_begins_after_it_was_raised() {
        let stop = Stop::default();
        let other = stop.clone();
        assert!(stop.begin().is_ok() && other.begin().is_ok());
        assert_eq!((stop.raise(), other.raise()), (2, 2));
        assert!(matches!(other.begin(), Err(BackendError::Stopped)));
        assert_eq!((stop.begun(), Stop::default().begun()), (2, 0));
    }
}
