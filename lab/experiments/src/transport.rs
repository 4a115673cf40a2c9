//! The transports that experiments compare, behind [`tacit_net::Transport`].
//!
//! | name | what carries the bytes |
//! | --- | --- |
//! | `plain` | TCP |
//! | `tls` | TLS 1.3 over TCP, both sides authenticated |
//! | `wireguard` | TCP between the addresses of a WireGuard tunnel ([`crate::tunnel`]) |
//! | `tls+wireguard` | TLS 1.3 over TCP between the addresses of a WireGuard tunnel |
//!
//! A party that uses `wireguard` connects to [`Tunnel::address`](crate::tunnel::Tunnel::address)
//! instead of the link's address. `plain` delivers changed bytes without an error.
use crate::LabError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tacit_net::{NetError, ServerTls, TcpTransport, Transport};
use tacit_store::keys;

/// Layers of a connection. As text: see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TransportKind {
    /// TCP: nothing is encrypted, nothing authenticated.
    Plain,
    /// TLS 1.3.
    Tls,
    /// TCP in a WireGuard tunnel.
    WireGuard,
    /// TLS 1.3 in a WireGuard tunnel.
    TlsInWireGuard,
}

impl TransportKind {
    /// All kinds, the reference `plain` first.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Tls, Self::WireGuard, Self::TlsInWireGuard];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls => "tls",
            Self::WireGuard => "wireguard",
            Self::TlsInWireGuard => "tls+wireguard",
        }
    }

    /// Whether it needs a tunnel between the parties.
    #[must_use]
    pub fn is_tunnelled(self) -> bool {
        matches!(self, Self::WireGuard | Self::TlsInWireGuard)
    }

    /// Whether it needs certificates.
    #[must_use]
    pub fn uses_tls(self) -> bool {
        matches!(self, Self::Tls | Self::TlsInWireGuard)
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TransportKind {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            LabError::spec(format!("transport `{text}`"), format!("it is one of {names}"))
        })
    }
}

impl TryFrom<String> for TransportKind {
    type Error = LabError;

    fn try_from(text: String) -> Result<Self, LabError> {
        text.parse()
    }
}

impl From<TransportKind> for String {
    fn from(kind: TransportKind) -> Self {
        kind.name().into()
    }
}

/// A name in the server's certificate that is valid on any host: only one run knows the key.
const SERVER_NAME: &str = "localhost";

fn folder(keys: Option<&Path>) -> Result<&Path, LabError> {
    keys.ok_or_else(|| LabError::spec("--keys", "tls needs the folder with the keys of this run"))
}

/// Connects to a party that waits in [`Acceptor::accept`]; for a tunnelled kind, `address` is
/// in the tunnel. `keys` is a folder of [`keys::init_closed`], needed for TLS.
///
/// # Errors
/// [`LabError::Net`] with the cause: no listener, another CA, a wrong key, changed bytes;
/// [`LabError::Spec`] or [`LabError::Keys`] for missing keys.
pub fn connect(
    kind: TransportKind,
    address: SocketAddr,
    keys: Option<&Path>,
    timeout: Duration,
) -> Result<Box<dyn Transport>, LabError> {
    let tls = if kind.uses_tls() { Some(keys::load_client(folder(keys)?, "client")?.tls) } else { None };
    let deadline = Instant::now() + timeout;
    let mut tcp = TcpTransport::connect(address, timeout)?;
    let Some(tls) = tls else {
        return Ok(Box::new(tcp));
    };
    tcp.set_deadline(Some(deadline));
    let mut transport = tls.connect(tcp, SERVER_NAME)?;
    transport.set_deadline(None);
    Ok(Box::new(transport))
}

/// The listening side.
pub struct Acceptor {
    listener: TcpListener,
    tls: Option<ServerTls>,
}

impl Acceptor {
    /// Listens; port 0 takes a free one. `keys` as in [`connect`].
    ///
    /// # Errors
    /// As [`connect`], and [`LabError::Net`] if the address cannot be bound.
    pub fn bind(kind: TransportKind, address: SocketAddr, keys: Option<&Path>) -> Result<Self, LabError> {
        let tls = if kind.uses_tls() { Some(keys::load_server(folder(keys)?)?) } else { None };
        let listener =
            TcpListener::bind(address).map_err(|e| NetError::from_io(format!("listening on {address}"), &e))?;
        Ok(Self { listener, tls })
    }

    /// The address for clients.
    ///
    /// # Errors
    /// [`LabError::Net`] if the system does not report the address.
    pub fn address(&self) -> Result<SocketAddr, LabError> {
        let address = self.listener.local_addr();
        Ok(address.map_err(|e| NetError::from_io("asking for the listening address", &e))?)
    }

    /// Waits for the next connection without limit, then at most `timeout` for the TLS handshake.
    ///
    /// # Errors
    /// [`LabError::Net`] with the failed step.
    pub fn accept(&self, timeout: Duration) -> Result<Box<dyn Transport>, LabError> {
        let (stream, _) = self.listener.accept().map_err(|e| NetError::from_io("accepting a connection", &e))?;
        let mut tcp = TcpTransport::new(stream)?;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(tcp));
        };
        tcp.set_deadline(Some(Instant::now() + timeout));
        let mut transport = tls.accept(tcp)?;
        transport.set_deadline(None);
        Ok(Box::new(transport))
    }
}
