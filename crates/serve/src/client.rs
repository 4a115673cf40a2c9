//! The client library.
use crate::catalog::agreed;
use crate::measure::{Figures, Marks, Meter, PhaseReport};
use crate::session::{ANONYMOUS, paced};
use crate::wire::{PUBLIC, REQUEST, Reply, Request, misplaced, recv_reply, send};
use crate::{Engine, ModelInfo, ServeError};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tacit_graph::OutputMode;
use tacit_graph::file::{MAX_PUBLIC_BYTES, PublicModel, read_public};
use tacit_graph::reference::{dequantize_output, quantize_input};
use tacit_ids::MaterialId;
use tacit_mpc::Role;
use tacit_net::{Channel, Hello, NO_MODEL, Phase, Rate, TcpTransport, Transport, handshake};
use tacit_store::keys::ClientIdentity;
use tacit_store::{Binding, Entry, Store, StoreError};

/// How a client connects and works.
#[derive(Clone)]
pub struct ClientConfig {
    /// `host:port` of the server.
    pub address: String,
    /// TLS identity. `None` speaks plain TCP to a server that does too: tests only.
    pub identity: Option<ClientIdentity>,
    /// Name in the server's certificate, if it differs from the host in `address`.
    pub server_name: Option<String>,
    /// Folder of stored material; without one, material lives in memory only.
    pub store: Option<PathBuf>,
    /// Most bit/s that are sent; `None` as fast as the link takes them.
    pub pace: Option<Rate>,
    /// Threads for arithmetic.
    pub threads: usize,
    /// How long the server may make no progress.
    pub stall_timeout: Duration,
}

impl ClientConfig {
    /// Defaults for an address: no store, one thread, 5 minutes stall timeout.
    #[must_use]
    pub fn new(address: &str, identity: Option<ClientIdentity>) -> Self {
        Self {
            address: address.into(),
            identity,
            server_name: None,
            store: None,
            pace: None,
            threads: 1,
            stall_timeout: Duration::from_secs(300),
        }
    }

    fn server_name(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        self.server_name.as_deref().unwrap_or(host.trim_start_matches('[').trim_end_matches(']'))
    }
}

/// A connection on which no model is open yet.
pub struct Lobby<E: Engine> {
    engine: E,
    config: ClientConfig,
    channel: Channel,
}

/// Material that was made, and what that cost.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// Its name.
    pub id: MaterialId,
    /// Cost of the offline phase.
    pub offline: PhaseReport,
    /// Size of the client's and the server's half in bytes.
    pub bytes: [u64; 2],
}

/// The answer to one input.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Integers of the output node.
    pub integers: Vec<i64>,
    /// The model's real outputs; for a top-1 model the class index alone.
    pub values: Vec<f64>,
    /// The class with the largest output (the lowest of equals).
    pub class: usize,
    /// Cost of the online phase.
    pub online: PhaseReport,
    /// Cost of setup, where this answer needed it.
    pub setup: Option<PhaseReport>,
    /// The material made for this answer; `None` if stored material was used.
    pub prepared: Option<Prepared>,
}

/// A client with an open model.
pub struct Client<E: Engine> {
    engine: E,
    session: E::Session,
    public: Arc<PublicModel>,
    plan: E::Plan,
    binding: Binding,
    keys: Option<E::Keys>,
    store: Option<Store>,
    threads: ThreadPool,
    config: ClientConfig,
    name: String,
    marks: Marks,
}

impl<E: Engine> Lobby<E> {
    /// Connects, authenticates and agrees on version and parameters.
    ///
    /// # Errors
    /// The server cannot be reached, is not the right one, does not know this client, speaks another version, or is full.
    pub fn connect(engine: E, config: ClientConfig) -> Result<Self, ServeError> {
        let mut tcp = TcpTransport::connect(config.address.as_str(), Duration::from_secs(10))?;
        tcp.set_stall_timeout(config.stall_timeout)
            .map_err(|e| tacit_net::NetError::from_io("setting the stall timeout", &e))?;
        let transport: Box<dyn Transport> = match &config.identity {
            Some(identity) => Box::new(identity.tls.connect(tcp, config.server_name())?),
            None => Box::new(tcp),
        };
        let mut channel = Channel::new(paced(transport, config.pace));
        handshake(&mut channel, &Hello::new(engine.parameters(), NO_MODEL))?;
        match recv_reply(&mut channel, "the connection")? {
            Reply::Welcome => Ok(Self { engine, config, channel }),
            other => Err(misplaced("the greeting", &other)),
        }
    }

    /// The models on offer.
    ///
    /// # Errors
    /// Of the connection.
    pub fn models(&mut self) -> Result<Vec<ModelInfo>, ServeError> {
        match ask(&mut self.channel, &Request::List)? {
            Reply::Models(models) => Ok(models),
            other => Err(misplaced("the list of models", &other)),
        }
    }

    /// Opens a model for the rest of the connection: receives its public section and compiles it.
    ///
    /// # Errors
    /// The server has no such model (it names those it has), the public section does not pass its checks, or the parties compile it
    /// differently. The connection is closed then.
    pub fn open(mut self, name: &str) -> Result<Client<E>, ServeError> {
        let bytes = match ask(&mut self.channel, &Request::Open { model: name.into() })? {
            Reply::Model { bytes } if bytes <= MAX_PUBLIC_BYTES => bytes as usize,
            other => return Err(misplaced("the public section", &other)),
        };
        let public = read_public(&self.channel.recv_max(PUBLIC, bytes)?)?;
        let plan = self.engine.compile(&public.graph).map_err(engine_error)?;
        let plan_digest = self.engine.plan_digest(&plan);
        handshake(&mut self.channel, &Hello::new(agreed(self.engine.parameters(), plan_digest), public.digest))?;
        let client = self.config.identity.as_ref().map_or(ANONYMOUS, |i| i.fingerprint);
        let threads = ThreadPoolBuilder::new().num_threads(self.config.threads).build();
        Ok(Client {
            session: self.engine.session(Role::Client, self.channel).map_err(engine_error)?,
            binding: Binding { client, model: public.digest, plan: plan_digest },
            public: Arc::new(public),
            plan,
            keys: None,
            store: self.config.store.as_deref().map(|dir| Store::open(dir, None)).transpose()?,
            threads: threads
                .map_err(|e| ServeError::Usage(format!("cannot start {} threads: {e}", self.config.threads)))?,
            engine: self.engine,
            config: self.config,
            name: name.into(),
            marks: Marks::from_env("client"),
        })
    }
}

impl<E: Engine> Client<E> {
    /// The model's public section.
    #[must_use]
    pub fn public(&self) -> &PublicModel {
        &self.public
    }

    /// What this client's material for the model is bound to.
    #[must_use]
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// A second connection for the same model.
    ///
    /// # Errors
    /// As [`Lobby::connect`] and [`Lobby::open`].
    pub fn again(&self) -> Result<Self, ServeError> {
        Lobby::connect(self.engine.clone(), self.config.clone())?.open(&self.name)
    }

    /// Makes keys and base OTs, if this connection has none.
    ///
    /// # Errors
    /// Of the protocol or the connection; the client is useless afterwards. So for all phases.
    pub fn setup(&mut self) -> Result<Option<PhaseReport>, ServeError> {
        if self.keys.is_some() {
            return Ok(None);
        }
        self.begin(&Request::Setup)?;
        let meter = Meter::start(self.engine.channel(&mut self.session), Phase::Setup, &self.marks);
        let (engine, plan, session) = (&self.engine, &self.plan, &mut self.session);
        self.keys = Some(self.threads.install(|| engine.setup(plan, session)).map_err(engine_error)?);
        Ok(Some(self.end(meter, "the setup")?.0))
    }

    /// Makes material for one input and stores it at both parties.
    ///
    /// # Errors
    /// [`ServeError::Usage`] without a store, [`ServeError::Refused`] if the server has no room, and as [`setup`](Self::setup).
    pub fn prepare(&mut self) -> Result<Prepared, ServeError> {
        if self.store.is_none() {
            return Err(ServeError::Usage("storing material needs a folder for it".into()));
        }
        Ok(self.make(true)?.0)
    }

    /// Makes material that lives in memory, here and at the server.
    pub(crate) fn prepare_in_memory(&mut self) -> Result<(Prepared, E::Material), ServeError> {
        self.make(false)
    }

    fn make(&mut self, on_disk: bool) -> Result<(Prepared, E::Material), ServeError> {
        self.setup()?;
        let id = MaterialId::random()?;
        self.begin(&Request::Prepare { id, on_disk })?;
        let meter = Meter::start(self.engine.channel(&mut self.session), Phase::Offline, &self.marks);
        let (engine, plan, session) = (&self.engine, &self.plan, &mut self.session);
        let Some(keys) = &mut self.keys else {
            return Err(ServeError::Usage("the setup comes first".into()));
        };
        let material = self.threads.install(|| engine.offline(plan, keys, None, session)).map_err(engine_error)?;
        let bytes = engine.material_bytes(plan, Role::Client);
        let (offline, server_bytes) = self.end(meter, "to prepare material")?;
        // The server has its half, durably; if this fails, that half stays unused until it is discarded.
        if let (Some(store), true) = (&self.store, on_disk) {
            let bytes = self.engine.material_to_bytes(&self.plan, &material);
            store.put(id, self.binding, self.engine.name(), &bytes)?;
        }
        Ok((Prepared { id, offline, bytes: [bytes, server_bytes] }, material))
    }

    /// Stored material of this model that is ready at both parties, oldest first.
    ///
    /// # Errors
    /// Of the store or the connection.
    pub fn stored(&mut self) -> Result<Vec<Entry>, ServeError> {
        let Some(store) = &self.store else { return Ok(vec![]) };
        let ours = store.list(Some(self.binding))?;
        let theirs = self.stored_at_server()?;
        Ok(ours.into_iter().filter(|e| theirs.contains(&e.id)).collect())
    }

    /// Ids of this client's material for the model that the server has on disk.
    ///
    /// # Errors
    /// Of the connection.
    pub fn stored_at_server(&mut self) -> Result<Vec<MaterialId>, ServeError> {
        match ask(self.engine.channel(&mut self.session), &Request::Stored)? {
            Reply::Ids(ids) => Ok(ids),
            other => Err(misplaced("the list of material", &other)),
        }
    }

    /// Ids of this model's material that either party has on disk.
    ///
    /// # Errors
    /// Of the store or the connection.
    pub fn known_ids(&mut self) -> Result<Vec<MaterialId>, ServeError> {
        let mut ids = self.stored_at_server()?;
        let ours = self.store.as_ref().map(|s| s.list(Some(self.binding))).transpose()?.unwrap_or_default();
        ids.extend(ours.iter().map(|e| e.id).filter(|id| !ids.contains(id)).collect::<Vec<_>>());
        Ok(ids)
    }

    /// Destroys material at both parties; returns how many of them either party had.
    ///
    /// # Errors
    /// Of the store or the connection.
    pub fn discard(&mut self, ids: &[MaterialId]) -> Result<usize, ServeError> {
        let mut gone: Vec<MaterialId> = Vec::new();
        for part in ids.chunks(crate::wire::MAX_IDS) {
            let request = Request::Discard { ids: part.to_vec() };
            match ask(self.engine.channel(&mut self.session), &request)? {
                Reply::Ids(ids) => gone.extend(ids),
                other => return Err(misplaced("to destroy material", &other)),
            }
        }
        for id in ids {
            match self.store.as_ref().map(|s| s.discard_bound(*id, self.binding)) {
                Some(Ok(())) if !gone.contains(id) => gone.push(*id),
                Some(Err(StoreError::NoMaterial(_) | StoreError::Burnt(_)) | Ok(())) | None => {}
                Some(Err(e)) => return Err(e.into()),
            }
        }
        Ok(gone.len())
    }

    /// Answers one real-valued input (normalised as the model states), with stored material if there is any.
    ///
    /// # Errors
    /// The input does not fit the model, or as [`infer_integers`](Self::infer_integers).
    pub fn infer(&mut self, input: &[f32]) -> Result<Answer, ServeError> {
        let integers = quantize_input(&self.public.graph, input)?;
        self.infer_integers(&integers)
    }

    /// Answers one input given as integers of the input node, with stored material if there is any, else with new material.
    ///
    /// # Errors
    /// Of the store, the protocol or the connection. Material that was claimed is gone in any case.
    pub fn infer_integers(&mut self, input: &[i64]) -> Result<Answer, ServeError> {
        for entry in self.stored()? {
            match self.claim(entry.id) {
                Ok(material) => return self.online(entry.id, material, input),
                // Somebody else was faster, or the file is damaged (and burnt now): the next one will do.
                Err(ServeError::Store(
                    StoreError::Burnt(_) | StoreError::NoMaterial(_) | StoreError::Damaged { .. },
                )) => {}
                Err(e) => return Err(e),
            }
        }
        let setup = self.setup()?;
        let (prepared, material) = self.prepare_in_memory()?;
        let answer = self.online(prepared.id, material, input)?;
        Ok(Answer { setup, prepared: Some(prepared), ..answer })
    }

    fn claim(&self, id: MaterialId) -> Result<E::Material, ServeError> {
        let store = self.store.as_ref().ok_or(StoreError::NoMaterial(id))?;
        let bytes = store.claim(id, self.binding)?;
        let parsed = self.engine.material_from_bytes(&self.plan, Role::Client, &bytes);
        parsed.map_err(|e| StoreError::Damaged { id, what: e.to_string() }.into())
    }

    /// The online phase with material that this process owns.
    pub(crate) fn online(
        &mut self,
        id: MaterialId,
        material: E::Material,
        input: &[i64],
    ) -> Result<Answer, ServeError> {
        self.begin(&Request::Infer { id })?;
        let meter = Meter::start(self.engine.channel(&mut self.session), Phase::Online, &self.marks);
        let (engine, plan, session) = (&self.engine, &self.plan, &mut self.session);
        let integers =
            self.threads.install(|| engine.online_client(plan, material, input, session)).map_err(engine_error)?;
        let (online, _) = self.end(meter, "the inference")?;
        let values = dequantize_output(&self.public.graph, &integers);
        let class = match self.public.graph.spec().output_mode {
            OutputMode::Top1 => integers.first().map_or(0, |&c| c.max(0) as usize),
            OutputMode::Logits => first_largest(&integers),
        };
        Ok(Answer { integers, values, class, online, setup: None, prepared: None })
    }

    /// Tells the server that nothing more comes.
    ///
    /// # Errors
    /// Of the connection.
    pub fn close(mut self) -> Result<(), ServeError> {
        send(self.engine.channel(&mut self.session), REQUEST, &Request::Bye)
    }

    /// Asks for a phase; it runs when this returns.
    fn begin(&mut self, request: &Request) -> Result<(), ServeError> {
        match ask(self.engine.channel(&mut self.session), request)? {
            Reply::Go => Ok(()),
            other => Err(misplaced(request.name(), &other)),
        }
    }

    /// Ends a phase: this party's figures, then the server's.
    fn end(&mut self, meter: Meter, request: &'static str) -> Result<(PhaseReport, u64), ServeError> {
        let channel = self.engine.channel(&mut self.session);
        // The phase may end with this party's own message.
        channel.flush()?;
        let client: Figures = meter.stop(channel);
        channel.set_phase(Phase::Setup);
        match recv_reply(channel, request)? {
            Reply::Done { figures, material_bytes } => Ok((PhaseReport { client, server: figures }, material_bytes)),
            other => Err(misplaced(request, &other)),
        }
    }
}

fn ask(channel: &mut Channel, request: &Request) -> Result<Reply, ServeError> {
    send(channel, REQUEST, request)?;
    recv_reply(channel, request.name())
}

pub(crate) fn first_largest(values: &[i64]) -> usize {
    // `max_by_key` keeps the last of equals, so equals are ordered by falling index.
    (0..values.len()).max_by_key(|&i| (values[i], std::cmp::Reverse(i))).unwrap_or(0)
}

fn engine_error(error: impl std::error::Error + Send + Sync + 'static) -> ServeError {
    ServeError::Engine(Box::new(error))
}
