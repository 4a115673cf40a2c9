//! A private CA, and the certificates that it signs for the server and its clients.
//!
//! A key folder holds `ca.pem`, `ca.key`, and `NAME.pem`, `NAME.key` for `server` and each client. Private keys have mode 0600.
//! A machine needs `ca.pem` and its own pair; `ca.key` belongs where certificates are made and nowhere else.
use crate::ServeError;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tacit_net::{ClientTls, ServerTls};
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
    pub fingerprint: [u8; 32],
}

/// Makes a CA, a server certificate for `localhost`, `127.0.0.1`, `::1` and `hosts`, and a certificate for each client.
///
/// # Errors
/// The folder has a CA already, a name is unusable, or a file cannot be written.
pub fn init(dir: &Path, hosts: &[String], clients: &[String]) -> Result<(), ServeError> {
    if dir.join("ca.key").exists() {
        let what = "there is a CA here already: add clients with `tacit keys add-client`, or choose another folder";
        return Err(ServeError::Content { path: dir.to_owned(), what: what.into() });
    }
    clients.iter().try_for_each(|name| check_name(name))?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(ServeError::file("making the key folder", dir))?;
    let key = KeyPair::generate().map_err(named)?;
    let params = ca_params(&key)?;
    let cert = params.self_signed(&key).map_err(named)?;
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
pub fn add_client(dir: &Path, name: &str) -> Result<(), ServeError> {
    check_name(name)?;
    issue(dir, name, vec![], Usage::Client)
}

/// The server's TLS identity from `server.pem`, `server.key` and `ca.pem`.
///
/// # Errors
/// A file is missing or unusable.
pub fn load_server(dir: &Path) -> Result<ServerTls, ServeError> {
    let (cert, key, ca) = read_pair(dir, "server")?;
    Ok(ServerTls::from_pem(&cert, &key, &ca)?)
}

/// A client's TLS identity from `NAME.pem`, `NAME.key` and `ca.pem`.
///
/// # Errors
/// A file is missing or unusable.
pub fn load_client(dir: &Path, name: &str) -> Result<ClientIdentity, ServeError> {
    check_name(name)?;
    let (cert, key, ca) = read_pair(dir, name)?;
    let tls = ClientTls::from_pem(&cert, &key, &ca)?;
    Ok(ClientIdentity { fingerprint: fingerprint(tls.certificate()), tls })
}

/// What a certificate (DER) is known by: its BLAKE3 digest.
#[must_use]
pub fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    *blake3::hash(certificate).as_bytes()
}

fn issue(dir: &Path, name: &str, hosts: Vec<String>, usage: Usage) -> Result<(), ServeError> {
    let path = dir.join("ca.key");
    let pem = Zeroizing::new(fs::read_to_string(&path).map_err(ServeError::file("reading", &path))?);
    let ca_key = KeyPair::from_pem(&pem).map_err(named)?;
    let issuer = Issuer::new(ca_params(&ca_key)?, ca_key);
    let key = KeyPair::generate().map_err(named)?;
    let mut params = CertificateParams::new(hosts).map_err(named)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match usage {
        Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    limit(&mut params);
    let cert = params.signed_by(&key, &issuer).map_err(named)?;
    write(&dir.join(format!("{name}.key")), key.serialize_pem().as_bytes(), 0o600)?;
    write(&dir.join(format!("{name}.pem")), cert.pem().as_bytes(), 0o644)
}

/// The CA's own parameters; its name follows from its key, so that they can be made again to sign further certificates.
fn ca_params(key: &KeyPair) -> Result<CertificateParams, ServeError> {
    let mut params = CertificateParams::new(vec![]).map_err(named)?;
    let id = blake3::hash(key.public_key_raw()).to_hex();
    params.distinguished_name.push(DnType::CommonName, format!("tacit CA {}", &id[..16]));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    limit(&mut params);
    Ok(params)
}

fn limit(params: &mut CertificateParams) {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let year = 1970 + (seconds / 31_556_952) as i32;
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + YEARS, 1, 1);
}

fn check_name(name: &str) -> Result<(), ServeError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) || ["ca", "server"].contains(&name) {
        let text =
            format!("`{name}` cannot name a client: use 1 to 64 letters, digits, `-` and `_`; not `ca` or `server`");
        return Err(ServeError::Usage(text));
    }
    Ok(())
}

type Pems = (Vec<u8>, Zeroizing<Vec<u8>>, Vec<u8>);

fn read_pair(dir: &Path, name: &str) -> Result<Pems, ServeError> {
    let read = |file: String| {
        let path = dir.join(file);
        fs::read(&path).map_err(ServeError::file("reading (made by `tacit keys init`)", &path))
    };
    Ok((read(format!("{name}.pem"))?, Zeroizing::new(read(format!("{name}.key"))?), read("ca.pem".into())?))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), ServeError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(ServeError::file("writing (an existing file is never overwritten)", path))
}

fn named(error: rcgen::Error) -> ServeError {
    ServeError::Keys(error.to_string())
}
