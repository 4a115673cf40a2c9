//! Announces waiting inputs to the server: the material of the next input is made, on a connection
//! of its own, during the online phase of the current one.
use crate::connector::Connector;
use crate::lane::{Key, Lane};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tacit_backends::Preparation;
use tacit_client::{Announced, Answer, Client, ClientError};
use tacit_graph::Units;

/// A worker's announcements, and the connections for them.
///
/// Nothing is announced before the current input has its material. So a worker never waits for a
/// place in the server's memory while it holds one that it does not use.
pub(crate) struct Ahead {
    lane: Arc<Lane>,
    connector: Connector,
    announced: Option<Announced>,
    /// Connections that make the material of the next announcements.
    makers: Vec<Client>,
    /// A connection that is being made.
    connecting: Option<JoinHandle<Result<Client, ClientError>>>,
}

impl Ahead {
    pub(crate) fn new(lane: &Arc<Lane>, connector: &Connector) -> Self {
        let mut connector = connector.clone();
        connector.config.store = None;
        Self { lane: Arc::clone(lane), connector, announced: None, makers: Vec::new(), connecting: None }
    }

    /// Whether to answer the next inputs through an announcement. True if they are announced
    /// already. Also true if further inputs wait, the back end needs material, the stock has none
    /// for them, and there is a connection.
    pub(crate) fn should_announce(&mut self, client: &Client, inputs: usize) -> Result<bool, ClientError> {
        let prepares = client.model().preparation() != Preparation::Nothing;
        let is_wanted = prepares && self.lane.waiting() > 0 && client.next_stored(inputs)?.is_none();
        Ok(self.announced.is_some() || is_wanted && self.has_maker())
    }

    /// Whether there is a connection for an announcement; if not, starts to make one.
    fn has_maker(&mut self) -> bool {
        if let Some(attempt) = self.connecting.take_if(|connecting| connecting.is_finished()) {
            match attempt.join() {
                Ok(Ok(maker)) => self.makers.push(maker),
                Ok(Err(error)) => tracing::debug!("inputs of model {} are not announced: {error}", self.lane.name()),
                // The log has the panic.
                Err(_) => {}
            }
        }
        if self.makers.is_empty() && self.connecting.is_none() {
            let (lane, connector) = (Arc::clone(&self.lane), self.connector.clone());
            let builder = thread::Builder::new().name("tacit-ahead".into());
            // If the thread cannot start, nothing is announced.
            self.connecting = builder.spawn(move || Ok(connector.open(&lane, &[])?.0)).ok();
        }
        !self.makers.is_empty()
    }

    /// Answers the first of these inputs, as many as were announced or are announced now; then
    /// announces the next.
    pub(crate) fn infer(
        &mut self,
        client: &mut Client,
        keys: &[Key],
        inputs: &[Vec<f32>],
    ) -> Result<Vec<Answer>, ClientError> {
        let Some(announced) = self.announced.take().or_else(|| self.announce(client, inputs.len())) else {
            return client.infer_next(Units::Normalised, inputs);
        };
        let (current, remaining) = inputs.split_at(inputs.len().min(announced.inputs()));
        keys.iter().take(current.len()).for_each(|key| self.lane.add_closer(*key, announced.closer()));
        let answered = client.infer_announced_batch(announced, Units::Normalised, current, |client| {
            let next = if remaining.is_empty() { self.lane.upcoming(client.max_batch()) } else { remaining.len() };
            if next > 0 && self.has_maker() {
                self.announced = self.announce(client, next);
            }
        });
        let (answers, maker) = answered?;
        self.makers.extend(maker);
        Ok(answers)
    }

    /// Announces `inputs` inputs, or as many of them as the server allows in a batch.
    fn announce(&mut self, client: &Client, inputs: usize) -> Option<Announced> {
        let mut maker = self.makers.pop()?;
        match maker.ask_batch(inputs).and_then(|_| client.announce_over(maker, None)) {
            Ok(announced) => Some(announced),
            Err(error) => {
                // The inputs are requested in their turn, without an announcement.
                tracing::debug!("inputs of model {} are not announced: {error}", self.lane.name());
                None
            }
        }
    }

    pub(crate) fn withdraw(&mut self) {
        self.announced = None;
    }
}
