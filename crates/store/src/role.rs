//! What the holder of a certificate may do at a server. The role is in the certificate's subject
//! (organisational unit, 2.5.4.11), so the CA decides it; only certificates that TLS has found to be signed
//! by our CA are asked.
use crate::der::{OBJECT, Parts, SEQUENCE, SET, TEXTS, element, elements};
use std::fmt;

/// Organisational unit of operators.
pub(crate) const OPERATOR: &str = "tacit-operator";
/// Organisational unit of servers as a dealer's clients.
pub(crate) const CUSTOMER: &str = "tacit-server";
/// Content of the object identifier of organisational units.
const UNIT: &[u8] = &[0x55, 0x04, 0x0b];

/// What the holder of a certificate may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ask for inferences, and see what is its own.
    Client,
    /// Order material from a dealer, as a server.
    Server,
    /// What clients may; see everything of a server but inputs and results; change its policy.
    Operator,
}

impl Role {
    /// The role that a certificate (DER) gives. One that says nothing of it is a client's, and so is one that
    /// cannot be read.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        let units = units(certificate).unwrap_or_default();
        match units.as_slice() {
            units if units.contains(&OPERATOR.as_bytes()) => Self::Operator,
            units if units.contains(&CUSTOMER.as_bytes()) => Self::Server,
            _ => Self::Client,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Operator => "operator",
        })
    }
}

/// The organisational units of a certificate's subject.
fn units(certificate: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    for set in elements(Parts::of(certificate)?.subject)? {
        let (SET, set) = set else { return None };
        for pair in elements(set)? {
            let (SEQUENCE, pair) = pair else { return None };
            let (OBJECT, name, value) = element(pair)? else { return None };
            let (kind, text, _) = element(value)?;
            if name == UNIT && TEXTS.contains(&kind) {
                found.push(text);
            }
        }
    }
    Some(found)
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
    fn the_unit_of_the_subject_decides_and_nothing_else() {
        assert_eq!(Role::of(&certificate(Some(OPERATOR), "ada")), Role::Operator);
        for (unit, name) in [(None, "ada"), (Some("tacit-operators"), "ada"), (None, OPERATOR), (Some(""), OPERATOR)] {
            assert_eq!(Role::of(&certificate(unit, name)), Role::Client, "{unit:?} {name}");
        }
        // The issuer's unit is not the subject's.
        let mut ca = CertificateParams::new(vec![]).unwrap();
        ca.distinguished_name.push(DnType::OrganizationalUnitName, OPERATOR);
        let issuer = rcgen::CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        let signed = CertificateParams::new(vec![]).unwrap().signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        assert_eq!(Role::of(signed.der()), Role::Client);
    }

    #[test]
    fn what_is_cut_is_no_operator() {
        let whole = certificate(Some(OPERATOR), "ada");
        assert!((0..whole.len()).all(|n| Role::of(&whole[..n]) == Role::Client));
    }
}
