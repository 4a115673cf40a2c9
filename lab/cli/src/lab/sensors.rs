//! `tacit lab sensors`: lists the power sources, and whether they react to load on this machine.
use anyhow::{Result, bail};
use serde::Serialize;
use tacit_cli::print;
use tacit_measure::device::DeviceProfile;
use tacit_meter::source::{
    Detected, Outcome, Roots, SelfTest, SelfTestReport, Source, SourceInfo, ThisMachine, detect, open, self_test,
};

const HELP: &str = "\
The list has the order of preference: external meter, hwmon, INA3221, tegrastats, RAPL, NVML, then sensors of a part of the machine.
--self-test reads each source at rest and with all cores busy, and refuses a source whose value does not rise; keep the machine
otherwise idle meanwhile. docs/lab.md describes how to connect a sensor.
Examples:
  tacit lab sensors
  sudo tacit lab sensors --self-test
  tacit lab sensors --source external:/run/meter.csv --self-test
  tacit lab sensors --source 'external:http://plug.local/rpc/Switch.GetStatus?id=0#watts=/apower'";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Source to list alone: a name from the list, external:FILE.csv, external:URL, replay:FILE or
    /// model:PROFILE[/MODE]; may be repeated
    #[arg(long, help_heading = "Device")]
    source: Vec<String>,
    /// Read each source at rest and with all cores busy
    #[arg(long, help_heading = "Device")]
    self_test: bool,
    /// Number of readings at rest, and of readings under load
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=10_000), requires = "self_test")]
    #[arg(help_heading = "Limits")]
    readings: u32,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    place: String,
    usable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<SourceInfo>,
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    self_test: Option<SelfTestReport>,
}

pub fn run(args: &Args) -> Result<()> {
    let roots = Roots::system();
    let sources: Vec<Detected> = if args.source.is_empty() {
        detect(&roots)
    } else {
        args.source.iter().map(|name| detect_named(name, &roots)).collect()
    };
    let plan = args.self_test.then(|| SelfTest { readings: args.readings, ..SelfTest::default() });
    let mut entries = Vec::new();
    for detected in sources {
        entries.push(entry(detected, plan.as_ref())?);
    }
    if args.json {
        print::line(&serde_json::to_string_pretty(&entries)?)?;
    } else {
        show(&entries)?;
    }
    if args.self_test && !entries.iter().any(|e| e.usable) {
        bail!("no power source passed the self-test");
    }
    if !args.source.is_empty() && entries.iter().any(|e| !e.usable) {
        bail!("a source of --source cannot be used; the list above has the reason and a remedy");
    }
    Ok(())
}

fn detect_named(name: &str, roots: &Roots) -> Detected {
    let outcome = match open(name, roots) {
        Ok(source) => Outcome::Usable(source),
        Err(tacit_meter::MeterError::Source { reason, remedy, .. }) => Outcome::Unusable { reason, remedy },
        Err(error) => Outcome::Unusable { reason: error.to_string(), remedy: "see docs/lab.md".into() },
    };
    Detected { name: name.into(), place: name.into(), notes: Vec::new(), outcome }
}

fn entry(detected: Detected, plan: Option<&SelfTest>) -> Result<Entry> {
    let Detected { name, place, notes, outcome } = detected;
    let mut entry =
        Entry { name, place, usable: false, info: None, notes, reason: None, remedy: None, self_test: None };
    match outcome {
        Outcome::Unusable { reason, remedy } => (entry.reason, entry.remedy) = (Some(reason), Some(remedy)),
        Outcome::Usable(mut source) => {
            entry.usable = true;
            entry.info = Some(source.info().clone());
            if let Some(plan) = plan {
                test(&mut *source, plan, &mut entry)?;
            }
        }
    }
    Ok(entry)
}

fn test(source: &mut dyn Source, plan: &SelfTest, entry: &mut Entry) -> Result<()> {
    print::note(&format!("testing {}: at rest, then with all cores busy...", entry.name));
    match self_test(source, &mut ThisMachine::new()?, plan) {
        Ok(report) => entry.self_test = Some(report),
        Err(tacit_meter::MeterError::Source { reason, remedy, .. }) => {
            (entry.usable, entry.reason, entry.remedy) = (false, Some(reason), Some(remedy));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Prints a line below the name of a source.
fn print_detail(text: &str) -> Result<()> {
    print::line(&format!("            {text}"))
}

fn show(entries: &[Entry]) -> Result<()> {
    for entry in entries.iter().filter(|e| e.usable) {
        show_usable(entry)?;
    }
    for entry in entries.iter().filter(|e| !e.usable) {
        print::line(&format!("not usable  {}", entry.name))?;
        print_detail(entry.reason.as_deref().unwrap_or_default())?;
        print_detail(&format!("what to do: {}", entry.remedy.as_deref().unwrap_or_default()))?;
    }
    if !entries.iter().any(|e| e.usable) {
        let profiles: Vec<&str> = DeviceProfile::names().collect();
        print::line(&format!(
            "\nThere is no power sensor here. CPU time, bytes and messages are recorded all the same, joules are left out;\n\
             with model:PROFILE they are computed and marked as modelled. Profiles: {}.",
            profiles.join(", ")
        ))?;
    }
    Ok(())
}

fn show_usable(entry: &Entry) -> Result<()> {
    print::line(&format!("usable      {}", entry.name))?;
    if entry.place != entry.name {
        print_detail(&format!("at {}", entry.place))?;
    }
    if let Some(info) = &entry.info {
        let (counted_rails, other_rails) = (rails(info, true), rails(info, false));
        print_detail(&format!("counts {}", counted_rails.join(" + ")))?;
        if !other_rails.is_empty() {
            print_detail(&format!("also reads {}", other_rails.join(", ")))?;
        }
        print_detail(&format!("{}, at most every {} ms", info.provenance.name(), info.min_interval_ms))?;
    }
    entry.notes.iter().try_for_each(|note| print_detail(note))?;
    if let Some(report) = &entry.self_test {
        let (idle, load) = (&report.idle, &report.load);
        print_detail(&format!(
            "self-test passed: {:.3} W (SD {:.3}) at rest, {:.3} W (SD {:.3}) with all cores busy",
            idle.mean_w, idle.sd_w, load.mean_w, load.sd_w
        ))?;
        if report.is_coarse() {
            print_detail(&format!(
                "coarse: steps of {:.3} W, so each reading is uncertain by about {:.3} W",
                report.resolution_w,
                report.resolution_w / 12.0_f64.sqrt()
            ))?;
        }
    }
    Ok(())
}

/// Names the rails that a source counts, or the other rails.
fn rails(info: &SourceInfo, counted: bool) -> Vec<&str> {
    info.rails.iter().filter(|r| r.counted == counted).map(|r| r.name.as_str()).collect()
}
