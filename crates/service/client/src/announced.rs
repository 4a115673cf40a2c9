//! Announced inputs, whose material is made in advance.
use crate::answer::{made_for, only, timed};
use crate::ask::expect_reply;
use crate::claimed::{Asked, ClaimedMaterial};
use crate::wire::{Announce, InputId, Reply, Request};
use crate::{Answer, Client, ClientError, Closer, Notices, PhaseReport, Prepared};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tacit_backends::Material;
use tacit_graph::Units;
use tacit_net::Phase;

/// Material and its costs, and the connection that made it: the server holds its half while that is
/// open.
type Made = (Option<PhaseReport>, Prepared, Material, Client);

/// An announced input or batch. A thread makes its material on a connection of its own, when the
/// server schedules it. Dropping it unused withdraws the notice.
pub struct Announced {
    name: InputId,
    inputs: usize,
    closer: Arc<Closer>,
    maker_thread: Option<JoinHandle<Result<Made, ClientError>>>,
}

impl Announced {
    /// Whether the material is made, or has failed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.maker_thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Number of inputs that the material is for.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Ends the connection that makes the material.
    #[must_use]
    pub fn closer(&self) -> Arc<Closer> {
        Arc::clone(&self.closer)
    }

    fn wait(mut self) -> Option<Result<Made, ClientError>> {
        let maker_thread = self.maker_thread.take()?;
        Some(maker_thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if self.maker_thread.is_some() {
            self.closer.close();
        }
    }
}

impl Client {
    /// Announces an input, expected `expected` from now if that is known.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if the back end has no offline phase, [`ClientError::NoDealer`],
    /// [`ClientError::Refused`] if too much is under way, and as [`connect_again`](Self::connect_again).
    pub fn announce(&self, expected: Option<Duration>) -> Result<Announced, ClientError> {
        self.check_prepares()?;
        self.announce_over(self.connect_again()?, expected)
    }

    /// As [`announce`](Self::announce), over an existing connection
    /// ([`connect_again`](Self::connect_again), and perhaps [`setup`](Self::setup)). The batch size
    /// is that of `maker` ([`ask_batch`](Self::ask_batch)).
    ///
    /// # Errors
    /// As [`announce`](Self::announce); [`ClientError::Usage`] if the connection is of another
    /// client, model or back end.
    pub fn announce_over(&self, mut maker: Self, expected: Option<Duration>) -> Result<Announced, ClientError> {
        self.check_makes(&maker)?;
        let name = InputId::random()?;
        let expected_ms = expected.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let announce = Request::Announce(Announce { name, expected_ms, ttl_ms: None });
        expect_reply!(maker.channel_mut(), announce, Reply::Noted { .. } => {});
        Self::start_maker_thread(maker, name)
    }

    /// Takes up an input of this client that was announced in another way, such as over HTTP, under
    /// a name that the server gave. Its offline phase runs on `maker`, which must have its batch
    /// size, when its turn has come.
    ///
    /// # Errors
    /// As [`announce_over`](Self::announce_over). If the server no longer knows the name, waiting
    /// for the material fails.
    pub fn take_up(&self, maker: Self, name: InputId) -> Result<Announced, ClientError> {
        self.check_makes(&maker)?;
        Self::start_maker_thread(maker, name)
    }

    /// This client's notices over HTTP, and their states.
    ///
    /// # Errors
    /// As [`Notices::new`].
    pub fn notices(&self) -> Result<Notices, ClientError> {
        Notices::new(&self.config)
    }

    fn check_makes(&self, maker: &Self) -> Result<(), ClientError> {
        self.check_prepares()?;
        let [theirs, own] = [maker, self]
            .map(|client| (client.binding().client, client.binding().model, client.single_model().digest()));
        if theirs != own {
            let text = "the connection that makes an announced input's material is of another client or model";
            return Err(ClientError::Usage(text.into()));
        }
        Ok(())
    }

    fn start_maker_thread(mut connection: Self, name: InputId) -> Result<Announced, ClientError> {
        let (closer, inputs) = (connection.closer(), connection.model().batch());
        let started = thread::Builder::new().name("tacit-announced".into()).spawn(move || {
            let setup = connection.setup_before(Phase::Offline)?;
            let (prepared, material) = connection.make_for(name, None)?;
            Ok((setup, prepared, material, connection))
        });
        let maker_thread = started.map_err(|e| ClientError::Usage(format!("cannot start a thread: {e}")))?;
        Ok(Announced { name, inputs, closer, maker_thread: Some(maker_thread) })
    }

    /// As [`infer_in`](Self::infer_in) for an announced input: waits for the material that is being
    /// made for it. If the server no longer knows the notice, the input is answered as an
    /// unannounced one.
    ///
    /// # Errors
    /// As [`infer_in`](Self::infer_in). An input that does not fit the model withdraws the notice.
    pub fn infer_announced(
        &mut self,
        announced: Announced,
        units: Units,
        input: &[f32],
    ) -> Result<Answer, ClientError> {
        let (answers, maker) = self.infer_announced_batch(announced, units, &[input.to_vec()], |_| ())?;
        maker.map_or(Ok(()), Self::close)?;
        Ok(only(answers))
    }

    /// As [`infer_announced`](Self::infer_announced) for an announced batch or a part of it; the
    /// unused rest of its material is burnt. Calls `claimed` when the material is made and before
    /// the online phase begins, so that the caller can announce the next batch. Returns the
    /// connection that made the material, if there was one, for the next announcement.
    ///
    /// # Errors
    /// As [`infer_announced`](Self::infer_announced); [`ClientError::Usage`] for no input, or more
    /// than were announced.
    pub fn infer_announced_batch(
        &mut self,
        announced: Announced,
        units: Units,
        inputs: &[Vec<f32>],
        claimed: impl FnOnce(&Self),
    ) -> Result<(Vec<Answer>, Option<Self>), ClientError> {
        let began = Instant::now();
        if !(1..=announced.inputs).contains(&inputs.len()) {
            let (given, size) = (inputs.len(), announced.inputs);
            return Err(ClientError::Usage(format!("{given} inputs, and {size} were announced")));
        }
        let mut together = self.together(units, inputs)?;
        self.set_batch(announced.inputs)?;
        self.fill_up(&mut together);
        let name = InputId::random()?;
        let asking = self.asking(name, Some(announced.name), None);
        let ignored = expect_reply!(self.channel_mut(), asking, Reply::Noted { notice_ignored } => notice_ignored);
        tracing::info!(input = %name, "was announced as input {}", announced.name);
        if let Some(why) = ignored {
            tracing::warn!("the input is treated as one that was not announced: {why}");
            drop(announced);
            return Ok((first_timed(self.answer_anew(name, None, &together)?, began, inputs.len()), None));
        }
        let (setup, prepared, material, maker) = announced.wait().expect("its thread is taken only here")?;
        claimed(self);
        let material = ClaimedMaterial::made(prepared.id, material);
        let answers = self.online(Asked::Before(name), Some(material), &together)?;
        Ok((first_timed(made_for(answers, setup, prepared), began, inputs.len()), Some(maker)))
    }
}

fn first_timed(mut answers: Vec<Answer>, began: Instant, count: usize) -> Vec<Answer> {
    answers.truncate(count);
    timed(answers, began)
}
