//! The helper's program: accepts its owner's orders, makes material with the server, and hands it
//! over.
//!
//! One thread makes material; each connection has a thread that answers. Orders are in memory, with
//! their seeds and keys. Finished material is sealed in a managed folder, `ID.sealed`, until its
//! owner has fetched it or it is as old as stored material may get. A helper that dies loses the
//! orders that it has not finished, and then reports them as lost.
use super::wire::{ANSWER, ASK, Answer, Ask, BYTES, Job, MAX_JOBS, PIECE, Standing, What, reason, recv, send};
use crate::wire::WireError;
use crate::{Client, ClientConfig, ClientError, Connection};
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};
use tacit_admission::{
    Accepting, Admission, ConnectionSlot, Incoming, Limits, PoolLimits, Refusal, RefusalReason, ThreadedListener,
    handshake_slots,
};
use tacit_backends::Registry;
use tacit_backends::seam::MaterialSeed;
use tacit_ids::{ClientId, MaterialId};
use tacit_net::{Channel, Hello, NetError, ServerTls, TcpTransport, Transport, handshake};
use tacit_store::clock::MAX_CLOCK_JUMP;
use tacit_store::managed::{MARK, hex_stem};
use tacit_store::seal::{Kind, is_sealed_as, sync_folder, unfinished_of, write_file};
use tacit_store::{FolderKind, ManagedFolder, SealKey, StoreError, keys};

const MAX_CONNECTIONS: usize = 8;
/// The admission pool of the owner's connections.
const OWNER_POOL: usize = 0;
/// Most unauthenticated connections, as far as open files allow. When all are in use, admission
/// evicts the oldest of the address that holds most.
const MAX_HANDSHAKES: usize = 512;
/// Open files of a connection, and of everything else.
const FILES_PER_CONNECTION: u64 = 2;
const OTHER_FILES: u64 = 64;
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may send no request, or receive no data.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// How long the connection to the server stays open without an order.
const LINGER_TIME: Duration = Duration::from_secs(5);
const CONNECT_TRIES: usize = 3;
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Most materials that are ordered, or made and not yet fetched.
const MAX_MATERIALS: usize = 4096;
const FOLDER: FolderKind = FolderKind::private("helper", "sealed material");

/// Configuration of a helper.
pub struct HelperServerConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The helper's identity for its owner.
    pub tls: ServerTls,
    /// The owner: the only client that the helper answers.
    pub owner: ClientId,
    /// Folder for sealed material.
    pub folder: PathBuf,
    /// The server, and the helper's identity there.
    pub server: ClientConfig,
    /// How long the helper stores sealed material that its owner does not fetch.
    pub expire: Duration,
}

struct Order {
    what: Arc<What>,
    job: Job,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Order>,
    standings: HashMap<MaterialId, Standing>,
}

struct Shared {
    config: HelperServerConfig,
    registry: Registry,
    state: Mutex<State>,
    ordered: Condvar,
}

/// A helper that listens.
pub struct HelperServer {
    listener: ThreadedListener,
    shared: Arc<Shared>,
}

impl HelperServer {
    /// Opens the folder with the material made before, and listens.
    ///
    /// # Errors
    /// The folder holds files that no helper made, other users have access to it, or it cannot be
    /// read; the address cannot be listened on.
    pub fn bind(registry: Registry, mut config: HelperServerConfig) -> Result<Self, ClientError> {
        let folder = ManagedFolder::open_or_mark(&config.folder, FOLDER, |path| is_sealed_material(path).is_some())?;
        config.folder = folder.path().to_owned();
        config.server.store = None;
        let made = swept(&config.folder, config.expire)?;
        let standings = made.into_iter().map(|(id, bytes)| (id, Standing::Made { bytes })).collect();
        let pool = PoolLimits { connections: MAX_CONNECTIONS, per_peer: MAX_CONNECTIONS };
        let admission = Admission::new(Limits {
            handshakes: handshake_slots(MAX_HANDSHAKES, FILES_PER_CONNECTION, OTHER_FILES),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            pools: vec![pool],
        });
        let listener = ThreadedListener::bind(config.listen, admission, "tacit-owner");
        let listener = listener.map_err(|e| NetError::cannot_listen(config.listen, "--listen", &e))?;
        let shared = Shared {
            config,
            registry,
            state: Mutex::new(State { queue: VecDeque::new(), standings }),
            ordered: Condvar::new(),
        };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The operating system does not report the address.
    pub fn address(&self) -> Result<SocketAddr, ClientError> {
        Ok(self.listener.address().map_err(|e| NetError::from_io("looking where it listens", &e))?)
    }

    /// Works until the process ends.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn run(self) -> Result<(), ClientError> {
        let own = Arc::clone(&self.shared);
        let making = thread::Builder::new().name("tacit-making".into()).spawn(move || make_all(&own));
        making.map_err(|e| ClientError::Usage(format!("starting a thread: {e}")))?;
        let shared = self.shared;
        self.listener.run(|| Accepting::GoOn(SWEEP_INTERVAL), move |incoming| connection(&shared, incoming));
        Ok(())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of the state is complete, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: MaterialId) -> PathBuf {
        self.config.folder.join(format!("{id}.sealed"))
    }
}

/// The id of a file of sealed material, finished or interrupted, by name and header.
fn is_sealed_material(path: &Path) -> Option<MaterialId> {
    let whole = unfinished_of(path).unwrap_or_else(|| path.to_owned());
    let id = hex_stem(&whole, ".sealed", 32)?.parse().ok()?;
    is_sealed_as(path, Kind::Material(id)).is_ok_and(|is_ours| is_ours).then_some(id)
}

/// Lists the materials of a folder, after deleting expired ones and unfinished files of a crash.
/// Nothing expires if the clock is far later than when the helper last started: the clock may be
/// wrong.
fn swept(folder: &Path, expire: Duration) -> Result<Vec<(MaterialId, u64)>, StoreError> {
    let mut made = Vec::new();
    let mark = folder.join(MARK);
    let last = mark.metadata().and_then(|meta| meta.modified()).map_err(StoreError::file("reading", &mark))?;
    let touched = File::options().write(true).open(&mark).and_then(|mark| mark.set_modified(SystemTime::now()));
    touched.map_err(StoreError::file("writing", &mark))?;
    let is_late = SystemTime::now().duration_since(last).unwrap_or_default() > MAX_CLOCK_JUMP;
    if is_late {
        tracing::warn!("{} was not used for long, or the clock is wrong: nothing expires now", folder.display());
    }
    for entry in fs::read_dir(folder).map_err(StoreError::file("listing", folder))? {
        let path = entry.map_err(StoreError::file("listing", folder))?.path();
        let Some(id) = is_sealed_material(&path) else { continue };
        let meta = path.symlink_metadata().map_err(StoreError::file("reading", &path))?;
        // A time in the future counts as now.
        let age = meta.modified().map(|then| SystemTime::now().duration_since(then).unwrap_or_default());
        let age = age.map_err(StoreError::file("reading", &path));
        if unfinished_of(&path).is_none() && (is_late || age? < expire) {
            made.push((id, meta.len()));
        } else {
            fs::remove_file(&path).map_err(StoreError::file("removing", &path))?;
        }
    }
    Ok(made)
}

/// Serves a connection from its first byte to its end.
fn connection(shared: &Shared, incoming: Incoming) {
    let Incoming { stream, from, slot } = incoming;
    match authenticate(shared, stream, &slot) {
        // Admission has already counted the eviction.
        Err(_) if slot.is_evicted() => {}
        Err(error) => turn_away(&slot, from, kind(&error), &error),
        Ok(channel) => {
            if let Err(error) = serve(shared, channel, &slot) {
                turn_away(&slot, from, "of the owner that broke off", &error);
            }
        }
    }
}

fn turn_away(slot: &ConnectionSlot, from: SocketAddr, kind: RefusalReason, error: &WireError) {
    slot.admission().count_refusal(Refusal { kind, from: Some(from.ip()), detail: format!("{from}: {error}") });
}

/// Classifies the error of an unauthenticated peer.
fn kind(error: &WireError) -> RefusalReason {
    match error {
        WireError::Net(NetError::Stalled { .. }) => "that did not say in time who they are",
        WireError::Net(NetError::Tls(_)) => "of somebody else than the owner",
        _ => "that broke off or said something else",
    }
}

/// Runs TLS, takes a connection slot and exchanges the opening hello, all in time.
fn authenticate(shared: &Shared, stream: TcpStream, slot: &ConnectionSlot) -> Result<Channel, WireError> {
    let mut tcp = TcpTransport::new(stream)?;
    tcp.set_stall_timeout(IDLE_TIMEOUT).map_err(|e| NetError::from_io("setting the stall timeout", &e))?;
    tcp.set_moving_deadline(slot.deadline().moving());
    let tls = shared.config.tls.accept(tcp)?;
    let owner = shared.config.owner;
    if tls.peer_certificate().and_then(keys::fingerprint) != Some(owner) {
        return Err(NetError::Tls("somebody else than the owner of this helper".into()).into());
    }
    if slot.authenticate(OWNER_POOL, owner.0).is_err() {
        let detail = format!("the owner has {MAX_CONNECTIONS} connections already");
        return Err(WireError::Unexpected { what: "connection", detail });
    }
    let mut channel = Channel::new(Box::new(tls));
    handshake(&mut channel, &Hello::without_model())?;
    channel.set_deadline(None);
    Ok(channel)
}

fn serve(shared: &Shared, mut channel: Channel, slot: &ConnectionSlot) -> Result<(), WireError> {
    loop {
        let ask = match recv(&mut channel, ASK) {
            Err(WireError::Net(e)) if e.is_gone() => return Ok(()),
            other => other?,
        };
        let _busy = slot.begin_request();
        let answer = match ask {
            Ask::Make { what, jobs } => shared.order(what, jobs),
            Ask::Stand { ids } => shared.standings(&ids),
            Ask::Taken { ids } => shared.forget(&ids),
            Ask::Fetch { id, from } => match shared.hand_over(&mut channel, id, from)? {
                None => continue,
                Some(refusal) => refusal,
            },
        };
        send(&mut channel, ANSWER, &answer)?;
    }
}

fn refused(why: &str) -> Answer {
    Answer::Refused { reason: reason(why) }
}

impl Shared {
    fn order(&self, what: What, jobs: Vec<Job>) -> Answer {
        let what = Arc::new(what);
        let mut state = self.state();
        if jobs.len() > MAX_JOBS || state.standings.len() + jobs.len() > MAX_MATERIALS {
            return refused("so much material is ordered already that this helper takes no more: fetch it first");
        }
        if jobs.iter().any(|job| state.standings.contains_key(&job.id)) {
            return refused("material of such an id was ordered before");
        }
        for job in jobs {
            state.standings.insert(job.id, Standing::Waits);
            state.queue.push_back(Order { what: Arc::clone(&what), job });
        }
        self.ordered.notify_all();
        Answer::Done
    }

    fn standings(&self, ids: &[MaterialId]) -> Answer {
        if ids.len() > MAX_JOBS {
            return refused("too many at once");
        }
        let state = self.state();
        Answer::Standings(ids.iter().map(|id| state.standings.get(id).cloned().unwrap_or(Standing::Unknown)).collect())
    }

    /// Forgets materials that the owner has fetched or no longer wants.
    fn forget(&self, ids: &[MaterialId]) -> Answer {
        let mut state = self.state();
        state.queue.retain(|order| !ids.contains(&order.job.id));
        for id in ids {
            // The maker removes material that is being made now once it is finished.
            state.standings.remove(id);
            self.remove(*id);
        }
        if let Err(e) = sync_folder(&self.config.folder) {
            tracing::error!("{e}");
        }
        Answer::Done
    }

    fn remove(&self, id: MaterialId) {
        let path = self.path(id);
        if path.exists() && is_sealed_material(&path).is_none() {
            tracing::warn!("{}: this is no sealed material, and stays", path.display());
            return;
        }
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => tracing::error!("removing {}: {e}", path.display()),
            _ => {}
        }
    }

    /// Sends a sealed material from byte `from` on, or returns the answer if there is nothing to
    /// send.
    fn hand_over(&self, channel: &mut Channel, id: MaterialId, from: u64) -> Result<Option<Answer>, NetError> {
        let Some(Standing::Made { bytes }) = self.state().standings.get(&id).cloned() else {
            return Ok(Some(refused("this material is not there")));
        };
        let opened = File::open(self.path(id)).and_then(|mut file| file.seek(SeekFrom::Start(from)).map(|_| file));
        let mut file = match opened {
            Ok(file) if from <= bytes => file,
            Ok(_) => return Ok(Some(refused("it has fewer bytes than that"))),
            Err(e) => return Ok(Some(refused(&format!("its file cannot be read: {e}")))),
        };
        send(channel, ANSWER, &Answer::Bytes { bytes })?;
        let (mut piece, mut left) = (vec![0; PIECE], bytes - from);
        while left > 0 {
            let piece = &mut piece[..PIECE.min(left as usize)];
            // If the file is cut short, the connection ends, and the owner asks for the rest.
            file.read_exact(piece).map_err(|e| NetError::from_io("reading sealed material", &e))?;
            channel.send(BYTES, piece)?;
            left -= piece.len() as u64;
        }
        channel.flush()?;
        Ok(None)
    }

    /// The next order; `None` if no order arrives within `LINGER_TIME`.
    fn next(&self) -> Option<Order> {
        let wait = self.ordered.wait_timeout_while(self.state(), LINGER_TIME, |state| state.queue.is_empty());
        wait.unwrap_or_else(PoisonError::into_inner).0.queue.pop_front()
    }
}

fn make_all(shared: &Shared) {
    let mut open: Option<(Arc<What>, Client)> = None;
    loop {
        let Some(order) = shared.next() else {
            // Errors of closing are ignored: the server may be gone.
            drop(open.take().map(|(_, client)| client.close()));
            continue;
        };
        let id = order.job.id;
        let standing = match make(shared, &mut open, order) {
            Ok(bytes) => {
                tracing::info!(material = %id, "made, {bytes} bytes sealed");
                Standing::Made { bytes }
            }
            Err(e) => {
                open = None;
                tracing::warn!(material = %id, "not made: {e}");
                Standing::Failed { why: reason(&e.to_string()) }
            }
        };
        match shared.state().standings.get_mut(&id) {
            Some(known) => *known = standing,
            // The owner no longer wants the material.
            None => shared.remove(id),
        }
    }
}

/// Makes one material and seals it; returns the bytes of the sealed file.
fn make(shared: &Shared, open: &mut Option<(Arc<What>, Client)>, mut order: Order) -> Result<u64, ClientError> {
    let client = match open.take() {
        Some((what, client)) if what == order.what => client,
        _ => connected(shared, &order.what)?,
    };
    let (_, client) = open.insert((Arc::clone(&order.what), client));
    let (id, key) = (order.job.id, SealKey::from_bytes(&order.job.seal)?);
    let seed = MaterialSeed::new(&mut order.job.seed);
    let (rest, _) = client.make_for_owner(id, order.what.folder, seed)?;
    let path = shared.path(id);
    if path.exists() {
        return Err(ClientError::Usage(format!("{} exists, and nothing is overwritten", path.display())));
    }
    write_file(&path, Kind::Material(id), Some(&key), &rest)?;
    Ok(path.symlink_metadata().map_err(StoreError::file("reading", &path))?.len())
}

/// A connection to the server with exactly the model open that the order is for.
fn connected(shared: &Shared, what: &What) -> Result<Client, ClientError> {
    let mut connection = connect(shared);
    for _ in 1..CONNECT_TRIES {
        if !matches!(connection, Err(ClientError::Unreachable { .. })) {
            break;
        }
        thread::sleep(RETRY_PAUSE);
        connection = connect(shared);
    }
    let client = connection?.open(&what.model, Some(&what.backend))?;
    let found = client.binding();
    if (found.model, found.plan) != (what.public, what.plan) {
        let what = format!("the server offers another `{}` to the helper than it was ordered for", what.model);
        return Err(ClientError::Usage(what));
    }
    Ok(client)
}

fn connect(shared: &Shared) -> Result<Connection, ClientError> {
    Connection::connect(shared.registry.clone(), shared.config.server.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_only_sealed_material() {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let dir = tempfile::tempdir().unwrap();
        let (home, id) = (dir.path().join("home"), MaterialId([7; 16]));
        let opened = || ManagedFolder::open_or_mark(&home, FOLDER, |path| is_sealed_material(path).is_some());
        fs::create_dir(&home).unwrap();
        fs::write(home.join("taxes.ods"), "precious").unwrap();
        assert!(matches!(opened(), Err(StoreError::NotManaged { .. })));
        fs::remove_file(home.join("taxes.ods")).unwrap();
        // Files as version 0.1 left them: without a mark, one whole and one cut short.
        let key = SealKey::from_bytes(&[1; 32]).unwrap();
        let sealed = home.join(format!("{id}.sealed"));
        write_file(&sealed, Kind::Material(id), Some(&key), b"material").unwrap();
        fs::write(home.join(format!("{id}.sealed.123.part")), &fs::read(&sealed).unwrap()[..40]).unwrap();
        opened().unwrap();
        let precious = ["taxes.ods".to_owned(), format!("{}.sealed", MaterialId([8; 16])), format!("{id}.sealed.old")];
        precious.iter().for_each(|name| fs::write(home.join(name), "precious, more than a header").unwrap());
        assert_eq!(swept(&home, DAY).unwrap(), [(id, sealed.metadata().unwrap().len())]);
        let count = || fs::read_dir(&home).unwrap().count();
        assert_eq!(count(), precious.len() + 2, "and the mark");
        // A clock far ahead of the last start destroys nothing yet.
        let age = |path: &Path, age| {
            File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
        };
        age(&sealed, 2 * DAY);
        age(&home.join(MARK), MAX_CLOCK_JUMP + DAY);
        assert_eq!(swept(&home, DAY).unwrap().len(), 1);
        assert!(swept(&home, DAY).unwrap().is_empty() && !sealed.exists());
        assert_eq!(count(), precious.len() + 1);
    }
}
