//! A server on a free port with toy models, clients of it, and connections that speak for themselves.
#![allow(dead_code)]
#[path = "../../../client/tests/common/mod.rs"]
pub mod models;

#[allow(unused_imports, reason = "each test uses what it needs")]
pub use models::{expected, model, two_layers};
pub use tacit_backends::toy::Toy;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tacit_backends::cheetah::Cheetah;
use tacit_backends::{Backend, Registry, Trust};
use tacit_client::wire::{self, Device, LinkClass, PUBLIC, REQUEST, Reply, Request};
use tacit_client::{Client, ClientConfig, Connection};
use tacit_net::{Channel, HEADER_BYTES, Hello, MemTransport, Tag, TcpTransport, TlsTransport, Transport, handshake};
use tacit_serve::{Catalog, Server, ServerConfig, ServerHandle, Source};
use tacit_store::keys;

/// How long a server waits for those who do nothing here: long enough for those who do something on a busy
/// machine.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// What connections here say that they are.
pub const DEVICE: Device = Device { threads: 1, link: LinkClass::Lan, memory_mib: 0 };

/// The toy, and one of another name whose server sees the input.
pub fn registry() -> Registry {
    Registry::new(vec![Arc::new(Toy::default()), Arc::new(open_toy())])
}

/// A toy that says what it is.
pub fn open_toy() -> Toy {
    Toy { id: "open", trust: Trust::ServerSeesInput, plan: 0 }
}

/// Models `one` and `two` with the toy.
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
pub fn serving_batches(dir: &Path, tune: impl FnOnce(&mut ServerConfig)) -> Running {
    let mut catalog = Catalog::new(false);
    catalog.offer("net", &Cheetah, Cheetah.lower(&two_layers(), &"frac_bits=8".parse().unwrap()).unwrap()).unwrap();
    offer(&mut catalog, "one", &Toy::default(), 1, "");
    Running::with(dir, catalog, tune)
}

/// A folder of keys for two clients and an operator, where there is none yet.
pub fn make_keys(dir: &Path) -> PathBuf {
    let keys = dir.join("keys");
    if !keys.exists() {
        keys::init(&keys, &[], &["alice".into(), "bob".into()]).unwrap();
        keys::add_operator(&keys, "ops").unwrap();
    }
    keys
}

/// An access file that says this of all clients, and this of alice.
pub fn rules(dir: &Path, default: &str, alice: &str) -> PathBuf {
    let who = keys::load_client(&make_keys(dir), "alice").unwrap().fingerprint;
    let path = dir.join("access.toml");
    fs::write(&path, format!("[default]\n{default}\n\n[client.{who}]\n{alice}\n")).unwrap();
    path
}

/// A server with TLS keys for the clients `alice` and `bob`, and the operator `ops`, in `dir/keys`.
pub struct Running {
    pub handle: ServerHandle,
    pub address: String,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// With the models of [`catalog`].
    pub fn start(dir: &Path, tune: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::with(dir, catalog(), tune)
    }

    /// That gives up soon on those who do nothing.
    pub fn impatient(dir: &Path) -> Self {
        Self::start(dir, |c| {
            c.stall_timeout = PATIENCE;
            c.greeting_timeout = PATIENCE;
            c.idle_timeout = 20 * PATIENCE;
        })
    }

    pub fn with(dir: &Path, catalog: Catalog, tune: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::built(dir, catalog, tune, |server| server)
    }

    /// That looks at `source` again when it is asked to.
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
        // What is tested here is not how many jobs this machine can run.
        config.cores = 64;
        config.strict_cores = true;
        // Nor what a dealer is asked for when nobody waits.
        config.pool = 0;
        tune(&mut config);
        let server = finish(Server::bind(catalog, config).unwrap());
        let (handle, address) = (server.handle(), server.address().to_string());
        let thread = Some(thread::spawn(move || server.run()));
        Self { handle, address, thread }
    }

    pub fn config(&self, dir: &Path, name: &str) -> ClientConfig {
        let mut config = ClientConfig::new(&self.address, keys::load_client(&dir.join("keys"), name).unwrap());
        config.store = Some(dir.join(format!("{name}-material")));
        config.stall_timeout = 20 * PATIENCE;
        config
    }

    pub fn connection(&self, dir: &Path, name: &str) -> Connection {
        Connection::connect(registry(), self.config(dir, name)).unwrap()
    }

    pub fn client(&self, dir: &Path, name: &str, model: &str) -> Client {
        self.connection(dir, name).open(model, None).unwrap()
    }

    /// An authenticated connection that has said nothing yet.
    pub fn tls(&self, dir: &Path, name: &str) -> TlsTransport {
        let mut tcp = TcpTransport::connect(self.address.as_str(), Duration::from_secs(5)).unwrap();
        tcp.set_stall_timeout(20 * PATIENCE).unwrap();
        keys::load_client(&dir.join("keys"), name).unwrap().tls.connect(tcp, "127.0.0.1").unwrap()
    }

    /// An authenticated connection for HTTP/1.1.
    pub fn http(&self, dir: &Path, name: &str) -> TlsTransport {
        let mut tcp = TcpTransport::connect(self.address.as_str(), Duration::from_secs(5)).unwrap();
        tcp.set_stall_timeout(20 * PATIENCE).unwrap();
        keys::load_client(&dir.join("keys"), name).unwrap().tls.for_http().connect(tcp, "127.0.0.1").unwrap()
    }

    /// A connection that was welcomed. It holds no thread at this end.
    pub fn greeted(&self, dir: &Path, name: &str) -> Channel {
        let mut channel = Channel::new(Box::new(self.tls(dir, name)));
        handshake(&mut channel, &Hello::opening()).unwrap();
        assert_eq!(wire::recv_reply(&mut channel).unwrap(), Reply::Welcome);
        channel
    }

    /// A connection that has opened a toy model. It holds no thread at this end.
    pub fn opened(&self, dir: &Path, name: &str, model: &str) -> Channel {
        let mut channel = self.greeted(dir, name);
        let public = public_part(&mut channel, model);
        let plan = Toy::default().open(&public).unwrap().digest();
        handshake(&mut channel, &Hello::opened(plan, wire::public_digest(&public))).unwrap();
        channel
    }

    /// A connection that has said all but the last byte of its first request (the list of models), byte by
    /// byte; and that byte.
    pub fn trickle(&self, dir: &Path, name: &str) -> (TlsTransport, u8) {
        let (hello, request) = first_frames();
        let mut raw = self.tls(dir, name);
        raw.write_all(&hello).unwrap();
        // The server's hello and its welcome.
        raw.read_exact(&mut vec![0; hello.len() + HEADER_BYTES + 1]).unwrap();
        let (last, head) = request.split_last().unwrap();
        for byte in head {
            raw.write_all(&[*byte]).unwrap();
        }
        (raw, *last)
    }

    /// Waits until all connections have ended, so that what they did is on disk.
    pub fn settle(&self) {
        wait_until("connections end", || self.handle.connections() == 0);
    }
}

/// Asks for a toy model; its public part, which both parties are to compare next.
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

/// The bytes of a client's hello, and of its first request.
fn first_frames() -> (Vec<u8>, Vec<u8>) {
    let (ours, mut raw) = MemTransport::pair();
    let mut channel = Channel::new(Box::new(ours));
    let hello = Hello::opening().to_bytes();
    channel.send(Tag::HELLO, &hello).unwrap();
    wire::send(&mut channel, REQUEST, &Request::List).unwrap();
    drop(channel);
    let mut bytes = Vec::new();
    raw.read_to_end(&mut bytes).unwrap();
    let request = bytes.split_off(HEADER_BYTES + hello.len());
    (bytes, request)
}

/// The setup of an opened toy.
pub fn set_up(channel: &mut Channel) {
    let key = Tag::new(0xf100, "toy key");
    assert_eq!(ask(channel, &Request::Setup), Reply::Go);
    channel.send(key, &[7; 8]).unwrap();
    channel.recv(key, 8).unwrap();
    assert!(matches!(wire::recv_reply(channel).unwrap(), Reply::Done { .. }));
}

/// Waits without end for what must come to pass (a minute is without end here).
pub fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {condition}");
}

/// Waits until the control interface shows what holds now: it may show what held 100 ms ago.
pub fn wait_for_fresh_status() {
    thread::sleep(Duration::from_millis(110));
}

/// The answer to a scrape, with its head.
pub fn scraped(server: &Running, dir: &Path) -> String {
    let mut stream = server.http(dir, "ops");
    wait_for_fresh_status();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of a figure.
pub fn value(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

/// Threads of this process.
pub fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
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
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}
