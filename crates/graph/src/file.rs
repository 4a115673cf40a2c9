//! The `.tacit` model file: a public section (all that a client ever receives) and a private one (the weights).
//!
//! ```text
//! magic "TACITMDL" | version u32 | public length u64 | public BLAKE3 32 | private length u64 | private BLAKE3 32
//! public: postcard of (ModelSpec, PublicSummary)          private: postcard of Weights
//! ```
//! Integers are little endian. Reading checks the version, both lengths against the file and the limits, both digests, then the
//! graph and that the weights fit it. The digest of the public section names the model in handshakes and material: it contains
//! the random `model_id`, so two imports never share one.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::GraphError;
use crate::model::{ModelGraph, ModelSpec, Weights};

/// First bytes of every model file.
pub const MAGIC: [u8; 8] = *b"TACITMDL";
/// Version written, and the only one read.
pub const VERSION: u32 = 1;
/// Largest public section in bytes.
pub const MAX_PUBLIC_BYTES: u64 = 64 << 20;
/// Largest private section in bytes.
pub const MAX_PRIVATE_BYTES: u64 = 4 << 30;

const HEADER: usize = 8 + 4 + 2 * (8 + 32);

/// What the importer found out that a client may see: nothing about single weights or samples.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PublicSummary {
    /// Where ranges come from: "12 calibration samples", "seeded inputs: headroom is a guess".
    pub calibration: String,
    /// Share of calibration samples with the float model's class, 0 to 1.
    pub agreement: f64,
    /// Comparisons of one inference.
    pub comparisons: u64,
    /// Multiplications of one inference.
    pub macs: u64,
}

/// A model read from a file: checked graph, weights that fit, identity.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFile {
    /// The graph.
    pub graph: ModelGraph,
    /// Its weights; never leave the server.
    pub weights: Weights,
    /// What the importer tells the client.
    pub summary: PublicSummary,
    /// BLAKE3 of the public section.
    pub digest: [u8; 32],
}

/// The client's view of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicModel {
    /// The graph.
    pub graph: ModelGraph,
    /// What the importer tells the client.
    pub summary: PublicSummary,
    /// BLAKE3 of the public section.
    pub digest: [u8; 32],
}

/// The public section of a model, as bytes for the client.
///
/// # Errors
/// It would exceed [`MAX_PUBLIC_BYTES`].
pub fn public_bytes(spec: &ModelSpec, summary: &PublicSummary) -> Result<Vec<u8>, GraphError> {
    encode(&(spec, summary), MAX_PUBLIC_BYTES, "public")
}

/// Reads a public section: what a client does with bytes from a server.
///
/// # Errors
/// Too long, not a model, or a graph that does not pass its checks.
pub fn read_public(bytes: &[u8]) -> Result<PublicModel, GraphError> {
    check_length(bytes.len() as u64, MAX_PUBLIC_BYTES, "public")?;
    let (spec, summary): (ModelSpec, PublicSummary) = decode(bytes, "public")?;
    Ok(PublicModel { graph: ModelGraph::new(spec)?, summary, digest: *blake3::hash(bytes).as_bytes() })
}

/// A whole model file.
///
/// # Errors
/// A section would exceed its limit, the graph does not pass its checks, or the weights do not fit.
pub fn write(spec: &ModelSpec, weights: &Weights, summary: &PublicSummary) -> Result<Vec<u8>, GraphError> {
    ModelGraph::new(spec.clone())?.check_weights(weights)?;
    let public = public_bytes(spec, summary)?;
    let private = encode(weights, MAX_PRIVATE_BYTES, "private")?;
    let mut out = Vec::with_capacity(HEADER + public.len() + private.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    for section in [&public, &private] {
        out.extend_from_slice(&(section.len() as u64).to_le_bytes());
        out.extend_from_slice(blake3::hash(section).as_bytes());
    }
    out.extend_from_slice(&public);
    out.extend_from_slice(&private);
    Ok(out)
}

/// Reads a whole model file.
///
/// # Errors
/// Says what is wrong with which section: not a model file, another version, truncated or damaged, a graph that does not
/// pass its checks, weights that do not fit.
pub fn read(bytes: &[u8]) -> Result<ModelFile, GraphError> {
    let (public, private) = sections(bytes)?;
    let model = read_public(public)?;
    let weights: Weights = decode(private, "private")?;
    model.graph.check_weights(&weights)?;
    Ok(ModelFile { graph: model.graph, weights, summary: model.summary, digest: model.digest })
}

impl ModelFile {
    /// The public section for the client.
    ///
    /// # Errors
    /// It would exceed [`MAX_PUBLIC_BYTES`].
    pub fn public_bytes(&self) -> Result<Vec<u8>, GraphError> {
        public_bytes(self.graph.spec(), &self.summary)
    }
}

/// The two sections of a file whose header, lengths and digests are right.
fn sections(bytes: &[u8]) -> Result<(&[u8], &[u8]), GraphError> {
    let fail = |what: &str| GraphError::File { section: "header", what: what.into() };
    if bytes.len() < MAGIC.len() || bytes[..8] != MAGIC {
        return Err(fail("this is not a tacit model file"));
    }
    let header = bytes.get(..HEADER).ok_or_else(|| fail("the file is truncated"))?;
    let version = u32::from_le_bytes(array(&header[8..12]));
    if version != VERSION {
        return Err(GraphError::Version { found: version, supported: VERSION });
    }
    let (public_len, public_hash) = (u64::from_le_bytes(array(&header[12..20])), &header[20..52]);
    let (private_len, private_hash) = (u64::from_le_bytes(array(&header[52..60])), &header[60..92]);
    check_length(public_len, MAX_PUBLIC_BYTES, "public")?;
    check_length(private_len, MAX_PRIVATE_BYTES, "private")?;
    let body = &bytes[HEADER..];
    if body.len() as u64 != public_len + private_len {
        return Err(fail(&format!(
            "the file holds {} bytes after the header, its header states {}",
            body.len(),
            public_len + private_len
        )));
    }
    let (public, private) = body.split_at(public_len as usize);
    for (section, hash, name) in [(public, public_hash, "public"), (private, private_hash, "private")] {
        if blake3::hash(section).as_bytes() != hash {
            return Err(GraphError::File { section: name, what: "its digest is wrong: the file is damaged".into() });
        }
    }
    Ok((public, private))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(bytes);
    out
}

fn check_length(len: u64, limit: u64, section: &'static str) -> Result<(), GraphError> {
    if len > limit {
        return Err(GraphError::File { section, what: format!("{len} bytes, the limit is {limit}") });
    }
    Ok(())
}

fn encode<T: Serialize>(value: &T, limit: u64, section: &'static str) -> Result<Vec<u8>, GraphError> {
    let bytes = postcard::to_stdvec(value).map_err(|e| GraphError::File { section, what: e.to_string() })?;
    check_length(bytes.len() as u64, limit, section)?;
    Ok(bytes)
}

fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8], section: &'static str) -> Result<T, GraphError> {
    let (value, rest) = postcard::take_from_bytes(bytes)
        .map_err(|e| GraphError::File { section, what: format!("cannot be decoded: {e}") })?;
    if !rest.is_empty() {
        return Err(GraphError::File { section, what: format!("{} bytes left over", rest.len()) });
    }
    Ok(value)
}
