//! The file of a lowering, stored beside the owner's model so that a server starts without lowering
//! again.
//!
//! ```text
//! magic "TACITLOW" | version u32 | head length u32 | public length u64 | private length u64
//!     | BLAKE3 of all three 32 | head | public | private
//! head: postcard of (digest of the .tacit file's content, back end, options)
//! ```
//! Integers are little endian. The private part holds the weights, so the file is as private as the
//! model.

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::seam::MAX_PUBLIC_BYTES;
use crate::{Backend, BackendError, Options, Result, ServerModel};
use tacit_graph::file as model_file;

/// First bytes of every lowering.
pub const MAGIC: [u8; 8] = *b"TACITLOW";
/// The version that is written, and the only version that is read.
pub const VERSION: u32 = 1;
/// Largest private part in bytes.
pub const MAX_PRIVATE_BYTES: u64 = 4 << 30;

/// Largest file in bytes.
pub const MAX_BYTES: u64 = MAX_PUBLIC_BYTES + MAX_PRIVATE_BYTES + (1 << 20);

const FIXED: usize = 8 + 4 + 4 + 8 + 8 + 32;
const MAX_HEAD_BYTES: u32 = 64 << 10;

/// The model, back end and options of a lowering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Digest of the owner's model ([`tacit_graph::Model::digest`]).
    pub model: [u8; 32],
    /// Id of the back end.
    pub backend: String,
    /// Options of the back end.
    pub options: Options,
}

/// A lowering read from a file.
pub struct Lowered<'a> {
    /// The model, back end and options of the lowering.
    pub origin: Origin,
    /// The public part, for clients.
    pub public: &'a [u8],
    /// The private part, which stays at the server.
    pub private: &'a [u8],
}

/// Path of a model's lowering for a back end: `DIR/NAME.BACKEND.lowered` beside `DIR/NAME.tacit`.
#[must_use]
pub fn path_beside(model: &Path, backend: &str) -> PathBuf {
    model.with_extension(format!("{backend}.lowered"))
}

/// The content of an owner's file as a stream (decrypted if sealed), and its length in bytes.
pub type Content = (Box<dyn Read>, u64);

/// Opens an owner's file.
pub type Open<'a> = dyn Fn(&Path) -> Result<Content, Box<dyn Error + Send + Sync>> + 'a;

/// A server's model and its origin.
pub struct Obtained {
    /// The model.
    pub model: Arc<dyn ServerModel>,
    /// Why the model was lowered now; `None` for a stored lowering.
    pub lowered_because: Option<String>,
}

/// Loads the lowering stored beside the owner's model at `path`, or lowers the model if none fits.
/// A stored lowering fits if it was made from this model and with `options` (`None`: any options).
/// Then only the header of the model is read.
///
/// # Errors
/// A file cannot be read or is damaged, or the model cannot be lowered.
pub fn obtain(path: &Path, backend: &dyn Backend, options: Option<&Options>, open: &Open<'_>) -> Result<Obtained> {
    let stored = path_beside(path, backend.id());
    let because = if stored.exists() {
        let digest = model_file::digest_of_header(&mut read_content(path, open)?.0)?;
        let bytes = content(&stored, open)?;
        match fitting(&bytes, &digest, backend, options) {
            Ok(model) => return Ok(Obtained { model, lowered_because: None }),
            Err(Unfit::Stale(how)) => format!("{} was made {how}", stored.display()),
            Err(Unfit::Wrong(source)) => return Err(BackendError::File { path: stored, source: source.into() }),
        }
    } else {
        format!("there is no {}", stored.display())
    };
    let model = model_file::read(&content(path, open)?)?;
    let default = Options::default();
    Ok(Obtained { model: backend.lower(&model, options.unwrap_or(&default))?, lowered_because: Some(because) })
}

/// Why a stored lowering is not used.
enum Unfit {
    /// The model is lowered again: how the stored lowering was made.
    Stale(&'static str),
    /// The file is damaged or no lowering.
    Wrong(BackendError),
}

fn fitting(
    bytes: &[u8],
    digest: &[u8; 32],
    backend: &dyn Backend,
    options: Option<&Options>,
) -> Result<Arc<dyn ServerModel>, Unfit> {
    const OTHER_VERSION: Unfit = Unfit::Stale("by another version");
    if version(bytes).is_some_and(|version| version != VERSION) {
        return Err(OTHER_VERSION);
    }
    let lowered = read(bytes).map_err(Unfit::Wrong)?;
    if lowered.origin.model != *digest {
        return Err(Unfit::Stale("from another model"));
    }
    if options.is_some_and(|options| *options != lowered.origin.options) {
        return Err(Unfit::Stale("with other options"));
    }
    lowered.load(backend).map_err(|error| match error {
        BackendError::Version { .. } => OTHER_VERSION,
        error => Unfit::Wrong(error),
    })
}

fn read_content(path: &Path, open: &Open<'_>) -> Result<Content> {
    open(path).map_err(|source| BackendError::File { path: path.to_owned(), source })
}

fn content(path: &Path, open: &Open<'_>) -> Result<Zeroizing<Vec<u8>>> {
    let (mut stream, len) = read_content(path, open)?;
    let limit = MAX_BYTES.max(model_file::MAX_BYTES);
    let fail = |source: Box<dyn Error + Send + Sync>| BackendError::File { path: path.to_owned(), source };
    if len > limit {
        return Err(fail(format!("it has {len} bytes, the limit is {limit}").into()));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(len as usize));
    stream.by_ref().take(limit).read_to_end(&mut bytes).map_err(|e| fail(e.into()))?;
    Ok(bytes)
}

/// Encodes a lowering as a file.
///
/// # Errors
/// A part exceeds its limit.
pub fn write(origin: &Origin, model: &dyn ServerModel) -> Result<Zeroizing<Vec<u8>>> {
    let head = postcard::to_stdvec(origin).map_err(|e| damaged(e.to_string()))?;
    let (public, private) = (model.public_bytes(), model.private_bytes()?);
    let lengths = [head.len() as u64, public.len() as u64, private.len() as u64];
    check_lengths(lengths)?;
    let mut out = Zeroizing::new(Vec::with_capacity(FIXED + head.len() + public.len() + private.len()));
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&lengths[1].to_le_bytes());
    out.extend_from_slice(&lengths[2].to_le_bytes());
    out.extend_from_slice(&body_digest([&head, public, &private]));
    out.extend_from_slice(&head);
    out.extend_from_slice(public);
    out.extend_from_slice(&private);
    Ok(out)
}

/// The version of a lowering's file; `None` if the file is no lowering.
fn version(bytes: &[u8]) -> Option<u32> {
    let version = bytes.strip_prefix(&MAGIC)?.first_chunk()?;
    Some(u32::from_le_bytes(*version))
}

/// Reads a lowering's file.
///
/// # Errors
/// [`BackendError::Lowering`] if the bytes are no lowering, of another version, truncated or
/// damaged.
pub fn read(bytes: &[u8]) -> Result<Lowered<'_>> {
    if bytes.get(..8) != Some(&MAGIC[..]) {
        return Err(damaged("this is no lowered model".into()));
    }
    let Some((fixed, body)) = bytes.split_first_chunk::<FIXED>() else {
        return Err(damaged("the file is truncated".into()));
    };
    if read_u32(fixed, 8) != VERSION {
        return Err(damaged(format!(
            "version {}, this program reads version {VERSION}: lower the model again",
            read_u32(fixed, 8)
        )));
    }
    let lengths = [u64::from(read_u32(fixed, 12)), read_u64(fixed, 16), read_u64(fixed, 24)];
    check_lengths(lengths)?;
    if body.len() as u64 != lengths.iter().sum::<u64>() {
        return Err(damaged(format!(
            "{} bytes after the header, which states {}",
            body.len(),
            lengths.iter().sum::<u64>()
        )));
    }
    let (head, tail) = body.split_at(lengths[0] as usize);
    let (public, private) = tail.split_at(lengths[1] as usize);
    if body_digest([head, public, private]) != fixed[32..64] {
        return Err(damaged("its digest is wrong: the file is damaged".into()));
    }
    match postcard::take_from_bytes(head) {
        Ok((origin, [])) => Ok(Lowered { origin, public, private }),
        Ok(_) => Err(damaged("bytes are left over in its head".into())),
        Err(e) => Err(damaged(e.to_string())),
    }
}

fn read_u32(header: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([header[offset], header[offset + 1], header[offset + 2], header[offset + 3]])
}

fn read_u64(header: &[u8], offset: usize) -> u64 {
    u64::from(read_u32(header, offset)) | u64::from(read_u32(header, offset + 4)) << 32
}

impl Lowered<'_> {
    /// Loads the server's model.
    ///
    /// # Errors
    /// The parts do not pass the back end's checks.
    pub fn load(&self, backend: &dyn Backend) -> Result<Arc<dyn ServerModel>> {
        if backend.id() != self.origin.backend {
            return Err(damaged(format!("it was made for {}, not for {}", self.origin.backend, backend.id())));
        }
        backend.load(self.public, self.private)
    }
}

fn body_digest(parts: [&[u8]; 3]) -> [u8; 32] {
    crate::seam::digest("tacit 2026-11 lowered model", &parts)
}

fn check_lengths([head, public, private]: [u64; 3]) -> Result<()> {
    let parts = [("head", head, u64::from(MAX_HEAD_BYTES)), ("public part", public, MAX_PUBLIC_BYTES)];
    for (name, len, limit) in parts.into_iter().chain([("private part", private, MAX_PRIVATE_BYTES)]) {
        if len > limit {
            return Err(damaged(format!("a {name} of {len} bytes, the limit is {limit}")));
        }
    }
    Ok(())
}

fn damaged(what: String) -> BackendError {
    BackendError::Lowering { what }
}
