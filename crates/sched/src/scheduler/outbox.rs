//! What the caller is asked to do, and whether a look for more could find anything.

use crate::message::Action;
use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    actions: VecDeque<Action>,
    /// Nothing changed since nothing more could be started.
    settled: bool,
}

impl Outbox {
    pub fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub fn pop(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Something changed that may let a job start.
    pub fn stir(&mut self) {
        self.settled = false;
    }

    /// Nothing more can be started as things are.
    pub fn settle(&mut self) {
        self.settled = true;
    }

    pub fn settled(&self) -> bool {
        self.settled
    }
}
