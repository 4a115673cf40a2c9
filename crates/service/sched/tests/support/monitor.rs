//! Checks every constraint from outside, from events and actions alone.

use std::collections::{BTreeMap, BTreeSet};
use tacit_sched::replay::Header;
use tacit_sched::{
    Action, AdvanceNotice, ClientId, Event, InputId, InputReport, JobId, JobPhase, MaterialId, ModelId, ModelSpec,
    NoticeId, Outcome, Owner, Request, RequestId, Resources, Source, Start, Time, Work,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Material {
    Ready,
    Claimed,
    Gone,
}

#[derive(Clone, Debug)]
struct Open {
    request: Request,
    ended: BTreeSet<u32>,
    deadline: Option<Time>,
}

#[derive(Clone, Debug, Default)]
pub struct Monitor {
    pub capacity: Resources,
    pub running: BTreeMap<JobId, (Start, Time)>,
    /// Jobs that were asked to stop and have not ended.
    pub stopping: BTreeMap<JobId, Start>,
    materials: BTreeMap<MaterialId, (Material, ModelId, Option<ClientId>)>,
    requests: BTreeMap<RequestId, Open>,
    /// Clients for whom the material of a notice is kept.
    keeping: BTreeMap<NoticeId, ClientId>,
    /// Clients of the notices that were announced and have not ended.
    announced: BTreeMap<NoticeId, ClientId>,
    kept: BTreeSet<MaterialId>,
    lanes: BTreeMap<Owner, u32>,
    /// Running jobs of a notice that is claimed or has ended. They count against no lanes.
    claimed: BTreeSet<JobId>,
    /// Disconnected clients without a request since.
    away: BTreeSet<ClientId>,
    models: Vec<ModelSpec>,
    removed: BTreeSet<ModelId>,
    /// Whether clients have pools of their own.
    per_client: bool,
    /// Inputs whose T_on has started, and inputs whose T_on has finished.
    on_started: BTreeSet<InputId>,
    on_finished: BTreeSet<InputId>,
    jobs_seen: BTreeSet<JobId>,
    pub outcomes: BTreeMap<InputId, Outcome>,
    stopped: bool,
    pub reports: Vec<InputReport>,
}

impl Monitor {
    pub fn new(header: &Header) -> Self {
        Self {
            capacity: header.config.capacity,
            models: header.models.clone(),
            per_client: header.config.pool.as_ref().is_some_and(|pool| pool.per_client),
            ..Self::default()
        }
    }

    /// Records an event that the scheduler accepted.
    pub fn record_event(&mut self, now: Time, event: &Event) {
        match event {
            Event::Request(request) => self.record_request(now, request),
            Event::Notice(AdvanceNotice { id, client, lanes, keep, .. }) => {
                self.announced.insert(*id, *client);
                self.lanes.insert(Owner::Notice(*id), lanes.unwrap_or(u32::MAX));
                if *keep {
                    self.keeping.insert(*id, *client);
                }
            }
            Event::Lanes { of: owner, lanes } => {
                self.lanes.insert(*owner, *lanes);
            }
            Event::ClientGone { client } => {
                self.away.insert(*client);
                let notices = self.announced.iter().filter(|(_, owner)| **owner == *client);
                self.lanes.extend(notices.map(|(id, _)| (Owner::Notice(*id), 0)));
            }
            Event::ModelAdded(spec) => self.models.push(spec.clone()),
            Event::ModelRemoved { model } => {
                assert!(self.removed.insert(*model), "removed a model twice");
            }
            Event::MaterialGone { material } => {
                self.kept.remove(material);
                let material = self.materials.get_mut(material).expect("accepted the end of unknown material");
                assert_eq!(material.0, Material::Ready, "accepted the end of material in use");
                material.0 = Material::Gone;
            }
            Event::JobStopped { job } => {
                self.stopping.remove(job).expect("accepted the stop of a job that was not told to");
            }
            Event::JobFinished { job, .. } | Event::JobFailed { job } | Event::JobNotStarted { job }
                if self.stopping.contains_key(job) =>
            {
                self.stopping.remove(job);
            }
            Event::JobFinished { job, material, .. } => self.record_finish(*job, *material),
            Event::JobNotStarted { job } => {
                let (start, _) = self.running.remove(job).expect("accepted that a job did not start that does not run");
                if start.phase == JobPhase::On {
                    assert!(self.on_started.remove(&on_input(&start)));
                }
                if let Some(material) = start.material {
                    self.materials.get_mut(&material).expect("it started with it").0 = Material::Ready;
                }
            }
            Event::JobFailed { job } => {
                self.running.remove(job).expect("accepted the end of a job that does not run");
            }
            Event::Capacity(capacity) => self.capacity = *capacity,
            Event::MaterialFound { material, model, client } => {
                let previous = self.materials.insert(*material, (Material::Ready, *model, *client));
                assert!(previous.is_none(), "accepted found material twice");
                if client.is_some() && !self.per_client {
                    self.kept.insert(*material);
                }
            }
            _ => {}
        }
    }

    fn record_request(&mut self, now: Time, request: &Request) {
        let Request { id, client, timeout, materials, lanes, notice, .. } = request;
        self.away.remove(client);
        if let Some(notice) = notice.filter(|notice| self.announced.get(notice) == Some(client)) {
            self.release_lanes(notice);
        }
        for material in materials {
            assert!(self.kept.remove(material), "accepted material that was not kept");
            assert_eq!(self.materials[material].2, Some(*client), "accepted another client's material");
        }
        self.lanes.insert(Owner::Request(*id), lanes.unwrap_or(u32::MAX));
        let open =
            Open { request: request.clone(), ended: BTreeSet::new(), deadline: timeout.map(|timeout| now + timeout) };
        assert!(self.requests.insert(*id, open).is_none(), "driver reused a request id");
    }

    fn record_finish(&mut self, job: JobId, material: Option<MaterialId>) {
        let (start, _) = self.running.remove(&job).expect("accepted the end of a job that does not run");
        match start.phase {
            JobPhase::Pre => {
                let keeper = match start.work {
                    Work::Notice(notice) => self.keeping.get(&notice).copied(),
                    Work::Request(_) | Work::Pool => None,
                };
                let fresh = (Material::Ready, start.model, start.client.or(keeper));
                let new_material = material.expect("accepted a T_pre that made nothing");
                assert!(self.materials.insert(new_material, fresh).is_none(), "material name used twice");
                self.kept.extend(keeper.map(|_| new_material));
            }
            JobPhase::On => {
                assert_eq!(material, None, "accepted material from a T_on");
                if let Some(used) = start.material {
                    self.materials.get_mut(&used).unwrap().0 = Material::Gone;
                }
                self.on_finished.insert(on_input(&start));
            }
        }
    }

    pub fn record_action(&mut self, now: Time, action: &Action) {
        assert!(!self.stopped, "action after Stopped: {action:?}");
        match action {
            Action::Start(start) => self.record_start(now, start),
            Action::Stop { job } => {
                let (start, _) = self.running.remove(job).expect("stopped a job that does not run");
                self.stopping.insert(*job, start);
            }
            Action::Burn { material } => {
                assert!(self.running.values().all(|(s, _)| s.material != Some(*material)), "burnt material in use");
                let state = &mut self.materials.get_mut(material).expect("burnt unknown material").0;
                assert_ne!(*state, Material::Gone, "burnt twice, or after use");
                *state = Material::Gone;
                self.kept.remove(material);
            }
            Action::NoticeEnded { notice, .. } => {
                self.keeping.remove(notice);
                self.announced.remove(notice);
                self.release_lanes(*notice);
            }
            Action::Report(report) => self.record_report(now, report),
            Action::Stopped => {
                assert!(self.running.is_empty(), "stopped with jobs running");
                assert!(self.stopping.is_empty(), "stopped with jobs running");
                assert!(self.open().is_empty(), "stopped with requests open");
                self.stopped = true;
            }
            Action::Reject { .. } | Action::NoticeIgnored { .. } => {}
        }
    }

    fn record_start(&mut self, now: Time, start: &Start) {
        self.check_start(start);
        self.running.insert(start.job, (start.clone(), now));
        let used_disk = self.disk(10);
        assert!(used_disk <= self.capacity.disk || self.capacity.disk < 200, "too much disk: {used_disk}");
    }

    fn release_lanes(&mut self, notice: NoticeId) {
        let notice_jobs = self.running.iter().filter(|(_, (start, _))| start.work == Work::Notice(notice));
        self.claimed.extend(notice_jobs.map(|(job, _)| *job));
    }

    /// Asserts that the model, the lanes and the connection of the job's owner allow the start.
    fn check_owner_allows(&self, start: &Start) {
        assert!(!self.removed.contains(&start.model), "a job of a model that is gone");
        let owner = |work: Work| match work {
            Work::Request(input) => Some(Owner::Request(input.request)),
            Work::Notice(notice) => Some(Owner::Notice(notice)),
            Work::Pool => None,
        };
        match owner(start.work) {
            Some(owner_of_start) => {
                let is_counted =
                    |job: &JobId, s: &Start| owner(s.work) == Some(owner_of_start) && !self.claimed.contains(job);
                let running = self.running.iter().filter(|(job, (s, _))| is_counted(job, s)).count();
                let lanes = self.lanes[&owner_of_start];
                assert!(running < lanes as usize, "{running} jobs of {owner_of_start:?} run on {lanes} lanes");
            }
            None => {
                let away = start.client.is_some_and(|client| self.away.contains(&client));
                assert!(!away, "a refill with a client that is away");
            }
        }
    }

    fn check_start(&mut self, start: &Start) {
        assert!(self.jobs_seen.insert(start.job), "job id used twice");
        assert!(start.threads >= 1);
        let used = self.used();
        let Resources { cores, dealings, .. } = self.takes(start);
        // Jobs that run when the machine shrinks continue.
        assert!(cores == 0 || used.cores + cores <= self.capacity.cores, "too many threads");
        assert!(dealings == 0 || used.dealings + dealings <= self.capacity.dealings, "too many dealings");
        assert!(used.memory + start.memory <= self.capacity.memory, "too much memory");
        self.check_owner_allows(start);
        match start.phase {
            JobPhase::Pre => assert_eq!(start.material, None, "material before it is made"),
            JobPhase::On => {
                let input = on_input(start);
                assert!(self.on_started.insert(input), "a second T_on of one input");
                let Open { request, ended, .. } = &self.requests[&input.request];
                assert!(input.index < request.inputs, "T_on of an ended input");
                assert!(!ended.contains(&input.index), "T_on of an ended input");
                assert_eq!(start.model, request.model);
                let named = request.materials.get(input.index as usize);
                assert!(named.is_none() || named == start.material.as_ref(), "not the material that was named");
                let has_no_pre = self.models[start.model.0 as usize].pre.is_none();
                assert_eq!(start.material.is_none(), has_no_pre, "material where the model has a T_pre");
                if has_no_pre {
                    return;
                }
                let material =
                    start.material.and_then(|m| self.materials.get_mut(&m)).expect("T_on with unknown material");
                assert_eq!(material.0, Material::Ready, "T_on before its T_pre, or material used twice");
                assert_eq!(material.1, start.model, "material of another model");
                assert!(material.2.is_none_or(|client| client == request.client), "another client's material");
                material.0 = Material::Claimed;
            }
        }
    }

    fn record_report(&mut self, now: Time, report: &InputReport) {
        let open = self.requests.get_mut(&report.input.request).expect("report for an unknown request");
        assert!(report.input.index < open.request.inputs, "report for an input that does not exist");
        assert!(open.ended.insert(report.input.index), "a second final state");
        assert_eq!(report.last, open.ended.len() == open.request.inputs as usize, "`last` is wrong");
        assert_eq!(report.client, open.request.client);
        let was_named = (report.input.index as usize) < open.request.materials.len();
        assert_eq!(report.source == Source::Kept, was_named, "source of kept material");
        match report.outcome {
            Outcome::Done => {
                assert!(self.on_finished.contains(&report.input), "done without a finished T_on");
                assert!(open.deadline.is_none_or(|d| now <= d), "done after its timeout");
                let (pre, on) = (report.pre, report.on);
                assert!(on.started.unwrap() <= on.finished.unwrap());
                assert!(on.started.unwrap() >= report.arrived);
                if let Some(finished) = pre.finished {
                    assert!(pre.started.unwrap() <= finished);
                    assert!(finished <= on.started.unwrap());
                }
            }
            Outcome::TimedOut => assert!(open.deadline.is_some_and(|d| now >= d), "timed out too early"),
            Outcome::Failed | Outcome::Cancelled(_) => {}
        }
        self.outcomes.insert(report.input, report.outcome);
        self.reports.push(report.clone());
    }

    /// Checks the state after the scheduler has no more action at this time.
    pub fn check_settled(&self) {
        for (start, _) in self.running.values() {
            if start.phase == JobPhase::On {
                assert!(!self.outcomes.contains_key(&on_input(start)), "an ended input still runs");
            }
        }
    }

    /// Resources that a job takes, without disk.
    pub fn takes(&self, start: &Start) -> Resources {
        let is_dealing = start.phase == JobPhase::Pre && self.models[start.model.0 as usize].dealt;
        let (cores, dealings) = if is_dealing { (0, 1) } else { (start.threads, 0) };
        Resources { cores, dealings, memory: start.memory, disk: 0 }
    }

    /// Resources that jobs hold, without disk.
    pub fn used(&self) -> Resources {
        self.busy().fold(Resources::default(), |used, start| {
            let taken = self.takes(start);
            Resources {
                cores: used.cores + taken.cores,
                dealings: used.dealings + taken.dealings,
                memory: used.memory + taken.memory,
                disk: 0,
            }
        })
    }

    /// Jobs that hold resources: running and stopping ones.
    fn busy(&self) -> impl Iterator<Item = &Start> {
        self.running.values().map(|(start, _)| start).chain(self.stopping.values())
    }

    /// Disk of live material, `bytes` each, and of material that running T_pre make.
    pub fn disk(&self, bytes: u64) -> u64 {
        let live = self.materials.values().filter(|m| m.0 != Material::Gone).count();
        let making = self.busy().filter(|s| s.phase == JobPhase::Pre).count();
        (live + making) as u64 * bytes
    }

    /// Whether this name was ever used.
    pub fn knows(&self, material: MaterialId) -> bool {
        self.materials.contains_key(&material)
    }

    /// All material that is kept for clients.
    pub fn kept(&self) -> &BTreeSet<MaterialId> {
        &self.kept
    }

    /// All material that is neither consumed nor burnt.
    pub fn live(&self) -> Vec<MaterialId> {
        self.materials.iter().filter(|(_, m)| m.0 != Material::Gone).map(|(name, _)| *name).collect()
    }

    /// Whether this material was used up or burnt.
    pub fn is_gone(&self, material: MaterialId) -> bool {
        self.materials.get(&material).is_some_and(|m| m.0 == Material::Gone)
    }

    pub fn open(&self) -> Vec<RequestId> {
        let open = self.requests.iter().filter(|(_, r)| r.ended.len() < r.request.inputs as usize);
        open.map(|(id, _)| *id).collect()
    }

    pub fn unfinished_of(&self, client: ClientId) -> usize {
        let requests = self.requests.values().filter(|r| r.request.client == client);
        requests.map(|r| r.request.inputs as usize - r.ended.len()).sum()
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped
    }
}

/// The input of a T_on, which always belongs to a request.
fn on_input(start: &Start) -> InputId {
    match start.work {
        Work::Request(input) => input,
        work => panic!("a T_on for {work:?}"),
    }
}
