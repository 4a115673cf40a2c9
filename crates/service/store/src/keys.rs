//! A private CA, and the certificates that it signs for the server and its clients.
//!
//! A key folder holds `ca.pem`, `ca.key`, and `NAME.pem`, `NAME.key` for `server` and each client.
//! The folder has mode 0700, private keys have 0600. Each use narrows both modes, and refuses
//! folders and keys that are links or another user's. Files that are made together are written
//! completely or not at all: a new folder appears with all files in it; in a folder with other
//! files `ca.key` is written last. A machine needs `ca.pem` and its own pair; `ca.key` belongs only
//! where certificates are made. Holders are identified by their key, so a new certificate for the
//! same key ([`renew`]) changes only the validity.
mod folder;

use crate::certificate::SERVER;
pub use crate::certificate::{CertificateInfo, DEALER, Purpose, Standing, Validity, fingerprint};
use crate::role::{CUSTOMER, HELPER, OPERATOR, Role};
use crate::seal::sync_folder;
use crate::serial::Serial;
use crate::{StoreError, clock, private};
use folder::{File, key_folder, read_key, write, write_all, write_new};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tacit_ids::ClientId;
use tacit_net::{ClientTls, NetError, ServerTls, tls};
use zeroize::Zeroizing;

const DEFAULT_YEARS: i32 = 10;

/// What an error says was attempted with a missing file.
const READING_KEYS: &str = "reading what `tacit keys init` makes,";

/// A client's TLS identity.
#[derive(Clone)]
pub struct ClientIdentity {
    /// Identity for connections.
    pub tls: ClientTls,
    /// Identifies the client at the server; material is bound to it.
    pub fingerprint: ClientId,
    /// Validity of its certificate.
    pub validity: Validity,
}

/// Makes a CA, a server certificate for `localhost`, `127.0.0.1`, `::1` and `hosts`, and a
/// certificate for each client; all of them or, on an error, none.
///
/// # Errors
/// The folder has a CA already, a name is unusable or given twice, or a file cannot be written.
pub fn init(dir: &Path, hosts: &[String], clients: &[String]) -> Result<(), StoreError> {
    make_keys(dir, hosts, clients, true)
}

/// As [`init`], with one client, `client`. The CA's key is never written, so no certificate can be
/// added later.
///
/// # Errors
/// As [`init`], or the folder has such files already.
pub fn init_closed(dir: &Path) -> Result<(), StoreError> {
    make_keys(dir, &[], &["client".into()], false)
}

fn make_keys(dir: &Path, hosts: &[String], clients: &[String], keep_ca_key: bool) -> Result<(), StoreError> {
    if dir.join("ca.key").exists() {
        return Err(StoreError::CaExists(dir.to_owned()));
    }
    let mut names = BTreeSet::new();
    for name in clients {
        check_name(name)?;
        if !names.insert(name) {
            return Err(StoreError::ClientTwice(name.clone()));
        }
    }
    check_hosts(hosts)?;
    let key = KeyPair::generate()?;
    let params = ca_params(&key)?;
    let ca = File::certificate("ca", params.self_signed(&key)?.pem());
    let ca_key = File::private_key("ca", &key);
    let issuer = Issuer::new(params, key);
    let mut files = Vec::from(make_pair(&issuer, SERVER, host_names(hosts), Purpose::Server, None)?);
    for name in clients {
        files.extend(make_pair(&issuer, name, vec![], Purpose::Client(Role::Client), None)?);
    }
    files.push(ca);
    files.extend(keep_ca_key.then_some(ca_key));
    write_new(dir, &files)
}

/// Makes a certificate for an operator: a client that may also watch and control the server.
///
/// # Errors
/// As [`add`].
pub fn add_operator(dir: &Path, name: &str) -> Result<(), StoreError> {
    add(dir, name, Role::Operator, None)
}

/// Makes a key and its certificate for a further client of a role, with the given or the default
/// validity.
///
/// # Errors
/// The folder has no CA, the name is unusable or taken, or a file cannot be written.
pub fn add(dir: &Path, name: &str, role: Role, validity: Option<Validity>) -> Result<(), StoreError> {
    check_name(name)?;
    let dir = key_folder(dir)?;
    write_all(&dir, &make_pair(&issuer(&dir)?, name, vec![], Purpose::Client(role), validity)?)
}

/// Makes a key and a certificate for a helper of the client `owner`, whose certificate is in the
/// folder. The helper listens for its owner under `hosts`, at least one.
///
/// # Errors
/// As [`add`]; a host is unusable or there is none; `owner` is not a client.
pub fn add_helper(
    dir: &Path,
    name: &str,
    owner: &str,
    hosts: &[String],
    validity: Option<Validity>,
) -> Result<(), StoreError> {
    [name, owner].into_iter().try_for_each(check_name)?;
    check_hosts(hosts)?;
    let certificate = read_certificate(dir, owner)?;
    let owner_id = fingerprint(&certificate).ok_or_else(|| foreign_certificate(dir, owner))?;
    if hosts.is_empty() || !matches!(Role::from_certificate(&certificate), Role::Client | Role::Operator) {
        let message = "a helper needs a client whom it helps, and a host under which that client reaches it";
        return Err(unusable(dir, owner, NetError::Tls(message.into())));
    }
    let dir = key_folder(dir)?;
    let purpose = Purpose::Client(Role::Helper { owner: owner_id });
    write_all(&dir, &make_pair(&issuer(&dir)?, name, hosts.to_vec(), purpose, validity)?)
}

/// A helper's TLS identities at the server and for its owner, of one certificate, and the owner.
///
/// # Errors
/// As [`load_client`]; the certificate is not a helper's.
pub fn load_helper(dir: &Path, name: &str) -> Result<(ClientIdentity, ServerTls, ClientId), StoreError> {
    let identity = load_client(dir, name)?;
    let Role::Helper { owner } = Role::from_certificate(identity.tls.certificate()) else {
        let message = "this is no helper's certificate (`tacit keys add-helper` makes one)";
        return Err(unusable(dir, name, NetError::Tls(message.into())));
    };
    let (cert, key, ca) = read_pair(dir, name)?;
    let listening = ServerTls::from_pem(&cert, &key, &ca).map_err(|source| unusable(dir, name, source))?;
    Ok((identity, listening, owner))
}

/// Replaces the certificate of a client, or of `server`, expired or not, by a new one with the same
/// key, name, role and hosts. Servers know clients, and bind material and rules, by the key. Only
/// the new `NAME.pem` has to reach the machine that uses it.
///
/// # Errors
/// The folder lacks the CA or the certificate, or the file cannot be written.
pub fn renew(dir: &Path, name: &str, validity: Option<Validity>) -> Result<(), StoreError> {
    if ![SERVER, DEALER].contains(&name) {
        check_name(name)?;
    }
    let old = read_certificate(dir, name)?;
    let CertificateInfo { purpose, hosts, .. } =
        CertificateInfo::from_der(name, &old).ok_or_else(|| foreign_certificate(dir, name))?;
    let dir = key_folder(dir)?;
    let key = key_pair(&dir, name)?;
    let file = File::certificate(name, certify(&issuer(&dir)?, name, hosts, purpose, validity, &key)?);
    // The old certificate must be of this key; a new one would be useless otherwise.
    let new = tls::first_certificate(file.content.as_bytes()).ok();
    if fingerprint(&old) != new.and_then(|new| fingerprint(&new)) {
        return Err(foreign_certificate(&dir, name));
    }
    private::replace(&dir.join(&file.name), |path| write(path, &file))?;
    sync_folder(&dir)
}

/// Lists the certificates of a folder, `ca` first, then by name; or returns the named one.
///
/// # Errors
/// The folder or a file cannot be read, or a file is not a certificate.
pub fn show(dir: &Path, name: Option<&str>) -> Result<Vec<CertificateInfo>, StoreError> {
    let mut names: Vec<String> = match name {
        Some(name) => vec![name.to_owned()],
        None => {
            let entries = fs::read_dir(dir).map_err(StoreError::file(READING_KEYS, dir))?;
            let names =
                entries.filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".pem")?.to_owned()));
            names.collect()
        }
    };
    names.sort_by_key(|name| (name != "ca", name != SERVER, name.clone()));
    let certificates = names.iter().map(|name| {
        CertificateInfo::from_der(name, &read_certificate(dir, name)?).ok_or_else(|| foreign_certificate(dir, name))
    });
    certificates.collect()
}

fn issuer(dir: &Path) -> Result<Issuer<'static, KeyPair>, StoreError> {
    let key = key_pair(dir, "ca")?;
    Ok(Issuer::new(ca_params(&key)?, key))
}

fn key_pair(dir: &Path, name: &str) -> Result<KeyPair, StoreError> {
    let pem = read_key(&dir.join(format!("{name}.key")), "reading")?;
    Ok(KeyPair::from_pem(str::from_utf8(&pem).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?)?)
}

fn read_certificate(dir: &Path, name: &str) -> Result<Vec<u8>, StoreError> {
    let path = dir.join(format!("{name}.pem"));
    let pem = private::read_open(&path, READING_KEYS)?;
    tls::first_certificate(&pem).map_err(|source| unusable(dir, name, source))
}

fn foreign_certificate(dir: &Path, name: &str) -> StoreError {
    let message = "the certificate is not one that `tacit keys` makes, or not of the key beside it";
    unusable(dir, name, NetError::Tls(message.into()))
}

/// Name of the server's certificate for its dealer.
pub const ORDERS: &str = "orders";

/// Makes a certificate for a dealer (`dealer`, for `localhost`, `127.0.0.1`, `::1` and `hosts`),
/// and one by which the server identifies itself to the dealer (`orders`).
///
/// # Errors
/// As [`add`]; a host is unusable.
pub fn add_dealer(dir: &Path, hosts: &[String]) -> Result<(), StoreError> {
    check_hosts(hosts)?;
    let dir = key_folder(dir)?;
    let issuer = issuer(&dir)?;
    let mut files = Vec::from(make_pair(&issuer, DEALER, host_names(hosts), Purpose::Server, None)?);
    files.extend(make_pair(&issuer, ORDERS, vec![], Purpose::Client(Role::Server), None)?);
    write_all(&dir, &files)
}

/// The hosts of a serving certificate, with this machine's local names first.
fn host_names(hosts: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).to_vec();
    for host in hosts {
        if !names.contains(host) {
            names.push(host.clone());
        }
    }
    names
}

/// Loads the server's TLS identity from `server.pem`, `server.key` and `ca.pem`.
///
/// # Errors
/// A file is missing or unusable; [`StoreError::NotServer`]: the certificate is for another
/// purpose.
pub fn load_server(dir: &Path) -> Result<ServerTls, StoreError> {
    load_serving(dir, SERVER)
}

/// Loads the dealer's TLS identity from `dealer.pem`, `dealer.key` and `ca.pem`.
///
/// # Errors
/// As [`load_server`].
pub fn load_dealer(dir: &Path) -> Result<ServerTls, StoreError> {
    load_serving(dir, DEALER)
}

/// Fingerprint of the dealer's key in a key folder.
///
/// # Errors
/// There is no such certificate, or the file is not a certificate.
pub fn dealer_pin(dir: &Path) -> Result<ClientId, StoreError> {
    fingerprint(&read_certificate(dir, DEALER)?).ok_or_else(|| foreign_certificate(dir, DEALER))
}

fn load_serving(dir: &Path, name: &str) -> Result<ServerTls, StoreError> {
    let (cert, key, ca) = read_pair(dir, name)?;
    let identity = ServerTls::from_pem(&cert, &key, &ca).map_err(|source| unusable(dir, name, source))?;
    // Checked here, since every client would refuse such a certificate.
    if !tls::is_for_servers(&cert, &ca).map_err(|source| unusable(dir, name, source))? {
        return Err(StoreError::NotServer(dir.join(name).with_extension("pem")));
    }
    let validity = Validity::from_certificate(identity.certificate()).ok_or_else(|| foreign_certificate(dir, name))?;
    advise(validity, name)?;
    Ok(identity)
}

/// Loads a client's TLS identity from `NAME.pem`, `NAME.key` and `ca.pem`.
///
/// # Errors
/// A file is missing or unusable.
pub fn load_client(dir: &Path, name: &str) -> Result<ClientIdentity, StoreError> {
    check_name(name)?;
    let (cert, key, ca) = read_pair(dir, name)?;
    let tls = ClientTls::from_pem(&cert, &key, &ca).map_err(|source| unusable(dir, name, source))?;
    let identity = fingerprint(tls.certificate()).zip(Validity::from_certificate(tls.certificate()));
    let (fingerprint, validity) = identity.ok_or_else(|| foreign_certificate(dir, name))?;
    advise(validity, name)?;
    Ok(ClientIdentity { fingerprint, validity, tls })
}

fn advise(validity: Validity, name: &str) -> Result<(), StoreError> {
    if let Some(advice) = validity.advice(name)? {
        tracing::warn!("{advice}");
    }
    Ok(())
}

fn unusable(dir: &Path, name: &str, source: NetError) -> StoreError {
    StoreError::Unusable { dir: dir.to_owned(), name: name.to_owned(), source }
}

fn make_pair(
    issuer: &Issuer<'_, KeyPair>,
    name: &str,
    hosts: Vec<String>,
    purpose: Purpose,
    validity: Option<Validity>,
) -> Result<[File; 2], StoreError> {
    let key = KeyPair::generate()?;
    let certificate = certify(issuer, name, hosts, purpose, validity, &key)?;
    Ok([File::certificate(name, certificate), File::private_key(name, &key)])
}

fn certify(
    issuer: &Issuer<'_, KeyPair>,
    name: &str,
    hosts: Vec<String>,
    purpose: Purpose,
    validity: Option<Validity>,
    key: &KeyPair,
) -> Result<String, StoreError> {
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    match purpose {
        Purpose::Client(Role::Operator) => params.distinguished_name.push(DnType::OrganizationalUnitName, OPERATOR),
        Purpose::Client(Role::Server) => params.distinguished_name.push(DnType::OrganizationalUnitName, CUSTOMER),
        Purpose::Client(Role::Helper { owner }) => {
            params.distinguished_name.push(DnType::OrganizationalUnitName, HELPER);
            params.distinguished_name.push(DnType::OrganizationName, owner.to_string());
        }
        Purpose::Ca | Purpose::Server | Purpose::Client(Role::Client) => {}
    }
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let (serving, asking) = (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    params.extended_key_usages = match purpose {
        Purpose::Ca | Purpose::Server => vec![serving],
        // A helper connects to the server and listens for its owner.
        Purpose::Client(Role::Helper { .. }) => vec![asking, serving],
        Purpose::Client(_) => vec![asking],
    };
    // The default number follows from the key, so all certificates for one key would share it.
    params.serial_number = Some(Serial::random()?.into());
    set_validity(&mut params, validity)?;
    Ok(params.signed_by(key, issuer)?.pem())
}

/// The CA's own parameters. Its name follows from its key, so they can be made again to sign
/// further certificates.
fn ca_params(key: &KeyPair) -> Result<CertificateParams, StoreError> {
    let mut params = CertificateParams::new(vec![])?;
    let id = blake3::hash(key.public_key_raw()).to_hex();
    params.distinguished_name.push(DnType::CommonName, format!("tacit CA {}", &id[..16]));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_validity(&mut params, None)?;
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, validity: Option<Validity>) -> Result<(), StoreError> {
    if let Some(Validity { from, until }) = validity {
        [params.not_before, params.not_after] =
            [from, until].map(|seconds| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds));
        return Ok(());
    }
    let year = 1970 + (clock::now()? / 31_556_952) as i32;
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + DEFAULT_YEARS, 1, 1);
    Ok(())
}

fn check_hosts(hosts: &[String]) -> Result<(), StoreError> {
    hosts.iter().try_for_each(|host| {
        // Clients understand a wildcard, which stands for one label.
        let name = host.strip_prefix("*.").unwrap_or(host);
        tls::check_host(name).map_err(|source| StoreError::Host { host: host.clone(), source })
    })
}

fn check_name(name: &str) -> Result<(), StoreError> {
    let is_allowed = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if name.is_empty() || name.len() > 64 || !is_allowed || ["ca", SERVER, DEALER].contains(&name) {
        return Err(StoreError::ClientName(name.into()));
    }
    Ok(())
}

type Pems = (Vec<u8>, Zeroizing<Vec<u8>>, Vec<u8>);

fn read_pair(dir: &Path, name: &str) -> Result<Pems, StoreError> {
    // Certificates cannot be judged by a clock that is not set.
    clock::now()?;
    let cert = private::read_open(&dir.join(format!("{name}.pem")), READING_KEYS)?;
    let ca = private::read_open(&dir.join("ca.pem"), READING_KEYS)?;
    let dir = key_folder(dir)?;
    Ok((cert, read_key(&dir.join(format!("{name}.key")), READING_KEYS)?, ca))
}
