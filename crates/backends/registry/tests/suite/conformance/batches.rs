//! Batches of inputs: models for them, and connections that go from one size to another.

use tacit_backends::seam::batch_digest;
use tacit_backends::{BackendError, ClientModel, Material, Options, Plan, ServerModel};
use tacit_graph::Model;
use tacit_mpc::run_pair;
use tacit_net::{Channel, Phase};

use super::models::first_model;
use super::parties::{Models, is_near, resources};
use super::registry;

pub const SIZES: [usize; 2] = [2, 5];

/// Back ends that run several inputs as one.
const BATCHING: [&str; 4] = ["cheetah", "dealt", "fss", "sci-he"];

/// Checks that models for a batch state their batch, digest and costs.
pub fn check_models(case: &str, single: &dyn ServerModel, several: &dyn ServerModel, client: &dyn ClientModel) {
    let batch = several.batch();
    assert_eq!(several.digest(), batch_digest(&single.digest(), batch), "{case}");
    assert_ne!(several.digest(), single.digest(), "{case}");
    for plan in [several as &dyn Plan, client] {
        assert_eq!(plan.digest(), several.digest(), "{case}");
        assert_eq!((plan.batch(), plan.max_batch()), (batch, single.max_batch()), "{case}");
        assert_eq!(plan.costs(), several.costs(), "{case}");
        assert_eq!(plan.interface(), single.interface(), "{case}");
    }
    assert_eq!(several.costs().online.exchanges, single.costs().online.exchanges, "{case}");
    assert_eq!(several.public_bytes(), single.public_bytes(), "{case}");
    let (batch_bytes, single_bytes) = (several.costs().online.bytes(), single.costs().online.bytes());
    assert!(batch_bytes <= batch as u64 * single_bytes, "{case}: {batch_bytes} for {batch}, {single_bytes} for one");
}

/// Lowers a model that every back end takes, with a batch of gates.
fn lower(id: &str) -> (Models, Model) {
    let model = first_model("relu");
    (Models::lower(&**registry().get(id).unwrap(), &model, &Options::default()), model)
}

#[test]
fn batch_sizes_out_of_range_are_refused() {
    for backend in registry().iter() {
        let Models { server, client } = lower(backend.id()).0;
        assert_eq!(server.max_batch() > 1, BATCHING.contains(&backend.id()), "{}", backend.id());
        assert_eq!((server.batch(), client.batch(), client.max_batch()), (1, 1, server.max_batch()));
        let resources = resources();
        let mut client_side = client.clone().connect(&resources[0]).unwrap();
        let mut server_side = server.clone().connect(&resources[1]).unwrap();
        for batch in [0, server.max_batch() + 1] {
            assert!(matches!(server.batched(batch), Err(BackendError::Misuse(_))), "{}: {batch}", backend.id());
            assert!(matches!(client.batched(batch), Err(BackendError::Misuse(_))), "{}: {batch}", backend.id());
            assert!(client_side.set_batch(batch).is_err(), "{}", backend.id());
            assert!(server_side.set_batch(batch).is_err(), "{}", backend.id());
        }
        assert!(client_side.set_batch(1).is_ok(), "{}", backend.id());
        assert!(server_side.set_batch(1).is_ok(), "{}", backend.id());
    }
}

/// The sizes that one connection goes through, with the keys of one setup.
const BATCH_SIZES: [usize; 5] = [1, 3, 1, 2, 3];

#[test]
fn one_connection_runs_batches_of_several_sizes() {
    for id in BATCHING {
        let (models, model) = lower(id);
        let resources = resources();
        let (inputs, outputs) = (model.interface.input_len(), model.interface.output_len());
        let input = |index: usize| -> Vec<f32> {
            (0..inputs).map(|i| ((i * 7 + index * 3) % 11) as f32 / 11.0 - 0.4).collect()
        };
        let batch = |size: usize| -> Vec<f32> { (0..size).flat_map(input).collect() };
        let (answers, ()) = run_pair(
            |channel| {
                let mut side = models.set_up_client(&resources[0], channel);
                let mut answers = Vec::new();
                for size in BATCH_SIZES {
                    side.set_batch(size).unwrap();
                    let material = side.offline(channel).unwrap();
                    answers.push(side.online(channel, material, &batch(size)).unwrap());
                }
                answers
            },
            |channel| {
                let mut side = models.set_up_server(&resources[1], channel);
                for size in BATCH_SIZES {
                    side.set_batch(size).unwrap();
                    let material = side.offline(channel).unwrap();
                    side.online(channel, material).unwrap();
                    channel.flush().unwrap();
                }
            },
        );
        for (size, answers) in BATCH_SIZES.into_iter().zip(answers) {
            assert_eq!(answers.len(), size * outputs);
            for (index, answer) in answers.chunks(outputs).enumerate() {
                let expected = models.server.reference(&input(index)).unwrap();
                let near = is_near(&*models.server, answer, &expected);
                assert!(near, "{id}, input {index} of {size}: {answer:?}, reference {expected:?}");
            }
        }
    }
}

#[test]
fn material_of_another_batch_size_is_refused_before_anything_is_sent() {
    for id in BATCHING {
        let (models, model) = lower(id);
        let resources = resources();
        let input = vec![0.25; 2 * model.interface.input_len()];
        let run_client = |channel: &mut Channel| {
            let mut side = models.set_up_client(&resources[0], channel);
            side.set_batch(2).unwrap();
            let material = side.offline(channel).unwrap();
            channel.flush().unwrap();
            channel.set_phase(Phase::Online);
            side.set_batch(3).unwrap();
            let longer = vec![0.25; 3 * model.interface.input_len()];
            let refused = side.online(channel, material, &longer).unwrap_err();
            side.set_batch(2).unwrap();
            let short = side.online(channel, Material::nothing(), &input[1..]).unwrap_err();
            (refused, short, channel.traffic(Phase::Online).sent)
        };
        let ((refused, short, sent), server_error) = run_pair(run_client, |channel| {
            let mut side = models.set_up_server(&resources[1], channel);
            side.set_batch(2).unwrap();
            let material = side.offline(channel).unwrap();
            channel.flush().unwrap();
            side.set_batch(1).unwrap();
            side.online(channel, material).unwrap_err()
        });
        assert!(matches!(refused, BackendError::Misuse(_)), "{id}");
        assert!(matches!(server_error, BackendError::Misuse(_)), "{id}");
        assert!(short.to_string().contains("values for 2 inputs"), "{id}: {short}");
        assert_eq!(sent, 0, "{id}");
    }
}
