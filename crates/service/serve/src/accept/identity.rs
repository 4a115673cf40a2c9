//! The identity of a connection's peer, and what a client's helper may ask in its place.
use crate::ServeError;
use crate::models::catalog::Offered;
use std::fmt;
use std::sync::Arc;
use tacit_backends::Preparation;
use tacit_client::wire::Request;
use tacit_ids::ClientId;
use tacit_store::{Role, Serial};

const MATERIAL_ALONE: &str = "this certificate is a helper's: it makes stored material in its owner's place, with back ends whose \
                              material two parties make, and nothing else";

#[derive(Clone)]
pub(crate) struct CertificateIdentity {
    /// The client whose rights, quotas and material count: for a helper, its owner.
    pub(crate) client: ClientId,
    pub(crate) serial: Serial,
    /// The helper's own key, if the certificate is a helper's.
    pub(crate) helper: Option<ClientId>,
    /// For people; empty if the certificate has none.
    pub(crate) name: Arc<str>,
}

/// A client's name and fingerprint, for people: `alice (5f0c..)`.
pub(crate) fn client_label(name: &str, client: ClientId) -> String {
    match name {
        "" => client.to_string(),
        name => format!("{name} ({client})"),
    }
}

/// The holder's name and the client: `alice (5f0c..)`, `gw, helper of 5f0c..`.
impl fmt::Display for CertificateIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, helper, name, .. } = self;
        match (&**name, helper) {
            (name, None) => f.write_str(&client_label(name, *client)),
            ("", Some(helper)) => write!(f, "{helper}, helper of {client}"),
            (name, Some(_)) => write!(f, "{name}, helper of {client}"),
        }
    }
}

impl CertificateIdentity {
    pub(crate) fn new(key: ClientId, serial: Serial, role: Role, name: Arc<str>) -> Self {
        match role {
            Role::Helper { owner } => Self { client: owner, serial, helper: Some(key), name },
            Role::Client | Role::Server | Role::Operator => Self { client: key, serial, helper: None, name },
        }
    }

    /// Refuses a helper everything but opening a model, the setup, and material that both parties
    /// store.
    pub(crate) fn check(&self, request: &Request, offered: Option<&Arc<Offered>>) -> Result<(), ServeError> {
        let is_granted = match request {
            Request::Open { .. } | Request::Bye => true,
            Request::Setup | Request::Prepare { folder: Some(_), of: None, .. } => {
                offered.is_none_or(|offered| offered.model.preparation() == Preparation::TwoParty)
            }
            _ => false,
        };
        match self.helper {
            Some(_) if !is_granted => Err(ServeError::NotGranted(MATERIAL_ALONE.into())),
            _ => Ok(()),
        }
    }
}
