//! `tacit lab calibrate`: the coefficients of the energy model from a power sensor.
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tacit_cli::print;
use tacit_meter::source::calibrate::{Fit, Plan, Step, fit, loads, measure};
use tacit_meter::source::{
    Detected, Exercise, Provenance, Roots, SelfTest, Source, ThisMachine, detect, open, self_test,
};

const HELP: &str = "\
The command needs a power sensor (tacit lab sensors) and an otherwise idle machine. It reads the power while 0, 1, ... all cores are
busy, then with a stream over the loopback interface, then back down, and fits by least squares. Loopback traffic crosses no network
card, so the joules per byte are a lower bound. Without a sensor, use the profile as --source model:FILE.
Example:
  sudo tacit lab calibrate --name my-board -o my-board.toml";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Name of the device: lower-case letters, digits, dots and hyphens
    #[arg(long, help_heading = "Device")]
    name: String,
    /// Profile to write; the file must not exist
    #[arg(short, long, help_heading = "Output")]
    output: PathBuf,
    /// Power source (see tacit lab sensors) [default: the first usable source]
    #[arg(long, help_heading = "Device")]
    source: Option<String>,
    /// Seconds per step
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    #[arg(help_heading = "Limits")]
    seconds: u64,
}

pub fn run(args: &Args) -> Result<()> {
    if args.output.exists() {
        bail!("{} exists already; remove it or choose another name", args.output.display());
    }
    let mut source = sensor(args.source.as_deref())?;
    let sensor = source.info().name.clone();
    let mut machine = ThisMachine::new()?;
    print::note(&format!("testing {sensor}..."));
    self_test(&mut *source, &mut machine, &SelfTest::default())?;
    let plan = Plan { step: Duration::from_secs(args.seconds), settle: Duration::from_secs(1) };
    let load_count = loads(machine.cores()).len();
    print::note(&format!(
        "{load_count} steps of {} s, about {} s in all",
        args.seconds,
        load_count as u64 * (args.seconds + 2)
    ));
    let mut number = 0;
    let steps = measure(&mut *source, &mut machine, &plan, |load| {
        number += 1;
        let stream = if load.network { ", one loopback stream" } else { "" };
        print::note(&format!("step {number} of {load_count}: {} cores busy{stream}", load.cores));
    })?;
    let fit = fit(&steps)?;
    show(&steps, &fit)?;
    let text = fit.profile(&args.name, &sensor)?.to_toml()?;
    let mut file = std::fs::File::create_new(&args.output).with_context(|| args.output.display().to_string())?;
    file.write_all(text.as_bytes()).with_context(|| args.output.display().to_string())?;
    print::line(&format!("written: {}; use it as --source model:{}", args.output.display(), args.output.display()))
}

fn sensor(name: Option<&str>) -> Result<Box<dyn Source>> {
    let roots = Roots::system();
    let source = match name {
        Some(name) => open(name, &roots)?,
        None => match detect(&roots).into_iter().find(Detected::is_usable) {
            Some(detected) => detected.into_source()?,
            None => bail!(
                "there is no power sensor to calibrate with; `tacit lab sensors` lists reasons and remedies, \
                 and the model can use a built-in device profile instead"
            ),
        },
    };
    if source.info().provenance != Provenance::Measured {
        bail!("{} is computed, not measured; calibrate with a sensor", source.info().name);
    }
    Ok(source)
}

fn show(steps: &[Step], fit: &Fit) -> Result<()> {
    print::line(&format!("{:>10} {:>10} {:>12}", "watts", "cores", "MB/s"))?;
    for step in steps {
        print::line(&format!("{:>10.3} {:>10.3} {:>12.1}", step.watts, step.cores, step.bytes_per_s / 1e6))?;
    }
    print::line(&format!("base         {:.3} W (standard error {:.3})", fit.base_w.value, fit.base_w.error))?;
    print::line(&format!("per core     {:.3} W (standard error {:.3})", fit.w_per_core.value, fit.w_per_core.error))?;
    match &fit.j_per_byte {
        Some(number) => {
            print::line(&format!("per byte     {:.3e} J (standard error {:.1e})", number.value, number.error))?
        }
        None => print::line("per byte     nothing beyond its CPU time")?,
    }
    print::line(&format!("residual     {:.3} W over {} steps", fit.residual_w, fit.steps))
}
