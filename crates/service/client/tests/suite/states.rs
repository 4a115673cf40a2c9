//! A client's life, broken off at each message of the server in each way. `PLACES` is the life: what the
//! server says, and what the client names if the connection is lost while it waits for that.
use crate::common::expected;
use crate::peer::*;
use std::time::Duration;
use tacit_client::wire::{REPLY, Reply};
use tacit_client::{Client, ClientConfig, ClientError, Connection};
use tacit_net::{MAX_FRAME_BYTES, Tag};
use tacit_store::Store;

const CONNECTING: &str = "cannot reach the server at 127.0.0.1:";
const PLACES: [(&str, &str); 23] = [
    ("hello", CONNECTING),
    ("Welcome", CONNECTING),
    ("Reconciled", "the list of material"),
    ("Models", "the list of models"),
    ("Model", "the model"),
    ("public part", "the model"),
    ("hello", "the model"),
    // Material is prepared: setup and offline phase.
    ("Go", "the setup"),
    ("toy key", "the setup"),
    ("Done", "the setup"),
    ("Go", "the preparation of material"),
    ("Done", "the preparation of material"),
    // An input is answered with it.
    ("Ids", "the list of material"),
    ("Noted", "the inference"),
    ("Go", "the inference"),
    ("toy output", "the inference"),
    ("Done", "the inference"),
    // An input is answered with new material.
    ("Noted", "the inference"),
    ("Go", "the preparation of material"),
    ("Done", "the preparation of material"),
    ("Go", "the inference"),
    ("toy output", "the inference"),
    ("Done", "the inference"),
];

const FOREIGN: Tag = Tag::new(0xf777, "foreign");

fn goodbye() -> Vec<u8> {
    postcard::to_stdvec(&Reply::Goodbye { reason: "it\u{1b}[31m sleeps".into() }).unwrap()
}

fn whole(number: u64, tag: Tag, payload: &[u8]) -> Vec<u8> {
    frame(number, tag, payload.len() as u32, payload)
}

/// Name, whether the channel refuses further use, and the deed.
const FAULTS: [(&str, bool, Fault); 12] = [
    ("cut", false, Fault::Raw(|number, tag, payload| whole(number, tag, &payload[..payload.len() - 1]))),
    ("longer", false, Fault::Raw(|number, tag, payload| whole(number, tag, &[payload, &[0]].concat()))),
    ("unknown", false, Fault::Raw(|number, tag, _| whole(number, tag, &[99]))),
    ("goodbye", false, Fault::Raw(|number, _, _| whole(number, REPLY, &goodbye()))),
    ("foreign", true, Fault::Raw(|number, _, payload| whole(number, FOREIGN, payload))),
    ("checksum", true, Fault::Raw(|number, tag, payload| whole(number + 1, tag, payload))),
    ("huge", true, Fault::Raw(|number, tag, _| frame(number, tag, MAX_FRAME_BYTES as u32 + 1, &[]))),
    (
        "half a frame",
        true,
        Fault::Raw(|number, tag, payload| whole(number, tag, payload)[..10 + payload.len() / 2].to_vec()),
    ),
    ("closed", true, Fault::Raw(|_, _, _| vec![])),
    ("twice", false, Fault::Twice),
    ("silent", true, Fault::Silent),
    ("alive", true, Fault::Alive),
];

/// What the error says of a fault at a place.
fn said(fault: &str, place: usize) -> &'static str {
    let (message, during) = PLACES[place];
    let kind = match message {
        "hello" | "public part" => message,
        "toy key" | "toy output" => "toy",
        _ => "reply",
    };
    match (fault, kind) {
        ("cut" | "unknown", "reply") => "unexpected reply from the server",
        ("longer", "reply") => "1 bytes left over",
        ("cut" | "longer", "hello") => "message `hello` is malformed",
        ("unknown", "hello") => "not a tacit party",
        ("cut" | "unknown", "public part") => "public part of a model",
        ("longer", "public part") => "may have at most",
        ("cut" | "longer" | "unknown", _) => "must have",
        ("goodbye", "reply" | "toy") => "has ended the connection: it\u{fffd}[31m sleeps",
        ("goodbye", _) => "but one of `serve` came",
        ("foreign", _) => "but one of `test` came",
        ("checksum", _) => "fails its checksum",
        ("huge", _) => "that any frame may carry",
        _ => during,
    }
}

/// How a life ended early.
#[derive(Debug)]
struct BrokenLife {
    error: ClientError,
    /// The error of asking once more, if the model was open.
    again: Option<ClientError>,
}

impl BrokenLife {
    fn new(error: ClientError, again: Option<ClientError>) -> Box<Self> {
        Box::new(Self { error, again })
    }
}

/// Connects, opens the model, prepares material, and asks twice. On an error, asks once more.
fn live(config: ClientConfig) -> Result<(), Box<BrokenLife>> {
    fn ask(client: &mut Client) -> Result<(), ClientError> {
        assert_eq!(client.infer(&X)?.values, expected(1, &X));
        Ok(())
    }
    let opened = Connection::connect(registry(), config).and_then(|connection| connection.open("tiny", None));
    let mut client = opened.map_err(|e| BrokenLife::new(e, None))?;
    let asked = client.prepare().and_then(|_| ask(&mut client)).and_then(|()| ask(&mut client));
    asked.map_err(|e| BrokenLife::new(e, Some(ask(&mut client).expect_err("the connection is of no more use"))))?;
    client.close().map_err(|e| BrokenLife::new(e, None))
}

/// What the lives of a client share.
struct Lives {
    shop: Shared,
    server: Server,
    store: Store,
    config: ClientConfig,
    _dir: tempfile::TempDir,
}

impl Lives {
    fn new() -> Self {
        let (dir, shop) = (tempfile::tempdir().unwrap(), Shared::default());
        let (server, store) = (Server::honest(&shop), folder(&dir.path().join("material")));
        let config = config(&server, Some(store.dir()));
        let lives = Self { shop, server, store, config, _dir: dir };
        lives.whole();
        lives
    }

    /// A life without a fault.
    fn whole(&self) {
        live(self.config.clone()).unwrap();
        self.server.settle();
        assert_eq!(self.shop.lock().said, PLACES.map(|(message, _)| message), "the places are those");
    }

    /// A life that is broken off at a place; `None` if it has not come so far.
    fn broken(&self, breaks: bool, (place, fault): (usize, Fault), config: ClientConfig) -> Option<String> {
        *self.shop.lock() = Shop { fault: Some((place, fault)), ..Shop::default() };
        let ended = live(config);
        self.server.settle();
        let came = self.shop.lock().said.len() > place;
        self.shop.lock().fault = None;
        let text = ended.as_ref().err().map(|life| life.error.to_string()).unwrap_or_default();
        assert_eq!(tacit_foreign::plain(&text), text);
        if let Err(life) = &ended
            && let Some(again) = &life.again
        {
            assert!(!breaks || again.to_string().contains("already failed"), "{text}; then {again}");
        }
        self.settle();
        came.then_some(text)
    }

    fn settle(&self) {
        let mut used = std::mem::take(&mut self.shop.lock().used);
        used.sort();
        assert!(used.windows(2).all(|two| two[0].0 != two[1].0), "an input under material that was used before");
        let left = ready(&self.store);
        assert!(used.iter().all(|(id, _)| !left.contains(id)), "what was used is ready");
        if left.is_empty() && self.shop.lock().stored.is_empty() {
            return;
        }
        Connection::connect(registry(), self.config.clone()).unwrap().close().unwrap();
        self.server.settle();
        let both = ready(&self.store);
        assert!(both.iter().eq(self.shop.lock().stored.keys()), "the parties hold halves of other materials");
        self.store.discard(&both, None).unwrap();
        self.shop.lock().stored.clear();
    }
}

/// Breaks off a life at each place in each of these ways.
fn sweep(faults: &[&str], tune: impl Fn(u32, &mut ClientConfig)) {
    let lives = Lives::new();
    for (name, breaks, fault) in FAULTS.into_iter().filter(|(name, ..)| faults.contains(name)) {
        for (place, message) in PLACES.iter().enumerate() {
            if name == "alive" && place < 2 {
                // A client that connects waits for its deadline alone.
                continue;
            }
            println!("{name} at {place}, {message:?}");
            let tries = (0..8).filter_map(|tried| {
                let mut config = lives.config.clone();
                tune(tried, &mut config);
                lives.broken(breaks, (place, fault.clone()), config)
            });
            let text = { tries }.next().expect("it comes to the fault");
            let right = match name {
                "twice" if place + 1 == PLACES.len() => text.is_empty(),
                "twice" => text.contains("unexpected reply from the server") || text.contains("but one of"),
                _ => text.contains(said(name, place)),
            };
            assert!(right, "{text}");
        }
    }
    lives.whole();
}

#[test]
fn names_wrong_message_content() {
    sweep(&["cut", "longer", "unknown", "goodbye"], |_, _| ());
}

#[test]
fn invalid_frame_ends_connection() {
    sweep(&["foreign", "checksum", "huge", "half a frame"], |_, _| ());
}

#[test]
fn names_closing_and_repeating_server() {
    sweep(&["closed", "twice"], |_, _| ());
}

#[test]
fn gives_up_server_that_sends_only_signs_of_life() {
    sweep(&["alive"], |_, config| config.patience = Duration::from_nanos(1));
}

#[test]
fn gives_up_silent_server() {
    // On a busy machine, a client of short patience may give up before the fault: it gets more then.
    sweep(&["silent"], |tried, config| config.stall_timeout = Duration::from_millis(50) * 4_u32.pow(tried));
}
