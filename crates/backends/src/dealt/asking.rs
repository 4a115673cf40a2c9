//! A connection at the client: masked weights once, then a seed for each material.

use std::io::{Read, Write};
use std::sync::Arc;

use tacit_arith::prg::{Prg, Seed};
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use super::compiled::Client;
use super::dealer::SEED_BYTES;

use super::statics::{self, Gathering, Statics};
use crate::ring::reference;
use crate::seam::{Aids, Claim, Place, Ticket};
use crate::{BackendError, ClientSide, Material, MaterialPart};

/// Setup: whether the client wants `E`.
pub(super) const WANTED: Tag = Tag::new(0x0423, "whether masked weights are wanted");
/// Setup: a piece of `E`.
pub(super) const STATICS: Tag = Tag::new(0x0424, "masked weights");
/// Offline: which material.
pub(super) const TICKET: Tag = Tag::new(0x0425, "ticket for the dealer");
/// Offline: for whom material is to be dealt.
pub(super) const SEAL: Tag = Tag::new(0x0426, "seal of a claim to material");
/// Bytes of `E` in one message.
pub(super) const PIECE: usize = 4 << 20;

/// The connection.
pub(super) struct Asking {
    model: Arc<Client>,
    aids: Aids,
    prg: Prg,
}

/// The client's half.
struct ClientMaterial {
    plan: [u8; 32],
    seed: Seed,
}

impl MaterialPart for ClientMaterial {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.seed.0.to_vec())
    }
}

impl Asking {
    pub(super) fn new(model: Arc<Client>, aids: Aids, prg: Prg) -> Self {
        Self { model, aids, prg }
    }

    fn statics(&self) -> Result<&Arc<Statics>, BackendError> {
        self.model.statics.get().ok_or(BackendError::Misuse("the setup comes first"))
    }

    /// What the folder has, if it is what the public part says.
    fn kept(&self) -> Option<Arc<Statics>> {
        let compiled = &self.model.compiled;
        let mut source = self.aids.keep.as_ref()?.load(compiled.statics)?;
        let (mut gathering, mut piece) = (Gathering::new(&compiled.plan), vec![0; PIECE]);
        loop {
            // What was kept and does not fit any more is asked for anew.
            match source.read(&mut piece).ok()? {
                0 => return gathering.finish(&compiled.statics).ok().map(Arc::new),
                n => gathering.push(&piece[..n]).ok()?,
            }
        }
    }

    /// Takes `E` from the server, and keeps it.
    fn received(&self, channel: &mut Channel) -> Result<Arc<Statics>, BackendError> {
        let compiled = &self.model.compiled;
        let total = statics::bytes(&compiled.plan);
        let mut gathering = Gathering::new(&compiled.plan);
        let mut place = self.aids.keep.as_ref().and_then(|keep| keep.place(compiled.statics, total));
        let mut left = total as usize;
        while left > 0 {
            let piece = channel.recv(STATICS, left.min(PIECE))?;
            left -= piece.len();
            gathering.push(&piece)?;
            // A folder that is full is no reason to fail.
            place = place.and_then(|mut place| place.write_all(&piece).is_ok().then_some(place));
        }
        let statics = gathering.finish(&compiled.statics)?;
        place.into_iter().for_each(Place::keep);
        Ok(Arc::new(statics))
    }

    fn read(&self, bytes: &[u8]) -> Result<ClientMaterial, BackendError> {
        let seed = <[u8; SEED_BYTES]>::try_from(bytes);
        let seed = seed.map_err(|_| BackendError::Material { what: format!("{} bytes are no seed", bytes.len()) })?;
        Ok(ClientMaterial { plan: self.model.compiled.plan.digest(), seed: Seed(seed) })
    }
}

impl ClientSide for Asking {
    /// Gets `E`, unless this process or its folder has it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let kept = self.model.statics.get().cloned().or_else(|| self.kept());
        channel.send(WANTED, &[u8::from(kept.is_none())])?;
        channel.flush()?;
        let statics = match kept {
            Some(statics) => statics,
            None => self.received(channel)?,
        };
        // Another connection may have been faster: it has the same.
        let _ = self.model.statics.set(statics);
        Ok(())
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let statics = self.statics()?.clone();
        let mut claim = Claim { nonce: [0; 32], digest: self.model.compiled.digest() };
        self.prg.fill_bytes(&mut claim.nonce);
        channel.send(SEAL, &claim.seal())?;
        channel.flush()?;
        let ticket: Ticket = *channel.recv(TICKET, size_of::<Ticket>())?.first_chunk().expect("that many bytes came");
        let half = self.aids.dealer()?.fetch(&ticket, &claim)?;
        let material = self.read(&half)?;
        super::client::offline(&self.model.compiled.plan, &statics, &material.seed, channel)?;
        Ok(Material::new(material))
    }

    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let plan = &self.model.compiled.plan;
        let integers = reference::quantize_input(plan.graph(), input)?;
        let ClientMaterial { plan: made_for, seed } = material.take()?;
        if made_for != plan.digest() {
            return Err(BackendError::Misuse("the material belongs to another plan"));
        }
        let answer = super::client::online(plan, &seed, &integers, (channel, &mut self.prg), &mut |_, _| {})?;
        Ok(reference::dequantize_output(plan.graph(), &answer))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(self.read(bytes)?))
    }
}
