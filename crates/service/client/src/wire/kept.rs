//! Descriptions of what a server stores for a client.
use serde::{Deserialize, Serialize};
use tacit_backends::seam::UploadName;
use tacit_ids::{FolderId, MaterialId};

/// An upload: data that a client sends a server once, such as its switching keys for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// The client's name for it.
    pub name: UploadName,
    /// Digest of the plan.
    pub plan: [u8; 32],
    /// Bytes of the complete upload.
    pub bytes: u64,
    /// Whether it is complete; else the client resumes sending where it broke off.
    pub is_whole: bool,
    /// When it was begun, seconds since 1970.
    pub created: u64,
    /// When its client last used it, seconds since 1970.
    pub used: u64,
    /// The model and the back end, if they are on offer.
    pub offered: Option<ModelAndBackend>,
}

/// Names of a model and of a back end that computes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAndBackend {
    /// Name of the model at the server.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub model: String,
    /// Name of the back end.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub backend: String,
}

/// One party's half of a material on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Half {
    /// Its name.
    pub id: MaterialId,
    /// Digest of the model's public part.
    pub model: [u8; 32],
    /// Digest of the plan.
    pub plan: [u8; 32],
    /// The client's folder that got the other half.
    pub folder: FolderId,
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether the model is on offer, with this plan.
    pub offered: bool,
}
