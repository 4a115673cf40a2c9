//! A client of a server's control interface: HTTP/1.1 over our own TLS, blocking. For programs that
//! watch a server or give notices without a connection of the protocol.
use crate::ClientError;
use serde_json::Value;
use std::fmt;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};
use tacit_foreign::plain;
use tacit_net::{ClientTls, NetError, TcpTransport, TlsTransport, Transport as _, split_address};
use tacit_store::keys::ClientIdentity;
use ureq::config::Config;
use ureq::http::Response;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};
use ureq::{Agent, Body, Error};

const MAX_ANSWER_BYTES: u64 = 16 << 20;
const BUFFER_BYTES: usize = 16 << 10;
const JSON: &str = "application/json";

/// The control interface of one server. Connects on the first request and reuses the connection.
pub struct Control {
    agent: Agent,
    server: String,
    timeout: Duration,
}

impl Control {
    /// The control interface of the server at `host:port`; does not connect yet. `name` is the name
    /// in the server's certificate, if it is not the host. `timeout` limits each answer.
    ///
    /// # Errors
    /// [`ClientError::Net`] if the address is malformed.
    pub fn new(
        server: &str,
        identity: &ClientIdentity,
        name: Option<&str>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let (host, _) = split_address(server)?;
        let secure = Secure { tls: identity.tls.for_http(), name: name.unwrap_or(host).to_owned() };
        let config = Config::builder().timeout_global(Some(timeout)).http_status_as_error(false);
        let config = config.max_redirects(0).proxy(None).build();
        let agent = Agent::with_parts(config, secure, DefaultResolver::default());
        Ok(Self { agent, server: server.to_owned(), timeout })
    }

    /// Gets the answer of a path.
    ///
    /// # Errors
    /// [`ClientError::Http`]: there is no answer, or it is not JSON; [`ClientError::Denied`]: the
    /// answer is a refusal.
    pub fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.answer(path, self.agent.get(self.url(path)).call())
    }

    /// As [`get`](Self::get), for an answer that the server may delay by up to `wait`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_after(&self, path: &str, wait: Duration) -> Result<Value, ClientError> {
        let request = self.agent.get(self.url(path)).config().timeout_global(Some(self.timeout + wait)).build();
        self.answer(path, request.call())
    }

    /// Posts a body and returns the answer.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.answer(path, self.agent.post(self.url(path)).content_type(JSON).send(body.to_string()))
    }

    /// Deletes a resource.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.answer(path, self.agent.delete(self.url(path)).call()).map(drop)
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.server)
    }

    /// Decodes an answer; `null` if it has no content.
    fn answer(&self, path: &str, response: Result<Response<Body>, Error>) -> Result<Value, ClientError> {
        let failed =
            |what: &str| ClientError::Http { asking: format!("asking {} for {path}", self.server), what: plain(what) };
        let mut response = response.map_err(|e| failed(&e.to_string()))?;
        let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        let text = body.read_to_string().map_err(|e| failed(&e.to_string()))?;
        let status = response.status();
        let value: Value = match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(_) if text.is_empty() && status.is_success() => Value::Null,
            Err(e) => return Err(failed(&format!("the answer ({status}) is not JSON: {e}"))),
        };
        if status.is_success() {
            return Ok(value);
        }
        let why = plain(value["error"].as_str().unwrap_or("no reason given"));
        Err(ClientError::Denied { server: self.server.clone(), status: status.as_u16(), why })
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
    type Out = ControlConnection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<ControlConnection>, Error> {
        let mut last = NetError::Tls(format!("{} has no address", self.name));
        for address in &details.addrs {
            match TcpTransport::connect(address, *details.timeout.after) {
                Ok(mut tcp) => {
                    tcp.set_deadline(deadline(&details.timeout));
                    let transport = self.tls.connect(tcp, &self.name).map_err(not_connected)?;
                    return Ok(Some(ControlConnection {
                        transport,
                        buffers: LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES),
                    }));
                }
                Err(e) => last = e,
            }
        }
        Err(not_connected(last))
    }
}

/// Wraps the failure of a connection for `ureq`.
fn not_connected(e: NetError) -> Error {
    Error::Io(io::Error::other(e))
}

fn deadline(timeout: &NextTimeout) -> Option<Instant> {
    Instant::now().checked_add(*timeout.after)
}

struct ControlConnection {
    transport: TlsTransport,
    buffers: LazyBuffers,
}

impl fmt::Debug for ControlConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlConnection").field("peer", &self.transport.peer()).finish_non_exhaustive()
    }
}

/// Has `ureq` name time-outs; TLS errors keep our wording.
fn named(e: io::Error, timeout: &NextTimeout) -> Error {
    match e.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Error::Timeout(timeout.reason),
        io::ErrorKind::InvalidData => Error::Io(io::Error::other(NetError::from_io("the answer", &e))),
        _ => Error::Io(e),
    }
}

impl Transport for ControlConnection {
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
        // A server sends nothing between two answers: any data, or the end, closes the connection.
        matches!(self.transport.try_read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    fn is_tls(&self) -> bool {
        true
    }
}
