//! Making material: stored on disk at both parties, or in memory for an input that is asked for. If
//! a back end can take its material as a stream, large material is written to a folder while it
//! arrives.
use crate::answer::Prepared;
use crate::measure::PhaseReport;
use crate::wire::{InputId, Request};
use crate::{Client, ClientError};
use std::sync::Arc;
use tacit_backends::seam::MaterialSeed;
use tacit_backends::{ClientSide, Material, Sides};
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{Channel, Phase};
use tacit_store::{MAX_IN_MEMORY_BYTES, Origin};
use zeroize::Zeroizing;

/// The stock of a model that a refill adds to.
struct Refill {
    held: u32,
    most: u32,
}

impl Client {
    /// Makes material for one input and stores it at both parties.
    ///
    /// # Errors
    /// [`ClientError::Usage`] without a store or if the back end has no offline phase,
    /// [`ClientError::NoDealer`], [`ClientError::Refused`] if the server has no room, and as
    /// [`setup`](Self::setup).
    pub fn prepare(&mut self) -> Result<Prepared, ClientError> {
        self.prepare_batch(1)
    }

    /// As [`prepare`](Self::prepare), for a batch of `inputs` inputs
    /// ([`infer_batch`](Self::infer_batch)).
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); [`ClientError::Usage`] if the back end or the server does not
    /// allow this batch size.
    pub fn prepare_batch(&mut self, inputs: usize) -> Result<Prepared, ClientError> {
        self.check_stores()?;
        self.set_batch(inputs)?;
        self.make_kept(None)
    }

    /// As [`prepare`](Self::prepare), once the server is idle and expects that this client will
    /// need the material, by its past requests; it fills the stock of this model up to that need
    /// and at most to `most`. Until then this call blocks, without a limit;
    /// [`closer`](Self::closer) ends it. The material has the current batch size.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn refill(&mut self, most: u32) -> Result<Prepared, ClientError> {
        self.check_stores()?;
        let held = u32::try_from(self.list_stored()?.len()).unwrap_or(u32::MAX);
        self.make_kept(Some(Refill { held, most }))
    }

    /// Makes material for one input of the owner of this helper: the server stores its half for the
    /// owner's `folder`. Returns the client's half without what follows from `seed`, which is used
    /// up whatever the result.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn make_for_owner(
        &mut self,
        id: MaterialId,
        folder: FolderId,
        seed: MaterialSeed,
    ) -> Result<(Zeroizing<Vec<u8>>, PhaseReport), ClientError> {
        self.check_prepares()?;
        self.set_batch(1)?;
        self.setup_before(Phase::Offline)?;
        let request = Request::Prepare { id, folder: Some(folder), of: None };
        let (rest, offline, _) =
            self.phase(Phase::Offline, None, &request, |side, channel| Ok(side.offline_from(channel, seed)?))?;
        Ok((rest, offline))
    }

    pub(super) fn check_stores(&self) -> Result<(), ClientError> {
        match &self.stock {
            None => Err(ClientError::Usage("storing material needs a folder for it".into())),
            Some(stock) if stock.peer().is_none() => {
                let text = "this server stores no material (it was started without --material)";
                Err(ClientError::Usage(text.into()))
            }
            Some(_) => Ok(()),
        }
    }

    pub(crate) fn check_prepares(&self) -> Result<(), ClientError> {
        if !self.needs_material()? {
            let text = format!("the back end {} has nothing to prepare: ask right away", self.backend);
            return Err(ClientError::Usage(text));
        }
        Ok(())
    }

    /// Makes material that both parties store.
    fn make_kept(&mut self, refill: Option<Refill>) -> Result<Prepared, ClientError> {
        self.check_prepares()?;
        self.setup_before(Phase::Offline)?;
        let id = MaterialId::random()?;
        let stock = self.stock.as_ref().expect("whoever keeps material has checked that there is a folder");
        let (store, peer) = (Arc::clone(stock.store()), stock.peer().expect("and one at the server"));
        // Reserved before the server begins: an id that only the server has is lost here.
        let reserved = store.reserve(id, self.binding, Origin { backend: &self.backend, peer, maker: None }, None)?;
        let folder = store.folder();
        let request = match refill {
            Some(Refill { held, most }) => Request::Refill { id, folder, held, most },
            None => Request::Prepare { id, folder: Some(folder), of: None },
        };
        let (stored, offline, at_server) = match self.model.spooled_bytes() {
            None => {
                let made = self.phase(Phase::Offline, None, &request, |side, channel| Ok(side.offline(channel)?));
                let (material, offline, at_server) = made?;
                (reserved.put(&material.to_bytes()?), offline, at_server)
            }
            Some(bytes) => {
                let mut placing = reserved.place(bytes)?;
                let into =
                    |side: &mut dyn ClientSide, channel: &mut Channel| Ok(side.offline_into(channel, &mut placing)?);
                let ((), offline, at_server) = self.phase(Phase::Offline, None, &request, into)?;
                (placing.finish(), offline, at_server)
            }
        };
        if let Err(e) = stored {
            // The server has stored its half; if this fails, too, the next connection destroys it.
            let _ = self.discard(&[id]);
            return Err(e.into());
        }
        Ok(Prepared { id, offline, bytes: Sides { client: self.material_bytes, server: at_server } })
    }

    /// Makes the material of an input. `first` asks for the input, unless an earlier request did.
    /// The material lasts as long as this process and the server's.
    pub(crate) fn make_for(
        &mut self,
        name: InputId,
        first: Option<&Request>,
    ) -> Result<(Prepared, Material), ClientError> {
        self.check_prepares()?;
        self.setup_before(Phase::Offline)?;
        let id = MaterialId::random()?;
        let request = Request::Prepare { id, folder: None, of: Some(name) };
        let store = self.stock.as_ref().map(|stock| Arc::clone(stock.store()));
        let (material, offline, at_server) =
            match self.model.spooled_bytes().filter(|bytes| *bytes > MAX_IN_MEMORY_BYTES).zip(store) {
                None => self.phase(Phase::Offline, first, &request, |side, channel| Ok(side.offline(channel)?))?,
                Some((bytes, store)) => {
                    let mut spool = store.spool(id, bytes)?;
                    let into =
                        |side: &mut dyn ClientSide, channel: &mut Channel| Ok(side.offline_into(channel, &mut spool)?);
                    let ((), offline, at_server) = self.phase(Phase::Offline, first, &request, into)?;
                    (self.side.spooled_material(bytes, spool.finish()?)?, offline, at_server)
                }
            };
        Ok((Prepared { id, offline, bytes: Sides { client: self.material_bytes, server: at_server } }, material))
    }
}
