//! Workloads: the times, models and clients of requests.

use crate::error::SimError;
use fastrand::Rng;
use tacit_sched::{Span, Time};

/// Independent generators from one seed. The first six are the workload's, the others the engine's.
pub(crate) fn streams<const N: usize>(seed: u64) -> [Rng; N] {
    let mut root = Rng::with_seed(seed);
    std::array::from_fn(|_| root.fork())
}

pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}

/// A mix of models, with the number of requests of each.
#[derive(Clone, Debug, PartialEq)]
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
    /// [`SimError::UnknownWorkload`].
    pub fn named(name: &str) -> Result<Self, SimError> {
        let counts: [u32; 5] = match name {
            "swiftsnni-mixed" => [200, 100, 100, 75, 25],
            "swiftsnni-light" => [330, 55, 75, 35, 5],
            _ => return Err(SimError::UnknownWorkload(name.to_owned())),
        };
        let models = ["m1", "m2", "hinet", "alexnet", "vgg16"];
        let counts = models.iter().zip(counts).map(|(m, n)| (m.to_string(), n)).collect();
        Ok(Self { name: name.to_owned(), counts })
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

/// Arrival process of the requests.
#[derive(Clone, Debug, PartialEq)]
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
    /// Each of `clients` sends its next request a think time (exponential, mean in seconds) after
    /// its last one ended.
    Closed {
        /// Clients.
        clients: u32,
        /// Mean think time.
        think: f64,
    },
}

impl Arrivals {
    /// Mean requests per second; zero for a closed loop, whose rate depends on the server.
    pub fn rate(&self) -> f64 {
        match *self {
            Self::Poisson(rate) | Self::Bursts { rate, .. } | Self::Diurnal { rate, .. } => rate,
            Self::Closed { .. } => 0.0,
        }
    }

    /// `n` arrival times, ascending. For a closed loop: the first request of each client (the engine makes
    /// the others).
    fn times(&self, n: usize, rng: &mut Rng) -> Vec<Time> {
        let mut t = 0.0;
        let n = if let Self::Closed { clients, .. } = self { n.min(*clients as usize) } else { n };
        let mut times: Vec<Time> = (0..n).map(|_| Time::from_secs(self.next(&mut t, rng))).collect();
        times.sort_unstable();
        times
    }

    /// Draws the next arrival in seconds; `t` is the source's time so far.
    fn next(&self, t: &mut f64, rng: &mut Rng) -> f64 {
        match *self {
            Self::Poisson(rate) => *t += exponential(rng, 1.0 / rate),
            Self::Closed { think, .. } => return exponential(rng, think),
            Self::Bursts { rate, on, off } => {
                // Time advances only while the source is on; the gaps are added afterwards.
                *t += exponential(rng, on / ((on + off) * rate));
                return *t + (*t / on).floor() * off;
            }
            Self::Diurnal { rate, period, swing } => loop {
                *t += exponential(rng, 1.0 / (rate * (1.0 + swing)));
                let factor = 1.0 + swing * (*t / period * std::f64::consts::TAU).sin();
                if rng.f64() * (1.0 + swing) <= factor {
                    break;
                }
            },
        }
        *t
    }
}

/// Inputs per request.
#[derive(Clone, Copy, Debug, PartialEq)]
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
            Self::Fixed(n) => n.max(1),
            Self::Geometric(mean) => {
                let stop = 1.0 / mean.max(1.0);
                if stop >= 1.0 {
                    return 1;
                }
                1 + ((1.0 - rng.f64()).ln() / (1.0 - stop).ln()) as u32
            }
            Self::Pareto { alpha, max } => ((1.0 - rng.f64()).powf(-1.0 / alpha) as u32).clamp(1, max.max(1)),
        }
    }
}

/// All properties of the requests, independent of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Models.
    pub mix: Mix,
    /// Number of requests.
    pub requests: usize,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Share of requests that are announced.
    pub notice_share: f64,
    /// Time between notice and arrival.
    pub notice_lead: Span,
    /// Inputs per request.
    pub batches: Batches,
    /// Clients.
    pub clients: u32,
    /// Share of the requests that client 0 sends; 0 is an equal share for all.
    pub heavy_client: f64,
    /// Probability that a client leaves permanently at some time within a minute after sending a
    /// request.
    pub departures: f64,
    /// Timeout of each request.
    pub timeout: Option<Span>,
}

impl Workload {
    /// The paper's setting: one input a request, a hundred equal clients.
    pub fn new(mix: Mix, arrivals: Arrivals, notice_share: f64) -> Self {
        Self {
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

    /// A built-in workload at a Poisson rate, in requests per second.
    ///
    /// # Errors
    /// [`SimError::UnknownWorkload`] for another name.
    pub fn paper(name: &str, rate: f64, notices: f64) -> Result<Self, SimError> {
        Ok(Self::new(Mix::named(name)?, Arrivals::Poisson(rate), notices))
    }

    /// The requests of one seed, in order of arrival. For a closed loop: all requests, the times of
    /// the later ones open. Times, models and notices use separate generators: the same requests
    /// arrive at the same times with and without notices.
    pub fn draw(&self, seed: u64) -> Vec<Arrival> {
        let [times, models, notices, batches, clients, departures] = &mut streams(seed);
        let times = self.arrivals.times(self.requests, times);
        let models = self.mix.draw(self.requests, models);
        let closed = matches!(self.arrivals, Arrivals::Closed { .. });
        let arrivals = models.into_iter().enumerate().map(|(i, model)| {
            let client = if closed && i < times.len() {
                i as u64
            } else if self.heavy_client > 0.0 && clients.f64() < self.heavy_client {
                0
            } else {
                clients.u64(..u64::from(self.clients.max(1)))
            };
            let announced = notices.f64() < self.notice_share;
            Arrival {
                at: times.get(i).copied().unwrap_or(Time(u64::MAX)),
                client,
                model,
                inputs: self.batches.draw(batches),
                lead: announced.then_some(self.notice_lead),
                leaves: None,
            }
        });
        let mut arrivals: Vec<Arrival> = arrivals.collect();
        for arrival in &mut arrivals {
            if departures.f64() < self.departures {
                arrival.leaves = Some(arrival.at + Span::from_secs(60.0 * departures.f64()));
            }
        }
        arrivals
    }
}

/// One future request.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Time of arrival.
    pub at: Time,
    /// The client.
    pub client: u64,
    /// The model, as an index into the mix.
    pub model: u32,
    /// Number of inputs.
    pub inputs: u32,
    /// Time between notice and arrival, if announced.
    pub lead: Option<Span>,
    /// When the client leaves, if it does.
    pub leaves: Option<Time>,
}

/// Reads a trace: one request a line, `seconds,client,model[,inputs[,notice lead in seconds]]`; `#` starts a
/// comment.
///
/// # Errors
/// [`SimError::BadFile`] with the line.
pub fn parse_trace(text: &str) -> Result<(Mix, Vec<Arrival>), SimError> {
    let mut mix = Mix { name: "trace".into(), counts: Vec::new() };
    let mut arrivals = Vec::new();
    for (line_number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let name = *fields.get(2).ok_or_else(|| bad_line(line_number, "expected seconds,client,model"))?;
        let model = match mix.counts.iter().position(|c| c.0 == name) {
            Some(model) => model,
            None => {
                mix.counts.push((name.to_owned(), 0));
                mix.counts.len() - 1
            }
        };
        mix.counts[model].1 += 1;
        arrivals.push(Arrival {
            at: Time::from_secs(number(&fields, 0, line_number, "first field: seconds")?),
            client: number(&fields, 1, line_number, "second field: client number")? as u64,
            model: model as u32,
            inputs: match fields.len() {
                ..4 => 1,
                _ => number(&fields, 3, line_number, "fourth field: inputs")?.max(1.0) as u32,
            },
            lead: match fields.len() {
                ..5 => None,
                _ => Some(Span::from_secs(number(&fields, 4, line_number, "fifth field: notice lead")?)),
            },
            leaves: None,
        });
    }
    arrivals.sort_by_key(|a| a.at);
    Ok((mix, arrivals))
}

/// Reads field `i` of line `line_number` (from 0).
fn number(fields: &[&str], i: usize, line_number: usize, field: &str) -> Result<f64, SimError> {
    let value = fields.get(i).and_then(|f| f.parse::<f64>().ok()).filter(|v| (0.0..1e9).contains(v));
    value.ok_or_else(|| bad_line(line_number, field))
}

fn bad_line(line_number: usize, reason: &str) -> SimError {
    SimError::BadFile { what: "trace", line: line_number + 1, why: reason.to_owned() }
}
