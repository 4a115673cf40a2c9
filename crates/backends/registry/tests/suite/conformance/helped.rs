//! A device and its helper: the helper runs the offline phase from the device's seed, the device puts the
//! seed and what comes of the phase together, and runs the online phase.

use super::*;
use tacit_backends::seam::MaterialSeed;

const MASTER: [u8; 32] = [5; 32];

fn seed(material: u8) -> MaterialSeed {
    MaterialSeed::derive(&MASTER, &[&[material]])
}

#[test]
fn a_helpers_material_and_the_devices_seed_answer_an_input() {
    let model = first_model("network");
    for backend in registry().iter().filter(|backend| ["cheetah", "sci-he"].contains(&backend.id())) {
        let models = Models::lower(&**backend, &model, &Options::default());
        let Models { server, client } = &models;
        let resources = ConnectionResources::default();
        let (rest, server_bytes) = run_pair(
            |channel| {
                let mut helper = models.set_up_client(&resources, channel);
                channel.set_phase(Phase::Offline);
                let rest = helper.offline_from(channel, seed(1)).unwrap();
                channel.flush().unwrap();
                rest
            },
            |channel| {
                let mut side = models.set_up_server(&resources, channel);
                channel.set_phase(Phase::Offline);
                let material = side.offline(channel).unwrap();
                channel.flush().unwrap();
                material.to_bytes().unwrap()
            },
        );
        assert_eq!(rest.len() as u64 + 16, server.costs().offline.client.stored_bytes, "all but a seed");
        let input = vec![0.25; model.interface.input_len()];
        // On another connection, without a setup; and with another seed, which gives another answer.
        let answer = |seed: MaterialSeed| {
            run_pair(
                |channel| {
                    let mut device = client.clone().connect(&resources).unwrap();
                    assert!(device.with_seed(self::seed(1), &rest[1..]).is_err());
                    let material = device.with_seed(seed, &rest).unwrap();
                    let whole = material.to_bytes().unwrap();
                    let material = device.read_material(&whole).unwrap();
                    device.online(channel, material, &input).unwrap()
                },
                |channel| {
                    let mut side = server.clone().connect(&resources).unwrap();
                    let material = side.read_material(&server_bytes).unwrap();
                    side.online(channel, material).unwrap();
                    channel.flush().unwrap();
                },
            )
            .0
        };
        let reference = server.reference(&input).unwrap();
        assert!(parties::is_near(&**server, &answer(seed(1)), &reference), "{}", backend.id());
        assert!(!parties::is_near(&**server, &answer(seed(2)), &reference), "{}: other masks", backend.id());
    }
}

#[test]
fn other_back_ends_refuse_a_helper() {
    let model = first_model("conv");
    for backend in registry().iter().filter(|backend| !["cheetah", "sci-he"].contains(&backend.id())) {
        let client = Models::lower(&**backend, &model, &Options::default()).client;
        let (error, ()) = run_pair(
            |channel| {
                let mut side = client.clone().connect(&ConnectionResources::default()).unwrap();
                assert!(side.with_seed(seed(1), &[]).is_err(), "{}", backend.id());
                side.offline_from(channel, seed(1)).unwrap_err()
            },
            |_| (),
        );
        assert!(matches!(error, BackendError::Misuse(_)), "{}: {error}", backend.id());
    }
}
