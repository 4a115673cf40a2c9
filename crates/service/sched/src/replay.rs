//! Replay files: a recorded sequence of events, one JSON object a line.
//!
//! The first line is a [`Header`], the construction parameters of a scheduler. Each further line is
//! `{"t": ns, "event": ...}` or `{"t": ns, "policy": ...}`, optionally followed by the recorded
//! actions, `{"t": ns, "action": ...}`. A file without actions is an input, a file with actions is
//! a test.

use crate::config::{Config, ModelSpec};
use crate::error::SchedError;
use crate::message::{Action, Event};
use crate::policy::PolicySpec;
use crate::scheduler::Scheduler;
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Version of the format.
pub const VERSION: u32 = 3;

/// Construction parameters of a scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub tacit_replay: u32,
    /// The scheduler's configuration.
    pub config: Config,
    /// The scheduler's models.
    pub models: Vec<ModelSpec>,
    /// The scheduler's policy.
    pub policy: PolicySpec,
}

/// One line after the header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    t: Time,
    #[serde(flatten)]
    what: LineContent,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineContent {
    Event(Event),
    Policy(PolicySpec),
    Action(Action),
}

/// A call that changed the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// [`Scheduler::handle`].
    Event(Event),
    /// [`Scheduler::set_policy`].
    Policy(PolicySpec),
}

/// A recorded run.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Construction parameters.
    pub header: Header,
    /// Events and changes of the policy, in order of time.
    pub events: Vec<(Time, Told)>,
    /// Actions in the order in which they were taken; empty when not recorded.
    pub actions: Vec<(Time, Action)>,
}

impl Replay {
    /// Reads a replay file.
    ///
    /// # Errors
    /// [`SchedError::BadFile`] with the line and the reason.
    pub fn parse(text: &str) -> Result<Self, SchedError> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (index, first) = lines.next().ok_or_else(|| bad_line(0, "empty file".into()))?;
        let header: Header = serde_json::from_str(first).map_err(|e| bad_line(index, e.to_string()))?;
        if header.tacit_replay != VERSION {
            return Err(bad_line(index, format!("version {} is not {VERSION}", header.tacit_replay)));
        }
        let mut replay = Self { header, events: Vec::new(), actions: Vec::new() };
        for (index, text) in lines {
            let line: Line = serde_json::from_str(text).map_err(|e| bad_line(index, e.to_string()))?;
            match line.what {
                LineContent::Event(event) => replay.events.push((line.t, Told::Event(event))),
                LineContent::Policy(policy) => replay.events.push((line.t, Told::Policy(policy))),
                LineContent::Action(action) => replay.actions.push((line.t, action)),
            }
        }
        Ok(replay)
    }

    /// The file's text.
    ///
    /// # Errors
    /// [`SchedError::BadFile`] when a number cannot be written as JSON (an infinite weight).
    pub fn to_text(&self) -> Result<String, SchedError> {
        let mut text = serde_json::to_string(&self.header).map_err(write_error)?;
        text.push('\n');
        let events = self.events.iter().map(|(t, e)| Line { t: *t, what: line_content(e) });
        let actions = self.actions.iter().map(|(t, a)| Line { t: *t, what: LineContent::Action(a.clone()) });
        for line in events.chain(actions) {
            text.push_str(&serde_json::to_string(&line).map_err(write_error)?);
            text.push('\n');
        }
        Ok(text)
    }

    /// Runs the events through a fresh scheduler, with a poll at every requested wake-up. Returns
    /// every action with its time.
    ///
    /// Refused events are a normal part of a sequence. Every event is followed by an audit of the
    /// bookkeeping.
    ///
    /// # Errors
    /// [`SchedError::OutOfRange`] for an invalid configuration, [`SchedError::BadFile`] for a
    /// failed audit (with the line of the event), and [`SchedError::ReplayDiffers`] where the file
    /// records other actions.
    pub fn run(&self) -> Result<Vec<(Time, Action)>, SchedError> {
        let header = self.header.clone();
        let mut scheduler = Scheduler::new(header.config, header.models, header.policy)?;
        let mut actions = Vec::new();
        for (index, (time, call)) in self.events.iter().enumerate() {
            while let Some(wake) = scheduler.next_wakeup().filter(|wake| wake <= time) {
                drain(&mut scheduler, wake, &mut actions);
            }
            match call.clone() {
                Told::Event(event) => drop(scheduler.handle(*time, event)),
                Told::Policy(policy) => scheduler.set_policy(policy),
            }
            drain(&mut scheduler, *time, &mut actions);
            scheduler.audit().map_err(|why| SchedError::BadFile { what: "replay audit", line: index + 2, why })?;
        }
        if !self.actions.is_empty() {
            self.compare(&actions)?;
        }
        Ok(actions)
    }

    fn compare(&self, actual: &[(Time, Action)]) -> Result<(), SchedError> {
        for index in 0..self.actions.len().max(actual.len()) {
            if self.actions.get(index) != actual.get(index) {
                let (recorded, now) = (format_action(&self.actions, index), format_action(actual, index));
                return Err(SchedError::ReplayDiffers { at: index, recorded, now });
            }
        }
        Ok(())
    }
}

fn bad_line(line: usize, why: String) -> SchedError {
    SchedError::BadFile { what: "replay", line: line + 1, why }
}

fn write_error(e: serde_json::Error) -> SchedError {
    SchedError::BadFile { what: "replay", line: 0, why: e.to_string() }
}

fn line_content(call: &Told) -> LineContent {
    match call {
        Told::Event(event) => LineContent::Event(event.clone()),
        Told::Policy(policy) => LineContent::Policy(policy.clone()),
    }
}

/// Formats an action of a list; `nothing` beyond the end of the list.
fn format_action(list: &[(Time, Action)], index: usize) -> String {
    list.get(index).map_or("nothing".into(), |a| format!("{a:?}"))
}

fn drain(scheduler: &mut Scheduler<PolicySpec>, now: Time, actions: &mut Vec<(Time, Action)>) {
    while let Some(action) = scheduler.poll_action(now) {
        actions.push((now, action));
    }
}
