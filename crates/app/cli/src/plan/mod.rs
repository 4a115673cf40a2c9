//! `tacit plan`: ranks back ends for a device, a server and a link.
mod apply;
pub mod arguments;
mod offers;
mod page;
mod text;

use crate::client_work::WorkArgs;
use crate::output::{self, Alike};
use crate::owner::SealArgs;
use crate::print;
use crate::report;
use crate::scratch::Scratch;
use anyhow::Context;
use arguments::{IdleHours, Limit, Link, Price, Requests, Tunnel};
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
use tacit_program::args::count;

/// Choose the back end, the threads and the stock that suit a device, a server and a link
///
/// The command lowers the model for every back end, and predicts latency, bytes, processor time and
/// joules above idle of every phase. A prediction comes from a calibration and from the numbers
/// that a back end declares: bytes, exchanges, counts of primitives, memory. Two ways that are not
/// private stand beside the back ends: `clear` (the server computes on the plain input) and `local`
/// (the client has the model). The plan shows the parts of the time and the changes that would
/// alter the ranking. docs/planning.md says how good the predictions are.
///
/// Examples: tacit plan net.tacit --device pi4b --server 16core --link 20mbit/40ms --goal client-energy
///           tacit plan net.tacit --serve
///           tacit plan net.tacit --link lte --limit online=1s,memory=400MB,trust=dealer --apply deployment
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Model: a .tacit file, or an ONNX file that is imported with defaults
    model: PathBuf,
    #[command(flatten)]
    devices: PlannedDevices,
    /// Rate and round-trip time, or a preset of `tacit lab link`: 20mbit/40ms, 15mbit:30mbit/2ms
    /// (up:down), lte
    #[arg(long, default_value = "20mbit/40ms", help_heading = "Link")]
    link: Link,
    /// Quantity to minimise: latency, total, energy, client-energy, bytes, money
    #[arg(long, default_value = "latency", help_heading = "Limits")]
    goal: Goal,
    /// Limits to keep: memory=400MB (of the client), online=1s, upload=50MB, bytes=20MB,
    /// agreement=0.99, rate=10mbit (of the link, each way: --pace of `tacit infer`),
    /// trust=two-party|dealer
    #[arg(long = "limit", value_name = "KEY=VALUE", value_delimiter = ',', help_heading = "Limits")]
    limits: Vec<Limit>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    usage: UsageArgs,
    /// Tunnel that carries the connection below TLS
    #[arg(long, value_enum, default_value_t = Tunnel::None, help_heading = "Link", hide_short_help = true)]
    tunnel: Tunnel,
    /// Prices in one currency, for --goal money: core-hour=0.04,gb=0.05, and idle-gb=0.01 for bytes
    /// of idle hours
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', help_heading = "Limits", hide_short_help = true)]
    prices: Vec<Price>,
    /// Options to try beside each back end's own options, where a back end knows them:
    /// frac_bits=12; may be repeated
    #[arg(long = "try", value_name = "KEY=VALUE,...", help_heading = "Model")]
    tries: Vec<String>,
    #[command(flatten)]
    outputs: PlanOutputs,
    #[command(flatten, next_help_heading = "Model")]
    seal: SealArgs,
}

#[derive(clap::Args)]
struct PlannedDevices {
    #[arg(long, value_name = "NAME", default_value = "pi4b", help = devices("Device of the client"))]
    #[arg(help_heading = "Device")]
    device: String,
    #[arg(long, value_name = "NAME", default_value = "16core", help = devices("Device of the server"))]
    #[arg(help_heading = "Device")]
    server: String,
    /// File that `tacit calibrate` wrote on the client's device, in place of the estimate for the
    /// device
    #[arg(long, value_name = "FILE", help_heading = "Device", hide_short_help = true)]
    device_calibration: Option<PathBuf>,
    /// File that `tacit calibrate` wrote on the server, in place of the estimate for the server
    #[arg(long, value_name = "FILE", help_heading = "Device", hide_short_help = true)]
    server_calibration: Option<PathBuf>,
}

#[derive(clap::Args)]
struct UsageArgs {
    /// Inputs of a client in a time: 200/day, 10/hour
    #[arg(long, default_value = "100/day", help_heading = "Input")]
    requests: Requests,
    /// Most inputs of a client at once, which is the stock to keep
    #[arg(long, default_value_t = 1, value_parser = count(100_000), help_heading = "Input")]
    burst: usize,
    /// Number of clients of the server
    #[arg(long, default_value_t = 1, value_parser = count(1_000_000), help_heading = "Server")]
    clients: usize,
    /// Seconds of waiting that one joule of the client counts as, with --goal latency or total
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = arguments::weight)]
    #[arg(help_heading = "Limits", hide_short_help = true)]
    energy_weight: f64,
    /// Hours of the day in which link and device are idle, to make the material of a day in, for
    /// example 22-6
    #[arg(long, value_name = "HOUR-HOUR", help_heading = "Limits")]
    idle: Option<IdleHours>,
}

#[derive(clap::Args)]
struct PlanOutputs {
    /// Write the plan to this file, as JSON
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Predict every back end with one and with two threads over each of these links, for
    /// docs/scripts/plan_check.py. The predictions are JSON, with --json and -o
    #[arg(long, value_name = "LINK,...", value_delimiter = ',', help_heading = "Output", hide_short_help = true)]
    cells: Vec<Link>,
    /// Write a page with plots (needs the Python package and matplotlib)
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    page: Option<PathBuf>,
    /// Serve a page to a browser on this machine, with sliders for the link, the weight of energy
    /// and memory
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:7890")]
    #[arg(conflicts_with_all = ["output", "page", "apply"])]
    #[arg(help_heading = "Output")]
    serve: Option<SocketAddr>,
    /// Write the scripts for the best choice to this folder: server.sh, client.sh
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    apply: Option<PathBuf>,
}

fn devices(party: &str) -> String {
    format!("{party}: {}", Device::list_names())
}

/// Options that move work between the parties, tried in addition to the defaults if the client's
/// work counts.
const SHIFTING: [&str; 3] = ["leaves=weighed2", "leaves=weighed16", "leaves=direct4"];

const LITTLE_SHARE: f64 = 0.05;

/// Key sets of `ckks`: fewer keys for more key switches.
const KEY_SETS: [&str; 1] = ["rotations=chained"];

/// The question, and the offers to choose from.
#[derive(Clone)]
struct PlanRequest {
    model: String,
    setting: Setting,
    offers: Vec<Offer>,
    /// Back ends that cannot lower the model, with reasons.
    refused: Vec<String>,
    goal: Goal,
    limits: Limits,
    usage: Usage,
    ways: LinkUse,
}

#[derive(Clone, Copy, serde::Serialize)]
struct LinkUse {
    /// Cap on the rate, each way.
    #[serde(serialize_with = "as_text")]
    pace: Option<Rate>,
    idle: Option<IdleHours>,
}

fn as_text<S: serde::Serializer>(rate: &Option<Rate>, serializer: S) -> Result<S::Ok, S::Error> {
    rate.map(|rate| rate.to_string()).serialize(serializer)
}

struct Plan {
    /// The question; `refused` lists offers that the calibrations do not cover too.
    request: PlanRequest,
    ranked: Vec<Choice>,
    varied: Vec<Varied>,
    /// The rate beyond which the best choice gains little, bit/s.
    enough_rate: Option<f64>,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    let request = args.request()?;
    if let Some(address) = args.outputs.serve {
        return page::serve(&request, address, as_json);
    }
    let plan = request.plan()?;
    let mut value = plan.json();
    if !args.outputs.cells.is_empty() {
        value["cells"] = plan.cells(&args.outputs.cells);
    }
    if let Some(path) = &args.outputs.output {
        output::write(path, &serde_json::to_vec_pretty(&value)?, Alike::Json(&value))?;
    }
    if let Some(page) = &args.outputs.page {
        let folder = Scratch::new()?;
        let file = folder.path().join("plan.json");
        fs::write(&file, serde_json::to_vec(&value)?).with_context(|| format!("writing {}", file.display()))?;
        report::page(&file, Some(page))?;
    }
    if let Some(folder) = &args.outputs.apply {
        apply::write(folder, &args.model, &args.seal, &plan)?;
    }
    match as_json {
        true => print::json(&value),
        false => print::text(&text::format_plan(&plan, &args.model, &args.seal)),
    }
}

fn device(name: &str, calibration: Option<&Path>) -> anyhow::Result<Device> {
    let device = Device::named(name)?;
    Ok(match calibration {
        Some(path) => device.with_calibration(Arc::new(Calibration::read(path)?)),
        None => device,
    })
}

impl Args {
    fn request(&self) -> anyhow::Result<PlanRequest> {
        let devices = &self.devices;
        let setting = Setting {
            client: device(&devices.device, devices.device_calibration.as_deref())?,
            server: device(&devices.server, devices.server_calibration.as_deref())?,
            client_threads: 1,
            server_threads: 1,
            link: self.link(),
        };
        let (limits, usage) = (self.work.add_budget(Limit::all(&self.limits)), self.usage()?);
        let model = crate::bench::load(&self.model, &self.seal)?;
        let shifting: &[&str] = if self.work.is_asked() { &SHIFTING } else { &[] };
        let defaults = shifting.iter().chain(&KEY_SETS).map(|text| (*text).to_owned());
        let option_texts: Vec<String> = self.tries.iter().cloned().chain(defaults).collect();
        let (offers, refused) = offers::list_offers(&model, &option_texts)?;
        let model = model.interface.name.clone();
        let question = Question { offers: &offers, goal: self.goal, limits, usage };
        let (goal, limits) = self.work.wish().goal_and_limits(&question, &setting)?;
        let ways = LinkUse { pace: self.pace(), idle: self.usage.idle };
        Ok(PlanRequest { model, setting, offers, refused, goal, limits, usage, ways })
    }

    /// Returns the cap on the link: the last one given.
    fn pace(&self) -> Option<Rate> {
        self.limits.iter().rev().find_map(|limit| if let Limit::Rate(rate) = limit { Some(*rate) } else { None })
    }

    fn link(&self) -> tacit_plan::Link {
        let link = match self.tunnel {
            Tunnel::None => self.link.0.clone(),
            Tunnel::Wireguard => self.link.0.with_tunnel(),
        };
        self.pace().map_or(link.clone(), |rate| link.with_max_rate(rate.bits_per_second() as f64))
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        let UsageArgs { requests, burst, clients, energy_weight: joule_s, idle } = self.usage;
        let (prices, idle_s) = (Price::all(&self.prices)?, idle.map(IdleHours::seconds));
        let (per_day, burst, clients) = (requests.per_day, burst as u32, clients as u32);
        Ok(Usage { per_day, burst, clients, prices, idle_s, joule_s })
    }
}

impl PlanRequest {
    fn question(&self) -> Question<'_> {
        Question { offers: &self.offers, goal: self.goal, limits: self.limits, usage: self.usage }
    }

    fn plan(mut self) -> anyhow::Result<Plan> {
        let question = self.question();
        let ranked = question.ranked(&self.setting)?;
        let varied = change::vary(&question, &self.setting)?;
        self.refused.extend(offers::list_uncalibrated(&self.offers, &ranked));
        let mut plan = Plan { request: self, ranked, varied, enough_rate: None };
        plan.enough_rate = plan.enough();
        Ok(plan)
    }
}

impl Plan {
    fn offer(&self, choice: &Choice) -> &Offer {
        &self.request.offers[choice.offer]
    }

    /// Returns the best private choice within the limits.
    fn best(&self) -> Option<&Choice> {
        self.ranked.iter().find(|choice| self.offer(choice).is_private() && choice.objections.is_empty())
    }

    fn enough(&self) -> Option<f64> {
        self.request.question().enough_rate(self.best()?.offer, &self.request.setting, LITTLE_SHARE)
    }

    /// Predicts all offers over other links with fixed numbers of threads; `bytes` counts those
    /// between client and server alone.
    fn cells(&self, links: &[Link]) -> serde_json::Value {
        let mut cells = Vec::new();
        for offer in &self.request.offers {
            for index in 0..links.len() {
                cells.extend([1, 2].map(|threads| self.cell(offer, links, index, threads)));
            }
        }
        cells.into()
    }

    /// Predicts an offer over the link at index `index`.
    fn cell(&self, offer: &Offer, links: &[Link], index: usize, threads: u32) -> serde_json::Value {
        let link = links[index].0.clone();
        let setting =
            Setting { client_threads: threads, server_threads: threads, link, ..self.request.setting.clone() };
        let predicted = Prediction::compute(&offer.backend, &offer.costs, &setting);
        let bytes: BTreeMap<Phase, u64> = Phase::ALL.map(|phase| (phase, offer.costs.phase(phase).bytes())).into();
        json!({"backend": offer.backend, "options": offer.options, "threads": threads, "link": index, "predicted": predicted,
            "bytes": bytes, "costs": offer.costs})
    }

    fn json(&self) -> serde_json::Value {
        let ranked = self.ranked.iter().map(|choice| {
            let offer = self.offer(choice);
            json!({"backend": offer.backend, "options": offer.options, "private": offer.is_private(), "trust": offer.trust,
                "agreement": offer.agreement, "choice": choice})
        });
        json!({
            "format": "tacit-plan",
            "version": 1,
            "model": self.request.model,
            "goal": self.request.goal,
            "unit": self.request.goal.unit(),
            "limits": self.request.limits,
            "usage": self.request.usage,
            "ways": self.request.ways,
            "setting": self.request.setting,
            "ranked": ranked.collect::<Vec<_>>(),
            "offers": self.request.offers.iter().map(|o| json!({"backend": o.backend, "options": o.options})).collect::<Vec<_>>(),
            "varied": self.varied,
            "enough_rate": self.enough_rate,
            "checked": Checked::built_in(),
            "refused": self.request.refused,
        })
    }
}

/// Limits that are not given do not apply; only a dealer needs `trust=dealer`.
impl Limit {
    fn all(limits_given: &[Self]) -> Limits {
        let mut limits = Limits::default();
        for limit in limits_given {
            match *limit {
                Self::Memory(bytes) => limits.memory = Some(bytes),
                Self::Online(seconds) => limits.online_s = Some(seconds),
                Self::Upload(bytes) => limits.upload = Some(bytes),
                Self::Bytes(bytes) => limits.bytes = Some(bytes),
                Self::Agreement(share) => limits.agreement = Some(share),
                Self::Dealer(is_allowed) => limits.dealer = is_allowed,
                // A cap on the link changes the link, see `Args::link`.
                Self::Rate(_) => {}
            }
        }
        limits
    }
}
