//! How a client connects and works.
use crate::opened::OpenedModels;
use crate::wire::{Device, LinkClass};
use crate::{ClientError, MAX_THREADS};
use std::path::PathBuf;
use std::time::Duration;
use tacit_backends::{ConnectionResources, Options};
use tacit_meter::usage::{ProcessLimits, Roots};
use tacit_net::{NetError, Rate};
use tacit_store::keys::ClientIdentity;
use tacit_store::{EXPIRE, SealKey};

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
    /// How long stored material is kept of which no server says that it has the other half.
    pub expire: Duration,
    /// Whether the clock is taken for right where it stands far from when the store was last used.
    pub accept_clock: bool,
    /// Most bit/s that are sent; `None` as fast as the link takes them.
    pub pace: Option<Rate>,
    /// Threads for arithmetic, 1 to [`MAX_THREADS`].
    pub threads: usize,
    /// Inputs that are run as one at most, where back end and server do that; 1 runs each on its own.
    pub max_batch: usize,
    /// The dealer that this client trusts, and where it keeps what it gets once.
    pub resources: ConnectionResources,
    /// Options that a model must have been lowered with, such as `level=l2`: the public part that says them
    /// is the server's word, and what a client relies on it has to ask for. `public=` and 64 hexadecimal
    /// digits pin the public part itself by its digest. Anything else is not opened.
    pub require: Options,
    /// Models opened with this configuration and its clones, for one server: connections share what they make
    /// or get once.
    pub opened: OpenedModels,
    /// What the server is told of the link, for its estimates.
    pub link: LinkClass,
    /// Bytes of memory that the server is told of, for its estimates and the size of batches; without, those
    /// that this process may have. Told as a power of two.
    pub memory: Option<u64>,
    /// How long connecting may take in all, until the server has said welcome.
    pub connect_timeout: Duration,
    /// How long the server may make no progress.
    pub stall_timeout: Duration,
    /// How long a server is waited for that says that it lives, and nothing else: the turn does not come, or
    /// it computes.
    pub patience: Duration,
}

impl LinkClass {
    /// How long connecting may take over such a link, until the server has said welcome: over the slowest, as
    /// long as a server waits for a handshake (two minutes), and what comes after it.
    #[must_use]
    pub const fn connect_timeout(self) -> Duration {
        match self {
            Self::Lan | Self::Broadband => Duration::from_secs(10),
            Self::Slow => Duration::from_secs(150),
        }
    }
}

/// Bytes of memory that this process may have, where the system tells.
fn own_memory() -> Option<u64> {
    ProcessLimits::read(&Roots::default()).memory_bytes
}

impl ClientConfig {
    /// Defaults for an address: no store (30 days until material expires in one), one thread, batches as
    /// large as the server allows, 10 seconds to connect, 5 minutes stall timeout, an hour of patience.
    #[must_use]
    pub fn new(address: &str, identity: ClientIdentity) -> Self {
        Self {
            address: address.into(),
            identity,
            server_name: None,
            store: None,
            seal: None,
            expire: EXPIRE,
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

    /// What the server is told of this client's machine.
    pub(crate) fn device(&self) -> Result<Device, ClientError> {
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return Err(ClientError::Usage(format!("threads: {} is not from 1 to {MAX_THREADS}", self.threads)));
        }
        let memory = self.memory.or_else(own_memory).unwrap_or(0);
        let mib = u32::try_from(memory >> 20).unwrap_or(u32::MAX);
        let memory_mib = mib.checked_ilog2().map_or(0, |log| 1 << log);
        Ok(Device { threads: self.threads as u16, link: self.link, memory_mib })
    }

    /// What went wrong before the server said welcome.
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
