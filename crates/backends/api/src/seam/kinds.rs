//! The properties that tell back ends apart for their users: whom to trust, where material comes
//! from, and when a connection sets up keys.
#[cfg(doc)]
use crate::Costs;

/// The parties that a user of a back end must trust, beside the assumptions of its cryptography.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Client and server must each follow the protocol. No third party is involved.
    TwoParty,
    /// A third party makes material. This dealer must not work with client or server.
    Dealer,
    /// The server sees the input. Not private; served only where allowed by name.
    ServerSeesInput,
}

/// The origin of the material for one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preparation {
    /// Both parties make the material together, bound to the client.
    TwoParty,
    /// A third party makes the material, which may be pooled and is bound when it is claimed.
    Dealt,
    /// The offline phase makes no material.
    Nothing,
}

/// What a connection has to set up, and before which phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setup {
    /// Nothing.
    Nothing,
    /// Keys before the first offline phase. A connection that uses only stored material needs none.
    BeforeOffline,
    /// Keys before the first online phase. Their size is that of the setup's upload, see [`Costs`].
    BeforeOnline,
}
