//! Queued jobs: one ordered queue per class, and one ordered index of the classes' heads.
//!
//! The score of a job is `rank(class) + tag(job)`. The rank moves when an estimate changes; the tag
//! never does. So the order inside a class is fixed when a job joins, a changed estimate moves one
//! entry of the head index, and every operation costs O(log n). The job that joined the system
//! first wins ties.

use crate::ids::{ClientId, DeadlineClass, JobPhase, ModelId, Origin};
use crate::policy::{ClassFacts, Score};
use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::iter::Copied;

/// Key of an input. Later inputs have larger keys, so the key also breaks ties.
pub(crate) type InputKey = u64;
pub(crate) type ClassIdx = usize;

/// Jobs that differ for a policy only in their tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassKey {
    pub model: ModelId,
    pub phase: JobPhase,
    pub batch: u32,
    pub origin: Origin,
    pub deadline: DeadlineClass,
}

/// Place of a queued job in the queues, for its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub class: ClassIdx,
    pub tag: Score,
}

#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub key: ClassKey,
    pub facts: ClassFacts,
    rank: Score,
    jobs: BTreeSet<(Score, InputKey)>,
    /// The same jobs, by client.
    by_client: BTreeMap<ClientId, BTreeSet<(Score, InputKey)>>,
}

/// A queued job with its score.
pub(crate) type Scored = (Score, InputKey, ClassIdx);
pub(crate) type Heads<'a> = Copied<btree_set::Iter<'a, Scored>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct ClassQueues {
    classes: Vec<Class>,
    by_key: BTreeMap<ClassKey, ClassIdx>,
    by_model: Vec<Vec<ClassIdx>>,
    heads: BTreeSet<Scored>,
    len: usize,
}

impl ClassQueues {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn find(&self, key: &ClassKey) -> Option<ClassIdx> {
        self.by_key.get(key).copied()
    }

    /// Adds an empty class. Its key must be new.
    pub fn add_class(&mut self, facts: ClassFacts, key: ClassKey, rank: Score) -> ClassIdx {
        let idx = self.classes.len();
        self.classes.push(Class { key, facts, rank, jobs: BTreeSet::new(), by_client: BTreeMap::new() });
        self.by_key.insert(key, idx);
        let model = key.model.0 as usize;
        if self.by_model.len() <= model {
            self.by_model.resize(model + 1, Vec::new());
        }
        self.by_model[model].push(idx);
        idx
    }

    pub fn class(&self, idx: ClassIdx) -> &Class {
        &self.classes[idx]
    }

    pub fn classes_of(&self, model: ModelId) -> Vec<ClassIdx> {
        self.by_model.get(model.0 as usize).cloned().unwrap_or_default()
    }

    pub fn all_classes(&self) -> std::ops::Range<ClassIdx> {
        0..self.classes.len()
    }

    fn head(&self, idx: ClassIdx) -> Option<Scored> {
        let class = &self.classes[idx];
        class.jobs.first().map(|&(tag, input)| (class.rank.plus(tag), input, idx))
    }

    /// Applies `change` to a class and moves its entry in the head index.
    fn update(&mut self, idx: ClassIdx, change: impl FnOnce(&mut Class)) {
        let old_head = self.head(idx);
        change(&mut self.classes[idx]);
        let new_head = self.head(idx);
        if old_head != new_head {
            if let Some(head) = old_head {
                self.heads.remove(&head);
            }
            if let Some(head) = new_head {
                self.heads.insert(head);
            }
        }
    }

    pub fn insert(&mut self, slot: Slot, input: InputKey, client: ClientId) {
        self.update(slot.class, |class| {
            class.jobs.insert((slot.tag, input));
            class.by_client.entry(client).or_default().insert((slot.tag, input));
        });
        self.len += 1;
    }

    /// Removes a queued job, which must be at `slot`.
    pub fn remove(&mut self, slot: Slot, input: InputKey, client: ClientId) {
        let mut removed = false;
        self.update(slot.class, |class| {
            removed = class.jobs.remove(&(slot.tag, input));
            if let Some(client_jobs) = class.by_client.get_mut(&client) {
                client_jobs.remove(&(slot.tag, input));
                if client_jobs.is_empty() {
                    class.by_client.remove(&client);
                }
            }
        });
        debug_assert!(removed, "a job was taken out twice");
        self.len -= usize::from(removed);
    }

    pub fn set_facts(&mut self, idx: ClassIdx, facts: ClassFacts, rank: Score) {
        self.update(idx, |class| {
            class.facts = facts;
            class.rank = rank;
        });
    }

    pub fn heads(&self) -> Heads<'_> {
        self.heads.iter().copied()
    }

    /// The best-scored job of the class whose client is not in `except`. Visits all clients of the
    /// class.
    pub fn first_except(&self, idx: ClassIdx, except: &[ClientId]) -> Option<Scored> {
        let class = &self.classes[idx];
        let others = class.by_client.iter().filter(|(client, _)| !except.contains(client));
        let first = others.filter_map(|(_, client_jobs)| client_jobs.first()).min();
        first.map(|&(tag, input)| (class.rank.plus(tag), input, idx))
    }

    pub fn jobs(&self, idx: ClassIdx) -> impl Iterator<Item = InputKey> + '_ {
        self.classes[idx].jobs.iter().map(|&(_, input)| input)
    }

    pub fn class_len(&self, idx: ClassIdx) -> usize {
        self.classes[idx].jobs.len()
    }
}
