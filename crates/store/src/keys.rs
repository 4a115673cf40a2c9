//! A private CA, and the certificates that it signs for the server and its clients.
//!
//! A key folder holds `ca.pem`, `ca.key`, and `NAME.pem`, `NAME.key` for `server` and each client. The folder has mode 0700, private keys
//! have 0600: both are narrowed whenever they are used, and refused if they are another user's or links.
//! A machine needs `ca.pem` and its own pair; `ca.key` belongs where certificates are made and nowhere else.
use crate::{StoreError, private};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tacit_ids::ClientId;
use tacit_net::{ClientTls, NetError, ServerTls};
use zeroize::Zeroizing;

/// Years that certificates are valid.
const YEARS: i32 = 10;

/// What a certificate may be used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Usage {
    Server,
    Client,
}

/// A client's TLS identity.
#[derive(Clone)]
pub struct ClientIdentity {
    /// For connections.
    pub tls: ClientTls,
    /// What the server knows the client by, and material is bound to.
    pub fingerprint: ClientId,
}

/// Makes a CA, a server certificate for `localhost`, `127.0.0.1`, `::1` and `hosts`, and a certificate for each client.
///
/// # Errors
/// The folder has a CA already, a name is unusable, or a file cannot be written.
pub fn init(dir: &Path, hosts: &[String], clients: &[String]) -> Result<(), StoreError> {
    if dir.join("ca.key").exists() {
        return Err(StoreError::CaExists(dir.to_owned()));
    }
    clients.iter().try_for_each(|name| check_name(name))?;
    let dir = &private::made_folder(dir)?;
    let key = KeyPair::generate()?;
    let params = ca_params(&key)?;
    let cert = params.self_signed(&key)?;
    write(&dir.join("ca.key"), key.serialize_pem().as_bytes(), 0o600)?;
    write(&dir.join("ca.pem"), cert.pem().as_bytes(), 0o644)?;
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).to_vec();
    names.extend(hosts.iter().filter(|h| !["localhost", "127.0.0.1", "::1"].contains(&h.as_str())).cloned());
    issue(dir, "server", names, Usage::Server)?;
    clients.iter().try_for_each(|name| add_client(dir, name))
}

/// Makes a certificate for a further client.
///
/// # Errors
/// The folder has no CA, the name is unusable or taken, or a file cannot be written.
pub fn add_client(dir: &Path, name: &str) -> Result<(), StoreError> {
    check_name(name)?;
    issue(&private::folder(dir)?, name, vec![], Usage::Client)
}

/// The server's TLS identity from `server.pem`, `server.key` and `ca.pem`.
///
/// # Errors
/// A file is missing or unusable.
pub fn load_server(dir: &Path) -> Result<ServerTls, StoreError> {
    let (cert, key, ca) = read_pair(dir, "server")?;
    ServerTls::from_pem(&cert, &key, &ca).map_err(|source| unusable(dir, "server", source))
}

/// A client's TLS identity from `NAME.pem`, `NAME.key` and `ca.pem`.
///
/// # Errors
/// A file is missing or unusable.
pub fn load_client(dir: &Path, name: &str) -> Result<ClientIdentity, StoreError> {
    check_name(name)?;
    let (cert, key, ca) = read_pair(dir, name)?;
    let tls = ClientTls::from_pem(&cert, &key, &ca).map_err(|source| unusable(dir, name, source))?;
    Ok(ClientIdentity { fingerprint: fingerprint(tls.certificate()), tls })
}

fn unusable(dir: &Path, name: &str, source: NetError) -> StoreError {
    StoreError::Unusable { dir: dir.to_owned(), name: name.to_owned(), source }
}

/// What a certificate (DER) is known by: its BLAKE3 digest.
#[must_use]
pub fn fingerprint(certificate: &[u8]) -> ClientId {
    ClientId(*blake3::hash(certificate).as_bytes())
}

fn issue(dir: &Path, name: &str, hosts: Vec<String>, usage: Usage) -> Result<(), StoreError> {
    let path = dir.join("ca.key");
    let pem = private::read(&path, "reading")?;
    let ca_key = KeyPair::from_pem(str::from_utf8(&pem).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?)?;
    let issuer = Issuer::new(ca_params(&ca_key)?, ca_key);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match usage {
        Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    limit(&mut params)?;
    let cert = params.signed_by(&key, &issuer)?;
    write(&dir.join(format!("{name}.key")), key.serialize_pem().as_bytes(), 0o600)?;
    write(&dir.join(format!("{name}.pem")), cert.pem().as_bytes(), 0o644)
}

/// The CA's own parameters; its name follows from its key, so that they can be made again to sign further certificates.
fn ca_params(key: &KeyPair) -> Result<CertificateParams, StoreError> {
    let mut params = CertificateParams::new(vec![])?;
    let id = blake3::hash(key.public_key_raw()).to_hex();
    params.distinguished_name.push(DnType::CommonName, format!("tacit CA {}", &id[..16]));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    limit(&mut params)?;
    Ok(params)
}

fn limit(params: &mut CertificateParams) -> Result<(), StoreError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| StoreError::Clock)?.as_secs();
    let year = 1970 + (seconds / 31_556_952) as i32;
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + YEARS, 1, 1);
    Ok(())
}

fn check_name(name: &str) -> Result<(), StoreError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) || ["ca", "server"].contains(&name) {
        return Err(StoreError::ClientName(name.into()));
    }
    Ok(())
}

type Pems = (Vec<u8>, Zeroizing<Vec<u8>>, Vec<u8>);

fn read_pair(dir: &Path, name: &str) -> Result<Pems, StoreError> {
    const DOING: &str = "reading (made by `tacit keys init`)";
    let read = |file: String| {
        let path = dir.join(file);
        fs::read(&path).map_err(StoreError::file(DOING, &path))
    };
    let (cert, ca) = (read(format!("{name}.pem"))?, read("ca.pem".into())?);
    let dir = private::folder(dir)?;
    Ok((cert, private::read(&dir.join(format!("{name}.key")), DOING)?, ca))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), StoreError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(StoreError::file("writing (an existing file is never overwritten)", path))
}
