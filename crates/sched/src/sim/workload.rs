//! Workloads: which requests come when, from whom.

use super::rng::Rng;
use crate::error::SchedError;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// A mix of models: how many requests of each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Name for reports.
    pub name: String,
    /// Models and their share of the requests (any scale; counts for the built-in ones).
    pub counts: Vec<(String, u32)>,
}

impl Mix {
    /// `swiftsnni-mixed` or `swiftsnni-light`, the workloads of [SS26].
    ///
    /// # Errors
    /// [`SchedError::UnknownWorkload`].
    pub fn named(name: &str) -> Result<Mix, SchedError> {
        let counts: [u32; 5] = match name {
            "swiftsnni-mixed" => [200, 100, 100, 75, 25],
            "swiftsnni-light" => [330, 55, 75, 35, 5],
            _ => return Err(SchedError::UnknownWorkload(name.to_owned())),
        };
        let models = ["m1", "m2", "hinet", "alexnet", "vgg16"];
        let counts = models.iter().zip(counts).map(|(m, n)| (m.to_string(), n)).collect();
        Ok(Mix { name: name.to_owned(), counts })
    }

    /// Number of requests in one round of the mix.
    pub fn total(&self) -> usize {
        self.counts.iter().map(|c| c.1 as usize).sum()
    }

    /// `n` models by index: whole rounds of the mix, each in random order.
    fn draw(&self, n: usize, rng: &mut Rng) -> Vec<u32> {
        let round: Vec<u32> =
            self.counts.iter().enumerate().flat_map(|(m, &(_, k))| std::iter::repeat_n(m as u32, k as usize)).collect();
        let mut models = Vec::with_capacity(n + round.len());
        while models.len() < n && !round.is_empty() {
            let mut next = round.clone();
            rng.shuffle(&mut next);
            models.extend(next);
        }
        models.truncate(n);
        models
    }
}

/// When requests come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Poisson, requests per second.
    Poisson(f64),
    /// Poisson with this mean rate, but only during `on` of every `on + off` seconds.
    Bursts {
        /// Mean requests per second.
        rate: f64,
        /// Seconds with arrivals.
        on: f64,
        /// Seconds without.
        off: f64,
    },
    /// Poisson whose rate swings as a sine by `swing` (0 to 1) around `rate`.
    Diurnal {
        /// Mean requests per second.
        rate: f64,
        /// Seconds of one day.
        period: f64,
        /// Relative amplitude.
        swing: f64,
    },
    /// Each of `clients` sends its next request a think time (exponential, mean in seconds) after its last one ended.
    Closed {
        /// Clients.
        clients: u32,
        /// Mean think time.
        think: f64,
    },
}

impl Arrivals {
    /// `n` arrival times, ascending. For a closed loop: the first request of each client (the engine makes the others).
    fn times(&self, n: usize, rng: &mut Rng) -> Vec<Time> {
        let mut t = 0.0;
        let mut next = || -> f64 {
            match *self {
                Arrivals::Poisson(rate) => t += rng.exponential(1.0 / rate),
                Arrivals::Closed { think, .. } => return rng.exponential(think),
                Arrivals::Bursts { rate, on, off } => {
                    // Time runs only while the source is on; then the gaps are put back.
                    t += rng.exponential(on / ((on + off) * rate));
                    return t + (t / on).floor() * off;
                }
                Arrivals::Diurnal { rate, period, swing } => loop {
                    t += rng.exponential(1.0 / (rate * (1.0 + swing)));
                    let now = 1.0 + swing * (t / period * std::f64::consts::TAU).sin();
                    if rng.uniform() * (1.0 + swing) <= now {
                        break;
                    }
                },
            }
            t
        };
        let n = if let Arrivals::Closed { clients, .. } = self { n.min(*clients as usize) } else { n };
        let mut times: Vec<Time> = (0..n).map(|_| Time::from_secs(next())).collect();
        times.sort_unstable();
        times
    }
}

/// Inputs per request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Batches {
    /// Always this many.
    Fixed(u32),
    /// Geometric with this mean.
    Geometric(f64),
    /// Heavy-tailed: Pareto with this exponent, at most `max`.
    Pareto {
        /// Tail exponent, above 1.
        alpha: f64,
        /// Largest batch.
        max: u32,
    },
}

impl Batches {
    fn draw(self, rng: &mut Rng) -> u32 {
        match self {
            Batches::Fixed(n) => n.max(1),
            Batches::Geometric(mean) => {
                let stop = 1.0 / mean.max(1.0);
                if stop >= 1.0 {
                    return 1;
                }
                1 + ((1.0 - rng.uniform()).ln() / (1.0 - stop).ln()) as u32
            }
            Batches::Pareto { alpha, max } => ((1.0 - rng.uniform()).powf(-1.0 / alpha) as u32).clamp(1, max.max(1)),
        }
    }
}

/// Everything about the requests, but not about the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Models.
    pub mix: Mix,
    /// Requests in all.
    pub requests: usize,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Share of requests that are announced.
    pub notice_share: f64,
    /// How long ahead.
    pub notice_lead: Span,
    /// Inputs per request.
    pub batches: Batches,
    /// Clients.
    pub clients: u32,
    /// Share of the requests that client 0 sends; 0 is an equal share for all.
    pub heavy_client: f64,
    /// Probability that a client leaves for good at some time within a minute after sending a request.
    pub departures: f64,
    /// Timeout of each request.
    pub timeout: Option<Span>,
}

impl Workload {
    /// The paper's setting: one input a request, a hundred equal clients.
    pub fn new(mix: Mix, arrivals: Arrivals, notice_share: f64) -> Workload {
        Workload {
            requests: mix.total(),
            mix,
            arrivals,
            notice_share,
            notice_lead: Span::from_secs(60.0),
            batches: Batches::Fixed(1),
            clients: 100,
            heavy_client: 0.0,
            departures: 0.0,
            timeout: None,
        }
    }

    /// The requests of one seed, in order of arrival (for a closed loop: all that will be sent, the time of the later ones open).
    /// Arrival times, models and notices come from separate streams: with and without notices the same requests come at the same times.
    pub fn draw(&self, seed: u64) -> Vec<Arrival> {
        let mut streams: [Rng; 5] = std::array::from_fn(|i| Rng::new(seed, i as u64));
        let [times, models, notices, batches, clients] = &mut streams;
        let times = self.arrivals.times(self.requests, times);
        let models = self.mix.draw(self.requests, models);
        let closed = matches!(self.arrivals, Arrivals::Closed { .. });
        let mut arrival = |(i, model): (usize, u32)| {
            let client = if closed && i < times.len() {
                i as u64
            } else if self.heavy_client > 0.0 && clients.uniform() < self.heavy_client {
                0
            } else {
                clients.below(self.clients.max(1) as usize) as u64
            };
            let announced = notices.uniform() < self.notice_share;
            Arrival {
                at: times.get(i).copied().unwrap_or(Time(u64::MAX)),
                client,
                model,
                inputs: self.batches.draw(batches),
                lead: announced.then_some(self.notice_lead),
                leaves: None,
            }
        };
        let mut arrivals: Vec<Arrival> = models.into_iter().enumerate().map(&mut arrival).collect();
        self.draw_departures(seed, &mut arrivals);
        arrivals
    }

    fn draw_departures(&self, seed: u64, arrivals: &mut [Arrival]) {
        let mut rng = Rng::new(seed, 6);
        for arrival in arrivals.iter_mut().filter(|_| self.departures > 0.0) {
            if rng.uniform() < self.departures {
                arrival.leaves = Some(arrival.at + Span::from_secs(60.0 * rng.uniform()));
            }
        }
    }
}

/// One request to come.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// When.
    pub at: Time,
    /// From whom.
    pub client: u64,
    /// Which model, as an index into the mix.
    pub model: u32,
    /// How many inputs.
    pub inputs: u32,
    /// Announced this long ahead.
    pub lead: Option<Span>,
    /// The client leaves then.
    pub leaves: Option<Time>,
}

/// Reads a trace: one request a line, `seconds,client,model[,inputs[,notice lead in seconds]]`; `#` starts a comment.
///
/// # Errors
/// [`SchedError::BadFile`] with the line.
pub fn parse_trace(text: &str) -> Result<(Mix, Vec<Arrival>), SchedError> {
    let mut mix = Mix { name: "trace".into(), counts: Vec::new() };
    let mut arrivals = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let bad = |why: &str| SchedError::BadFile { what: "trace", line: at + 1, why: why.to_owned() };
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let number = |i: usize, what: &str| -> Result<f64, SchedError> {
            let value = fields.get(i).and_then(|f| f.parse::<f64>().ok()).filter(|v| (0.0..1e9).contains(v));
            value.ok_or_else(|| bad(what))
        };
        let name = *fields.get(2).ok_or_else(|| bad("expected seconds,client,model"))?;
        let model = match mix.counts.iter().position(|c| c.0 == name) {
            Some(model) => model,
            None => {
                mix.counts.push((name.to_owned(), 0));
                mix.counts.len() - 1
            }
        };
        mix.counts[model].1 += 1;
        arrivals.push(Arrival {
            at: Time::from_secs(number(0, "first field: seconds")?),
            client: number(1, "second field: client number")? as u64,
            model: model as u32,
            inputs: if fields.len() > 3 { number(3, "fourth field: inputs")?.max(1.0) as u32 } else { 1 },
            lead: if fields.len() > 4 { Some(Span::from_secs(number(4, "fifth field: notice lead")?)) } else { None },
            leaves: None,
        });
    }
    arrivals.sort_by_key(|a| a.at);
    Ok((mix, arrivals))
}
