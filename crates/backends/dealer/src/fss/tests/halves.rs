//! Damaged halves, and halves of others, are refused.

use super::*;

#[test]
fn every_changed_byte_of_a_half_is_found_before_it_is_used() {
    let case = &cases(Level::L1)[0];
    let stored = {
        // The server's stored material also has the results of the offline phase.
        let len = material_format::server_bytes(&case.plan)[1];
        material_format::with_digest_appended(&case.plan.binding(), Role::Server, &vec![7; len])
    };
    for byte in 0..case.halves[0].len() {
        let mut half = case.halves[0].clone();
        half[byte] ^= 1 << (byte % 8);
        assert!(ClientMaterial::read(&case.plan, &half).is_err(), "byte {byte}");
    }
    for byte in 0..stored.len() {
        let mut half = stored.to_vec();
        half[byte] ^= 1 << (byte % 8);
        assert!(ServerMaterial::read(&case.plan, &half).is_err(), "byte {byte}");
    }
    assert!(ServerMaterial::read(&case.plan, &stored).is_ok());
}

#[test]
fn halves_of_others_are_refused() {
    let cases = cases(Level::L1);
    let case = &cases[0];
    let [ours, theirs] = &case.halves;
    assert!(ClientMaterial::read(&case.plan, ours).is_ok());
    assert!(ClientMaterial::read(&case.plan, theirs).is_err());
    assert!(ServerMaterial::read(&case.plan, theirs).is_err(), "nothing came from a client yet");
    // The right length with the wrong role.
    let content = &ours[..material_format::client_bytes(&case.plan)[0]];
    assert!(
        ClientMaterial::read(
            &case.plan,
            &material_format::with_digest_appended(&case.plan.binding(), Role::Server, content)
        )
        .is_err()
    );
    assert!(ClientMaterial::read(&cases[1].plan, ours).is_err());
    // Material of one plan is not used for another.
    let (mut channel, _peer) = tacit_net::mem_pair();
    let foreign = (cases[1].plan.binding(), Source::Memory(Reader::new(content)));
    let mut prg = Prg::from_seed(Seed([1; 16]));
    let used =
        client::online(&case.plan, foreign, &case.input, (&mut channel, &mut prg), &mut |_, _| {}, &Stop::default());
    assert!(matches!(used, Err(BackendError::Misuse(_))));
}

#[test]
fn halves_of_another_model_of_equal_shapes_are_refused() {
    let case = &cases(Level::L1)[0];
    let [one, two] = [[1; 32], [2; 32]].map(|masked_weights| {
        let plan =
            compile(case.plan.graph().clone(), *case.plan.options()).unwrap().bound_to([&masked_weights, &[3; 32]]);
        let halves = [Role::Client, Role::Server].map(|role| dealt(role, &plan, &case.keys, 5));
        (plan, halves)
    });
    for (role, index) in [(Role::Client, 0), (Role::Server, 1)] {
        let len = [material_format::client_bytes(&one.0)[0], material_format::server_bytes(&one.0)[0]][index];
        assert_eq!(one.1[index].len(), two.1[index].len());
        assert!(material_format::checked(&one.0, role, &one.1[index], len).is_ok());
        assert!(material_format::checked(&two.0, role, &one.1[index], len).is_err(), "another E");
    }
    let stored = ClientMaterial::read(&one.0, &one.1[0]).unwrap();
    assert!(
        ClientMaterial::read(&one.0, &material_format::with_digest_appended(&stored.plan, Role::Client, &stored.bytes))
            .is_ok()
    );
}

#[test]
fn a_client_of_another_dealing_is_found() {
    let case = &cases(Level::L1)[0];
    let other = dealt(Role::Client, &case.plan, &case.keys, 6);
    let seen = case.run(&other[..material_format::client_bytes(&case.plan)[0]], [None; 2]);
    assert!(matches!(seen.server, Err(BackendError::Protocol(_))) && seen.answer.is_err());
}
