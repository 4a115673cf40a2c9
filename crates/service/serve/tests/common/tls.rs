//! Connections by `rustls` alone, with any certificate and application protocols.
use crate::common::Running;
use rustls::client::WantsClientCert;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The start of a configuration that trusts the server's CA.
pub fn trusting_config(dir: &Path) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("keys/ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    builder.unwrap().with_root_certificates(roots)
}

/// A connection whose reads wait for a minute at most.
pub fn connect(server: &Running, config: ClientConfig) -> StreamOwned<ClientConnection, TcpStream> {
    let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let stream = StreamOwned::new(session, TcpStream::connect(&server.address).unwrap());
    stream.sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}
