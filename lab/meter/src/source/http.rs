//! External meters over HTTP: a URL that answers with JSON, polled once a second (docs/lab.md).
//!
//! The answer is an object with a member `watts` or `joules` (cumulative). For other answers the URL ends in
//! `#UNIT=POINTER`: `UNIT` is `watts`, `joules`, `wh` or `kwh`, `POINTER` a JSON pointer (RFC 6901), for
//! example `http://plug/rpc/Switch.GetStatus?id=0#watts=/apower`. Numbers may be given as strings.
use super::csv::RAIL;
use super::poll::{Polled, Reader};
use super::sysfs::shorten;
use super::{Rail, Source, SourceInfo, Value};
use crate::MeterError;
use std::time::Duration;

const MAX_BODY: u64 = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(2);
const INTERVAL_MS: u32 = 1000;
const REMEDY: &str =
    "check the meter's address with curl; the answer must hold {\"watts\": 3.2}, or name its place: URL#watts=/POINTER";

/// Unit of a member: name, whether it is cumulative, factor to watts or joules.
const UNITS: [(&str, bool, f64); 4] =
    [("watts", false, 1.0), ("joules", true, 1.0), ("wh", true, 3600.0), ("kwh", true, 3.6e6)];

/// Selects a number of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pointer: String,
    cumulative: bool,
    factor: f64,
}

impl Field {
    /// Reads `UNIT=POINTER`.
    ///
    /// # Errors
    /// [`MeterError::malformed`] for an unknown unit or a pointer that does not begin with a slash.
    pub fn parse(text: &str) -> Result<Self, MeterError> {
        let (unit, pointer) =
            text.split_once('=').ok_or_else(|| wrong_field(text, "expected for example #watts=/apower"))?;
        let Some(&(_, cumulative, factor)) = UNITS.iter().find(|(name, ..)| *name == unit) else {
            return Err(wrong_field(text, format!("unknown unit {unit:?}, expected watts, joules, wh or kwh")));
        };
        if !pointer.starts_with('/') {
            return Err(wrong_field(text, "a JSON pointer begins with /"));
        }
        Ok(Self { pointer: pointer.into(), cumulative, factor })
    }
}

fn wrong_field(text: &str, detail: impl Into<String>) -> MeterError {
    MeterError::malformed(format!("#{}", shorten(text)), detail)
}

/// Reads the number of an answer: watts, or joules since the meter began; without `field`, member
/// `watts` or `joules`.
///
/// # Errors
/// [`MeterError::malformed`] if the answer is not JSON or the number is missing, not finite or out
/// of range.
pub fn parse_body(body: &str, field: Option<&Field>) -> Result<Value, MeterError> {
    let json: serde_json::Value =
        serde_json::from_str(body).map_err(|e| wrong_answer(body, format!("no JSON: {e}")))?;
    let (member, cumulative, factor) = match field {
        Some(field) => (json.pointer(&field.pointer), field.cumulative, field.factor),
        None => match (json.get("watts"), json.get("joules")) {
            (_, Some(joules)) => (Some(joules), true, 1.0),
            (watts, None) => (watts, false, 1.0),
        },
    };
    let member = member.ok_or_else(|| wrong_answer(body, "it has no such member"))?;
    let number = member.as_f64().or_else(|| member.as_str()?.trim().parse().ok());
    let number =
        number.ok_or_else(|| wrong_answer(body, format!("{:?} is no number", shorten(&member.to_string()))))? * factor;
    let max = if cumulative { 1e15 } else { 1e6 };
    if !number.is_finite() || number.abs() > max {
        return Err(wrong_answer(body, format!("{number} is absurd")));
    }
    Ok(if cumulative { Value::Joules(number) } else { Value::Watts(number) })
}

fn wrong_answer(body: &str, detail: impl Into<String>) -> MeterError {
    MeterError::malformed(format!("answer {:?}", shorten(body)), detail)
}

/// Makes a meter's cumulative energy start at 0 here, and refuses decreases.
fn since_start(value: Value, first: &mut Option<f64>, last: &mut f64) -> Result<Value, MeterError> {
    let Value::Joules(now) = value else { return Ok(value) };
    let start = first.get_or_insert(now);
    let joules = now - *start;
    if joules < *last {
        // Counting continues from here; the energy so far stays.
        *start = now - *last;
        let detail = format!("went back by {:.0} J; counting goes on from there", *last - joules);
        return Err(MeterError::malformed("the meter's energy counter", detail));
    }
    *last = joules;
    Ok(Value::Joules(*last))
}

/// A polled meter; sends the first request at once.
///
/// # Errors
/// [`MeterError::Source`] if the address is invalid, no answer arrives within two seconds, or the
/// answer lacks the number.
pub fn open(address: &str) -> Result<Box<dyn Source>, MeterError> {
    let name = format!("external:{address}");
    let (url, field) = match address.split_once('#') {
        Some((url, field)) => (url, Some(Field::parse(field)?)),
        None => (address, None),
    };
    let url = url.to_owned();
    if !url.starts_with("http://") {
        return Err(failure(&name, "only plain http:// addresses are polled, in a network that you trust"));
    }
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).max_redirects(2).proxy(None).build().new_agent();
    let (mut first, mut last) = (None, 0.0);
    let reading = ask(&agent, &url, field.as_ref()).map_err(|reason| failure(&name, reason))?;
    let value = since_start(reading, &mut first, &mut last)?;
    let info = SourceInfo::measured(name, vec![Rail::counted(RAIL)], INTERVAL_MS);
    let reader: Reader = Box::new(move || {
        let reading = ask(&agent, &url, field.as_ref()).map_err(|reason| MeterError::malformed("polling", reason))?;
        Ok(vec![since_start(reading, &mut first, &mut last)?])
    });
    Ok(Box::new(Polled::start(info, REMEDY, vec![value], reader)))
}

fn ask(agent: &ureq::Agent, url: &str, field: Option<&Field>) -> Result<Value, String> {
    let mut answer = agent.get(url).call().map_err(|e| e.to_string())?;
    let body = answer.body_mut().with_config().limit(MAX_BODY).read_to_string().map_err(|e| e.to_string())?;
    parse_body(&body, field).map_err(|e| e.to_string())
}

fn failure(name: &str, reason: impl Into<String>) -> MeterError {
    MeterError::Source { name: name.into(), reason: reason.into(), remedy: REMEDY.into() }
}
