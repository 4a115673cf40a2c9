//! `tacit lab run pm24-study`: [PM24] end to end, as one campaign with predictions for comparison.
mod approach;
mod folder;
mod predict;

use super::conduct::{carry_out, show_plan, stopping};
use super::nets::Net;
use anyhow::{Context, ensure};
use approach::{Approach, LOCAL};
use folder::Offered;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tacit_cli::print;
use tacit_experiments::campaign;
use tacit_experiments::experiment::{BuiltIn, Experiment, ExperimentSpec, Fewer, LinkText, plan};
use tacit_measure::device::DeviceProfile;
use tacit_meter::energy::Coefficients;
use tacit_net::link::{LinkSpecText, parse_duration};

pub const NAME: &str = "pm24-study";
pub const ABOUT: &str =
    "[PM24] end to end: networks x back ends x links, a rate cap as a power cap, and predictions for other devices";
/// Expected duration: SqueezeNet and ResNet-50 on all links, as planned on the machine of the
/// built-in calibration.
pub const ABOUT_TIME: Duration = Duration::from_secs(20 * 3600);

const LINKS: [&str; 4] = ["pm24-941", "pm24-95.6", "pm24-19.2", "pm24-3.89"];
/// The slowest link of [PM24], and one of its faster ones: `--quick` runs these.
const QUICK_LINKS: [&str; 2] = ["pm24-95.6", "pm24-3.89"];
const WAN_LINK: &str = "wan-40ms";
/// Paces of the sender on the fastest link.
const PACES: [&str; 6] = ["none", "400mbit", "100mbit", "50mbit", "20mbit", "4mbit"];
/// The pacing experiment takes the first of each pair that is among the approaches.
const PACED: [[&str; 2]; 2] = [["cheetah", "cheetah-12"], ["sci-he", "sci-he-12"]];
const PACING: &str = "pacing";
/// Repetitions of long runs: ten below a minute, three above, one above twenty minutes.
const LONG_S: [(f64, u32); 2] = [(60.0, 3), (1200.0, 1)];

/// Run the study of [PM24] end to end: networks x approaches x links, then a cap on the sender's
/// rate
///
/// Approaches are the back ends, and two that are not private. The cap on the rate is on the
/// fastest link. The study keeps phases, energy, processor time and bytes of each party for every
/// run.
///
/// A cell that takes less than a minute runs ten times, up to twenty minutes three times, above
/// that once. A cell that would take longer than --at-most is predicted by the planner; the report
/// marks predictions as modelled, and checks them against measured cells. Links need root. The same
/// command continues an interrupted study; `tacit lab report DIR` makes the page. Parts of the
/// study (--nets, --approaches, --links) may be measured in other folders and sessions, and --from
/// takes these parts over.
///
/// Examples: tacit lab run pm24-study --dry-run
///           sudo tacit lab run pm24-study --nets squeezenet -o study
///           sudo tacit lab run pm24-study --nets resnet50 --links pm24-3.89 --no-pacing -o slow
///           sudo tacit lab run pm24-study --from slow --from study -o whole
///           sudo tacit lab run pm24-study --quick -o try
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Folder of the study, to make or to continue
    #[arg(short, long, value_name = "DIR", required_unless_present = "dry_run", help_heading = "Output")]
    output: Option<PathBuf>,
    #[command(flatten)]
    scope: Scope,
    /// Longest run; the planner predicts cells that would take longer
    #[arg(long, value_name = "TIME", default_value = "1800s", value_parser = parse_duration, help_heading = "Limits")]
    at_most: Duration,
    /// Number of runs of a cell that takes less than a minute [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Limits")]
    repetitions: Option<u32>,
    /// Device profile for modelled joules without a sensor: NAME or NAME/MODE
    #[arg(long, value_name = "PROFILE", default_value = "generic-x86-server", help_heading = "Device")]
    device: String,
    /// Seed of the order of the runs
    #[arg(long, value_name = "N", help_heading = "Input")]
    seed: Option<u64>,
    /// Folder of a study of such a machine with the same networks and inputs, to take over the runs
    /// of the same cells from; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Input")]
    from: Vec<PathBuf>,
    /// Leave out the experiment with a cap on the sender's rate
    #[arg(long, help_heading = "Limits")]
    no_pacing: bool,
    /// Try the study: digits, two links, one repetition
    #[arg(long, help_heading = "Limits")]
    quick: bool,
    /// Print one JSON object per run, and one at the end
    #[arg(long)]
    json: bool,
    /// Print the plan with its duration, and end
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
}

// A doc comment would be help.
#[derive(clap::Args)]
struct Scope {
    /// Networks: squeezenet (of ../shared/data, if the file exists), digits, names of the zoo, or
    /// files [default: squeezenet,resnet50]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Model")]
    nets: Vec<String>,
    /// Approaches: cheetah, sci-he (and -12, at 12 fraction bits), dealt, fss, ckks, clear, local [default:
    /// all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Model")]
    approaches: Vec<String>,
    /// Links: presets of `tacit lab link`, wan-40ms, none for loopback [default: the four of [PM24] and
    /// wan-40ms]
    #[arg(long, value_name = "LINK", value_delimiter = ',', help_heading = "Link")]
    links: Vec<String>,
}

struct Study<'a> {
    args: &'a Args,
    nets: Vec<String>,
    approaches: Vec<Approach>,
    offered: Vec<Offered>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let nets = nets(args)?;
    let approaches = Approach::select(&args.scope.approaches)?;
    let dir = if args.dry_run { None } else { args.output.as_deref() };
    if let Some(dir) = dir {
        campaign::managed_folder(dir)?;
    }
    let offered = folder::offers(dir, &nets, &approaches)?;
    let nets = nets.into_iter().map(|net| net.name).collect();
    let study = Study { args, nets, approaches, offered };
    let pacing = if args.no_pacing { None } else { study.pacing()?.map(Experiment::new).transpose()? };
    let main = Experiment::new(study.main()?)?;
    let Some(dir) = dir else {
        for experiment in std::iter::once(&main).chain(&pacing) {
            show_plan(experiment, &plan::remaining(experiment, &[]), args.json)?;
        }
        study.left_out().iter().for_each(|text| print::note(text));
        return Ok(());
    };
    args.from.iter().try_for_each(|source_dir| folder::same_inputs(dir, source_dir))?;
    folder::write(&dir.join("study.json"), &study.json(&main)?)?;
    study.left_out().iter().for_each(|text| print::note(text));
    let stop = stopping("runs")?;
    carry_out(&main, dir, &args.from, args.json, &stop)?;
    let Some(pacing) = pacing else { return Ok(()) };
    print::note("the sender is held to a pace on the fastest link");
    let folder = dir.join(PACING);
    campaign::own_folder(&folder)?;
    let paced =
        args.from.iter().map(|source_dir| source_dir.join(PACING)).filter(|source_dir| campaign::is_there(source_dir));
    carry_out(&pacing, &folder, &paced.collect::<Vec<_>>(), args.json, &stop)
}

fn nets(args: &Args) -> anyhow::Result<Vec<Net>> {
    let names: Vec<&str> = match (&args.scope.nets[..], args.quick) {
        ([], true) => vec!["digits"],
        ([], false) => vec!["squeezenet", "resnet50"],
        (names, _) => names.iter().map(String::as_str).collect(),
    };
    names.iter().map(|name| if *name == "squeezenet" { Ok(Net::squeezenet()) } else { Net::from_name(name) }).collect()
}

impl Study<'_> {
    fn links(&self) -> Vec<LinkText> {
        match (&self.args.scope.links[..], self.args.quick) {
            ([], true) => QUICK_LINKS.map(link).into(),
            ([], false) => LINKS.into_iter().chain([WAN_LINK]).map(link).collect(),
            (names, _) => names.iter().map(|name| link(name)).collect(),
        }
    }

    /// The experiment over all networks, approaches and links.
    fn main(&self) -> anyhow::Result<ExperimentSpec> {
        let mut spec = BuiltIn::find("pm24-inference")?.spec()?;
        spec.name = NAME.into();
        spec.description = "Private inference end to end against bandwidth ([PM24])".into();
        spec.links = self.links();
        spec.values = [("inputs".to_owned(), "{campaign}/inputs".to_owned())].into();
        spec.workloads.clear();
        spec.warm_up = 0;
        let at_most = self.args.at_most.as_secs_f64();
        spec.repetitions = self.args.repetitions.unwrap_or(10);
        let fewer = LONG_S.into_iter().filter(|(above_s, _)| *above_s < at_most).chain([(at_most, 0)]);
        spec.fewer = fewer.map(|(above_s, n)| Fewer { above_s, repetitions: n.min(spec.repetitions) }).collect();
        spec.timeout_s = (4.0 * at_most).clamp(600.0, 86_400.0);
        spec.device = Some(self.args.device.clone());
        spec.seed = self.args.seed;
        if self.args.quick {
            spec.make_quick();
            spec.repetitions = 1;
            spec.idle_s = 0.0;
            spec.fewer.iter_mut().for_each(|fewer| fewer.repetitions = fewer.repetitions.min(1));
        }
        for net in &self.nets {
            let [endless, waiting] = [0.0, 1.0].map(|rtt_s| self.predict("this", net, predict::endless_link(rtt_s)));
            let (endless, waiting) = (endless?, waiting?);
            for approach in &self.approaches {
                let (Some(endless), Some(waiting)) = (endless.get(approach.name), waiting.get(approach.name)) else {
                    continue;
                };
                let mut workload = approach.commands(net);
                predict::estimate(&mut workload, endless, waiting);
                spec.workloads.push(workload);
            }
        }
        ensure!(!spec.workloads.is_empty(), "nothing is left to run: {}", self.left_out().join("; "));
        Ok(spec)
    }

    /// The experiment with a paced sender: the first network on the fastest emulated link.
    fn pacing(&self) -> anyhow::Result<Option<ExperimentSpec>> {
        let mut spec = self.main()?;
        let wanted_rows = PACED.map(|alike| {
            let names = alike.map(|approach| format!("{}+{approach}", self.nets[0]));
            names.into_iter().find(|name| spec.workloads.iter().any(|workload| workload.name == *name))
        });
        spec.workloads.retain(|workload| wanted_rows.iter().flatten().any(|name| *name == workload.name));
        let links = Experiment::new(self.main()?)?;
        let rates = links.links().iter().map(|link| link.spec.as_ref().map(|_| predict::link(link).up_bits_per_s));
        let real = rates.enumerate().filter_map(|(place, rate)| Some((place, rate?)));
        // The first of equally fast links.
        let fastest = real.reduce(|best, candidate| if candidate.1 > best.1 { candidate } else { best });
        let (false, Some((place, _))) = (spec.workloads.is_empty(), fastest) else { return Ok(None) };
        spec.links = vec![spec.links.swap_remove(place)];
        spec.name = format!("{NAME}-{PACING}");
        spec.description = "A cap on the rate as a cap on power ([PM24] sec. 5.2)".into();
        spec.values = [("inputs".to_owned(), "{campaign}/../inputs".to_owned())].into();
        spec.paces = PACES.map(String::from).into();
        if self.args.quick {
            spec.paces.drain(1..4);
        }
        Ok(Some(spec))
    }

    /// Lists the cells that do not run, and why.
    fn left_out(&self) -> Vec<String> {
        let texts = self.offered.iter().filter_map(|o| match (&o.refused, &o.costs) {
            (Some(reason), _) => Some(format!("{} on {}: refused: {reason}", o.net, o.approach)),
            (None, Some(costs)) if !self.is_planned(o) => {
                Some(format!("{} on {}: {}", o.net, o.approach, predict::describe_unplanned(costs)))
            }
            _ => None,
        });
        texts.collect()
    }

    fn is_planned(&self, o: &Offered) -> bool {
        let predicted = self.predict("this", &o.net, predict::endless_link(0.0));
        predicted.is_ok_and(|predictions| predictions.contains_key(o.approach.as_str()))
    }

    fn predict(&self, device: &str, net: &str, link: tacit_plan::Link) -> anyhow::Result<predict::ByApproach> {
        predict::predict_approaches(device, net, &self.approaches, &self.offered, link)
    }

    /// The report's data besides the runs: predictions for every cell on this machine and on others.
    fn json(&self, experiment: &Experiment) -> anyhow::Result<Value> {
        let (profile, mode) = DeviceProfile::load_with_mode(&self.args.device)?;
        let coefficients = Coefficients::from(profile.mode(mode)?);
        let (mut cells, mut boards) = (Vec::new(), Vec::new());
        for (index, link) in experiment.links().iter().enumerate() {
            for net in &self.nets {
                for (name, predicted) in self.predict("this", net, predict::link(link))? {
                    let workload = format!("{net}+{name}");
                    let place = experiment.workloads().iter().position(|w| w.name == workload);
                    let place = place.context("every approach that is planned has a workload")?;
                    let cell = plan::Cell { link: index, transport: 0, workload: place, pace: 0 };
                    cells.push(json!({
                        "net": net, "approach": name, "link": link.name,
                        "repetitions": plan::repetitions(experiment, cell),
                        "length_s": plan::length(experiment, cell).as_secs_f64(), "phases": predict::phases(&predicted),
                    }));
                }
                for board in predict::BOARDS {
                    for (name, predicted) in self.predict(board, net, predict::link(link))? {
                        boards.push(json!({
                            "device": board, "net": net, "approach": name, "link": link.name,
                            "phases": predict::phases(&predicted),
                        }));
                    }
                }
            }
        }
        let approaches = self.approaches.iter().map(
            |a| json!({"name": a.name, "backend": if a.name == LOCAL { LOCAL } else { a.backend }, "trust": a.trust()}),
        );
        Ok(json!({
            "format": "tacit-study", "version": 1, "nets": self.nets, "approaches": approaches.collect::<Vec<_>>(),
            "links": experiment.links().iter().map(predict::link).collect::<Vec<_>>(),
            "device": self.args.device,
            "coefficients": {"base_w": coefficients.base_w, "core_w": coefficients.core_w, "byte_j": coefficients.byte_j},
            "cells": cells, "boards": boards, "left_out": self.left_out(),
        }))
    }
}

fn link(name: &str) -> LinkText {
    if name != WAN_LINK {
        return LinkText::Name(name.into());
    }
    let rate = Some("100mbit".parse().expect("it is a rate"));
    LinkText::Table(LinkSpecText {
        name: Some(WAN_LINK.into()),
        rate,
        rtt: Some("40ms".into()),
        ..LinkSpecText::default()
    })
}
