//! The prerequisites of an online phase: an input in the server's queue, and material.
use crate::wire::InputId;
use std::sync::Arc;
use tacit_backends::{ClientSide, Material};
use tacit_ids::MaterialId;
use tacit_store::{Binding, Claimed, MAX_IN_MEMORY_BYTES, Picked, Store, StoreError};

/// An input in the server's queue.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    /// The online phase's request asks for the input as well.
    Now(InputId),
    /// An earlier request has put the input in the queue.
    Before(InputId),
}

/// Material for one input.
pub(crate) struct ClaimedMaterial {
    pub(crate) id: MaterialId,
    material: Material,
    /// The store that holds it until it is used up; `None` for material in memory.
    stored: Option<(Arc<Store>, Picked)>,
}

impl ClaimedMaterial {
    pub(crate) fn made(id: MaterialId, material: Material) -> Self {
        Self { id, material, stored: None }
    }

    /// Picks stored material, unless another process has it in use; damaged material is burnt.
    pub(crate) fn picked(
        store: &Arc<Store>,
        side: &dyn ClientSide,
        binding: Binding,
        id: MaterialId,
    ) -> Result<Option<Self>, StoreError> {
        let Some((picked, content)) = store.pick_within(id, binding, MAX_IN_MEMORY_BYTES)? else { return Ok(None) };
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

    /// The material for its single use; stored material is claimed and burnt, durably, first.
    pub(crate) fn used_up(self) -> Result<Material, StoreError> {
        if let Some((store, picked)) = self.stored {
            store.claim_picked(picked)?;
        }
        Ok(self.material)
    }
}
