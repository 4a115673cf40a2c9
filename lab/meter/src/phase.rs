//! The cost of each phase, from marks and samples.
use crate::record::{Edge, Mark, Sample};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Processor time. It is serialised as `[user, kernel]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct CpuSeconds {
    /// Seconds in programs.
    pub user: f64,
    /// Seconds in the kernel.
    pub kernel: f64,
}

impl From<[f64; 2]> for CpuSeconds {
    fn from([user, kernel]: [f64; 2]) -> Self {
        Self { user, kernel }
    }
}

impl From<CpuSeconds> for [f64; 2] {
    fn from(CpuSeconds { user, kernel }: CpuSeconds) -> Self {
        [user, kernel]
    }
}

/// All occurrences of one phase of one party.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseCost {
    /// The party that marked it.
    pub party: String,
    /// Its name.
    pub phase: String,
    /// Number of complete occurrences.
    pub count: u64,
    /// Total time, seconds; overlapping occurrences (several clients of one server) each count.
    pub seconds: f64,
    /// CPU seconds of the party's processes in that time (interpolated between samples); absent
    /// without processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<CpuSeconds>,
    /// Gross energy of the host in that time, joules (interpolated between samples); absent without
    /// a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gross_j: Option<f64>,
    /// Sums of the program's figures at the ends.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// Costs by party and phase, in the order of their first begin. `curve` is the host's energy
/// ([`energy_curve`](crate::energy::energy_curve)), empty without a source. An end belongs to the
/// latest open begin of its phase.
#[must_use]
pub fn phase_costs(samples: &[Sample], marks: &[Mark], curve: &[(f64, f64)]) -> Vec<PhaseCost> {
    let mut marks: Vec<&Mark> = marks.iter().collect();
    marks.sort_by(|a, b| tacit_floats::rising(&a.t, &b.t));
    let mut costs: Vec<PhaseCost> = Vec::new();
    // By phase: its index in `costs`, and begins without an end.
    let mut open: BTreeMap<(&str, &str), (usize, Vec<f64>)> = BTreeMap::new();
    for mark in marks {
        let key = (mark.party.as_str(), mark.phase.as_str());
        if mark.edge == Edge::Begin {
            let (_, begins) = open.entry(key).or_insert_with(|| {
                costs.push(PhaseCost { party: mark.party.clone(), phase: mark.phase.clone(), ..PhaseCost::default() });
                (costs.len() - 1, Vec::new())
            });
            begins.push(mark.t);
        } else if let Some((place, begins)) = open.get_mut(&key)
            && let Some(begin) = begins.pop()
        {
            costs[*place].add(begin, mark, samples, curve);
        }
    }
    costs.retain(|cost| cost.count > 0);
    costs
}

impl PhaseCost {
    fn add(&mut self, begin: f64, end: &Mark, samples: &[Sample], curve: &[(f64, f64)]) {
        self.count += 1;
        self.seconds += end.t - begin;
        for (key, value) in &end.figures {
            *self.figures.entry(key.clone()).or_default() += value;
        }
        let cpu = cpu_at(samples, &self.party, end.t).zip(cpu_at(samples, &self.party, begin));
        if let Some((after, before)) = cpu {
            let sum = self.cpu_s.get_or_insert_default();
            sum.user = sum.user + after.user - before.user;
            sum.kernel = sum.kernel + after.kernel - before.kernel;
        }
        let energy = interpolate(curve.len(), |i| curve[i], end.t).zip(interpolate(curve.len(), |i| curve[i], begin));
        if let Some((after, before)) = energy {
            *self.gross_j.get_or_insert_default() += after - before;
        }
    }
}

/// CPU seconds of a party at a time. A party without a process tree of its own name gets those of
/// the only tree (a program that plays both parties).
fn cpu_at(samples: &[Sample], party: &str, t: f64) -> Option<CpuSeconds> {
    samples.iter().rev().find_map(|sample| cpu_in(sample, party))?;
    // A party's use before it was added is zero.
    let cpu = |i: usize| cpu_in(&samples[i], party).unwrap_or_default();
    Some(CpuSeconds {
        user: interpolate(samples.len(), |i| (samples[i].t, cpu(i).user), t)?,
        kernel: interpolate(samples.len(), |i| (samples[i].t, cpu(i).kernel), t)?,
    })
}

fn cpu_in(sample: &Sample, party: &str) -> Option<CpuSeconds> {
    let party_sample = match sample.parties.get(party) {
        Some(party) => Some(party),
        None if sample.parties.len() == 1 => sample.parties.values().next(),
        None => None,
    };
    party_sample.map(|party_sample| CpuSeconds { user: party_sample.user_s, kernel: party_sample.system_s })
}

/// Linear interpolation in points of increasing time; constant before the first and after the last.
fn interpolate(len: usize, point: impl Fn(usize) -> (f64, f64), t: f64) -> Option<f64> {
    let (mut low, mut high) = (0, len.checked_sub(1)?);
    if t <= point(low).0 {
        return Some(point(low).1);
    }
    if t >= point(high).0 {
        return Some(point(high).1);
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        if point(middle).0 <= t { low = middle } else { high = middle }
    }
    let (start, end) = (point(low), point(high));
    Some(start.1 + (end.1 - start.1) * (t - start.0) / (end.0 - start.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::PartySample;

    fn mark(t: f64, party: &str, phase: &str, edge: Edge) -> Mark {
        let figures = if edge == Edge::End { BTreeMap::from([("rounds".to_owned(), 2.0)]) } else { BTreeMap::new() };
        Mark { t, party: party.into(), phase: phase.into(), edge, figures }
    }

    fn sample(t: f64, cpu: &[(&str, f64)]) -> Sample {
        let sample_of = |s: f64| PartySample { user_s: s, system_s: s / 2.0, ..PartySample::default() };
        Sample { t, parties: cpu.iter().map(|(p, s)| ((*p).to_owned(), sample_of(*s))).collect(), ..Sample::default() }
    }

    #[test]
    fn costs_phases() {
        let samples = [sample(0.0, &[]), sample(1.0, &[("client", 0.0)]), sample(3.0, &[("client", 4.0)])];
        let curve = [(0.0, 0.0), (1.0, 10.0), (3.0, 50.0)];
        use Edge::{Begin, End};
        let marks = [
            mark(2.0, "client", "online", Begin),
            mark(0.5, "client", "setup", Begin),
            mark(1.5, "client", "setup", End),
            mark(2.5, "client", "online", End),
            mark(2.6, "client", "online", Begin),
            mark(9.0, "client", "online", End),
            mark(1.0, "client", "never ended", Begin),
            mark(1.0, "client", "never begun", End),
        ];
        let costs = phase_costs(&samples, &marks, &curve);
        assert_eq!(costs.iter().map(|c| c.phase.as_str()).collect::<Vec<_>>(), ["setup", "online"]);
        let setup = &costs[0];
        assert_eq!((setup.count, setup.seconds, setup.gross_j), (1, 1.0, Some(15.0)));
        assert_eq!(setup.cpu_s, Some(CpuSeconds { user: 1.0, kernel: 0.5 }));
        let online = &costs[1];
        assert_eq!((online.count, online.figures["rounds"]), (2, 4.0));
        assert!((online.seconds - 6.9).abs() < 1e-12);
        // 0.5 s of 20 W, then 0.4 s of it; the energy after the last sample is unknown.
        assert!((online.gross_j.unwrap() - 18.0).abs() < 1e-9);
        assert!((online.cpu_s.unwrap().user - 1.8).abs() < 1e-9);
    }

    #[test]
    fn costs_phases_of_single_tree_and_without_source() {
        let samples = [sample(0.0, &[("program", 0.0)]), sample(2.0, &[("program", 2.0)])];
        let marks = [mark(0.0, "server", "x", Edge::Begin), mark(1.0, "server", "x", Edge::End)];
        let costs = phase_costs(&samples, &marks, &[]);
        assert_eq!((costs[0].cpu_s, costs[0].gross_j), (Some(CpuSeconds { user: 1.0, kernel: 0.5 }), None));
        let samples = [sample(0.0, &[]), sample(2.0, &[("a", 2.0), ("b", 1.0)])];
        assert_eq!(phase_costs(&samples, &marks, &[])[0].cpu_s, None);
        assert!(phase_costs(&[], &[], &[]).is_empty());
    }

    #[test]
    fn overlapping_occurrences_all_count() {
        let edges = [(0.0, Edge::Begin), (1.0, Edge::Begin), (2.0, Edge::End), (4.0, Edge::End)];
        let marks: Vec<Mark> = edges.map(|(t, edge)| mark(t, "server", "online", edge)).into();
        let costs = phase_costs(&[], &marks, &[(0.0, 0.0), (4.0, 4.0)]);
        assert_eq!((costs[0].count, costs[0].seconds, costs[0].gross_j), (2, 5.0, Some(5.0)));
    }
}
