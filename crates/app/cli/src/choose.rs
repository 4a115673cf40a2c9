//! Chooses a back end for a client among those that a server offers, by the costs to the client.
use crate::client_work::WorkArgs;
use crate::connect::Connect;
use crate::plan::arguments::Link;
use crate::print;
use anyhow::bail;
use serde::Serialize;
use std::fmt;
use tacit_backends::{Registry, Trust};
use tacit_graph::Interface;
use tacit_plan::{Choice, Device, Goal, Limits, Offer, Question, Setting, Usage};

/// Most inputs over which the setup's cost is divided: beyond, its share is negligible.
const MAX_SHARED_INPUTS: f64 = 10.0;

/// The wish of the client, and the device and link to plan with.
#[derive(clap::Args)]
pub struct ChooseArgs {
    #[command(flatten)]
    pub work: WorkArgs,
    /// Device to plan with, for --client-work and the budgets: a device name of `tacit plan`
    #[arg(long, value_name = "NAME", default_value = "this", help_heading = "Device", hide_short_help = true)]
    plan_device: String,
    /// Link to plan with, for --client-work and the budgets: 20mbit/40ms, 15mbit:30mbit/2ms
    /// (up:down), or a preset of `tacit lab link`
    #[arg(long, value_name = "LINK", default_value = "lan", help_heading = "Link", hide_short_help = true)]
    plan_link: Link,
}

/// The chosen back end, and its expected cost to the client for an input. The inputs of the call
/// share the setup.
#[derive(Debug, Clone, Serialize)]
pub struct Chosen {
    pub backend: String,
    pub trust: Option<Trust>,
    client_j: f64,
    client_cpu_s: f64,
    bytes: f64,
    wall_s: f64,
}

impl Chosen {
    fn from_choice(offer: &Offer, choice: &Choice, inputs: f64) -> Self {
        let p = &choice.predicted;
        Self {
            backend: offer.backend.clone(),
            trust: offer.trust,
            client_j: p.client_j(inputs),
            client_cpu_s: p.client_cpu_s(inputs),
            bytes: p.bytes(inputs),
            wall_s: p.offline.wall_s + p.online.wall_s + p.setup.wall_s / inputs,
        }
    }

    /// Whether the client's costs are within limits; the others concern the server or a day.
    fn is_within(&self, limits: &Limits) -> bool {
        limits.client_j.is_none_or(|limit| self.client_j <= limit)
            && limits.client_cpu_s.is_none_or(|limit| self.client_cpu_s <= limit)
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, trust, client_j, client_cpu_s, bytes, wall_s } = self;
        let trust = match trust {
            Some(Trust::TwoParty) => "trusts nobody else",
            Some(Trust::Dealer) => "trusts the dealer",
            Some(Trust::ServerSeesInput) | None => "is not private",
        };
        let mb = bytes / 1e6;
        write!(f, "{backend} ({client_j:.2} J, {client_cpu_s:.2} s CPU, {mb:.1} MB, {wall_s:.1} s; {trust})")
    }
}

/// Chooses the back end for this client among those that the server offers and this client accepts.
/// A back end with a dealer needs a named dealer. The setup's cost is divided among the `count`
/// inputs.
pub fn choose(
    args: &ChooseArgs,
    connect: &Connect,
    count: impl FnOnce(&Interface) -> anyhow::Result<usize>,
) -> anyhow::Result<Chosen> {
    let Offered { offers, passed, interface } = offers(connect)?;
    let Some(interface) = interface else {
        bail!("the server offers no back end that this client accepts; the server offers {}", passed.join(", "));
    };
    let inputs = count(&interface)?;
    let setting = Setting {
        client: Device::named(&args.plan_device)?,
        server: Device::named("this")?,
        client_threads: 1,
        server_threads: 1,
        link: args.plan_link.0.clone(),
    };
    let limits = args.work.add_budget(Limits { dealer: true, memory: Some(u64::MAX), ..Limits::default() });
    let usage = Usage { per_day: MAX_SHARED_INPUTS.min(inputs as f64), ..Usage::default() };
    let mut question = Question { offers: &offers, goal: Goal::Total, limits, usage };
    (question.goal, question.limits) = args.work.wish().goal_and_limits(&question, &setting)?;
    let ranked = question.ranked(&setting)?;
    let describe_choice = |choice: &Choice| Chosen::from_choice(&offers[choice.offer], choice, usage.per_day);
    let describe_others = |skipped: Option<usize>| {
        let choices = ranked.iter().filter(|c| Some(c.offer) != skipped);
        let mut texts: Vec<String> = choices.map(|choice| describe_choice(choice).to_string()).collect();
        texts.extend(passed.iter().cloned());
        if texts.is_empty() { "nothing else is offered".to_owned() } else { format!("beside {}", texts.join(", ")) }
    };
    let Some(best) = ranked.iter().find(|choice| describe_choice(choice).is_within(&question.limits)) else {
        bail!(
            "no back end that this client accepts is within --client-work and the budgets; {}",
            describe_others(None)
        );
    };
    let chosen = describe_choice(best);
    print::note(&format!("chosen, as planned for an input: {chosen}; {}", describe_others(Some(best.offer))));
    Ok(chosen)
}

struct Offered {
    /// The back ends that this client accepts, opened for their costs.
    offers: Vec<Offer>,
    /// The back ends that this client does not accept, with reasons.
    passed: Vec<String>,
    /// The model's interface, if the client accepts any back end.
    interface: Option<Interface>,
}

fn offers(connect: &Connect) -> anyhow::Result<Offered> {
    let registry = Registry::standard();
    let (model, backends) = connect.list_offered()?;
    let (mut offers, mut passed, mut interface) = (Vec::new(), Vec::new(), None);
    for backend in backends {
        let reason = match registry.get(&backend).map(|backend| backend.trust()) {
            Err(_) => "this client does not have it".to_owned(),
            Ok(Trust::ServerSeesInput) => "the server would see the input".to_owned(),
            Ok(Trust::Dealer) if !connect.names_dealer() => "a dealer would have to be trusted: --dealer".to_owned(),
            // A back end that is broken or fails `require` does not stop the others.
            Ok(trust) => match connect.connection(false)?.open(&model, Some(&backend)) {
                Err(error) => error.to_string(),
                Ok(client) => {
                    let costs = client.model().costs();
                    interface.get_or_insert(client.interface().clone());
                    client.close()?;
                    offers.push(Offer { backend, options: String::new(), trust: Some(trust), costs, agreement: None });
                    continue;
                }
            },
        };
        passed.push(format!("{backend} ({reason})"));
    }
    Ok(Offered { offers, passed, interface })
}
