//! A full check of the scheduler's own bookkeeping, for tests and for a server's debug command.

use super::Scheduler;
use super::state::{Counts, GroupId, Stage};
use crate::policy::Policy;
use crate::resources::Resources;
use std::collections::{BTreeMap, BTreeSet};

impl<P: Policy> Scheduler<P> {
    /// Recomputes every counter from the records and compares. Cost grows with everything that is live.
    ///
    /// # Errors
    /// A sentence that names the counter that is wrong; there is no state in which that is right.
    pub fn audit(&self) -> Result<(), String> {
        self.audit_resources()?;
        self.audit_groups()?;
        self.audit_materials()?;
        let mut counts = Counts::default();
        let mut queued = 0;
        for input in self.inputs.values() {
            *counts.of(input) += 1;
            queued += usize::from(input.slot.is_some());
        }
        same("queue lengths", counts, self.counts)?;
        same("queued jobs", queued, self.queues.len())?;
        let in_classes: usize = self.queues.all_classes().map(|c| self.queues.class_len(c)).sum();
        same("jobs in classes", in_classes, queued)?;
        for class in self.queues.all_classes() {
            for key in self.queues.jobs(class) {
                let slot = self.inputs.get(&key).and_then(|i| i.slot);
                same("class of a queued job", slot.map(|s| s.class), Some(class))?;
            }
        }
        let timers = self.groups.iter().filter_map(|(id, g)| Some((g.ends?, *id)));
        same("timers", timers.collect::<BTreeSet<_>>(), self.timers.clone())
    }

    fn audit_resources(&self) -> Result<(), String> {
        let mut used = Resources::default();
        let mut overtakers = Resources::default();
        for job in self.jobs.values() {
            used.add(&job.holds);
            if job.overtook {
                overtakers.add(&job.holds);
            }
        }
        used.disk = self.materials.values().map(|&m| self.disk(m)).sum();
        same("used resources", used, self.used)?;
        if let Some(reservation) = &self.reservation {
            same("overtakers", overtakers, reservation.overtakers)?;
            same("reservation holder waits", self.waits(reservation.input), true)?;
        }
        if let Some(pools) = &self.pools {
            let refills = self.jobs.values().filter(|j| j.refill.is_some());
            same("refill cores", refills.map(|j| j.holds.cores).sum::<u32>(), pools.refill_cores)?;
        }
        Ok(())
    }

    fn audit_groups(&self) -> Result<(), String> {
        let mut unfinished = BTreeMap::new();
        for (id, group) in &self.groups {
            let (mut active, mut threads) = (0, 0);
            for key in &group.live {
                let input = self.inputs.get(key).ok_or("a group lists an input that is gone")?;
                same("group of an input", input.group, *id)?;
                let parked = group.parked.iter().any(|&(_, k)| k == *key);
                match input.stage {
                    Stage::WaitPre | Stage::WaitOn(_) => same("parked or queued", parked, input.slot.is_none())?,
                    Stage::Held(_) => same("held by a notice", matches!(id, GroupId::Notice(_)), true)?,
                    Stage::RunPre(job) | Stage::RunOn(job) => {
                        let job = self.jobs.get(&job).ok_or("an input runs a job that is gone")?;
                        same("owner of a job", job.owner, Some(*key))?;
                        threads += job.holds.cores;
                        active += 1;
                    }
                }
                active += u32::from(input.slot.is_some());
            }
            same("active inputs", active, group.active)?;
            same("threads of a group", threads, group.threads)?;
            same("a live group has inputs", group.live.is_empty(), false)?;
            *unfinished.entry(group.client).or_insert(0) += group.live.len() as u32;
        }
        same("clients", unfinished, self.clients.iter().map(|(id, c)| (*id, c.unfinished)).collect())
    }

    /// Every material is exactly one of: being made, held by one input, in use, in stock.
    fn audit_materials(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        let mut note = |material| {
            if seen.insert(material) { Ok(()) } else { Err("a material is in two places") }
        };
        for job in self.jobs.values() {
            note(job.material)?;
        }
        for input in self.inputs.values() {
            if let Stage::Held(material) | Stage::WaitOn(material) = input.stage {
                note(material)?;
            }
        }
        for key in self.pools.as_ref().map_or_else(Vec::new, |p| p.keys()) {
            let pool = self.pools.as_ref().and_then(|p| p.get(&key));
            for &material in pool.iter().flat_map(|p| &p.stock) {
                note(material)?;
            }
        }
        same("live material", seen, self.materials.keys().copied().collect())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, recomputed: T, kept: T) -> Result<(), String> {
    if recomputed == kept {
        return Ok(());
    }
    Err(format!("{what}: recomputed {recomputed:?}, kept {kept:?}"))
}
