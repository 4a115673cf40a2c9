//! A record's samples as CSV, for spreadsheets.
//!
//! One row per sample, comma-separated, a header row, numbers with a decimal point, empty fields
//! for missing values. All counters are since the record's start. Columns, in this order:
//!
//! | column | unit |
//! | --- | --- |
//! | `t_s` | seconds |
//! | `power.SOURCE.RAIL.w`, `power.SOURCE.RAIL.j` | watts, joules |
//! | `party.NAME.user_s`, `.system_s`, `.rss_bytes`, `.processes` | seconds, seconds, bytes, count |
//! | `core.N.user_s`, `.system_s`, `.idle_s`, `.mhz` | seconds, megahertz |
//! | `memory_bytes` | bytes |
//! | `if.NAME.rx_bytes`, `.tx_bytes`, `.rx_packets`, `.tx_packets` | bytes, packets |
//! | `phase.PARTY` | name of the innermost phase that the party is in |
use crate::MeterError;
use crate::record::{Edge, Mark, Sample};
use crate::record_file::Record;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;

/// Writes the samples of a record as CSV.
///
/// # Errors
/// [`MeterError::io`] if the writer fails.
pub fn to_csv(record: &Record, mut output: impl Write) -> Result<(), MeterError> {
    let columns = Columns::for_record(record);
    writeln!(output, "{}", columns.head()).map_err(MeterError::io("CSV file"))?;
    let mut phases: Vec<Phases<'_>> = columns.speakers.iter().map(|party| Phases::for_party(record, party)).collect();
    for sample in &record.samples {
        writeln!(output, "{}", columns.row(sample, &mut phases)).map_err(MeterError::io("CSV file"))?;
    }
    Ok(())
}

struct Columns<'a> {
    rails: Vec<(&'a str, usize, &'a str)>,
    parties: BTreeSet<&'a str>,
    cores: usize,
    interfaces: BTreeSet<&'a str>,
    speakers: BTreeSet<&'a str>,
}

impl<'a> Columns<'a> {
    fn for_record(record: &'a Record) -> Self {
        let samples = &record.samples;
        let rails = record.header.sources.iter();
        Self {
            rails: rails
                .flat_map(|s| s.rails.iter().enumerate().map(|(i, r)| (s.name.as_str(), i, r.name.as_str())))
                .collect(),
            parties: samples.iter().flat_map(|s| s.parties.keys().map(String::as_str)).collect(),
            cores: samples.iter().map(|s| s.cores.len()).max().unwrap_or(0),
            interfaces: samples.iter().flat_map(|s| s.interfaces.keys().map(String::as_str)).collect(),
            speakers: record.marks.iter().map(|m| m.party.as_str()).collect(),
        }
    }

    fn head(&self) -> String {
        let mut names = vec!["t_s".to_owned()];
        let power = ["w", "j"];
        names.extend(self.rails.iter().flat_map(|(source, _, rail)| group(&format!("power.{source}.{rail}"), &power)));
        let party = ["user_s", "system_s", "rss_bytes", "processes"];
        names.extend(self.parties.iter().flat_map(|name| group(&format!("party.{name}"), &party)));
        let core = ["user_s", "system_s", "idle_s", "mhz"];
        names.extend((0..self.cores).flat_map(|n| group(&format!("core.{n}"), &core)));
        names.push("memory_bytes".into());
        let interface = ["rx_bytes", "tx_bytes", "rx_packets", "tx_packets"];
        names.extend(self.interfaces.iter().flat_map(|name| group(&format!("if.{name}"), &interface)));
        names.extend(self.speakers.iter().map(|name| field(&format!("phase.{name}"))));
        names.join(",")
    }

    fn row(&self, sample: &Sample, phases: &mut [Phases<'_>]) -> String {
        let mut row = format!("{}", sample.t);
        let mut cell = |value: Option<&dyn std::fmt::Display>| {
            row.push(',');
            if let Some(value) = value {
                let _ = write!(row, "{value}");
            }
        };
        for (source, rail, _) in &self.rails {
            let rail = sample.power.get(*source).and_then(|rails| rails.get(*rail));
            cell(rail.and_then(|r| r.w.as_ref()).map(|w| w as _));
            cell(rail.map(|r| &r.j as _));
        }
        for name in &self.parties {
            let party = sample.parties.get(*name);
            cell(party.map(|p| &p.user_s as _));
            cell(party.map(|p| &p.system_s as _));
            cell(party.map(|p| &p.rss_bytes as _));
            cell(party.map(|p| &p.processes as _));
        }
        for number in 0..self.cores {
            let core = sample.cores.get(number);
            cell(core.map(|c| &c.user_s as _));
            cell(core.map(|c| &c.system_s as _));
            cell(core.map(|c| &c.idle_s as _));
            cell(core.and_then(|c| c.mhz.as_ref()).map(|m| m as _));
        }
        cell(Some(&sample.memory_bytes));
        for name in &self.interfaces {
            let interface = sample.interfaces.get(*name);
            cell(interface.map(|i| &i.rx_bytes as _));
            cell(interface.map(|i| &i.tx_bytes as _));
            cell(interface.map(|i| &i.rx_packets as _));
            cell(interface.map(|i| &i.tx_packets as _));
        }
        for phases in phases {
            cell(phases.phase_at(sample.t).map(field).as_ref().map(|p| p as _));
        }
        row
    }
}

struct Phases<'a> {
    marks: std::iter::Peekable<std::vec::IntoIter<&'a Mark>>,
    open: Vec<&'a str>,
}

impl<'a> Phases<'a> {
    fn for_party(record: &'a Record, party: &str) -> Self {
        let mut marks: Vec<&Mark> = record.marks.iter().filter(|m| m.party == party).collect();
        marks.sort_by(|a, b| tacit_floats::rising(&a.t, &b.t));
        Self { marks: marks.into_iter().peekable(), open: Vec::new() }
    }

    /// The phase that was entered last and not left at time `t`; `t` must not decrease from call to
    /// call.
    fn phase_at(&mut self, t: f64) -> Option<&'a str> {
        while let Some(mark) = self.marks.next_if(|m| m.t <= t) {
            match mark.edge {
                Edge::Begin => self.open.push(&mark.phase),
                Edge::End => {
                    if let Some(index) = self.open.iter().rposition(|p| *p == mark.phase) {
                        self.open.remove(index);
                    }
                }
            }
        }
        self.open.last().copied()
    }
}

fn group(prefix: &str, fields: &[&str]) -> Vec<String> {
    fields.iter().map(|f| field(&format!("{prefix}.{f}"))).collect()
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests;
