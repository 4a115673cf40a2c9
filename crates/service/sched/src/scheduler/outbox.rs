//! Queued actions, and whether a search for another job to start is needed.

use crate::message::Action;
use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    actions: VecDeque<Action>,
    /// Whether the last search found nothing to start and nothing has changed since.
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

    /// Records a change that may let a job start.
    pub fn stir(&mut self) {
        self.settled = false;
    }

    pub fn settle(&mut self) {
        self.settled = true;
    }

    pub fn is_settled(&self) -> bool {
        self.settled
    }
}
