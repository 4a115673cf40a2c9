//! What is said of material: what it is bound to, where it comes from, what a list of it shows.
use tacit_ids::{ClientId, FolderId, MaterialId};

/// What material is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The client that it was made with.
    pub client: ClientId,
    /// Digest of the model's public part.
    pub model: [u8; 32],
    /// Digest of the compiled plan, options and back end included.
    pub plan: [u8; 32],
}

impl Binding {
    /// What differs first in another binding: `client`, `model` or `plan`, as an error says it.
    #[must_use]
    pub fn other(&self, wanted: &Self) -> Option<&'static str> {
        if self.client != wanted.client {
            Some("client")
        } else if self.model != wanted.model {
            Some("model")
        } else if self.plan != wanted.plan {
            Some("plan (another version or other options of this program)")
        } else {
            None
        }
    }
}

/// Whose halves a folder holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

/// How material comes about.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The back end that makes it.
    pub backend: &'a str,
    /// The folder that gets the other half.
    pub peer: FolderId,
    /// Who makes it in its client's place: a helper.
    pub maker: Option<ClientId>,
}

/// Material that a client has ordered from its helper and does not have yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ordered {
    /// Its name.
    pub id: MaterialId,
    /// What it is bound to.
    pub binding: Binding,
    /// Fingerprint of the helper's key.
    pub helper: ClientId,
    /// When it was ordered, seconds since 1970.
    pub created: u64,
}

/// Ready material, as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub id: MaterialId,
    /// What it is bound to.
    pub binding: Binding,
    /// The folder that has the other half.
    pub peer: FolderId,
    /// The back end that made it.
    pub backend: String,
    /// Who made it in its client's place: a helper.
    pub maker: Option<ClientId>,
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// When it was last known to be of use ([`Store::still_wanted`]), seconds since 1970.
    pub wanted: u64,
    /// Bytes of the material; a sealed file has some more.
    pub bytes: u64,
}
