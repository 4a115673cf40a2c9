//! A dealer that deals something else than it has committed to, to either party, is found by an audit, which
//! names the material; an honest one is not, and what is left is good for an inference.
#[path = "conformance/models.rs"]
mod models;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use models::cases;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tacit_arith::prg::{Prg, Seed};
use tacit_backends::dealer::{Dealings, Nearby};
use tacit_backends::seam::{Claim, Dealer, Order, Piece, Seal, Stop, Ticket};
use tacit_backends::{Aids, BackendError, ClientModel, Options, Registry, ServerModel};
use tacit_mpc::run_pair;

/// What a dealer does wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wrong {
    Nothing,
    /// One bit of the server's half.
    Server,
    /// One bit of the client's.
    Client,
    /// It opens another seed.
    Seed,
}

/// A dealer with one wrong material in so many.
struct Cheating {
    inner: Nearby,
    wrong: Wrong,
    every: u64,
    opened: AtomicU64,
}

impl Cheating {
    fn cheats(&self, ticket: &Ticket, how: Wrong) -> bool {
        self.wrong == how && u64::from_le_bytes(*ticket.first_chunk().unwrap()).is_multiple_of(self.every)
    }
}

impl Dealer for Cheating {
    fn deal_into(
        &self,
        order: &Order<'_>,
        seal: &Seal,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let mut wrong = false;
        self.inner.deal_into(order, seal, &mut |piece| match piece {
            Piece::Ticket(ticket) => {
                wrong = self.cheats(ticket, Wrong::Server);
                sink(Piece::Ticket(ticket))
            }
            Piece::Half(bytes) if wrong => {
                let mut bytes = bytes.to_vec();
                *bytes.last_mut().unwrap() ^= 1;
                wrong = false;
                sink(Piece::Half(&bytes))
            }
            half => sink(half),
        })
    }

    fn fetch_into(
        &self,
        ticket: &Ticket,
        claim: &Claim,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let mut half = self.inner.fetch(ticket, claim)?;
        if self.cheats(ticket, Wrong::Client) {
            half[3] ^= 16;
        }
        sink(&half)
    }

    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        self.inner.consent(ticket, claim)
    }

    fn stopped_by(self: Arc<Self>, _: &Stop) -> Arc<dyn Dealer> {
        self
    }

    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError> {
        self.opened.fetch_add(1, Relaxed);
        let mut seed = self.inner.open(ticket)?;
        if self.cheats(ticket, Wrong::Seed) {
            seed.0[0] ^= 1;
        }
        Ok(seed)
    }
}

/// A model with everything, at both parties.
fn model(backend: &str, options: &str) -> (Arc<dyn ServerModel>, Arc<dyn ClientModel>) {
    let tree = cases().new_tree(&mut TestRunner::deterministic()).expect("a strategy without filters");
    let registry = Registry::standard();
    let backend = registry.get(backend).unwrap();
    let options: Options = options.parse().unwrap();
    let mut models = tree.current().into_iter().map(|(_, model)| model);
    let server = models.find_map(|model| backend.lower(&model, &options).ok()).expect("it takes some model");
    let client = backend.open(server.public_bytes()).unwrap();
    (server, client)
}

type Ends = [Result<(), BackendError>; 2];

/// Materials by both parties, an inference with each, until one of them ends with an error.
fn run(models: &(Arc<dyn ServerModel>, Arc<dyn ClientModel>), wrong: Wrong, every: u64, most: usize) -> (Ends, u64) {
    let (server, client) = models;
    let dealings = Arc::new(Dealings::new(Registry::standard(), Prg::from_os().unwrap(), 1));
    let dealers = [1u8, 2].map(|party| {
        let inner = Nearby::new(Arc::clone(&dealings), [party; 32]);
        Arc::new(Cheating { inner, wrong, every, opened: AtomicU64::new(0) })
    });
    let [ours, theirs] =
        dealers.clone().map(|dealer| Aids { dealer: Some(dealer as Arc<dyn Dealer>), ..Aids::default() });
    let input = vec![0.1; server.interface().input_len()];
    let (a, b) = run_pair(
        |channel| {
            let mut side = client.clone().connect(&ours)?;
            side.setup(channel)?;
            for _ in 0..most {
                let material = side.offline(channel)?;
                if wrong == Wrong::Nothing {
                    side.online(channel, material, &input)?;
                }
            }
            Ok(channel.flush()?)
        },
        |channel| {
            let mut side = server.clone().connect(&theirs)?;
            side.setup(channel)?;
            channel.flush()?;
            for _ in 0..most {
                let material = side.offline(channel)?;
                channel.flush()?;
                if wrong == Wrong::Nothing {
                    side.online(channel, material)?;
                    channel.flush()?;
                }
            }
            Ok(())
        },
    );
    ([a, b], dealers[1].opened.load(Relaxed))
}

const VARIANTS: [(&str, &str); 3] = [("dealt", "audit=500"), ("fss", "audit=500"), ("fss", "level=l2,audit=500")];

#[test]
fn an_honest_dealer_passes_and_what_was_not_opened_is_used() {
    for (backend, options) in VARIANTS {
        let ([a, b], opened) = run(&model(backend, options), Wrong::Nothing, 1, 16);
        assert!(a.is_ok() && b.is_ok(), "{backend}, {options}: {a:?}, {b:?}");
        // 16 were not opened: as many were, but for chance (2^-30).
        assert!(opened > 0, "{backend}, {options}");
    }
}

#[test]
fn a_dealer_that_cheats_in_one_material_of_some_is_found_and_the_material_named() {
    // What `fss` deals has a digest: the server's half with another is refused without an audit.
    let found = [("dealt", "audit=500", Wrong::Server), ("dealt", "audit=500", Wrong::Client)];
    for (backend, options, wrong) in found.into_iter().chain(VARIANTS.map(|(b, o)| (b, o, Wrong::Seed))) {
        let (ends, _) = run(&model(backend, options), wrong, 4, 1000);
        let found = ends.iter().filter_map(|end| end.as_ref().err()).map(ToString::to_string);
        let found: Vec<String> = found.filter(|error| error.contains("audit")).collect();
        assert!(!found.is_empty(), "{backend}, {wrong:?}: {ends:?}");
        for error in found {
            let number = error.split("material ").nth(1).and_then(|rest| rest.split(' ').next());
            let number: u64 = number.expect("it is named").parse().unwrap();
            assert!(number.is_multiple_of(4), "{error}");
        }
    }
}

#[test]
fn without_audits_nothing_is_opened() {
    let ([a, b], opened) = run(&model("dealt", "audit=0"), Wrong::Server, 1, 4);
    assert!(a.is_ok() && b.is_ok() && opened == 0);
}
