//! `tacit lab mark`: phase marks from a shell script.
use anyhow::{Context, bail};
use clap::ValueEnum;
use tacit_measure::mark::MarkSender;

/// Mark the begin or end of a phase, for the measurement that runs this script
///
/// Without a measurement (TACIT_MARKS is not set) the command does nothing.
///
/// Example: tacit lab mark begin online; ./step; tacit lab mark end online sent_bytes=1000
#[derive(clap::Args)]
pub struct Args {
    /// Event to mark
    #[arg(value_enum)]
    what: What,
    /// Name of the phase: A-Z a-z 0-9 _ . -
    phase: String,
    /// Figures of the phase, for its end: KEY=NUMBER
    figures: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
enum What {
    /// The phase begins
    Begin,
    /// The phase ends
    End,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut figures = Vec::new();
    for text in &args.figures {
        let (key, value) = text.split_once('=').with_context(|| format!("{text:?} is no figure: write KEY=NUMBER"))?;
        figures.push((key, value.parse::<f64>().with_context(|| format!("{value:?} is no number"))?));
    }
    if args.what == What::Begin && !figures.is_empty() {
        bail!("figures belong at the end of a phase: leave the figures out of `begin`");
    }
    let Some(sender) = MarkSender::from_env("program")? else { return Ok(()) };
    match args.what {
        What::Begin => sender.begin(&args.phase)?,
        What::End => sender.end(&args.phase, &figures)?,
    }
    Ok(())
}
