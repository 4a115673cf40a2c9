//! `tacit lab run`: runs an experiment.
use super::conduct::{carry_out, format_span, show_plan, stopping};
use super::{inputs, live, study};
use anyhow::{Context, bail};
use serde_json::json;
use std::path::PathBuf;
use tacit_cli::print;
use tacit_experiments::experiment::{BUILT_IN, BuiltIn, Experiment, ExperimentSpec, LinkText, plan};

/// Run an experiment: measure every cell (link x transport x workload x pace) repeatedly
///
/// An experiment is a TOML file (docs/lab.md, "Experiments") or the name of a built-in one. The
/// command keeps all records in DIR. The same command continues an interrupted campaign, and
/// repeats failed runs. Ctrl-C ends the campaign cleanly. Links need root.
///
/// Examples: sudo tacit lab run pm24-bandwidth -o sweep
///           sudo tacit lab run pm24-inference --model squeezenet.tacit --input photo.npy -o squeezenet
///           tacit lab run idle --seconds 60 -o idle
///           tacit lab run pm24-bandwidth --show > mine.toml; sudo tacit lab run mine.toml -o mine
///           tacit lab run ss26-live -o ss26
#[derive(clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    own_experiment: Option<OwnExperiment>,
    /// TOML file, or name of a built-in experiment (--list)
    #[arg(required_unless_present = "list")]
    experiment: Option<String>,
    /// Folder of the campaign, to make or to continue
    #[arg(short, long, value_name = "DIR", required_unless_present_any = ["list", "show", "dry_run"])]
    #[arg(help_heading = "Output")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Folder of a campaign of such a machine, to take over the runs of the same cells from; may be
    /// repeated
    #[arg(long, value_name = "DIR", help_heading = "Input", hide_short_help = true)]
    from: Vec<PathBuf>,
    /// Model for private inference: .tacit or ONNX; in pm24-bandwidth, inference takes the place of
    /// the workloads
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    model: Option<PathBuf>,
    /// Input for private inference, an image or .npy [default: seeded values in the model's range]
    #[arg(long, value_name = "FILE", requires = "model", help_heading = "Input")]
    input: Option<PathBuf>,
    /// Print one JSON object per run, and one at the end
    #[arg(long)]
    json: bool,
    /// List the built-in experiments
    #[arg(long, conflicts_with_all = ["show", "dry_run"], help_heading = "Output")]
    list: bool,
    /// Print the experiment as TOML, with options applied and defaults filled in, and end
    #[arg(long, help_heading = "Output")]
    show: bool,
    /// Print the plan with its duration, and end
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
}

// Options that change the experiment. A doc comment would be help.
#[derive(clap::Args)]
struct Overrides {
    /// Number of measured runs of each cell
    #[arg(long, value_name = "N", help_heading = "Limits")]
    repetitions: Option<u32>,
    /// Try the experiment: two repetitions, short baselines, no pauses
    #[arg(long, help_heading = "Limits")]
    quick: bool,
    /// Links in place of the experiment's links: names of its own links, presets, or none
    #[arg(long, value_name = "LINK", value_delimiter = ',', help_heading = "Link")]
    links: Vec<String>,
    /// Workloads of the experiment to run [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Input")]
    workloads: Vec<String>,
    /// Transports in place of the experiment's transports: plain, tls, wireguard, tls+wireguard
    #[arg(long, value_name = "KIND", value_delimiter = ',', help_heading = "Link")]
    transports: Vec<String>,
    /// Seconds that timed workloads last, the value of {seconds}
    #[arg(long, value_name = "SECONDS", help_heading = "Limits")]
    seconds: Option<f64>,
    /// Seconds between samples
    #[arg(long, value_name = "SECONDS", help_heading = "Device", hide_short_help = true)]
    interval: Option<f64>,
    /// Power source, as in `tacit lab sensors`; may be repeated, and the first source is the
    /// primary one
    #[arg(long = "source", value_name = "NAME", help_heading = "Device")]
    sources: Vec<String>,
    /// Device profile for modelled joules without a sensor: NAME or NAME/MODE; `none` for no joules
    #[arg(long, value_name = "PROFILE", help_heading = "Device")]
    device: Option<String>,
    /// Seed of the order of the runs
    #[arg(long, value_name = "N", help_heading = "Input", hide_short_help = true)]
    seed: Option<u64>,
}

/// Experiments that are no matrix of links and commands: each has its own options.
#[derive(clap::Subcommand)]
enum OwnExperiment {
    Ss26Live(Box<live::Args>),
    Pm24Study(Box<study::Args>),
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.own_experiment {
        Some(OwnExperiment::Ss26Live(args)) => return live::run(args),
        Some(OwnExperiment::Pm24Study(args)) => return study::run(args),
        None => {}
    }
    if args.list {
        return list(args.json);
    }
    let spec = load(args)?;
    if args.show {
        Experiment::new(spec.clone())?;
        return if args.json { print::json(&json!(spec)) } else { print::text(&spec.to_toml()?) };
    }
    let experiment = Experiment::new(spec)?;
    let jobs = plan::remaining(&experiment, &[]);
    if args.dry_run {
        return show_plan(&experiment, &jobs, args.json);
    }
    let dir = args.output.as_deref().context("give the campaign's folder with -o DIR")?;
    if experiment.spec().values.contains_key("model") {
        inputs::prepare(dir, args.model.as_deref(), args.input.as_deref())?;
    }
    carry_out(&experiment, dir, &args.from, args.json, &stopping("runs")?)
}

fn list(as_json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for built_in in BUILT_IN {
        let experiment = built_in.experiment()?;
        let time = plan::total(&experiment, &plan::remaining(&experiment, &[]));
        rows.push((built_in.name, time, experiment.spec().description.clone()));
    }
    for (name, time, description) in
        [("ss26-live", live::ABOUT_TIME, live::ABOUT), (study::NAME, study::ABOUT_TIME, study::ABOUT)]
    {
        rows.push((name, time, format!("{description} (options of its own)")));
    }
    if as_json {
        let rows = rows.iter().map(
            |(name, time, description)| json!({ "name": name, "seconds": time.as_secs(), "description": description }),
        );
        return print::json(&rows.collect());
    }
    rows.iter().try_for_each(|(name, time, description)| {
        print::line(&format!("{name:<16} about {:<7} {description}", format_span(*time)))
    })
}

fn load(args: &Args) -> anyhow::Result<ExperimentSpec> {
    let name = args.experiment.as_deref().context("name an experiment; --list shows the built-in ones")?;
    let mut spec = match (name, &args.model) {
        ("pm24-bandwidth", Some(_)) => BuiltIn::find("pm24-inference")?.spec()?,
        _ if name.ends_with(".toml") => {
            let text = tacit_cli::files::read_text(name.as_ref())?;
            ExperimentSpec::from_toml(name, &text)?
        }
        _ => BuiltIn::find(name)?.spec()?,
    };
    if args.model.is_some() && !spec.values.contains_key("model") {
        bail!("{name} runs no model: its commands do not use {{model}}");
    }
    args.overrides.apply(&mut spec)?;
    Ok(spec)
}

impl Overrides {
    fn apply(&self, spec: &mut ExperimentSpec) -> anyhow::Result<()> {
        if self.quick {
            spec.make_quick();
        }
        if !self.transports.is_empty() {
            spec.transports.clone_from(&self.transports);
        }
        if !self.links.is_empty() {
            spec.links = self.links.iter().map(|name| own_link(&spec.links, name)).collect();
        }
        for name in &self.workloads {
            if !spec.workloads.iter().any(|w| w.name == *name) {
                let names: Vec<&str> = spec.workloads.iter().map(|w| w.name.as_str()).collect();
                bail!("{} has no workload `{name}`; it has {}", spec.name, names.join(", "));
            }
        }
        if !self.workloads.is_empty() {
            spec.workloads.retain(|w| self.workloads.contains(&w.name));
        }
        spec.repetitions = self.repetitions.unwrap_or(spec.repetitions);
        spec.seconds = self.seconds.unwrap_or(spec.seconds);
        spec.interval_s = self.interval.unwrap_or(spec.interval_s);
        spec.seed = self.seed.or(spec.seed);
        if !self.sources.is_empty() {
            spec.sources.clone_from(&self.sources);
        }
        match self.device.as_deref() {
            Some("none") => spec.device = None,
            Some(device) => spec.device = Some(device.to_owned()),
            None => {}
        }
        Ok(())
    }
}

/// Returns the experiment's own link of this name, else the preset.
fn own_link(links: &[LinkText], name: &str) -> LinkText {
    let own_link = links.iter().find(|l| matches!(l, LinkText::Table(t) if t.name.as_deref() == Some(name)));
    own_link.cloned().unwrap_or_else(|| LinkText::Name(name.to_owned()))
}
