//! One client's connection at the server.
use crate::catalog::{Served, agreed};
use crate::measure::Meter;
use crate::server::Shared;
use crate::wire::{MAX_IDS, PUBLIC, REPLY, Reply, Request, recv_request, send};
use crate::{Engine, ServeError};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;
use tacit_ids::{ClientId, MaterialId};
use tacit_mpc::Role;
use tacit_net::{Channel, Hello, NO_MODEL, NetError, PacedTransport, Phase, Rate, TcpTransport, Transport, handshake};
use tacit_store::{Binding, StoreError, keys};

/// Identity of clients without TLS.
pub(crate) const ANONYMOUS: ClientId = ClientId([0; 32]);

/// Serves a connection to its end. Errors end this session only.
pub(crate) fn serve_connection<E: Engine>(
    shared: &Shared<E>,
    stream: TcpStream,
    number: u64,
) -> Result<(), ServeError> {
    let (mut channel, client) = greet(shared, stream)?;
    tracing::info!(number, peer = channel.peer(), %client, "client connected");
    if !shared.admit(number) {
        let reason = "all places are taken; try again later".to_owned();
        send(&mut channel, REPLY, &Reply::Refused { reason: reason.clone() })?;
        return Err(ServeError::NotGranted(reason));
    }
    send(&mut channel, REPLY, &Reply::Welcome)?;
    shared.pool.enter(client);
    // Leaves also when the session panics: the client's material must not outlive its connections.
    let _presence = Presence { shared, client };
    let Some((channel, model)) = lobby(shared, channel, number)? else { return Ok(()) };
    let session = shared.engine.session(Role::Server, channel).map_err(engine)?;
    let threads = ThreadPoolBuilder::new().num_threads(shared.config.threads).build();
    let threads =
        threads.map_err(|e| ServeError::Usage(format!("cannot start {} threads: {e}", shared.config.threads)))?;
    let binding = Binding { client, model: model.digest, plan: model.plan_digest };
    Seat { shared, number, model, binding, session, keys: None, threads }.serve()
}

struct Presence<'a, E: Engine> {
    shared: &'a Shared<E>,
    client: ClientId,
}

impl<E: Engine> Drop for Presence<'_, E> {
    fn drop(&mut self) {
        self.shared.pool.leave(self.client);
    }
}

/// TLS and the opening handshake, all within the greeting timeout.
fn greet<E: Engine>(shared: &Shared<E>, stream: TcpStream) -> Result<(Channel, ClientId), ServeError> {
    let deadline = Instant::now() + shared.config.greeting_timeout;
    let mut tcp = TcpTransport::new(stream)?;
    tcp.set_deadline(Some(deadline));
    let (transport, client): (Box<dyn Transport>, _) = match &shared.config.tls {
        None => (Box::new(tcp), ANONYMOUS),
        Some(tls) => {
            let transport = tls.accept(tcp)?;
            let certificate = transport.peer_certificate();
            let certificate = certificate.ok_or_else(|| NetError::Tls("the client has no certificate".into()))?;
            let client = keys::fingerprint(certificate);
            (Box::new(transport), client)
        }
    };
    let mut channel = Channel::new(paced(transport, shared.config.pace));
    handshake(&mut channel, &Hello::new(shared.engine.parameters(), NO_MODEL))?;
    channel.set_deadline(None);
    Ok((channel, client))
}

/// Holds back what is sent over `transport` where a rate was asked for.
pub(crate) fn paced(transport: Box<dyn Transport>, pace: Option<Rate>) -> Box<dyn Transport> {
    match pace {
        Some(rate) => Box::new(PacedTransport::new(transport, rate)),
        None => transport,
    }
}

/// A channel whose client has opened a model.
type Opened<E> = Option<(Channel, Arc<Served<E>>)>;

/// Until the client has opened a model; `None` if it leaves before.
fn lobby<E: Engine>(shared: &Shared<E>, mut channel: Channel, number: u64) -> Result<Opened<E>, ServeError> {
    loop {
        let reply = match next_request(shared, &mut channel, number)? {
            None | Some(Request::Bye) => return Ok(None),
            Some(Request::List) => Reply::Models(shared.models()),
            Some(Request::Open { model }) => match shared.model(&model) {
                Ok(model) => {
                    send(&mut channel, REPLY, &Reply::Model { bytes: model.public.len() as u64 })?;
                    channel.send(PUBLIC, &model.public)?;
                    let hello = Hello::new(agreed(shared.engine.parameters(), model.plan_digest), model.digest);
                    handshake(&mut channel, &hello)?;
                    return Ok(Some((channel, model)));
                }
                Err(e) => Reply::Refused { reason: e.to_string() },
            },
            Some(other) => {
                Reply::Refused { reason: format!("no model is open, which {} needs: open one first", other.name()) }
            }
        };
        send(&mut channel, REPLY, &reply)?;
    }
}

/// The next request, waiting as long as an idle client may; `None` when the client or the server is done.
fn next_request<E: Engine>(
    shared: &Shared<E>,
    channel: &mut Channel,
    number: u64,
) -> Result<Option<Request>, ServeError> {
    shared.set_idle(number, true);
    // After the note: a shutdown that missed it is seen here.
    if shared.stopping() {
        return Ok(None);
    }
    channel.set_phase(Phase::Setup);
    channel.set_stall_timeout(shared.config.idle_timeout)?;
    let request = recv_request(channel);
    shared.set_idle(number, false);
    let request = match request {
        // Leaving without a goodbye between two requests harms nobody.
        Err(ServeError::Net(NetError::Closed { .. })) => return Ok(None),
        other => other?,
    };
    channel.set_stall_timeout(shared.config.stall_timeout)?;
    Ok(Some(request))
}

/// A client with an open model.
struct Seat<'a, E: Engine> {
    shared: &'a Shared<E>,
    number: u64,
    model: Arc<Served<E>>,
    binding: Binding,
    session: E::Session,
    keys: Option<E::Keys>,
    threads: ThreadPool,
}

impl<E: Engine> Seat<'_, E> {
    fn serve(mut self) -> Result<(), ServeError> {
        loop {
            let channel = self.shared.engine.channel(&mut self.session);
            let Some(request) = next_request(self.shared, channel, self.number)? else { return Ok(()) };
            let name = request.name();
            let reply = match request {
                Request::Bye => return Ok(()),
                Request::List => Ok(Reply::Models(self.shared.models())),
                Request::Open { .. } => Err(ServeError::NotGranted("a model is open already: connect again".into())),
                Request::Setup => self.setup(),
                Request::Prepare { id, on_disk } => self.prepare(id, on_disk),
                Request::Infer { id } => self.infer(id),
                Request::Stored => self.stored(),
                Request::Discard { ids } => self.discard(&ids),
            };
            let reply = match reply {
                Ok(reply) => reply,
                Err(e) if breaks_session(&e) => return Err(e),
                Err(e) => {
                    tracing::warn!("refused {name}: {e}");
                    Reply::Refused { reason: reason(&e) }
                }
            };
            self.say(&reply)?;
        }
    }

    fn say(&mut self, reply: &Reply) -> Result<(), ServeError> {
        send(self.shared.engine.channel(&mut self.session), REPLY, reply)
    }

    fn setup(&mut self) -> Result<Reply, ServeError> {
        self.say(&Reply::Go)?;
        let (engine_ref, model) = (&self.shared.engine, &self.model);
        let meter = Meter::start(engine_ref.channel(&mut self.session), Phase::Setup, &self.shared.marks);
        let session = &mut self.session;
        let keys = self.threads.install(|| engine_ref.setup(&model.plan, session)).map_err(engine)?;
        self.keys = Some(keys);
        self.done(meter, 0)
    }

    fn prepare(&mut self, id: MaterialId, on_disk: bool) -> Result<Reply, ServeError> {
        self.check_room(id, on_disk)?;
        let Some(keys) = &mut self.keys else {
            return Err(ServeError::NotGranted("the setup comes first".into()));
        };
        let (engine_ref, model, session) = (&self.shared.engine, &self.model, &mut self.session);
        send(engine_ref.channel(session), REPLY, &Reply::Go)?;
        let meter = Meter::start(engine_ref.channel(session), Phase::Offline, &self.shared.marks);
        let made = self.threads.install(|| engine_ref.offline(&model.plan, keys, Some(&model.weights), session));
        let material = made.map_err(engine)?;
        let bytes = engine_ref.material_bytes(&model.plan, Role::Server);
        match (&self.shared.store, on_disk) {
            (Some(store), true) => {
                let bytes = engine_ref.material_to_bytes(&model.plan, &material);
                store.put(id, self.binding, engine_ref.name(), &bytes)?;
            }
            _ => self.shared.pool.put(id, self.binding, material),
        }
        self.done(meter, bytes)
    }

    fn check_room(&self, id: MaterialId, on_disk: bool) -> Result<(), ServeError> {
        if !on_disk {
            return self.shared.pool.check_room(id, self.binding.client);
        }
        let Some(store) = &self.shared.store else {
            return Err(ServeError::NotGranted("this server stores no material".into()));
        };
        let stored = store.ready_count(self.binding.client)?;
        if stored >= self.shared.config.stored_per_client as u64 {
            return Err(ServeError::NotGranted(format!("{stored} materials are stored for you: use or discard some")));
        }
        Ok(())
    }

    fn infer(&mut self, id: MaterialId) -> Result<Reply, ServeError> {
        let (engine_ref, model) = (&self.shared.engine, &self.model);
        let material = match self.shared.pool.take(id, self.binding)? {
            Some(material) => material,
            None => {
                let store = self.shared.store.as_ref().ok_or(StoreError::NoMaterial(id))?;
                // Claimed and burnt, durably, when this returns: before the first byte of the online phase.
                let bytes = store.claim(id, self.binding)?;
                engine_ref
                    .material_from_bytes(&model.plan, Role::Server, &bytes)
                    .map_err(|e| StoreError::Damaged { id, what: e.to_string() })?
            }
        };
        let session = &mut self.session;
        send(engine_ref.channel(session), REPLY, &Reply::Go)?;
        let meter = Meter::start(engine_ref.channel(session), Phase::Online, &self.shared.marks);
        let online = || engine_ref.online_server(&model.plan, material, &model.weights, session);
        self.threads.install(online).map_err(engine)?;
        self.shared.count_served();
        self.done(meter, 0)
    }

    fn done(&mut self, meter: Meter, material_bytes: u64) -> Result<Reply, ServeError> {
        let channel = self.shared.engine.channel(&mut self.session);
        // The phase may end with this party's own message.
        channel.flush()?;
        Ok(Reply::Done { figures: meter.stop(channel), material_bytes })
    }

    fn stored(&self) -> Result<Reply, ServeError> {
        let Some(store) = &self.shared.store else { return Ok(Reply::Ids(vec![])) };
        let entries = store.list(Some(self.binding))?;
        Ok(Reply::Ids(entries.iter().take(MAX_IDS).map(|e| e.id).collect()))
    }

    /// Destroys what there is; answers with the ids that are gone.
    fn discard(&self, ids: &[MaterialId]) -> Result<Reply, ServeError> {
        let mut gone = Vec::new();
        for id in ids {
            let in_memory = self.shared.pool.take(*id, self.binding)?.is_some();
            match self.shared.store.as_ref().map(|store| store.discard_bound(*id, self.binding)) {
                None | Some(Err(StoreError::NoMaterial(_) | StoreError::Burnt(_))) if in_memory => gone.push(*id),
                Some(Ok(())) => gone.push(*id),
                None | Some(Err(StoreError::NoMaterial(_) | StoreError::Burnt(_))) => {}
                Some(Err(e)) => return Err(e.into()),
            }
        }
        Ok(Reply::Ids(gone))
    }
}

/// Whether the connection is in an unknown state after this error.
fn breaks_session(error: &ServeError) -> bool {
    matches!(error, ServeError::Net(_) | ServeError::Engine(_) | ServeError::Unexpected { .. })
}

/// What the client is told: its own mistakes in full, the server's troubles not.
fn reason(error: &ServeError) -> String {
    match error {
        ServeError::Store(error) if !error.about_material() => "the server's material store failed".into(),
        ServeError::File { .. } | ServeError::Content { .. } => "the server failed".into(),
        other => other.to_string(),
    }
}

fn engine(error: impl std::error::Error + Send + Sync + 'static) -> ServeError {
    ServeError::Engine(Box::new(error))
}
