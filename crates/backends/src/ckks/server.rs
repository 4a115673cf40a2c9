//! A connection at the server, and the key sets that the server holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tacit_he::ckks::{Ciphertext, Context, Estimate, Evaluator, KeySet, Received, SeededCiphertext, SwitchKey};
use tacit_net::Channel;

use super::circuit::Circuit;
use super::plan::Plan;
use super::public::{KeyRecord, MOST_KEY_BYTES};
use super::wire::{
    CONFIRMED, DIGEST, HELLO, HELLO_BYTES, INPUT, KEY, OUTPUT, WELCOME, Welcome, key_digest, set_digest,
};
use crate::seam::Stop;
use crate::{BackendError, Material, ServerSide};

type Name = [u8; HELLO_BYTES];

/// Key sets by name: [`MOST_KEY_BYTES`] at most, those under way included. Sets that no connection uses go
/// first, those unused for longest before others.
#[derive(Default)]
pub(super) struct KeySets(Mutex<Held>);

#[derive(Default)]
struct Held {
    sets: HashMap<Name, Entry>,
    clock: u64,
    /// Bytes of sets under way, and what of them has arrived.
    promised: u64,
    arrived: u64,
}

struct Entry {
    keys: Arc<KeySet>,
    bytes: u64,
    used: u64,
}

impl Entry {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.keys) == 1
    }
}

/// Room that is kept for a set until it is there, or is not coming any more.
struct Room<'a> {
    sets: &'a KeySets,
    bytes: u64,
    arrived: u64,
}

impl KeySets {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().expect("nothing panics while it holds the key sets")
    }

    /// The set of this name, if it is there.
    fn find(&self, name: &Name) -> Option<Arc<KeySet>> {
        let mut held = self.held();
        held.clock += 1;
        let now = held.clock;
        let entry = held.sets.get_mut(name)?;
        entry.used = now;
        Some(entry.keys.clone())
    }

    /// Keeps room for a set beside those in use and those under way. Nobody's set goes for it yet: who only
    /// asks takes nothing from others.
    fn room(&self, bytes: u64) -> Option<Room<'_>> {
        let mut held = self.held();
        let used: u64 = held.sets.values().filter(|entry| !entry.is_idle()).map(|entry| entry.bytes).sum();
        if used.saturating_add(held.promised).saturating_add(bytes) > MOST_KEY_BYTES {
            return None;
        }
        held.promised += bytes;
        Some(Room { sets: self, bytes, arrived: 0 })
    }
}

impl Room<'_> {
    /// So many bytes have come: idle sets go as they need the place. Whether there is place.
    fn arrive(&mut self, bytes: u64) -> bool {
        let mut gone = Vec::new();
        let mut held = self.sets.held();
        (self.arrived, held.arrived) = (self.arrived + bytes, held.arrived + bytes);
        loop {
            let there: u64 = held.sets.values().map(|entry| entry.bytes).sum();
            if there + held.arrived <= MOST_KEY_BYTES {
                break;
            }
            let idle = held.sets.iter().filter(|(_, entry)| entry.is_idle());
            let Some(oldest) = idle.min_by_key(|(_, entry)| entry.used).map(|(name, _)| *name) else { return false };
            gone.extend(held.sets.remove(&oldest));
        }
        // Large ones take a while to be freed: not while others wait.
        drop(held);
        true
    }

    /// The set is there. Of two that came under one name the first stays.
    fn fill(self, name: Name, keys: KeySet) -> Arc<KeySet> {
        let mut held = self.sets.held();
        held.clock += 1;
        let (used, bytes) = (held.clock, self.bytes);
        let entry = held.sets.entry(name).or_insert_with(|| Entry { keys: Arc::new(keys), bytes, used });
        entry.keys.clone()
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut held = self.sets.held();
        (held.promised, held.arrived) = (held.promised - self.bytes, held.arrived - self.arrived);
    }
}

/// What connections of one model share.
pub(super) struct Shared {
    pub plan: Plan,
    /// Digest of the public part.
    pub digest: [u8; 32],
    pub keys: KeySets,
    circuit: Mutex<Option<Arc<Circuit>>>,
}

impl Shared {
    pub fn new(plan: Plan, digest: [u8; 32]) -> Self {
        Self { plan, digest, keys: KeySets::default(), circuit: Mutex::default() }
    }

    /// The encoded weights: made when they are needed first.
    fn circuit(&self) -> Result<Arc<Circuit>, BackendError> {
        let mut made =
            self.circuit.lock().map_err(|_| BackendError::Misuse("encoding the weights broke down before"))?;
        if let Some(circuit) = &*made {
            return Ok(circuit.clone());
        }
        let circuit = Arc::new(Circuit::new(&self.plan)?);
        *made = Some(circuit.clone());
        Ok(circuit)
    }
}

/// One connection.
pub(super) struct Serving {
    pub shared: Arc<Shared>,
    pub stop: Stop,
    pub keys: Option<Arc<KeySet>>,
}

/// Reads a key and checks its digest.
fn read_key(
    context: &Context,
    record: KeyRecord,
    bytes: &[u8],
    digest: impl FnOnce(&[u8]) -> [u8; DIGEST],
) -> Result<(SwitchKey, [u8; DIGEST]), String> {
    let (key, stated) = bytes.split_last_chunk::<DIGEST>().expect("the length has been checked");
    let computed = digest(key);
    if *stated != computed {
        return Err(format!("the key for {} is damaged", record.id().kind));
    }
    let key = SwitchKey::read(context, record.id(), key).map_err(|e| e.to_string())?;
    Ok((key, computed))
}

fn no_room(bytes: u64) -> BackendError {
    BackendError::Data { what: format!("no room for {bytes} bytes of keys beside those in use") }
}

impl Serving {
    /// Receives the keys of a set that is not there.
    fn receive(&self, channel: &mut Channel, name: &Name, mut room: Room<'_>) -> Result<Arc<KeySet>, BackendError> {
        let Shared { plan, digest, .. } = &*self.shared;
        let mut keys = KeySet::default();
        let mut digests = Vec::with_capacity(plan.public.keys.len());
        for (index, record) in plan.public.keys.iter().enumerate() {
            let len = SwitchKey::packed_bytes(&plan.context, record.id()) + DIGEST;
            let of = |bytes: &[u8]| key_digest(digest, name, index, bytes);
            let (key, own) = channel.recv_with(KEY, len, |bytes| read_key(&plan.context, *record, bytes, of))?;
            if !room.arrive((len - DIGEST) as u64) {
                return Err(no_room(room.bytes));
            }
            keys.insert(key);
            digests.push(own);
        }
        channel.send(CONFIRMED, &set_digest(digest, &digests))?;
        Ok(room.fill(*name, keys))
    }

    fn read_input(&self, bytes: &[u8]) -> Result<Ciphertext, String> {
        let (context, public) = (&self.shared.plan.context, &self.shared.plan.public);
        let none = Estimate { deviation: 0.0, magnitude: 1.0 };
        let read = Received::from_bytes(context, bytes, none).map_err(|e| e.to_string())?;
        let Received::Seeded(seeded) = read else { return Err("a ciphertext with both halves".into()) };
        let input = seeded.expand(context, 1.0);
        let scale = context.parameters().scale(public.input.level);
        if input.level() != public.input.level || input.slots() != context.degree() / 2 || !input.scale().agrees(scale)
        {
            return Err(format!(
                "a ciphertext at level {} with {} slots and scale {}: level {}, {} and {scale} are meant",
                input.level(),
                input.slots(),
                input.scale(),
                public.input.level,
                context.degree() / 2
            ));
        }
        Ok(input)
    }
}

impl ServerSide for Serving {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        // Before anything is asked for: a server that cannot compute should not take keys.
        self.shared.circuit()?;
        let name: Name =
            channel.recv_with(HELLO, HELLO_BYTES, |bytes| bytes.try_into().map_err(|_| "no name".into()))?;
        let bytes = self.shared.plan.public.costs.setup.server.stored_bytes;
        let shared = self.shared.clone();
        if let Some(keys) = shared.keys.find(&name) {
            channel.send(WELCOME, &[Welcome::Known.to_byte()])?;
            channel.flush()?;
            self.keys = Some(keys);
            return Ok(());
        }
        let room = shared.keys.room(bytes);
        let answer = if room.is_some() { Welcome::Send } else { Welcome::Full };
        channel.send(WELCOME, &[answer.to_byte()])?;
        channel.flush()?;
        let room = room.ok_or_else(|| no_room(bytes))?;
        self.keys = Some(self.receive(channel, &name, room)?);
        Ok(())
    }

    fn offline(&mut self, _: &mut Channel) -> Result<Material, BackendError> {
        Err(super::NOTHING)
    }

    fn online(&mut self, channel: &mut Channel, _: Material) -> Result<(), BackendError> {
        let keys = self.keys.clone().ok_or(super::NO_SETUP)?;
        let (context, public) = (&self.shared.plan.context, &self.shared.plan.public);
        let len = SeededCiphertext::bytes_len(context, public.input.level);
        let input = channel.recv_with(INPUT, len, |bytes| self.read_input(bytes))?;
        let circuit = self.shared.circuit()?;
        let output = circuit.run(&self.shared.plan, &Evaluator::new(context, &keys), input, &self.stop)?;
        channel.send(OUTPUT, &output.to_bytes(context))?;
        Ok(channel.flush()?)
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        super::no_material(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = MOST_KEY_BYTES / 2;

    #[test]
    fn sets_under_way_count_and_only_what_comes_drives_others_out() {
        let sets = KeySets::default();
        let mut first = sets.room(HALF).unwrap();
        assert!(first.arrive(HALF));
        drop(first.fill([1; HELLO_BYTES], KeySet::default()));
        assert!(sets.room(MOST_KEY_BYTES + 1).is_none(), "never fits");
        // Asking drives nobody out, but takes the place from others who ask.
        let asked = sets.room(MOST_KEY_BYTES).unwrap();
        assert!(sets.room(1).is_none() && sets.find(&[1; HELLO_BYTES]).is_some());
        drop(asked);
        let mut second = sets.room(MOST_KEY_BYTES).unwrap();
        assert!(second.arrive(HALF) && sets.find(&[1; HELLO_BYTES]).is_some());
        assert!(second.arrive(1) && sets.find(&[1; HELLO_BYTES]).is_none(), "idle, and its place is needed");
        drop(second);
        assert!(sets.room(MOST_KEY_BYTES).is_some(), "what broke off takes nothing");
    }

    #[test]
    fn a_set_in_use_stays_and_two_of_one_name_are_one() {
        let sets = KeySets::default();
        let name = [7; HELLO_BYTES];
        let [a, b] = [sets.room(HALF).unwrap(), sets.room(HALF).unwrap()];
        let (a, b) = (a.fill(name, KeySet::default()), b.fill(name, KeySet::default()));
        assert!(Arc::ptr_eq(&a, &b));
        assert!(sets.room(HALF + 1).is_none() && sets.room(HALF).is_some());
        let mut other = sets.room(HALF).unwrap();
        assert!(other.arrive(HALF) && !other.arrive(1), "more than was asked for, and nobody to go");
    }
}
