//! Material in memory, for clients that are connected.
use crate::ServeError;
use std::collections::HashMap;
use tacit_backends::Material;
use tacit_ids::{ClientId, MaterialId};
use tacit_store::{Binding, StoreError};

/// A place in memory.
struct Held {
    client: ClientId,
    /// `None` while it is being made.
    material: Option<(Binding, Material)>,
}

/// Material by id.
pub(crate) struct InMemory {
    held: HashMap<MaterialId, Held>,
    per_client: usize,
}

impl InMemory {
    pub(crate) fn new(per_client: usize) -> Self {
        Self { held: HashMap::new(), per_client }
    }

    /// Keeps a place for material that will be made; refuses when the client has its share, or the id is
    /// taken.
    pub(crate) fn reserve(&mut self, id: MaterialId, client: ClientId) -> Result<(), ServeError> {
        if self.held.contains_key(&id) {
            return Err(ServeError::NotGranted(format!("material {id} exists already")));
        }
        if self.is_full(client) {
            let text = format!("{} materials are held in memory for you: use them first", self.held_for(client));
            return Err(ServeError::NotGranted(text));
        }
        self.held.insert(id, Held { client, material: None });
        Ok(())
    }

    /// Whether the client has its share.
    pub(crate) fn is_full(&self, client: ClientId) -> bool {
        self.held_for(client) >= self.per_client
    }

    fn held_for(&self, client: ClientId) -> usize {
        self.held.values().filter(|h| h.client == client).count()
    }

    /// Fills a reserved place. A client that has left in the meantime has none, and its material is dropped.
    pub(crate) fn fill(&mut self, id: MaterialId, binding: Binding, material: Material) {
        if let Some(held) = self.held.get_mut(&id).filter(|h| h.client == binding.client && h.material.is_none()) {
            held.material = Some((binding, material));
        }
    }

    /// Gives a reserved place back if nothing came into it.
    pub(crate) fn give_back(&mut self, id: MaterialId) {
        if self.held.get(&id).is_some_and(|h| h.material.is_none()) {
            self.held.remove(&id);
        }
    }

    /// Takes material for its one use; `None` if it is not here.
    pub(crate) fn take(&mut self, id: MaterialId, binding: Binding) -> Result<Option<Material>, ServeError> {
        let Some((held, _)) = self.held.get(&id).and_then(|h| h.material.as_ref()) else { return Ok(None) };
        if let Some(what) = held.other(&binding) {
            return Err(StoreError::WrongBinding { id, what }.into());
        }
        Ok(self.held.remove(&id).and_then(|h| h.material).map(|(_, material)| material))
    }

    /// Destroys what is held of these for a client, whatever the model, and leaves the rest alone; the ids
    /// that are gone now.
    pub(crate) fn discard(&mut self, ids: &[MaterialId], client: ClientId) -> Vec<MaterialId> {
        let is_hers = |h: &Held| h.client == client && h.material.is_some();
        let mut gone: Vec<MaterialId> = ids.to_vec();
        gone.retain(|id| self.held.get(id).is_some_and(is_hers) && self.held.remove(id).is_some());
        gone
    }

    /// Drops what a client has left behind.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.held.retain(|_, held| held.client != client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Binding = Binding { client: ClientId([1; 32]), model: [2; 32], plan: [3; 32] };

    #[test]
    fn places_are_counted_from_the_reservation_on() {
        let mut memory = InMemory::new(2);
        let id = MaterialId::numbered;
        memory.reserve(id(1), ALICE.client).unwrap();
        assert!(memory.reserve(id(1), ClientId([9; 32])).unwrap_err().to_string().contains("exists already"));
        memory.reserve(id(2), ALICE.client).unwrap();
        assert!(memory.reserve(id(3), ALICE.client).unwrap_err().to_string().contains("2 materials are held"));
        memory.give_back(id(2));
        memory.reserve(id(3), ALICE.client).unwrap();
        memory.fill(id(1), ALICE, Material::nothing());
        memory.give_back(id(1));
        assert!(memory.take(id(1), ALICE).unwrap().is_some(), "a filled place is not given back");
        assert!(memory.take(id(1), ALICE).unwrap().is_none(), "once");
        assert!(memory.take(id(3), ALICE).unwrap().is_none(), "it is being made");
    }

    #[test]
    fn material_is_bound_and_goes_with_its_client() {
        let mut memory = InMemory::new(2);
        let id = MaterialId::numbered(1);
        memory.reserve(id, ALICE.client).unwrap();
        memory.fill(id, Binding { client: ClientId([9; 32]), ..ALICE }, Material::nothing());
        assert!(memory.take(id, ALICE).unwrap().is_none(), "another client fills no place of hers");
        memory.fill(id, ALICE, Material::nothing());
        let others = [
            (Binding { client: ClientId([9; 32]), ..ALICE }, "another client"),
            (Binding { model: [9; 32], ..ALICE }, "another model"),
            (Binding { plan: [9; 32], ..ALICE }, "another plan"),
        ];
        for (binding, what) in others {
            assert!(memory.take(id, binding).err().unwrap().to_string().contains(what));
        }
        assert!(memory.discard(&[id], ClientId([9; 32])).is_empty());
        assert_eq!(memory.discard(&[id, id, MaterialId::numbered(7)], ALICE.client), [id]);
        assert!(memory.take(id, ALICE).unwrap().is_none());
        memory.reserve(id, ALICE.client).unwrap();
        assert!(memory.discard(&[id], ALICE.client).is_empty(), "it is being made");
        memory.forget(ALICE.client);
        assert!(memory.take(id, ALICE).unwrap().is_none());
        memory.fill(id, ALICE, Material::nothing());
        assert!(memory.take(id, ALICE).unwrap().is_none(), "nothing is kept for who has left");
    }
}
