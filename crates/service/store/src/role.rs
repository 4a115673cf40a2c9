//! Roles: what the holder of a certificate may do at a server. The certificate's subject states the
//! role (organisational unit, 2.5.4.11; the owner of a helper as organisation, 2.5.4.10), so the CA
//! decides it. Only for certificates that TLS has verified as signed by our CA.
use crate::x509::decode;
use std::fmt;
use tacit_foreign::text::within;
use tacit_ids::ClientId;
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::{COMMON_NAME, ORGANIZATION_NAME, ORGANIZATIONAL_UNIT_NAME};
use x509_cert::der::{Tag, Tagged};

/// Organisational units: operators, servers as a dealer's clients, and clients' helpers.
pub(crate) const OPERATOR: &str = "tacit-operator";
pub(crate) const CUSTOMER: &str = "tacit-server";
pub(crate) const HELPER: &str = "tacit-helper";
/// Most characters of a common name (X.520).
const LONGEST_NAME: usize = 64;

/// Role of a certificate's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May request inferences and see its own data.
    Client,
    /// May order material from a dealer, as a server.
    Server,
    /// May make material in the place of a client, its owner, and nothing else.
    Helper {
        /// The client whose material it makes.
        owner: ClientId,
    },
    /// May do all that clients may, see everything of a server but inputs and results, and change
    /// its policy.
    Operator,
}

impl Role {
    /// Reads the role of a certificate (DER). Certificates without a role, unreadable ones, and
    /// helpers without an owner are clients.
    #[must_use]
    pub fn from_certificate(certificate: &[u8]) -> Self {
        let Some(certificate) = decode(certificate) else { return Self::Client };
        let units = subject_texts(&certificate, ORGANIZATIONAL_UNIT_NAME);
        match units.as_slice() {
            // Checked first: if a certificate has several units, this one permits the least.
            units if units.contains(&HELPER.as_bytes()) => {
                helper_owner(&certificate).map_or(Self::Client, |owner| Self::Helper { owner })
            }
            units if units.contains(&OPERATOR.as_bytes()) => Self::Operator,
            units if units.contains(&CUSTOMER.as_bytes()) => Self::Server,
            _ => Self::Client,
        }
    }
}

/// The common name of a certificate (DER), in one line, without terminal control characters; `None`
/// if there is none. For display only: the fingerprint identifies holders.
#[must_use]
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let certificate = decode(certificate)?;
    let name = str::from_utf8(subject_texts(&certificate, COMMON_NAME).first()?).ok()?;
    Some(within(name, LONGEST_NAME)).filter(|name| !name.trim().is_empty())
}

fn helper_owner(certificate: &Certificate) -> Option<ClientId> {
    let texts = subject_texts(certificate, ORGANIZATION_NAME);
    let [owner] = texts.as_slice() else { return None };
    str::from_utf8(owner).ok()?.parse().ok()
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("client"),
            Self::Server => f.write_str("server"),
            Self::Helper { owner } => write!(f, "helper of {owner}"),
            Self::Operator => f.write_str("operator"),
        }
    }
}

fn subject_texts(certificate: &Certificate, wanted: ObjectIdentifier) -> Vec<&[u8]> {
    let attributes = certificate.tbs_certificate().subject().iter().filter(|pair| pair.oid == wanted);
    let texts = attributes.filter(|pair| [Tag::Utf8String, Tag::PrintableString].contains(&pair.value.tag()));
    texts.map(|pair| pair.value.value()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(unit: Option<&str>, name: &str) -> Vec<u8> {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(unit) = unit {
            params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn reads_role_from_subject_unit_only() {
        for (unit, name, role) in [
            (Some(OPERATOR), "ada", Role::Operator),
            (None, "ada", Role::Client),
            (Some("tacit-operators"), "ada", Role::Client),
            (None, OPERATOR, Role::Client),
            (Some(""), OPERATOR, Role::Client),
        ] {
            assert_eq!(Role::from_certificate(&certificate(unit, name)), role, "{unit:?} {name}");
        }
        // The issuer's unit does not count, only the subject's.
        let mut ca = CertificateParams::new(vec![]).unwrap();
        ca.distinguished_name.push(DnType::OrganizationalUnitName, OPERATOR);
        let key = || KeyPair::generate().unwrap();
        let issuer = rcgen::CertifiedIssuer::self_signed(ca, key()).unwrap();
        let signed = CertificateParams::new(vec![]).unwrap().signed_by(&key(), &issuer).unwrap();
        assert_eq!(Role::from_certificate(signed.der()), Role::Client);
    }

    #[test]
    fn common_name_is_one_plain_line() {
        let read_name = |name: &str| common_name(&certificate(None, name));
        assert_eq!(read_name("alice").as_deref(), Some("alice"));
        let hostile = "a\u{1b}[2J\r\nb\u{202e}c\u{ad}\u{61c}\u{180e}\u{2060}\u{e0041}d";
        let named = read_name(hostile).unwrap();
        assert!(named.chars().all(tacit_foreign::text::is_plain), "{named:?}");
        assert!(named.starts_with("a\u{fffd}[2J\u{fffd} b\u{fffd}c"), "{named:?}");
        assert!(named.ends_with('d'), "{named:?}");
        assert_eq!(read_name(&"é".repeat(80)), Some("é".repeat(LONGEST_NAME) + "..."));
        assert_eq!((read_name(""), read_name("  "), common_name(b"no certificate")), (None, None, None));
    }

    #[test]
    fn helper_without_owner_is_client() {
        let owner = ClientId([0xab; 32]);
        let read_role = |owner: Option<&str>| {
            let mut params = CertificateParams::new(vec![]).unwrap();
            params.distinguished_name.push(DnType::OrganizationalUnitName, HELPER);
            owner.iter().for_each(|owner| params.distinguished_name.push(DnType::OrganizationName, *owner));
            Role::from_certificate(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
        };
        assert_eq!(read_role(Some(&owner.to_string())), Role::Helper { owner });
        assert_eq!([None, Some("alice"), Some("")].map(read_role), [Role::Client; 3]);
        assert_eq!(Role::Helper { owner }.to_string(), format!("helper of {owner}"));
    }

    #[test]
    fn truncated_certificate_is_client() {
        let whole = certificate(Some(OPERATOR), "ada");
        assert!((0..whole.len()).all(|n| Role::from_certificate(&whole[..n]) == Role::Client));
    }
}
