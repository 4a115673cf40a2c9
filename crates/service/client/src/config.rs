//! Configuration of a client.
use crate::opened::OpenedModels;
use crate::wire::{Device, LinkClass};
use crate::{ClientError, MAX_THREADS};
use std::path::PathBuf;
use std::time::Duration;
use tacit_backends::{ConnectionResources, Options};
use tacit_measure::usage::{ProcessLimits, Roots};
use tacit_net::{NetError, Rate};
use tacit_store::keys::ClientIdentity;
use tacit_store::{DEFAULT_EXPIRY, SealKey};

/// Configuration of a client.
#[derive(Clone)]
pub struct ClientConfig {
    /// `host:port` of the server.
    pub address: String,
    /// TLS identity: this client's certificate, and the CA whose servers it trusts.
    pub identity: ClientIdentity,
    /// Name in the server's certificate, if it differs from the host in `address`.
    pub server_name: Option<String>,
    /// Folder of stored material; without one, material lives in memory only.
    pub store: Option<PathBuf>,
    /// Key that seals stored material; `None` stores it in the clear.
    pub seal: Option<SealKey>,
    /// Lifetime of stored material whose other half no server confirms.
    pub expire: Duration,
    /// Whether to accept a clock that is far from the last use of the store.
    pub accept_clock: bool,
    /// Limit on sending, in bit/s; `None`: no limit.
    pub pace: Option<Rate>,
    /// Threads for arithmetic, 1 to [`MAX_THREADS`].
    pub threads: usize,
    /// Largest batch size, if back end and server allow batches; 1 runs each input on its own.
    pub max_batch: usize,
    /// The dealer that this client trusts, and its stores of data that is received once.
    pub resources: ConnectionResources,
    /// Options that a model must have been lowered with, such as `level=l2`: the public part is the
    /// server's word. `public=` and 64 hexadecimal digits pin the public part itself by its digest.
    /// Other models are not opened.
    pub require: Options,
    /// Models opened with this configuration and its clones, for one server.
    pub opened: OpenedModels,
    /// Class of the link, reported to the server for its estimates.
    pub link: LinkClass,
    /// Bytes of memory reported to the server, as a power of two; `None`: the memory that this
    /// process may use.
    pub memory: Option<u64>,
    /// Limit on connecting, up to the server's welcome.
    pub connect_timeout: Duration,
    /// Limit on the time without progress of the server.
    pub stall_timeout: Duration,
    /// Limit on the time in which a server only sends signs of life, because the turn has not come
    /// or the server computes.
    pub patience: Duration,
}

impl LinkClass {
    /// Limit on connecting over such a link, up to the server's welcome. The slowest class has the
    /// server's limit on a handshake, and time for the rest.
    #[must_use]
    pub const fn connect_timeout(self) -> Duration {
        match self {
            Self::Lan | Self::Broadband => Duration::from_secs(10),
            Self::Slow => Duration::from_secs(150),
        }
    }
}

impl ClientConfig {
    /// Defaults for an address: no store, one thread, batches as large as the server allows.
    #[must_use]
    pub fn new(address: &str, identity: ClientIdentity) -> Self {
        Self {
            address: address.into(),
            identity,
            server_name: None,
            store: None,
            seal: None,
            expire: DEFAULT_EXPIRY,
            accept_clock: false,
            pace: None,
            threads: 1,
            max_batch: 32,
            resources: ConnectionResources::default(),
            require: Options::default(),
            opened: OpenedModels::default(),
            link: LinkClass::default(),
            memory: None,
            connect_timeout: LinkClass::default().connect_timeout(),
            stall_timeout: Duration::from_secs(300),
            patience: Duration::from_secs(3600),
        }
    }

    pub(crate) fn device(&self) -> Result<Device, ClientError> {
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return Err(ClientError::Usage(format!("threads: {} is not from 1 to {MAX_THREADS}", self.threads)));
        }
        let memory = self.memory.or_else(|| ProcessLimits::read(&Roots::default()).memory_bytes).unwrap_or(0);
        let mib = u32::try_from(memory >> 20).unwrap_or(u32::MAX);
        let memory_mib = mib.checked_ilog2().map_or(0, |log| 1 << log);
        Ok(Device { threads: self.threads as u16, link: self.link, memory_mib })
    }

    /// Describes an error before the server's welcome.
    pub(crate) fn not_connected(&self, error: ClientError) -> ClientError {
        let (server, seconds) = (self.address.clone(), self.connect_timeout.as_secs_f64());
        let what = match error {
            ClientError::Net(NetError::Stalled { .. }) => format!(
                "it did not answer within {seconds} s; is this its address, does it run, and does every firewall on the way let port and \
                 host through?"
            ),
            ClientError::Net(e) if e.is_gone() => {
                "it closed the connection before it said welcome; is it a tacit server, and is this client's certificate of its CA?"
                    .into()
            }
            ClientError::Net(NetError::Io { detail, .. }) => format!("{detail}; is this its address, and does it run?"),
            ClientError::Net(NetError::Tls(text)) if !text.contains(&server) => {
                return ClientError::Net(NetError::Tls(format!("the server at {server}: {text}")));
            }
            ClientError::Refused { reason, .. } => return ClientError::Ended { server, reason },
            other => return other,
        };
        ClientError::Unreachable { server, what }
    }
}
