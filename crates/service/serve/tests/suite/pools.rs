//! Pools: material that a dealer makes ahead of any claim goes to one claim alone. It ends with the server,
//! the dealer, its lifetime or its room.
use crate::common::*;
use crate::dealers::{
    check_dealt_answer, check_values, client_config, lowered, lowered_by, open_dealt, reached, serve_dealt,
    start_dealer,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tacit_backends::dealer::{Dealings, InProcessDealer};
use tacit_backends::dealt::Dealt;
use tacit_backends::fss::Fss;
use tacit_backends::seam::{Claim, ConnectionResources, Dealer, Order, Piece, Seal, Seed, Stop, Ticket};
use tacit_backends::{Backend, BackendError, Registry, ServerModel};
use tacit_client::{Client, ClientConfig, Connection, infer_many};
use tacit_graph::Units;
use tacit_serve::{Catalog, ServerConfig};
use tacit_store::keys;

/// What was asked of the dealer.
#[derive(Default)]
struct DealerCalls {
    /// Materials for a claim, dealt when they were needed.
    at_once: usize,
    /// Materials for nobody.
    ahead: Vec<Ticket>,
    /// Materials that were bound, and whether the dealer had them.
    bound: Vec<(Ticket, bool)>,
    /// Halves that clients took.
    fetched: Vec<Ticket>,
}

/// A dealer in this process that can be started anew, and notes what it is asked.
#[derive(Clone)]
struct Watched {
    dealings: Arc<Mutex<Arc<Dealings>>>,
    party: u8,
    calls: Arc<Mutex<DealerCalls>>,
    /// Deals nothing ahead of time.
    fails: Arc<AtomicBool>,
}

/// Both back ends that a dealer deals for.
fn both() -> Registry {
    Registry::new(vec![Arc::new(Dealt), Arc::new(Fss)])
}

impl Watched {
    fn new() -> Self {
        let dealings = Arc::new(Mutex::new(Arc::new(Dealings::fresh(both(), 1).unwrap())));
        Self { dealings, party: 1, calls: Arc::default(), fails: Arc::default() }
    }

    fn inner(&self) -> InProcessDealer {
        InProcessDealer::new(Arc::clone(&self.dealings.lock().unwrap()), [self.party; 32])
    }

    /// As a party reaches it.
    fn resources(&self, party: u8) -> ConnectionResources {
        ConnectionResources { dealer: Some(Arc::new(Self { party, ..self.clone() })), ..ConnectionResources::default() }
    }

    /// All that was dealt is gone.
    fn restart(&self) {
        let mut dealings = self.dealings.lock().unwrap();
        *dealings = Arc::new(Dealings::fresh(both(), dealings.next()).unwrap());
    }

    fn inspect<T>(&self, look: impl FnOnce(&DealerCalls) -> T) -> T {
        look(&self.calls.lock().unwrap())
    }
}

impl Dealer for Watched {
    fn deal_into(
        &self,
        order: &Order<'_>,
        seal: &Seal,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.calls.lock().unwrap().at_once += 1;
        self.inner().deal_into(order, seal, sink)
    }

    fn deal_ahead(
        &self,
        order: &Order<'_>,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(BackendError::Dealer { what: "it has no time".into() });
        }
        self.inner().deal_ahead(order, &mut |piece| {
            if let Piece::Ticket(ticket) = piece {
                self.calls.lock().unwrap().ahead.push(*ticket);
            }
            sink(piece)
        })
    }

    fn bind(&self, ticket: &Ticket, seal: &Seal) -> Result<bool, BackendError> {
        let has_it = self.inner().bind(ticket, seal)?;
        self.calls.lock().unwrap().bound.push((*ticket, has_it));
        Ok(has_it)
    }

    fn fetch_into(
        &self,
        ticket: &Ticket,
        claim: &Claim,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.inner().fetch_into(ticket, claim, sink)?;
        self.calls.lock().unwrap().fetched.push(*ticket);
        Ok(())
    }

    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        self.inner().consent(ticket, claim)
    }

    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError> {
        self.inner().open(ticket)
    }

    fn stopped_by(self: Arc<Self>, _: &Stop) -> Arc<dyn Dealer> {
        self
    }
}

/// Serves `model` with `dealt` and pools, from a folder of its own.
fn serving(watched: &Watched, model: Arc<dyn ServerModel>, tune: impl FnOnce(&mut ServerConfig)) -> Running {
    Running::in_own_folder(|dir| serving_in(dir, &Dealt, watched, model, tune))
}

fn serving_in(
    dir: &Path,
    backend: &dyn Backend,
    watched: &Watched,
    model: Arc<dyn ServerModel>,
    tune: impl FnOnce(&mut ServerConfig),
) -> Running {
    let mut catalog = Catalog::new(false);
    catalog.offer("one", backend, model).unwrap();
    Running::serving_in(dir, catalog, |config| {
        config.resources = watched.resources(1);
        config.pool = 1 << 30;
        tune(config);
    })
}

fn client(server: &Running, name: &str, watched: &Watched) -> Client {
    client_of("dealt", server, name, watched)
}

fn client_of(backend: &str, server: &Running, name: &str, watched: &Watched) -> Client {
    let party = if name == "alice" { 2 } else { 3 };
    let config = ClientConfig { resources: watched.resources(party), ..server.config(name) };
    Connection::connect(both(), config).unwrap().open("one", Some(backend)).unwrap()
}

/// The body of what an operator is answered.
fn operator_body(server: &Running, path: &str) -> String {
    server.operator_get(path).split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn pools_status(server: &Running) -> Vec<Value> {
    let status: Value = serde_json::from_str(&operator_body(server, "/v1/status")).unwrap();
    status["pools"].as_array().unwrap().clone()
}

/// Materials in all pools, their bytes, and how many are being dealt.
fn pooled(server: &Running) -> [u64; 3] {
    let rows = pools_status(server);
    ["ready", "bytes", "dealing"].map(|column| rows.iter().map(|row| row[column].as_u64().unwrap()).sum())
}

fn wait_for_stock(server: &Running) {
    wait_until("there is stock", || pooled(server)[0] > 0);
}

/// Checks that no material was bound or fetched twice.
fn check_uses(watched: &Watched) {
    watched.inspect(|calls| {
        let distinct: BTreeSet<&Ticket> = calls.fetched.iter().collect();
        assert_eq!(distinct.len(), calls.fetched.len(), "a material was fetched twice");
        let bound: BTreeSet<&Ticket> = calls.bound.iter().map(|(ticket, _)| ticket).collect();
        assert_eq!(bound.len(), calls.bound.len(), "a material was bound twice");
        assert!(bound.iter().all(|ticket| calls.ahead.contains(ticket)));
    });
}

#[test]
fn pool_serves_first_client() {
    let watched = Watched::new();
    let server = serving(&watched, lowered(1), |_| {});
    // Stock is dealt before any client comes.
    wait_for_stock(&server);
    let bytes = lowered(1).order().unwrap().server_bytes;
    assert!(pooled(&server)[1] >= bytes);
    assert!(material_files(&server.dir.join("server-material")).is_empty());
    let mut alice = client(&server, "alice", &watched);
    check_dealt_answer(&mut alice);
    assert_eq!(watched.inspect(|calls| (calls.at_once, calls.bound.len(), calls.fetched.len())), (0, 1, 1));
    // The pool is filled again, and material that is kept for later comes from it, too.
    wait_for_stock(&server);
    assert_eq!(alice.prepare().unwrap().bytes.client, 16);
    check_dealt_answer(&mut alice);
    assert_eq!(watched.inspect(|calls| (calls.at_once, calls.bound.len())), (0, 2));
    check_uses(&watched);
    wait_for_stock(&server);
    let metrics = operator_body(&server, "/metrics");
    check_contains(
        &metrics,
        &["tacit_pool_draws_total{model=\"one\",backend=\"dealt\",name=\"found\"} 2", "tacit_pooled_materials{"],
    );
}

#[test]
fn concurrent_clients_share_no_material() {
    let watched = Watched::new();
    let audited = lowered_by(&Dealt, 1, "frac_bits=8,audit=300");
    let server = serving(&watched, audited, |_| {});
    wait_for_stock(&server);
    thread::scope(|scope| {
        for i in 0..6 {
            let (server, watched) = (&server, &watched);
            scope.spawn(move || {
                let mut client = client(server, ["alice", "bob"][i % 2], watched);
                for _ in 0..4 {
                    check_dealt_answer(&mut client);
                }
            });
        }
    });
    check_uses(&watched);
    // Audits use up more than the 24 materials of the answers.
    assert!(watched.inspect(|calls| calls.fetched.len()) >= 24);
    assert!(watched.inspect(|calls| calls.bound.len()) > 0, "some came from the pool");
}

#[test]
fn pools_material_with_tags() {
    for options in ["frac_bits=8,level=l1,audit=0", "frac_bits=8,level=l2,audit=500"] {
        let watched = Watched::new();
        let server =
            Running::in_own_folder(|dir| serving_in(dir, &Fss, &watched, lowered_by(&Fss, 1, options), |_| {}));
        let mut alice = client_of("fss", &server, "alice", &watched);
        for used in 1..3 {
            wait_for_stock(&server);
            check_dealt_answer(&mut alice);
            assert_eq!(watched.inspect(|calls| calls.bound.len()), used);
        }
        check_uses(&watched);
    }
}

#[test]
fn each_batch_size_has_its_pool() {
    let watched = Watched::new();
    let server = serving(&watched, lowered(1), |_| {});
    let mut alice = client(&server, "alice", &watched);
    let inputs: Vec<Vec<f32>> = (0..3u8).map(|i| X.map(|x| x + f32::from(i)).to_vec()).collect();
    // The first may come before anything was dealt for three; the second finds it.
    for expected_bound in [None, Some(1)] {
        let bound_before = watched.inspect(|calls| calls.bound.len());
        infer_many(&mut alice, Units::Network, &inputs, |index, answer| {
            check_values(&answer.values, &inputs[index]);
            Ok(())
        })
        .unwrap();
        wait_until("a batch of three is in stock", || {
            pools_status(&server).iter().any(|row| row["inputs"] == 3 && row["ready"].as_u64() > Some(0))
        });
        let bound = watched.inspect(|calls| calls.bound.len()) - bound_before;
        assert_eq!(bound, expected_bound.unwrap_or(bound));
    }
    check_uses(&watched);
}

#[test]
fn dealer_restart_empties_pool() {
    let watched = Watched::new();
    let server = serving(&watched, lowered(1), |_| {});
    wait_for_stock(&server);
    watched.restart();
    let lost: Vec<Ticket> = watched.inspect(|calls| calls.ahead.clone());
    let mut alice = client(&server, "alice", &watched);
    check_dealt_answer(&mut alice);
    assert_eq!(watched.inspect(|calls| (calls.at_once, calls.bound[0].1)), (1, false), "dealt at once");
    // No other lost material is tried; the next ones are of the restarted dealer.
    wait_until("the pool is filled again", || watched.inspect(|calls| calls.ahead.len()) > lost.len());
    wait_for_stock(&server);
    check_dealt_answer(&mut alice);
    let count_lost = |calls: &DealerCalls| calls.bound.iter().filter(|(ticket, _)| lost.contains(ticket)).count();
    assert_eq!(watched.inspect(|calls| (count_lost(calls), calls.bound.last().unwrap().1)), (1, true));
    check_uses(&watched);
}

#[test]
fn server_restart_empties_pool() {
    let (dir, watched) = (Folder::new(), Watched::new());
    for _ in 0..2 {
        let server = serving_in(&dir, &Dealt, &watched, lowered(1), |_| {});
        wait_for_stock(&server);
        let before: Vec<Ticket> = watched.inspect(|calls| calls.ahead.clone());
        drop(server);
        let server = serving_in(&dir, &Dealt, &watched, lowered(1), |_| {});
        wait_for_stock(&server);
        let mut alice = client(&server, "alice", &watched);
        check_dealt_answer(&mut alice);
        let bound = watched.inspect(|calls| calls.bound.last().unwrap().0);
        assert!(!before.contains(&bound), "a half of the server before");
    }
    check_uses(&watched);
}

#[test]
fn unused_pool_expires() {
    let watched = Watched::new();
    let server = serving(&watched, lowered(1), |config| config.pool_ttl = Duration::from_millis(1));
    wait_until("one was dealt", || watched.inspect(|calls| calls.ahead.len()) > 0);
    wait_until("it is gone", || pooled(&server) == [0; 3]);
    assert_eq!(watched.inspect(|calls| calls.ahead.len()), 1);
    let mut alice = client(&server, "alice", &watched);
    check_dealt_answer(&mut alice);
    assert_eq!(watched.inspect(|calls| (calls.at_once, calls.bound.len())), (1, 0));
    wait_until("another was dealt", || watched.inspect(|calls| calls.ahead.len()) > 1);
}

#[test]
fn limits_disk_of_pools() {
    let bytes = lowered(1).order().unwrap().server_bytes;
    for (pool, has_folder, max_ready) in [(2 * bytes, true, 2), (bytes - 1, true, 0), (0, true, 0), (1 << 30, false, 0)]
    {
        let watched = Watched::new();
        let server = serving(&watched, lowered(1), |config| {
            config.pool = pool;
            config.store.take_if(|_| !has_folder);
        });
        let mut alice = client(&server, "alice", &watched);
        for _ in 0..6 {
            if max_ready > 0 {
                wait_for_stock(&server);
            }
            check_dealt_answer(&mut alice);
            assert!(pooled(&server)[0] <= max_ready);
        }
        assert_eq!(watched.inspect(|calls| calls.bound.len()), if max_ready > 0 { 6 } else { 0 });
        assert_eq!(watched.inspect(|calls| calls.ahead.is_empty()), max_ready == 0);
    }
}

#[test]
fn deals_on_demand_if_pools_fail() {
    let watched = Watched::new();
    watched.fails.store(true, Ordering::SeqCst);
    let server = serving(&watched, lowered(1), |_| {});
    let mut alice = client(&server, "alice", &watched);
    for _ in 0..3 {
        check_dealt_answer(&mut alice);
    }
    assert_eq!(watched.inspect(|calls| (calls.at_once, calls.ahead.len())), (3, 0));
    // The dealer is asked again after the next answer.
    watched.fails.store(false, Ordering::SeqCst);
    check_dealt_answer(&mut alice);
    wait_for_stock(&server);
}

#[test]
fn only_servers_deal_ahead_and_bind() {
    let dir = Folder::new();
    let address = start_dealer(&dir);
    let model = lowered(1);
    let server = serve_dealt(&dir, address, Arc::clone(&model), |config| config.pool = 1 << 30);
    wait_for_stock(&server);
    let mut alice = open_dealt(client_config(&server, "alice", address));
    check_dealt_answer(&mut alice);
    let metrics = operator_body(&server, "/metrics");
    assert!(metrics.contains("tacit_pool_draws_total{model=\"one\",backend=\"dealt\",name=\"found\"} 1"), "{metrics}");
    let order = model.order().unwrap();
    let [orders, alice, bob] = [keys::ORDERS, "alice", "bob"].map(|name| reached(&dir, address, name));
    let ignored = &mut |_: Piece<'_>| Ok(());
    let mut ticket = None;
    let mut note_ticket = |piece: Piece<'_>| {
        if let Piece::Ticket(dealt) = piece {
            ticket = Some(*dealt);
        }
        Ok(())
    };
    orders.deal_ahead(&order, &mut note_ticket).unwrap();
    let ticket = ticket.unwrap();
    let [first, second] = [1, 2].map(|nonce| Claim { nonce: [nonce; 32], digest: order.digest });
    for refused in [bob.deal_ahead(&order, ignored), bob.bind(&ticket, &second.seal()).map(drop)] {
        let error = refused.err().unwrap().to_string();
        assert!(error.contains("only a server may order material"), "{error}");
    }
    assert!(bob.fetch(&ticket, &second).is_err(), "fetched before it was bound");
    assert!(orders.bind(&ticket, &first.seal()).unwrap());
    assert!(orders.bind(&ticket, &second.seal()).is_err());
    assert!(!orders.bind(&[7; 32], &first.seal()).unwrap());
    assert_eq!(alice.fetch(&ticket, &first).unwrap().len(), 16);
    assert!(bob.fetch(&ticket, &second).is_err());
}
