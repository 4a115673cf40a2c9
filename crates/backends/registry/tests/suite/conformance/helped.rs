//! A device and its helper: the helper runs the offline phase from the device's seed, the device puts the
//! seed and what comes of the phase together, and runs the online phase.

use super::*;
use tacit_backends::seam::MaterialSeed;

const MASTER: [u8; 32] = [5; 32];

fn seed(material: u8) -> MaterialSeed {
    MaterialSeed::derived(&MASTER, &[&[material]])
}

#[test]
fn a_helpers_offline_phase_and_the_devices_seed_make_an_input_s_material() {
    let tree = cases().new_tree(&mut TestRunner::deterministic()).expect("a strategy without filters");
    let (_, model) =
        tree.current().into_iter().find(|(name, _)| *name == "network").expect("the suite has a whole network");
    for backend in registry().iter().filter(|backend| ["cheetah", "sci-he"].contains(&backend.id())) {
        let server = backend.lower(&model, &Options::default()).expect("both take it");
        let client = backend.open(server.public_bytes()).expect("what was lowered");
        let resources = ConnectionResources::default();
        let (rest, server_bytes) = run_pair(
            |channel| {
                let mut helper = client.clone().connect(&resources).expect("a connection");
                helper.setup(channel).expect("the setup");
                channel.set_phase(Phase::Offline);
                let rest = helper.offline_from(channel, seed(1)).expect("the offline phase");
                channel.flush().expect("the server is there");
                rest
            },
            |channel| {
                let mut side = server.clone().connect(&resources).expect("a connection");
                side.setup(channel).expect("the setup");
                channel.set_phase(Phase::Offline);
                let material = side.offline(channel).expect("the offline phase");
                channel.flush().expect("the helper is there");
                material.to_bytes().expect("it is in memory")
            },
        );
        assert_eq!(rest.len() as u64 + 16, server.costs().offline.client.stored_bytes, "all but a seed");
        let input = vec![0.25; model.interface.input_len()];
        // On another connection, without a setup; and with another seed, which gives another answer.
        let answer = |seed: MaterialSeed| {
            run_pair(
                |channel| {
                    let mut device = client.clone().connect(&resources).expect("a connection");
                    assert!(device.with_seed(self::seed(1), &rest[1..]).is_err(), "what was cut off is taken");
                    let material = device.with_seed(seed, &rest).expect("it fits the plan");
                    let whole = material.to_bytes().expect("it is in memory");
                    let material = device.read_material(&whole).expect("it is material like any other");
                    device.online(channel, material, &input).expect("the online phase")
                },
                |channel| {
                    let mut side = server.clone().connect(&resources).expect("a connection");
                    let material = side.read_material(&server_bytes).expect("its own material");
                    side.online(channel, material).expect("the online phase");
                    channel.flush().expect("the device is there");
                },
            )
            .0
        };
        let reference = server.reference(&input).expect("it fits the model");
        let bound = server.error_bound(&reference);
        let is_right =
            |answer: &[f64]| answer.iter().zip(&reference).all(|(got, expected)| (got - expected).abs() <= bound);
        assert!(is_right(&answer(seed(1))), "{}", backend.id());
        assert!(!is_right(&answer(seed(2))), "{}: the seed does not decide the masks", backend.id());
    }
}

#[test]
fn back_ends_whose_material_follows_from_no_seed_say_so() {
    let (_, model) = &first_case();
    for backend in registry().iter().filter(|backend| !["cheetah", "sci-he"].contains(&backend.id())) {
        let server = backend.lower(model, &Options::default()).unwrap();
        let client = backend.open(server.public_bytes()).unwrap();
        let (error, ()) = run_pair(
            |channel| {
                let mut side = client.clone().connect(&ConnectionResources::default()).unwrap();
                assert!(side.with_seed(seed(1), &[]).is_err(), "{}", backend.id());
                side.offline_from(channel, seed(1)).expect_err("it has no seed")
            },
            |_| (),
        );
        assert!(matches!(error, BackendError::Misuse(_)), "{}: {error}", backend.id());
    }
}
