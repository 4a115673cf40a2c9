use super::*;
use tacit_ring::{RingGraph, public};

#[test]
fn nothing_is_dealt_for_strangers() {
    let dealings = Dealings::fresh(Registry::standard(), 5).unwrap();
    assert!(dealings.start([1; 32], [9; 32], 1, Some([0; 32])).is_err(), "not registered");
    assert!(dealings.register([1; 32], "cheetah", &[], &[], |_| Ok(())).is_err(), "nobody deals for cheetah");
    assert!(dealings.register([1; 32], "dealt", &[1, 2, 3], &[], |_| Ok(())).is_err());
    assert!(dealings.fetch([2; 32], &[0; 32], &Claim { nonce: [1; 32], digest: [9; 32] }).is_err());
    dealings.taken(&[0; 32]);
    dealings.give_up([1; 32], 5);
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
    (
        public::write("dealt", tacit_dealer_backends::dealt::VERSION, &(options, [seed; 32]), &graph()).unwrap(),
        vec![seed; 16],
    )
}

#[test]
fn nobody_takes_a_model_from_its_owner() {
    let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    let (public, part) = model(7);
    let digest = Registry::standard().get("dealt").unwrap().dealing(&public, &part).unwrap().digest();
    // A client, which has the public part, registers it as a server of its own, before the owner.
    dealings.register([2; 32], "dealt", &public, &[9; 16], |_| Ok(())).unwrap();
    dealings.register([1; 32], "dealt", &public, &part, |_| Ok(())).unwrap();
    assert!(dealings.knows([1; 32], digest));
    assert!(dealings.knows([2; 32], digest));
    assert!(dealings.start([1; 32], digest, 1, Some([0; 32])).is_ok());
    assert!(dealings.register([1; 32], "dealt", &public, &[8; 16], |_| Ok(())).is_err(), "other keys");
    // Keys that hide this model hide no other.
    let other_public = model(6).0;
    assert!(dealings.register([3; 32], "dealt", &other_public, &part, |_| Ok(())).is_err());
    // A model whose record cannot be stored is not registered.
    let fail = |_: &[Hidden]| Err(BackendError::Dealer { what: "a full disk".into() });
    assert!(dealings.register([3; 32], "dealt", &other_public, &[6; 16], fail).is_err());
    assert!(
        !dealings.knows(
            [3; 32],
            Registry::standard().get("dealt").unwrap().dealing(&other_public, &[6; 16]).unwrap().digest()
        )
    );
}

fn make_half(fetching: &Fetching<'_>) -> Vec<u8> {
    let mut half = Vec::new();
    let mut push = |bytes: &[u8]| {
        half.extend_from_slice(bytes);
        Ok(())
    };
    fetching.half(&mut push).unwrap();
    assert_eq!(half.len() as u64, fetching.bytes());
    half
}

#[test]
fn a_ticket_is_fetched_by_one_at_a_time_and_three_times_at_most() {
    let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    let (public, part) = model(7);
    dealings.register([1; 32], "dealt", &public, &part, |_| Ok(())).unwrap();
    let digest = Registry::standard().get("dealt").unwrap().dealing(&public, &part).unwrap().digest();
    let claim = Claim { nonce: [5; 32], digest };
    let ticket = dealings.start([1; 32], digest, 1, Some(claim.seal())).unwrap().ticket;
    let other_ticket = dealings.start([1; 32], digest, 1, Some(claim.seal())).unwrap().ticket;
    let refusal = |ticket| dealings.fetch([2; 32], ticket, &claim).err().unwrap().to_string();
    let first = dealings.fetch([2; 32], &ticket, &claim).unwrap();
    assert!(refusal(&ticket).contains("another request"));
    assert!(dealings.fetch([2; 32], &other_ticket, &claim).is_ok(), "other tickets do not wait");
    let half = make_half(&first);
    drop(first);
    for _ in 1..MAX_FETCHES {
        assert_eq!(make_half(&dealings.fetch([2; 32], &ticket, &claim).unwrap()), half, "the same half");
    }
    assert!(refusal(&ticket).contains("burnt"));
    assert!(refusal(&ticket).contains("no such material"));
    assert_eq!(dealings.state().open.len(), 1, "the other one");
}

#[test]
fn a_seed_is_shown_only_of_what_the_client_has_given_up() {
    let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    let (public, part) = model(7);
    dealings.register([1; 32], "dealt", &public, &part, |_| Ok(())).unwrap();
    let digest = Registry::standard().get("dealt").unwrap().dealing(&public, &part).unwrap().digest();
    let claim = Claim { nonce: [5; 32], digest };
    let started = dealings.start([1; 32], digest, 1, Some(claim.seal())).unwrap();
    let ticket = started.ticket;
    let refusal = |server| dealings.open([server; 32], &ticket).err().unwrap().to_string();
    assert!(refusal(1).contains("given this material up"));
    let half = make_half(&dealings.fetch([2; 32], &ticket, &claim).unwrap());
    dealings.taken(&ticket);
    assert!(dealings.fetch([2; 32], &ticket, &claim).is_err(), "it has it");
    assert!(refusal(1).contains("given this material up"), "the client may be using it");
    // No other party can give it up.
    assert!(dealings.consent([1; 32], &ticket, &claim).is_err(), "the server itself");
    assert!(dealings.consent([2; 32], &ticket, &Claim { nonce: [6; 32], ..claim }).is_err());
    let mut wrong_ticket = ticket;
    wrong_ticket[20] ^= 1;
    assert!(dealings.consent([2; 32], &wrong_ticket, &claim).is_err(), "another commitment");
    dealings.consent([2; 32], &ticket, &claim).unwrap();
    assert!(refusal(3).contains("no such material"), "another server");
    let seed = dealings.open([1; 32], &ticket).unwrap();
    assert_eq!(seam::commitment(started.number, &digest, &seed), ticket[8..]);
    let mut remade = Vec::new();
    let mut push = |bytes: &[u8]| {
        remade.extend_from_slice(bytes);
        Ok(())
    };
    started.model.client_half(&seed, &mut push).unwrap();
    assert_eq!(remade, half);
    assert_eq!(dealings.open([1; 32], &ticket).unwrap().0, seed.0, "its answer may have been lost");
    // A material given up before its fetch cannot be fetched.
    let ticket = dealings.start([1; 32], digest, 1, Some(claim.seal())).unwrap().ticket;
    dealings.consent([2; 32], &ticket, &claim).unwrap();
    assert!(dealings.fetch([2; 32], &ticket, &claim).is_err());
}

#[test]
fn what_was_dealt_for_nobody_is_bound_once_and_by_its_server() {
    let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    let (public, part) = model(7);
    dealings.register([1; 32], "dealt", &public, &part, |_| Ok(())).unwrap();
    let digest = Registry::standard().get("dealt").unwrap().dealing(&public, &part).unwrap().digest();
    let [claim, other_claim] = [5, 6].map(|nonce| Claim { nonce: [nonce; 32], digest });
    let ticket = dealings.start([1; 32], digest, 1, None).unwrap().ticket;
    let is_refused = |claim: &Claim| {
        let fetched = dealings.fetch([2; 32], &ticket, claim).err().unwrap().to_string();
        assert!(fetched.contains("not dealt for this client's claim"), "{fetched}");
        assert!(dealings.consent([2; 32], &ticket, claim).is_err());
    };
    is_refused(&claim);
    assert!(dealings.open([1; 32], &ticket).is_err(), "nobody has given it up");
    // Another server, and a ticket that this dealer never gave out.
    assert!(!dealings.bind([3; 32], &ticket, claim.seal()).unwrap());
    let mut guessed = ticket;
    guessed[20] ^= 1;
    assert!(!dealings.bind([1; 32], &guessed, claim.seal()).unwrap());
    is_refused(&claim);
    // Repeated calls, as after a lost answer, must have the same claim.
    for _ in 0..2 {
        assert!(dealings.bind([1; 32], &ticket, claim.seal()).unwrap());
        assert!(dealings.bind([1; 32], &ticket, other_claim.seal()).is_err());
    }
    is_refused(&other_claim);
    assert!(dealings.fetch([1; 32], &ticket, &claim).is_err(), "both halves for one certificate");
    assert!(dealings.fetch([2; 32], &ticket, &claim).is_ok());
    dealings.taken(&ticket);
    assert!(dealings.bind([1; 32], &ticket, other_claim.seal()).is_err(), "nor when it is burnt");
    // Material that was dealt for a claim from the start cannot be bound to another.
    let ticket = dealings.start([1; 32], digest, 1, Some(claim.seal())).unwrap().ticket;
    assert!(dealings.bind([1; 32], &ticket, other_claim.seal()).is_err());
    // A restarted dealer does not have the material.
    let restarted = Dealings::fresh(Registry::standard(), dealings.next()).unwrap();
    assert!(!restarted.bind([1; 32], &ticket, claim.seal()).unwrap());
}

#[test]
fn too_many_halves_at_once_are_refused() {
    let mut dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    dealings.budget = MemoryBudget::new([16, 16], Duration::ZERO);
    let (public, part) = model(7);
    dealings.register([1; 32], "dealt", &public, &part, |_| Ok(())).unwrap();
    let digest = Registry::standard().get("dealt").unwrap().dealing(&public, &part).unwrap().digest();
    let claim = Claim { nonce: [5; 32], digest };
    let [first_ticket, second_ticket] =
        [(); 2].map(|()| dealings.start([1; 32], digest, 1, Some(claim.seal())).unwrap().ticket);
    let first = dealings.fetch([2; 32], &first_ticket, &claim).unwrap();
    for _ in 0..=MAX_FETCHES {
        let error = dealings.fetch([3; 32], &second_ticket, &claim).err().unwrap().to_string();
        assert!(error.contains("come again"), "{error}");
    }
    drop(first);
    assert!(dealings.fetch([3; 32], &second_ticket, &claim).is_ok(), "what was refused does not count");
}

#[test]
fn a_key_is_one_key_to_every_back_end() {
    let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    let (public, part) = model(7);
    let fss_public = |part: &[u8]| {
        let keys = seam::digest("tacit 2026-11 fss keys of masks", &[&[7; 32], part]);
        public::write(
            "fss",
            tacit_dealer_backends::fss::VERSION,
            &(tacit_dealer_backends::fss::Options::default(), [7u8; 32], keys),
            &graph(),
        )
        .unwrap()
    };
    dealings.register([1; 32], "dealt", &public, &part, |_| Ok(())).unwrap();
    let error = dealings.register([1; 32], "fss", &fss_public(&part), &part, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("hides the weights of another one"), "{error}");
    assert!(dealings.register([1; 32], "fss", &fss_public(&[9; 16]), &[9; 16], |_| Ok(())).is_ok());
    // Keys other than those that the public part states, which a restarted dealer would otherwise
    // accept.
    let error = dealings.register([2; 32], "fss", &fss_public(&[9; 16]), &[8; 16], |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("the public part states"), "{error}");
}

#[test]
fn one_server_crowds_out_itself_alone() {
    let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
    let (public, part) = model(200);
    dealings.register([1; 32], "dealt", &public, &part, |_| Ok(())).unwrap();
    let digest = *dealings.state().models.keys().next().map(|(_, digest)| digest).unwrap();
    for k in 0..=255u8 {
        let (public, mut part) = model(k);
        part[1..].fill(0x55);
        dealings.register([2; 32], "dealt", &public, &part, |_| Ok(())).unwrap();
    }
    assert_eq!(dealings.state().models.len(), MAX_MODELS);
    assert!(dealings.knows([1; 32], digest));
    // The number of matrices of one server is bounded.
    let hidden = (0..MAX_MASKS[0] as u64).map(|i| {
        let mut mask = [0xab; 32];
        mask[..8].copy_from_slice(&i.to_le_bytes());
        Hidden { mask, digest: [0; 32], server: [4; 32] }
    });
    dealings.remember(hidden);
    let (public, part) = model(99);
    let error = dealings.register([4; 32], "dealt", &public, &part, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("remember"), "{error}");
}
