//! An audit detects a dealer that deals other material than it has committed to, and names the material. An
//! honest dealer passes, and materials that were not audited serve inferences. A dealer that watches the
//! parties before it cheats is detected as often.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

use crate::conformance::models::lower_first;
use crate::conformance::parties::{Models, dealers, resources_with};
use tacit_arith::prg::Seed;
use tacit_backends::dealer::InProcessDealer;
use tacit_backends::seam::{Claim, Dealer, Order, Piece, Seal, Stop, Ticket};
use tacit_backends::{BackendError, Registry};
use tacit_mpc::run_pair;

/// A dealer's receiver of a server's half.
type PieceSink<'a> = dyn FnMut(Piece<'_>) -> Result<(), BackendError> + 'a;
/// A dealer's receiver of a client's half.
type HalfSink<'a> = dyn FnMut(&[u8]) -> Result<(), BackendError> + 'a;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Deviation {
    Nothing,
    /// Changes one bit of the server's half.
    Server,
    /// Changes one bit of the client's half.
    Client,
    /// Opens another seed.
    Seed,
    /// Refuses the client's consent, as a dealer does that the server has told to give the material up.
    Consent,
    /// Gets no consent, as if the client only claimed to have consented.
    Silence,
}

/// A dealer that deviates in one material of `every`.
struct Cheating {
    inner: InProcessDealer,
    deviation: Deviation,
    every: u64,
    opened: AtomicU64,
}

impl Cheating {
    fn cheats(&self, ticket: &Ticket, deviation: Deviation) -> bool {
        self.deviation == deviation && u64::from_le_bytes(*ticket.first_chunk().unwrap()).is_multiple_of(self.every)
    }
}

impl Dealer for Cheating {
    fn deal_into(&self, order: &Order<'_>, seal: &Seal, sink: &mut PieceSink<'_>) -> Result<(), BackendError> {
        let mut wrong = false;
        self.inner.deal_into(order, seal, &mut |piece| match piece {
            Piece::Ticket(ticket) => {
                wrong = self.cheats(ticket, Deviation::Server);
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

    fn fetch_into(&self, ticket: &Ticket, claim: &Claim, sink: &mut HalfSink<'_>) -> Result<(), BackendError> {
        let mut half = self.inner.fetch(ticket, claim)?;
        if self.cheats(ticket, Deviation::Client) {
            half[3] ^= 16;
        }
        sink(&half)
    }

    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        match self.deviation {
            Deviation::Consent => dealer_gone(),
            Deviation::Silence => Ok(()),
            _ => self.inner.consent(ticket, claim),
        }
    }

    fn stopped_by(self: Arc<Self>, _: &Stop) -> Arc<dyn Dealer> {
        self
    }

    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError> {
        self.opened.fetch_add(1, Relaxed);
        let mut seed = self.inner.open(ticket)?;
        if self.cheats(ticket, Deviation::Seed) {
            seed.0[0] ^= 1;
        }
        Ok(seed)
    }
}

fn lower(backend: &str, options: &str) -> Models {
    lower_first(&**Registry::standard().get(backend).unwrap(), &options.parse().unwrap())
}

type Ends = [Result<(), BackendError>; 2];

/// Makes `count` materials and runs an inference with each, until a party ends with an error.
fn run(models: &Models, deviation: Deviation, every: u64, count: usize) -> (Ends, u64) {
    let dealers = dealers().map(|inner| Arc::new(Cheating { inner, deviation, every, opened: AtomicU64::new(0) }));
    let is_honest = deviation == Deviation::Nothing;
    let ends = run_with(models, dealers.clone().map(|dealer| dealer as Arc<dyn Dealer>), is_honest, count);
    (ends, dealers[1].opened.load(Relaxed))
}

/// As [`run`], with a given dealer for each party, and with inferences or without.
fn run_with(models: &Models, dealers: [Arc<dyn Dealer>; 2], infer: bool, count: usize) -> Ends {
    let Models { server, client } = models;
    let [client_resources, server_resources] = resources_with(dealers);
    let input = vec![0.1; server.interface().input_len()];
    let (a, b) = run_pair(
        |channel| {
            let mut side = client.clone().connect(&client_resources)?;
            side.setup(channel)?;
            for _ in 0..count {
                let material = side.offline(channel)?;
                if infer {
                    side.online(channel, material, &input)?;
                }
            }
            Ok(channel.flush()?)
        },
        |channel| {
            let mut side = server.clone().connect(&server_resources)?;
            side.setup(channel)?;
            channel.flush()?;
            for _ in 0..count {
                let material = side.offline(channel)?;
                channel.flush()?;
                if infer {
                    side.online(channel, material)?;
                    channel.flush()?;
                }
            }
            Ok(())
        },
    );
    [a, b]
}

const VARIANTS: [(&str, &str); 4] =
    [("dealt", "audit=500"), ("dealt", "linear=he,audit=500"), ("fss", "audit=500"), ("fss", "level=l2,audit=500")];

#[test]
fn an_honest_dealer_passes() {
    for (backend, options) in VARIANTS {
        let ([a, b], opened) = run(&lower(backend, options), Deviation::Nothing, 1, 16);
        assert!(a.is_ok() && b.is_ok(), "{backend}, {options}: {a:?}, {b:?}");
        // 16 were not opened: as many were, but for chance (2^-30).
        assert!(opened > 0, "{backend}, {options}");
    }
}

#[test]
fn an_audit_names_a_wrong_material() {
    // A half of `fss` has a digest: a changed half is refused without an audit.
    let variants = [("dealt", "audit=500", Deviation::Server), ("dealt", "audit=500", Deviation::Client)];
    for (backend, options, deviation) in variants.into_iter().chain(VARIANTS.map(|(b, o)| (b, o, Deviation::Seed))) {
        let (ends, _) = run(&lower(backend, options), deviation, 4, 1000);
        let errors = ends.iter().filter_map(|end| end.as_ref().err()).map(ToString::to_string);
        let errors: Vec<String> = errors.filter(|error| error.contains("audit")).collect();
        assert!(!errors.is_empty(), "{backend}, {deviation:?}: {ends:?}");
        for error in errors {
            let number = error.split("material ").nth(1).and_then(|rest| rest.split(' ').next());
            let number: u64 = number.unwrap().parse().unwrap();
            assert!(number.is_multiple_of(4), "{error}");
        }
    }
}

/// Errors that the other party can cause name both the dealer and that party.
#[test]
fn errors_blame_everyone_who_may_have_deviated() {
    let models = lower("dealt", "audit=900");
    // The client gets a seed from the server.
    for (deviation, expected) in [
        (Deviation::Consent, [&["audit", "The dealer or the server has deviated"][..], &[]]),
        (Deviation::Silence, [&[], &["audit", "The dealer or this client has deviated"]]),
        (Deviation::Seed, [&["The dealer or the server has deviated"], &["The dealer has dealt wrongly"]]),
    ] {
        for (end, parts) in run(&models, deviation, 1, 64).0.into_iter().zip(expected) {
            let error = end.unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{deviation:?}: {error}");
        }
    }
}

#[test]
fn without_audits_no_seed_is_opened() {
    let ([a, b], opened) = run(&lower("dealt", "audit=0"), Deviation::Server, 1, 4);
    assert!(a.is_ok() && b.is_ok() && opened == 0);
}

/// What a dealer sees of one material before it has given all of both halves, and whether it is audited.
#[derive(Default)]
struct Observation {
    /// The party that took a piece (0 is the client), and the piece's bytes.
    taken: Vec<(usize, usize)>,
    /// For each party, whether it has all of its half or has failed.
    ended: [bool; 2],
    audited: bool,
}

#[derive(Default)]
struct Watch {
    seen: Mutex<HashMap<Ticket, Observation>>,
    changed: Condvar,
}

impl Watch {
    fn note<T>(&self, ticket: &Ticket, note: impl FnOnce(&mut Observation) -> T) -> T {
        let result = note(self.seen.lock().unwrap().entry(*ticket).or_default());
        self.changed.notify_all();
        result
    }

    fn wait_for(&self, ticket: &Ticket, party: usize) {
        let is_running = |seen: &mut HashMap<Ticket, Observation>| !seen.entry(*ticket).or_default().ended[party];
        drop(self.changed.wait_while(self.seen.lock().unwrap(), is_running).unwrap());
    }
}

/// A dealer that gives one party nothing before the other party has all of its half. A step that a
/// party takes only after a message of the other one thus becomes visible.
struct Watching {
    inner: InProcessDealer,
    first: usize,
    /// Whether the dealer deals a wrong half to the client, unless it has seen that the material is audited.
    cheats: bool,
    watch: Arc<Watch>,
}

impl Dealer for Watching {
    fn deal_into(&self, order: &Order<'_>, seal: &Seal, sink: &mut PieceSink<'_>) -> Result<(), BackendError> {
        let mut received_ticket = None;
        let result = self.inner.deal_into(order, seal, &mut |piece| match piece {
            Piece::Ticket(ticket) => {
                received_ticket = Some(*ticket);
                sink(Piece::Ticket(ticket))?;
                if self.first == 0 {
                    self.watch.wait_for(ticket, 0);
                }
                Ok(())
            }
            Piece::Half(bytes) => {
                sink(Piece::Half(bytes))?;
                let ticket = received_ticket.unwrap();
                self.watch.note(&ticket, |seen| seen.taken.push((1, bytes.len())));
                Ok(())
            }
        });
        received_ticket.iter().for_each(|ticket| self.watch.note(ticket, |seen| seen.ended[1] = true));
        result
    }

    fn fetch_into(&self, ticket: &Ticket, claim: &Claim, sink: &mut HalfSink<'_>) -> Result<(), BackendError> {
        if self.first == 1 {
            self.watch.wait_for(ticket, 1);
        }
        let result = self.inner.fetch_into(ticket, claim, &mut |bytes| {
            let mut bytes = bytes.to_vec();
            bytes[0] ^= u8::from(self.cheats && !self.watch.note(ticket, |seen| seen.audited));
            sink(&bytes)?;
            self.watch.note(ticket, |seen| seen.taken.push((0, bytes.len())));
            Ok(())
        });
        self.watch.note(ticket, |seen| seen.ended[0] = true);
        result
    }

    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        self.watch.note(ticket, |seen| {
            assert_eq!(seen.ended, [true; 2], "the consent shows that this material is audited");
            seen.audited = true;
        });
        self.inner.consent(ticket, claim)
    }

    fn stopped_by(self: Arc<Self>, _: &Stop) -> Arc<dyn Dealer> {
        self
    }

    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError> {
        assert!(self.watch.note(ticket, |seen| seen.audited));
        self.inner.open(ticket)
    }
}

fn run_watched(models: &Models, first: usize, cheats: bool, count: usize) -> (Vec<Observation>, Ends) {
    let watch = Arc::new(Watch::default());
    let dealers = dealers().map(|inner| {
        let watch = Arc::clone(&watch);
        Arc::new(Watching { inner, first, cheats, watch }) as Arc<dyn Dealer>
    });
    let ends = run_with(models, dealers, false, count);
    let seen = std::mem::take(&mut *watch.seen.lock().unwrap()).into_values().collect();
    (seen, ends)
}

#[test]
fn a_dealer_sees_the_same_of_all_materials_until_both_halves_are_dealt() {
    for (backend, options) in VARIANTS {
        let models = lower(backend, options);
        for first in 0..2 {
            let (seen, [a, b]) = run_watched(&models, first, false, 24);
            assert!(a.is_ok() && b.is_ok(), "{backend}, {options}: {a:?}, {b:?}");
            assert!(seen.iter().any(|seen| seen.audited), "with 24 that were not, but for chance (2^-24)");
            for observation in &seen {
                assert!(observation.ended == [true; 2] && observation.taken == seen[0].taken, "{backend}, {options}");
            }
        }
    }
}

#[test]
fn a_dealer_that_watches_for_audits_is_found_as_often() {
    let models = lower("dealt", "audit=500");
    let detected = (0..64).filter(|_| {
        let (_, ends) = run_watched(&models, 1, true, 1);
        let error = ends.iter().find_map(|end| end.as_ref().err());
        error.is_some_and(|error| error.to_string().contains("audit"))
    });
    // Each is detected with probability 1/2; the count is outside of this range with probability 2^-22.
    let detected = detected.count();
    assert!((13..=51).contains(&detected), "{detected} of 64");
}

/// A fault of a half on its way to a party.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Refused,
    /// The dealer is gone after half of the bytes.
    Ends,
    Longer,
    Shorter,
    /// One bit is changed.
    Changed,
    /// Two pieces change places.
    Reordered,
}

struct Faulty {
    inner: InProcessDealer,
    fault: Fault,
}

impl Faulty {
    fn spoil(&self, half: &[u8], sink: &mut HalfSink<'_>) -> Result<(), BackendError> {
        let mut half = half.to_vec();
        match self.fault {
            Fault::Refused | Fault::Ends => half.truncate(half.len() / 2),
            Fault::Longer => half.push(1),
            Fault::Shorter => drop(half.pop()),
            Fault::Changed => *half.last_mut().unwrap() ^= 1,
            // A seed alone has no second piece.
            Fault::Reordered => {
                let piece = 100.min(half.len() / 2);
                half.rotate_left(piece);
            }
        }
        half.chunks(100).try_for_each(sink)?;
        if self.fault == Fault::Ends { dealer_gone() } else { Ok(()) }
    }
}

fn dealer_gone() -> Result<(), BackendError> {
    Err(BackendError::Dealer { what: "it is gone".into() })
}

impl Dealer for Faulty {
    fn deal_into(&self, order: &Order<'_>, seal: &Seal, sink: &mut PieceSink<'_>) -> Result<(), BackendError> {
        if self.fault == Fault::Refused {
            return dealer_gone();
        }
        let (ticket, half) = self.inner.deal(order, seal)?;
        sink(Piece::Ticket(&ticket))?;
        self.spoil(&half, &mut |bytes| sink(Piece::Half(bytes)))
    }

    fn fetch_into(&self, ticket: &Ticket, claim: &Claim, sink: &mut HalfSink<'_>) -> Result<(), BackendError> {
        if self.fault == Fault::Refused {
            return dealer_gone();
        }
        self.spoil(&self.inner.fetch(ticket, claim)?, sink)
    }

    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        self.inner.consent(ticket, claim)
    }

    fn stopped_by(self: Arc<Self>, _: &Stop) -> Arc<dyn Dealer> {
        self
    }

    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError> {
        self.inner.open(ticket)
    }
}

/// The party that gets the half names the fault, the other one finds the channel closed, and neither
/// has material.
#[test]
fn a_faulty_half_ends_the_phase_at_both_parties() {
    for (backend, options) in [("dealt", "audit=0"), ("dealt", ""), ("fss", "audit=0"), ("fss", "level=l2")] {
        let models = lower(backend, options);
        let faults = [Fault::Refused, Fault::Ends, Fault::Longer, Fault::Shorter, Fault::Changed, Fault::Reordered];
        for fault in faults {
            // A changed half of `dealt` has no digest: it is a valid half of other material.
            if backend == "dealt" && matches!(fault, Fault::Changed | Fault::Reordered) {
                continue;
            }
            for party in 0..2 {
                let [client_dealer, server_dealer] = dealers();
                let dealers: [Arc<dyn Dealer>; 2] = match party {
                    0 => [Arc::new(Faulty { inner: client_dealer, fault }), Arc::new(server_dealer)],
                    _ => [Arc::new(client_dealer), Arc::new(Faulty { inner: server_dealer, fault })],
                };
                let mut ends = run_with(&models, dealers, false, 1);
                let case = format!("{backend}, {options}, {fault:?}, party {party}: {ends:?}");
                ends.swap(0, party);
                match fault {
                    Fault::Refused | Fault::Ends => {
                        assert!(matches!(ends[0], Err(BackendError::Dealer { .. })), "{case}");
                    }
                    // One material in a hundred is audited, so that the fault is found before its use.
                    _ => {
                        let audited = options != "audit=0" && matches!(ends[0], Err(BackendError::Dealer { .. }));
                        assert!(audited || matches!(ends[0], Err(BackendError::Material { .. })), "{case}");
                    }
                }
                // This client receives no message of its server in the phase.
                let waits = (backend, options, party) != ("dealt", "audit=0", 1);
                let closed = matches!(ends[1], Err(BackendError::Net(_)));
                assert!(closed || (!waits && ends[1].is_ok()), "{case}");
            }
        }
    }
}
