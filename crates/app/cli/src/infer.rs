//! `tacit infer`: classifies inputs privately.
use crate::choose::{ChooseArgs, Chosen, choose};
use crate::connect::{Connect, Startup};
use crate::print;
use anyhow::Context;
use clap::ValueEnum;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_client::bench::phase_figures;
use tacit_client::input::{self, Fit};
use tacit_client::wire::{Deadline, InputId, Terms};
use tacit_client::{Answer, BatchPart, Client, ClientError, Progress, infer_many};
use tacit_graph::{Interface, OutputMode, Units};
use tacit_measure::clock::process_cpu_s;
use tacit_program::args::count;

/// Classify images or arrays privately: the server sees no input
///
/// The command uses stored material first (`tacit prepare`): material for single inputs before
/// material for batches. Without stored material, the parties answer as many inputs as they allow
/// as one batch. Batches run in a pipeline: the offline phase of the next batch runs during the
/// online phase of the current one.
///
/// With --json, each input gives one JSON object. The first object also has `startup`: the times of
/// connecting, opening the model and reading the inputs. An input outside of the accepted range
/// fails alone: its object has `error`, the other inputs are answered, and the command ends with 1.
/// `batch` has an input's place in its batch and the size of the batch. The first input of a batch
/// has the `phases` of all. Bytes are those of the protocol, before TLS.
///
/// --client-work, --client-joules and --client-cpu-s choose among the back ends that the server
/// offers. The planner predicts the costs to this client. A back end with a dealer counts only if
/// --dealer names the dealer.
///
/// Examples: tacit infer photo.jpg --model squeezenet --labels imagenet.txt
///           tacit infer photo.jpg --client-work min --plan-device pi4b --plan-link 20mbit/40ms
///           tacit infer batch.npy --model digits --json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Images (PNG, JPEG), or arrays of one input or of N inputs [N, C, H, W]: .npy, .npz with one
    /// array, FILE.npz:NAME
    #[arg(required = true, value_name = "FILE")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    choose: ChooseArgs,
    /// File with one class name per line
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    labels: Option<PathBuf>,
    /// Number of classes to show for each input
    #[arg(long, default_value_t = 5, value_parser = count(1_000_000), help_heading = "Output")]
    top: usize,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Seconds from the request until the answer is of no more use; a busy server may let the input
    /// wait
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    #[arg(help_heading = "Limits")]
    timeout: Option<u64>,
    /// Most inputs to answer as one batch, in the exchanges of one input; 1 answers each input
    /// alone
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count(32))]
    #[arg(help_heading = "Limits", hide_short_help = true)]
    batch: usize,
    /// Urgency of the answers, for the server's queue
    #[arg(long, value_enum, default_value_t = DeadlineArg::Normal, help_heading = "Limits", hide_short_help = true)]
    deadline: DeadlineArg,
    /// Name of an announced input (`tacit notify`), under which its material is made. Give as many
    /// inputs as the notice has: with fewer, the rest of the material is burnt
    #[arg(long, value_name = "NAME", help_heading = "Input", hide_short_help = true)]
    notice: Option<InputId>,
    /// Show the costs of each phase, and of the steps before the first phase
    #[arg(long, help_heading = "Output")]
    phases: bool,
}

#[derive(clap::Args)]
struct ReadingArgs {
    /// Way to bring images of another size to the model's size
    #[arg(long, value_enum, default_value_t = FitArg::Crop, help_heading = "Input", hide_short_help = true)]
    fit: FitArg,
    /// Read arrays of numbers as raw pixels, not as inputs of the ONNX network; arrays of bytes are
    /// raw pixels in any case
    #[arg(long, help_heading = "Input")]
    raw: bool,
    /// Read arrays of numbers as normalised values, which the model computes on; they are neither
    /// pixels nor inputs of the ONNX network
    #[arg(long, conflicts_with = "raw", help_heading = "Input", hide_short_help = true)]
    normalised: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum FitArg {
    /// Scale the short side to 8/7 of the model's, then take the centre (usual for ImageNet)
    Crop,
    /// Scale the short side to the model's, then take the centre
    Fill,
    /// Scale both sides to the model's
    Stretch,
}

#[derive(Clone, Copy, ValueEnum)]
enum DeadlineArg {
    /// A person waits for the answer
    Interactive,
    /// The usual urgency
    Normal,
    /// The answer may wait until the server has room
    Batch,
}

impl Args {
    fn terms(&self) -> Terms {
        let deadline = match self.deadline {
            DeadlineArg::Interactive => Deadline::Interactive,
            DeadlineArg::Normal => Deadline::Normal,
            DeadlineArg::Batch => Deadline::Batch,
        };
        Terms { timeout_ms: self.timeout.map(|seconds| seconds * 1000), deadline }
    }

    fn units(&self) -> Units {
        match (self.reading.raw, self.reading.normalised) {
            (true, _) => Units::Pixels,
            (_, true) => Units::Normalised,
            _ => Units::Network,
        }
    }
}

struct Printer<'a> {
    args: &'a Args,
    json: bool,
    startup: Startup,
    chosen: Option<Chosen>,
    labels: Vec<String>,
    mode: OutputMode,
    names: Vec<String>,
}

pub fn run(args: Args, json: bool) -> anyhow::Result<()> {
    let labels = args.labels.as_deref().map(read_labels).transpose()?.unwrap_or_default();
    // A file may hold many inputs, which share the work that is done once.
    let mut read = None;
    let chosen = match args.choose.work.is_asked() {
        true => Some(choose(&args.choose, &args.connect, |interface| {
            let (_, batch) = read.insert((interface.clone(), read_inputs(&args, interface)?));
            Ok(batch.inputs.len())
        })?),
        false => None,
    };
    let (mut client, mut startup) = match &chosen {
        Some(chosen) => args.connect.open_with(false, Some(&chosen.backend))?,
        None => args.connect.open(false)?,
    };
    client.set_terms(args.terms());
    client.set_max_batch(args.batch);
    let opened = Instant::now();
    let InputBatch { inputs, names, refused } = match read.filter(|(read_for, _)| read_for == client.interface()) {
        Some((_, read)) => read,
        None => read_inputs(&args, client.interface())?,
    };
    startup.inputs_s = opened.elapsed().as_secs_f64();
    startup.cpu_s = process_cpu_s();
    let mode = client.interface().output_mode;
    let printer = Printer { args: &args, json, startup, chosen, labels, mode, names };
    refused.iter().try_for_each(|refused| printer.print_refused(refused))?;
    let answered = match args.notice {
        Some(name) => answer_announced(&mut client, name, &inputs, &printer),
        None => answer_all(&mut client, &inputs, &printer),
    };
    if let Err(error) = &answered
        && !error.downcast_ref().is_some_and(ClientError::refuses_answer)
    {
        return answered;
    }
    // A refused answer ends the connection with a goodbye as an accepted one does.
    client.close()?;
    answered?;
    let total = inputs.len() + refused.len();
    anyhow::ensure!(refused.is_empty(), "{} of {total} inputs were refused, the others are answered", refused.len());
    Ok(())
}

#[derive(Default)]
struct InputBatch {
    inputs: Vec<Vec<f32>>,
    /// A name for each input.
    names: Vec<String>,
    /// Inputs outside the accepted range.
    refused: Vec<Refused>,
}

struct Refused {
    name: String,
    reason: String,
}

/// Reads the files. Fails if the model accepts no input in them.
fn read_inputs(args: &Args, interface: &Interface) -> anyhow::Result<InputBatch> {
    let fit = match args.reading.fit {
        FitArg::Crop => Fit::Crop,
        FitArg::Fill => Fit::Fill,
        FitArg::Stretch => Fit::Stretch,
    };
    let mut batch = InputBatch::default();
    for path in &args.inputs {
        let read = input::read(path, interface, fit, args.units())?;
        anyhow::ensure!(!read.is_empty(), "{}: holds no input", path.display());
        for (i, values) in read.into_iter().enumerate() {
            let name = if i == 0 { path.display().to_string() } else { format!("{}[{i}]", path.display()) };
            match interface.check_input(&values) {
                Ok(()) => {
                    batch.inputs.push(values);
                    batch.names.push(name);
                }
                Err(reason) => batch.refused.push(Refused { name, reason: reason.to_string() }),
            }
        }
    }
    match batch.refused.first() {
        Some(Refused { name, reason }) if batch.inputs.is_empty() => {
            let others = batch.refused.len() - 1;
            let others = if others == 0 { String::new() } else { format!(" (and {others} more inputs are refused)") };
            anyhow::bail!("{name}: {reason}{others}")
        }
        _ => Ok(batch),
    }
}

/// Answers the inputs that were announced under a name.
fn answer_announced(
    client: &mut Client,
    name: InputId,
    inputs: &[Vec<f32>],
    printer: &Printer<'_>,
) -> anyhow::Result<()> {
    // A notice that the server no longer knows gives no size: the inputs are asked as usual.
    let size = client.notices()?.state(name, Duration::ZERO)?.map_or(inputs.len(), |standing| standing.inputs);
    let input_count = inputs.len();
    anyhow::ensure!(
        input_count <= size,
        "--notice is for {size}, and there are {input_count} inputs: give at most {size}"
    );
    let mut maker = client.connect_again()?;
    let granted = maker.ask_batch(size)?;
    anyhow::ensure!(
        granted == size,
        "--notice is for {size} inputs, and the server now runs {granted} as one batch: announce fewer inputs"
    );
    let announced = client.take_up(maker, name)?;
    let (answers, maker) = client.infer_announced_batch(announced, Units::Normalised, inputs, |_| ())?;
    maker.map_or(Ok(()), Client::close)?;
    answers.iter().enumerate().try_for_each(|(index, answer)| printer.print(index, answer))
}

/// Uses stored material while it lasts, and answers the rest in a pipeline.
fn answer_all(client: &mut Client, inputs: &[Vec<f32>], printer: &Printer<'_>) -> anyhow::Result<()> {
    let bar = print::bar(inputs.len(), "inferring");
    let progress = Arc::<Progress>::default();
    print::tell_phases(&bar, Arc::clone(&progress), client.model().costs().setup.up_bytes);
    client.set_progress(Some(progress));
    client.begin_call(inputs.len())?;
    let mut done = 0;
    while let remaining @ 1.. = inputs.len() - done
        && (remaining == 1 || client.next_stored(remaining)?.is_some())
    {
        for answer in client.infer_next(Units::Normalised, &inputs[done..])? {
            printer.print_above(&bar, done, &answer)?;
            done += 1;
        }
    }
    if done < inputs.len() {
        let mut print_result = Ok(());
        infer_many(client, Units::Normalised, &inputs[done..], |index, answer| {
            // An answer that cannot be printed fails the command at the end; the server still
            // answers the remaining inputs.
            if print_result.is_ok() {
                print_result = printer.print_above(&bar, done + index, &answer);
            }
            Ok(())
        })?;
        print_result?;
    }
    bar.finish_and_clear();
    Ok(())
}

impl Printer<'_> {
    fn label(&self, class: usize) -> String {
        self.labels.get(class).map_or_else(|| format!("class {class}"), |name| format!("{class} {name}"))
    }

    fn print_refused(&self, Refused { name, reason }: &Refused) -> anyhow::Result<()> {
        match self.json {
            true => print::line(&json!({ "input": name, "error": reason }).to_string()),
            false => {
                print::note(&format!("error: {name}: {reason}"));
                Ok(())
            }
        }
    }

    /// Returns classes and their values, the largest first; a top-1 model gives one class without a
    /// value.
    fn ranking(&self, answer: &Answer) -> Vec<(usize, Option<f64>)> {
        if self.mode == OutputMode::Top1 {
            return vec![(answer.class, None)];
        }
        let mut order: Vec<usize> = (0..answer.values.len()).collect();
        order.sort_by(|&a, &b| tacit_floats::falling(&answer.values[a], &answer.values[b]).then(a.cmp(&b)));
        order.into_iter().take(self.args.top).map(|c| (c, Some(answer.values[c]))).collect()
    }

    fn print_above(&self, bar: &indicatif::ProgressBar, index: usize, answer: &Answer) -> anyhow::Result<()> {
        bar.suspend(|| self.print(index, answer))?;
        bar.inc(1);
        Ok(())
    }

    fn print(&self, index: usize, answer: &Answer) -> anyhow::Result<()> {
        if let Some(faint) = answer.faint {
            print::note(&format!("warning: {}: {faint}", self.names[index]));
        }
        let ranking = self.ranking(answer);
        if self.json {
            let top: Vec<_> = ranking
                .iter()
                .map(|(class, value)| json!({"class": class, "label": self.labels.get(*class), "value": value}))
                .collect();
            let phases: serde_json::Map<_, _> =
                self.phases(answer).into_iter().map(|(n, r)| (n.to_owned(), json!(phase_figures(r)))).collect();
            let mut answer = json!({"input": self.names[index], "id": answer.name.to_string(), "class": answer.class,
                "label": self.labels.get(answer.class), "top": top, "values": answer.values,
                "request_to_answer_s": answer.request_to_answer_s, "batch": [answer.part.index, answer.part.inputs],
                "faint": answer.faint, "phases": phases});
            if index == 0 {
                answer["startup"] = json!(self.startup);
                if let Some(chosen) = &self.chosen {
                    answer["chosen"] = json!(chosen);
                }
            }
            return print::line(&answer.to_string());
        }
        print::line(&self.names[index])?;
        for (class, value) in ranking {
            match value {
                Some(value) => print::line(&format!("  {value:>10.4}  {}", self.label(class)))?,
                None => print::line(&format!("  {}", self.label(class)))?,
            }
        }
        if self.args.phases {
            if index == 0 {
                print::line(&format!("  {}", self.startup))?;
            }
            match answer.part {
                BatchPart { inputs: 1, .. } => {}
                BatchPart { index: 0, inputs } => print::line(&format!("  {inputs} inputs as one:"))?,
                BatchPart { index, inputs } => {
                    print::line(&format!("  as one with the others: {} of {inputs}", index + 1))?
                }
            }
            for (name, report) in self.phases(answer) {
                print::line(&format!("  {}", print::phase_line(name, report)))?;
            }
        }
        Ok(())
    }

    /// Returns the reports of the phases; the first input of a batch stands for all.
    fn phases<'a>(&self, answer: &'a Answer) -> Vec<(&'static str, &'a tacit_client::PhaseReport)> {
        if answer.part.index > 0 {
            return vec![];
        }
        let setup = answer.setup.as_ref().map(|r| ("setup", r));
        let offline = answer.prepared.as_ref().map(|p| ("offline", &p.offline));
        setup.into_iter().chain(offline).chain([("online", &answer.online)]).collect()
    }
}

fn read_labels(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = crate::files::read_text(path).context("labels")?;
    Ok(text.lines().map(str::to_owned).collect())
}
