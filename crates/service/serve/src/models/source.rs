//! Source of models and certificates, and results of a reload.
use crate::models::catalog::{Catalog, Changes};
use serde::Serialize;
use std::error::Error;
use tacit_net::ServerTls;
use tokio::sync::oneshot;

/// Why something cannot be served, for people.
pub type Unusable = Box<dyn Error + Send + Sync>;

/// A source of a server's models and certificates. A reload asks it again, in a separate thread.
pub trait Source: Send {
    /// Reads the current models.
    ///
    /// # Errors
    /// If any of them is unusable: then all stay as they were.
    fn catalog(&mut self) -> Result<Catalog, Unusable>;

    /// Reads the server's current identity and the CA of its clients.
    ///
    /// # Errors
    /// If they are unusable: then they stay as they were.
    fn identity(&mut self) -> Result<ServerTls, Unusable>;
}

/// What a reload has read. Parts without a file are unset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Whether access rules were read.
    pub access: bool,
    /// Whether certificates and key were read; new connections use them.
    pub certificates: bool,
    /// Changes of the models.
    pub models: Changes,
}

/// The error says for people what is wrong.
pub(crate) type AskReload = oneshot::Sender<Result<Reloaded, String>>;
