//! A client with an open model.
mod batch;
mod helped;
mod make;
mod progress;

pub use helped::{FetchedMaterial, HelperDelivery};
pub use progress::{Progress, Step};

use crate::answer::{Answer, BatchPart, made_for, only};
use crate::ask::{answered, ask_both, ask_for, broken_off, expect_reply};
use crate::claimed::{Asked, ClaimedMaterial};
use crate::measure::{Marks, Meter, PhaseReport};
use crate::stock::{self, Stock};
use crate::wire::{Ask, InputId, REQUEST, Reply, Request, Terms, misplaced, send};
use crate::{ClientConfig, ClientError, Closer};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tacit_backends::{BackendError, ClientModel, ClientSide, FaintInput, Material, Preparation, Registry, Setup};
use tacit_graph::{Interface, OutputMode, Units};
use tacit_ids::MaterialId;
use tacit_net::{Channel, Phase};
use tacit_store::{Binding, Entry, StoreError};

/// How long a server may take, after a request's time is over, to report that.
const OVERDUE_GRACE: Duration = Duration::from_secs(60);

/// A client with an open model.
pub struct Client {
    pub(crate) registry: Registry,
    pub(crate) config: ClientConfig,
    channel: Channel,
    closer: Arc<Closer>,
    /// The model for one input.
    one: Arc<dyn ClientModel>,
    /// The model for the current batch size.
    model: Arc<dyn ClientModel>,
    side: Box<dyn ClientSide>,
    model_name: String,
    backend: String,
    binding: Binding,
    is_set_up: bool,
    material_bytes: u64,
    stock: Option<Stock>,
    threads: ThreadPool,
    marks: Marks,
    pub(crate) terms: Terms,
    progress: Option<Arc<Progress>>,
    /// Bytes of the current phase that were not sent because the server already had them.
    spared: Arc<AtomicU64>,
}

/// A connection on which a model was opened.
pub(crate) struct ConnectionParts {
    pub(crate) registry: Registry,
    pub(crate) config: ClientConfig,
    pub(crate) channel: Channel,
    pub(crate) closer: Arc<Closer>,
    pub(crate) stock: Option<Stock>,
}

impl Client {
    /// A client of the opened `model`; `public` is the digest of its public part.
    pub(crate) fn new(
        parts: ConnectionParts,
        model: Arc<dyn ClientModel>,
        model_name: String,
        backend: String,
        public: [u8; 32],
    ) -> Result<Self, ClientError> {
        let ConnectionParts { registry, config, channel, closer, stock } = parts;
        let threads = ThreadPoolBuilder::new().num_threads(config.threads).build();
        let resources = config.resources.stopped_by(&closer.stop);
        Ok(Self {
            registry,
            channel,
            side: Arc::clone(&model).connect(&resources)?,
            spared: resources.spared,
            closer,
            model_name,
            backend,
            binding: Binding { client: config.identity.fingerprint, model: public, plan: model.digest() },
            is_set_up: false,
            material_bytes: model.costs().offline.client.stored_bytes,
            one: Arc::clone(&model),
            model,
            stock,
            threads: threads
                .map_err(|e| ClientError::Usage(format!("cannot start {} threads: {e}", config.threads)))?,
            config,
            marks: Marks::from_env("client"),
            terms: Terms::default(),
            progress: None,
        })
    }

    /// The lowered model for the current batch size: plan, costs, numerics, description.
    #[must_use]
    pub fn model(&self) -> &dyn ClientModel {
        &*self.model
    }

    /// Shapes, ranges and output of the model.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        self.model.interface()
    }

    /// Ends the connection from another thread.
    #[must_use]
    pub fn closer(&self) -> Arc<Closer> {
        Arc::clone(&self.closer)
    }

    /// Counts the bytes that the connection moves, for a thread that shows progress.
    #[must_use]
    pub fn moved(&self) -> Arc<AtomicU64> {
        self.channel.transferred_bytes()
    }

    /// Name of the model at the server.
    #[must_use]
    pub fn model_name(&self) -> &str {
        &self.model_name
    }

    /// Name of the back end in use.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Sets the terms of all later inputs: how long the answer may take, how soon it is needed.
    pub fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
        // The client does not wait for a server that fails to withdraw a request in time.
        let over = terms.timeout_ms.map(|ms| Duration::from_millis(ms).saturating_add(OVERDUE_GRACE));
        self.channel.set_patience(over.map_or(self.config.patience, |over| over.min(self.config.patience)));
    }

    /// The binding of this client's material for the model at the current batch size.
    #[must_use]
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// Makes the connection's keys, if the back end has a setup that has not run. Phases that need
    /// it run it themselves.
    ///
    /// # Errors
    /// Errors of the protocol or the connection; the client is unusable afterwards. This holds for
    /// all phases.
    pub fn setup(&mut self) -> Result<Option<PhaseReport>, ClientError> {
        if self.is_set_up || self.model.setup() == Setup::Nothing {
            return Ok(None);
        }
        let ((), report, _) =
            self.phase(Phase::Setup, None, &Request::Setup, |side, channel| Ok(side.setup(channel)?))?;
        self.is_set_up = true;
        Ok(Some(report))
    }

    pub(crate) fn setup_before(&mut self, phase: Phase) -> Result<Option<PhaseReport>, ClientError> {
        match (self.model.setup(), phase) {
            (Setup::BeforeOffline, Phase::Offline) | (Setup::BeforeOnline, Phase::Online) => self.setup(),
            _ => Ok(None),
        }
    }

    pub(crate) fn channel_mut(&mut self) -> &mut Channel {
        &mut self.channel
    }

    pub(crate) fn asking(&self, name: InputId, notice: Option<InputId>, material: Option<MaterialId>) -> Request {
        Request::Ask(Ask { name, notice, material, terms: self.terms })
    }

    /// Whether inputs need material.
    ///
    /// # Errors
    /// [`ClientError::NoDealer`].
    pub(crate) fn needs_material(&self) -> Result<bool, ClientError> {
        match self.model.preparation() {
            Preparation::TwoParty => Ok(true),
            Preparation::Nothing => Ok(false),
            Preparation::Dealt if self.config.resources.dealer.is_some() => Ok(true),
            Preparation::Dealt => Err(ClientError::NoDealer { backend: self.backend.clone() }),
        }
    }

    /// Lists stored material of this model that is ready at both parties, for the current batch
    /// size, oldest first.
    ///
    /// # Errors
    /// Errors of the store or the connection.
    pub fn list_stored(&mut self) -> Result<Vec<Entry>, ClientError> {
        let Some(stock) = &self.stock else { return Ok(vec![]) };
        let ours = stock.ready(self.binding)?;
        if ours.is_empty() {
            return Ok(vec![]);
        }
        let theirs = self.stored_at_server()?;
        Ok(ours.into_iter().filter(|e| theirs.contains(&e.id)).collect())
    }

    /// Lists ids of this client's material for the model that the server has on disk.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn stored_at_server(&mut self) -> Result<Vec<MaterialId>, ClientError> {
        Ok(expect_reply!(&mut self.channel, Request::Stored, Reply::Ids(ids) => ids))
    }

    /// Destroys material of this client at both parties, for any model. Returns how many of the ids
    /// either party had.
    ///
    /// # Errors
    /// Errors of the store or the connection.
    pub fn discard(&mut self, ids: &[MaterialId]) -> Result<usize, ClientError> {
        stock::discard(self.stock.as_ref(), ids, &mut self.channel)
    }

    /// Answers one real-valued input of the ONNX network, with stored material if there is any,
    /// else with new material.
    ///
    /// # Errors
    /// The input does not fit the model (nothing was sent or used then); errors of the store, the
    /// protocol or the connection. Stored material is used up only when the server begins the
    /// online phase: a refusal costs none.
    pub fn infer(&mut self, input: &[f32]) -> Result<Answer, ClientError> {
        self.infer_in(Units::Network, input)
    }

    /// As [`infer`](Self::infer), with an input in the given units: pixels, or the normalised
    /// input ([`input::read`](crate::input::read) returns that).
    ///
    /// # Errors
    /// As [`infer`](Self::infer).
    pub fn infer_in(&mut self, units: Units, input: &[f32]) -> Result<Answer, ClientError> {
        let asked = Instant::now();
        let answer = self.answer(&self.interface().accept(input, units)?)?;
        Ok(Answer { request_to_answer_s: asked.elapsed().as_secs_f64(), ..answer })
    }

    fn answer(&mut self, input: &[f32]) -> Result<Answer, ClientError> {
        self.set_batch(1)?;
        Ok(only(self.answers(input)?))
    }

    /// Answers all inputs of the current batch, given as normalised input, with stored
    /// material of that batch size if there is any.
    pub(crate) fn answers(&mut self, input: &[f32]) -> Result<Vec<Answer>, ClientError> {
        let name = InputId::random()?;
        if !self.needs_material()? {
            return self.online(Asked::Now(name), None, input);
        }
        for entry in self.list_stored()? {
            let Some(stock) = &self.stock else { break };
            match ClaimedMaterial::picked(stock.store(), &*self.side, self.binding, entry.id) {
                Ok(Some(claimed)) => return self.online(Asked::Now(name), Some(claimed), input),
                // Another process claimed it first, or the file is damaged: try the next one.
                Ok(None) | Err(StoreError::Burnt(_) | StoreError::NoMaterial(_) | StoreError::Damaged { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let asking = self.asking(name, None, None);
        self.answer_anew(name, Some(&asking), input)
    }

    /// Answers the inputs of a batch with new material. `first` asks for them, unless an earlier
    /// request did.
    pub(crate) fn answer_anew(
        &mut self,
        name: InputId,
        first: Option<&Request>,
        input: &[f32],
    ) -> Result<Vec<Answer>, ClientError> {
        let setup = self.setup_before(Phase::Offline)?;
        let (prepared, material) = self.make_for(name, first)?;
        let answers = self.online(Asked::Before(name), Some(ClaimedMaterial::made(prepared.id, material)), input)?;
        Ok(made_for(answers, setup, prepared))
    }

    /// Runs the online phase on all inputs of the current batch, with the given material. Claims
    /// stored material when the phase begins, before any of it is sent.
    pub(crate) fn online(
        &mut self,
        asked: Asked,
        claimed: Option<ClaimedMaterial>,
        input: &[f32],
    ) -> Result<Vec<Answer>, ClientError> {
        let began = Instant::now();
        let setup = self.setup_before(Phase::Online)?;
        let id = claimed.as_ref().map(|claimed| claimed.id);
        let (name, first) = match asked {
            Asked::Now(name) => (name, Some(self.asking(name, None, id))),
            Asked::Before(name) => (name, None),
        };
        let request = Request::Infer { id, of: Some(name) };
        let (revealed, online, _) = self.phase(Phase::Online, first.as_ref(), &request, |side, channel| {
            let material = claimed.map_or_else(|| Ok(Material::nothing()), ClaimedMaterial::used_up)?;
            Ok(side.online(channel, material, input)?)
        })?;
        let request_to_answer_s = began.elapsed().as_secs_f64();
        let interface = self.interface();
        let inputs = self.model.batch();
        let unit = self.model.input_unit();
        let given = input.chunks(interface.input_len());
        let pairs = revealed.chunks(interface.output_len()).enumerate().zip(given);
        let answers = pairs.map(|((place, revealed), input)| {
            let class = class_told(interface, revealed)?;
            let (values, revealed) = (interface.finish(revealed), revealed.to_vec());
            let faint = unit.and_then(|unit| FaintInput::detect(input, unit));
            let (part, prepared) = (BatchPart { index: place, inputs }, None);
            Ok(Answer { name, values, class, revealed, faint, online, part, setup, request_to_answer_s, prepared })
        });
        answers.collect()
    }

    /// Tells the server that the connection ends.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn close(mut self) -> Result<(), ClientError> {
        Ok(send(&mut self.channel, REQUEST, &Request::Bye)?)
    }

    /// Requests a phase, after the requests in `first`, and runs it in this client's threads.
    /// Returns the result, both parties' figures and the bytes that the server stores.
    fn phase<T: Send>(
        &mut self,
        phase: Phase,
        first: Option<&Request>,
        request: &Request,
        work: impl FnOnce(&mut dyn ClientSide, &mut Channel) -> Result<T, ClientError> + Send,
    ) -> Result<(T, PhaseReport, u64), ClientError> {
        let done = self.run_phase(phase, first, request, work);
        self.progress.iter().for_each(|progress| progress.ends(phase, done.is_ok()));
        // The server's log and records have the same name.
        let input = request.input().map_or_else(|| "none".to_owned(), |name| name.to_string());
        let (model, backend) = (&self.model_name, &self.backend);
        match &done {
            Ok((_, report, _)) => {
                let seconds = report.client.wall_s;
                tracing::info!(%input, %model, %backend, "{} done in {seconds:.3} s", phase.name());
            }
            Err(e) => tracing::info!(%input, %model, %backend, "{} failed: {e}", phase.name()),
        }
        done
    }

    fn run_phase<T: Send>(
        &mut self,
        phase: Phase,
        first: Option<&Request>,
        request: &Request,
        work: impl FnOnce(&mut dyn ClientSide, &mut Channel) -> Result<T, ClientError> + Send,
    ) -> Result<(T, PhaseReport, u64), ClientError> {
        let (side, channel, progress) = (&mut *self.side, &mut self.channel, &self.progress);
        let waits = |queued| progress.iter().for_each(|progress| progress.waits(queued));
        let reply = match first {
            None => ask_for(channel, request, &waits),
            Some(first) => ask_both(channel, first, request, &waits),
        };
        match reply? {
            Reply::Go => {}
            other => return Err(misplaced(request.name(), &other).into()),
        }
        if let Some(progress) = &self.progress {
            progress.begins(phase, channel.transferred_bytes(), Arc::clone(&self.spared), &self.model.costs());
        }
        let meter = Meter::start(channel, phase, &self.marks);
        let done = self.threads.install(|| work(side, channel));
        if let Err(ClientError::Store(_) | ClientError::Backend(BackendError::Spool { .. })) = &done {
            // The server waits for messages that this client cannot send.
            self.closer.cut();
        }
        let done = match done {
            // Ends the phase as usual: the server must not learn which answers are refused.
            Err(e) if e.refuses_answer() => Err(e),
            done => Ok(done.map_err(|e| broken_off(channel, e, request.name()))?),
        };
        // The phase may end with this party's own message.
        channel.flush().map_err(|e| ClientError::from(e).of(channel, request.name()))?;
        let client = meter.stop(channel);
        channel.set_phase(Phase::Setup);
        match answered(channel, request.name())? {
            Reply::Done { figures, material_bytes } => {
                Ok((done?, PhaseReport { client, server: figures }, material_bytes))
            }
            other => Err(misplaced(request.name(), &other).into()),
        }
    }
}

/// The class of a revealed answer; the first of equal outputs.
fn class_told(interface: &Interface, revealed: &[f64]) -> Result<usize, ClientError> {
    let best = tacit_floats::first_largest(revealed);
    let best = best.ok_or_else(|| ClientError::NoNumber { model: interface.name.clone() })?;
    Ok(match interface.output_mode {
        // The cast saturates.
        OutputMode::Top1 => revealed[best] as usize,
        OutputMode::Logits => best,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_graph::{InputSpec, Interval};

    #[test]
    fn rejects_nan_answers() {
        let input = InputSpec::plain(Interval { low: -1.0, high: 1.0 });
        let mut interface = Interface {
            name: "m".into(),
            input_shape: vec![1],
            input,
            output_shape: vec![3],
            output_mode: OutputMode::Logits,
            outputs: vec![],
            final_activation: None,
        };
        assert_eq!(class_told(&interface, &[1.0, 2.0, 2.0]).unwrap(), 1);
        for revealed in [[f64::NAN, 1.0, 2.0], [1.0, 2.0, -f64::NAN]] {
            assert!(class_told(&interface, &revealed).unwrap_err().to_string().contains("model `m`"));
        }
        interface.output_mode = OutputMode::Top1;
        assert_eq!(class_told(&interface, &[7.0]).unwrap(), 7);
        assert!(class_told(&interface, &[f64::NAN]).is_err());
    }
}
