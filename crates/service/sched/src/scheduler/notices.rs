//! The fates of ended notices, for late requests.

use crate::ids::NoticeId;
use crate::message::NoticeProblem;
use std::collections::{BTreeMap, VecDeque};

const MAX_REMEMBERED: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct EndedNotices {
    ends: BTreeMap<NoticeId, NoticeProblem>,
    /// Oldest first.
    order: VecDeque<NoticeId>,
}

impl EndedNotices {
    pub fn remember(&mut self, notice: NoticeId, why: NoticeProblem) {
        if self.ends.insert(notice, why).is_none() {
            self.order.push_back(notice);
        }
        while self.order.len() > MAX_REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.ends.remove(&oldest);
            }
        }
    }

    /// A new notice has this id.
    pub fn forget(&mut self, notice: NoticeId) {
        self.ends.remove(&notice);
    }

    /// How a notice that is not live ended, as far as remembered.
    pub fn problem(&self, notice: NoticeId) -> NoticeProblem {
        self.ends.get(&notice).copied().unwrap_or(NoticeProblem::Unknown)
    }
}
