//! A private CA, and the certificates that it signs for the server and its clients.
//!
//! A key folder holds `ca.pem`, `ca.key`, and `NAME.pem`, `NAME.key` for `server` and each client. The folder
//! has mode 0700, private keys have 0600: both are narrowed whenever they are used, and refused if they are
//! another user's or links. What is made together is written whole or not at all: everything is made in
//! memory first, and `ca.key` is written last. A machine needs `ca.pem` and its own pair; `ca.key` belongs
//! where certificates are made and nowhere else.
use crate::role::{OPERATOR, Role, SERVER};
use crate::seal::sync_folder;
use crate::{StoreError, private};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tacit_ids::ClientId;
use tacit_net::{ClientTls, NetError, ServerTls, tls};
use zeroize::Zeroizing;

/// Years that certificates are valid.
const YEARS: i32 = 10;

/// What a certificate may be used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Usage {
    Server,
    Client(Role),
}

/// A client's TLS identity.
#[derive(Clone)]
pub struct ClientIdentity {
    /// For connections.
    pub tls: ClientTls,
    /// What the server knows the client by, and material is bound to.
    pub fingerprint: ClientId,
}

/// Makes a CA, a server certificate for `localhost`, `127.0.0.1`, `::1` and `hosts`, and a certificate for
/// each client; all of them or, on an error, nothing.
///
/// # Errors
/// The folder has a CA already, a name is unusable or given twice, or a file cannot be written.
pub fn init(dir: &Path, hosts: &[String], clients: &[String]) -> Result<(), StoreError> {
    make(dir, hosts, clients, true)
}

/// As [`init`], with one client, `client`; the CA's key is never written, so that nobody can be added later.
///
/// # Errors
/// As [`init`], or the folder has such files already.
pub fn init_closed(dir: &Path) -> Result<(), StoreError> {
    make(dir, &[], &["client".into()], false)
}

fn make(dir: &Path, hosts: &[String], clients: &[String], keep_ca_key: bool) -> Result<(), StoreError> {
    if dir.join("ca.key").exists() {
        return Err(StoreError::CaExists(dir.to_owned()));
    }
    let mut seen = BTreeSet::new();
    for name in clients {
        check_name(name)?;
        if !seen.insert(name) {
            return Err(StoreError::ClientTwice(name.clone()));
        }
    }
    hosts.iter().try_for_each(|host| check_host(host))?;
    let key = KeyPair::generate()?;
    let params = ca_params(&key)?;
    let ca = File { name: "ca.pem".into(), content: Zeroizing::new(params.self_signed(&key)?.pem()), mode: 0o644 };
    let ca_key = File { name: "ca.key".into(), content: Zeroizing::new(key.serialize_pem()), mode: private::FILE_MODE };
    let issuer = Issuer::new(params, key);
    let mut files = Vec::from(issue(&issuer, "server", host_names(hosts), Usage::Server)?);
    for name in clients {
        files.extend(issue(&issuer, name, vec![], Usage::Client(Role::Client))?);
    }
    files.push(ca);
    files.extend(keep_ca_key.then_some(ca_key));
    let is_new = !dir.exists();
    let folder = private::made_folder(dir)?;
    write_all(&folder, &files).inspect_err(|_| {
        if is_new {
            // As it was before; the error says more than that of the removal.
            let _ = fs::remove_dir(&folder);
        }
    })
}

/// Makes a certificate for a further client.
///
/// # Errors
/// The folder has no CA, the name is unusable or taken, or a file cannot be written.
pub fn add_client(dir: &Path, name: &str) -> Result<(), StoreError> {
    add(dir, name, Role::Client)
}

/// Makes a certificate for an operator: a client that may also see and steer the server.
///
/// # Errors
/// As [`add_client`].
pub fn add_operator(dir: &Path, name: &str) -> Result<(), StoreError> {
    add(dir, name, Role::Operator)
}

fn add(dir: &Path, name: &str, role: Role) -> Result<(), StoreError> {
    check_name(name)?;
    let dir = private::folder(dir)?;
    write_all(&dir, &issue(&issuer(&dir)?, name, vec![], Usage::Client(role))?)
}

/// The CA of a folder.
fn issuer(dir: &Path) -> Result<Issuer<'static, KeyPair>, StoreError> {
    let pem = private::read(&dir.join("ca.key"), "reading")?;
    let ca_key = KeyPair::from_pem(str::from_utf8(&pem).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?)?;
    Ok(Issuer::new(ca_params(&ca_key)?, ca_key))
}

/// Name of the dealer's certificate in a key folder.
pub const DEALER: &str = "dealer";
/// Name of the certificate that a server shows its dealer.
pub const ORDERS: &str = "orders";

/// Makes a certificate for a dealer (`dealer`, for `localhost`, `127.0.0.1`, `::1` and `hosts`), and one that
/// the server shows it (`orders`).
///
/// # Errors
/// As [`add_client`]; a host is unusable.
pub fn add_dealer(dir: &Path, hosts: &[String]) -> Result<(), StoreError> {
    hosts.iter().try_for_each(|host| check_host(host))?;
    let dir = private::folder(dir)?;
    let issuer = issuer(&dir)?;
    let mut files = Vec::from(issue(&issuer, DEALER, host_names(hosts), Usage::Server)?);
    files.extend(issue(&issuer, ORDERS, vec![], Usage::Client(Role::Server))?);
    write_all(&dir, &files)
}

/// The hosts of a serving certificate, this machine's own names first.
fn host_names(hosts: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).to_vec();
    for host in hosts {
        if !names.contains(host) {
            names.push(host.clone());
        }
    }
    names
}

/// The server's TLS identity from `server.pem`, `server.key` and `ca.pem`.
///
/// # Errors
/// A file is missing or unusable; [`StoreError::NotServer`]: the certificate is made for something else.
pub fn load_server(dir: &Path) -> Result<ServerTls, StoreError> {
    load_serving(dir, "server")
}

/// The dealer's TLS identity from `dealer.pem`, `dealer.key` and `ca.pem`.
///
/// # Errors
/// As [`load_server`].
pub fn load_dealer(dir: &Path) -> Result<ServerTls, StoreError> {
    load_serving(dir, DEALER)
}

/// What the dealer of a key folder is known by.
///
/// # Errors
/// There is no such certificate, or it is none.
pub fn dealer_pin(dir: &Path) -> Result<ClientId, StoreError> {
    let path = dir.join(DEALER).with_extension("pem");
    let pem = fs::read(&path).map_err(StoreError::file("reading", &path))?;
    Ok(fingerprint(&tls::certificate(&pem).map_err(|source| unusable(dir, DEALER, source))?))
}

fn load_serving(dir: &Path, name: &str) -> Result<ServerTls, StoreError> {
    let (cert, key, ca) = read_pair(dir, name)?;
    let identity = ServerTls::from_pem(&cert, &key, &ca).map_err(|source| unusable(dir, name, source))?;
    // Clients would refuse it, one by one.
    if !tls::is_for_servers(&cert, &ca).map_err(|source| unusable(dir, name, source))? {
        return Err(StoreError::NotServer(dir.join(name).with_extension("pem")));
    }
    Ok(identity)
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

/// A file to be written.
struct File {
    name: String,
    content: Zeroizing<String>,
    mode: u32,
}

/// A new key and its certificate.
fn issue(issuer: &Issuer<'_, KeyPair>, name: &str, hosts: Vec<String>, usage: Usage) -> Result<[File; 2], StoreError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    match usage {
        Usage::Client(Role::Operator) => params.distinguished_name.push(DnType::OrganizationalUnitName, OPERATOR),
        Usage::Client(Role::Server) => params.distinguished_name.push(DnType::OrganizationalUnitName, SERVER),
        Usage::Server | Usage::Client(Role::Client) => {}
    }
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match usage {
        Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Usage::Client(_) => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    limit(&mut params)?;
    let certificate = params.signed_by(&key, issuer)?.pem();
    Ok([
        File { name: format!("{name}.pem"), content: Zeroizing::new(certificate), mode: 0o644 },
        File { name: format!("{name}.key"), content: Zeroizing::new(key.serialize_pem()), mode: private::FILE_MODE },
    ])
}

/// The CA's own parameters; its name follows from its key, so that they can be made again to sign further
/// certificates.
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

fn check_host(host: &str) -> Result<(), StoreError> {
    // A wildcard stands for one label, which clients know.
    let name = host.strip_prefix("*.").unwrap_or(host);
    tls::check_host(name).map_err(|source| StoreError::Host { host: host.into(), source })
}

fn check_name(name: &str) -> Result<(), StoreError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) || ["ca", "server", DEALER].contains(&name) {
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

/// Writes new files into a folder: all of them, durably, or none.
fn write_all(dir: &Path, files: &[File]) -> Result<(), StoreError> {
    const DOING: &str = "writing (an existing file is never overwritten)";
    let paths: Vec<PathBuf> = files.iter().map(|file| dir.join(&file.name)).collect();
    if let Some(taken) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(StoreError::file(DOING, taken)(io::ErrorKind::AlreadyExists.into()));
    }
    for (written, (path, file)) in paths.iter().zip(files).enumerate() {
        if let Err(e) = write(path, file) {
            // What we have written is of no use alone; the error says more than that of a removal.
            paths[..=written].iter().for_each(|path| drop(fs::remove_file(path)));
            return Err(StoreError::file(DOING, path)(e));
        }
    }
    sync_folder(dir)
}

fn write(path: &Path, file: &File) -> io::Result<()> {
    let mut out = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(path)?;
    out.write_all(file.content.as_bytes()).and_then(|()| out.sync_all())
}
