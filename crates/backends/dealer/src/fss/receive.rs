//! Receives a party's half from the dealer as a stream. The half must not be used before its digest
//! is checked.

use tacit_mpc::Role;
use zeroize::Zeroizing;

use super::material_format::{self, DIGEST, Digesting};
use super::plan::Plan;
use crate::dealt::audit::Sink;
use tacit_backend_api::BackendError;

/// Receives a half.
pub(super) struct Taking {
    /// The head of the half, which the client needs at once.
    head: Zeroizing<Vec<u8>>,
    head_bytes: usize,
    /// Number of missing bytes before the digest.
    left: usize,
    stated: Vec<u8>,
    digesting: Digesting,
}

impl Taking {
    pub(super) fn new(plan: &Plan, role: Role) -> Self {
        let (head_bytes, left) = match role {
            Role::Client => (material_format::client_head(plan), material_format::client_bytes(plan)[0]),
            Role::Server => (0, material_format::server_bytes(plan)[0]),
        };
        let head = Zeroizing::new(Vec::with_capacity(head_bytes));
        let digesting = Digesting::new(&plan.binding(), role);
        Self { head, head_bytes, left, stated: Vec::with_capacity(DIGEST), digesting }
    }

    /// Takes the next bytes of the half and gives all but the digest to `place`. The order checks
    /// the length ([`crate::dealt::audit`]).
    pub(super) fn take(&mut self, bytes: &[u8], place: &mut Sink<'_>) -> Result<(), BackendError> {
        let (content, stated) = bytes.split_at(bytes.len().min(self.left));
        self.left -= content.len();
        self.stated.extend_from_slice(stated);
        self.digesting.update(content);
        let missing = self.head_bytes - self.head.len();
        self.head.extend_from_slice(&content[..content.len().min(missing)]);
        place(content)
    }

    /// Checks the digest. Returns the head of the half, and the digest.
    ///
    /// # Errors
    /// [`BackendError::Material`] if the half states another digest.
    pub(super) fn finish(self) -> Result<(Zeroizing<Vec<u8>>, Digesting), BackendError> {
        self.digesting.check(&self.stated)?;
        Ok((self.head, self.digesting))
    }
}
