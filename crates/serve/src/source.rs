//! Where what is served comes from, and what came of looking at it again.
use crate::catalog::{Catalog, Changes};
use serde::Serialize;
use std::error::Error;
use tacit_net::ServerTls;
use tokio::sync::oneshot;

/// Why something cannot be served, for people.
pub type Unusable = Box<dyn Error + Send + Sync>;

/// Where a server's models and certificates come from: asked again while it serves, in a thread of its own.
pub trait Source: Send {
    /// The models as they are there now.
    ///
    /// # Errors
    /// One of them is unusable: then all stay as they were.
    fn catalog(&mut self) -> Result<Catalog, Unusable>;

    /// The server's identity and the CA of its clients as they are there now.
    ///
    /// # Errors
    /// They are unusable: then they stay as they were.
    fn identity(&mut self) -> Result<ServerTls, Unusable>;
}

/// What was looked at again. What is not named has no file that could be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// The rules of access were read.
    pub access: bool,
    /// Certificates and key were read: new connections use them.
    pub certificates: bool,
    /// What became of the models.
    pub models: Changes,
}

/// Asks for all of it to be looked at again; the answer is for people where something is wrong, which then
/// stays as it was.
pub(crate) type AskReload = oneshot::Sender<Result<Reloaded, String>>;
