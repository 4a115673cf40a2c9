//! Notices over HTTP, without a connection of the protocol: for a device that sleeps until its
//! turn, or pays for its link by the minute. The same client runs the phases over the protocol
//! ([`Client::take_up`](crate::Client::take_up)).
use crate::connection::choose;
use crate::wire::{Device, InputId, ModelAndBackend};
use crate::{ClientConfig, ClientError, Control};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;
use std::time::{Duration, Instant};
use tacit_backends::Registry;
use tacit_foreign::plain;

/// Explains to people that a server does not have an input. A server has notices in memory alone.
pub const UNKNOWN_INPUT_MESSAGE: &str = "nothing of this client's is announced under this name: its time is over, it was \
                                         used or taken back, or the server was started anew since, and it is lost";

/// Longest that a server holds a request for a turn open.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Pause before the next request, if the state has changed but the turn has not come.
const POLL_PAUSE: Duration = Duration::from_millis(100);

/// State of an announced input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeState {
    /// It waits for its offline phase.
    Announced,
    /// Its material is being made.
    Offline,
    /// Its material is made.
    Ready,
    /// It is being answered.
    Online,
}

impl fmt::Display for NoticeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Announced => "announced",
            Self::Offline => "offline",
            Self::Ready => "ready",
            Self::Online => "online",
        })
    }
}

/// An announced input, as the server reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The name that the server gave it.
    pub name: InputId,
    /// Its state.
    pub state: NoticeState,
    /// Number of inputs: as announced, or the number that the server runs as one batch.
    pub inputs: usize,
    /// Whether its next phase would start at once if a connection requested it now. A hint: no core
    /// is reserved.
    pub turn: bool,
}

/// Notices of one client at one server, over HTTP.
pub struct Notices {
    control: Control,
    device: Device,
}

impl Notices {
    /// The notices of a client with this configuration, with `connect_timeout` as the limit on each
    /// answer. Does not connect yet.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for too many threads, [`ClientError::Net`] if the address is
    /// malformed.
    pub fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        let device = config.device()?;
        let name = config.server_name.as_deref();
        Ok(Self { control: Control::new(&config.address, &config.identity, name, config.connect_timeout)?, device })
    }

    /// Chooses the model and the back end that the caller does not name: the only model on offer;
    /// the back end as [`Connection::open`](crate::Connection::open) does.
    ///
    /// # Errors
    /// There is no such model, or the choice is ambiguous; as [`Control::get`].
    pub fn choose(
        &self,
        registry: &Registry,
        model: Option<&str>,
        backend: Option<&str>,
    ) -> Result<ModelAndBackend, ClientError> {
        let answer = self.control.get("/v1/models")?;
        let Models { models } = read("the list of models", answer)?;
        let offer = match (model, models.as_slice()) {
            (None, [only]) => only,
            (None, _) => {
                return Err(ClientError::Usage(format!("the server has several models, name one: {}", names(&models))));
            }
            (Some(name), _) => models
                .iter()
                .find(|m| m.name == name)
                .ok_or_else(|| ClientError::NoModel { name: name.into(), known: names(&models) })?,
        };
        let backend = match backend {
            Some(name) => name.to_owned(),
            None => choose(registry, &offer.name, offer.backends.iter().map(String::as_str))?,
        };
        Ok(ModelAndBackend { model: offer.name.clone(), backend })
    }

    /// Announces a batch of inputs for a model with a back end. The batch is expected in
    /// `expected`, if that is known, and forgotten `ttl` later. The server's limits cap all three.
    ///
    /// # Errors
    /// [`ClientError::Denied`]: there is no such model, or too much is under way; as
    /// [`Control::post`].
    pub fn announce(
        &self,
        model: &str,
        backend: &str,
        inputs: usize,
        expected: Option<Duration>,
        ttl: Option<Duration>,
    ) -> Result<Standing, ClientError> {
        let Device { threads, link, memory_mib } = self.device;
        let mut body =
            json!({ "model": model, "backend": backend, "inputs": inputs, "threads": threads, "link": link });
        if memory_mib > 0 {
            body["memory_mib"] = json!(memory_mib);
        }
        for (key, time) in [("expected_s", expected), ("ttl_s", ttl)] {
            if let Some(time) = time {
                body[key] = json!(time.as_secs_f64());
            }
        }
        parse_state(self.control.post("/v1/inputs", &body)?)
    }

    /// The state of an input: at once, or, with `wait` (at most a minute), when its turn has come
    /// or its state has changed. `None` if the server has none of this name:
    /// [`UNKNOWN_INPUT_MESSAGE`].
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn state(&self, name: InputId, wait: Duration) -> Result<Option<Standing>, ClientError> {
        let path = path(name);
        // The server waits for whole seconds; this function sleeps for the rest.
        let seconds = wait.min(LONGEST_WAIT).as_secs();
        let answer = match seconds {
            0 => self.control.get(&path),
            _ => self.control.get_after(&format!("{path}?wait_s={seconds}"), Duration::from_secs(seconds)),
        };
        none_if_unknown(answer)?.map(parse_state).transpose()
    }

    /// Waits until an input's turn has come, or for `within`; returns its state then.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub fn wait_for_turn(&self, name: InputId, within: Duration) -> Result<Option<Standing>, ClientError> {
        let end = Instant::now() + within;
        let mut state = self.state(name, Duration::ZERO)?;
        while let Some(standing) = state
            && !standing.turn
            && Instant::now() < end
        {
            let left = end.saturating_duration_since(Instant::now());
            if left < Duration::from_secs(1) {
                std::thread::sleep(left.min(POLL_PAUSE));
            }
            state = self.state(name, left)?;
        }
        Ok(state)
    }

    /// Withdraws an input; returns whether there was one of this name.
    ///
    /// # Errors
    /// As [`Control::delete`].
    pub fn take_back(&self, name: InputId) -> Result<bool, ClientError> {
        Ok(none_if_unknown(self.control.delete(&path(name)))?.is_some())
    }
}

#[derive(Deserialize)]
struct Models {
    models: Vec<Offer>,
}

/// A model in the list; other fields are ignored.
#[derive(Deserialize)]
struct Offer {
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    name: String,
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    backends: Vec<String>,
}

#[derive(Deserialize)]
struct InputStateBody {
    name: String,
    state: NoticeState,
    inputs: usize,
    turn: bool,
}

fn names(models: &[Offer]) -> String {
    models.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn path(name: InputId) -> String {
    format!("/v1/inputs/{name}")
}

fn read<T: for<'de> Deserialize<'de>>(what: &'static str, answer: Value) -> Result<T, ClientError> {
    serde_json::from_value(answer).map_err(|e| ClientError::Unexpected { what, detail: plain(&e.to_string()) })
}

fn parse_state(answer: Value) -> Result<Standing, ClientError> {
    let what = "state of an input";
    let InputStateBody { name, state, inputs, turn } = read(what, answer)?;
    let name =
        name.parse().map_err(|e: crate::wire::NotAName| ClientError::Unexpected { what, detail: e.to_string() })?;
    Ok(Standing { name, state, inputs, turn })
}

fn none_if_unknown<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ClientError::Denied { status: 404, .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_input_states() {
        let told = json!({"name": "00000000000000ff", "state": "ready", "inputs": 3, "turn": true, "more": 1});
        let wanted = Standing { name: InputId(255), state: NoticeState::Ready, inputs: 3, turn: true };
        assert_eq!(parse_state(told).unwrap(), wanted);
        for wrong in [
            json!({"name": "ff", "state": "ready", "inputs": 1, "turn": true}),
            json!({"name": "00000000000000ff", "state": "lost", "inputs": 1, "turn": true}),
            json!(null),
        ] {
            assert!(matches!(parse_state(wrong), Err(ClientError::Unexpected { .. })));
        }
        let denied = |status| ClientError::Denied { server: "s".into(), status, why: "w".into() };
        assert_eq!(none_if_unknown::<()>(Err(denied(404))).unwrap(), None);
        assert_eq!(none_if_unknown::<()>(Err(denied(403))).unwrap_err().to_string(), "s refuses (403): w");
    }
}
