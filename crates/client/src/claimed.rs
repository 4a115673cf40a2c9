//! What an online phase starts with: an input's place in the server's queue, and material.
use crate::wire::InputId;
use std::sync::Arc;
use tacit_backends::{ClientSide, Material};
use tacit_ids::MaterialId;
use tacit_store::{Binding, Claimed, IN_MEMORY, Picked, Store, StoreError};

/// An input in the server's queue.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    /// It is asked for along with its online phase.
    Now(InputId),
    /// It stands there.
    Before(InputId),
}

/// Material for one input.
pub(crate) struct ClaimedMaterial {
    pub(crate) id: MaterialId,
    material: Material,
    /// Where it lies until it is used up.
    stored: Option<(Arc<Store>, Picked)>,
}

impl ClaimedMaterial {
    /// This process has made it.
    pub(crate) fn made(id: MaterialId, material: Material) -> Self {
        Self { id, material, stored: None }
    }

    /// Stored material, if nobody else has it in hand. Unless it is used up, it stays where it is; what is
    /// damaged is burnt.
    pub(crate) fn picked(
        store: &Arc<Store>,
        side: &dyn ClientSide,
        binding: Binding,
        id: MaterialId,
    ) -> Result<Option<Self>, StoreError> {
        let Some((picked, content)) = store.pick_within(id, binding, IN_MEMORY)? else { return Ok(None) };
        let material = match content {
            Claimed::Memory(content) => side.read_material(&content),
            Claimed::Spooled(bytes, source) => side.spooled_material(bytes, source),
        };
        match material {
            Ok(material) => Ok(Some(Self { id, material, stored: Some((Arc::clone(store), picked)) })),
            Err(e) => {
                store.discard(&[id], Some(binding.client))?;
                Err(StoreError::Damaged { id, what: e.to_string() })
            }
        }
    }

    /// The material for its one use: what was stored is claimed and burnt, durably, when this returns.
    pub(crate) fn used_up(self) -> Result<Material, StoreError> {
        if let Some((store, picked)) = self.stored {
            store.claim_picked(picked)?;
        }
        Ok(self.material)
    }
}
