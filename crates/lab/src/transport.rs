//! The transports that experiments compare, behind [`tacit_net::Transport`]: the trait that the engine uses too.
//!
//! | name | what carries the bytes |
//! | --- | --- |
//! | `plain` | TCP |
//! | `tls` | TLS 1.3 over TCP, both sides authenticated |
//! | `wireguard` | TCP between the addresses of a WireGuard tunnel ([`crate::tunnel`]) |
//! | `tls+wireguard` | TLS 1.3 over TCP between the addresses of a WireGuard tunnel |
//!
//! A tunnel is an IP interface, so here it shows only in the address: whoever asks for `wireguard` connects to
//! [`Tunnel::address`](crate::tunnel::Tunnel::address) instead of the link's. `plain` is for comparison only: it delivers changed bytes as they come.
use crate::LabError;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tacit_net::{ClientTls, NetError, ServerTls, TcpTransport, Transport};

/// What connections are made of. As text: see the [module](self).
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
    /// All of them, `plain` (what the others are compared with) first.
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
    pub fn tunnelled(self) -> bool {
        matches!(self, Self::WireGuard | Self::TlsInWireGuard)
    }

    /// Whether it needs certificates.
    #[must_use]
    pub fn tls(self) -> bool {
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
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| LabError::Spec {
            what: format!("transport `{text}`"),
            detail: format!("it is one of {}", Self::ALL.map(Self::name).join(", ")),
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

/// Name in the server's certificate: the same wherever the server runs, since its key is made for one run and known to that run only.
const SERVER_NAME: &str = "localhost";

/// Makes the keys of one run in a new folder (mode 0700, keys 0600): `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key`, as
/// `tacit keys init` lays them out. The CA's key is never written: nobody can add a party to the run.
///
/// # Errors
/// [`LabError::Io`] if the folder cannot be made or has keys already, [`LabError::Failed`] if a key cannot be made.
pub fn make_keys(dir: &Path) -> Result<(), LabError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| LabError::Io { path: dir.into(), source })?;
    let (ca, pem) = make_ca().map_err(keys_failed)?;
    write_new(&dir.join("ca.pem"), pem.as_bytes())?;
    for (name, usage) in
        [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
    {
        let (certificate, key) = issue(&ca, name, usage).map_err(keys_failed)?;
        write_new(&dir.join(format!("{name}.pem")), certificate.as_bytes())?;
        write_new(&dir.join(format!("{name}.key")), key.as_bytes())?;
    }
    Ok(())
}

fn keys_failed(error: rcgen::Error) -> LabError {
    LabError::Failed { step: "making the keys of the run".into(), detail: error.to_string() }
}

fn make_ca() -> Result<(Issuer<'static, KeyPair>, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name.push(DnType::CommonName, "tacit lab run");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let pem = params.self_signed(&key)?.pem();
    Ok((Issuer::new(params, key), pem))
}

fn issue(
    ca: &Issuer<'_, KeyPair>,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![SERVER_NAME.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    Ok((params.signed_by(&key, ca)?.pem(), key.serialize_pem()))
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(bytes));
    written.map_err(|source| LabError::Io { path: path.into(), source })
}

fn read_keys(dir: Option<&Path>, name: &str) -> Result<[Vec<u8>; 3], LabError> {
    let dir = dir.ok_or_else(|| LabError::Spec {
        what: "--keys".into(),
        detail: "tls needs the folder with the keys of this run".into(),
    })?;
    let read = |file: String| {
        let path = dir.join(file);
        fs::read(&path).map_err(|source| LabError::Io { path, source })
    };
    Ok([read(format!("{name}.pem"))?, read(format!("{name}.key"))?, read("ca.pem".into())?])
}

/// Connects to a party that waits in [`Acceptor::accept`]; for a tunnelled kind, `to` is its address in the tunnel. `keys` is the folder of
/// [`make_keys`], needed for TLS.
///
/// # Errors
/// [`LabError::Net`] naming what failed: nobody listens, another CA, a wrong key, bytes changed on the way; [`LabError::Spec`] or
/// [`LabError::Io`] for missing keys.
pub fn connect(
    kind: TransportKind,
    to: SocketAddr,
    keys: Option<&Path>,
    timeout: Duration,
) -> Result<Box<dyn Transport>, LabError> {
    let tls = if kind.tls() {
        let [chain, key, ca] = read_keys(keys, "client")?;
        Some(ClientTls::from_pem(&chain, &key, &ca)?)
    } else {
        None
    };
    let deadline = Instant::now() + timeout;
    let mut tcp = TcpTransport::connect(to, timeout)?;
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
    kind: TransportKind,
    listener: TcpListener,
    tls: Option<ServerTls>,
}

impl Acceptor {
    /// Listens; port 0 takes a free one. `keys` as in [`connect`].
    ///
    /// # Errors
    /// As [`connect`], and [`LabError::Net`] if the address cannot be listened on.
    pub fn bind(kind: TransportKind, at: SocketAddr, keys: Option<&Path>) -> Result<Self, LabError> {
        let tls = if kind.tls() {
            let [chain, key, ca] = read_keys(keys, "server")?;
            Some(ServerTls::from_pem(&chain, &key, &ca)?)
        } else {
            None
        };
        let listener = TcpListener::bind(at).map_err(|e| NetError::from_io(format!("listening on {at}"), &e))?;
        Ok(Self { kind, listener, tls })
    }

    /// What is accepted.
    #[must_use]
    pub fn kind(&self) -> TransportKind {
        self.kind
    }

    /// Where to connect to.
    ///
    /// # Errors
    /// [`LabError::Net`] if the system does not tell.
    pub fn address(&self) -> Result<SocketAddr, LabError> {
        let address = self.listener.local_addr();
        Ok(address.map_err(|e| NetError::from_io("asking for the listening address", &e))?)
    }

    /// Waits for the next connection, without limit; the TLS handshake then may take `timeout`.
    ///
    /// # Errors
    /// [`LabError::Net`] naming what failed.
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
