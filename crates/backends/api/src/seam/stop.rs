//! Ends a phase between two of its layers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tacit_graph::{Interpreter, NodeId, SortedGraph, walk};

use crate::{BackendError, Result};

/// The bit that is set once a connection's phases must end.
const RAISED: u64 = 1 << 63;

/// Ends the phases of a connection, from any thread and for good: they begin no further layer and fail with
/// [`BackendError::Stopped`]; results and used material are lost. A phase that waits for a third party ends
/// at once ([`on_raise`](Self::on_raise)). The connection is of no further use. Clones belong to the same
/// connection.
#[derive(Clone, Default)]
pub struct Stop(Arc<State>);

#[derive(Default)]
struct State {
    layers: AtomicU64,
    waits: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    last_number: u64,
    callbacks: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
}

impl State {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stop {
    /// Ends the phases. Returns the number of layers that they have begun.
    pub fn raise(&self) -> u64 {
        let layer_count = self.0.layers.fetch_or(RAISED, Relaxed) & !RAISED;
        let mut waits = self.0.waits();
        // Called under the lock, so that no callback runs after its `Wait` was dropped.
        std::mem::take(&mut waits.callbacks).into_values().for_each(|end| end());
        layer_count
    }

    /// Whether the phases must end.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.layers.load(Relaxed) & RAISED != 0
    }

    /// Registers `end` to be called when this is raised, or calls it at once if it is. Dropping the returned
    /// [`Wait`] removes the callback. `end` must not block or use this `Stop`.
    #[must_use = "dropped, it takes `end` back"]
    pub fn on_raise(&self, end: impl FnOnce() + Send + 'static) -> Wait<'_> {
        let mut waits = self.0.waits();
        // `raise` sets the flag before it takes the list: either it finds this entry, or the flag
        // is set here.
        if self.is_raised() {
            drop(waits);
            end();
            return Wait { stop: self, number: None };
        }
        waits.last_number += 1;
        let number = waits.last_number;
        waits.callbacks.insert(number, Box::new(end));
        Wait { stop: self, number: Some(number) }
    }

    /// Number of layers that the connection's phases have begun.
    #[must_use]
    pub fn begun_layers(&self) -> u64 {
        self.0.layers.load(Relaxed) & !RAISED
    }

    /// Counts a layer that begins.
    ///
    /// # Errors
    /// [`BackendError::Stopped`] if the phases must end.
    pub fn begin(&self) -> Result<()> {
        let previous = self.0.layers.fetch_update(Relaxed, Relaxed, |count| (count & RAISED == 0).then_some(count + 1));
        previous.map(drop).map_err(|_| BackendError::Stopped)
    }

    /// Walks a graph and counts each node as a layer.
    ///
    /// # Errors
    /// [`BackendError::Stopped`], or the first error of the interpreter.
    pub fn walk<G, I>(&self, graph: &G, interpreter: &mut I) -> Result<I::Wire>
    where
        G: SortedGraph,
        I: Interpreter<Node = G::Node, Error = BackendError>,
    {
        walk(graph, &mut Stoppable { interpreter, stop: self })
    }
}

/// The registration of a callback at a [`Stop`], removed on drop.
pub struct Wait<'a> {
    stop: &'a Stop,
    number: Option<u64>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.stop.0.waits().callbacks.remove(&number);
        }
    }
}

/// An interpreter that begins no node once its [`Stop`] is raised.
struct Stoppable<'a, I> {
    interpreter: &'a mut I,
    stop: &'a Stop,
}

impl<I: Interpreter<Error = BackendError>> Interpreter for Stoppable<'_, I> {
    type Node = I::Node;
    type Wire = I::Wire;
    type Error = BackendError;

    fn node(&mut self, id: NodeId, node: &I::Node, inputs: &[&I::Wire]) -> Result<I::Wire> {
        self.stop.begin()?;
        self.interpreter.node(id, node, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_stop_begins_no_layer() {
        let stop = Stop::default();
        let clone = stop.clone();
        assert!(stop.begin().is_ok());
        assert!(clone.begin().is_ok());
        assert_eq!((stop.raise(), clone.raise()), (2, 2));
        assert!(matches!(clone.begin(), Err(BackendError::Stopped)));
        assert_eq!((stop.begun_layers(), Stop::default().begun_layers()), (2, 0));
    }

    #[test]
    fn raise_calls_registered_callbacks_once() {
        let (stop, ended) = (Stop::default(), Arc::new(AtomicU64::new(0)));
        let end = |digit: u64| {
            let ended = Arc::clone(&ended);
            move || {
                ended.fetch_add(digit, Relaxed);
            }
        };
        let _first = stop.on_raise(end(1));
        drop(stop.on_raise(end(10)));
        assert_eq!((stop.is_raised(), ended.load(Relaxed)), (false, 0));
        stop.raise();
        stop.raise();
        assert_eq!((stop.is_raised(), ended.load(Relaxed)), (true, 1));
        drop(stop.on_raise(end(100)));
        assert_eq!(ended.load(Relaxed), 101);
    }
}
