//! `tacit model check`: compares a lowered model with its float network.
use crate::lowering::Lowering;
use crate::print;
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use tacit_backends::check::{Checked, NEAR, RunReport, Took, check, run_privately};
use tacit_backends::{Registry, lowered};
use tacit_client::input::{self, Fit};
use tacit_graph::Units;
use tacit_store::seal::{self, Kind};

const MAX_LISTED: usize = 12;

/// Compare a lowered model with its float network on a data set, in the clear
///
/// The command shows how often both have the same class (and, with labels, how often each is right)
/// and how far outputs are off. It lists the tensors that come near the limits of their rings: an
/// overflow gives wrong answers, and no private inference notices an overflow.
///
/// The command reads the lowering beside the model, if that lowering has these options. Otherwise
/// the command lowers the model now.
///
/// Examples: tacit model check net.tacit --data test.npy --labels classes.npy
///           tacit model check net.tacit --data test.npy --backend ckks --run 10
#[derive(clap::Args)]
pub struct Args {
    /// Model file
    file: PathBuf,
    /// Inputs [N, ...input] as .npy or .npz (FILE.npz:NAME), or images: bytes are raw pixels, other
    /// numbers are inputs as they are; may be repeated
    #[arg(long, value_name = "FILE", required = true, help_heading = "Input")]
    data: Vec<PathBuf>,
    /// File with the right class of each input: an array of whole numbers
    #[arg(long, value_name = "FILE.npy", help_heading = "Input")]
    labels: Option<PathBuf>,
    /// Number of inputs to compare, from the first [default: all]
    #[arg(long, value_name = "COUNT", help_heading = "Input")]
    limit: Option<usize>,
    /// Number of inputs, from the first, to run privately as well, with both parties in this
    /// process
    #[arg(long, value_name = "COUNT", default_value_t = 0, help_heading = "Input")]
    run: usize,
    #[command(flatten)]
    lowering: Lowering,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    let Args { file, lowering, .. } = args;
    let registry = Registry::standard();
    let backend = registry.get(&lowering.backend)?;
    let model = lowering.seal.read_model(file)?;
    let key = lowering.seal.key();
    let obtained = lowered::obtain(file, &**backend, lowering.given_options()?.as_ref(), &|path: &Path| {
        Ok(seal::open_file(path, Kind::of_owner_file(path), key)?)
    });
    let obtained = obtained.with_context(|| file.display().to_string())?;
    if let Some(reason) = obtained.lowered_because {
        print::note(&format!("lowered now: {reason}"));
    }
    let mut inputs = Vec::new();
    for path in &args.data {
        inputs.extend(input::read(path, &model.interface, Fit::Crop, Units::Network)?);
    }
    let mut labels = args.labels.as_deref().map(labels).transpose()?;
    if let Some(limit) = args.limit {
        inputs.truncate(limit);
        labels.iter_mut().for_each(|l| l.truncate(limit));
    }
    let (watch, progress_bar) = print::watch();
    let checked = check(&model, &*obtained.model, &inputs, labels.as_deref(), &watch)?;
    let run_inputs = &inputs[..inputs.len().min(args.run)];
    let ran = match run_inputs {
        [] => None,
        run_inputs => Some(run_privately(&model, &**backend, &obtained.model, run_inputs, &watch)?),
    };
    progress_bar.finish_and_clear();
    if as_json {
        let mut value = serde_json::to_value(&checked)?;
        value["run"] = serde_json::to_value(&ran)?;
        return print::json(&value);
    }
    show(&checked)?;
    ran.iter().try_for_each(show_run)
}

fn show_run(ran: &RunReport) -> anyhow::Result<()> {
    let RunReport { inputs, answers_refused, same_class, as_reference, no_number, off, error, stated, .. } = ran;
    let stated = stated.map_or_else(|| "no useful bound is stated".into(), |bound| format!("{bound:.2e} stated"));
    let off_text = match (off.is_nan(), *inputs) {
        (_, 0) => "no answer was taken".into(),
        (true, _) => "an answer is NO NUMBER".into(),
        (false, _) => format!("off by {error:.2e} (root mean square); from the clear by {off:.2e} at most"),
    };
    print::line(&format!(
        "both parties {same_class} of {inputs} same class as float, {as_reference} as in the clear; {off_text}, {stated}"
    ))?;
    if *answers_refused > 0 {
        print::line(&format!("refused      by the client: the answers of {answers_refused} inputs"))?;
    }
    if *no_number > 0 {
        print::line(&format!("no number    ON {no_number} INPUTS: their answers are wrong"))?;
    }
    let RunReport { setup, offline, online, steps, .. } = ran;
    show_took("setup", setup)?;
    show_took("offline", offline)?;
    show_took("online", online)?;
    if !steps.is_empty() {
        let step_texts = steps.iter().map(|(step, seconds)| format!("{step} {seconds:.2} s")).collect::<Vec<_>>();
        print::line(&format!("    server   {}", step_texts.join(", ")))?;
    }
    Ok(())
}

fn show_took(name: &str, took: &Took) -> anyhow::Result<()> {
    let [up, down] = [took.up_bytes, took.down_bytes].map(|bytes| bytes as f64 / 1e6);
    print::line(&format!("  {name:<10} {:.2} s, {up:.2} MB up, {down:.2} MB down", took.seconds))
}

fn labels(path: &Path) -> anyhow::Result<Vec<usize>> {
    let array = input::array(path)?;
    let are_whole = array.data.iter().all(|v| *v >= 0.0 && v.fract() == 0.0);
    ensure!(are_whole, "{}: the labels must be whole numbers from 0", path.display());
    Ok(array.data.iter().map(|&v| v as usize).collect())
}

fn show(checked: &Checked) -> anyhow::Result<()> {
    print::line(&format!("inputs       {} compared, {} refused as out of range", checked.inputs, checked.refused))?;
    let [low, high] = checked.interval.map(percent);
    let error = match (checked.output_error.is_finite(), checked.answers_refused == checked.inputs) {
        (_, true) => "no answer is taken".into(),
        (true, _) => format!("output error {:.3} % of the range", 100.0 * checked.output_error),
        (false, _) => "the output error is NO NUMBER".into(),
    };
    print::line(&format!(
        "agreement    {} same class as float (95 %: {low} to {high}), {error}",
        percent(checked.agreement)
    ))?;
    if checked.answers_refused > 0 {
        print::line(&format!(
            "refused      by the client: the answers of {} inputs, which count as another class",
            checked.answers_refused
        ))?;
    }
    if checked.no_number > 0 {
        print::line(&format!("no number    ON {} INPUTS: they count as wrong", checked.no_number))?;
    }
    if checked.tied > 0 {
        print::line(&format!(
            "ties         the best classes of {} inputs are exactly tied: any of them is answered, and counts as the same",
            checked.tied
        ))?;
    }
    if let Some(accuracy) = checked.accuracy {
        let [float, lowered] = [accuracy.float, accuracy.lowered].map(percent);
        print::line(&format!("accuracy     {lowered} lowered, {float} float"))?;
    }
    match (checked.overflowed, checked.strained.is_empty()) {
        (0, true) => {
            print::line(&format!("overflow     none, and no tensor came beyond {} of its limit", percent(NEAR)))?
        }
        (0, false) => print::line("overflow     none; tensors that came near their limit:")?,
        (count, _) => print::line(&format!(
            "overflow     ON {count} INPUTS: their answers are wrong, where no client refuses them; {}:",
            checked.advice.as_deref().unwrap_or_default()
        ))?,
    }
    for s in checked.strained.iter().take(MAX_LISTED) {
        let name: String = s.node.chars().take(40).collect();
        print::line(&format!(
            "  {name:<40} up to {:>7.1} % of its limit; near it on {} inputs, beyond on {}",
            100.0 * s.share,
            s.near,
            s.overflowed
        ))?;
    }
    match checked.strained.len().saturating_sub(MAX_LISTED) {
        0 => Ok(()),
        count => print::line(&format!("  and {count} more")),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
