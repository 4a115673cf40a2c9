//! The control interface of a server, as a client of it: HTTP/1.1 over our own TLS.
use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use tacit_args::ServerArgs;
use tacit_net::{ClientTls, NetError, TcpTransport, TlsTransport, Transport as _, split_address};
use tacit_store::keys;
use ureq::config::Config;
use ureq::http::Response;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};
use ureq::{Agent, Body, Error};

/// Largest answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 16 << 20;
/// Buffers of a connection, in bytes.
const BUFFER: usize = 16 << 10;

#[derive(clap::Args)]
pub struct Operator {
    #[command(flatten)]
    server: ServerArgs,
    /// Seconds that an answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl Operator {
    /// Ready to ask; nothing is connected yet.
    pub fn interface(&self) -> anyhow::Result<Interface> {
        let ServerArgs { server, keys, client, server_name } = &self.server;
        Interface::of(server, (keys, client), server_name.as_deref(), self.timeout)
    }
}

/// The control interface of one server.
pub struct Interface {
    agent: Agent,
    server: String,
}

impl Interface {
    /// Of a server, for a name in a key folder; nothing is connected yet. `name` is that in the server's
    /// certificate, if it is not the host.
    pub fn of(server: &str, (keys, client): (&Path, &str), name: Option<&str>, timeout_s: u64) -> anyhow::Result<Self> {
        let (host, _) = split_address(server)?;
        let tls = keys::load_client(keys, client)?.tls.for_http();
        let secure = Secure { tls, name: name.unwrap_or(host).to_owned() };
        let config = Config::builder()
            .timeout_global(Some(Duration::from_secs(timeout_s)))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build();
        let agent = Agent::with_parts(config, secure, DefaultResolver::default());
        Ok(Self { agent, server: server.to_owned() })
    }

    /// What a path answers.
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        let asking = || format!("asking {} for {path}", self.server);
        self.answer(self.agent.get(self.url(path)).call().with_context(asking)?, &asking())
    }

    /// Has something done, and what that answers.
    pub fn post(&self, path: &str) -> anyhow::Result<Value> {
        let asking = || format!("asking {} for {path}", self.server);
        let request = self.agent.post(self.url(path)).content_type("application/json");
        self.answer(request.send("{}").with_context(asking)?, &asking())
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.server)
    }

    fn answer(&self, mut response: Response<Body>, asking: &str) -> anyhow::Result<Value> {
        let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        let text = body.read_to_string().with_context(|| asking.to_owned())?;
        let status = response.status();
        let value: Value = match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(e) => anyhow::bail!("{asking}: the answer ({status}) is not JSON: {e}"),
        };
        let why = || value["error"].as_str().unwrap_or("no reason given").to_owned();
        anyhow::ensure!(status.is_success(), "{} refuses ({}): {}", self.server, status.as_u16(), why());
        Ok(value)
    }
}

/// Our TLS for `ureq`.
struct Secure {
    tls: ClientTls,
    name: String,
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secure").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Connector<()> for Secure {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, Error> {
        let failed = |e: NetError| Error::Io(io::Error::other(e));
        let mut last = NetError::Tls(format!("{} has no address", self.name));
        for address in &details.addrs {
            match TcpTransport::connect(address, *details.timeout.after) {
                Ok(mut tcp) => {
                    tcp.set_deadline(deadline(&details.timeout));
                    let transport = self.tls.connect(tcp, &self.name).map_err(failed)?;
                    return Ok(Some(Connection { transport, buffers: LazyBuffers::new(BUFFER, BUFFER) }));
                }
                Err(e) => last = e,
            }
        }
        Err(failed(last))
    }
}

fn deadline(timeout: &NextTimeout) -> Option<Instant> {
    Instant::now().checked_add(*timeout.after)
}

struct Connection {
    transport: TlsTransport,
    buffers: LazyBuffers,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.transport.peer()).finish_non_exhaustive()
    }
}

/// A time-out is `ureq`'s to name; what TLS says is said in our words.
fn named(e: io::Error, timeout: &NextTimeout) -> Error {
    match e.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Error::Timeout(timeout.reason),
        io::ErrorKind::InvalidData => Error::Io(io::Error::other(NetError::from_io("the answer", &e))),
        _ => Error::Io(e),
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.transport.set_deadline(deadline(&timeout));
        let written = self.transport.write_all(&self.buffers.output()[..amount]);
        written.and_then(|()| self.transport.flush()).map_err(|e| named(e, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.transport.set_deadline(deadline(&timeout));
        let read = self.transport.read(self.buffers.input_append_buf()).map_err(|e| named(e, &timeout))?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        // Between two answers a server says nothing; whatever comes then, its end included, is the end.
        matches!(self.transport.try_read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    fn is_tls(&self) -> bool {
        true
    }
}

/// What operators are shown of `/v1/status`; what a server does not tell is zero or empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Status {
    pub version: String,
    pub uptime_s: f64,
    pub stopping: bool,
    pub policy: String,
    pub capacity: Amounts,
    pub used: Amounts,
    pub queues: Queues,
    pub jobs: Vec<Job>,
    pub clients: Vec<Client>,
    pub models: Vec<Model>,
    pub profile: Vec<Profile>,
    pub mean_delay_s: f64,
    pub mean_waiting_s: f64,
    pub throughput_per_s: f64,
    pub connections: usize,
    pub control_connections: usize,
    pub greetings: usize,
    pub greeting_places: usize,
    pub refusals: u64,
    pub certificates: Vec<Certificate>,
    /// What a client is shown: its own row, and nothing of the above but version and time.
    pub client: Option<Client>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Certificate {
    pub advice: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Amounts {
    pub cores: u64,
    pub memory: u64,
    pub disk: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Queues {
    pub pre: u64,
    pub waiting: u64,
    pub transit: u64,
    pub ready: u64,
    pub running_pre: u64,
    pub running_on: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Job {
    pub id: u64,
    pub phase: String,
    pub model: String,
    pub backend: String,
    pub client: String,
    pub threads: u64,
    pub queued_s: f64,
    pub started_s: f64,
    pub ended_s: Option<f64>,
    pub outcome: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Client {
    pub client: String,
    pub connections: u64,
    pub requests: u64,
    pub done: u64,
    pub failed: u64,
    pub refused: u64,
    pub queued: u64,
    pub inputs: u64,
    pub mean_delay_s: f64,
    pub mean_waiting_s: f64,
    pub throughput_per_s: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Model {
    pub name: String,
    pub backends: Vec<String>,
    pub done: u64,
    pub mean_delay_s: f64,
    pub mean_waiting_s: f64,
    pub throughput_per_s: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Profile {
    pub model: String,
    pub backend: String,
    pub phase: String,
    pub device: String,
    pub jobs: u64,
    pub expected_s: f64,
    pub measured_s: f64,
    pub error_median: f64,
    pub error_p95: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Names of what a value has.
    fn names(value: &Value) -> BTreeSet<&str> {
        value.as_object().expect("it is an object").keys().map(String::as_str).collect()
    }

    #[test]
    fn what_is_shown_is_what_servers_describe() {
        // A test of the server's holds this to what it tells.
        let described: Value =
            serde_json::from_str(include_str!("../../serve/src/control/openapi.json")).expect("it is JSON");
        let shown = |value: serde_json::Result<Value>| value.expect("plain data");
        let status = Status { client: Some(Client::default()), ..Status::default() };
        for (schemas, ours) in [
            (&["Snapshot", "OwnStatus"][..], shown(serde_json::to_value(status))),
            (&["Amounts"], shown(serde_json::to_value(Amounts::default()))),
            (&["Queues"], shown(serde_json::to_value(Queues::default()))),
            (&["Job"], shown(serde_json::to_value(Job::default()))),
            (&["Client"], shown(serde_json::to_value(Client::default()))),
            (&["Model"], shown(serde_json::to_value(Model::default()))),
            (&["Profile"], shown(serde_json::to_value(Profile::default()))),
            (&["Certificate"], shown(serde_json::to_value(Certificate::default()))),
        ] {
            let properties = schemas.iter().map(|name| &described["components"]["schemas"][name]["properties"]);
            let theirs: BTreeSet<&str> = properties.flat_map(names).collect();
            let unknown: Vec<&str> = names(&ours).difference(&theirs).copied().collect();
            assert!(unknown.is_empty(), "{schemas:?} has no {unknown:?}");
        }
    }
}
