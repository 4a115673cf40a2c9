//! An experiment, checked.
use super::command::{CommandLine, is_name_byte, names};
use super::spec::{ExperimentSpec, LinkText, WorkloadSpec};
use crate::LabError;
use crate::transport::TransportKind;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tacit_net::Rate;
use tacit_net::link::LinkSpec;

/// Most cells of an experiment, and most runs.
const MAX_CELLS: usize = 10_000;
const MAX_RUNS: usize = 1_000_000;

/// A checked experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    spec: ExperimentSpec,
    links: Vec<Link>,
    transports: Vec<TransportKind>,
    paces: Vec<Option<Rate>>,
    workloads: Vec<Workload>,
}

/// The place where a cell's programs run.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name in records and tables.
    pub name: String,
    /// The link; `None` for loopback on this host.
    pub spec: Option<LinkSpec>,
}

/// The programs of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// The client's command.
    pub client: CommandLine,
    /// The server's command.
    pub server: Option<CommandLine>,
    /// The dealer's command.
    pub dealer: Option<CommandLine>,
    /// Text that the server prints when ready.
    pub ready: Option<String>,
    /// Environment variables of both, with placeholders.
    pub environment: BTreeMap<String, String>,
    /// Estimated length on an unlimited link.
    pub takes: Duration,
    /// Estimated bytes over the link.
    pub moves_bytes: u64,
    /// Estimated round trips.
    pub round_trips: f64,
}

impl Workload {
    /// Whether a command or the environment uses this placeholder.
    pub(super) fn uses(&self, name: &str) -> bool {
        let commands = [Some(&self.client), self.server.as_ref(), self.dealer.as_ref()];
        commands.into_iter().flatten().any(|c| c.placeholders().contains(name))
            || self.environment.values().any(|v| names(v).contains(&name))
    }
}

impl Experiment {
    /// Checks a specification.
    ///
    /// # Errors
    /// [`LabError::Spec`] with the key, the value and the expected form.
    pub fn new(spec: ExperimentSpec) -> Result<Self, LabError> {
        check_name("name", &spec.name)?;
        check_numbers(&spec)?;
        check_values(&spec)?;
        let links = read_each("links", &spec.links, read_link)?;
        let transports = read_each("transports", &spec.transports, |key, text| read_transport(key, text))?;
        let paces = read_each("paces", &spec.paces, |key, text| read_pace(key, text))?;
        let workloads = read_each("workloads", &spec.workloads, |key, text| read_workload(key, text, &spec))?;
        unique("links", links.iter().map(|l| l.name.clone()))?;
        unique("transports", transports.iter().map(|t: &TransportKind| t.to_string()))?;
        unique("paces", paces.iter().map(|p: &Option<Rate>| p.map_or("none".into(), |p| p.to_string())))?;
        unique("workloads", workloads.iter().map(|w| w.name.clone()))?;
        check_size(&spec)?;
        let experiment = Self { spec, links, transports, paces, workloads };
        experiment.check_fit()?;
        Ok(experiment)
    }

    /// Checks that every transport and pace affects every workload; otherwise cells would differ in
    /// name only.
    fn check_fit(&self) -> Result<(), LabError> {
        for (i, workload) in self.workloads.iter().enumerate() {
            let key = format!("workloads[{i}]");
            let name = &workload.name;
            for transport in &self.transports {
                if transport.uses_tls() && !workload.uses("transport") {
                    let detail = format!(
                        "`{name}` does not use {{transport}}, so it cannot run over {transport}: pass {{transport}} (and {{keys}}) to \
                         programs that take them, or leave only plain and wireguard in `transports`"
                    );
                    return Err(wrong(&key, &detail));
                }
                if transport.is_tunnelled() && self.links.iter().any(|l| l.spec.is_none()) {
                    let detail = format!("{transport} needs a link; `links` has none: use a preset, such as lan");
                    return Err(wrong("transports", &detail));
                }
            }
            if self.paces.iter().any(Option::is_some) && !(workload.uses("pace") || workload.uses("pace_bps")) {
                let detail =
                    format!("`{name}` uses neither {{pace}} nor {{pace_bps}}, so `paces` would change nothing");
                return Err(wrong(&key, &detail));
            }
        }
        Ok(())
    }

    /// The specification with defaults filled in.
    #[must_use]
    pub fn spec(&self) -> &ExperimentSpec {
        &self.spec
    }

    /// The links, at least one.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The transports, at least one.
    #[must_use]
    pub fn transports(&self) -> &[TransportKind] {
        &self.transports
    }

    /// The paces, at least one.
    #[must_use]
    pub fn paces(&self) -> &[Option<Rate>] {
        &self.paces
    }

    /// The workloads, at least one.
    #[must_use]
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// The same experiment with `seed` for its order, unless it has its own seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        // TOML integers have 63 bits.
        self.spec.seed.get_or_insert(seed >> 1);
        self
    }
}

fn wrong(key: &str, detail: &str) -> LabError {
    LabError::Spec { what: key.into(), detail: detail.into() }
}

fn prefix_key(key: &str, error: &LabError) -> LabError {
    wrong(key, &error.to_string())
}

fn check_name(key: &str, name: &str) -> Result<(), LabError> {
    let is_fine = name.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_+".contains(&c));
    if name.is_empty() || name.len() > 64 || !is_fine {
        return Err(wrong(key, &format!("`{name}` is no name: 1 to 64 letters, digits and . - _ +")));
    }
    Ok(())
}

fn check_numbers(spec: &ExperimentSpec) -> Result<(), LabError> {
    let counts = [("repetitions", spec.repetitions, 1, 10_000), ("warm_up", spec.warm_up, 0, 100)];
    for (key, value, low, high) in counts {
        if !(low..=high).contains(&value) {
            return Err(wrong(key, &format!("{value} must be a number from {low} to {high}")));
        }
    }
    let day = 86_400.0;
    let seconds = [
        ("cool_down_s", spec.cool_down_s, 0.0, 3600.0),
        ("interval_s", spec.interval_s, 0.001, 60.0),
        ("idle_s", spec.idle_s, 0.0, day),
        ("timeout_s", spec.timeout_s, 0.1, day),
        ("seconds", spec.seconds, 0.1, day),
        ("measure_s", spec.measure_s, 0.0, 60.0),
    ];
    for (key, value, low, high) in seconds {
        check_seconds(key, value, low, high)?;
    }
    for (i, fewer) in spec.fewer.iter().enumerate() {
        check_seconds(&format!("fewer[{i}].above_s"), fewer.above_s, 0.0, 30.0 * day)?;
        let longer = i == 0 || fewer.above_s > spec.fewer[i - 1].above_s;
        if fewer.repetitions > spec.repetitions || !longer {
            let detail = "give the entries by their length, none with more than `repetitions`";
            return Err(wrong(&format!("fewer[{i}]"), detail));
        }
    }
    Ok(())
}

fn check_seconds(key: &str, value: f64, low: f64, high: f64) -> Result<(), LabError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(wrong(key, &format!("{value} must be a number of seconds from {low} to {high}")))
}

fn check_values(spec: &ExperimentSpec) -> Result<(), LabError> {
    for (name, value) in &spec.values {
        let key = format!("values.{name}");
        if name.is_empty() || !name.bytes().all(is_name_byte) {
            return Err(wrong(&key, "a placeholder's name has lower-case letters, digits and underscores"));
        }
        if super::command::PLACEHOLDERS.contains(&name.as_str()) {
            return Err(wrong(&key, &format!("{{{name}}} has a meaning already; choose another name")));
        }
        if let Some(unknown) = names(value).into_iter().find(|n| *n != "campaign") {
            return Err(wrong(&key, &format!("a value may use {{campaign}} only, not {{{unknown}}}")));
        }
    }
    for (key, missing) in [
        ("links", spec.links.is_empty()),
        ("transports", spec.transports.is_empty()),
        ("paces", spec.paces.is_empty()),
        ("workloads", spec.workloads.is_empty()),
    ] {
        if missing {
            return Err(wrong(key, "is empty, so that nothing would run; give at least one"));
        }
    }
    Ok(())
}

/// Checks the size of the matrix before any allocation of that size.
fn check_size(spec: &ExperimentSpec) -> Result<(), LabError> {
    let lists = [spec.links.len(), spec.transports.len(), spec.paces.len(), spec.workloads.len()];
    let cells = lists.into_iter().fold(1, usize::saturating_mul);
    let runs = cells.saturating_mul(spec.repetitions as usize + spec.warm_up as usize);
    if cells > MAX_CELLS || runs > MAX_RUNS {
        let detail =
            format!("{cells} cells and {runs} runs are too many: at most {MAX_CELLS} cells and {MAX_RUNS} runs");
        return Err(wrong("links x transports x paces x workloads", &detail));
    }
    Ok(())
}

fn unique(key: &str, names: impl Iterator<Item = String>) -> Result<(), LabError> {
    let mut names_seen = BTreeSet::new();
    for name in names {
        if !names_seen.insert(name.clone()) {
            return Err(wrong(key, &format!("`{name}` is there twice; each must have a name of its own")));
        }
    }
    Ok(())
}

/// Parses the entries of the list `name`; `read` gets the key and the text of each.
fn read_each<T, U>(
    name: &str,
    entries: &[T],
    read: impl Fn(&str, &T) -> Result<U, LabError>,
) -> Result<Vec<U>, LabError> {
    entries.iter().enumerate().map(|(i, entry)| read(&format!("{name}[{i}]"), entry)).collect()
}

fn read_link(key: &str, text: &LinkText) -> Result<Link, LabError> {
    match text {
        LinkText::Name(name) if name == "none" => Ok(Link { name: "none".into(), spec: None }),
        LinkText::Name(name) => match LinkSpec::preset(name) {
            Some(spec) => Ok(Link { name: spec.name().to_owned(), spec: Some(spec) }),
            None => {
                let presets: Vec<&str> = tacit_net::link::PRESETS.iter().map(|p| p.name).collect();
                let detail = format!(
                    "there is no link preset `{name}`; there are {}; or none for loopback, or a table like {{ rate = \"20mbit\", rtt = \
                     \"40ms\" }}",
                    presets.join(", ")
                );
                Err(wrong(key, &detail))
            }
        },
        LinkText::Table(table) => {
            let spec = LinkSpec::parse(table).map_err(|e| prefix_key(key, &e.into()))?;
            Ok(Link { name: spec.name().to_owned(), spec: Some(spec) })
        }
    }
}

fn read_transport(key: &str, text: &str) -> Result<TransportKind, LabError> {
    text.parse().map_err(|e| prefix_key(key, &e))
}

fn read_pace(key: &str, text: &str) -> Result<Option<Rate>, LabError> {
    match text {
        "none" => Ok(None),
        rate => rate.parse().map(Some).map_err(|e| wrong(key, &format!("{e}; or none"))),
    }
}

fn read_workload(key: &str, text: &WorkloadSpec, spec: &ExperimentSpec) -> Result<Workload, LabError> {
    check_name(&format!("{key}.name"), &text.name)?;
    let [client, server, dealer] = ["client", "server", "dealer"].map(|part| format!("{key}.{part}"));
    let client = CommandLine::parse(&client, &text.client, &spec.values)?;
    let server = text.server.as_deref().map(|line| CommandLine::parse(&server, line, &spec.values)).transpose()?;
    let dealer = text.dealer.as_deref().map(|line| CommandLine::parse(&dealer, line, &spec.values)).transpose()?;
    if text.ready.as_deref().is_some_and(str::is_empty) {
        return Err(wrong(
            &format!("{key}.ready"),
            "is empty; leave it out, and the server is ready when it listens at {port}",
        ));
    }
    if text.ready.is_some() && server.is_none() {
        return Err(wrong(&format!("{key}.ready"), "there is no server to be ready; add `server`"));
    }
    if dealer.is_some() && server.is_none() {
        return Err(wrong(&format!("{key}.dealer"), "there is no server to deal for; add `server`"));
    }
    for (name, value) in &text.environment {
        let key = format!("{key}.environment.{name}");
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(wrong(&key, "an environment variable has a name without `=`, and no zero bytes"));
        }
        if names(value).contains(&"pace") {
            return Err(wrong(&key, "{pace} is for commands; use {pace_bps}"));
        }
        // Finds unknown names as in a command; the quotes preserve the value as one word.
        CommandLine::parse(&key, &format!("x '{}'", value.replace('\'', "")), &spec.values)?;
    }
    let uses_seconds =
        [Some(&client), server.as_ref()].into_iter().flatten().any(|c| c.placeholders().contains("seconds"));
    let takes_s = text.takes_s.unwrap_or(if uses_seconds { spec.seconds } else { 1.0 });
    check_seconds(&format!("{key}.takes_s"), takes_s, 0.0, 86_400.0)?;
    if !(0.0..=1e9).contains(&text.round_trips) {
        return Err(wrong(&format!("{key}.round_trips"), "must be a number from 0 to 10^9"));
    }
    let workload = Workload {
        name: text.name.clone(),
        client,
        server,
        dealer,
        ready: text.ready.clone(),
        environment: text.environment.clone(),
        takes: Duration::from_secs_f64(takes_s),
        moves_bytes: text.moves_bytes,
        round_trips: text.round_trips,
    };
    if workload.dealer.is_none() && ["dealer", "dealer_pin"].iter().any(|name| workload.uses(name)) {
        return Err(wrong(key, "uses {dealer} or {dealer_pin}, and there is none; add `dealer`"));
    }
    Ok(workload)
}

#[cfg(test)]
pub(super) mod tests;
