//! The settings of a campaign: policies, workloads, networks, and the requests that they produce.
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use tacit_backends::Options;
use tacit_sched::Span;
use tacit_sched::policy::PolicySpec;
use tacit_sim::{Arrival, Arrivals, Mix, Workload};

pub const NAME: &str = "ss26-live";
/// Fewest requests of a cell that the time limit may lead to.
const MIN_REQUESTS: usize = 60;
/// Requests of a cell without a time limit.
pub const MAX_REQUESTS: usize = 100;
/// Longest campaign if the program chooses the number of requests, in seconds.
pub const LIMIT_S: f64 = 40.0 * 60.0;

/// Requests for each of the paper's networks, from the smallest to the largest: M1, HiNet, M2,
/// AlexNet, VGG-16 ([SS26] workloads, 500 requests).
const PAPER_REQUESTS: [(&str, [u32; 5]); 2] = [("mixed", [200, 100, 100, 75, 25]), ("light", [330, 75, 55, 35, 5])];

// Policies and requests of a campaign. A doc comment would be help.
#[derive(clap::Args, Clone)]
pub struct Traffic {
    /// Policies of the server (see `tacit serve --help`); speed-up is over `sequential`. Every
    /// request comes from a client of its own, so `+fair` changes nothing
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "sequential,fcfs,priority:0.1,adaptive")]
    #[arg(help_heading = "Server")]
    pub policies: Vec<String>,
    /// Workloads of the paper: mixed, light
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "mixed,light", help_heading = "Input")]
    pub workloads: Vec<String>,
    /// Shares of announced requests, in percent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,25", value_parser = percent)]
    #[arg(help_heading = "Input", hide_short_help = true)]
    pub notices: Vec<u32>,
    /// Seconds from a notice to its request
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, help_heading = "Input", hide_short_help = true)]
    pub lead: f64,
    /// Number of requests of each cell [default: 60 to 100, to take 40 minutes in all]
    #[arg(long, value_name = "COUNT", value_parser = tacit_program::args::count(10_000), help_heading = "Limits")]
    pub requests: Option<usize>,
    /// Work that arrives in a second, in seconds of a network that runs alone; above 1, a server
    /// with one job at a time falls behind
    #[arg(long, value_name = "SHARE", default_value_t = 1.2, help_heading = "Limits")]
    pub load: f64,
    /// Requests per second, in place of the rate that --load gives
    #[arg(long, value_name = "PER_SECOND", help_heading = "Limits", hide_short_help = true)]
    pub rate: Option<f64>,
}

#[derive(Clone)]
pub struct Settings {
    pub backend: String,
    pub options: Options,
    /// Networks in the roles of the paper's, from the smallest; the last takes all remaining roles.
    pub nets: Vec<String>,
    pub traffic: Traffic,
    /// Jobs that the server may run at a time.
    pub cores: u32,
    /// Cores of the simulated larger machine.
    pub slots: u32,
    /// Whether server and clients have a core each.
    pub pinned: bool,
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub workload: String,
    /// Share of announced requests, in percent.
    pub notices: u32,
    pub policy: String,
}

impl Cell {
    pub fn labels(&self) -> BTreeMap<String, String> {
        let notices = format!("{} %", self.notices);
        [("workload", self.workload.clone()), ("notices", notices), ("policy", self.policy.clone())]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }

    pub fn name(&self) -> String {
        format!("{}, {} % notices, {}", self.workload, self.notices, self.policy)
    }
}

impl Settings {
    pub fn check(&self) -> anyhow::Result<()> {
        let Traffic { policies, workloads, notices, lead, load, rate, .. } = &self.traffic;
        for policy in policies {
            policy.parse::<PolicySpec>()?;
        }
        for (option, values) in [("--policies", policies), ("--workloads", workloads), ("--nets", &self.nets)] {
            ensure!(!values.is_empty(), "{option} is empty: name at least one");
            let twice = values.iter().enumerate().find(|(i, name)| values[..*i].contains(name));
            ensure!(twice.is_none(), "{option} names {} twice: name it once", twice.map_or("", |(_, name)| name));
        }
        for name in workloads {
            weights(name)?;
        }
        ensure!(self.nets.len() <= 5, "{} networks; there are five roles, so name five at most", self.nets.len());
        ensure!(notices.iter().all(|share| *share <= 100), "--notices are percent: 0 to 100");
        ensure!(!notices.is_empty(), "--notices is empty: give at least one share");
        ensure!((0.0..=3600.0).contains(lead), "--lead {lead} is not from 0 to 3600 seconds");
        ensure!((0.01..=100.0).contains(load), "--load {load} is not from 0.01 to 100");
        let rate = rate.unwrap_or(1.0);
        ensure!((1e-3..=1e3).contains(&rate), "--rate {rate} is not from 0.001 to 1000 requests a second");
        Ok(())
    }

    /// Returns all cells, policies innermost: cells to compare are measured close together.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for workload in &self.traffic.workloads {
            for &notices in &self.traffic.notices {
                cells.extend(self.traffic.policies.iter().map(|policy| Cell {
                    workload: workload.clone(),
                    notices,
                    policy: policy.clone(),
                }));
            }
        }
        cells
    }

    /// Returns the settings as TOML, a key a line: the description in a campaign's folder.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        let Traffic { policies, workloads, notices, lead, requests, load, rate } = &self.traffic;
        let options: BTreeMap<&str, &str> = self.options.iter().collect();
        let options: Vec<String> = options.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut text = format!("name = \"{NAME}\"\n");
        let mut line = |key: &str, value: serde_json::Value| {
            // JSON and TOML write strings, numbers and lists of them alike.
            text += &format!("{key} = {value}\n");
        };
        line("backend", self.backend.as_str().into());
        line("options", options.into());
        line("nets", self.nets.clone().into());
        line("policies", policies.clone().into());
        line("workloads", workloads.clone().into());
        line("notices", notices.clone().into());
        line("lead_s", (*lead).into());
        line("requests", requests.map_or_else(|| "by time".into(), Into::into));
        line("load", (*load).into());
        line("rate", rate.map_or_else(|| "by load".into(), Into::into));
        line("cores", self.cores.into());
        line("slots", self.slots.into());
        line("pinned", self.pinned.into());
        line("seed", self.seed.into());
        Ok(text)
    }

    /// Returns the mean of the networks' figures over the requests of a workload.
    pub fn mean(&self, workload: &str, values: &[f64]) -> anyhow::Result<f64> {
        let counts = by_net(weights(workload)?, self.nets.len());
        let total: u32 = counts.iter().sum();
        Ok(counts.iter().zip(values).map(|(&count, value)| f64::from(count) * value).sum::<f64>() / f64::from(total))
    }

    /// Draws a cell's requests in order of arrival, each from a client of its own, and its workload.
    /// The requests are the same for every policy, at the same times with and without notices.
    pub fn draw(&self, cell: &Cell, requests: usize, rate: f64) -> anyhow::Result<(Workload, Vec<Arrival>)> {
        let counts = scale(&by_net(weights(&cell.workload)?, self.nets.len()), requests);
        let mix = Mix { name: cell.workload.clone(), counts: self.nets.iter().cloned().zip(counts).collect() };
        let mut workload = Workload::new(mix, Arrivals::Poisson(rate), f64::from(cell.notices) / 100.0);
        workload.requests = requests;
        workload.notice_lead = Span::from_secs(self.traffic.lead);
        let mut arrivals = workload.draw(self.seed);
        arrivals.iter_mut().enumerate().for_each(|(i, arrival)| arrival.client = i as u64);
        Ok((workload, arrivals))
    }
}

/// Lists the keys whose values differ between the texts of two campaigns.
pub fn differences(saved: &str, current: &str) -> Vec<String> {
    let (saved, current) = (read(saved), read(current));
    let keys: std::collections::BTreeSet<&String> = saved.keys().chain(current.keys()).collect();
    keys.into_iter()
        .filter(|key| saved.get(*key) != current.get(*key))
        .map(|key| {
            let [saved, current] = [&saved, &current].map(|table| table.get(key).map_or("absent", String::as_str));
            format!("`{key}` is {saved} there and {current} here")
        })
        .collect()
}

fn read(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(" = "));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn weights(workload: &str) -> anyhow::Result<[u32; 5]> {
    let Some((_, weights)) = PAPER_REQUESTS.iter().find(|(name, _)| *name == workload) else {
        bail!("there is no workload {workload:?}: the paper's are mixed and light");
    };
    Ok(*weights)
}

/// Returns the roles' weights by network; the last network takes all remaining roles.
fn by_net(weights: [u32; 5], nets: usize) -> Vec<u32> {
    let nets = nets.clamp(1, weights.len());
    let mut net_weights = weights[..nets].to_vec();
    net_weights[nets - 1] += weights[nets..].iter().sum::<u32>();
    net_weights
}

/// Divides `n` in these shares by largest remainders; the first of equal remainders wins.
fn scale(weights: &[u32], n: usize) -> Vec<u32> {
    let total: u64 = weights.iter().map(|&w| u64::from(w)).sum::<u64>().max(1);
    let shares: Vec<u64> = weights.iter().map(|&w| u64::from(w) * n as u64).collect();
    let mut counts: Vec<u32> = shares.iter().map(|share| (share / total) as u32).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(shares[i] % total));
    let remaining = n - counts.iter().sum::<u32>() as usize;
    order.into_iter().take(remaining).for_each(|i| counts[i] += 1);
    counts
}

/// Returns how many requests of each cell fit the time limit, within their range. `request_s` is
/// the time of one request in every cell, `cell_s` the overhead of all cells.
pub fn affordable(request_s: f64, cell_s: f64) -> usize {
    (((LIMIT_S - cell_s).max(0.0) / request_s.max(1e-9)) as usize).clamp(MIN_REQUESTS, MAX_REQUESTS)
}

pub fn percent(text: &str) -> Result<u32, String> {
    let number = text.trim().trim_end_matches('%').trim();
    number.parse().ok().filter(|share| *share <= 100).context("0 to 100 percent").map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        Settings {
            backend: "cheetah".into(),
            options: Options::default(),
            nets: list(&["digits", "lenet", "m2", "resnet32", "squeezenet"]),
            traffic: Traffic {
                policies: list(&["sequential", "fcfs", "priority:0.1", "adaptive"]),
                workloads: list(&["mixed", "light"]),
                notices: vec![0, 25],
                lead: 10.0,
                requests: None,
                load: 1.2,
                rate: None,
            },
            cores: 2,
            slots: 8,
            pinned: true,
            seed: 1,
        }
    }

    #[test]
    fn weights_of_the_paper_are_scaled_and_assigned() {
        assert_eq!(scale(&PAPER_REQUESTS[0].1, 100), [40, 20, 20, 15, 5]);
        assert_eq!(scale(&PAPER_REQUESTS[1].1, 100), [66, 15, 11, 7, 1]);
        for n in [1, 6, 60, 77, 500] {
            assert_eq!(scale(&PAPER_REQUESTS[1].1, n).iter().sum::<u32>() as usize, n);
        }
        assert_eq!(by_net(PAPER_REQUESTS[0].1, 4), [200, 100, 100, 100]);
        assert_eq!(by_net(PAPER_REQUESTS[0].1, 1), [500]);
        let mean = settings().mean("light", &[0.0, 0.0, 0.0, 0.0, 100.0]).unwrap();
        assert!((mean - 1.0).abs() < 1e-12);
    }

    #[test]
    fn every_policy_gets_the_same_requests() {
        let settings = settings();
        let cells = settings.cells();
        assert_eq!(cells.len(), 16);
        let draw = |cell: &Cell| settings.draw(cell, 60, 0.5).unwrap().1;
        for four in cells.chunks(4) {
            assert!(four.iter().all(|cell| draw(cell) == draw(&four[0])), "{}", four[0].name());
        }
        let (plain, announced) = (draw(&cells[0]), draw(&cells[4]));
        assert_eq!((cells[0].notices, cells[4].notices), (0, 25));
        let bare = |arrivals: &[Arrival]| arrivals.iter().map(|a| (a.at, a.model, a.client)).collect::<Vec<_>>();
        assert_eq!(bare(&plain), bare(&announced));
        assert!(plain.iter().all(|a| a.lead.is_none()));
        assert!(announced.iter().any(|a| a.lead.is_some()));
        assert_eq!(plain.iter().map(|a| a.client).collect::<Vec<_>>(), (0..60).collect::<Vec<_>>());
    }

    #[test]
    fn differing_settings_are_named() {
        let saved = settings().to_toml().unwrap();
        assert!(saved.contains("policies = [\"sequential\",\"fcfs\""), "{saved}");
        assert!(saved.contains("requests = \"by time\""), "{saved}");
        let mut changed = Settings { seed: 2, ..settings() };
        changed.traffic.requests = Some(60);
        let changed = changed.to_toml().unwrap();
        assert_eq!(differences(&saved, &saved), Vec::<String>::new());
        let differing = ["`requests` is \"by time\" there and 60 here", "`seed` is 1 there and 2 here"];
        assert_eq!(differences(&saved, &changed), differing);
    }

    #[test]
    fn impossible_settings_are_named() {
        let refused = |change: fn(&mut Settings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        settings().check().unwrap();
        assert!(refused(|s| s.traffic.policies = vec!["lifo".into()]).contains("lifo"));
        assert!(refused(|s| s.traffic.workloads = vec!["heavy".into()]).contains("mixed and light"));
        assert!(refused(|s| s.nets.push("m1".into())).contains("five at most"));
        assert!(refused(|s| s.traffic.policies.push("fcfs".into())).contains("names fcfs twice"));
        assert!(refused(|s| s.traffic.lead = f64::NAN).contains("--lead"));
        assert!(refused(|s| s.traffic.rate = Some(0.0)).contains("--rate"));
        assert_eq!((percent("25 %"), percent("0")), (Ok(25), Ok(0)));
        assert!(percent("101").is_err());
        assert!(percent("some").is_err());
    }

    #[test]
    fn requests_fit_the_time_within_their_range() {
        assert_eq!(affordable(5.0, 100.0), 100);
        assert_eq!(affordable(30.0, 0.0), 80);
        assert_eq!(affordable(1000.0, 0.0), 60);
    }
}
