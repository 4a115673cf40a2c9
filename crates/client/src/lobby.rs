//! From nothing to an open model.
use crate::wire::{
    MAX_PUBLIC_BYTES, ModelInfo, PUBLIC, REQUEST, Reply, Request, misplaced, public_digest, recv_reply, send,
};
use crate::{Client, ClientError};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tacit_backends::{ClientModel, Registry, Trust};
use tacit_net::{Channel, Hello, NetError, PacedTransport, Rate, TcpTransport, Transport, handshake};
use tacit_store::SealKey;
use tacit_store::keys::ClientIdentity;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How a client connects and works.
#[derive(Clone)]
pub struct ClientConfig {
    /// `host:port` of the server.
    pub address: String,
    /// TLS identity: who this client is, and which CA's servers it trusts.
    pub identity: ClientIdentity,
    /// Name in the server's certificate, if it differs from the host in `address`.
    pub server_name: Option<String>,
    /// Folder of stored material; without one, material lives in memory only.
    pub store: Option<PathBuf>,
    /// Key that stored material is sealed with; in the clear without one.
    pub seal: Option<SealKey>,
    /// Most bit/s that are sent; `None` as fast as the link takes them.
    pub pace: Option<Rate>,
    /// Threads for arithmetic, at least 1.
    pub threads: usize,
    /// How long the server may make no progress.
    pub stall_timeout: Duration,
}

impl ClientConfig {
    /// Defaults for an address: no store, one thread, 5 minutes stall timeout.
    #[must_use]
    pub fn new(address: &str, identity: ClientIdentity) -> Self {
        Self {
            address: address.into(),
            identity,
            server_name: None,
            store: None,
            seal: None,
            pace: None,
            threads: 1,
            stall_timeout: Duration::from_secs(300),
        }
    }

    fn server_name(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        self.server_name.as_deref().unwrap_or(host.trim_start_matches('[').trim_end_matches(']'))
    }
}

/// Ends a connection from another thread: a call that waits on it fails at once.
pub struct Closer {
    stream: TcpStream,
    closed: AtomicBool,
}

impl Closer {
    /// Ends the connection. The client of it is useless afterwards.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // One that the peer has ended is as good.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether this ended the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// A connection on which no model is open yet.
pub struct Lobby {
    registry: Registry,
    config: ClientConfig,
    channel: Channel,
    closer: Arc<Closer>,
}

impl Lobby {
    /// Connects, authenticates and agrees on the version.
    ///
    /// # Errors
    /// The server cannot be reached, is not the right one, does not know this client, speaks another version,
    /// or is full.
    pub fn connect(registry: Registry, config: ClientConfig) -> Result<Self, ClientError> {
        let mut tcp = TcpTransport::connect(config.address.as_str(), CONNECT)?;
        tcp.set_stall_timeout(config.stall_timeout).map_err(|e| NetError::from_io("setting the stall timeout", &e))?;
        let closer = Arc::new(Closer { stream: tcp.closer()?, closed: AtomicBool::new(false) });
        let tls = config.identity.tls.connect(tcp, config.server_name())?;
        let transport: Box<dyn Transport> = match config.pace {
            Some(rate) => Box::new(PacedTransport::new(tls, rate)),
            None => Box::new(tls),
        };
        let mut channel = Channel::new(transport);
        handshake(&mut channel, &Hello::opening())?;
        match answered(&mut channel, "the connection")? {
            Reply::Welcome => Ok(Self { registry, config, channel, closer }),
            other => Err(misplaced("the greeting", &other).into()),
        }
    }

    /// The models on offer, with their back ends.
    ///
    /// # Errors
    /// Of the connection.
    pub fn models(&mut self) -> Result<Vec<ModelInfo>, ClientError> {
        match ask(&mut self.channel, &Request::List)? {
            Reply::Models(models) => Ok(models),
            other => Err(misplaced("the list of models", &other).into()),
        }
    }

    /// Opens a model with a back end for the rest of the connection: receives its public part and plans it.
    /// Without a name, the back end is the first on offer that this client's registry knows and whose server
    /// does not see the input.
    ///
    /// # Errors
    /// The server has no such model or does not offer it so (it names what there is), this registry does not
    /// know the back end, the public part does not pass its checks, or the parties plan it differently. The
    /// connection is closed then.
    pub fn open(mut self, model: &str, backend: Option<&str>) -> Result<Client, ClientError> {
        let backend = match backend {
            Some(name) => name.to_owned(),
            None => self.choose(model)?,
        };
        let known = Arc::clone(self.registry.get(&backend)?);
        let request = Request::Open { model: model.into(), backend: backend.clone() };
        let bytes = match ask(&mut self.channel, &request)? {
            Reply::Model { bytes } if bytes <= MAX_PUBLIC_BYTES => bytes as usize,
            Reply::Model { bytes } => {
                let detail = format!("{bytes} bytes, the limit is {MAX_PUBLIC_BYTES}");
                return Err(ClientError::Unexpected { what: "public part", detail });
            }
            other => return Err(misplaced(request.name(), &other).into()),
        };
        let public = self.channel.recv_max(PUBLIC, bytes)?;
        let opened: Arc<dyn ClientModel> = known.open(&public)?;
        let digest = public_digest(&public);
        handshake(&mut self.channel, &Hello::opened(opened.digest(), digest))?;
        let names = [model, &backend];
        Client::new((self.registry, self.config), self.channel, self.closer, opened, names, digest)
    }

    /// The back end for a model where none is named.
    fn choose(&mut self, model: &str) -> Result<String, ClientError> {
        let models = self.models()?;
        let Some(info) = models.iter().find(|m| m.name == model) else {
            let known: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
            return Err(ClientError::NoModel { name: model.into(), known: known.join(", ") });
        };
        let mut passed_over = Vec::new();
        for offer in &info.backends {
            match self.registry.get(&offer.backend) {
                Ok(known) if known.trust() == Trust::TwoParty => return Ok(offer.backend.clone()),
                // More trust than that is the client's to give, by name.
                Ok(known) if known.trust() == Trust::Dealer => {
                    passed_over.push(format!("`{}` (trusts a dealer)", offer.backend));
                }
                Ok(_) => passed_over.push(format!("`{}` (the server sees the input)", offer.backend)),
                Err(_) => passed_over.push(format!("`{}` (this client does not have it)", offer.backend)),
            }
        }
        Err(ClientError::NoBackend { model: model.into(), offered: passed_over.join(", ") })
    }
}

/// Asks and waits for the answer; a refusal is an error.
pub(crate) fn ask(channel: &mut Channel, request: &Request) -> Result<Reply, ClientError> {
    send(channel, REQUEST, request)?;
    answered(channel, request.name())
}

/// The answer to `request`; a refusal is an error.
pub(crate) fn answered(channel: &mut Channel, request: &'static str) -> Result<Reply, ClientError> {
    match recv_reply(channel)? {
        Reply::Refused { reason } => Err(ClientError::Refused { request, reason }),
        reply => Ok(reply),
    }
}
