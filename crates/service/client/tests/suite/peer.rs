//! A scripted server over loopback: TLS, and frames written by hand, so that each of them can be wrong.
use crate::common::{expected, model, two_layers};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tacit_backends::cheetah::Cheetah;
use tacit_backends::toy::Toy;
use tacit_backends::{Backend, Registry, ServerModel};
use tacit_client::wire::{ModelInfo, Offer, PUBLIC, REPLY, REQUEST, Reply, Request, public_digest};
use tacit_client::{ClientConfig, Figures};
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{HEADER_BYTES, Hello, ServerTls, Tag, TcpTransport, TlsTransport, Transport};
use tacit_store::keys::{self, ClientIdentity};
use tacit_store::{Party, Store};

pub const X: [f32; 4] = [1.5, -2.0, 3.0, 0.25];
/// The server's folder of material.
pub const HERE: FolderId = FolderId([9; 16]);
/// Long enough for whatever is not waited for.
pub const LONG: Duration = Duration::from_secs(60);

const KEY: Tag = Tag::new(0xf100, "toy key");
const PAD: Tag = Tag::new(0xf101, "toy pad");
const INPUT: Tag = Tag::new(0xf102, "toy input");
const OUTPUT: Tag = Tag::new(0xf103, "toy output");

/// Keys of a server, `alice`, and her helper `gateway`.
pub fn key_folder() -> PathBuf {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("keys");
        keys::init(&keys, &[], &["alice".into()]).unwrap();
        keys::add_helper(&keys, "gateway", "alice", &["127.0.0.1".into()], None).unwrap();
        dir
    });
    made.path().join("keys")
}

pub fn alice() -> ClientIdentity {
    keys::load_client(&key_folder(), "alice").unwrap()
}

pub fn registry() -> Registry {
    Registry::new(vec![Arc::new(Toy::default()), Arc::new(Cheetah)])
}

pub fn toy() -> Arc<dyn ServerModel> {
    Toy::default().lower(&model(1), &"".parse().unwrap()).unwrap()
}

pub fn net() -> Arc<dyn ServerModel> {
    Cheetah.lower(&two_layers(), &"frac_bits=8".parse().unwrap()).unwrap()
}

pub fn config(server: &Server, store: Option<&Path>) -> ClientConfig {
    let mut config = ClientConfig::new(&server.address, alice());
    (config.stall_timeout, config.connect_timeout) = (LONG, LONG);
    config.store = store.map(Path::to_owned);
    config
}

/// A client's folder. Nobody recovers it while it is open here.
pub fn folder(dir: &Path) -> Store {
    Store::open(dir, Party::Client, None).unwrap()
}

/// The ready materials of a folder, in which there is nothing else.
pub fn ready(store: &Store) -> Vec<MaterialId> {
    let mut ids: Vec<MaterialId> = store.list(None).unwrap().into_iter().map(|entry| entry.id).collect();
    ids.sort();
    assert_eq!(store.counts().unwrap().unsettled, 0);
    let names = std::fs::read_dir(store.dir()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".material")?.to_owned())).collect();
    files.sort();
    assert_eq!(files, ids.iter().map(ToString::to_string).collect::<Vec<_>>());
    ids
}

/// The bytes of a frame. `word` holds its length.
pub fn frame(number: u64, tag: Tag, word: u32, payload: &[u8]) -> Vec<u8> {
    let head = [&tag.id().to_le_bytes()[..], &word.to_le_bytes()].concat();
    let mut crc = crc32fast::Hasher::new();
    [&number.to_le_bytes()[..], &head, payload].iter().for_each(|part| crc.update(part));
    [&head[..], &crc.finalize().to_le_bytes(), payload].concat()
}

/// A peer's fault in place of a message.
#[derive(Clone)]
pub enum Fault {
    /// Sends these bytes, made from frame number, tag and payload, and then no more.
    Raw(fn(u64, Tag, &[u8]) -> Vec<u8>),
    /// Sends this message, and then no more.
    Other(Tag, Vec<u8>),
    Twice,
    Silent,
    /// Says only that it lives.
    Alive,
}

/// One connection of the server.
pub struct Peer {
    tls: TlsTransport,
    frames: u64,
    fault: Option<(usize, Fault)>,
    /// The messages so far: names of tags, and of the kinds of replies.
    pub said: Vec<String>,
}

/// Ends a script.
pub fn over() -> io::Error {
    io::Error::other("it is over")
}

impl Peer {
    pub fn say(&mut self, tag: Tag, payload: &[u8]) -> io::Result<()> {
        let fault = self.fault.take_if(|(at, _)| *at == self.said.len()).map(|(_, fault)| fault);
        self.said.push(tag.name().to_owned());
        let right = |number| frame(number, tag, payload.len() as u32, payload);
        match fault {
            None => return self.raw(right),
            Some(Fault::Twice) => return self.raw(right).and_then(|()| self.raw(right)),
            Some(Fault::Raw(bytes)) => self.raw(|number| bytes(number, tag, payload))?,
            Some(Fault::Other(tag, other)) => self.raw(|number| frame(number, tag, other.len() as u32, &other))?,
            Some(Fault::Alive) => {
                (0..3).try_for_each(|_| self.raw(|number| frame(number, Tag::ALIVE, 0, &[])))?;
                self.drain();
            }
            Some(Fault::Silent) => self.drain(),
        }
        Err(over())
    }

    fn raw(&mut self, bytes: impl FnOnce(u64) -> Vec<u8>) -> io::Result<()> {
        let bytes = bytes(self.frames);
        self.frames += 1;
        self.tls.write_all(&bytes)?;
        self.tls.flush()
    }

    pub fn tell(&mut self, tag: Tag, message: &impl Serialize) -> io::Result<()> {
        self.say(tag, &postcard::to_stdvec(message).unwrap())
    }

    pub fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        let place = self.said.len();
        let said = self.tell(REPLY, reply);
        self.said[place] = kind(reply);
        said
    }

    pub fn hear(&mut self, tag: Tag) -> io::Result<Vec<u8>> {
        let mut head = [0; HEADER_BYTES];
        self.tls.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize];
        self.tls.read_exact(&mut payload)?;
        if head[..2] == tag.id().to_le_bytes() { Ok(payload) } else { Err(over()) }
    }

    pub fn request(&mut self) -> io::Result<Request> {
        Request::from_bytes(&self.hear(REQUEST)?).map_err(io::Error::other)
    }

    pub fn hello(&mut self, ours: Hello) -> io::Result<()> {
        self.hear(Tag::HELLO)?;
        self.say(Tag::HELLO, &ours.to_bytes())
    }

    /// Hello and welcome.
    pub fn greet(&mut self) -> io::Result<()> {
        self.hello(Hello::without_model())?;
        self.reply(&Reply::Welcome)
    }

    /// The answer to [`Request::Open`].
    pub fn open(&mut self, model: &dyn ServerModel) -> io::Result<()> {
        let public = model.public_bytes();
        self.reply(&Reply::Model { bytes: public.len() as u64 })?;
        self.say(PUBLIC, public)?;
        self.hello(Hello::for_model(model.digest(), public_digest(public)))
    }

    pub fn pad(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.hear(PAD)?.try_into().unwrap()))
    }

    pub fn masked(&mut self) -> io::Result<Vec<u8>> {
        self.hear(INPUT)
    }

    pub fn output(&mut self, values: &[f64]) -> io::Result<()> {
        let words = values.iter().flat_map(|&value| u64::from((value as f32).to_bits()).to_le_bytes());
        self.say(OUTPUT, &words.collect::<Vec<u8>>())
    }

    /// Reads until the client is gone.
    pub fn drain(&mut self) {
        while !matches!(self.tls.read(&mut [0; 4096]), Ok(0) | Err(_)) {}
    }
}

/// The variant's name.
pub fn kind(reply: &Reply) -> String {
    format!("{reply:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

pub fn done() -> Reply {
    let figures = Figures { wall_s: f64::NAN, cpu_s: -1.0, sent_bytes: u64::MAX, ..Figures::default() };
    Reply::Done { figures, material_bytes: u64::MAX }
}

/// What the connections of an honest toy server share.
#[derive(Default)]
pub struct Shop {
    pub fault: Option<(usize, Fault)>,
    /// Pads, whether on disk or in memory.
    pub stored: BTreeMap<MaterialId, u64>,
    /// Materials whose masked input has come, with that.
    pub used: Vec<(MaterialId, Vec<u8>)>,
    /// What the last connection said.
    pub said: Vec<String>,
}

#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Shop>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Shop> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn next(&self, peer: &mut Peer) -> io::Result<()> {
        let request = peer.request()?;
        self.answer(peer, request)
    }

    /// Answers a request as a server does. Runs its phase.
    pub fn answer(&self, peer: &mut Peer, request: Request) -> io::Result<()> {
        match request {
            Request::List => {
                let backends = vec![Offer { backend: "toy".into(), public: [0; 32] }];
                peer.reply(&Reply::Models(vec![ModelInfo { name: "tiny".into(), backends }]))
            }
            Request::Open { model, .. } if model == "net" => peer.open(&*net()),
            Request::Open { .. } => peer.open(&*toy()),
            Request::Setup => {
                peer.reply(&Reply::Go)?;
                peer.hear(KEY)?;
                peer.say(KEY, &7_u64.to_le_bytes())?;
                peer.reply(&done())
            }
            Request::Prepare { id, .. } | Request::Refill { id, .. } => {
                peer.reply(&Reply::Go)?;
                let pad = peer.pad()?;
                assert!(self.lock().stored.insert(id, pad).is_none(), "an id is used twice");
                peer.reply(&done())
            }
            Request::Infer { id, .. } => self.online(peer, id.unwrap()),
            Request::Stored => peer.reply(&Reply::Ids(self.lock().stored.keys().copied().collect())),
            Request::Reconcile { .. } => {
                let ids = self.lock().stored.keys().copied().collect();
                peer.reply(&Reply::Reconciled { folder: Some(HERE), ids })
            }
            Request::Discard { ids, .. } => {
                let mut shop = self.lock();
                let gone = ids.into_iter().filter(|id| shop.stored.remove(id).is_some()).collect();
                drop(shop);
                peer.reply(&Reply::Ids(gone))
            }
            Request::Bye => Err(over()),
            _ => peer.reply(&Reply::Noted { notice_ignored: None }),
        }
    }

    fn online(&self, peer: &mut Peer, id: MaterialId) -> io::Result<()> {
        let pad = self.lock().stored.remove(&id).expect("the client asks with what is there");
        peer.reply(&Reply::Go)?;
        let masked = peer.masked()?;
        self.lock().used.push((id, masked.clone()));
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let input: Vec<f32> = masked.chunks(8).map(|w| f32::from_bits(word(w).wrapping_sub(pad) as u32)).collect();
        peer.output(&expected(1, &input))?;
        peer.reply(&done())
    }
}

/// A listening server whose connections follow a script.
pub struct Server {
    pub address: String,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

type Script = dyn Fn(usize, &mut Peer) -> io::Result<()> + Send + Sync;

/// Runs a script on a connection. Afterwards nothing more is said, and the client may talk on.
fn converse(tls: &ServerTls, stream: TcpStream, number: usize, script: &Script) {
    let mut tcp = TcpTransport::new(stream).unwrap();
    tcp.set_stall_timeout(LONG).unwrap();
    // The client may refuse this server.
    let Ok(tls) = tls.accept(tcp) else { return };
    let mut peer = Peer { tls, frames: 0, fault: None, said: vec![] };
    if let Err(error) = script(number, &mut peer) {
        assert_ne!(error.kind(), ErrorKind::TimedOut, "the script waits for what does not come");
    }
    let _ = peer.tls.closer().unwrap().shutdown(Shutdown::Write);
    peer.drain();
}

impl Server {
    /// The script gets the number of the connection, from 0. Its errors end the connection.
    pub fn start(script: impl Fn(usize, &mut Peer) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::with(keys::load_server(&key_folder()).unwrap(), script)
    }

    pub fn honest(shop: &Shared) -> Self {
        Self::lying(shop, |_, _, _| Ok(false))
    }

    /// Answers as a shop does, but for the requests of which `other` says that it has answered them.
    pub fn lying(
        shop: &Shared,
        other: impl Fn(usize, &mut Peer, &Request) -> io::Result<bool> + Send + Sync + 'static,
    ) -> Self {
        let shop = shop.clone();
        Self::start(move |number, peer| {
            peer.fault = shop.lock().fault.clone();
            let mut served = peer.greet();
            while served.is_ok() {
                served = peer.request().and_then(|request| match other(number, peer, &request)? {
                    true => Ok(()),
                    false => shop.answer(peer, request),
                });
            }
            shop.lock().said.clone_from(&peer.said);
            served
        })
    }

    pub fn with(tls: ServerTls, script: impl Fn(usize, &mut Peer) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let threads = Arc::<Mutex<Vec<_>>>::default();
        let (started, script) = (Arc::clone(&threads), Arc::new(script));
        // It listens until the process ends.
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (tls, script, stream) = (tls.clone(), Arc::clone(&script), stream.unwrap());
                // Whoever settles after a connection waits for its thread.
                let mut started = started.lock().unwrap();
                started.push(thread::spawn(move || converse(&tls, stream, number, &*script)));
            }
        });
        Self { address, threads }
    }

    /// Waits until the connections of clients that are gone have ended.
    pub fn settle(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.settle();
        }
    }
}
