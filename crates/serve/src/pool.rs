//! Material that the server holds in memory for connected clients.
use crate::{Engine, ServeError};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tacit_ids::{ClientId, MaterialId};
use tacit_store::{Binding, StoreError};

struct State<M> {
    material: HashMap<MaterialId, (Binding, M)>,
    /// Open connections of each client.
    connections: HashMap<ClientId, usize>,
}

/// Material by id; what a client leaves behind is dropped with its last connection.
pub(crate) struct Pool<E: Engine> {
    state: Mutex<State<E::Material>>,
    per_client: usize,
}

impl<E: Engine> Pool<E> {
    pub(crate) fn new(per_client: usize) -> Self {
        Self { state: Mutex::new(State { material: HashMap::new(), connections: HashMap::new() }), per_client }
    }

    fn lock(&self) -> MutexGuard<'_, State<E::Material>> {
        // Every critical section leaves the maps consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, client: ClientId) {
        *self.lock().connections.entry(client).or_default() += 1;
    }

    pub(crate) fn leave(&self, client: ClientId) {
        let mut state = self.lock();
        let left = state.connections.get_mut(&client).map_or(0, |n| {
            *n = n.saturating_sub(1);
            *n
        });
        if left == 0 {
            state.connections.remove(&client);
            state.material.retain(|_, (binding, _)| binding.client != client);
        }
    }

    /// Refuses when the client has its share in memory, or the id is taken.
    pub(crate) fn check_room(&self, id: MaterialId, client: ClientId) -> Result<(), ServeError> {
        let state = self.lock();
        if state.material.contains_key(&id) {
            return Err(StoreError::Exists(id).into());
        }
        let held = state.material.values().filter(|(b, _)| b.client == client).count();
        if held >= self.per_client {
            return Err(ServeError::NotGranted(format!("{held} materials are held in memory for you: use them first")));
        }
        Ok(())
    }

    pub(crate) fn put(&self, id: MaterialId, binding: Binding, material: E::Material) {
        self.lock().material.insert(id, (binding, material));
    }

    /// Takes material for its one use; `None` if it is not here.
    pub(crate) fn take(&self, id: MaterialId, binding: Binding) -> Result<Option<E::Material>, StoreError> {
        let mut state = self.lock();
        let Some((held, _)) = state.material.get(&id) else { return Ok(None) };
        match held.other(&binding) {
            Some(what) => Err(StoreError::WrongBinding { id, what }),
            None => Ok(state.material.remove(&id).map(|(_, m)| m)),
        }
    }
}
