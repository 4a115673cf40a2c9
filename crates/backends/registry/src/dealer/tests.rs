use super::*;
use tacit_ring::{RingGraph, public};

const SERVER: Party = [1; 32];
const CLIENT: Party = [2; 32];
/// A party that is neither of them.
const OTHER: Party = [3; 32];

#[test]
fn requests_of_strangers_are_refused() {
    let dealings = Dealings::fresh(Registry::standard(), 5).unwrap();
    assert!(dealings.start(SERVER, [9; 32], 1, Some([0; 32])).is_err(), "not registered");
    assert!(dealings.register(SERVER, "cheetah", &[], &[], |_| Ok(())).is_err(), "nobody deals for cheetah");
    assert!(dealings.register(SERVER, "dealt", &[1, 2, 3], &[], |_| Ok(())).is_err());
    assert!(dealings.fetch(CLIENT, &[0; 32], &Claim { nonce: [1; 32], digest: [9; 32] }).is_err());
    dealings.burn_received(&[0; 32]);
    dealings.remove_undelivered(SERVER, 5);
    assert_eq!(dealings.next(), 5, "a refused dealing takes no number");
}

fn graph() -> RingGraph {
    use tacit_ring::fixtures::spec;
    use tacit_ring::{FixedPoint, Linear, Node, Op, WeightFacts};
    let fixed = FixedPoint { width: 20, frac_bits: 4 };
    let node = |op, inputs| Node { name: "n".into(), op, inputs, shape: vec![3], fixed };
    let facts = WeightFacts { frac_bits: 0, magnitude_bits: 8, norm_bits: 11 };
    let dense = Op::Linear(Linear { out_features: 3, weights: facts });
    RingGraph::new(spec(vec![node(Op::Input, vec![]), node(dense, vec![0])])).unwrap()
}

/// A model of one layer: public part and dealer's part.
fn model(seed: u8) -> (Vec<u8>, Vec<u8>) {
    let options = tacit_dealer_backends::dealt::Options { rtt_ms: u32::from(seed), ..Default::default() };
    let version = tacit_dealer_backends::dealt::VERSION;
    (public::write("dealt", version, &(options, [seed; 32]), &graph()).unwrap(), vec![seed; 16])
}

/// Registers a model of `dealt`.
fn register(dealings: &Dealings, server: Party, public: &[u8], part: &[u8]) -> Result<(), BackendError> {
    dealings.register(server, "dealt", public, part, |_| Ok(()))
}

fn plan_digest(public: &[u8], part: &[u8]) -> [u8; 32] {
    Registry::standard().get("dealt").unwrap().open_dealer(public, part).unwrap().digest()
}

/// A dealer with a model of [`SERVER`], and a claim on material of the model.
fn registered() -> (Dealings, Claim) {
    let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    let (public, part) = model(7);
    register(&dealings, SERVER, &public, &part).unwrap();
    (dealings, Claim { nonce: [5; 32], digest: plan_digest(&public, &part) })
}

/// Starts a dealing of [`SERVER`] for a claim.
fn start(dealings: &Dealings, claim: &Claim) -> Started {
    dealings.start(SERVER, claim.digest, 1, Some(claim.seal())).unwrap()
}

#[test]
fn another_party_cannot_take_over_a_model() {
    let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    let (public, part) = model(7);
    let digest = plan_digest(&public, &part);
    // A client, which has the public part, registers it as a server of its own, before the owner.
    register(&dealings, CLIENT, &public, &[9; 16]).unwrap();
    register(&dealings, SERVER, &public, &part).unwrap();
    assert!(dealings.knows(SERVER, digest));
    assert!(dealings.knows(CLIENT, digest));
    assert!(dealings.start(SERVER, digest, 1, Some([0; 32])).is_ok());
    assert!(register(&dealings, SERVER, &public, &[8; 16]).is_err(), "other keys");
    // Keys that hide this model hide no other.
    let other_public = model(6).0;
    assert!(register(&dealings, OTHER, &other_public, &part).is_err());
    // A model whose record cannot be stored is not registered.
    let fail = |_: &[Hidden]| Err(BackendError::Dealer { what: "a full disk".into() });
    assert!(dealings.register(OTHER, "dealt", &other_public, &[6; 16], fail).is_err());
    assert!(!dealings.knows(OTHER, plan_digest(&other_public, &[6; 16])));
}

/// Collects what `make` gives to its sink.
fn collect(
    make: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), BackendError>) -> Result<(), BackendError>,
) -> Vec<u8> {
    let mut half = Vec::new();
    make(&mut |bytes: &[u8]| {
        half.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    half
}

fn make_half(fetching: &Fetching<'_>) -> Vec<u8> {
    let half = collect(|sink| fetching.half(sink));
    assert_eq!(half.len() as u64, fetching.bytes());
    half
}

#[test]
fn a_half_is_fetched_by_one_request_at_a_time_and_three_times_at_most() {
    let (dealings, claim) = registered();
    let [ticket, other_ticket] = [(); 2].map(|()| start(&dealings, &claim).ticket);
    let refusal = |ticket| dealings.fetch(CLIENT, ticket, &claim).err().unwrap().to_string();
    let first = dealings.fetch(CLIENT, &ticket, &claim).unwrap();
    assert!(refusal(&ticket).contains("another request"));
    assert!(dealings.fetch(CLIENT, &other_ticket, &claim).is_ok(), "other tickets do not wait");
    let half = make_half(&first);
    drop(first);
    for _ in 1..MAX_FETCHES {
        assert_eq!(make_half(&dealings.fetch(CLIENT, &ticket, &claim).unwrap()), half);
    }
    assert!(refusal(&ticket).contains("burnt"));
    assert!(refusal(&ticket).contains("no such material"));
    assert_eq!(dealings.state().open.len(), 1, "the other one");
}

#[test]
fn only_seeds_of_given_up_material_are_shown() {
    let (dealings, claim) = registered();
    let started = start(&dealings, &claim);
    let ticket = started.ticket;
    let refusal = |server| dealings.reveal_seed(server, &ticket).err().unwrap().to_string();
    assert!(refusal(SERVER).contains("given this material up"));
    let half = make_half(&dealings.fetch(CLIENT, &ticket, &claim).unwrap());
    dealings.burn_received(&ticket);
    assert!(dealings.fetch(CLIENT, &ticket, &claim).is_err());
    assert!(refusal(SERVER).contains("given this material up"), "the client may be using it");
    // No other party can give it up.
    assert!(dealings.consent(SERVER, &ticket, &claim).is_err());
    assert!(dealings.consent(CLIENT, &ticket, &Claim { nonce: [6; 32], ..claim }).is_err());
    let mut wrong_ticket = ticket;
    wrong_ticket[20] ^= 1;
    assert!(dealings.consent(CLIENT, &wrong_ticket, &claim).is_err(), "another commitment");
    dealings.consent(CLIENT, &ticket, &claim).unwrap();
    assert!(refusal(OTHER).contains("no such material"));
    let seed = dealings.reveal_seed(SERVER, &ticket).unwrap();
    assert_eq!(seam::commitment(started.number, &claim.digest, &seed), ticket[8..]);
    assert_eq!(collect(|sink| started.model.client_half(&seed, sink)), half);
    assert_eq!(dealings.reveal_seed(SERVER, &ticket).unwrap().0, seed.0, "its answer may have been lost");
    // A material given up before its fetch cannot be fetched.
    let ticket = start(&dealings, &claim).ticket;
    dealings.consent(CLIENT, &ticket, &claim).unwrap();
    assert!(dealings.fetch(CLIENT, &ticket, &claim).is_err());
}

#[test]
fn material_dealt_ahead_is_bound_once_and_by_its_server() {
    let (dealings, claim) = registered();
    let other_claim = Claim { nonce: [6; 32], ..claim };
    let ticket = dealings.start(SERVER, claim.digest, 1, None).unwrap().ticket;
    let is_refused = |claim: &Claim| {
        let fetched = dealings.fetch(CLIENT, &ticket, claim).err().unwrap().to_string();
        assert!(fetched.contains("not dealt for this client's claim"), "{fetched}");
        assert!(dealings.consent(CLIENT, &ticket, claim).is_err());
    };
    is_refused(&claim);
    assert!(dealings.reveal_seed(SERVER, &ticket).is_err());
    // Another server, and a ticket that this dealer never gave out.
    assert!(!dealings.bind(OTHER, &ticket, claim.seal()).unwrap());
    let mut guessed = ticket;
    guessed[20] ^= 1;
    assert!(!dealings.bind(SERVER, &guessed, claim.seal()).unwrap());
    is_refused(&claim);
    // Repeated calls, as after a lost answer, must have the same claim.
    for _ in 0..2 {
        assert!(dealings.bind(SERVER, &ticket, claim.seal()).unwrap());
        assert!(dealings.bind(SERVER, &ticket, other_claim.seal()).is_err());
    }
    is_refused(&other_claim);
    assert!(dealings.fetch(SERVER, &ticket, &claim).is_err(), "both halves for one certificate");
    assert!(dealings.fetch(CLIENT, &ticket, &claim).is_ok());
    dealings.burn_received(&ticket);
    assert!(dealings.bind(SERVER, &ticket, other_claim.seal()).is_err(), "nor when it is burnt");
    // Material that was dealt for a claim from the start cannot be bound to another.
    let ticket = start(&dealings, &claim).ticket;
    assert!(dealings.bind(SERVER, &ticket, other_claim.seal()).is_err());
    // A restarted dealer does not have the material.
    let restarted = Dealings::fresh(Registry::standard(), dealings.next()).unwrap();
    assert!(!restarted.bind(SERVER, &ticket, claim.seal()).unwrap());
}

#[test]
fn too_many_halves_at_once_are_refused() {
    let (mut dealings, claim) = registered();
    dealings.budget = MemoryBudget::new(16, 16, Duration::ZERO);
    let [first_ticket, second_ticket] = [(); 2].map(|()| start(&dealings, &claim).ticket);
    let first = dealings.fetch(CLIENT, &first_ticket, &claim).unwrap();
    for _ in 0..=MAX_FETCHES {
        let error = dealings.fetch(OTHER, &second_ticket, &claim).err().unwrap().to_string();
        assert!(error.contains("come again"), "{error}");
    }
    drop(first);
    assert!(dealings.fetch(OTHER, &second_ticket, &claim).is_ok(), "refused requests do not count");
}

#[test]
fn one_key_hides_one_model_over_all_back_ends() {
    let (dealings, _) = registered();
    let part = model(7).1;
    let fss_public = |part: &[u8]| {
        let keys = seam::digest("tacit 2026-11 fss keys of masks", &[&[7; 32], part]);
        let facts = (tacit_dealer_backends::fss::Options::default(), [7u8; 32], keys);
        public::write("fss", tacit_dealer_backends::fss::VERSION, &facts, &graph()).unwrap()
    };
    let error = dealings.register(SERVER, "fss", &fss_public(&part), &part, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("hides the weights of another one"), "{error}");
    assert!(dealings.register(SERVER, "fss", &fss_public(&[9; 16]), &[9; 16], |_| Ok(())).is_ok());
    // Keys other than those that the public part states, which a restarted dealer would otherwise
    // accept.
    let error = dealings.register(CLIENT, "fss", &fss_public(&[9; 16]), &[8; 16], |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("the public part states"), "{error}");
}

#[test]
fn a_server_with_many_models_displaces_only_its_own() {
    let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    let (public, part) = model(200);
    register(&dealings, SERVER, &public, &part).unwrap();
    let digest = *dealings.state().models.keys().next().map(|(_, digest)| digest).unwrap();
    for k in 0..=255u8 {
        let (public, mut part) = model(k);
        part[1..].fill(0x55);
        register(&dealings, CLIENT, &public, &part).unwrap();
    }
    assert_eq!(dealings.state().models.len(), MAX_MODELS);
    assert!(dealings.knows(SERVER, digest));
    // The number of matrices of one server is bounded.
    let hidden = (0..MAX_MASKS_OF_SERVER as u64).map(|i| {
        let mut mask = [0xab; 32];
        mask[..8].copy_from_slice(&i.to_le_bytes());
        Hidden { mask, digest: [0; 32], server: [4; 32] }
    });
    dealings.remember(hidden);
    let (public, part) = model(99);
    let error = register(&dealings, [4; 32], &public, &part).unwrap_err().to_string();
    assert!(error.contains("remember"), "{error}");
}
