//! `tacit plan`: ranks back ends for a device, a server and a link.
mod apply;
pub mod given;
mod offers;
mod page;
mod text;

use crate::client_work::WorkArgs;
use crate::output::{self, Alike};
use crate::owner::SealArgs;
use crate::print;
use crate::report;
use anyhow::Context;
use given::{IdleHours, Limit, Link, Price, Requests, Tunnel};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tacit_net::{Phase, Rate};
use tacit_plan::change::{self, Varied};
use tacit_plan::{Calibration, Checked, Choice, Device, Goal, Limits, Offer, Prediction, Question, Setting, Usage};

/// Which back end, how many threads and how much stock suit a device, a server and a link
///
/// Lowers the model for every back end, and predicts from what each one declares (bytes, exchanges, counts of
/// primitives, memory) and from a calibration what every phase takes: latency, bytes, processor time, joules
/// above idle. Beside them are two that are not private: `clear` (the server computes on the plain input) and
/// `local` (the client has the model). It says where the time goes and what would change the ranking. How
/// good the predictions are is in docs/planning.md.
///
/// Examples: tacit plan net.tacit --device pi4b --server 16core --link 20mbit/40ms --goal client-energy
///           tacit plan net.tacit --serve
///           tacit plan net.tacit --link lte --limit online=1s,memory=400MB,trust=dealer --apply deployment
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Model: a .tacit file, or an ONNX file that is imported with defaults
    model: PathBuf,
    #[arg(long, value_name = "NAME", default_value = "pi4b", help = devices("The client's device"))]
    device: String,
    #[arg(long, value_name = "NAME", default_value = "16core", help = devices("The server's"))]
    server: String,
    /// What `tacit calibrate` wrote on the client's device, in place of the estimate for it
    #[arg(long, value_name = "FILE")]
    device_calibration: Option<PathBuf>,
    /// What it wrote on the server
    #[arg(long, value_name = "FILE")]
    server_calibration: Option<PathBuf>,
    /// Rate and round trip, or a preset of `tacit lab link`: 20mbit/40ms, 15mbit:30mbit/2ms (up:down), lte
    #[arg(long, default_value = "20mbit/40ms")]
    link: Link,
    /// What is to be small: latency, total, energy, client-energy, bytes, money
    #[arg(long, default_value = "latency")]
    goal: Goal,
    /// What must hold: memory=400MB (of the client), online=1s, upload=50MB, bytes=20MB, agreement=0.99,
    /// rate=10mbit (what may be used of the link each way: --pace of `tacit infer`), trust=two-party|dealer
    #[arg(long = "limit", value_name = "KEY=VALUE", value_delimiter = ',')]
    limits: Vec<Limit>,
    #[command(flatten)]
    work: WorkArgs,
    /// Inputs of a client: 200/day, 10/hour
    #[arg(long, default_value = "100/day")]
    requests: Requests,
    /// Inputs of a client that come at once, at most: what is kept in stock
    #[arg(long, default_value_t = 1, value_parser = tacit_args::count(100_000))]
    burst: usize,
    /// Clients of the server
    #[arg(long, default_value_t = 1, value_parser = tacit_args::count(1_000_000))]
    clients: usize,
    /// Seconds of waiting that a joule of the client counts for, with --goal latency and total
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = given::weight)]
    energy_weight: f64,
    /// Hours of the day in which link and device have nothing else to do, for example 22-6: the material of a
    /// day is made then
    #[arg(long, value_name = "HOUR-HOUR")]
    idle: Option<IdleHours>,
    /// What carries the connection below TLS
    #[arg(long, value_enum, default_value_t = Tunnel::None)]
    tunnel: Tunnel,
    /// For --goal money, in one currency: core-hour=0.04,gb=0.05, and idle-gb=0.01 for what is sent in idle
    /// hours
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    prices: Vec<Price>,
    /// Options to try beside each back end's own, where it knows them: frac_bits=12; may be repeated
    #[arg(long = "try", value_name = "KEY=VALUE,...")]
    tries: Vec<String>,
    /// Write the plan to this file, as JSON
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Predict every back end with one and with two threads over each of these links, too (as JSON, with
    /// --json and -o): for docs/scripts/plan_check.py
    #[arg(long, value_name = "LINK,...", value_delimiter = ',')]
    cells: Vec<Link>,
    /// Write a page with plots (needs the Python package and matplotlib)
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
    /// Answer a browser on this machine: a page with sliders for the link, the weight of energy and memory
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:7890")]
    #[arg(conflicts_with_all = ["output", "page", "apply"])]
    serve: Option<SocketAddr>,
    /// Write what does the best choice to this folder: server.sh, client.sh
    #[arg(long, value_name = "DIR")]
    apply: Option<PathBuf>,
    #[command(flatten)]
    seal: SealArgs,
}

/// Help text of an option that takes a device.
fn devices(whose: &str) -> String {
    format!("{whose}: {}", Device::listed())
}

/// Options that move work between the parties, tried in addition to the defaults if the client's
/// work counts.
const SHIFTING: [&str; 3] = ["leaves=weighed2", "leaves=weighed16", "leaves=direct4"];

/// Share of the score that counts as little.
const LITTLE: f64 = 0.05;

/// Key sets of `ckks`: fewer keys for more key switches.
const KEY_SETS: [&str; 1] = ["rotations=chained"];

/// The question, and the offers to choose from.
#[derive(Clone)]
struct Asked {
    model: String,
    setting: Setting,
    offers: Vec<Offer>,
    /// Back ends that cannot lower the model, with reasons.
    refused: Vec<String>,
    goal: Goal,
    limits: Limits,
    usage: Usage,
    ways: Ways,
}

/// How the link is used.
#[derive(Clone, Copy, serde::Serialize)]
struct Ways {
    /// Cap on the rate, each way.
    #[serde(serialize_with = "as_text")]
    pace: Option<Rate>,
    idle: Option<IdleHours>,
}

fn as_text<S: serde::Serializer>(rate: &Option<Rate>, to: S) -> Result<S::Ok, S::Error> {
    rate.map(|rate| rate.to_string()).serialize(to)
}

/// The question and its answer.
struct Plan {
    model: String,
    setting: Setting,
    offers: Vec<Offer>,
    /// Offers that cannot be planned, with reasons.
    refused: Vec<String>,
    goal: Goal,
    limits: Limits,
    usage: Usage,
    ways: Ways,
    ranked: Vec<Choice>,
    varied: Vec<Varied>,
    /// The rate beyond which the best choice gains little, bit/s.
    enough_rate: Option<f64>,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    let asked = args.asked()?;
    if let Some(address) = args.serve {
        return page::serve(&asked, address, as_json);
    }
    let plan = asked.plan()?;
    let mut value = plan.json();
    if !args.cells.is_empty() {
        value["cells"] = plan.cells(&args.cells);
    }
    if let Some(path) = &args.output {
        output::write(path, &serde_json::to_vec_pretty(&value)?, Alike::Json(&value))?;
    }
    if let Some(page) = &args.page {
        let folder = tempfile::tempdir().context("making a scratch folder")?;
        let file = folder.path().join("plan.json");
        fs::write(&file, serde_json::to_vec(&value)?).with_context(|| format!("writing {}", file.display()))?;
        report::page(&file, Some(page))?;
    }
    if let Some(folder) = &args.apply {
        apply::write(folder, &args.model, &args.seal, &plan)?;
    }
    match as_json {
        true => print::json(&value),
        false => print::text(&text::of(&plan, &args.model, &args.seal)),
    }
}

fn device(name: &str, calibration: Option<&Path>) -> anyhow::Result<Device> {
    let device = Device::named(name)?;
    Ok(match calibration {
        Some(path) => device.calibrated(Arc::new(Calibration::read(path)?)),
        None => device,
    })
}

impl Args {
    fn asked(&self) -> anyhow::Result<Asked> {
        let setting = Setting {
            client: device(&self.device, self.device_calibration.as_deref())?,
            server: device(&self.server, self.server_calibration.as_deref())?,
            client_threads: 1,
            server_threads: 1,
            link: self.link(),
        };
        let (limits, usage) = (self.work.within(Limit::all(&self.limits)), self.usage()?);
        let model = crate::bench::load(&self.model, &self.seal)?;
        let shifting: &[&str] = if self.work.is_asked() { &SHIFTING } else { &[] };
        let more = shifting.iter().chain(&KEY_SETS).map(|text| (*text).to_owned());
        let tries: Vec<String> = self.tries.iter().cloned().chain(more).collect();
        let (offers, refused) = offers::of(&model, &tries)?;
        let model = model.interface.name.clone();
        let question = Question { offers: &offers, goal: self.goal, limits, usage };
        let (goal, limits) = self.work.wish().asks(&question, &setting)?;
        let ways = Ways { pace: self.pace(), idle: self.idle };
        Ok(Asked { model, setting, offers, refused, goal, limits, usage, ways })
    }

    /// Returns the cap on the link: the last one given.
    fn pace(&self) -> Option<Rate> {
        self.limits.iter().rev().find_map(|limit| if let Limit::Rate(rate) = limit { Some(*rate) } else { None })
    }

    /// Returns the link within its cap.
    fn link(&self) -> tacit_plan::Link {
        let link = match self.tunnel {
            Tunnel::None => self.link.0.clone(),
            Tunnel::Wireguard => self.link.0.in_tunnel(),
        };
        self.pace().map_or(link.clone(), |rate| link.capped(rate.bits_per_second() as f64))
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        let (prices, idle_s) = (Price::all(&self.prices)?, self.idle.map(IdleHours::seconds));
        let (per_day, joule_s) = (self.requests.per_day, self.energy_weight);
        Ok(Usage { per_day, burst: self.burst as u32, clients: self.clients as u32, prices, idle_s, joule_s })
    }
}

impl Asked {
    fn plan(self) -> anyhow::Result<Plan> {
        let Self { model, setting, offers, mut refused, goal, limits, usage, ways } = self;
        let question = Question { offers: &offers, goal, limits, usage };
        let ranked = question.ranked(&setting)?;
        let varied = change::vary(&question, &setting)?;
        refused.extend(offers::without_calibration(&offers, &ranked));
        let mut plan =
            Plan { model, setting, refused, goal, limits, usage, ways, ranked, varied, enough_rate: None, offers };
        plan.enough_rate = plan.enough();
        Ok(plan)
    }
}

impl Plan {
    /// Returns the best private choice within the limits.
    fn best(&self) -> Option<&Choice> {
        self.ranked.iter().find(|choice| self.offers[choice.offer].is_private() && choice.objections.is_empty())
    }

    fn enough(&self) -> Option<f64> {
        let Self { offers, goal, limits, usage, .. } = self;
        let question = Question { offers, goal: *goal, limits: *limits, usage: *usage };
        question.enough_rate(self.best()?.offer, &self.setting, LITTLE)
    }

    /// Predicts all offers over other links with fixed numbers of threads; `bytes` counts those
    /// between client and server alone.
    fn cells(&self, links: &[Link]) -> serde_json::Value {
        let one = |offer: &Offer, at: usize, threads: u32| {
            let link = links[at].0.clone();
            let setting = Setting { client_threads: threads, server_threads: threads, link, ..self.setting.clone() };
            let predicted = Prediction::of(&offer.backend, &offer.costs, &setting);
            let bytes: BTreeMap<Phase, u64> = Phase::ALL.map(|phase| (phase, offer.costs.of(phase).bytes())).into();
            json!({"backend": offer.backend, "options": offer.options, "threads": threads, "link": at, "predicted": predicted,
                "bytes": bytes, "costs": offer.costs})
        };
        let over = |offer| (0..links.len()).flat_map(move |at| [1, 2].map(|threads| one(offer, at, threads)));
        self.offers.iter().flat_map(over).collect()
    }

    fn json(&self) -> serde_json::Value {
        let shown = |choice: &Choice| {
            let offer = &self.offers[choice.offer];
            json!({"backend": offer.backend, "options": offer.options, "private": offer.is_private(), "trust": offer.trust,
                "agreement": offer.agreement, "choice": choice})
        };
        json!({
            "format": "tacit-plan",
            "version": 1,
            "model": self.model,
            "goal": self.goal,
            "unit": self.goal.unit(),
            "limits": self.limits,
            "usage": self.usage,
            "ways": self.ways,
            "setting": self.setting,
            "ranked": self.ranked.iter().map(shown).collect::<Vec<_>>(),
            "offers": self.offers.iter().map(|o| json!({"backend": o.backend, "options": o.options})).collect::<Vec<_>>(),
            "varied": self.varied,
            "enough_rate": self.enough_rate,
            "checked": Checked::built_in(),
            "refused": self.refused,
        })
    }
}

/// Limits that are not given do not apply; only a dealer needs `trust=dealer`.
impl Limit {
    fn all(given: &[Self]) -> Limits {
        let mut limits = Limits::default();
        for limit in given {
            match *limit {
                Self::Memory(bytes) => limits.memory = Some(bytes),
                Self::Online(seconds) => limits.online_s = Some(seconds),
                Self::Upload(bytes) => limits.upload = Some(bytes),
                Self::Bytes(bytes) => limits.bytes = Some(bytes),
                Self::Agreement(share) => limits.agreement = Some(share),
                Self::Dealer(may) => limits.dealer = may,
                // A cap on the link changes the link, see `Args::link`.
                Self::Rate(_) => {}
            }
        }
        limits
    }
}
