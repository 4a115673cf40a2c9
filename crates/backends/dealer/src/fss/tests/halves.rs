//! Damaged halves, and halves of others, are refused.

use super::*;

#[test]
fn detects_damaged_halves() {
    let case = &cases(Level::L1)[0];
    let original = {
        // The server's stored material also has the results of the offline phase.
        let len = Fss::half_bytes(&case.plan, Role::Server).stored;
        with_digest(&case.plan, Role::Server, &vec![7; len])
    };
    for (role, original) in [(Role::Client, &case.halves[0][..]), (Role::Server, &original[..])] {
        for byte in 0..original.len() {
            let mut half = original.to_vec();
            half[byte] ^= 1 << (byte % 8);
            assert!(read_stored(&case.plan, role, &half).is_err(), "{role:?}, byte {byte}");
        }
    }
    assert!(read_stored(&case.plan, Role::Server, &original).is_ok());
}

#[test]
fn refuses_halves_of_others() {
    let cases = cases(Level::L1);
    let case = &cases[0];
    let [client_half, server_half] = &case.halves;
    assert!(read_stored(&case.plan, Role::Client, client_half).is_ok());
    assert!(read_stored(&case.plan, Role::Client, server_half).is_err());
    assert!(read_stored(&case.plan, Role::Server, server_half).is_err(), "nothing came from a client yet");
    // The right length with the wrong role.
    let content = &client_half[..Fss::half_bytes(&case.plan, Role::Client).dealt];
    assert!(read_stored(&case.plan, Role::Client, &with_digest(&case.plan, Role::Server, content)).is_err());
    assert!(read_stored(&cases[1].plan, Role::Client, client_half).is_err());
    // Material of one plan is not used for another.
    let (mut channel, _peer) = tacit_net::mem_pair();
    let foreign_half = StoredHalf { made_for: cases[1].plan.binding(), source: Source::Memory(Reader::new(content)) };
    let mut prg = Prg::from_seed(Seed([1; 16]));
    let mut session = Session { role: Role::Client, channel: &mut channel, prg: &mut prg };
    let run = Run { plan: &case.plan, session: &mut session, stop: &Stop::default() };
    let result = <Fss as ClientPhases>::online(run, foreign_half, &case.input);
    assert!(matches!(result, Err(BackendError::Misuse(_))));
}

#[test]
fn refuses_halves_of_another_model() {
    let case = &cases(Level::L1)[0];
    let [first, second] = [[1; 32], [2; 32]].map(|masked_weights| {
        let plan = Plan::compile(case.plan.graph().clone(), *case.plan.options()).unwrap();
        let plan = plan.bound_to(&[masked_weights, [3; 32]]);
        let halves = [Role::Client, Role::Server].map(|role| deal_half(role, &plan, &case.keys, 5));
        (plan, halves)
    });
    for (role, index) in [(Role::Client, 0), (Role::Server, 1)] {
        let len = Fss::half_bytes(&first.0, role).dealt;
        assert_eq!(first.1[index].len(), second.1[index].len());
        assert!(check_half(&first.0, role, &first.1[index], len).is_ok());
        assert!(check_half(&second.0, role, &first.1[index], len).is_err(), "another E");
    }
    let len = Fss::half_bytes(&first.0, Role::Client).stored;
    let content = check_half(&first.0, Role::Client, &first.1[0], len).unwrap();
    assert!(read_stored(&first.0, Role::Client, &with_digest(&first.0, Role::Client, content)).is_ok());
}

#[test]
fn detects_client_of_another_dealing() {
    let case = &cases(Level::L1)[0];
    let foreign_half = deal_half(Role::Client, &case.plan, &case.keys, 6);
    let outcome = case.run(&foreign_half[..Fss::half_bytes(&case.plan, Role::Client).dealt], [None; 2]);
    assert!(matches!(outcome.server, Err(BackendError::Protocol(_))) && outcome.answer.is_err());
}
