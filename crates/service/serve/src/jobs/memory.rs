//! Material in memory, for connected clients.
use crate::ServeError;
use std::collections::HashMap;
use tacit_backends::Material;
use tacit_ids::{ClientId, MaterialId};
use tacit_store::{Binding, StoreError};

struct Place {
    client: ClientId,
    inputs: u32,
    /// `None` while it is being made.
    material: Option<(Binding, Material)>,
}

pub(crate) struct InMemory {
    places: HashMap<MaterialId, Place>,
    per_client: usize,
}

impl InMemory {
    pub(crate) fn new(per_client: usize) -> Self {
        Self { places: HashMap::new(), per_client }
    }

    /// Reserves a place for material for `inputs` inputs. Refuses if the client has used up its
    /// share or the id is taken.
    pub(crate) fn reserve(&mut self, id: MaterialId, client: ClientId, inputs: u32) -> Result<(), ServeError> {
        if self.places.contains_key(&id) {
            return Err(ServeError::NotGranted(format!("material {id} exists already")));
        }
        if !self.has_room(client, inputs) {
            let used = self.inputs_of(client);
            let text = format!("materials for {used} inputs are held in memory for you: use them first");
            return Err(ServeError::NotGranted(text));
        }
        self.places.insert(id, Place { client, inputs, material: None });
        Ok(())
    }

    /// Whether material for `inputs` more inputs fits the client's share. A client without material
    /// here may have a batch of any size that it was granted.
    pub(crate) fn has_room(&self, client: ClientId, inputs: u32) -> bool {
        let used = self.inputs_of(client);
        used == 0 || used + inputs as usize <= self.per_client
    }

    fn inputs_of(&self, client: ClientId) -> usize {
        self.places.values().filter(|h| h.client == client).map(|h| h.inputs as usize).sum()
    }

    /// Material of a client that has left meanwhile is dropped.
    pub(crate) fn fill(&mut self, id: MaterialId, binding: Binding, material: Material) {
        if let Some(place) = self.places.get_mut(&id).filter(|h| h.client == binding.client && h.material.is_none()) {
            place.material = Some((binding, material));
        }
    }

    /// Frees a reserved place that was not filled.
    pub(crate) fn give_back(&mut self, id: MaterialId) {
        if self.places.get(&id).is_some_and(|h| h.material.is_none()) {
            self.places.remove(&id);
        }
    }

    /// Takes material out for its one use; `None` if it is not in memory.
    pub(crate) fn take(&mut self, id: MaterialId, binding: Binding) -> Result<Option<Material>, ServeError> {
        let Some((bound, _)) = self.places.get(&id).and_then(|h| h.material.as_ref()) else { return Ok(None) };
        if let Some(what) = bound.first_difference(&binding) {
            return Err(StoreError::WrongBinding { id, what }.into());
        }
        Ok(self.places.remove(&id).and_then(|h| h.material).map(|(_, material)| material))
    }

    /// Destroys the client's material with these ids, of whatever model. Returns the ids that are
    /// gone now.
    pub(crate) fn discard(&mut self, ids: &[MaterialId], client: ClientId) -> Vec<MaterialId> {
        let mut discarded: Vec<MaterialId> = ids.to_vec();
        discarded.retain(|id| {
            let is_hers = self.places.get(id).is_some_and(|h| h.client == client && h.material.is_some());
            is_hers && self.places.remove(id).is_some()
        });
        discarded
    }

    pub(crate) fn forget(&mut self, client: ClientId) {
        self.places.retain(|_, place| place.client != client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Binding = Binding { client: ClientId([1; 32]), model: [2; 32], plan: [3; 32] };

    #[test]
    fn counts_places_from_their_reservation() {
        let mut memory = InMemory::new(2);
        let id = MaterialId::numbered;
        memory.reserve(id(1), ALICE.client, 1).unwrap();
        assert!(memory.reserve(id(1), ClientId([9; 32]), 1).unwrap_err().to_string().contains("exists already"));
        memory.reserve(id(2), ALICE.client, 1).unwrap();
        assert!(memory.reserve(id(3), ALICE.client, 1).unwrap_err().to_string().contains("for 2 inputs are held"));
        memory.give_back(id(2));
        memory.reserve(id(3), ALICE.client, 1).unwrap();
        memory.fill(id(1), ALICE, Material::nothing());
        memory.give_back(id(1));
        assert!(memory.take(id(1), ALICE).unwrap().is_some(), "a filled place is not given back");
        assert!(memory.take(id(1), ALICE).unwrap().is_none());
        assert!(memory.take(id(3), ALICE).unwrap().is_none());
    }

    #[test]
    fn batch_takes_a_place_for_each_input_unless_it_is_alone() {
        let (mut memory, id, alice) = (InMemory::new(4), MaterialId::numbered, ALICE.client);
        memory.reserve(id(1), alice, 6).unwrap();
        assert!(!memory.has_room(alice, 1));
        assert!(memory.has_room(ClientId([9; 32]), 6));
        memory.give_back(id(1));
        memory.reserve(id(2), alice, 3).unwrap();
        assert!(memory.has_room(alice, 1));
        assert!(!memory.has_room(alice, 2));
    }

    #[test]
    fn material_is_bound_to_its_client_and_forgotten_with_it() {
        let mut memory = InMemory::new(2);
        let id = MaterialId::numbered(1);
        memory.reserve(id, ALICE.client, 1).unwrap();
        memory.fill(id, Binding { client: ClientId([9; 32]), ..ALICE }, Material::nothing());
        assert!(memory.take(id, ALICE).unwrap().is_none());
        memory.fill(id, ALICE, Material::nothing());
        let mismatches = [
            (Binding { client: ClientId([9; 32]), ..ALICE }, "another client"),
            (Binding { model: [9; 32], ..ALICE }, "another model"),
            (Binding { plan: [9; 32], ..ALICE }, "another plan"),
        ];
        for (binding, part) in mismatches {
            assert!(memory.take(id, binding).err().unwrap().to_string().contains(part));
        }
        assert!(memory.discard(&[id], ClientId([9; 32])).is_empty());
        assert_eq!(memory.discard(&[id, id, MaterialId::numbered(7)], ALICE.client), [id]);
        assert!(memory.take(id, ALICE).unwrap().is_none());
        memory.reserve(id, ALICE.client, 1).unwrap();
        assert!(memory.discard(&[id], ALICE.client).is_empty());
        memory.forget(ALICE.client);
        assert!(memory.take(id, ALICE).unwrap().is_none());
        memory.fill(id, ALICE, Material::nothing());
        assert!(memory.take(id, ALICE).unwrap().is_none());
    }
}
