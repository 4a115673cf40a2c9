//! Moving one input between its stages; every counter that depends on a stage is kept here.

use super::Scheduler;
use super::state::{Group, GroupId, Input, Stage};
use crate::config::Binding;
use crate::ids::{MaterialId, ModelId, Phase};
use crate::message::{Action, InputReport, NoticeProblem, Outcome, Source, Stamp};
use crate::policy::{JobFacts, Policy};
use crate::pool::PoolKey;
use crate::queue::{InputKey, Slot};
use crate::time::Span;

impl<P: Policy> Scheduler<P> {
    /// Changes an input and keeps the queue lengths.
    pub(super) fn edit(&mut self, key: InputKey, change: impl FnOnce(&mut Input)) {
        if let Some(input) = self.inputs.get_mut(&key) {
            *self.counts.of(input) -= 1;
            change(input);
            *self.counts.of(input) += 1;
        }
    }

    pub(super) fn set_stage(&mut self, key: InputKey, stage: Stage) {
        self.edit(key, |input| input.stage = stage);
    }

    /// A new input in `WaitPre`, in no queue yet.
    pub(super) fn new_input(&mut self, group: GroupId, index: u32, work: Span, source: Source) -> InputKey {
        let key = self.next_input;
        self.next_input += 1;
        let input = Input {
            group,
            index,
            stage: Stage::WaitPre,
            slot: None,
            failures: 0,
            source,
            entered: self.now,
            since: self.now,
            pre: Stamp::default(),
            on: Stamp::default(),
            work,
        };
        *self.counts.of(&input) += 1;
        self.inputs.insert(key, input);
        self.edit_group(group, |group| {
            group.live.insert(key);
        });
        key
    }

    /// Changes a group. Callers hold the id of an input in it, so it is there; the audit would tell of a change that was lost.
    pub(super) fn edit_group(&mut self, id: GroupId, change: impl FnOnce(&mut Group)) {
        debug_assert!(self.groups.contains_key(&id), "a live input's group is live");
        if let Some(group) = self.groups.get_mut(&id) {
            change(group);
        }
    }

    /// Puts a waiting input into the class queues, or parks it when its group holds its share.
    pub(super) fn enqueue(&mut self, key: InputKey) {
        let window = self.window();
        let input = self.inputs[&key].clone();
        self.mark_needy(key, &input);
        let phase = if input.stage == Stage::WaitPre { Phase::Pre } else { Phase::On };
        let parks = self.groups[&input.group].active >= window;
        self.edit_group(input.group, |group| match parks {
            true => _ = group.parked.insert((u8::from(phase == Phase::Pre), key)),
            false => group.active += 1,
        });
        if parks {
            return;
        }
        let class = self.class_for(&input, phase);
        let client = &self.clients[&self.groups[&input.group].client];
        let tag = self.policy.tag(&JobFacts {
            arrived: input.since,
            entered: input.entered,
            backlog: client.backlog - input.work,
            clients: self.clients.len() as u32,
            cores: self.capacity.cores.max(1),
        });
        let slot = Slot { class, tag };
        self.edit(key, |input| input.slot = Some(slot));
        self.queues.insert(slot, key);
        self.dirty = true;
    }

    /// Takes a waiting input out of the class queues or out of its group's parking.
    pub(super) fn dequeue(&mut self, key: InputKey) {
        let input = self.inputs[&key].clone();
        self.unmark_needy(key, &input);
        match input.slot {
            Some(slot) => {
                self.queues.remove(slot, key);
                self.edit(key, |input| input.slot = None);
                self.edit_group(input.group, |group| group.active -= 1);
                self.drop_reservation(key);
            }
            None => {
                self.edit_group(input.group, |group| {
                    group.parked.remove(&(0, key));
                    group.parked.remove(&(1, key));
                });
            }
        }
    }

    /// Queues what a group had to hold back, as far as its share allows.
    pub(super) fn unpark(&mut self, id: GroupId) {
        let window = self.window();
        while let Some(group) = self.groups.get_mut(&id) {
            if group.active >= window || group.threads >= window {
                break;
            }
            let Some((_, key)) = group.parked.pop_first() else {
                break;
            };
            self.enqueue(key);
        }
    }

    pub(super) fn drop_reservation(&mut self, key: InputKey) {
        if self.reservation.is_some_and(|r| r.input == key) {
            self.reservation = None;
            self.dirty = true;
        }
    }

    pub(super) fn mark_needy(&mut self, key: InputKey, input: &Input) {
        if let Some(pool) = self.needy_pool(input) {
            self.needy.entry(pool).or_default().insert(key);
        }
    }

    fn unmark_needy(&mut self, key: InputKey, input: &Input) {
        if let Some(pool) = self.needy_pool(input)
            && let Some(set) = self.needy.get_mut(&pool)
        {
            set.remove(&key);
            if set.is_empty() {
                self.needy.remove(&pool);
            }
        }
    }

    /// The pool that could serve this input, while it waits for its T_pre.
    fn needy_pool(&self, input: &Input) -> Option<PoolKey> {
        if input.stage != Stage::WaitPre || !matches!(input.group, GroupId::Request(_)) {
            return None;
        }
        let group = self.groups.get(&input.group)?;
        self.pool_key(group.model, group.client)
    }

    /// The input has its material: to T_on if its request is here.
    pub(super) fn has_material(&mut self, key: InputKey, material: MaterialId) {
        let now = self.now;
        match self.inputs[&key].group {
            GroupId::Notice(_) => self.set_stage(key, Stage::Held(material)),
            GroupId::Request(_) => {
                self.edit(key, |input| {
                    input.stage = Stage::WaitOn(material);
                    input.entered = now;
                });
                self.enqueue(key);
            }
        }
    }

    /// Ends an input: releases what it holds, reports it if it is a request's, and closes its group after the last one.
    pub(super) fn finish_input(&mut self, key: InputKey, outcome: Outcome) {
        match self.inputs[&key].stage {
            Stage::WaitPre => self.dequeue(key),
            Stage::RunPre(job) => self.orphan(job),
            Stage::Held(material) => self.release_material(key, material),
            Stage::WaitOn(material) => {
                self.dequeue(key);
                self.release_material(key, material);
            }
            Stage::RunOn(job) => self.stop_job(job),
        }
        self.remove_input(key, outcome);
    }

    /// Forgets an input that holds nothing any more.
    pub(super) fn remove_input(&mut self, key: InputKey, outcome: Outcome) {
        let Some(input) = self.inputs.remove(&key) else {
            return;
        };
        *self.counts.of(&input) -= 1;
        let Some(group) = self.groups.get_mut(&input.group) else {
            return;
        };
        group.live.remove(&key);
        let (client, last, model, arrived) = (group.client, group.live.is_empty(), group.model, group.arrived);
        if let Some(record) = self.clients.get_mut(&client) {
            record.unfinished -= 1;
            record.backlog -= input.work;
        }
        if let GroupId::Request(request) = input.group {
            self.out.push_back(Action::Report(InputReport {
                input: crate::ids::InputId { request, index: input.index },
                client,
                model,
                outcome,
                source: input.source,
                arrived,
                pre: input.pre,
                on: input.on,
                ended: self.now,
                last,
            }));
        }
        if last {
            // A notice ends without a word here; those who end it for a reason say so.
            self.close_group(input.group, None);
        } else {
            self.unpark(input.group);
        }
    }

    /// Forgets a group without inputs.
    pub(super) fn close_group(&mut self, id: GroupId, problem: Option<NoticeProblem>) {
        let Some(group) = self.groups.remove(&id) else {
            return;
        };
        debug_assert!(group.live.is_empty() && group.active == 0 && group.threads == 0 && group.parked.is_empty());
        if let Some(time) = group.ends {
            self.timers.remove(&(time, id));
        }
        if let Some(client) = self.clients.get_mut(&group.client) {
            client.groups.remove(&id);
            if client.groups.is_empty() {
                self.clients.remove(&group.client);
            }
        }
        if let (GroupId::Notice(notice), Some(why)) = (id, problem) {
            self.remember_notice(notice, why);
        }
    }

    /// Material that its input no longer needs: to the pool where it is of use, else burnt.
    fn release_material(&mut self, key: InputKey, material: MaterialId) {
        let group = &self.groups[&self.inputs[&key].group];
        match self.pool_key(group.model, group.client) {
            Some(pool) => self.shelve(pool, material),
            None => self.burn(material),
        }
    }

    /// Forgets a material and has it destroyed.
    pub(super) fn burn(&mut self, material: MaterialId) {
        self.consume(material);
        self.out.push_back(Action::Burn { material });
    }

    /// Forgets a material and gives back its disk.
    pub(super) fn consume(&mut self, material: MaterialId) {
        if let Some(model) = self.materials.remove(&material) {
            self.used.disk -= self.disk(model);
            self.dirty = true;
        }
    }

    /// Client that a job of this model must run with.
    pub(super) fn bound_client(&self, model: ModelId, group: GroupId) -> Option<crate::ids::ClientId> {
        match self.models[model.0 as usize].binding {
            Binding::Unbound => None,
            Binding::Client => self.groups.get(&group).map(|g| g.client),
        }
    }
}
