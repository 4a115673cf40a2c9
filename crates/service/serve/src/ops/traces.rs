//! Traces for a collector: each phase is a span, sent by OTLP over HTTP with JSON. A separate
//! thread sends them, and no job waits for it. Spans that the collector does not take in time are
//! dropped and counted.
use crate::ServeError;
use crate::ops::ended::EndedPhase;
use serde_json::{Value, json};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tacit_client::wire::InputId;
use ureq::Agent;

const MAX_QUEUED_SPANS: usize = 4096;
const MAX_SPANS_PER_REQUEST: usize = 256;
/// How long a span waits for others to share a request.
const GATHER_TIME: Duration = Duration::from_millis(500);
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server that stops waits for the last spans.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Least time between two log messages about lost spans.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Address of a collector: `http://HOST:PORT`, with the path before `/v1/traces` if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector(String);

impl FromStr for Collector {
    type Err = ServeError;

    fn from_str(text: &str) -> Result<Self, ServeError> {
        let Some(address) = text.strip_prefix("http://") else {
            let message = "it begins with http://; one that is elsewhere is reached by a collector on this machine";
            return Err(invalid_address(text, message));
        };
        let (host, path) = address.split_once('/').unwrap_or((address, ""));
        if host.is_empty() || !is_plain(host) || !is_plain(path) || text.len() > 1024 {
            return Err(invalid_address(text, "it is not http://HOST:PORT or http://HOST:PORT/PATH"));
        }
        Ok(Self(format!("{}/v1/traces", text.trim_end_matches('/'))))
    }
}

fn invalid_address(text: &str, message: &str) -> ServeError {
    ServeError::Usage(format!("collector of traces {text:?}: {message}"))
}

/// Whether a part of an address has no characters with a meaning of their own.
fn is_plain(segment: &str) -> bool {
    segment.bytes().all(|b| b.is_ascii_graphic() && !b"?#@\\\"<>".contains(&b))
}

/// Random bytes that distinguish this run's spans from those of other runs.
#[derive(Clone, Copy, Default)]
struct Run([u8; 8]);

fn hex(parts: &[&[u8]]) -> String {
    parts.iter().flat_map(|bytes| bytes.iter()).map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(key: &str, value: Value) -> Value {
    json!({ "key": key, "value": value })
}

fn text(key: &str, value: impl Into<String>) -> Value {
    attribute(key, json!({ "stringValue": value.into() }))
}

fn number(key: &str, value: u64) -> Value {
    // As text: not every JSON parser reads large integers exactly.
    attribute(key, json!({ "intValue": value.to_string() }))
}

/// Returns the phase's span and a span for its time in the queue; the phase ended at `now`.
/// Phases of one input share a trace: half of its id is the client XOR the run, the other half is
/// the input's name. Job numbers restart with the server, so the run's random bytes go into every
/// id.
fn spans(ended: &EndedPhase, now: SystemTime, run: Run) -> [Value; 2] {
    let EndedPhase { job, labels, .. } = ended;
    let input = ended.input.map_or(*job, |InputId(name)| name);
    let whose: Vec<u8> = ended.client.0.iter().zip(run.0).map(|(a, b)| a ^ b).collect();
    let trace = hex(&[&whose, &input.to_be_bytes()]);
    let mut attributes = vec![
        text("tacit.client", ended.client.to_string()),
        text("tacit.model", &*labels.model),
        text("tacit.backend", &*labels.backend),
        text("tacit.outcome", ended.outcome),
    ];
    if !ended.client_name.is_empty() {
        attributes.push(text("tacit.client_name", &*ended.client_name));
    }
    attributes.extend(ended.input.map(|name| text("tacit.input", name.to_string())));
    attributes.extend(ended.ran.map(|(_, threads)| number("tacit.threads", threads as u64)));
    attributes.extend(ended.memory.map(|bytes| number("tacit.memory_bytes", bytes)));
    let traffic = ended.traffic.map(|bytes| ["tacit.sent_bytes", "tacit.received_bytes"].into_iter().zip(bytes));
    attributes.extend(traffic.into_iter().flatten().map(|(key, bytes)| number(key, bytes)));
    // Status code 1 is ok, 2 an error. Span kind 2 is a server's span, 1 an internal one.
    let code = if ended.outcome == "done" { 1 } else { 2 };
    let [ran_id, queued_id] = [0, 1].map(|index| span_id(*job, run, index));
    let ran = json!({
        "traceId": trace, "spanId": ran_id, "name": labels.phase, "kind": 2,
        "startTimeUnixNano": nanos(now, ended.lasted), "endTimeUnixNano": nanos(now, Duration::ZERO),
        "attributes": attributes, "status": { "code": code },
    });
    let waited = json!({
        "traceId": trace, "spanId": queued_id, "parentSpanId": ran_id,
        "name": "queued", "kind": 1, "startTimeUnixNano": nanos(now, ended.lasted),
        "endTimeUnixNano": nanos(now, ended.run_time().unwrap_or_default()),
        "attributes": [], "status": {},
    });
    [ran, waited]
}

/// Returns the id of one of a phase's two spans.
fn span_id(job: u64, run: Run, index: u64) -> String {
    hex(&[&(u64::from_be_bytes(run.0) ^ (2 * job + index)).to_be_bytes()])
}

/// The nanoseconds since 1970 of the time that lies `ago` before `now`.
fn nanos(now: SystemTime, ago: Duration) -> String {
    let time = now.checked_sub(ago).and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    time.as_nanos().to_string()
}

/// The sender of spans; drops them without a collector.
#[derive(Default)]
pub(crate) struct Traces {
    spans: Option<SyncSender<Value>>,
    run: Run,
    lost: Arc<AtomicU64>,
    finished: Option<Receiver<()>>,
}

impl Traces {
    /// Starts the sending thread.
    pub(crate) fn start(collector: Collector) -> Result<Self, ServeError> {
        let mut run = Run::default();
        getrandom::fill(&mut run.0)
            .map_err(|e| ServeError::system("asking for randomness")(std::io::Error::other(e)))?;
        let (spans, waiting) = sync_channel(MAX_QUEUED_SPANS);
        let (ended, finished) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let thread = thread::Builder::new().name("tacit-traces".into());
        let started = thread.spawn(move || {
            send(&collector, &waiting, &counted);
            // Fails only if the server did not wait.
            let _ = ended.send(());
        });
        started.map_err(ServeError::system("starting the thread of traces"))?;
        Ok(Self { spans: Some(spans), run, lost, finished: Some(finished) })
    }

    pub(crate) fn tell(&self, ended: &EndedPhase) {
        let Some(sender) = &self.spans else { return };
        for span in spans(ended, SystemTime::now(), self.run) {
            if sender.try_send(span).is_err() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes no more spans; waits at most `CLOSE_TIMEOUT` until the others are sent.
    pub(crate) fn close(&mut self) {
        self.spans = None;
        if let Some(finished) = self.finished.take() {
            // Gives up on what is not sent by then.
            let _ = finished.recv_timeout(CLOSE_TIMEOUT);
        }
    }
}

fn send(collector: &Collector, waiting: &Receiver<Value>, lost: &AtomicU64) {
    let config = Agent::config_builder().timeout_global(Some(COLLECTOR_TIMEOUT)).max_redirects(0).proxy(None).build();
    let (agent, mut complained) = (config.new_agent(), None::<Instant>);
    while let Ok(first) = waiting.recv() {
        let (mut spans, deadline) = (vec![first], Instant::now() + GATHER_TIME);
        while spans.len() < MAX_SPANS_PER_REQUEST {
            match waiting.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(span) => spans.push(span),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let (count, body) = (spans.len() as u64, request(spans).to_string());
        let response = agent.post(&collector.0).content_type("application/json").send(&body);
        let why = response.err().map(|e| e.to_string());
        lost.fetch_add(why.as_ref().map_or(0, |_| count), Ordering::Relaxed);
        if lost.load(Ordering::Relaxed) > 0 && complained.is_none_or(|time| time.elapsed() > LOG_INTERVAL) {
            complained = Some(Instant::now());
            let why = why.unwrap_or_else(|| "they come faster than the collector takes them".into());
            tracing::warn!(
                "{} spans were lost, the collector at {}: {why}",
                lost.swap(0, Ordering::Relaxed),
                collector.0
            );
        }
    }
}

fn request(spans: Vec<Value>) -> Value {
    let resource = [text("service.name", "tacit-server"), text("service.version", env!("CARGO_PKG_VERSION"))];
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": "tacit-serve" }, "spans": spans }],
    }] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::metrics::PhaseLabels;
    use tacit_ids::ClientId;

    #[test]
    fn reads_addresses_of_collectors() {
        let parse = |text: &str| text.parse::<Collector>().map(|c| c.0);
        assert_eq!(parse("http://127.0.0.1:4318").unwrap(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(parse("http://[::1]:4318/otlp/").unwrap(), "http://[::1]:4318/otlp/v1/traces");
        for bad in
            ["https://c:4318", "127.0.0.1:4318", "http://", "http:///x", "http://a b", "http://u@h", "http://h/?x"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_of_an_input_share_a_trace() {
        let phase = |job, phase, input| EndedPhase {
            job,
            client: ClientId([0xab; 32]),
            client_name: "alice, ward 3".into(),
            input,
            labels: PhaseLabels { phase, model: "m".into(), backend: "b".into() },
            outcome: "done",
            fault: None,
            lasted: Duration::from_secs(3),
            ran: Some((Duration::from_secs(2), 4)),
            traffic: Some([5, 6]),
            memory: None,
        };
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let run = Run([0; 8]);
        let [ran, waited] = spans(&phase(7, "offline", Some(InputId(0x11))), now, run);
        let [second, _] = spans(&phase(8, "online", Some(InputId(0x11))), now, run);
        assert_eq!(ran["traceId"], "abababababababab0000000000000011");
        assert_eq!((&ran["traceId"], &waited["parentSpanId"]), (&second["traceId"], &ran["spanId"]));
        assert!(ran["spanId"] != second["spanId"]);
        assert!(ran["spanId"] != waited["spanId"]);
        let times =
            |span: &Value| ["startTimeUnixNano", "endTimeUnixNano"].map(|key| span[key].as_str().unwrap().to_owned());
        assert_eq!(times(&ran), ["97000000000", "100000000000"]);
        assert_eq!(times(&waited), ["97000000000", "98000000000"]);
        assert!(ran["attributes"].to_string().contains(r#"{"key":"tacit.sent_bytes","value":{"intValue":"5"}}"#));
        let named = r#"{"key":"tacit.client_name","value":{"stringValue":"alice, ward 3"}}"#;
        assert!(ran["attributes"].to_string().contains(named), "{ran}");
        let nameless = EndedPhase { client_name: "".into(), ..phase(7, "online", None) };
        assert!(!spans(&nameless, now, run)[0].to_string().contains("client_name"));
        let [stock, _] = spans(&phase(9, "offline", None), now, run);
        assert_ne!(stock["traceId"], ran["traceId"]);
        // The same job number in another run of the server.
        let [restarted, _] = spans(&phase(7, "offline", Some(InputId(0x11))), now, Run([1; 8]));
        assert!(["traceId", "spanId"].iter().all(|id| restarted[id] != ran[id]));
    }
}
