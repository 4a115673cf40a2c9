//! A server with toy models, clients of it, and channels on which a test speaks the protocol itself.
#![allow(dead_code)]
#[path = "../../../client/tests/common/mod.rs"]
pub mod models;

#[allow(unused_imports, reason = "each test uses what it needs")]
pub use models::{expected, model, two_layers};
pub use tacit_backends::toy::Toy;

use std::fs;
use std::io::{Read, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tacit_backends::cheetah::Cheetah;
use tacit_backends::{Backend, Registry, Trust};
use tacit_client::wire::{self, Device, LinkClass, PUBLIC, REQUEST, Reply, Request};
use tacit_client::{Client, ClientConfig, Connection};
use tacit_net::{
    Channel, ClientTls, HEADER_BYTES, Hello, MemTransport, Tag, TcpTransport, TlsTransport, Transport, handshake,
};
use tacit_serve::{Catalog, Server, ServerConfig, ServerHandle, Source};
use tacit_store::keys::{self, ClientIdentity};
use tacit_store::{Party, Store};

/// The input of most tests.
pub const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

/// Timeout of silent peers: long enough for an active one on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// The device that channels name.
pub const DEVICE: Device = Device { threads: 1, link: LinkClass::Lan, memory_mib: 0 };

/// A folder that is deleted with the test.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

/// The toy, and [`open_toy`].
pub fn registry() -> Registry {
    Registry::new(vec![Arc::new(Toy::default()), Arc::new(open_toy())])
}

/// A toy named `open`, whose server sees the input.
pub fn open_toy() -> Toy {
    Toy { id: "open", trust: Trust::ServerSeesInput, plan: 0 }
}

/// Models `one` and `two` with the toy; their salts are 1 and 2.
pub fn catalog() -> Catalog {
    let mut catalog = Catalog::new(false);
    offer(&mut catalog, "one", &Toy::default(), 1, "");
    offer(&mut catalog, "two", &Toy::default(), 2, "");
    catalog
}

pub fn offer(catalog: &mut Catalog, name: &str, toy: &Toy, salt: u8, options: &str) {
    let lowered = toy.lower(&model(salt), &options.parse().unwrap()).unwrap();
    catalog.offer(name, toy, lowered).unwrap();
}

/// A back end that runs several inputs as one, and one that does not.
pub fn batching() -> Registry {
    Registry::new(vec![Arc::new(Cheetah), Arc::new(Toy::default())])
}

/// Serves [`two_layers`] with `cheetah` as `net`, and a toy as `one`.
pub fn serving_batches(tune: impl FnOnce(&mut ServerConfig)) -> Running {
    Running::in_own_folder(|dir| serving_batches_in(dir, tune))
}

/// As [`serving_batches`], with the keys and materials of this folder.
pub fn serving_batches_in(dir: &Path, tune: impl FnOnce(&mut ServerConfig)) -> Running {
    let mut catalog = Catalog::new(false);
    catalog.offer("net", &Cheetah, Cheetah.lower(&two_layers(), &"frac_bits=8".parse().unwrap()).unwrap()).unwrap();
    offer(&mut catalog, "one", &Toy::default(), 1, "");
    Running::serving_in(dir, catalog, tune)
}

/// The folder of keys for two clients and an operator, which is made if it does not exist.
pub fn make_keys(dir: &Path) -> PathBuf {
    let keys = dir.join("keys");
    if !keys.exists() {
        keys::init(&keys, &[], &["alice".into(), "bob".into()]).unwrap();
        keys::add_operator(&keys, "ops").unwrap();
    }
    keys
}

/// Writes an access file with rules for all clients, and with others for alice.
pub fn write_rules(dir: &Path, default: &str, alice: &str) -> PathBuf {
    make_keys(dir);
    let path = dir.join("access.toml");
    let client = identity(dir, "alice").fingerprint;
    fs::write(&path, format!("[default]\n{default}\n\n[client.{client}]\n{alice}\n")).unwrap();
    path
}

pub fn identity(dir: &Path, name: &str) -> ClientIdentity {
    keys::load_client(&dir.join("keys"), name).unwrap()
}

/// The server's halves.
pub fn server_store(dir: &Path) -> Store {
    Store::open(&dir.join("server-material"), Party::Server, None).unwrap()
}

/// Files of material in a party's folder.
pub fn material_files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "material")).collect()
}

/// A server with TLS keys for the clients `alice` and `bob`, and the operator `ops`, in `dir/keys`.
pub struct Running {
    pub handle: ServerHandle,
    pub address: String,
    pub dir: PathBuf,
    thread: Option<JoinHandle<()>>,
    /// `dir`, where nobody else uses it.
    own_dir: Option<Folder>,
}

impl Running {
    /// Serves the models of [`catalog`] from a folder of its own.
    pub fn start(tune: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::serving(catalog(), tune)
    }

    /// Serves the models of [`catalog`] with the keys and materials of this folder.
    pub fn start_in(dir: &Path, tune: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::serving_in(dir, catalog(), tune)
    }

    /// Serves the models of [`catalog`] under the access rules of [`write_rules`].
    pub fn start_with_rules(default: &str, alice: &str, tune: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::in_own_folder(|dir| {
            let access = write_rules(dir, default, alice);
            Self::start_in(dir, |config| {
                config.access = Some(access);
                tune(config);
            })
        })
    }

    /// Replaces the access rules of a server that was started with some.
    pub fn change_rules(&self, default: &str, alice: &str) {
        write_rules(&self.dir, default, alice);
        self.handle.reload_access().unwrap();
    }

    /// A server that soon closes silent connections.
    pub fn impatient() -> Self {
        Self::start(|c| {
            c.stall_timeout = PATIENCE;
            c.greeting_timeout = PATIENCE;
            c.idle_timeout = 20 * PATIENCE;
        })
    }

    pub fn serving(catalog: Catalog, tune: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::in_own_folder(|dir| Self::serving_in(dir, catalog, tune))
    }

    pub fn serving_in(dir: &Path, catalog: Catalog, tune: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::built(dir, catalog, tune, |server| server)
    }

    pub fn in_own_folder(start: impl FnOnce(&Path) -> Self) -> Self {
        let dir = Folder::new();
        let mut server = start(&dir);
        server.own_dir = Some(dir);
        server
    }

    /// A server that reloads from `source`.
    pub fn reloading(
        dir: &Path,
        catalog: Catalog,
        source: impl Source + 'static,
        tune: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        Self::built(dir, catalog, tune, |server| server.reloading(source))
    }

    fn built(
        dir: &Path,
        catalog: Catalog,
        tune: impl FnOnce(&mut ServerConfig),
        finish: impl FnOnce(Server) -> Server,
    ) -> Self {
        let key_dir = make_keys(dir);
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), keys::load_server(&key_dir).unwrap());
        config.store = Some(dir.join("server-material"));
        // Tests depend neither on the cores of this machine nor on material that is dealt ahead of time.
        config.cores = 64;
        config.strict_cores = true;
        config.pool = 0;
        tune(&mut config);
        let server = finish(Server::bind(catalog, config).unwrap());
        let (handle, address) = (server.handle(), server.address().to_string());
        let thread = Some(thread::spawn(move || server.run()));
        Self { handle, address, dir: dir.to_owned(), thread, own_dir: None }
    }

    pub fn config(&self, name: &str) -> ClientConfig {
        let mut config = ClientConfig::new(&self.address, identity(&self.dir, name));
        config.store = Some(self.dir.join(format!("{name}-material")));
        config.stall_timeout = 20 * PATIENCE;
        config
    }

    pub fn connection(&self, name: &str) -> Connection {
        Connection::connect(registry(), self.config(name)).unwrap()
    }

    pub fn client(&self, name: &str, model: &str) -> Client {
        self.connection(name).open(model, None).unwrap()
    }

    /// An authenticated connection over which nothing has been sent.
    pub fn tls(&self, name: &str) -> TlsTransport {
        self.authenticated(&identity(&self.dir, name).tls)
    }

    /// An authenticated connection for HTTP/1.1.
    pub fn http(&self, name: &str) -> TlsTransport {
        self.authenticated(&identity(&self.dir, name).tls.for_http())
    }

    fn authenticated(&self, tls: &ClientTls) -> TlsTransport {
        let mut tcp = TcpTransport::connect(self.address.as_str(), Duration::from_secs(5)).unwrap();
        tcp.set_stall_timeout(20 * PATIENCE).unwrap();
        tls.connect(tcp, "127.0.0.1").unwrap()
    }

    /// What an operator is answered, with its head.
    pub fn operator_get(&self, path: &str) -> String {
        let mut stream = self.http("ops");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        stream.flush().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// [`greet`], by this client.
    pub fn greeted(&self, name: &str) -> Channel {
        greet(self.tls(name))
    }

    /// A channel on which this toy model is open.
    pub fn opened(&self, name: &str, model: &str) -> Channel {
        let mut channel = self.greeted(name);
        open_toy_model(&mut channel, model);
        channel
    }

    /// A channel on which model `one` is open and set up.
    pub fn ready_channel(&self, name: &str) -> Channel {
        let mut channel = self.opened(name, "one");
        set_up(&mut channel);
        channel
    }

    /// A connection over which a request for the list of models was sent byte by byte, without its last byte;
    /// and that byte.
    pub fn trickle(&self, name: &str) -> (TlsTransport, u8) {
        let (hello, request) = first_frames();
        let mut raw = self.tls(name);
        raw.write_all(&hello).unwrap();
        // The server's hello and its welcome.
        raw.read_exact(&mut vec![0; hello.len() + HEADER_BYTES + 1]).unwrap();
        let (last, head) = request.split_last().unwrap();
        for byte in head {
            raw.write_all(&[*byte]).unwrap();
        }
        (raw, *last)
    }

    /// Waits until all connections have ended and what they did is on disk.
    pub fn settle(&self) {
        wait_until("connections end", || self.handle.connections() == 0);
    }
}

/// A channel over which client and server have exchanged greetings, without a thread at this end.
pub fn greet(transport: TlsTransport) -> Channel {
    let mut channel = Channel::new(Box::new(transport));
    handshake(&mut channel, &Hello::without_model()).unwrap();
    assert_eq!(wire::recv_reply(&mut channel).unwrap(), Reply::Welcome);
    channel
}

pub fn open_toy_model(channel: &mut Channel, model: &str) {
    let public = public_part(channel, model);
    let plan = Toy::default().open(&public).unwrap().digest();
    handshake(channel, &Hello::for_model(plan, wire::public_digest(&public))).unwrap();
}

/// Requests a toy model and returns its public part, which both parties compare next.
pub fn public_part(channel: &mut Channel, model: &str) -> Vec<u8> {
    let Reply::Model { bytes } =
        ask(channel, &Request::Open { model: model.into(), backend: "toy".into(), device: DEVICE })
    else {
        panic!("no model");
    };
    channel.recv_max(PUBLIC, bytes as usize).unwrap()
}

pub fn ask(channel: &mut Channel, request: &Request) -> Reply {
    wire::send(channel, REQUEST, request).unwrap();
    wire::recv_reply(channel).unwrap()
}

/// The client's part of the toy's offline phase, which the server has begun.
pub fn finish_offline(channel: &mut Channel) {
    channel.send(Tag::new(0xf101, "toy pad"), &[1; 8]).unwrap();
    channel.flush().unwrap();
    assert!(matches!(wire::recv_reply(channel).unwrap(), Reply::Done { .. }));
}

/// Checks that a request was refused for a reason with this text.
#[track_caller]
pub fn check_refused(reply: &Reply, text: &str) {
    assert!(matches!(reply, Reply::Refused { reason, .. } if reason.contains(text)), "{reply:?}");
}

/// The next reply that is not a sign of life.
pub fn next_reply(channel: &mut Channel) -> Reply {
    loop {
        match wire::recv_reply(channel).unwrap() {
            Reply::Waiting { .. } => {}
            reply => return reply,
        }
    }
}

/// Asks for [`X`] and checks the answer of the toy model with this salt.
#[track_caller]
pub fn check_answer(client: &mut Client, salt: u8) {
    assert_eq!(client.infer(&X).unwrap().values, expected(salt, &X));
}

/// Checks that a text has all of these parts.
#[track_caller]
pub fn check_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}

/// The bytes of a client's hello, and of its first request.
fn first_frames() -> (Vec<u8>, Vec<u8>) {
    let (ours, mut raw) = MemTransport::pair();
    let mut channel = Channel::new(Box::new(ours));
    let hello = Hello::without_model().to_bytes();
    channel.send(Tag::HELLO, &hello).unwrap();
    wire::send(&mut channel, REQUEST, &Request::List).unwrap();
    drop(channel);
    let mut bytes = Vec::new();
    raw.read_to_end(&mut bytes).unwrap();
    let request = bytes.split_off(HEADER_BYTES + hello.len());
    (bytes, request)
}

/// The setup of an open toy.
pub fn set_up(channel: &mut Channel) {
    let key = Tag::new(0xf100, "toy key");
    assert_eq!(ask(channel, &Request::Setup), Reply::Go);
    channel.send(key, &[7; 8]).unwrap();
    channel.recv(key, 8).unwrap();
    assert!(matches!(wire::recv_reply(channel).unwrap(), Reply::Done { .. }));
}

/// Waits for a minute at most.
pub fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {condition}");
}

/// Waits until the control interface, which may lag by 100 ms, shows the present state.
pub fn wait_for_fresh_status() {
    thread::sleep(Duration::from_millis(110));
}

/// The metrics as an operator scrapes them, with the head of the answer.
pub fn scraped(server: &Running) -> String {
    wait_for_fresh_status();
    server.operator_get("/metrics")
}

/// The value of one metric with its labels.
pub fn value(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.shutdown(Duration::from_millis(200));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Whether a process has a handler for SIGHUP, the lowest bit of the mask.
pub fn catches_hangups(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}
