//! The keys of both parties: one set serves every plan of a model.

use super::{LinearError, TAG_EXPANSION, TAG_KEY};
use std::sync::Arc;
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_he::coeff::{Context, ExpansionKeys, PUBLIC_KEY_BYTES, expansion_key_bytes, expansion_keys};
use tacit_he::core::{PublicKey, SecretKey};
use tacit_net::Channel;

/// The client's lattice key. Wiped on drop.
pub struct ClientKeys {
    pub(super) ctx: Arc<Context>,
    pub(super) secret: SecretKey,
}

/// A client's encoded keys.
pub struct KeyBytes {
    /// The public key: 25,616 bytes.
    pub public: Vec<u8>,
    /// The keys with which the server splits ciphertexts.
    pub expansion: Vec<u8>,
}

impl ClientKeys {
    /// Runs the setup phase: draws a secret key, sends the public key and, if `steps` is not 0, the
    /// keys for `steps` splitting steps.
    ///
    /// # Errors
    /// [`LinearError::Net`].
    pub fn setup(ctx: &Arc<Context>, steps: u32, prg: &mut Prg, channel: &mut Channel) -> Result<Self, LinearError> {
        let (keys, bytes) = Self::generate(ctx, steps, prg)?;
        channel.send(TAG_KEY, &bytes.public)?;
        if steps > 0 {
            channel.send(TAG_EXPANSION, &bytes.expansion)?;
        }
        Ok(keys)
    }

    /// Generates a secret key and the server's keys, for callers that send the bytes themselves.
    ///
    /// # Errors
    /// None in practice.
    pub fn generate(ctx: &Arc<Context>, steps: u32, prg: &mut Prg) -> Result<(Self, KeyBytes), LinearError> {
        let keys = Self::draw(ctx, prg);
        let mut split = SplitPrg::draw(prg);
        let public = ctx.public_key(&keys.secret, &mut split).to_bytes(ctx.ring());
        let expansion = expansion_keys(ctx, &keys.secret, steps, &mut split)?;
        Ok((keys, KeyBytes { public, expansion }))
    }

    /// Draws the secret key alone: the same key as [`generate`](Self::generate) and
    /// [`setup`](Self::setup) draw with the same generator.
    #[must_use]
    pub fn draw(ctx: &Arc<Context>, prg: &mut Prg) -> Self {
        Self { ctx: Arc::clone(ctx), secret: ctx.secret_key(prg) }
    }
}

/// A client's keys at the server.
pub struct ServerKeys {
    pub(super) ctx: Arc<Context>,
    pub(super) public: PublicKey,
    pub(super) expansion: ExpansionKeys,
}

impl ServerKeys {
    /// Receives the client's keys in the setup phase.
    ///
    /// # Errors
    /// [`LinearError::Net`], [`LinearError::He`] for malformed keys.
    pub fn receive(ctx: &Arc<Context>, steps: u32, channel: &mut Channel) -> Result<Self, LinearError> {
        let public = channel.recv(TAG_KEY, PUBLIC_KEY_BYTES)?;
        let expansion = match steps {
            0 => Vec::new(),
            steps => channel.recv(TAG_EXPANSION, expansion_key_bytes(steps))?,
        };
        Self::read(ctx, steps, &KeyBytes { public, expansion })
    }

    /// Reads a peer's keys for `steps` splitting steps.
    ///
    /// # Errors
    /// [`LinearError::He`].
    pub fn read(ctx: &Arc<Context>, steps: u32, bytes: &KeyBytes) -> Result<Self, LinearError> {
        let public = ctx.read_public_key(&bytes.public)?;
        let expansion = ExpansionKeys::from_bytes(ctx, steps, &bytes.expansion)?;
        Ok(Self { ctx: Arc::clone(ctx), public, expansion })
    }
}
