//! `tacit plan`
mod apply;
pub mod given;
mod offers;
mod page;
mod text;

use crate::client_work::WorkArgs;
use crate::lab::report;
use crate::owner::SealArgs;
use crate::print;
use anyhow::Context;
use given::{Limit, Link, Price, Requests};
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tacit_plan::change::{self, Varied};
use tacit_plan::{Calibration, Choice, Device, Goal, Limits, Offer, Prices, Question, Setting, Usage};

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
    /// The client's device: a name of `tacit plan --devices`
    #[arg(long, default_value = "pi4b")]
    device: String,
    /// The server's
    #[arg(long, default_value = "16core")]
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
    /// What must hold: memory=400MB (of the client), online=1s, upload=50MB, bytes=20MB,
    /// trust=two-party|dealer
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
    /// For --goal money, in one currency: core-hour=0.04,gb=0.05
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    prices: Vec<Price>,
    /// Options to try beside each back end's own, where it knows them: frac_bits=12; may be repeated
    #[arg(long = "try", value_name = "KEY=VALUE,...")]
    tries: Vec<String>,
    /// Write the plan to this file, as JSON
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
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

/// Options that move work between the parties, tried beside the defaults where the client's work counts.
const SHIFTING: [&str; 3] = ["leaves=weighed2", "leaves=weighed16", "leaves=direct4"];

/// What was asked, and what there is to choose from.
#[derive(Clone)]
struct Asked {
    model: String,
    setting: Setting,
    offers: Vec<Offer>,
    /// What could not be lowered, and why.
    refused: Vec<String>,
    goal: Goal,
    limits: Limits,
    usage: Usage,
}

/// That, and what came out.
struct Plan {
    model: String,
    setting: Setting,
    offers: Vec<Offer>,
    /// What could not be planned for, and why.
    refused: Vec<String>,
    goal: Goal,
    limits: Limits,
    usage: Usage,
    ranked: Vec<Choice>,
    varied: Vec<Varied>,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    let asked = args.asked()?;
    if let Some(address) = args.serve {
        return page::serve(&asked, address, as_json);
    }
    let plan = asked.plan()?;
    let value = plan.json();
    if let Some(path) = &args.output {
        write(path, &serde_json::to_vec_pretty(&value)?)?;
    }
    if let Some(page) = &args.page {
        let folder = tempfile::tempdir().context("making a scratch folder")?;
        let file = folder.path().join("plan.json");
        write(&file, &serde_json::to_vec(&value)?)?;
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

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
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
            link: self.link.0.clone(),
        };
        let (limits, usage) = (self.work.within(Limit::all(&self.limits)), self.usage()?);
        let model = crate::bench::load(&self.model, &self.seal)?;
        let shifting: &[&str] = if self.work.is_asked() { &SHIFTING } else { &[] };
        let tries: Vec<String> = self.tries.iter().cloned().chain(shifting.iter().map(|s| (*s).to_owned())).collect();
        let (offers, refused) = offers::of(&model, &tries)?;
        let model = model.interface.name.clone();
        let question = Question { offers: &offers, goal: self.goal, limits, usage };
        let (goal, limits) = self.work.wish().asks(&question, &setting)?;
        Ok(Asked { model, setting, offers, refused, goal, limits, usage })
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        let prices = Price::both(&self.prices)?;
        let prices = prices.map(|[core_hour, gigabyte]| Prices { core_hour, gigabyte });
        let (per_day, joule_s) = (self.requests.per_day, self.energy_weight);
        Ok(Usage { per_day, burst: self.burst as u32, clients: self.clients as u32, prices, joule_s })
    }
}

impl Asked {
    fn plan(self) -> anyhow::Result<Plan> {
        let Self { model, setting, offers, mut refused, goal, limits, usage } = self;
        let question = Question { offers: &offers, goal, limits, usage };
        let ranked = question.ranked(&setting)?;
        let varied = change::vary(&question, &setting)?;
        refused.extend(offers::without_calibration(&offers, &ranked));
        Ok(Plan { model, setting, refused, goal, limits, usage, ranked, varied, offers })
    }
}

impl Plan {
    /// The best private choice within the limits.
    fn best(&self) -> Option<&Choice> {
        self.ranked.iter().find(|choice| self.offers[choice.offer].is_private() && choice.objections.is_empty())
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
            "setting": self.setting,
            "ranked": self.ranked.iter().map(shown).collect::<Vec<_>>(),
            "offers": self.offers.iter().map(|o| json!({"backend": o.backend, "options": o.options})).collect::<Vec<_>>(),
            "varied": self.varied,
            "refused": self.refused,
        })
    }
}

/// A limit that was not given is none, but that nobody is trusted who was not named.
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
            }
        }
        limits
    }
}
