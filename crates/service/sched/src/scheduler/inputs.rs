//! Moves one input between its stages, and into and out of the queues.

use super::Scheduler;
use super::state::Stage;
use crate::ids::{ClientId, MaterialId, ModelId, Owner};
use crate::message::{Action, InputReport, Outcome, Source};
use crate::policy::Policy;
use crate::pool::PoolKey;
use crate::queue::{InputKey, Slot};

impl<P: Policy> Scheduler<P> {
    /// Queues a waiting input, or parks it if its group has used up its share or its lanes.
    pub(super) fn enqueue(&mut self, key: InputKey) {
        if let Some(pool) = self.needed_pool(key) {
            self.stock.add_needy(pool, key);
        }
        if !self.work.take_place(key, self.window()) {
            return;
        }
        let class = self.class_for(key);
        let slot = Slot { class, tag: self.tag(key, self.work.backlog_before(key)) };
        self.work.set_slot(key, Some(slot));
        self.queues.insert(slot, key, self.work.group_of(key).client);
        self.out.stir();
    }

    /// Takes a waiting input out of the queues or out of its group's parking.
    pub(super) fn dequeue(&mut self, key: InputKey) {
        if let Some(pool) = self.needed_pool(key) {
            self.stock.remove_needy(pool, key);
        }
        match self.work.input(key).slot {
            Some(slot) => {
                self.queues.remove(slot, key, self.work.group_of(key).client);
                self.work.set_slot(key, None);
                self.work.leave_place(key);
                if self.machine.unreserve(key) {
                    self.out.stir();
                }
            }
            None => self.work.unpark(key),
        }
    }

    /// Parks an input whose group has used up its share of the cores or its lanes.
    pub(super) fn park(&mut self, key: InputKey) {
        self.dequeue(key);
        self.work.park(key);
        if let Some(pool) = self.needed_pool(key) {
            self.stock.add_needy(pool, key);
        }
    }

    pub(super) fn unpark(&mut self, id: Owner) {
        let window = self.window();
        while let Some(key) = self.work.next_parked(id, window) {
            self.enqueue(key);
        }
    }

    /// The pool that could serve this input, while it waits for its T_pre.
    fn needed_pool(&self, key: InputKey) -> Option<PoolKey> {
        let input = self.work.input(key);
        if input.stage != Stage::WaitPre || !matches!(input.group, Owner::Request(_)) {
            return None;
        }
        self.pool_of(key)
    }

    pub(super) fn pool_of(&self, key: InputKey) -> Option<PoolKey> {
        let group = self.work.group_of(key);
        self.pool_for(group.model, group.client)
    }

    /// The input has its material, or needs none: moves it to T_on if its request has arrived.
    pub(super) fn has_material(&mut self, key: InputKey, material: Option<MaterialId>) {
        let now = self.clock.now();
        match self.work.input(key).group {
            Owner::Notice(_) => self.work.set_stage(key, Stage::Held(material)),
            Owner::Request(_) => {
                self.work.edit(key, |input| {
                    input.stage = Stage::WaitOn(material);
                    input.entered = now;
                });
                self.enqueue(key);
            }
        }
    }

    /// Ends an input and releases what it holds.
    pub(super) fn finish_input(&mut self, key: InputKey, outcome: Outcome) {
        match self.work.input(key).stage {
            Stage::WaitPre => self.dequeue(key),
            Stage::RunPre(job) => self.orphan(job, key),
            Stage::Held(material) => self.release_material(key, material),
            Stage::WaitOn(material) => {
                self.dequeue(key);
                self.release_material(key, material);
            }
            Stage::RunOn(job) => self.stop_job(job),
        }
        self.remove_input(key, outcome);
    }

    /// Reports an input that holds nothing any more, and closes its group after the last one.
    pub(super) fn remove_input(&mut self, key: InputKey, outcome: Outcome) {
        let Some(removed) = self.work.remove_input(key, self.clock.now()) else { return };
        let (input, group) = (removed.input, removed.group);
        let last = group.live.is_empty();
        if let Some(id) = input.id() {
            self.out.push(Action::Report(InputReport {
                input: id,
                client: group.client,
                model: group.model,
                outcome,
                source: input.source,
                arrived: group.arrived,
                pre: input.pre,
                on: input.on,
                ended: self.clock.now(),
                last,
            }));
        }
        if last {
            // No report here: callers that end a notice for a reason report the end.
            self.close_group(input.group);
        } else {
            self.unpark(input.group);
        }
    }

    pub(super) fn close_group(&mut self, id: Owner) {
        if let Some(time) = self.work.close_group(id).and_then(|group| group.ends) {
            self.clock.clear_timer(time, id);
        }
    }

    /// Releases material that its input no longer needs: to the pool if possible, else burnt.
    ///
    /// The client knows kept material by name, so no other input may get it.
    fn release_material(&mut self, key: InputKey, material: Option<MaterialId>) {
        let Some(material) = material else { return };
        match self.pool_of(key) {
            Some(pool) if self.work.input(key).source != Source::Kept => self.shelve(pool, material),
            _ => self.burn(material),
        }
    }

    pub(super) fn burn_kept(&mut self, selects: impl Fn(ClientId, ModelId) -> bool) {
        let keepers: Vec<_> = self.stock.keepers().filter(|&(client, model)| selects(client, model)).collect();
        for (client, model) in keepers {
            for material in self.stock.take_kept(client, model) {
                self.burn(material);
            }
        }
    }

    pub(super) fn burn(&mut self, material: MaterialId) {
        self.consume(material);
        self.out.push(Action::Burn { material });
    }

    pub(super) fn consume(&mut self, material: MaterialId) {
        let model = self.stock.forget(material);
        self.machine.free_disk(self.catalog.disk(model));
        self.out.stir();
    }
}
