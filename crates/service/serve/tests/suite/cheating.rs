//! A client that deviates from the protocol of `fss` gets no material, and the audit names it.
use crate::by_hand::server_state;
use crate::common::*;
use crate::dealers::lowered_by;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tacit_backends::dealer::{Dealings, InProcessDealer};
use tacit_backends::fss::Fss;
use tacit_backends::seam::{Claim, ConnectionResources, Dealer, Order, Piece, Seal, Seed, Stop, Ticket};
use tacit_backends::{BackendError, Registry, ServerModel};
use tacit_client::{ClientConfig, Connection};
use tacit_serve::Catalog;

fn registry() -> Registry {
    Registry::new(vec![Arc::new(Fss)])
}

/// A dealer whose client takes the valid half of another material.
struct Cheating {
    inner: InProcessDealer,
    other: Dealings,
    model: Arc<dyn ServerModel>,
    cheats: Arc<AtomicBool>,
}

impl Dealer for Cheating {
    fn deal_into(
        &self,
        order: &Order<'_>,
        seal: &Seal,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.inner.deal_into(order, seal, sink)
    }

    fn fetch_into(
        &self,
        ticket: &Ticket,
        claim: &Claim,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        if !self.cheats.load(Ordering::Relaxed) {
            return self.inner.fetch_into(ticket, claim, sink);
        }
        let order = self.model.order().unwrap();
        self.other.register([3; 32], order.backend, order.public, order.part, |_| Ok(()))?;
        let started = self.other.start([3; 32], order.digest, order.batch, Some(claim.seal()))?;
        self.other.fetch([2; 32], &started.ticket, claim)?.half(sink)
    }

    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        self.inner.consent(ticket, claim)
    }

    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError> {
        self.inner.open(ticket)
    }

    fn stopped_by(self: Arc<Self>, _: &Stop) -> Arc<dyn Dealer> {
        self
    }
}

/// Number of files of material in the folders of server and client.
fn material_counts(dir: &Path) -> [usize; 2] {
    ["server-material", "alice-material"].map(|folder| material_files(&dir.join(folder)).len())
}

#[test]
fn audit_names_cheating_client() {
    let dir = Folder::new();
    let dealings = Arc::new(Dealings::fresh(registry(), 1).unwrap());
    let resources =
        |dealer: Arc<dyn Dealer>| ConnectionResources { dealer: Some(dealer), ..ConnectionResources::default() };
    let mut catalog = Catalog::new(false);
    let offered = lowered_by(&Fss, 1, "frac_bits=8,audit=0");
    catalog.offer("one", &Fss, Arc::clone(&offered)).unwrap();
    let server = Running::serving_in(&dir, catalog, |config| {
        config.resources = resources(Arc::new(InProcessDealer::new(Arc::clone(&dealings), [1; 32])));
    });
    let cheats = Arc::new(AtomicBool::new(true));
    let inner = InProcessDealer::new(Arc::clone(&dealings), [2; 32]);
    let other = Dealings::fresh(registry(), 1).unwrap();
    let dealer = Arc::new(Cheating { inner, other, model: offered, cheats: Arc::clone(&cheats) });
    let config = ClientConfig { resources: resources(dealer), ..server.config("alice") };
    let open = || Connection::connect(registry(), config.clone()).unwrap().open("one", Some("fss")).unwrap();
    let mut client = open();
    assert!(client.prepare().is_err(), "the words are those of another seed");
    assert_eq!(material_counts(&dir), [0, 0]);
    drop(client);
    cheats.store(false, Ordering::Relaxed);
    let mut client = open();
    assert!(client.list_stored().unwrap().is_empty());
    client.prepare().unwrap();
    assert_eq!(material_counts(&dir), [1, 1]);
    assert_eq!(client.infer(&X).unwrap().values.len(), expected(1, &X).len());
    client.close().unwrap();
    drop(server);
    let file = server_state(&dir);
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let faults = "SELECT lower(hex(client)), phase, fault FROM audit WHERE fault IS NOT NULL";
    let (fingerprint, phase, fault): (String, String, String) = file.query_row(faults, [], row).unwrap();
    assert_eq!((fingerprint, phase), (config.identity.fingerprint.to_string(), "offline".to_owned()));
    assert!(!fault.is_empty());
    let failed = "SELECT count(*) FROM audit WHERE outcome = 'failed'";
    assert_eq!(file.query_row(failed, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}
