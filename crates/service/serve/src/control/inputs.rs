//! Notices over HTTP, for clients without a protocol connection: announce an input, wait for its
//! turn, withdraw it. The phases themselves run over the protocol, under the name that the notice
//! got.
use super::answer::{Answer, Peer, Refusal, json};
use super::body::json_body;
use super::keepalive::Keepalive;
use super::state::State;
use crate::jobs::event::Event;
use crate::jobs::queue::{InputOrigin, InputStatus};
use axum::body::Body;
use axum::extract::{Extension, Path, State as Shares};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json as object;
use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_client::MAX_THREADS;
use tacit_client::wire::{Announce, Device, InputId, LinkClass};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

type SharedState = Shares<Arc<State>>;
type RequestPeer = Extension<Peer>;

const MAX_NAME: usize = 256;
/// Most inputs of a notice; a server runs fewer as one batch.
const MAX_INPUTS: u32 = 1024;
/// Limit of `expected_s` and of `ttl_s`: a week.
const MAX_SECONDS: f64 = 604_800.0;
/// Longest wait for a turn, in seconds.
pub(super) const MAX_WAIT_S: u64 = 60;
/// How often a waiting request marks its connection as alive.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Notice<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    backend: Cow<'a, str>,
    inputs: Option<u32>,
    threads: Option<u16>,
    link: Option<LinkClass>,
    memory_mib: Option<u32>,
    expected_s: Option<f64>,
    ttl_s: Option<f64>,
}

/// The notice in a body of `POST /v1/inputs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeBody {
    /// The model.
    pub model: String,
    /// The back end.
    pub backend: String,
    /// Number of inputs in the batch.
    pub inputs: u32,
    /// The client's machine.
    pub device: Device,
    /// Milliseconds until the client expects to send the request.
    pub expected_ms: Option<u64>,
    /// Milliseconds after the expected time until the server forgets the notice.
    pub ttl_ms: Option<u64>,
}

/// Reads a body of `POST /v1/inputs`: `{"model": "digits", "backend": "cheetah"}`. Optional fields:
/// `inputs` (default 1), `threads` (1 to the most that a client may have), `link` (`lan`,
/// `broadband`, `slow`), `memory_mib`, `expected_s` and `ttl_s`.
///
/// # Errors
/// A readable description of the first fault in the body.
pub fn read_notice(body: &[u8]) -> Result<NoticeBody, String> {
    let Notice { model, backend, inputs, threads, link, memory_mib, expected_s, ttl_s } = serde_json::from_slice(body)
        .map_err(|e| format!("the body is not {{\"model\": \"NAME\", \"backend\": \"ID\", ..}}: {e}"))?;
    for (field, name) in [("model", &model), ("backend", &backend)] {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(format!("`{field}` has {} bytes, not 1 to {MAX_NAME}", name.len()));
        }
    }
    let inputs = inputs.unwrap_or(1);
    if !(1..=MAX_INPUTS).contains(&inputs) {
        return Err(format!("`inputs` is {inputs}, not from 1 to {MAX_INPUTS}"));
    }
    let threads = threads.unwrap_or(1);
    if !(1..=MAX_THREADS).contains(&usize::from(threads)) {
        return Err(format!("`threads` is {threads}, not from 1 to {MAX_THREADS}"));
    }
    Ok(NoticeBody {
        model: model.into_owned(),
        backend: backend.into_owned(),
        inputs,
        device: Device { threads, link: link.unwrap_or_default(), memory_mib: memory_mib.unwrap_or(0) },
        expected_ms: millis("expected_s", expected_s)?,
        ttl_ms: millis("ttl_s", ttl_s)?,
    })
}

fn millis(field: &str, seconds: Option<f64>) -> Result<Option<u64>, String> {
    match seconds {
        None => Ok(None),
        Some(s) if (0.0..=MAX_SECONDS).contains(&s) => Ok(Some((s * 1000.0) as u64)),
        Some(s) => Err(format!("`{field}` is {s}, not from 0 to {MAX_SECONDS}")),
    }
}

/// The 404 for an unknown name. Inputs of an earlier run are lost.
fn no_such_input() -> Refusal {
    let error = "nothing of yours is announced or asked for under this name: it has ended, or the server was started \
                 anew since, and it is lost";
    Refusal::new(StatusCode::NOT_FOUND, error)
}

fn read_name(text: &str) -> Result<InputId, Refusal> {
    text.parse().map_err(|_| no_such_input())
}

/// Reads the seconds to wait from a query; `None` above [`MAX_WAIT_S`].
fn read_wait(query: &str) -> Option<u64> {
    let text = query.strip_prefix("wait_s=").filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok().filter(|seconds| *seconds <= MAX_WAIT_S)
}

fn describe(name: InputId, status: &InputStatus) -> serde_json::Value {
    object!({ "name": name.to_string(), "state": status.state, "inputs": status.inputs, "turn": status.may_start })
}

pub(super) async fn announce(
    state: SharedState,
    Extension(peer): RequestPeer,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let body = json_body(&headers, body, state.limits()).await?;
    let notice = read_notice(&body).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))?;
    let (shared, client) = (&state.shared, peer.client);
    let offered = shared.catalog().get(&notice.model, &notice.backend, |name| shared.allows(client, name));
    let offered = offered.map_err(|e| Refusal::new(StatusCode::NOT_FOUND, e.to_string()))?;
    let max_inputs = (notice.inputs as usize).min(shared.max_inputs(client));
    let (memory, device) = (shared.config.job_memory, notice.device);
    // Making the plan of a batch is slow, and this thread serves other connections.
    let batched = spawn_blocking(move || offered.batched(offered.largest_fitting_batch(max_inputs, memory, device)));
    let offered = batched.await.map_err(|_| internal("making the plan of a batch panicked"))?;
    let offered = offered.map_err(|e| Refusal::new(StatusCode::BAD_REQUEST, e.to_string()))?;
    let name = InputId::random().map_err(|_| internal("no randomness from the operating system"))?;
    let announce = Announce { name, expected_ms: notice.expected_ms, ttl_ms: notice.ttl_ms };
    let origin = InputOrigin { client, offered, device };
    let noted = shared.ask(|reply| Event::Announced { origin, announce, reply }).await;
    let status = noted.ok_or_else(Refusal::stopping)?;
    let status = status.map_err(|e| Refusal::new(StatusCode::TOO_MANY_REQUESTS, e.to_string()))?;
    let mut response = json(&describe(name, &status));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

fn internal(text: &str) -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text)
}

async fn status(state: &State, peer: Peer, name: InputId) -> Result<InputStatus, Refusal> {
    let answer = state.shared.ask(|reply| Event::Status { client: peer.client, name, reply }).await;
    answer.ok_or_else(Refusal::stopping)?.ok_or_else(no_such_input)
}

/// Answers with the state of an input, with `wait_s` after its turn has come, its state has changed
/// or the time is over.
pub(super) async fn look(
    state: SharedState,
    Extension(peer): RequestPeer,
    Extension(keepalive): Extension<Arc<Keepalive>>,
    Path(name): Path<String>,
    uri: Uri,
) -> Answer {
    let name = read_name(&name)?;
    let seconds = match uri.query().unwrap_or_default() {
        "" => 0,
        query => read_wait(query).ok_or_else(bad_query)?,
    };
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let first = status(&state, peer, name).await?;
    let mut change =
        pin!(state.shared.ask(|reply| Event::Watched { client: peer.client, name, state: first.state, reply }));
    while seconds > 0 && Instant::now() < deadline {
        tokio::select! {
            changed = &mut change => {
                let current = changed.ok_or_else(Refusal::stopping)?.ok_or_else(no_such_input)?;
                return Ok(json(&describe(name, &current)));
            }
            // A connection with a waiting request is not idle.
            () = sleep(BEAT_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))) => keepalive.beat(),
        }
    }
    Ok(json(&describe(name, &first)))
}

fn bad_query() -> Refusal {
    let error = format!("the query takes `wait_s`, whole seconds up to {MAX_WAIT_S}, and nothing else");
    Refusal::new(StatusCode::BAD_REQUEST, error)
}

pub(super) async fn cancel(
    state: SharedState,
    Extension(peer): RequestPeer,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let name = read_name(&name)?;
    let withdrawn = state.shared.ask(|reply| Event::TakenBack { client: peer.client, name, reply }).await;
    match withdrawn.ok_or_else(Refusal::stopping)? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(no_such_input()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_notices_names_and_waits() {
        let parse = |body: &str| read_notice(body.as_bytes());
        let full = parse(
            r#"{"model": "m", "backend": "b", "inputs": 3, "threads": 4, "link": "slow", "memory_mib": 512, "expected_s": 1.5, "ttl_s": 2}"#,
        );
        let device = Device { threads: 4, link: LinkClass::Slow, memory_mib: 512 };
        let (model, backend) = ("m".to_owned(), "b".to_owned());
        let wanted = NoticeBody { model, backend, inputs: 3, device, expected_ms: Some(1500), ttl_ms: Some(2000) };
        assert_eq!(full.unwrap(), wanted);
        let least = parse(r#"{"model": "\u006d", "backend": "b"}"#).unwrap();
        assert_eq!(
            (least.device, least.inputs, least.expected_ms),
            (Device { threads: 1, link: LinkClass::Lan, memory_mib: 0 }, 1, None)
        );
        let long = "x".repeat(300);
        for (extra, expected) in [
            (r#""threads": 0"#.to_owned(), "threads"),
            (r#""inputs": 1025"#.to_owned(), "inputs"),
            (r#""threads": 65535"#.to_owned(), "threads"),
            (r#""memory_mib": -1"#.to_owned(), "-1"),
            (r#""link": "moon""#.to_owned(), "moon"),
            (r#""expected_s": -1"#.to_owned(), "expected_s"),
            (r#""ttl_s": 1e300"#.to_owned(), "ttl_s"),
            (r#""ttl_s": null, "x": 1"#.to_owned(), "unknown field"),
            (format!(r#""model": "{long}""#), "duplicate"),
        ] {
            let why = parse(&format!(r#"{{"model": "m", "backend": "b", {extra}}}"#)).unwrap_err();
            assert!(why.contains(expected), "{extra}: {why}");
            assert!(why.len() < 400, "{extra}: {why}");
        }
        assert!(parse(&format!(r#"{{"model": "{long}", "backend": "b"}}"#)).unwrap_err().contains("300 bytes"));
        assert!(parse("").is_err());
        assert!(read_notice(&[b'['; 60_000]).is_err());
        let names = ["0123456789abcdef", "0123456789abcdeg", "+123456789abcdef", "0", ""];
        assert_eq!(names.map(|name| read_name(name).is_ok()), [true, false, false, false, false]);
        let waits = ["wait_s=0", "wait_s=60", "wait_s=61", "wait_s=+1", "wait_s=", "wait_s=1&x=2", "x"];
        assert_eq!(waits.map(read_wait), [Some(0), Some(60), None, None, None, None, None]);
    }
}
