//! Jobs: each carries out one request of one connection, in a thread that may block. The job owns
//! the connection meanwhile.
use crate::ServeError;
use crate::accept::closer::Closer;
use crate::accept::identity::CertificateIdentity;
use crate::accept::refusal_reasons::DEVIATED;
use crate::jobs::event::{Decision, Event, Grant, Open, Turn};
use crate::jobs::queue::{InputOrigin, JobEnd};
use crate::jobs::quota::QuotaCharge;
use crate::models::catalog::Offered;
use crate::ops::record::Measured;
use crate::session::client_keys::ClientKeyStore;
use crate::session::pooled::{FromPool, Pooled, PooledSlot};
use crate::shared::Shared;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use tacit_admission::{ConnectionId, RefusalReason};
use tacit_arith::heap::Account;
use tacit_backends::seam::{Dealer, Stop};
use tacit_backends::{BackendError, Material, Preparation, ServerSide, Setup};
use tacit_client::measure::Meter;
use tacit_client::wire::{Device, PUBLIC, REPLY, Reply, Request, send};
use tacit_ids::{ClientId, FolderId, MaterialId};
use tacit_net::{Channel, Hello, Phase, handshake};
use tacit_store::{Binding, Claimed, MAX_IN_MEMORY_BYTES, Origin, Reserved, StoreError};

pub(crate) struct Connection {
    client: ClientId,
    /// The helper that asks in the client's place.
    helper: Option<ClientId>,
    peer_name: String,
    pub(crate) channel: Channel,
    open: Option<Opened>,
    stop: Stop,
    /// Measurements of the last job; taken out when recorded.
    pub(crate) measured: Option<Measured>,
}

pub(crate) struct Opened {
    offered: Arc<Offered>,
    side: Box<dyn ServerSide>,
    pub(crate) binding: Binding,
    device: Device,
    is_set_up: bool,
    /// Pooled material for the next offline phase.
    pooled_slot: PooledSlot,
}

impl Connection {
    pub(crate) fn new(identity: &CertificateIdentity, mut channel: Channel) -> Self {
        // No patience: a peer that sends only signs of life would hold its job's cores and memory.
        channel.set_patience(Duration::ZERO);
        let (client, helper, peer_name) = (identity.client, identity.helper, identity.to_string());
        Self { client, helper, peer_name, channel, open: None, stop: Stop::default(), measured: None }
    }

    /// Returns what ends the connection and its running phase; `stream` is its socket.
    pub(crate) fn closer(&self, stream: TcpStream) -> Closer {
        Closer::new(stream, self.stop.clone())
    }

    pub(crate) fn offered(&self) -> Option<&Arc<Offered>> {
        self.open.as_ref().map(|open| &open.offered)
    }

    /// The open model, with what the driver needs to know of it.
    pub(crate) fn open(&self) -> Option<Open> {
        let Opened { offered, binding, device, .. } = self.open.as_ref()?;
        let origin = InputOrigin { client: self.client, offered: Arc::clone(offered), device: *device };
        Some(Open { binding: *binding, origin })
    }
}

/// Carries out a decision. The driver learns how a scheduled job ended before the client does,
/// whose next request may arrive on another connection. Fails if the connection is of no further
/// use.
pub(crate) fn run(
    shared: &Shared,
    number: ConnectionId,
    connection: &mut Connection,
    decision: Decision,
) -> Result<(), ServeError> {
    let mut end = None;
    let (name, result) = match decision {
        Decision::Start(grant) => {
            if grant.request.is_phase() {
                end = Some(JobEnd::Failed);
            }
            let account = Account::open().map(Arc::new);
            // Until `visit` is dropped, this thread's memory counts as the job's.
            let visit = account.as_deref().map(Account::visit);
            let name = grant.request.name();
            let result = Job { shared, connection, account: account.clone() }.answer(*grant);
            drop(visit);
            (name, result)
        }
        Decision::Refuse(why) => ("a request", Err(why)),
        Decision::Close => return Ok(()),
    };
    let reply = match result {
        Ok(Outcome::AlreadyReplied) => None,
        Ok(Outcome::Reply(reply)) => Some(reply),
        Ok(Outcome::Phase(reply, how)) => {
            end = Some(how);
            Some(reply)
        }
        Err(e) if breaks_connection(&e) => {
            if let ServeError::Backend(error) = &e
                && let Some(fault) = error.deviation()
            {
                let (client, peer) = (&connection.peer_name, connection.channel.peer());
                shared.count_refusal(DEVIATED, None, format!("{name} of client {client} at {peer}: {e}"));
                shared.tell(Event::Deviated { number, fault });
            }
            return Err(e);
        }
        Err(e) => {
            let (client, peer) = (&connection.peer_name, connection.channel.peer());
            shared.count_refusal(kind(&e), None, format!("{name} of client {client} at {peer}: {e}"));
            Some(Reply::Refused { reason: reason(&e), again_s: again_s(&e) })
        }
    };
    if let Some(end) = end {
        shared.tell(Event::Over { number, end });
    }
    if let Some(reply) = reply {
        send(&mut connection.channel, REPLY, &reply)?;
    }
    Ok(connection.channel.settle()?)
}

/// Fails if the connection is of no further use.
pub(crate) fn send_sign_of_life(connection: &mut Connection, queued: u32) -> Result<(), ServeError> {
    send(&mut connection.channel, REPLY, &Reply::Waiting { queued })?;
    Ok(connection.channel.settle()?)
}

/// Whether the connection is in an unknown state after this error.
fn breaks_connection(error: &ServeError) -> bool {
    matches!(error, ServeError::Net(_) | ServeError::Backend(_) | ServeError::Unexpected { .. })
}

/// The farewell to a client whose phase failed for a reason of the server's own.
pub(crate) fn farewell(error: &ServeError) -> Option<&'static str> {
    match error {
        ServeError::Backend(BackendError::Dealer { .. }) => Some(
            "the dealer that its material comes from cannot be reached, or refuses: the server's log says more. Ask again \
             when the dealer is there",
        ),
        _ => None,
    }
}

fn kind(error: &ServeError) -> RefusalReason {
    match error {
        ServeError::OverLimit { kind, .. } => kind,
        _ => "requests that were not granted",
    }
}

/// The client's own mistakes in full, the server's failures without details.
fn reason(error: &ServeError) -> String {
    match error {
        ServeError::Store(e) if !e.about_material() => "the server's material store failed".into(),
        ServeError::System { .. } | ServeError::State { .. } | ServeError::Usage(_) => {
            "the server cannot do this now".into()
        }
        error => error.to_string(),
    }
}

fn again_s(error: &ServeError) -> Option<u64> {
    match error {
        ServeError::OverLimit { again_s, .. } => Some(*again_s),
        _ => None,
    }
}

pub(crate) fn refuse<T>(text: impl Into<String>) -> Result<T, ServeError> {
    Err(ServeError::NotGranted(text.into()))
}

enum Outcome {
    /// The reply has been sent, or the request has none.
    AlreadyReplied,
    /// This reply must still be sent.
    Reply(Reply),
    /// This reply to a scheduled phase must still be sent.
    Phase(Reply, JobEnd),
}

pub(crate) struct Job<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) connection: &'a mut Connection,
    /// Counts the job's memory; `None` if no account was free.
    account: Option<Arc<Account>>,
}

impl<'a> Job<'a> {
    fn answer(&mut self, grant: Grant) -> Result<Outcome, ServeError> {
        let Grant { request, turn, material, pooled, charge, destroyed, notice_ignored } = grant;
        let reply = match request {
            Request::List => self.list_models(),
            Request::Open { model, backend, device } => return self.open(&model, &backend, device),
            Request::Setup => self.set_up(turn)?,
            Request::Ask(_) | Request::Announce(_) | Request::Cancel { .. } | Request::Call { .. } => {
                // The driver has recorded it.
                self.open_model()?;
                Reply::Noted { notice_ignored }
            }
            Request::Prepare { id, folder, .. } => return self.prepare(id, folder, turn, pooled),
            Request::Refill { id, folder, .. } => return self.prepare(id, Some(folder), turn, pooled),
            Request::Infer { id, .. } => return self.infer(id, material, charge, turn),
            Request::Stored => self.list_stored()?,
            Request::Reconcile { folder, after } => self.reconcile(folder, after)?,
            Request::Halves { after } => self.list_halves(after)?,
            Request::Discard { ids, .. } => self.discard(&ids, destroyed)?,
            Request::Batch { inputs } => self.set_batch(inputs)?,
            Request::Uploads => self.list_uploads()?,
            Request::DeleteUpload { name } => self.delete_upload(&name)?,
            Request::Bye => return Ok(Outcome::AlreadyReplied),
        };
        Ok(Outcome::Reply(reply))
    }

    pub(crate) fn client(&self) -> ClientId {
        self.connection.client
    }

    pub(crate) fn open_model(&mut self) -> Result<&mut Opened, ServeError> {
        match &mut self.connection.open {
            Some(open) => Ok(open),
            None => refuse("no model is open: open one first"),
        }
    }

    fn list_models(&self) -> Reply {
        let mut models = self.shared.catalog().list();
        models.retain(|model| self.shared.allows(self.client(), &model.name));
        Reply::Models(models)
    }

    fn open(&mut self, model: &str, backend: &str, device: Device) -> Result<Outcome, ServeError> {
        if self.connection.open.is_some() {
            return refuse("a model is open already: connect again");
        }
        let (shared, client) = (self.shared, self.client());
        let offered = shared.catalog().get(model, backend, |name| shared.allows(client, name))?;
        let (channel, public) = (&mut self.connection.channel, offered.model.public_bytes());
        send(channel, REPLY, &Reply::Model { bytes: public.len() as u64 })?;
        channel.send(PUBLIC, public)?;
        handshake(channel, &Hello::for_model(offered.plan, offered.public))?;
        let mut resources = shared.config.resources.stopped_by(&self.connection.stop);
        resources.uploads = ClientKeyStore::open(shared, client);
        resources.client = client.0;
        let (pooled_slot, events) = (PooledSlot::default(), shared.events.clone());
        // Sending fails only if the driver has ended.
        let lost = Arc::new(move || drop(events.send(Event::PoolLost)));
        let (dealer, slot) = (resources.dealer.take(), pooled_slot.clone());
        resources.dealer =
            dealer.map(|dealer| Arc::new(FromPool { dealer, pooled_slot: slot, lost }) as Arc<dyn Dealer>);
        self.connection.open = Some(Opened {
            side: Arc::clone(&offered.model).connect(&resources)?,
            binding: Binding { client: self.connection.client, model: offered.public, plan: offered.plan },
            offered,
            device,
            is_set_up: false,
            pooled_slot,
        });
        Ok(Outcome::AlreadyReplied)
    }

    /// Sets the batch: as many inputs as asked for, or as many as are allowed and fit.
    fn set_batch(&mut self, inputs: u32) -> Result<Reply, ServeError> {
        let (max_inputs, client) = (self.shared.max_inputs(self.client()), self.client());
        let memory = self.shared.config.job_memory;
        let open = self.open_model()?;
        let batch = open.offered.largest_fitting_batch((inputs as usize).min(max_inputs), memory, open.device);
        let offered = open.offered.batched(batch)?;
        open.side.set_batch(batch)?;
        open.binding = Binding { client, model: offered.public, plan: offered.plan };
        open.offered = offered;
        Ok(Reply::Batch { inputs: batch as u32 })
    }

    fn set_up(&mut self, turn: Turn) -> Result<Reply, ServeError> {
        let open = self.open_model()?;
        if open.is_set_up || open.offered.model.setup() == Setup::Nothing {
            return refuse("there is nothing to set up");
        }
        let ((), meter) = self.phase(Phase::Setup, turn, |side, channel| side.setup(channel))?;
        self.open_model()?.is_set_up = true;
        Ok(self.finish_phase(meter, 0)?.0)
    }

    /// Material is stored if the client names a folder, and kept in memory otherwise.
    fn prepare(
        &mut self,
        id: MaterialId,
        folder: Option<FolderId>,
        turn: Turn,
        pooled: Option<Pooled>,
    ) -> Result<Outcome, ServeError> {
        let open = self.open_model()?;
        let (binding, bytes, backend) = (open.binding, open.offered.material_bytes, open.offered.backend);
        match open.offered.model.preparation() {
            Preparation::TwoParty | Preparation::Dealt => {}
            Preparation::Nothing => return refuse("this back end has nothing to prepare"),
        }
        if open.offered.model.setup() == Setup::BeforeOffline && !open.is_set_up {
            return refuse("the setup comes first");
        }
        open.pooled_slot.hold(pooled);
        let maker = self.connection.helper;
        let place = folder.map(|peer| self.reserve(id, binding, Origin { backend, peer, maker })).transpose()?;
        let (material, meter) = match place {
            Some(place) => (None, self.prepare_in(place, turn)?),
            None => {
                let (material, meter) = self.prepare_transient(id, turn)?;
                (Some(material), meter)
            }
        };
        if let Some(material) = material {
            // The driver gets the material before the client learns of it.
            self.shared.tell(Event::Made { id, binding, material });
        }
        let (reply, took) = self.finish_phase(meter, bytes)?;
        let memory = self.peak_memory();
        Ok(Outcome::Phase(reply, JobEnd::Done { took, material: Some(id), memory }))
    }

    /// Makes stored material. Back ends that can do so write it to disk while they make it.
    fn prepare_in(&mut self, place: Reserved<'_>, turn: Turn) -> Result<Meter, ServeError> {
        match self.open_model()?.offered.model.spooled_bytes() {
            None => {
                let (material, meter) = self.phase(Phase::Offline, turn, |side, channel| side.offline(channel))?;
                place.put(&material.to_bytes()?)?;
                Ok(meter)
            }
            Some(bytes) => {
                let mut placing = place.place(bytes)?;
                let ((), meter) =
                    self.phase(Phase::Offline, turn, |side, channel| side.offline_into(channel, &mut placing))?;
                placing.finish()?;
                Ok(meter)
            }
        }
    }

    /// Makes material that ends with this process. Large material is spooled to disk if there is a
    /// store.
    fn prepare_transient(&mut self, id: MaterialId, turn: Turn) -> Result<(Material, Meter), ServeError> {
        let bytes = self.open_model()?.offered.model.spooled_bytes().filter(|bytes| *bytes > MAX_IN_MEMORY_BYTES);
        let (Some(bytes), Some(store)) = (bytes, &self.shared.store) else {
            return self.phase(Phase::Offline, turn, |side, channel| side.offline(channel));
        };
        let mut spool = store.spool(id, bytes)?;
        let ((), meter) = self.phase(Phase::Offline, turn, |side, channel| side.offline_into(channel, &mut spool))?;
        Ok((self.open_model()?.side.spooled_material(bytes, spool.finish()?)?, meter))
    }

    /// Reserves a place on disk before the material is made, so that no other connection of the
    /// client takes it.
    fn reserve(&self, id: MaterialId, binding: Binding, origin: Origin<'_>) -> Result<Reserved<'a>, ServeError> {
        let Shared { store: Some(store), config, .. } = self.shared else {
            return refuse("this server stores no material");
        };
        match store.reserve(id, binding, origin, Some(config.stored_per_client as u64)) {
            Err(StoreError::Full { held }) => refuse(self.full_message(held)?),
            result => Ok(result?),
        }
    }

    /// Runs the online phase with the named material, which is used up.
    fn infer(
        &mut self,
        id: Option<MaterialId>,
        in_memory: Option<Material>,
        charge: Option<QuotaCharge>,
        turn: Turn,
    ) -> Result<Outcome, ServeError> {
        let open = self.open_model()?;
        if open.offered.model.setup() == Setup::BeforeOnline && !open.is_set_up {
            return refuse("the setup comes first");
        }
        match (id, open.offered.model.preparation() != Preparation::Nothing) {
            (None, true) => return refuse("this back end needs material: prepare it first"),
            (Some(_), false) => return refuse("this back end uses no material"),
            _ => {}
        }
        // The charge is on disk before material is claimed, and so before an answer is sent.
        if let (Some(usage), Some(charge)) = (&self.shared.usage, charge) {
            usage.charge(&charge)?;
        }
        let material = match (id, in_memory) {
            (None, _) => Material::nothing(),
            (Some(_), Some(material)) => material,
            (Some(id), None) => self.claim(id)?,
        };
        let ((), meter) = self.phase(Phase::Online, turn, |side, channel| side.online(channel, material))?;
        let (reply, took) = self.finish_phase(meter, 0)?;
        let memory = self.peak_memory();
        Ok(Outcome::Phase(reply, JobEnd::Done { took, material: None, memory }))
    }

    /// Claims stored material. It is burnt, durably, when this returns, which is before the first
    /// byte of the online phase.
    fn claim(&mut self, id: MaterialId) -> Result<Material, ServeError> {
        let store = self.shared.store.as_ref().ok_or(StoreError::NoMaterial(id))?;
        let open = self.open_model()?;
        let material = match store.claim_within(id, open.binding, MAX_IN_MEMORY_BYTES)? {
            Claimed::Memory(bytes) => open.side.read_material(&bytes),
            Claimed::Spooled(bytes, source) => open.side.spooled_material(bytes, source),
        };
        Ok(material.map_err(|e| StoreError::Damaged { id, what: e.to_string() })?)
    }

    /// Runs a phase with the client on the granted threads.
    fn phase<T: Send>(
        &mut self,
        phase: Phase,
        turn: Turn,
        work: impl FnOnce(&mut dyn ServerSide, &mut Channel) -> Result<T, BackendError> + Send,
    ) -> Result<(T, Meter), ServeError> {
        let pool = pool(turn.threads, self.account.clone())?;
        let Connection { channel, open: Some(open), .. } = &mut *self.connection else {
            return refuse("no model is open: open one first");
        };
        channel.set_sign_of_life(self.shared.config.sign_of_life);
        send(channel, REPLY, &Reply::Go)?;
        self.shared.metrics.record_dispatch(turn.decided.elapsed());
        let meter = Meter::start(channel, phase, &self.shared.marks);
        let side = &mut *open.side;
        let output = pool.install(|| work(side, channel))?;
        Ok((output, meter))
    }

    /// The most bytes that the job has held, where this is counted.
    fn peak_memory(&self) -> Option<u64> {
        self.account.as_ref()?.peak()
    }

    fn finish_phase(&mut self, meter: Meter, material_bytes: u64) -> Result<(Reply, Duration), ServeError> {
        let memory = self.peak_memory();
        let Connection { channel, measured, .. } = &mut *self.connection;
        // The phase may end with a message of this party.
        channel.flush()?;
        let (phase, figures) = (meter.phase(), meter.stop(channel));
        *measured = Some(Measured { phase, figures, memory });
        Ok((Reply::Done { figures, material_bytes }, Duration::from_secs_f64(figures.wall_s)))
    }
}

/// The threads' memory counts as the job's. They hold the account until the last ends.
fn pool(threads: usize, account: Option<Arc<Account>>) -> Result<ThreadPool, ServeError> {
    let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("tacit-job-{i}"));
    let builder = builder.start_handler(move |_| account.iter().for_each(|account| account.enter()));
    builder.build().map_err(|e| ServeError::Usage(format!("cannot start {threads} threads: {e}")))
}
