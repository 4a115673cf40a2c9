//! Inputs, their notices and requests, and the clients of these. Owns every counter that depends on
//! an input's stage.

use super::recent::Recent;
use super::same::check_equal;
use super::state::{Client, Counts, Group, Input, Stage};
use crate::ids::{ClientId, ModelId, Owner};
use crate::message::{Source, Stamp};
use crate::queue::{InputKey, Slot};
use crate::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    inputs: BTreeMap<InputKey, Input>,
    next_input: InputKey,
    groups: BTreeMap<Owner, Group>,
    clients: BTreeMap<ClientId, Client>,
    recent: Recent,
    counts: Counts,
}

/// A removed input, with its group after the removal.
pub(super) struct Removed<'a> {
    pub input: Input,
    pub group: &'a Group,
}

impl Work {
    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn input(&self, key: InputKey) -> &Input {
        &self.inputs[&key]
    }

    pub fn find(&self, key: InputKey) -> Option<&Input> {
        self.inputs.get(&key)
    }

    pub fn inputs(&self) -> impl ExactSizeIterator<Item = (InputKey, &Input)> {
        self.inputs.iter().map(|(&key, input)| (key, input))
    }

    pub fn group(&self, id: Owner) -> Option<&Group> {
        self.groups.get(&id)
    }

    pub fn group_of(&self, key: InputKey) -> &Group {
        &self.groups[&self.inputs[&key].group]
    }

    pub fn groups(&self) -> impl ExactSizeIterator<Item = (Owner, &Group)> {
        self.groups.iter().map(|(&id, group)| (id, group))
    }

    pub fn group_ids(&self) -> Vec<Owner> {
        self.groups.keys().copied().collect()
    }

    pub fn groups_of_model(&self, model: ModelId) -> Vec<Owner> {
        self.groups.iter().filter(|(_, group)| group.model == model).map(|(&id, _)| id).collect()
    }

    pub fn groups_of_client(&self, client: ClientId) -> Vec<Owner> {
        self.clients.get(&client).map_or_else(Vec::new, |record| record.groups.iter().copied().collect())
    }

    pub fn unfinished(&self, client: ClientId) -> u32 {
        self.clients.get(&client).map_or(0, |c| c.unfinished)
    }

    /// Work of a live input's client, without the input's own.
    pub fn backlog_before(&self, key: InputKey) -> Span {
        self.clients[&self.group_of(key).client].backlog - self.inputs[&key].length
    }

    pub fn threads(&self, client: ClientId) -> u32 {
        self.clients.get(&client).map_or(0, |c| c.threads)
    }

    pub fn recent(&self) -> &Recent {
        &self.recent
    }

    pub fn forget(&mut self, now: Time) -> bool {
        self.recent.forget(now)
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    pub fn open_group(&mut self, id: Owner, group: Group) {
        self.clients.entry(group.client).or_default().groups.insert(id);
        self.groups.insert(id, group);
    }

    pub fn close_group(&mut self, id: Owner) -> Option<Group> {
        let group = self.groups.remove(&id)?;
        debug_assert!(group.live.is_empty());
        debug_assert!(group.places.active == 0);
        debug_assert!(group.places.threads == 0);
        debug_assert!(group.parked.is_empty());
        if let Some(client) = self.clients.get_mut(&group.client) {
            client.groups.remove(&id);
            if client.groups.is_empty() {
                self.clients.remove(&group.client);
            }
        }
        Some(group)
    }

    /// A new input in `WaitPre`, in no queue yet.
    pub fn add_input(&mut self, group: Owner, index: u32, length: Span, source: Source, now: Time) -> InputKey {
        let key = self.next_input;
        self.next_input += 1;
        let input = Input {
            group,
            index,
            stage: Stage::WaitPre,
            slot: None,
            failures: 0,
            source,
            entered: now,
            since: now,
            pre: Stamp::default(),
            on: Stamp::default(),
            length,
        };
        *self.counts.counter_for(&input) += 1;
        self.inputs.insert(key, input);
        let is_requested = matches!(group, Owner::Request(_));
        let group = self.group_mut(group);
        group.live.insert(key);
        let client = group.client;
        if is_requested {
            self.recent.add_input(client);
        }
        let record = self.client_mut(client);
        record.unfinished += 1;
        record.backlog += length;
        key
    }

    pub fn remove_input(&mut self, key: InputKey, now: Time) -> Option<Removed<'_>> {
        let input = self.inputs.remove(&key)?;
        *self.counts.counter_for(&input) -= 1;
        let group = self.group_mut(input.group);
        group.live.remove(&key);
        let client = group.client;
        let record = self.client_mut(client);
        record.unfinished -= 1;
        record.backlog -= input.length;
        if matches!(input.group, Owner::Request(_)) {
            self.recent.remove_input(client, now);
        }
        let group = &self.groups[&input.group];
        Some(Removed { input, group })
    }

    pub fn edit(&mut self, key: InputKey, change: impl FnOnce(&mut Input)) {
        let input = self.inputs.get_mut(&key).expect("only live inputs change");
        *self.counts.counter_for(input) -= 1;
        change(input);
        *self.counts.counter_for(input) += 1;
    }

    pub fn set_stage(&mut self, key: InputKey, stage: Stage) {
        self.edit(key, |input| input.stage = stage);
    }

    pub fn set_slot(&mut self, key: InputKey, slot: Option<Slot>) {
        self.inputs.get_mut(&key).expect("only live inputs are queued").slot = slot;
    }

    fn group_mut(&mut self, id: Owner) -> &mut Group {
        self.groups.get_mut(&id).expect("a live input's group is live")
    }

    fn client_mut(&mut self, client: ClientId) -> &mut Client {
        self.clients.get_mut(&client).expect("a live group's client is known")
    }

    fn group_of_mut(&mut self, key: InputKey) -> &mut Group {
        self.group_mut(self.inputs[&key].group)
    }

    /// Gives a waiting input a place among its group's active inputs. Parks the input and returns
    /// false if the group has no place left below `window` and its lanes.
    pub fn take_place(&mut self, key: InputKey, window: u32) -> bool {
        if !self.group_of(key).has_place(window) {
            self.park(key);
            return false;
        }
        self.group_of_mut(key).places.active += 1;
        true
    }

    pub fn leave_place(&mut self, key: InputKey) {
        self.group_of_mut(key).places.active -= 1;
    }

    /// Parks a waiting input until its group has a place. T_on then precedes T_pre.
    pub fn park(&mut self, key: InputKey) {
        let pre = u8::from(self.inputs[&key].stage == Stage::WaitPre);
        self.group_of_mut(key).parked.insert((pre, key));
    }

    pub fn unpark(&mut self, key: InputKey) {
        let parked = &mut self.group_of_mut(key).parked;
        parked.remove(&(0, key));
        parked.remove(&(1, key));
    }

    pub fn next_parked(&mut self, id: Owner, window: u32) -> Option<InputKey> {
        let group = self.groups.get_mut(&id)?;
        if !group.has_place(window) || group.places.threads >= window {
            return None;
        }
        group.parked.pop_first().map(|(_, key)| key)
    }

    /// Inputs of a live group, in order of arrival.
    pub fn live_inputs(&self, id: Owner) -> Vec<InputKey> {
        self.groups[&id].live.iter().copied().collect()
    }

    /// Inputs of a group, the last first, to be ended. Unparks all, so that none is queued just to
    /// be removed.
    pub fn clear_out(&mut self, id: Owner) -> Option<Vec<InputKey>> {
        let group = self.groups.get_mut(&id)?;
        group.parked.clear();
        Some(group.live.iter().rev().copied().collect())
    }

    pub fn set_lanes(&mut self, id: Owner, lanes: u32) {
        self.group_mut(id).lanes = Some(lanes);
    }

    pub fn set_kept(&mut self, id: Owner) {
        self.group_mut(id).kept = true;
    }

    /// Queued inputs of a live group beyond its lanes, T_pre and the latest first.
    pub fn beyond_lanes(&self, id: Owner) -> Vec<InputKey> {
        let group = &self.groups[&id];
        let surplus = group.beyond_lanes() as usize;
        if surplus == 0 {
            return Vec::new();
        }
        let queued = group.live.iter().copied().filter(|key| self.inputs[key].slot.is_some());
        let mut queued: Vec<InputKey> = queued.collect();
        queued.sort_unstable_by_key(|&key| (self.inputs[&key].stage != Stage::WaitPre, std::cmp::Reverse(key)));
        queued.truncate(surplus);
        queued
    }

    /// Every queued input's backlog: its client's earlier unfinished inputs, as one-thread work. In
    /// order of arrival in the system.
    pub fn backlogs(&self) -> Vec<(InputKey, Slot, Span)> {
        let mut backlogs: BTreeMap<ClientId, Span> = BTreeMap::new();
        let mut queued = Vec::new();
        for (&key, input) in &self.inputs {
            let sum = backlogs.entry(self.groups[&input.group].client).or_default();
            queued.extend(input.slot.map(|slot| (key, slot, *sum)));
            *sum += input.length;
        }
        queued
    }

    pub fn occupy(&mut self, key: InputKey, threads: u32) {
        let group = self.group_of_mut(key);
        group.places.active += 1;
        group.places.jobs += 1;
        group.places.threads += threads;
        let client = group.client;
        self.client_mut(client).threads += threads;
    }

    pub fn vacate(&mut self, key: InputKey, threads: u32) {
        let group = self.group_of_mut(key);
        group.places.active -= 1;
        group.places.jobs -= 1;
        group.places.threads -= threads;
        let client = group.client;
        self.client_mut(client).threads -= threads;
    }

    /// Moves an announced input, in no queue, to the request that claims it. `running` is the
    /// number of threads of its running T_pre, if any.
    pub fn move_to(&mut self, key: InputKey, request: Owner, index: u32, running: Option<u32>) {
        if let Some(threads) = running {
            self.vacate(key, threads);
        }
        self.group_of_mut(key).live.remove(&key);
        let group = self.group_mut(request);
        group.live.insert(key);
        let client = group.client;
        self.recent.add_input(client);
        self.edit(key, |input| {
            input.group = request;
            input.index = index;
        });
        if let Some(threads) = running {
            self.occupy(key, threads);
        }
    }

    /// Checks the counters against the inputs. `threads` returns the threads of an input's running
    /// job.
    pub fn audit(&self, threads: impl Fn(InputKey, &Input) -> Result<Option<u32>, String>) -> Result<(), String> {
        let mut counts = Counts::default();
        self.inputs.values().for_each(|input| *counts.counter_for(input) += 1);
        check_equal("queue lengths", counts, self.counts)?;
        let (mut unfinished, mut requested, mut threads_of) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (id, group) in &self.groups {
            let (mut jobs, mut queued, mut used) = (0, 0, 0);
            for key in &group.live {
                let input = self.inputs.get(key).ok_or("a group lists an input that is gone")?;
                check_equal("group of an input", input.group, *id)?;
                let parked = group.parked.iter().any(|&(_, k)| k == *key);
                check_equal("parked or queued", parked, input.waits() && input.slot.is_none())?;
                if matches!(input.stage, Stage::Held(_)) {
                    check_equal("held by a notice", matches!(id, Owner::Notice(_)), true)?;
                }
                let running = threads(*key, input)?;
                used += running.unwrap_or(0);
                jobs += u32::from(running.is_some());
                queued += u32::from(input.slot.is_some());
            }
            check_equal("active inputs", jobs + queued, group.places.active)?;
            check_equal("jobs of a group", jobs, group.places.jobs)?;
            check_equal("queued inputs without a lane", group.beyond_lanes(), 0)?;
            check_equal("threads of a group", used, group.places.threads)?;
            check_equal("a live group has inputs", group.live.is_empty(), false)?;
            let inputs = group.live.len() as u32;
            *unfinished.entry(group.client).or_insert(0) += inputs;
            *threads_of.entry(group.client).or_insert(0) += used;
            if matches!(id, Owner::Request(_)) {
                *requested.entry(group.client).or_insert(0) += inputs;
            }
        }
        let listed: BTreeSet<InputKey> = self.groups.values().flat_map(|g| g.live.iter().copied()).collect();
        check_equal("inputs in groups", listed.len(), self.inputs.len())?;
        check_equal("clients", unfinished, self.clients.iter().map(|(id, c)| (*id, c.unfinished)).collect())?;
        check_equal("threads of clients", threads_of, self.clients.iter().map(|(id, c)| (*id, c.threads)).collect())?;
        self.recent.audit(requested)
    }
}
