//! Damaged halves, and halves of others, are refused.

use super::*;

#[test]
fn every_changed_byte_of_a_half_is_found_before_it_is_used() {
    let case = &cases(Level::L1)[0];
    let right = {
        // The server's stored material also has the results of the offline phase.
        let len = Fss::half_bytes(&case.plan, Role::Server).stored;
        with_digest(&case.plan, Role::Server, &vec![7; len])
    };
    for byte in 0..case.halves[0].len() {
        let mut half = case.halves[0].clone();
        half[byte] ^= 1 << (byte % 8);
        assert!(stored(&case.plan, Role::Client, &half).is_err(), "byte {byte}");
    }
    for byte in 0..right.len() {
        let mut half = right.to_vec();
        half[byte] ^= 1 << (byte % 8);
        assert!(stored(&case.plan, Role::Server, &half).is_err(), "byte {byte}");
    }
    assert!(stored(&case.plan, Role::Server, &right).is_ok());
}

#[test]
fn halves_of_others_are_refused() {
    let cases = cases(Level::L1);
    let case = &cases[0];
    let [ours, theirs] = &case.halves;
    assert!(stored(&case.plan, Role::Client, ours).is_ok());
    assert!(stored(&case.plan, Role::Client, theirs).is_err());
    assert!(stored(&case.plan, Role::Server, theirs).is_err(), "nothing came from a client yet");
    // The right length with the wrong role.
    let content = &ours[..Fss::half_bytes(&case.plan, Role::Client).dealt];
    assert!(stored(&case.plan, Role::Client, &with_digest(&case.plan, Role::Server, content)).is_err());
    assert!(stored(&cases[1].plan, Role::Client, ours).is_err());
    // Material of one plan is not used for another.
    let (mut channel, _peer) = tacit_net::mem_pair();
    let foreign = StoredHalf { made_for: cases[1].plan.binding(), source: Source::Memory(Reader::new(content)) };
    let mut prg = Prg::from_seed(Seed([1; 16]));
    let mut session = Session { role: Role::Client, channel: &mut channel, prg: &mut prg };
    let run = Run { plan: &case.plan, session: &mut session, stop: &Stop::default() };
    let used = <Fss as ClientPhases>::online(run, foreign, &case.input);
    assert!(matches!(used, Err(BackendError::Misuse(_))));
}

#[test]
fn halves_of_another_model_of_equal_shapes_are_refused() {
    let case = &cases(Level::L1)[0];
    let [one, two] = [[1; 32], [2; 32]].map(|masked_weights| {
        let plan = Plan::compile(case.plan.graph().clone(), *case.plan.options()).unwrap();
        let plan = plan.bound_to(&[masked_weights, [3; 32]]);
        let halves = [Role::Client, Role::Server].map(|role| dealt(role, &plan, &case.keys, 5));
        (plan, halves)
    });
    for (role, index) in [(Role::Client, 0), (Role::Server, 1)] {
        let len = Fss::half_bytes(&one.0, role).dealt;
        assert_eq!(one.1[index].len(), two.1[index].len());
        assert!(checked(&one.0, role, &one.1[index], len).is_ok());
        assert!(checked(&two.0, role, &one.1[index], len).is_err(), "another E");
    }
    let len = Fss::half_bytes(&one.0, Role::Client).stored;
    let content = checked(&one.0, Role::Client, &one.1[0], len).unwrap();
    assert!(stored(&one.0, Role::Client, &with_digest(&one.0, Role::Client, content)).is_ok());
}

#[test]
fn a_client_of_another_dealing_is_found() {
    let case = &cases(Level::L1)[0];
    let other = dealt(Role::Client, &case.plan, &case.keys, 6);
    let seen = case.run(&other[..Fss::half_bytes(&case.plan, Role::Client).dealt], [None; 2]);
    assert!(matches!(seen.server, Err(BackendError::Protocol(_))) && seen.answer.is_err());
}
