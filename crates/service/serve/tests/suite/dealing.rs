//! A dealer, a server and clients over TLS, each with its own certificate: who gets which material, and who
//! is refused.
use crate::common::*;
use crate::dealers::{
    check_dealt_answer, check_values, client_config, lowered, make_keys, open_dealt, reached, registry, resources,
    serve_dealt, start_dealer, start_dealer_with,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tacit_backends::dealt::Dealt;
use tacit_backends::seam::{Claim, ConnectionResources, Dealer, KeyStore, Order, Place, Stop, Ticket};
use tacit_backends::{BackendError, Registry, ServerModel};
use tacit_client::dealer::wire;
use tacit_client::{
    BatchPart, ClientConfig, ClientError, Connection, DealerConfig, KeyFolder, OpenedModels, RemoteDealer, infer_many,
};
use tacit_graph::Units;
use tacit_ids::ClientId;
use tacit_net::{Channel, Hello, TcpTransport, handshake};
use tacit_serve::Catalog;
use tacit_store::keys;

/// Starts a server of `model(1)` and its dealer.
fn serving(dir: &Path) -> (Running, SocketAddr) {
    let dealer = start_dealer(dir);
    (serve_dealt(dir, dealer, lowered(1), |_| {}), dealer)
}

#[test]
fn answers_with_dealt_material() {
    let dir = Folder::new();
    let (server, dealer) = serving(&dir);
    let config = client_config(&server, "alice", dealer);
    let mut client = open_dealt(config.clone());
    check_dealt_answer(&mut client);
    let prepared = client.prepare().unwrap();
    assert_eq!(prepared.bytes.client, 16, "the client keeps a seed");
    client.close().unwrap();
    let mut client = open_dealt(config);
    let answer = client.infer(&X).unwrap();
    check_values(&answer.values, &X);
    assert!(answer.prepared.is_none());
    check_dealt_answer(&mut client);
}

#[test]
fn answers_batches_with_dealt_material() {
    let dir = Folder::new();
    let (server, dealer) = serving(&dir);
    let config = client_config(&server, "alice", dealer);
    let mut client = open_dealt(config.clone());
    let inputs: Vec<Vec<f32>> = (0..5u8).map(|i| X.map(|x| x + f32::from(i)).to_vec()).collect();
    let single = client.infer(&X).unwrap();
    let rounds = single.online.client.rounds;
    let mut answer_count = 0;
    infer_many(&mut client, Units::Network, &inputs, |index, answer| {
        check_values(&answer.values, &inputs[index]);
        assert_eq!((answer.part, answer.online.client.rounds), (BatchPart { index, inputs: 5 }, rounds));
        answer_count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(answer_count, 5);
    let prepared = client.prepare_batch(3).unwrap();
    assert_eq!(prepared.bytes.client, 16, "the client keeps a seed");
    client.close().unwrap();
    let mut client = open_dealt(config);
    let answers = client.infer_batch(Units::Network, &inputs[..3]).unwrap();
    answers.iter().zip(&inputs).for_each(|(answer, input)| check_values(&answer.values, input));
    assert!(answers.iter().all(|answer| answer.prepared.is_none()));
    assert!(client.stored_batches().unwrap().is_empty());
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct FileCounts {
    found: usize,
    placed: usize,
}

/// A key store that counts the files that it finds and places.
struct CountingStore {
    folder: KeyFolder,
    counts: Mutex<FileCounts>,
}

impl KeyStore for CountingStore {
    fn load(&self, key: [u8; 32]) -> Option<Box<dyn Read>> {
        let file = self.folder.load(key);
        self.counts.lock().unwrap().found += usize::from(file.is_some());
        file
    }

    fn place(&self, key: [u8; 32], bytes: u64) -> Option<Box<dyn Place>> {
        self.counts.lock().unwrap().placed += 1;
        self.folder.place(key, bytes)
    }
}

#[test]
fn fetches_masked_weights_once() {
    let dir = Folder::new();
    let (server, dealer) = serving(&dir);
    let folder = dir.join("kept");
    let key_store = Arc::new(CountingStore { folder: KeyFolder::new(&folder), counts: Mutex::default() });
    let mut config = client_config(&server, "alice", dealer);
    config.resources.keep = Some(key_store.clone());
    // Each call acts as a new process, which has not opened the model before.
    let counts_after_answer = || {
        check_dealt_answer(&mut open_dealt(ClientConfig { opened: OpenedModels::default(), ..config.clone() }));
        *key_store.counts.lock().unwrap()
    };
    assert_eq!(counts_after_answer(), FileCounts { found: 0, placed: 1 });
    assert_eq!(counts_after_answer(), FileCounts { found: 1, placed: 1 });
    // Masked weights that were changed on the disk are fetched again.
    let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "kept")) {
        fs::write(file, b"something else").unwrap();
    }
    assert_eq!(counts_after_answer(), FileCounts { found: 2, placed: 2 });
}

#[test]
fn refuses_missing_and_other_dealers() {
    let dir = Folder::new();
    let (server, dealer) = serving(&dir);
    let ask = |resources: ConnectionResources| -> ClientError {
        let config = ClientConfig { resources, ..server.config("alice") };
        open_dealt(config).infer(&X).unwrap_err()
    };
    assert!(matches!(ask(ConnectionResources::default()), ClientError::NoDealer { .. }));
    // The dealer has a certificate of the same CA, but another one than the client expects.
    let other = DealerConfig::new(&dealer.to_string(), ClientId([7; 32]), identity(&dir, "alice"));
    let dealer = Some(Arc::new(RemoteDealer::new(other).unwrap()) as Arc<dyn Dealer>);
    let error = ask(ConnectionResources { dealer, ..ConnectionResources::default() }).to_string();
    assert!(error.contains("is this the dealer that you agreed on?"), "{error}");
    // Another dealer, which has not dealt this material.
    let error = ask(resources(&dir, dealer_apart(&dir), "alice")).to_string();
    assert!(error.contains("there is no such material"), "{error}");
    // A back end that trusts a dealer is used only if it is named.
    let connection = Connection::connect(registry(), server.config("alice")).unwrap();
    let error = connection.open("one", None).err().unwrap().to_string();
    assert!(error.contains("trusts a dealer"), "{error}");
}

#[test]
fn names_unreachable_dealer() {
    let dir = Folder::new();
    let unused_address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = serve_dealt(&dir, unused_address, lowered(1), |_| {});
    let config = client_config(&server, "alice", unused_address);
    for _ in 0..3 {
        let error = open_dealt(config.clone()).infer(&X).unwrap_err();
        assert!(matches!(error, ClientError::Ended { .. }), "{error:?}");
        check_contains(&error.to_string(), &["the dealer", "cannot be reached"]);
    }
}

/// Starts a second dealer with the same certificate, as if the first had been restarted.
fn dealer_apart(dir: &Path) -> SocketAddr {
    let dir = dir.to_owned();
    thread::spawn(move || start_dealer(&dir)).join().unwrap()
}

#[track_caller]
fn check_error<T>(result: Result<T, BackendError>, text: &str) {
    check_contains(&result.err().unwrap().to_string(), &[text]);
}

#[test]
fn delivers_each_half_once() {
    let dir = Folder::new();
    let address = start_dealer(&dir);
    let model = lowered(3);
    let order = model.order().unwrap();
    let [orders, alice, bob] = [keys::ORDERS, "alice", "bob"].map(|who| reached(&dir, address, who));
    let claim = |nonce: u8| Claim { nonce: [nonce; 32], digest: order.digest };
    check_error(alice.deal(&order, &claim(1).seal()), "only a server may order material");
    let (ticket, half) = orders.deal(&order, &claim(1).seal()).unwrap();
    assert_eq!(half.len() as u64, order.server_bytes);
    check_error(orders.fetch(&ticket, &claim(1)), "both halves");
    // The server has the ticket too, so a ticket without the right claim fetches nothing; nor does a claim
    // for another plan.
    for wrong in [claim(2), Claim { digest: [9; 32], ..claim(1) }] {
        check_error(bob.fetch(&ticket, &wrong), "not dealt for this client's claim");
    }
    assert_eq!(alice.fetch(&ticket, &claim(1)).unwrap().len(), 16);
    // Alice has acknowledged the half: the dealer burns it before it takes her next request.
    check_error(alice.fetch(&ticket, &claim(1)), "fetched before");
    let (other, _) = orders.deal(&order, &claim(3).seal()).unwrap();
    let mut guessed = other;
    guessed[20] ^= 1;
    assert!(bob.fetch(&guessed, &claim(3)).is_err(), "a number alone fetches nothing");
    assert!(bob.fetch(&other, &claim(3)).is_ok());
    // Each material has its own masks.
    let (_, second) = orders.deal(&order, &claim(1).seal()).unwrap();
    assert!(*second != *half);
}

#[test]
fn refuses_model_under_other_keys() {
    let dir = Folder::new();
    let address = start_dealer(&dir);
    let model = lowered(3);
    let order = model.order().unwrap();
    let orders = reached(&dir, address, keys::ORDERS);
    orders.deal(&order, &[0; 32]).unwrap();
    let part: Vec<u8> = order.part.iter().map(|b| b ^ 1).collect();
    // The dealer already knows this plan, so it does not ask for the keys again; it would reject different
    // ones.
    let public = [order.public, &[0]].concat();
    for (bad, why) in [
        (Order { digest: [1; 32], part: &part, ..order }, "registered already"),
        (Order { digest: [2; 32], part: &part[1..], ..order }, "bytes of keys"),
        (Order { digest: [3; 32], public: &public, ..order }, "public"),
        (Order { digest: [4; 32], backend: "clear", ..order }, "there is no back end"),
    ] {
        check_error(orders.deal(&bad, &[0; 32]), why);
    }
    assert!(orders.deal(&order, &[0; 32]).is_ok(), "the connection and the model go on");
}

#[test]
fn limits_dealer_connections_per_party() {
    let dir = Folder::new();
    let address = start_dealer_with(&dir, |config| config.max_per_party = 2);
    let model = lowered(3);
    let order = model.order().unwrap();
    let claim = Claim { nonce: [1; 32], digest: order.digest };
    // Each of the three keeps its connection open after a request.
    let [first, second, third] = [(); 3].map(|()| reached(&dir, address, keys::ORDERS));
    let (ticket, _) = first.deal(&order, &claim.seal()).unwrap();
    second.deal(&order, &[0; 32]).unwrap();
    assert!(third.deal(&order, &[0; 32]).is_err());
    assert!(reached(&dir, address, "alice").fetch(&ticket, &claim).is_ok());
    // The place becomes free when the dealer notices that the connection has ended.
    drop(first);
    while third.deal(&order, &[0; 32]).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn strangers_and_clients_take_no_slot_of_servers() {
    let dir = Folder::new();
    let address = start_dealer_with(&dir, |config| (config.max_connections, config.max_handshakes) = (1, 4));
    let model = lowered(3);
    let order = model.order().unwrap();
    let orders = reached(&dir, address, keys::ORDERS);
    let mut silent: Vec<TcpStream> = (0..6).map(|_| TcpStream::connect(address).unwrap()).collect();
    orders.deal(&order, &[0; 32]).unwrap();
    // The oldest silent connections were evicted.
    for closed in &mut silent[..2] {
        closed.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert!(matches!(closed.read(&mut [0]), Ok(0) | Err(_)));
    }
    // Alice takes the only place of clients and keeps her connection open.
    let claim = Claim { nonce: [1; 32], digest: order.digest };
    let (first, _) = orders.deal(&order, &claim.seal()).unwrap();
    let alice = reached(&dir, address, "alice");
    assert!(alice.fetch(&first, &claim).is_ok());
    let (second, _) = orders.deal(&order, &claim.seal()).expect("servers and clients have separate places");
    assert!(reached(&dir, address, "bob").fetch(&second, &claim).is_err());
    assert!(alice.fetch(&second, &claim).is_ok());
}

/// The program `tacit-dealer`; killed with the test.
struct Program {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Program {
    fn start(dir: &Path) -> Self {
        let log = dir.join("dealer.log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacit-dealer"));
        command.current_dir(dir).args(["--listen", "127.0.0.1:0", "--json"]).env("TACIT_LOG", "warn");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let startup: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = startup["listening"].as_str().unwrap().parse().unwrap();
        Self { child, address, log }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn has_logged(&self, text: &str) -> bool {
        fs::read_to_string(&self.log).unwrap().contains(text)
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a dealer, has it deal, and tells it to stop; returns the claim and the ticket that alice needs.
fn stopping_dealer(dir: &Path, model: &dyn ServerModel) -> (Program, Claim, Ticket) {
    make_keys(dir);
    let order = model.order().unwrap();
    let claim = Claim { nonce: [1; 32], digest: order.digest };
    let mut program = Program::start(dir);
    let orders = reached(dir, program.address, keys::ORDERS);
    let (ticket, _) = orders.deal(&order, &claim.seal()).unwrap();
    program.signal(Signal::TERM);
    wait_until("the signal is logged", || program.has_logged("stopping"));
    check_error(orders.deal(&order, &[0; 32]), "takes no more orders");
    assert!(program.is_running(), "alice has not come yet");
    (program, claim, ticket)
}

#[test]
fn stopping_dealer_waits_for_dealt_client() {
    let (dir, model) = (Folder::new(), lowered(3));
    let (mut program, claim, ticket) = stopping_dealer(&dir, &*model);
    let alice = reached(&dir, program.address, "alice");
    assert_eq!(alice.fetch(&ticket, &claim).unwrap().len(), 16);
    assert_eq!(program.child.wait().unwrap().code(), Some(0));
    assert!(!program.has_logged("stopping now"));
}

#[test]
fn second_signal_ends_dealer_at_once() {
    let (dir, model) = (Folder::new(), lowered(3));
    let (mut program, claim, ticket) = stopping_dealer(&dir, &*model);
    program.signal(Signal::INT);
    assert_eq!(program.child.wait().unwrap().code(), Some(0));
    assert!(program.has_logged("stopping now"));
    assert!(reached(&dir, program.address, "alice").fetch(&ticket, &claim).is_err());
}

/// Starts a dealer that takes requests and never answers; returns its address and the count of requests.
fn mute_dealer(dir: &Path) -> (SocketAddr, Arc<AtomicUsize>) {
    let folder = dir.join("keys");
    make_keys(dir);
    let (tls, listener) = (keys::load_dealer(&folder).unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (address, request_count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&request_count);
    thread::spawn(move || {
        let mut mute = Vec::new();
        for stream in listener.incoming() {
            let Ok(tls) = tls.accept(TcpTransport::new(stream.unwrap()).unwrap()) else { continue };
            let mut channel = Channel::new(Box::new(tls));
            handshake(&mut channel, &Hello::without_model()).unwrap();
            channel.recv_max(wire::ASK, wire::MAX_BYTES).unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            mute.push(channel);
        }
    });
    (address, request_count)
}

#[test]
fn stops_waiting_for_dealer_with_connection() {
    let dir = Folder::new();
    let (dealer, request_count) = mute_dealer(&dir);
    let server = serve_dealt(&dir, dealer, lowered(1), |_| {});
    let mut client = open_dealt(client_config(&server, "alice", dealer));
    let waiting = thread::spawn(move || client.infer(&X).unwrap_err());
    wait_until("the server waits for the dealer", || request_count.load(Ordering::SeqCst) == 1);
    // The server ends without waiting for the phase.
    server.handle.shutdown(Duration::ZERO);
    wait_until("the server's wait is over", || server.handle.connections() == 0);
    waiting.join().unwrap();
    // A client that waits for the answer or connects is stopped, too.
    let order_of = lowered(2);
    for (address, requests) in [(dealer, 2), (silent_address(), 0)] {
        let stop = Stop::default();
        let alice = Arc::new(reached(&dir, address, "alice")).stopped_by(&stop);
        let digest = order_of.order().unwrap().digest;
        let waiting = thread::spawn(move || alice.fetch(&[0; 32], &Claim { nonce: [0; 32], digest }).err().unwrap());
        if requests > 0 {
            wait_until("it waits", || request_count.load(Ordering::SeqCst) == requests);
        }
        stop.raise();
        assert!(matches!(waiting.join().unwrap(), BackendError::Stopped));
    }
}

#[test]
fn slow_dealer_occupies_no_core() {
    let dir = Folder::new();
    let (dealer, request_count) = mute_dealer(&dir);
    let mut catalog = Catalog::new(false);
    catalog.offer("one", &Dealt, lowered(1)).unwrap();
    offer(&mut catalog, "toy", &Toy::default(), 2, "");
    let server = Running::serving_in(&dir, catalog, |config| {
        config.resources = resources(&dir, dealer, keys::ORDERS);
        (config.cores, config.dealings) = (1, 2);
    });
    let both_backends = || Registry::new(vec![Arc::new(Dealt), Arc::new(Toy::default())]);
    let open = |who, model, backend| {
        let connection = Connection::connect(both_backends(), client_config(&server, who, dealer)).unwrap();
        connection.open(model, Some(backend)).unwrap()
    };
    let waits = |_| {
        let mut client = open("alice", "one", "dealt");
        thread::spawn(move || client.infer(&X).unwrap_err())
    };
    let waiting: Vec<_> = (0..3).map(waits).collect();
    wait_until("two dealings are under way", || request_count.load(Ordering::SeqCst) == 2);
    // The core is free for other clients, whose material is made.
    let mut client = open("bob", "toy", "toy");
    for _ in 0..3 {
        check_answer(&mut client, 2);
    }
    assert_eq!(request_count.load(Ordering::SeqCst), 2, "the third waits for one of two places");
    server.handle.shutdown(Duration::ZERO);
    waiting.into_iter().for_each(|client| drop(client.join().unwrap()));
}

/// Returns the address of a listener that takes connections and sends nothing.
fn silent_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    address
}

#[test]
fn dealer_request_times_out() {
    let dir = Folder::new();
    let address = start_dealer_with(&dir, |config| config.request_timeout = Duration::ZERO);
    let model = lowered(3);
    let order = model.order().unwrap();
    let error = reached(&dir, address, keys::ORDERS).deal(&order, &[0; 32]).err().unwrap();
    assert!(matches!(error, BackendError::Dealer { .. }), "{error}");
}
