//! Certificates that end: what they say, and renewing them.
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tacit_store::keys::{self, CertificateInfo, Purpose, Validity};
use tacit_store::{Role, Serial, StoreError};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn one(dir: &Path, name: &str) -> CertificateInfo {
    keys::show(dir, Some(name)).unwrap().remove(0)
}

#[test]
fn lists_certificates_of_folder() {
    let dir = tempfile::tempdir().unwrap();
    keys::init(dir.path(), &["server.example".into()], &["alice".into()]).unwrap();
    keys::add_operator(dir.path(), "ops").unwrap();
    let shown = keys::show(dir.path(), None).unwrap();
    let listed: Vec<_> = shown.iter().map(|one| (one.name.as_str(), one.purpose, one.hosts.len())).collect();
    let want = [
        ("ca", Purpose::Ca, 0),
        ("server", Purpose::Server, 4),
        ("alice", Purpose::Client(Role::Client), 0),
        ("ops", Purpose::Client(Role::Operator), 0),
    ];
    assert_eq!(listed, want);
    assert_eq!(shown[2].fingerprint, keys::load_client(dir.path(), "alice").unwrap().fingerprint);
    assert!(shown.iter().all(|one| one.validity.until > now() + 8 * 365 * 86_400));
    let serials: BTreeSet<&Serial> = shown.iter().map(|one| &one.serial).collect();
    assert_eq!(serials.len(), shown.len());
    // Without private keys, as on another machine.
    for file in ["ca.key", "alice.key"] {
        fs::remove_file(dir.path().join(file)).unwrap();
    }
    assert_eq!(keys::show(dir.path(), None).unwrap(), shown);
    fs::write(dir.path().join("bob.pem"), "nonsense").unwrap();
    assert!(keys::show(dir.path(), None).unwrap_err().to_string().contains("bob"));
    assert!(keys::show(dir.path(), Some("carol")).unwrap_err().to_string().contains("carol.pem"));
}

#[test]
fn renewal_changes_validity_and_serial_only() {
    let dir = tempfile::tempdir().unwrap();
    keys::init(dir.path(), &["server.example".into(), "192.0.2.7".into()], &["alice".into()]).unwrap();
    let expired = Validity { from: now() - 2000, until: now() - 1000 };
    keys::add(dir.path(), "ops", Role::Operator, Some(expired)).unwrap();
    assert_eq!(one(dir.path(), "ops").validity, expired);
    let advice = expired.advice("ops").unwrap().unwrap();
    assert!(advice.contains("`ops` has expired 16 minutes ago"), "{advice}");
    assert!(advice.contains("tacit keys renew"), "{advice}");
    keys::add_dealer(dir.path(), &[]).unwrap();
    for name in ["ops", "alice", "server", "dealer", "orders"] {
        let (before, key) = (one(dir.path(), name), fs::read(dir.path().join(format!("{name}.key"))).unwrap());
        keys::renew(dir.path(), name, Some(Validity::for_days(7).unwrap())).unwrap();
        let after = one(dir.path(), name);
        let week = now() + 7 * 86_400;
        assert!((week - 60..=week).contains(&after.validity.until), "{name}: {after:?}");
        assert_ne!(after.serial, before.serial);
        let (validity, serial) = (after.validity, after.serial.clone());
        assert_eq!(after, CertificateInfo { validity, serial, ..before });
        assert_eq!(fs::read(dir.path().join(format!("{name}.key"))).unwrap(), key);
        assert!(after.validity.advice(name).unwrap().is_none());
    }
    assert_eq!(one(dir.path(), "server").hosts, ["localhost", "127.0.0.1", "::1", "server.example", "192.0.2.7"]);
    keys::load_server(dir.path()).unwrap();
    keys::load_dealer(dir.path()).unwrap();
    keys::load_client(dir.path(), "alice").unwrap();
    // For the default time.
    keys::renew(dir.path(), "alice", None).unwrap();
    assert!(one(dir.path(), "alice").validity.until > now() + 8 * 365 * 86_400);
    assert!(!dir.path().join("alice.pem.new").exists());
}

#[test]
fn failed_renewal_keeps_certificate() {
    let dir = tempfile::tempdir().unwrap();
    keys::init(dir.path(), &[], &["alice".into(), "bob".into()]).unwrap();
    let renew = |name: &str| keys::renew(dir.path(), name, None).unwrap_err();
    assert!(matches!(renew("ca"), StoreError::ClientName(_)));
    assert!(renew("carol").to_string().contains("carol.pem"));
    // Puts bob's key beside alice's certificate: the pair does not match.
    let alice = fs::read(dir.path().join("alice.pem")).unwrap();
    fs::copy(dir.path().join("bob.key"), dir.path().join("alice.key")).unwrap();
    assert!(renew("alice").to_string().contains("not of the key beside it"));
    fs::remove_file(dir.path().join("ca.key")).unwrap();
    assert!(renew("bob").to_string().contains("ca.key"));
    assert_eq!(fs::read(dir.path().join("alice.pem")).unwrap(), alice);
}

#[test]
fn helper_certificate_names_owner() {
    let dir = tempfile::tempdir().unwrap();
    keys::init(dir.path(), &[], &["alice".into()]).unwrap();
    let (days, hosts) = (Some(Validity::for_days(30).unwrap()), ["gateway.local".to_owned()]);
    keys::add_helper(dir.path(), "gateway", "alice", &hosts, days).unwrap();
    let owner = one(dir.path(), "alice").fingerprint;
    let shown = one(dir.path(), "gateway");
    assert_eq!((shown.purpose, shown.hosts.len()), (Purpose::Client(Role::Helper { owner }), 1));
    keys::renew(dir.path(), "gateway", None).unwrap();
    let (identity, _, helped) = keys::load_helper(dir.path(), "gateway").unwrap();
    assert_eq!((identity.fingerprint, helped), (shown.fingerprint, owner));
    assert_eq!(one(dir.path(), "gateway").purpose, shown.purpose);
    // Owners that are no clients, and a helper without a host.
    for (of, hosts) in [("gateway", &hosts[..]), ("server", &hosts[..]), ("bob", &hosts[..]), ("alice", &[])] {
        assert!(keys::add_helper(dir.path(), "second", of, hosts, days).is_err(), "{of} {hosts:?}");
    }
    assert!(keys::load_helper(dir.path(), "alice").err().unwrap().to_string().contains("no helper's certificate"));
}
