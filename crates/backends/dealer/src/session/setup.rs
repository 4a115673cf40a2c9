//! Setup: the client gets the masked weights `E = W - A`, unless its process or its folder has
//! them.

use std::io::{Read, Write};
use std::sync::Arc;

use tacit_arith::prg::Seed;
use tacit_mpc::MpcError;
use tacit_net::{Channel, Tag, TrafficModel};

use super::compiled::Client;
use super::correlation::Correlation;
use super::masked_weights::{self, MaskedWeights, MaskedWeightsReceiver};
use super::plan::{Plan, Scheme};
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{ConnectionResources, Place};
use tacit_ring::Weights;

/// Message: whether the client wants `E`.
const WANTED: Tag = Tag::new(0x0423, "whether masked weights are wanted");
const MASKED_WEIGHTS: Tag = Tag::new(0x0424, "masked weights");
/// Bytes of `E` in one message.
const PIECE_BYTES: usize = 4 << 20;

/// The traffic of the setup of a client that has not stored its masked weights.
pub(crate) fn traffic<C: Scheme>(plan: &Plan<C>) -> TrafficModel {
    let (mut traffic, piece, masked_weights) =
        (TrafficModel::default(), PIECE_BYTES as u64, masked_weights::bytes(plan));
    traffic.up(1);
    traffic.downs(masked_weights / piece, PIECE_BYTES);
    traffic.downs(u64::from(!masked_weights.is_multiple_of(piece)), (masked_weights % piece) as usize);
    traffic
}

/// The server's part: sends `E` if the client wants it.
pub(super) fn send_masked_weights<C: Scheme>(
    plan: &Plan<C>,
    weights: &Weights,
    keys: &[Seed],
    channel: &mut Channel,
) -> Result<(), BackendError> {
    match channel.recv(WANTED, 1)?[0] {
        0 => return Ok(()),
        1 => {}
        _ => {
            let (step, what) = ("the setup", "an answer that is neither yes nor no");
            return Err(MpcError::Misbehaviour { step, what }.into());
        }
    }
    let mut buffer = Vec::with_capacity(PIECE_BYTES);
    masked_weights::write(plan, weights, keys, &mut |mut bytes| {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - buffer.len()));
            buffer.extend_from_slice(now);
            bytes = later;
            if buffer.len() == PIECE_BYTES {
                channel.send(MASKED_WEIGHTS, &buffer)?;
                buffer.clear();
            }
        }
        Ok(())
    })?;
    if !buffer.is_empty() {
        channel.send(MASKED_WEIGHTS, &buffer)?;
    }
    Ok(channel.flush()?)
}

impl<C: Correlation> Client<C> {
    /// The client's part: loads `E`, or fetches it from the server. All connections of a process
    /// share the stored `E`.
    pub(super) fn fetch_masked_weights(
        &self,
        resources: &ConnectionResources,
        channel: &mut Channel,
    ) -> Result<(), BackendError> {
        let loaded = self.masked_weights.get().cloned().or_else(|| self.load_masked_weights(resources));
        channel.send(WANTED, &[u8::from(loaded.is_none())])?;
        channel.flush()?;
        let masked_weights = match loaded {
            Some(masked_weights) => masked_weights,
            None => self.receive_masked_weights(resources, channel)?,
        };
        // Another connection may have stored the same `E` first.
        let _ = self.masked_weights.set(masked_weights);
        Ok(())
    }

    fn stated_digest(&self) -> [u8; 32] {
        self.compiled.stated.as_ref()[0]
    }

    /// Loads `E` from the folder, if it has the digest of the public part.
    fn load_masked_weights(&self, resources: &ConnectionResources) -> Option<Arc<MaskedWeights>> {
        let mut source = resources.keep.as_ref()?.load(self.stated_digest())?;
        let (mut receiver, mut piece) = (MaskedWeightsReceiver::new(&*self.compiled.plan), vec![0; PIECE_BYTES]);
        loop {
            // Stored bytes that do not fit are fetched again.
            match source.read(&mut piece).ok()? {
                0 => return receiver.finish(&self.stated_digest()).ok().map(Arc::new),
                n => receiver.push(&piece[..n]).ok()?,
            }
        }
    }

    /// Receives `E` from the server, and stores it if there is a place.
    fn receive_masked_weights(
        &self,
        resources: &ConnectionResources,
        channel: &mut Channel,
    ) -> Result<Arc<MaskedWeights>, BackendError> {
        let total = masked_weights::bytes(&*self.compiled.plan);
        let mut receiver = MaskedWeightsReceiver::new(&*self.compiled.plan);
        let mut place = resources.keep.as_ref().and_then(|keep| keep.place(self.stated_digest(), total));
        let mut left = total as usize;
        while left > 0 {
            let piece = channel.recv(MASKED_WEIGHTS, left.min(PIECE_BYTES))?;
            left -= piece.len();
            receiver.push(&piece)?;
            // A full folder is no reason to fail.
            place = place.and_then(|mut place| place.write_all(&piece).is_ok().then_some(place));
        }
        let masked_weights = receiver.finish(&self.stated_digest())?;
        place.into_iter().for_each(Place::keep);
        Ok(Arc::new(masked_weights))
    }
}
