//! The client's side of a connection, and the keys that the connections of one opened model share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use tacit_arith::prg::{Prg, PublicSeed, Seed, SplitPrg};
use tacit_he::ckks::{Ciphertext, Context, Encoder, Estimate, KeyMaker, Parameters, Received, SecretKey, SwitchKey};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::argmax::ArgMax;
use super::levelled_program::backend_error;
use super::public::{Public, key_bytes};
use super::wire::{
    CONFIRMED, DIGEST, HELLO, Hello, INPUT, KEY, OUTPUT, WELCOME, WELCOME_BYTES, Welcome, key_digest, set_digest,
};
use tacit_backend_api::seam::{ConnectionResources, Secrets, Stop, UploadName};
use tacit_backend_api::{BackendError, ClientSide, Material, Result};
use tacit_two_party::cheetah::{self, ClientParty};

/// Pause between looks whether another connection's setup has ended.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// First byte of a stored secret: the version of how the secret key follows from the seed behind it. The key
/// set's name comes last.
const SECRET_VERSION: u8 = 2;
const SEED_BYTES: usize = 16;

/// State that connections of one model share.
pub(super) struct Shared {
    pub public: Public,
    /// Digest of the public part.
    pub digest: [u8; 32],
    pub context: Arc<Context>,
    /// The arg max, if only the best class is revealed.
    best: Option<ArgMax>,
    /// The server may have all keys of this set, a part or none yet.
    keys: Mutex<Option<Keys>>,
}

/// A secret, and the name of its key set at the server.
#[derive(Clone)]
pub(super) struct Keys {
    pub secret: Arc<SecretKey>,
    /// Any connection that knows the name may use the set. It is drawn from another random stream than the
    /// secret.
    pub name: Zeroizing<UploadName>,
    may_be_uploaded: bool,
}

impl Keys {
    /// Draws a seed and a name, in the stored form.
    fn draw(prg: &mut SplitPrg) -> Zeroizing<Vec<u8>> {
        let name = [prg.public_seed(), prg.public_seed()].map(PublicSeed::to_bytes).concat();
        Zeroizing::new([&[SECRET_VERSION][..], &prg.secret().next_seed().0, &name].concat())
    }

    pub fn from_stored(context: &Arc<Context>, stored: &[u8], may_be_uploaded: bool) -> Option<Self> {
        let (seed, name) = stored.strip_prefix(&[SECRET_VERSION])?.split_first_chunk::<SEED_BYTES>()?;
        let name = Zeroizing::new(UploadName::try_from(name).ok()?);
        let secret = SecretKey::generate(context, &mut Prg::from_seed(Seed(*seed)));
        Some(Self { secret: Arc::new(secret), name, may_be_uploaded })
    }
}

impl Shared {
    /// Checks an untrusted public part: keys of less than 128 bits are never made.
    ///
    /// # Errors
    /// [`BackendError::Public`] if a check fails.
    pub fn new(public: Public, digest: [u8; 32]) -> Result<Self> {
        let parameters = Parameters::new(&public.parameters).map_err(unusable)?;
        public.check(&parameters)?;
        let context = Arc::new(Context::new(&parameters).map_err(unusable)?);
        // Compare the keys that this client would send with the size that the public part states.
        if key_bytes(&context, &public.keys, 0)? != public.costs.setup.server.stored_bytes {
            return Err(BackendError::Public { what: "its keys are not as large as it says".into() });
        }
        let best = public.compared.map(|n| ArgMax::new(n as usize, &parameters)).transpose()?;
        Ok(Self { public, digest, context, best, keys: Mutex::default() })
    }

    /// Waits until no other connection sets up. A setup takes minutes on a slow link, so `stop` ends the
    /// wait.
    fn lock_keys(&self, stop: &Stop) -> Result<MutexGuard<'_, Option<Keys>>> {
        loop {
            match self.keys.try_lock() {
                Ok(keys) => return Ok(keys),
                Err(TryLockError::WouldBlock) if stop.is_raised() => return Err(BackendError::Stopped),
                Err(TryLockError::WouldBlock) => std::thread::sleep(RETRY_PAUSE),
                Err(TryLockError::Poisoned(_)) => return Err(BackendError::Misuse("a setup broke down before")),
            }
        }
    }
}

fn unusable(error: tacit_he::HeError) -> BackendError {
    BackendError::Public { what: error.to_string() }
}

pub(super) struct ClientConnection {
    shared: Arc<Shared>,
    stop: Stop,
    secrets: Option<Arc<dyn Secrets>>,
    spared: Arc<AtomicU64>,
    prg: SplitPrg,
    secret: Option<Arc<SecretKey>>,
    arg_max: Option<ClientParty>,
}

impl ClientConnection {
    pub fn new(shared: Arc<Shared>, resources: &ConnectionResources, mut prg: Prg) -> Self {
        let ConnectionResources { secrets, spared, stop, .. } = resources.clone();
        let arg_max = shared
            .best
            .as_ref()
            .map(|best| ClientParty::new(best.plan.clone(), Prg::from_seed(prg.next_seed())).stopped_by(&stop));
        Self { shared, stop, secrets, spared, prg: SplitPrg::new(prg), secret: None, arg_max }
    }

    /// The stored secret, or a fresh one, for the first setup of this process.
    fn keys(&mut self) -> Result<Keys> {
        let fresh = Keys::draw(&mut self.prg);
        let (stored, was_stored) = match &self.secrets {
            Some(secrets) => secrets.secret(&self.shared.digest, fresh)?,
            None => (fresh, false),
        };
        Keys::from_stored(&self.shared.context, &stored, was_stored).ok_or_else(|| BackendError::Keeping {
            what: "the kept secret was made by another version: delete it with `tacit keyset delete --all`".into(),
        })
    }

    fn ask(&self, channel: &mut Channel, name: UploadName) -> Result<Welcome> {
        channel.send(HELLO, &Hello { name, lasts: self.secrets.is_some() }.to_bytes())?;
        channel.flush()?;
        Ok(channel.recv_with(WELCOME, WELCOME_BYTES, Welcome::from_bytes)?)
    }

    /// Makes all keys but the first `uploaded_count`, one at a time, and sends them.
    fn send_keys(&mut self, channel: &mut Channel, keys: &Keys, uploaded_count: u64) -> Result<()> {
        let Shared { public, digest, context, .. } = &*self.shared;
        let skipped = usize::try_from(uploaded_count)
            .ok()
            .and_then(|uploaded_count| public.keys.get(..uploaded_count))
            .ok_or_else(|| {
                let what = format!("the server claims to have {uploaded_count} keys of {}", public.keys.len());
                BackendError::Data { what }
            })?;
        self.spared.fetch_add(key_bytes(context, skipped, DIGEST)?, Ordering::Relaxed);
        let mut maker = KeyMaker::new(&keys.secret, &mut self.prg);
        let mut digests = Vec::with_capacity(public.keys.len());
        for (index, record) in public.keys.iter().enumerate().skip(skipped.len()) {
            self.stop.begin()?;
            let id = record.id();
            let mut bytes = Vec::with_capacity(SwitchKey::packed_bytes(context, id) + DIGEST);
            maker.make(id).and_then(|key| key.write(context, &mut bytes)).map_err(backend_error)?;
            let digest_of_key = key_digest(digest, &*keys.name, index, &bytes);
            bytes.extend_from_slice(&digest_of_key);
            channel.send(KEY, &bytes)?;
            digests.push(digest_of_key);
        }
        channel.flush()?;
        let expected = set_digest(digest, uploaded_count, &digests);
        Ok(channel.recv_with(CONFIRMED, DIGEST, |bytes| {
            if bytes == expected { Ok(()) } else { Err("not of the keys that were sent".into()) }
        })?)
    }

    fn refusal(&self, answer: Welcome) -> BackendError {
        let bytes = self.shared.public.costs.setup.server.stored_bytes;
        let smaller = "Fewer bytes: a model lowered with `-O rotations=chained`";
        let what = match answer {
            Welcome::Quota { held, most } => format!(
                "the server keeps {most} bytes of keys for a client at most and has {held} of this one's; this set takes {bytes}. `tacit \
                 keyset list` shows them, `tacit keyset delete` makes room. {smaller}"
            ),
            Welcome::Busy => {
                "another connection of this client's sends these keys now: try again when it is done".into()
            }
            _ => format!("the server has no room for {bytes} bytes of keys now. {smaller}"),
        };
        BackendError::Data { what }
    }

    /// Reads an encrypted answer and checks its level, slots and scale.
    fn read_answer(&self, bytes: &[u8]) -> Result<Ciphertext, String> {
        let Shared { public, context, .. } = &*self.shared;
        let no_errors = Estimate { deviation: 0.0, magnitude: 1.0 };
        let read = Received::from_bytes(context, bytes, no_errors).map_err(|e| e.to_string())?;
        let Received::Full(answer) = read else { return Err("a ciphertext with a seed".into()) };
        let (level, scale) = (public.output.level, context.parameters().scale(public.output.level));
        if answer.level() != level || answer.slots() != context.degree() / 2 || !answer.scale().agrees(scale) {
            return Err(format!(
                "a ciphertext at level {} with scale {}: level {level} and {scale} are meant",
                answer.level(),
                answer.scale()
            ));
        }
        Ok(answer)
    }
}

impl ClientSide for ClientConnection {
    fn setup(&mut self, channel: &mut Channel) -> Result<()> {
        let shared = self.shared.clone();
        // One setup at a time: later ones find its keys.
        let mut shared_keys = shared.lock_keys(&self.stop)?;
        let mut keys = match &*shared_keys {
            Some(keys) => keys.clone(),
            None => self.keys()?,
        };
        // A setup that breaks off is resumed with the same secret.
        *shared_keys = Some(keys.clone());
        match self.ask(channel, *keys.name)? {
            Welcome::Known | Welcome::Send { there: 1.. } if !keys.may_be_uploaded => {
                // Forget the secret: no keys were made from it, so it must not be resumed.
                *shared_keys = None;
                self.secrets.iter().try_for_each(|secrets| secrets.forget(&shared.digest))?;
                return Err(BackendError::Data { what: "the server claims to have keys that were never made".into() });
            }
            Welcome::Known => {
                // The setup of the arg max is new on each connection.
                let arg_max_bytes = shared.best.as_ref().map_or(0, |best| cheetah::costs(&best.plan).setup.up_bytes);
                let spared_bytes = shared.public.costs.setup.up_bytes.saturating_sub(arg_max_bytes);
                self.spared.fetch_add(spared_bytes, Ordering::Relaxed);
            }
            Welcome::Send { there: uploaded_count } => {
                keys.may_be_uploaded = true;
                *shared_keys = Some(keys.clone());
                self.send_keys(channel, &keys, uploaded_count)?;
            }
            answer => return Err(self.refusal(answer)),
        }
        self.secret = Some(keys.secret);
        match &mut self.arg_max {
            Some(party) => party.setup(channel),
            None => Ok(()),
        }
    }

    fn offline(&mut self, _: &mut Channel) -> Result<Material> {
        Err(super::NOTHING)
    }

    fn online(&mut self, channel: &mut Channel, _: Material, input: &[f32]) -> Result<Vec<f64>> {
        let Shared { public, context, best, .. } = &*self.shared.clone();
        public.interface.check_input(input)?;
        let secret = self.secret.clone().ok_or(super::NO_SETUP)?;
        let n = context.degree() / 2;
        let encoder = Encoder::new(context, n).map_err(backend_error)?;
        let mut slots = Zeroizing::new(vec![0.0; n]);
        for copy in slots.chunks_mut(public.input.period) {
            let values = input.iter().map(|v| f64::from(*v) / public.input.unit);
            public.input.slots.iter().zip(values).for_each(|(&slot, v)| copy[slot as usize] = v);
        }
        let plain = encoder.encode_real(&slots, public.input.level).map_err(backend_error)?;
        channel.send(INPUT, &secret.encrypt_seeded(&plain, &mut self.prg).to_bytes(context))?;
        channel.flush()?;
        let material = self.arg_max.as_mut().map(|party| party.offline(channel)).transpose()?;
        let len = Ciphertext::bytes_len(context, public.output.level);
        let answer = channel.recv_with(OUTPUT, len, |bytes| self.read_answer(bytes))?;
        if let (Some(best), Some(party), Some(material)) = (best, &mut self.arg_max, material) {
            let coefficients = secret.share(&answer, best.width()).map_err(backend_error)?;
            let share: Vec<i64> = best.shares(&coefficients).iter().map(|&s| s as i64).collect();
            let class = party.online(channel, material, &share, &mut |_, _| {})?;
            return Ok(class.iter().map(|&index| index as f64).collect());
        }
        // Nothing is sent from here on: the server must not learn whether the answer is accepted.
        let slots = encoder.decode(&secret.decrypt(&answer)).map_err(backend_error)?;
        public.answer(&slots)
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material> {
        super::no_material(bytes)
    }
}
