use std::path::Path;
use std::sync::{Arc, Mutex};

use tacit_arith::heap;
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_graph::Watch;
use tacit_he::ckks::{
    Ciphertext, Context, Estimate, Evaluator, FileState, KeyFile, KeyId, KeySet, PartFile, Received, SeededCiphertext,
    SwitchKey,
};
use tacit_net::Channel;

use super::argmax::ArgMax;
use super::circuit::Circuit;
use super::key_cache::KeySets;
use super::levelled_program::backend_error;
use super::plan::Plan;
use super::public::KeyRecord;
use super::wire::{
    CONFIRMED, DIGEST, HELLO, HELLO_BYTES, Hello, INPUT, KEY, OUTPUT, WELCOME, Welcome, key_digest, set_digest,
};
use tacit_backend_api::seam::{ConnectionResources, NoRoom, Stop, UploadName, Uploads, digest};
use tacit_backend_api::{BackendError, Material, Result, ServerSide};
use tacit_ring::Weights;
use tacit_two_party::cheetah::ServerParty;

/// State that connections of one model share.
pub(super) struct Shared {
    pub plan: Plan,
    /// Digest of the public part.
    pub digest: [u8; 32],
    pub keys: KeySets,
    /// The arg max, if only the best class is revealed.
    best: Option<ArgMax>,
    circuit: Mutex<Option<Arc<Circuit>>>,
}

impl Shared {
    pub fn new(plan: Plan, digest: [u8; 32]) -> Result<Self> {
        let best = plan.public.compared.map(|n| ArgMax::new(n as usize, plan.context.parameters())).transpose()?;
        Ok(Self { plan, digest, keys: KeySets::default(), best, circuit: Mutex::default() })
    }

    pub fn free_idle_memory(&self) {
        self.keys.forget_idle();
        self.plan.context.give_up_spares();
        heap::give_back();
    }

    /// Encodes the weights at the first call.
    fn circuit(&self) -> Result<Arc<Circuit>> {
        let mut circuit_slot =
            self.circuit.lock().map_err(|_| BackendError::Misuse("encoding the weights broke down before"))?;
        if let Some(circuit) = &*circuit_slot {
            return Ok(circuit.clone());
        }
        let circuit = Arc::new(Circuit::new(&self.plan)?);
        *circuit_slot = Some(circuit.clone());
        Ok(circuit)
    }
}

pub(super) struct ServerConnection {
    shared: Arc<Shared>,
    uploads: Option<Arc<dyn Uploads>>,
    /// Fingerprint of the client.
    client: [u8; 32],
    stop: Stop,
    watch: Watch,
    keys: Option<Arc<KeySet>>,
    file: Option<FileState>,
    prg: SplitPrg,
    arg_max: Option<ServerParty>,
}

fn read_key(
    context: &Context,
    record: KeyRecord,
    bytes: &[u8],
    digest: impl FnOnce(&[u8]) -> [u8; DIGEST],
) -> Result<(SwitchKey, [u8; DIGEST]), String> {
    let (key, expected) = bytes.split_last_chunk::<DIGEST>().expect("the length has been checked");
    let computed = digest(key);
    if *expected != computed {
        return Err(format!("the key for {} is damaged", record.id().kind));
    }
    let key = SwitchKey::read(context, record.id(), key).map_err(|e| e.to_string())?;
    Ok((key, computed))
}

/// The digest that a stored key file is bound to.
fn file_binding(plan: &[u8; 32], name: &UploadName) -> [u8; 32] {
    digest("tacit 2026-11 ckks kept keys", &[plan, name])
}

fn keeping_error(error: tacit_he::HeError) -> BackendError {
    BackendError::Keeping { what: error.to_string() }
}

impl ServerConnection {
    pub fn new(shared: Arc<Shared>, resources: &ConnectionResources, mut prg: Prg) -> Self {
        let ConnectionResources { uploads, client, stop, watch, .. } = resources.clone();
        let arg_max = shared.best.as_ref().map(|best| {
            let prg = Prg::from_seed(prg.next_seed());
            ServerParty::new(best.plan.clone(), Arc::new(Weights::default()), prg).stopped_by(&stop)
        });
        Self { shared, uploads, client, stop, watch, keys: None, file: None, prg: SplitPrg::new(prg), arg_max }
    }

    fn welcome(channel: &mut Channel, answer: Welcome) -> Result<()> {
        channel.send(WELCOME, &answer.to_bytes())?;
        Ok(channel.flush()?)
    }

    /// Receives all keys but the first `uploaded_count`, and passes each with its bytes to `take`. Returns
    /// the digest of the received keys.
    fn receive(
        &self,
        channel: &mut Channel,
        name: &UploadName,
        uploaded_count: usize,
        mut take: impl FnMut(SwitchKey, &[u8]) -> Result<()>,
    ) -> Result<[u8; DIGEST]> {
        let Shared { plan, digest, .. } = &*self.shared;
        let mut digests = Vec::with_capacity(plan.public.keys.len());
        for (index, record) in plan.public.keys.iter().enumerate().skip(uploaded_count) {
            let len = SwitchKey::packed_bytes(&plan.context, record.id()) + DIGEST;
            let mut packed = Vec::new();
            let (key, digest_of_key) = channel.recv_with(KEY, len, |bytes| {
                packed.extend_from_slice(&bytes[..bytes.len() - DIGEST]);
                read_key(&plan.context, *record, bytes, |key| key_digest(digest, name, index, key))
            })?;
            take(key, &packed)?;
            digests.push(digest_of_key);
        }
        Ok(set_digest(digest, uploaded_count as u64, &digests))
    }

    /// Name of a set in memory: a digest of its client, its plan and the client's name for it, which alone is
    /// only a claim.
    fn resident_name(&self, name: &UploadName) -> UploadName {
        digest("tacit 2026-11 ckks keys in memory", &[&self.client, &self.shared.digest, name])
    }

    fn find_or_receive(&self, channel: &mut Channel, name: &UploadName, bytes: u64) -> Result<Arc<KeySet>> {
        let (sets, resident) = (&self.shared.keys, self.resident_name(name));
        if let Some(keys) = sets.find(&resident) {
            Self::welcome(channel, Welcome::Known)?;
            return Ok(keys);
        }
        let room = sets.reserve(bytes);
        Self::welcome(channel, if room.is_some() { Welcome::Send { there: 0 } } else { Welcome::Full })?;
        let mut room = room.ok_or_else(|| no_room(bytes))?;
        let mut keys = KeySet::default();
        let digest = self.receive(channel, name, 0, |key, packed| {
            keys.insert(key);
            if room.add_arrived(packed.len() as u64) { Ok(()) } else { Err(no_room(bytes)) }
        })?;
        channel.send(CONFIRMED, &digest)?;
        Ok(room.fill(resident, keys))
    }

    /// Keys that arrive stay stored if the connection breaks off.
    fn open_or_receive_file(
        &mut self,
        channel: &mut Channel,
        Hello { name, lasts }: Hello,
        bytes: u64,
        uploads: &dyn Uploads,
    ) -> Result<Arc<KeySet>> {
        let shared = self.shared.clone();
        let Shared { plan, digest, keys: sets, .. } = &*shared;
        let (path, is_whole) = match uploads.place(digest, &name, bytes, lasts)? {
            Ok(place) => place,
            Err(NoRoom { held, most }) => {
                Self::welcome(channel, Welcome::Quota { held, most })?;
                return Err(BackendError::Data { what: format!("{bytes} bytes of keys beside {held} of {most}") });
            }
        };
        // A damaged file is resumed from its intact keys.
        if let (true, Ok(keys)) = (is_whole, self.open_file(&path, &name, bytes)) {
            Self::welcome(channel, Welcome::Known)?;
            return Ok(keys);
        }
        let ids: Vec<KeyId> = plan.public.keys.iter().map(|key| key.id()).collect();
        let binding = file_binding(digest, &name);
        let part = PartFile::resume(&path, &plan.context, &binding, &ids, |file| sets.is_checked(file));
        let Some(mut part) = part.map_err(keeping_error)? else {
            Self::welcome(channel, Welcome::Busy)?;
            return Err(BackendError::Data { what: "another connection sends these keys".into() });
        };
        sets.note_checked(part.state().map_err(keeping_error)?);
        sets.forget(&self.resident_name(&name));
        uploads.set_whole(digest, &name, false)?;
        let uploaded_count = part.complete_count();
        Self::welcome(channel, Welcome::Send { there: uploaded_count as u64 })?;
        let received_digest = self.receive(channel, &name, uploaded_count, |_, packed| {
            part.push(&plan.context, packed).map_err(keeping_error)
        });
        // Also after an upload that broke off.
        sets.note_checked(part.state().map_err(keeping_error)?);
        let received_digest = received_digest?;
        part.finish().map_err(keeping_error)?;
        uploads.set_whole(digest, &name, true)?;
        // Confirm only what is on disk.
        channel.send(CONFIRMED, &received_digest)?;
        self.open_file(&path, &name, bytes)
    }

    fn open_file(&mut self, path: &Path, name: &UploadName, bytes: u64) -> Result<Arc<KeySet>> {
        let Shared { plan, digest, keys, .. } = &*self.shared;
        let file = KeyFile::open(path, &plan.context, &file_binding(digest, name)).map_err(keeping_error)?;
        let state = file.state();
        if !keys.is_checked(&state) {
            file.check(&plan.context).map_err(keeping_error)?;
            keys.note_checked(state);
        }
        self.file = Some(state);
        Ok(keys.open(state, bytes, |budget| KeySet::paged(&plan.context, file, budget)))
    }

    fn complete_keys(&self, name: &UploadName, sent: Arc<KeySet>) -> Result<Arc<KeySet>> {
        let Shared { plan, keys, .. } = &*self.shared;
        if plan.sent.derivations.is_empty() {
            return Ok(sent);
        }
        let bytes = plan.sent.derived_bytes(&plan.context);
        keys.complete(&self.resident_name(name), bytes, || plan.sent.complete(&plan.context, &sent))
    }

    /// Reads an encrypted input and checks its level, slots and scale.
    fn read_input(&self, bytes: &[u8]) -> Result<Ciphertext, String> {
        let (context, public) = (&self.shared.plan.context, &self.shared.plan.public);
        let no_errors = Estimate { deviation: 0.0, magnitude: 1.0 };
        let read = Received::from_bytes(context, bytes, no_errors).map_err(|e| e.to_string())?;
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

fn no_room(bytes: u64) -> BackendError {
    BackendError::Data { what: format!("no room for {bytes} bytes of keys beside those in use") }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        // Keys take hundreds of megabytes, and the next connection would read its keys into other memory.
        if self.keys.take().is_some() {
            heap::give_back();
        }
    }
}

impl ServerSide for ServerConnection {
    fn setup(&mut self, channel: &mut Channel) -> Result<()> {
        // A server that cannot compute should not take keys, so it encodes the weights first.
        channel.while_alive(|| self.shared.circuit())??;
        let hello = channel.recv_with(HELLO, HELLO_BYTES, Hello::from_bytes)?;
        let bytes = self.shared.plan.public.costs.setup.server.stored_bytes;
        let sent = match self.uploads.clone() {
            Some(uploads) => self.open_or_receive_file(channel, hello, bytes, &*uploads)?,
            None => self.find_or_receive(channel, &hello.name, bytes)?,
        };
        self.keys = Some(channel.while_alive(|| self.complete_keys(&hello.name, sent))??);
        // Buffers for reading keys and encoding weights are free now, and another thread evaluates.
        heap::give_back();
        match &mut self.arg_max {
            Some(party) => party.setup(channel),
            None => Ok(()),
        }
    }

    fn offline(&mut self, _: &mut Channel) -> Result<Material> {
        Err(super::NOTHING)
    }

    fn online(&mut self, channel: &mut Channel, _: Material) -> Result<()> {
        let keys = self.keys.clone().ok_or(super::NO_SETUP)?;
        let shared = self.shared.clone();
        let (context, public) = (&shared.plan.context, &shared.plan.public);
        let len = SeededCiphertext::bytes_len(context, public.input.level);
        let input = channel.recv_with(INPUT, len, |bytes| self.read_input(bytes))?;
        let material = self.arg_max.as_mut().map(|party| party.offline(channel)).transpose()?;
        let evaluator = Evaluator::new(context, &keys);
        // The computation may take longer than the client waits for a silent server.
        let output = channel.while_alive(|| {
            let output = shared.circuit()?.run(&shared.plan, &evaluator, input, &self.stop, &self.watch)?;
            evaluator.encrypt_anew(&output, &mut self.prg).map_err(backend_error)
        })?;
        // A key may have been damaged since the check.
        let output = output.inspect_err(|_| self.file.iter().for_each(|file| shared.keys.forget_checked(file)))?;
        let (Some(best), Some(party), Some(material)) = (&shared.best, &mut self.arg_max, material) else {
            channel.send(OUTPUT, &output.to_bytes(context))?;
            return Ok(channel.flush()?);
        };
        let (hidden, coefficients) =
            evaluator.share(&output, best.width(), self.prg.secret()).map_err(backend_error)?;
        channel.send(OUTPUT, &hidden.to_bytes(context))?;
        channel.flush()?;
        party.online_on_shares(channel, material, &best.shares(&coefficients))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material> {
        super::no_material(bytes)
    }
}
