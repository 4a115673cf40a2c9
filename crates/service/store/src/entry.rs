//! Descriptions of material: binding, origin and list entry.
use tacit_ids::{ClientId, FolderId, MaterialId};

/// The client, model and plan that material is bound to.
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
    /// The first difference from another binding, as an error names it.
    #[must_use]
    pub fn first_difference(&self, wanted: &Self) -> Option<&'static str> {
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

/// The party whose halves a folder holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// The client.
    Client,
    /// The server.
    Server,
}

impl Party {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// The origin of material.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The back end that makes it.
    pub backend: &'a str,
    /// The folder that gets the other half.
    pub peer: FolderId,
    /// The helper that makes it in its client's place; `None`: the client itself.
    pub maker: Option<ClientId>,
}

/// Material that a client has ordered from its helper and does not have yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ordered {
    /// Its name.
    pub id: MaterialId,
    /// Its binding.
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
    /// Its binding.
    pub binding: Binding,
    /// The folder that has the other half.
    pub peer: FolderId,
    /// The back end that made it.
    pub backend: String,
    /// The helper that made it in its client's place; `None`: the client itself.
    pub maker: Option<ClientId>,
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// When it was last known to be wanted, in seconds since 1970
    /// ([`mark_wanted`](crate::Store::mark_wanted)).
    pub wanted: u64,
    /// Bytes of the material; a sealed file is somewhat larger.
    pub bytes: u64,
}
