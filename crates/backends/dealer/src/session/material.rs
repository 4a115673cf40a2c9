//! A party's material between its offline and its online phase.

use std::io::Read;
use std::sync::Arc;

use tacit_mpc::Role;
use tacit_mpc::codec::Reader;
use zeroize::Zeroizing;

use super::correlation::Correlation;
use super::half::StoredHalf;
use super::plan::Plan;
use super::source::Source;
use tacit_backend_api::{BackendError, Material, MaterialPart};

/// A party's material in memory, without its digest.
struct MaterialInMemory<C: Correlation> {
    plan: Arc<Plan<C>>,
    role: Role,
    bytes: Zeroizing<Vec<u8>>,
}

struct SpooledMaterial {
    /// Digest of the plan that the material was read for.
    plan: [u8; 32],
    source: Box<dyn Read + Send>,
}

impl<C: Correlation> MaterialPart for MaterialInMemory<C> {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        with_digest(&self.plan, self.role, &self.bytes)
    }
}

/// Returns `content` of a party's half with its digest appended.
pub(crate) fn with_digest<C: Correlation>(plan: &Plan<C>, role: Role, content: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut digest = C::half_digest(plan, role);
    digest.update(content);
    let digest = digest.finish();
    let mut out = Zeroizing::new(Vec::with_capacity(content.len() + digest.len()));
    out.extend_from_slice(content);
    out.extend_from_slice(&digest);
    out
}

/// Checks length and digest of a party's half, and returns its `len` bytes of content.
///
/// # Errors
/// [`BackendError::Material`] if length or digest differ.
pub(crate) fn check_half<'a, C: Correlation>(
    plan: &Plan<C>,
    role: Role,
    bytes: &'a [u8],
    len: usize,
) -> Result<&'a [u8], BackendError> {
    let expected = len + C::half_bytes(plan, role).digest;
    if bytes.len() != expected {
        return Err(C::wrong_length(role, bytes.len() as u64, expected as u64));
    }
    let (content, stated) = bytes.split_at(len);
    let mut digest = C::half_digest(plan, role);
    digest.update(content);
    digest.check(stated).map(|()| content)
}

/// Wraps the bytes that an offline phase stores, including their digest.
pub(super) fn wrap<C: Correlation>(plan: &Arc<Plan<C>>, role: Role, mut bytes: Zeroizing<Vec<u8>>) -> Material {
    bytes.truncate(C::half_bytes(plan, role).stored);
    Material::new(MaterialInMemory { plan: Arc::clone(plan), role, bytes })
}

/// Reads stored material.
///
/// # Errors
/// As [`check_half`].
pub(super) fn read<C: Correlation>(plan: &Arc<Plan<C>>, role: Role, bytes: &[u8]) -> Result<Material, BackendError> {
    let content = check_half(plan, role, bytes, C::half_bytes(plan, role).stored)?;
    Ok(wrap(plan, role, Zeroizing::new(content.to_vec())))
}

/// Opens stored material of `bytes` bytes, for the online phase to read from `source`.
///
/// # Errors
/// [`Correlation::wrong_length`].
pub(super) fn read_spooled<C: Correlation>(
    plan: &Plan<C>,
    role: Role,
    bytes: u64,
    source: Box<dyn Read + Send>,
) -> Result<Material, BackendError> {
    let expected = C::half_bytes(plan, role).stored_len();
    if bytes != expected {
        return Err(C::wrong_length(role, bytes, expected));
    }
    Ok(Material::spooled(SpooledMaterial { plan: plan.binding(), source }))
}

/// Gives a party's material to `online`.
///
/// # Errors
/// [`BackendError::Misuse`] if the material belongs to another back end or party; those of
/// `online`.
pub(super) fn open<C: Correlation, T>(
    material: Material,
    role: Role,
    online: impl FnOnce(StoredHalf<'_>) -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    if material.is_spooled() {
        let SpooledMaterial { plan, source } = material.take()?;
        return online(StoredHalf { made_for: plan, source: Source::Spooled(source) });
    }
    let MaterialInMemory::<C> { plan, role: owner, bytes } = material.take()?;
    if owner != role {
        return Err(BackendError::Misuse("the material belongs to another back end or party"));
    }
    online(StoredHalf { made_for: plan.binding(), source: Source::Memory(Reader::new(&bytes)) })
}
