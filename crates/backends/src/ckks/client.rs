//! A connection at the client, and the keys that connections of one opened model share.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use tacit_arith::prg::{Prg, SplitPrg};
use tacit_he::ckks::{Ciphertext, Context, Encoder, Estimate, KeyMaker, Parameters, Received, SecretKey, SwitchKey};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::frame::he;
use super::public::{Public, key_bytes};
use super::wire::{
    CONFIRMED, DIGEST, HELLO, HELLO_BYTES, INPUT, KEY, OUTPUT, WELCOME, WELCOME_BYTES, Welcome, key_digest, set_digest,
};
use crate::seam::Stop;
use crate::{BackendError, ClientSide, Material};

/// How long a connection leaves the setup of another alone before it looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What connections of one model share.
pub(super) struct Shared {
    pub public: Public,
    /// Digest of the public part.
    pub digest: [u8; 32],
    pub context: Arc<Context>,
    /// The secret of the set that the server confirmed, with its name.
    keys: Mutex<Option<Keys>>,
}

/// A secret, and what the server calls its key set.
#[derive(Clone)]
struct Keys {
    secret: Arc<SecretKey>,
    name: Zeroizing<[u8; HELLO_BYTES]>,
}

impl Shared {
    /// From a stranger's public part, checked: keys of less than 128 bits are never made.
    ///
    /// # Errors
    /// [`BackendError::Public`].
    pub fn new(public: Public, digest: [u8; 32]) -> Result<Self, BackendError> {
        let wrong = |e: tacit_he::HeError| BackendError::Public { what: e.to_string() };
        let parameters = Parameters::new(&public.parameters).map_err(wrong)?;
        public.check(&parameters)?;
        let context = Arc::new(Context::new(&parameters).map_err(wrong)?);
        // What it makes this client send, not what it says of that.
        if key_bytes(&context, &public.keys, 0)? != public.costs.setup.server.stored_bytes {
            return Err(BackendError::Public { what: "its keys are not as large as it says".into() });
        }
        Ok(Self { public, digest, context, keys: Mutex::default() })
    }

    /// The keys, as soon as no other connection sets up: that takes minutes on a slow link, and whoever waits
    /// for it can be stopped.
    fn held(&self, stop: &Stop) -> Result<MutexGuard<'_, Option<Keys>>, BackendError> {
        loop {
            match self.keys.try_lock() {
                Ok(held) => return Ok(held),
                Err(TryLockError::WouldBlock) if stop.is_raised() => return Err(BackendError::Stopped),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_AGAIN),
                Err(TryLockError::Poisoned(_)) => return Err(BackendError::Misuse("a setup broke down before")),
            }
        }
    }
}

/// One connection.
pub(super) struct Asking {
    shared: Arc<Shared>,
    stop: Stop,
    prg: SplitPrg,
    secret: Option<Arc<SecretKey>>,
}

impl Asking {
    pub fn new(shared: Arc<Shared>, stop: Stop, prg: Prg) -> Self {
        Self { shared, stop, prg: SplitPrg::new(prg), secret: None }
    }

    /// Whether the server has the set of this name, or wants it.
    fn ask(channel: &mut Channel, name: &[u8]) -> Result<Welcome, BackendError> {
        channel.send(HELLO, name)?;
        channel.flush()?;
        Ok(channel.recv_with(WELCOME, WELCOME_BYTES, Welcome::from_bytes)?)
    }

    /// Makes the keys, one at a time, and sends them.
    fn send_keys(&mut self, channel: &mut Channel, keys: &Keys) -> Result<(), BackendError> {
        let Shared { public, digest, context, .. } = &*self.shared;
        let mut maker = KeyMaker::new(&keys.secret, &mut self.prg);
        let mut digests = Vec::with_capacity(public.keys.len());
        for (index, record) in public.keys.iter().enumerate() {
            self.stop.begin()?;
            let id = record.id();
            let mut bytes = Vec::with_capacity(SwitchKey::packed_bytes(context, id) + DIGEST);
            maker.make(id).and_then(|key| key.write(context, &mut bytes)).map_err(he)?;
            let own = key_digest(digest, &*keys.name, index, &bytes);
            bytes.extend_from_slice(&own);
            channel.send(KEY, &bytes)?;
            digests.push(own);
        }
        channel.flush()?;
        let wanted = set_digest(digest, &digests);
        let check = |bytes: &[u8]| if bytes == wanted { Ok(()) } else { Err("not of the keys that were sent".into()) };
        Ok(channel.recv_with(CONFIRMED, DIGEST, check)?)
    }

    fn read_answer(&self, bytes: &[u8]) -> Result<Ciphertext, String> {
        let Shared { public, context, .. } = &*self.shared;
        let none = Estimate { deviation: 0.0, magnitude: 1.0 };
        let read = Received::from_bytes(context, bytes, none).map_err(|e| e.to_string())?;
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

impl ClientSide for Asking {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let shared = self.shared.clone();
        // One setup at a time: others then find its keys.
        let mut held = shared.held(&self.stop)?;
        let fresh = held.is_none();
        let keys = held.take().unwrap_or_else(|| {
            let mut name = Zeroizing::new([0; HELLO_BYTES]);
            self.prg.secret().fill_bytes(&mut *name);
            let secret = Arc::new(SecretKey::generate(&shared.context, self.prg.secret()));
            Keys { secret, name }
        });
        match Self::ask(channel, &*keys.name)? {
            Welcome::Known if !fresh => {}
            Welcome::Known => {
                return Err(BackendError::Data { what: "the server claims to have keys that were never made".into() });
            }
            Welcome::Full => {
                let what = format!(
                    "the server has no room for {} bytes of keys now. Fewer bytes: a model lowered with `-O rotations=chained`",
                    shared.public.costs.setup.server.stored_bytes
                );
                return Err(BackendError::Data { what });
            }
            Welcome::Send => self.send_keys(channel, &keys)?,
        }
        self.secret = Some(keys.secret.clone());
        *held = Some(keys);
        Ok(())
    }

    fn offline(&mut self, _: &mut Channel) -> Result<Material, BackendError> {
        Err(super::NOTHING)
    }

    fn online(&mut self, channel: &mut Channel, _: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let Shared { public, context, .. } = &*self.shared.clone();
        public.interface.check_input(input)?;
        let secret = self.secret.clone().ok_or(super::NO_SETUP)?;
        let n = context.degree() / 2;
        let encoder = Encoder::new(context, n).map_err(he)?;
        let mut slots = Zeroizing::new(vec![0.0; n]);
        for copy in slots.chunks_mut(public.input.period) {
            let values = input.iter().map(|v| f64::from(*v) / public.input.unit);
            public.input.slots.iter().zip(values).for_each(|(&slot, v)| copy[slot as usize] = v);
        }
        let plain = encoder.encode_real(&slots, public.input.level).map_err(he)?;
        channel.send(INPUT, &secret.encrypt_seeded(&plain, &mut self.prg).to_bytes(context))?;
        channel.flush()?;
        let len = Ciphertext::bytes_len(context, public.output.level);
        let answer = channel.recv_with(OUTPUT, len, |bytes| self.read_answer(bytes))?;
        let slots = encoder.decode(&secret.decrypt(&answer)).map_err(he)?;
        Ok(public.output.slots.iter().map(|&slot| slots[slot as usize].re * public.output.unit).collect())
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        super::no_material(bytes)
    }
}
