//! Tests of results over shape classes, of byte counts, and of malformed messages.

use super::shapes::{self, conv, weights};
use super::tiling::Place;
use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::conv2d;
use tacit_he::HeError;
use tacit_he::coeff::Context;
use tacit_net::{Phase, mem_pair};

fn prg(n: u8) -> Prg {
    Prg::from_seed(Seed([n; 16]))
}

/// A layer of two channels.
fn small_layer() -> Consumer {
    Consumer { conv: conv(2, 2, (4, 4), 3), ring_bits: 37, norm_log2: 6 }
}

/// The plan of one layer, and both parties' keys for it.
fn plan_with_keys(layer: Consumer) -> (LinearPlan, ClientKeys, ServerKeys) {
    let plan = LinearPlan::new(&[layer], 1).unwrap();
    let ctx = Arc::new(Context::new().unwrap());
    let (keys, bytes) = ClientKeys::generate(&ctx, plan.steps(), &mut prg(2)).unwrap();
    let server_keys = ServerKeys::read(&ctx, plan.steps(), &bytes).unwrap();
    (plan, keys, server_keys)
}

/// The server with the client's encrypted mask.
fn receive_mask<'a>(plan: &'a LinearPlan, keys: &ClientKeys, server_keys: &'a ServerKeys) -> LinearServer<'a> {
    let mut frames = std::collections::VecDeque::new();
    let mut keep = |f: &[u8]| {
        frames.push_back(f.to_vec());
        Ok(())
    };
    LinearClient::new(keys, plan).encrypt(&vec![3; plan.input_len()], &prg(3), &mut keep).unwrap();
    LinearServer::receive_from(server_keys, plan, &mut |_| Ok(frames.pop_front().unwrap())).unwrap()
}

/// Runs both parties over a channel, with a given mask and with a mask that the encryption chooses.
/// Checks every output's error and the plan's bytes and work. Returns the plan for the given mask.
fn check(convs: &[(ConvSpec, u32)], size: i32) -> LinearPlan {
    check_within(convs, size, 1)
}

/// `check` with a larger allowed error.
fn check_within(convs: &[(ConvSpec, u32)], size: i32, max_error: u32) -> LinearPlan {
    let mut data = prg(1);
    let values: Vec<Vec<i32>> = convs.iter().map(|(c, _)| weights(c, size, &mut data)).collect();
    let consumers = shapes::consumers(convs, &values);
    let plan = LinearPlan::new(&consumers, max_error).unwrap();
    let mask: Vec<u64> = (0..plan.input_len()).map(|_| data.next_u64()).collect();
    check_plan(&plan, convs, &values, &mask);
    let choosing = plan.clone().with_chosen_masks();
    let ctx = Arc::new(Context::new().unwrap());
    let mut chosen = mask.clone();
    LinearClient::new(&ClientKeys::draw(&ctx, &mut prg(2)), &choosing).choose(&mut chosen, &prg(3)).unwrap();
    // Each element whose mask the encryption chooses saves nearly as many bits as the ring has.
    let changed = mask.iter().zip(&chosen).filter(|(given, chosen)| given != chosen).count() as u64;
    assert!(mask.iter().zip(&chosen).all(|(given, chosen)| (given ^ chosen) >> plan.ring_bits() == 0));
    let [plain_bytes, choosing_bytes] = [&plan, &choosing].map(|plan| plan.cost().up_bytes);
    assert!(
        choosing_bytes + changed * u64::from(plan.uploads[0].params.ring_bits() - 1) / 8 <= plain_bytes + 2,
        "{choosing_bytes} of {plain_bytes}"
    );
    let has_elements = (0..plan.uploads[0].tiling.uploads())
        .any(|i| plan.uploads[0].tiling.places(i).iter().any(|place| matches!(place, Place::Element { .. })));
    assert_eq!(changed > 0, has_elements, "a layer may read nothing but what is beside the image");
    check_plan(&choosing, convs, &values, &chosen);
    plan
}

/// Runs both parties with a plan and a mask, and checks errors and bytes.
fn check_plan(plan: &LinearPlan, convs: &[(ConvSpec, u32)], values: &[Vec<i32>], mask: &[u64]) {
    let ctx = Arc::new(Context::new().unwrap());
    let (mut client, mut server) = mem_pair();
    let (client_shares, server_shares) = std::thread::scope(|scope| {
        let party = scope.spawn(|| {
            let keys = ClientKeys::setup(&ctx, plan.steps(), &mut prg(2), &mut client).unwrap();
            client.set_phase(Phase::Offline);
            LinearClient::new(&keys, plan).run(mask, &prg(3), &mut client).unwrap()
        });
        let keys = ServerKeys::receive(&ctx, plan.steps(), &mut server).unwrap();
        server.set_phase(Phase::Offline);
        let received = LinearServer::receive(&keys, plan, &mut server).unwrap();
        let shares: Vec<Vec<u64>> = (0..convs.len())
            .map(|k| {
                let w = CheckedWeights::new(plan, k, &values[k]).unwrap();
                received.send_answer(k, &w, &mut prg(4), &mut server).unwrap()
            })
            .collect();
        (party.join().unwrap(), shares)
    });
    for (k, (conv, ring_bits)) in convs.iter().enumerate() {
        let expected = conv2d(conv, &values[k], mask, *ring_bits).unwrap();
        for i in 0..expected.len() {
            let sum = client_shares[k][i].wrapping_add(server_shares[k][i]);
            let error = (sum.wrapping_sub(expected[i]) << (64 - ring_bits)) as i64 >> (64 - ring_bits);
            assert!(error.unsigned_abs() <= u64::from(plan.max_error(k)), "{conv:?} output {i}: {error}");
        }
        assert!(client_shares[k].iter().chain(&server_shares[k]).all(|v| v >> ring_bits == 0));
    }
    let cost = plan.cost();
    assert_eq!(client.traffic(Phase::Offline).sent, cost.up_bytes);
    assert_eq!(client.traffic(Phase::Offline).received, cost.down_bytes());
}

#[test]
fn every_shape_class_conforms() {
    for case in shapes::classes().into_iter().chain([ConvSpec::linear(5000, 3)]) {
        check(&[(case, 37)], 1 << 11);
    }
}

#[test]
fn consumers_share_an_upload() {
    let side = (13, 13);
    let three_by_three = ConvSpec { pads: [1; 4], ..conv(6, 10, side, 3) };
    let plan = check(&[(conv(6, 12, side, 1), 37), (three_by_three, 33)], 1 << 10);
    assert_eq!(plan.uploads.len(), 1);
    let valid = conv(6, 4, side, 5);
    let plan = check(&[(three_by_three, 30), (valid, 30)], 1 << 10);
    assert_eq!(plan.uploads.len(), 1);
    let strided = ConvSpec { stride: (2, 2), ..conv(6, 12, side, 1) };
    let plan = check(&[(three_by_three, 37), (strided, 37)], 1 << 10);
    assert_eq!(plan.uploads.len(), 2);
}

/// Small tiles of many channels: neither direction carries zeros for them, in any number of steps.
#[test]
fn small_tiles_are_taken_apart() {
    let same_size = |in_ch, out_ch, side, kernel| ConvSpec { pads: [1; 4], ..conv(in_ch, out_ch, side, kernel) };
    let layers = [
        vec![conv(24, 130, (13, 13), 1), same_size(24, 40, (13, 13), 3)],
        vec![ConvSpec { stride: (2, 2), ..same_size(33, 90, (15, 15), 3) }],
        vec![ConvSpec { groups: 4, ..same_size(64, 96, (9, 9), 3) }],
        vec![same_size(5, 70, (28, 30), 3)],
        vec![conv(150, 30, (4, 4), 1)],
    ];
    let mut steps = vec![];
    for convs in layers {
        let convs: Vec<(ConvSpec, u32)> = convs.into_iter().map(|c| (c, 30)).collect();
        let plan = check_within(&convs, 1 << 8, 1 << 10);
        assert_eq!(plan.max_error(0), 1 << 10);
        steps.push(plan.steps());
        let batched = plan.times(2);
        assert_eq!((batched.steps(), batched.cost().uploads), (plan.steps(), 2 * plan.cost().uploads));
    }
    assert!(steps.iter().all(|&steps| steps > 0), "{steps:?}");
    assert!(steps.iter().max() > steps.iter().min(), "{steps:?}");
}

/// Splitting ciphertexts needs keys: a server whose setup covered fewer steps returns an error.
#[test]
fn missing_expansion_keys_are_named() {
    let layer = Consumer { conv: conv(24, 130, (13, 13), 1), ring_bits: 30, norm_log2: 10 };
    let plan = LinearPlan::new(&[layer], 1 << 10).unwrap();
    let ctx = Arc::new(Context::new().unwrap());
    let (_, bytes) = ClientKeys::generate(&ctx, 0, &mut prg(2)).unwrap();
    let keys = ServerKeys::read(&ctx, 0, &bytes).unwrap();
    let received = LinearServer::receive_from(&keys, &plan, &mut |_| unreachable!("nothing is read"));
    assert!(matches!(received, Err(LinearError::Steps { have: 0, needed }) if needed == plan.steps()));
    assert!(ServerKeys::read(&ctx, 1, &bytes).is_err());
}

#[test]
fn wide_and_narrow_rings_keep_their_error_bounds() {
    let layer = ConvSpec { pads: [1; 4], ..conv(4, 4, (10, 10), 3) };
    for (ring_bits, error) in [(8, 1), (16, 1), (39, 1), (42, 8), (45, 59)] {
        assert_eq!(check(&[(layer, ring_bits)], 1 << 9).max_error(0), error, "{ring_bits}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn random_shapes_conform(
        spec in shapes::any(),
        ring_bits in 12u32..40,
    ) {
        check(&[(spec, ring_bits)], 2000);
    }
}

#[test]
fn the_server_does_the_planned_work() {
    let spec = ConvSpec { groups: 2, pads: [1; 4], ..conv(16, 12, (28, 28), 3) };
    let values = weights(&spec, 500, &mut prg(1));
    let (plan, keys, server_keys) = plan_with_keys(Consumer { conv: spec, ring_bits: 37, norm_log2: 13 });
    let server = receive_mask(&plan, &keys, &server_keys);
    let cost = plan.cost().consumers[0];
    let mut answers = 0;
    let weights = CheckedWeights::new(&plan, 0, &values).unwrap();
    let count = &mut |_: &[u8]| {
        answers += 1;
        Ok(())
    };
    let result = server.evaluate(0, &weights, &mut prg(4), count).unwrap();
    assert_eq!((answers - 1, result.products), (cost.answers, cost.products));
    assert_eq!(result.weight_polys, cost.weight_polys);
}

/// The seed of an answer is published. It must occur neither in the server's stream nor in the
/// stream of a seed drawn from it.
#[test]
fn the_seed_of_an_answer_is_not_in_the_secret_stream() {
    let (plan, keys, server_keys) = plan_with_keys(small_layer());
    let server = receive_mask(&plan, &keys, &server_keys);
    let weights = CheckedWeights::new(&plan, 0, &[1; 36]).unwrap();
    let mut published = vec![];
    for _ in 0..2 {
        let mut first = None;
        let mut keep = |f: &[u8]| {
            first.get_or_insert_with(|| f.to_vec());
            Ok(())
        };
        server.evaluate(0, &weights, &mut prg(4), &mut keep).unwrap();
        published.push(first.unwrap());
    }
    assert_eq!(published[0], published[1]);
    let (mut stream, mut child_stream) = ([0; 1 << 16], [0; 1 << 16]);
    prg(4).fill_bytes(&mut stream);
    Prg::from_seed(prg(4).next_seed()).fill_bytes(&mut child_stream);
    assert!(stream.chunks(16).chain(child_stream.chunks(16)).all(|block| block != published[0]));
}

#[test]
fn wrong_input_is_named() {
    let layer = small_layer();
    let plan = LinearPlan::new(&[layer], 1).unwrap();
    assert!(matches!(CheckedWeights::new(&plan, 0, &[1; 35]), Err(LinearError::Length { got: 35, expected: 36, .. })));
    assert!(matches!(
        CheckedWeights::new(&plan, 0, &[16; 36]),
        Err(LinearError::WeightNorm { channel: 0, norm_log2: 6 })
    ));
    assert!(matches!(CheckedWeights::new(&plan, 1, &[1; 36]), Err(LinearError::Consumer { consumer: 1, have: 1 })));
    assert!(matches!(LinearPlan::new(&[], 1), Err(LinearError::Group { consumer: 0 })));
    let other_tensor = Consumer { conv: conv(3, 2, (4, 4), 3), ..layer };
    assert!(matches!(LinearPlan::new(&[layer, other_tensor], 1), Err(LinearError::Group { consumer: 1 })));
    let huge = Consumer { conv: conv(1, 1, (80, 80), 70), ..layer };
    assert!(matches!(LinearPlan::new(&[huge], 1), Err(LinearError::Tile { rows: 70, .. })));
    let wide = Consumer { ring_bits: 46, ..layer };
    assert!(matches!(LinearPlan::new(&[wide], 1), Err(LinearError::He(HeError::RingBits { .. }))));
    let invalid = Consumer { conv: ConvSpec { groups: 3, ..layer.conv }, ..layer };
    assert!(matches!(LinearPlan::new(&[invalid], 1), Err(LinearError::Shape(_))));
}

#[test]
fn malformed_messages_are_errors() {
    let (plan, keys, server_keys) = plan_with_keys(small_layer());
    let client = LinearClient::new(&keys, &plan);
    for make in [(|len| vec![0xff; len]) as fn(usize) -> Vec<u8>, |len| vec![0; len - 1], |_| vec![]] {
        let received = LinearServer::receive_from(&server_keys, &plan, &mut |len| Ok(make(len)));
        assert!(matches!(received, Err(LinearError::He(_))));
        let opened = client.decrypt(0, &mut |len| Ok(make(len)));
        assert!(matches!(opened, Err(LinearError::He(_))));
    }
    assert!(matches!(client.encrypt(&[0; 31], &prg(1), &mut |_| Ok(())), Err(LinearError::Length { got: 31, .. })));
}
