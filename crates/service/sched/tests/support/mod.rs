//! A driver that plays a random script, and a monitor that checks events and actions alone.

pub mod driver;
pub mod monitor;
mod queries;
pub mod script;

use tacit_sched::policy::PolicySpec;
use tacit_sched::profile::{Sample, Speedup};
use tacit_sched::replay::{Header, VERSION};
use tacit_sched::{
    AdvanceNotice, BoundTo, ClientId, Config, Event, ModelId, ModelSpec, NoticeId, PhaseSpec, PoolConfig, Request,
    RequestId, Resources, Span,
};

/// A request for one input, without a notice or a limit.
pub fn request(id: u64, client: u64, model: ModelId) -> Event {
    Event::Request(Request::plain(RequestId(id), ClientId::numbered(client), model, 1))
}

pub fn phase(secs: f64, memory: u64) -> PhaseSpec {
    PhaseSpec { first: Sample { time: Span::from_secs(secs), memory }, speedup: Speedup::Amdahl(0.9) }
}

pub fn model(name: &str, binding: BoundTo, pre: PhaseSpec, on: PhaseSpec) -> ModelSpec {
    ModelSpec {
        name: name.into(),
        backend: "test".into(),
        link: "loopback".into(),
        binding,
        material_bytes: 10,
        dealt: false,
        pre: Some(pre),
        on,
    }
}

/// Three models of very different length and memory, one bound to its client; one without T_pre; and two
/// whose material a dealer makes.
pub fn models() -> Vec<ModelSpec> {
    vec![
        model("small", BoundTo::Unbound, phase(1.0, 5), phase(0.5, 8)),
        model("bound", BoundTo::Client, phase(3.0, 20), phase(2.0, 30)),
        model("large", BoundTo::Unbound, phase(20.0, 40), phase(10.0, 70)),
        ModelSpec { pre: None, ..model("clear", BoundTo::Client, phase(0.0, 0), phase(1.5, 6)) },
        ModelSpec { dealt: true, ..model("dealt", BoundTo::Unbound, phase(4.0, 5), phase(1.0, 8)) },
        ModelSpec { dealt: true, ..model("dealt-bound", BoundTo::Client, phase(2.0, 30), phase(1.0, 8)) },
    ]
}

pub fn announce(id: NoticeId, client: ClientId, model: ModelId, inputs: u32) -> AdvanceNotice {
    AdvanceNotice { id, client, model, inputs, input_bytes: 0, expected: None, ttl: None, lanes: None, keep: false }
}

/// Features of a test's scheduler.
#[derive(Clone, Debug)]
pub struct Setup {
    pub policy: PolicySpec,
    pub pool: bool,
    pub moldable: bool,
    pub batch_share: f64,
}

impl Setup {
    /// One thread a job, and no limit on a batch's share.
    pub fn new(policy: &str, pool: bool) -> Self {
        Self { policy: policy.parse().expect("a policy's name"), pool, moldable: false, batch_share: 1.0 }
    }
}

/// A machine without dealings.
pub fn machine(cores: u32, memory: u64, disk: u64) -> Resources {
    Resources { cores, memory, disk, dealings: 0 }
}

pub fn header(setup: &Setup) -> Header {
    let mut config = Config::new(machine(4, 100, 200));
    config.max_inputs = 8;
    config.max_queued = 24;
    config.notice_ttl = Span::from_secs(30.0);
    config.batch_share = setup.batch_share;
    if setup.moldable {
        config.on_threads = vec![1, 2, 4];
        config.pre_threads = vec![1, 2];
    }
    if setup.pool {
        config.pool =
            Some(PoolConfig { per_client: true, rate_window: Span::from_secs(60.0), ..PoolConfig::default() });
    }
    Header { tacit_replay: VERSION, config, models: models(), policy: setup.policy.clone() }
}
