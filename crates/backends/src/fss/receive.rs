//! A party's half as it comes from the dealer: it is put away as it comes, and of no use before its digest is
//! checked.

use tacit_mpc::Role;
use zeroize::Zeroizing;

use super::material_format::{self, DIGEST, Digesting};
use super::plan::Plan;
use crate::BackendError;
use crate::dealt::audit::Sink;

/// Takes a half.
pub(super) struct Taking {
    /// What the half begins with, at the client, which needs it at once.
    head: Zeroizing<Vec<u8>>,
    head_bytes: usize,
    /// Bytes before the digest that are still to come.
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

    /// The next bytes of the half, whose length whoever orders it checks. All but the digest goes to `place`.
    pub(super) fn take(&mut self, bytes: &[u8], place: &mut Sink<'_>) -> Result<(), BackendError> {
        let (content, stated) = bytes.split_at(bytes.len().min(self.left));
        self.left -= content.len();
        self.stated.extend_from_slice(stated);
        self.digesting.update(content);
        let missing = self.head_bytes - self.head.len();
        self.head.extend_from_slice(&content[..content.len().min(missing)]);
        place(content)
    }

    /// What the half begins with and its digest, if that is what the half states.
    ///
    /// # Errors
    /// [`BackendError::Material`].
    pub(super) fn finish(self) -> Result<(Zeroizing<Vec<u8>>, Digesting), BackendError> {
        self.digesting.check(&self.stated)?;
        Ok((self.head, self.digesting))
    }
}
