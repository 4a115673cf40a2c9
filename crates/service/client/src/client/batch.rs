//! Batches: several inputs with one offline phase, one material and one online phase, and the round
//! trips of one input.
use crate::answer::timed;
use crate::ask::expect_reply;
use crate::wire::{Reply, Request};
use crate::{Answer, Client, ClientError};
use std::sync::Arc;
use std::time::Instant;
use tacit_backends::ClientModel;
use tacit_backends::seam::batch_digest;
use tacit_graph::Units;
use tacit_store::Binding;

impl Client {
    /// Limits the batch size from now on; 1 runs each input on its own.
    pub fn set_max_batch(&mut self, inputs: usize) {
        self.config.max_batch = inputs;
    }

    pub(crate) fn single_model(&self) -> &dyn ClientModel {
        &*self.one
    }

    /// Largest batch size as far as this party knows; the server may grant fewer.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.config.max_batch.min(self.one.max_batch()).max(1)
    }

    fn resize(&mut self, inputs: usize) -> Result<(), ClientError> {
        self.side.set_batch(inputs)?;
        self.model = if inputs == 1 { Arc::clone(&self.one) } else { self.one.batched(inputs)? };
        self.binding.plan = self.model.digest();
        self.material_bytes = self.model.costs().offline.client.stored_bytes;
        Ok(())
    }

    /// Asks the server for batches of `wanted` inputs on this connection from now on; returns the
    /// size that it grants.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn ask_batch(&mut self, wanted: usize) -> Result<usize, ClientError> {
        let wanted = wanted.clamp(1, self.max_batch());
        if wanted == self.model().batch() {
            return Ok(wanted);
        }
        let request = Request::Batch { inputs: wanted as u32 };
        let granted = expect_reply!(self.channel_mut(), request, Reply::Batch { inputs } => inputs as usize);
        if !(1..=wanted).contains(&granted) {
            let detail = format!("{granted} inputs as one, {wanted} were asked for");
            return Err(ClientError::Unexpected { what: "size of a batch", detail });
        }
        self.resize(granted)?;
        Ok(granted)
    }

    /// As [`ask_batch`](Self::ask_batch); a smaller size than `inputs` is an error.
    pub(crate) fn set_batch(&mut self, inputs: usize) -> Result<(), ClientError> {
        match self.ask_batch(inputs)? {
            granted if granted == inputs => Ok(()),
            granted => Err(ClientError::Usage(format!(
                "{inputs} inputs cannot be run as one here: the back end {} and this server take {granted}",
                self.backend()
            ))),
        }
    }

    /// Batch size of each stored material of this model that is ready in this client's folder and
    /// serves more than one input, largest first.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn stored_batches(&self) -> Result<Vec<usize>, ClientError> {
        let Some(stock) = &self.stock else { return Ok(vec![]) };
        let (client, model, plan) = (self.binding().client, self.binding().model, self.single_model().digest());
        let mut sizes = Vec::new();
        for inputs in (2..=self.max_batch()).rev() {
            let held = stock.ready(Binding { client, model, plan: batch_digest(&plan, inputs) })?;
            sizes.extend(held.iter().map(|_| inputs));
        }
        Ok(sizes)
    }

    /// Tells the server how many inputs a call will ask for. If the day's quota does not cover them
    /// all, the server refuses before the first begins, and the caller can ask for fewer.
    ///
    /// # Errors
    /// [`ClientError::Refused`], with the rest of the quota; errors of the connection.
    pub fn begin_call(&mut self, inputs: usize) -> Result<(), ClientError> {
        if inputs > 1 {
            // The request for a single input is checked against the quota itself.
            let request = Request::Call { inputs: u32::try_from(inputs).unwrap_or(u32::MAX) };
            expect_reply!(self.channel_mut(), request, Reply::Noted { .. } => {});
        }
        Ok(())
    }

    /// How many of `left` inputs to answer next with stored material; `None` if there is no
    /// suitable material. Material for single inputs comes first, then the largest batch that is
    /// used up whole, then part of the smallest batch.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn next_stored(&self, left: usize) -> Result<Option<usize>, ClientError> {
        let Some(stock) = self.stock.as_ref().filter(|_| left > 0) else { return Ok(None) };
        let (client, model) = (self.binding().client, self.binding().model);
        if !stock.ready(Binding { client, model, plan: self.single_model().digest() })?.is_empty() {
            return Ok(Some(1));
        }
        if left == 1 {
            // A stored batch is not spent on a single input.
            return Ok(None);
        }
        let sizes = self.stored_batches()?;
        let whole = sizes.iter().copied().filter(|size| *size <= left).max();
        Ok(whole.or_else(|| sizes.iter().copied().min()).map(|size| size.min(left)))
    }

    /// Answers the first of these inputs, given in `units`: the next batch, at least one input.
    /// Uses stored material first ([`next_stored`](Self::next_stored)). Then makes new material for
    /// as many inputs as back end and server allow in a batch.
    ///
    /// # Errors
    /// As [`infer_in`](Self::infer_in); [`ClientError::Usage`] for no input.
    pub fn infer_next(&mut self, units: Units, inputs: &[Vec<f32>]) -> Result<Vec<Answer>, ClientError> {
        let Some(first) = inputs.first() else {
            return Err(ClientError::Usage("there is no input to be answered".into()));
        };
        let size = match self.next_stored(inputs.len())? {
            Some(size) => size,
            None if inputs.len() > 1 && self.needs_material()? => self.ask_batch(inputs.len())?,
            None => 1,
        };
        match size {
            1 => Ok(vec![self.infer_in(units, first)?]),
            size => self.infer_batch(units, &inputs[..size]),
        }
    }

    /// Answers several inputs, given in `units`, as one batch. Uses stored material for that many
    /// inputs or more, if there is any, and burns the unused rest with it; else makes new material.
    ///
    /// # Errors
    /// As [`infer_in`](Self::infer_in); [`ClientError::Usage`] for no input, or more than back end
    /// and server allow in a batch.
    pub fn infer_batch(&mut self, units: Units, inputs: &[Vec<f32>]) -> Result<Vec<Answer>, ClientError> {
        let asked = Instant::now();
        let mut together = self.together(units, inputs)?;
        let stored = self.stored_batches()?.into_iter().rev().find(|size| *size >= inputs.len());
        let size = stored.unwrap_or(inputs.len());
        // The server may have lowered its batch size since.
        if self.ask_batch(size)? != size || size == inputs.len() {
            self.set_batch(inputs.len())?;
        } else {
            self.fill_up(&mut together);
        }
        let mut answers = timed(self.answers(&together)?, asked);
        answers.truncate(inputs.len());
        Ok(answers)
    }

    /// Concatenates inputs, each converted to normalised input ([`Units::Normalised`]).
    pub(crate) fn together(&self, units: Units, inputs: &[Vec<f32>]) -> Result<Vec<f32>, ClientError> {
        let mut together = Vec::new();
        for input in inputs {
            together.extend(self.interface().accept(input, units)?);
        }
        Ok(together)
    }

    /// Pads the inputs to the batch size with dummies.
    pub(crate) fn fill_up(&self, together: &mut Vec<f32>) {
        let blank = self.interface().blank();
        let missing = self.model().batch().saturating_sub(together.len() / blank.len());
        together.extend(std::iter::repeat_n(blank, missing).flatten());
    }
}
