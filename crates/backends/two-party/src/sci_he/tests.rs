//! Tests of linear layers over shape classes: exact shares, stated bytes and work, malformed
//! messages.

use proptest::prelude::*;
use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::{ConvSpec, conv2d};
use tacit_he::bfv::{ANSWER_BYTES, FRESH_BYTES, GALOIS_KEY_BYTES, PUBLIC_KEY_BYTES};
use tacit_mpc::Ots;
use tacit_mpc::ot::PlannedOts;
use tacit_mpc::session::run_sessions;
use tacit_net::{Phase, Tag, TrafficModel};

use super::cost;
use super::plan::SlotPlan;
use super::units::{TAG_DOWN, TAG_GALOIS, TAG_KEY, TAG_SEED, TAG_UP, lift_spec, units};
use super::{ClientKeys, ServerKeys};
use crate::cheetah::linear::LinearError;
use crate::cheetah::linear::shapes::{self, conv};
use crate::cheetah::linear::tiling::Consumer;
use tacit_backend_api::BackendError;

fn prg(n: u8) -> Prg {
    Prg::from_seed(Seed([n; 16]))
}

/// Runs both parties over a channel. Checks every output and the plan's bytes and work. Returns the
/// plan.
fn check(convs: &[(ConvSpec, u32)], size: i32) -> SlotPlan {
    let mut data = prg(1);
    let values: Vec<Vec<i32>> = convs.iter().map(|(c, _)| shapes::weights(c, size, &mut data)).collect();
    let consumers = shapes::consumers(convs, &values);
    let plan = SlotPlan::new(&consumers).unwrap();
    let widest = convs.iter().map(|(_, bits)| *bits).max().unwrap();
    let mask: Vec<u64> = (0..plan.input_len()).map(|_| prg_word(&mut data, widest)).collect();
    let slices: Vec<&[i32]> = values.iter().map(|w| &w[..]).collect();
    let (client_result, server_result) = run_sessions(
        3,
        |session, mut ots| {
            let keys = ClientKeys::setup(&[&plan], session).unwrap();
            session.channel.set_phase(Phase::Offline);
            let shares = keys.run(&plan, &mask, session, &mut ots).unwrap();
            (shares, session.channel.traffic(Phase::Offline), session.channel.traffic(Phase::Setup))
        },
        |session, mut ots| {
            let keys = ServerKeys::setup(&[&plan], session).unwrap();
            keys.run(&plan, &slices, session, &mut ots).unwrap()
        },
    );
    let ((client, traffic, setup), (server, done)) = (client_result, server_result);
    for (k, (conv, ring_bits)) in convs.iter().enumerate() {
        let expected = conv2d(conv, &values[k], &mask, *ring_bits).unwrap();
        let sums = client[k].iter().zip(&server[k]).map(|(c, s)| c.wrapping_add(*s) & ((1 << ring_bits) - 1));
        let wrong = sums.zip(&expected).position(|(got, want)| got != *want & ((1 << ring_bits) - 1));
        assert_eq!((wrong, client[k].len()), (None, expected.len()), "{conv:?}");
        assert!(client[k].iter().chain(&server[k]).all(|v| v >> ring_bits == 0));
    }
    let (mut stated, mut extension) = (TrafficModel::default(), TrafficModel::default());
    cost::add_traffic(&plan, &mut PlannedOts::new(0, 0), &mut stated);
    // The OTs here are ideal: the OTs of the lifts send nothing.
    let mut ots = PlannedOts::new(0, 0);
    plan.uploads.iter().for_each(|upload| ots.client_receives(lift_spec(&plan, upload).n, &mut extension));
    assert_eq!((traffic.sent, traffic.received), (stated.up_bytes(), stated.down_bytes() - extension.down_bytes()));
    let mut keys = TrafficModel::default();
    cost::add_setup_traffic(&[&plan], &mut keys);
    assert_eq!(setup.sent, keys.up_bytes());
    assert_eq!(done, cost::count_work(&plan));
    plan
}

/// Draws a word of `bits` bits.
fn prg_word(prg: &mut Prg, bits: u32) -> u64 {
    prg.next_u64() >> (64 - bits)
}

#[test]
fn every_shape_class_conforms() {
    for case in shapes::classes() {
        check(&[(case, 30)], 1 << 9);
    }
}

#[test]
fn layers_share_an_upload() {
    let side = (13, 13);
    let three_by_three = ConvSpec { pads: [1; 4], ..conv(6, 10, side, 3) };
    assert_eq!(check(&[(conv(6, 12, side, 1), 33), (three_by_three, 28)], 1 << 10).uploads.len(), 1);
    let strided = ConvSpec { stride: (2, 2), ..conv(6, 12, side, 1) };
    assert_eq!(check(&[(three_by_three, 30), (strided, 30)], 1 << 10).uploads.len(), 2);
}

#[test]
fn wide_rings_take_digits() {
    let layer = ConvSpec { pads: [1; 4], ..conv(4, 4, (10, 10), 3) };
    for (ring_bits, size, limbs) in [(4, 1 << 6, 1), (16, 1 << 9, 1), (30, 1 << 9, 1), (40, 1 << 12, 2)] {
        assert_eq!(check(&[(layer, ring_bits)], size).uploads[0].limbs, limbs, "{ring_bits} bits");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn random_shapes_conform(
        spec in shapes::any(),
        ring_bits in 8u32..=40,
    ) {
        check(&[(spec, ring_bits)], 1000);
    }
}

#[test]
fn wrong_input_is_named() {
    let layer = Consumer { conv: conv(2, 2, (4, 4), 3), ring_bits: 30, norm_log2: 6 };
    assert!(matches!(SlotPlan::new(&[]), Err(LinearError::Group { consumer: 0 })));
    let other_tensor = Consumer { conv: conv(3, 2, (4, 4), 3), ..layer };
    assert!(matches!(SlotPlan::new(&[layer, other_tensor]), Err(LinearError::Group { consumer: 1 })));
    let huge = Consumer { conv: conv(1, 1, (80, 80), 70), ..layer };
    assert!(matches!(SlotPlan::new(&[huge]), Err(LinearError::Tile { rows: 70, .. })));
    let invalid = Consumer { conv: ConvSpec { groups: 3, ..layer.conv }, ..layer };
    assert!(matches!(SlotPlan::new(&[invalid]), Err(LinearError::Shape(_))));
    let heavy = Consumer { norm_log2: 60, ..layer };
    assert!(matches!(SlotPlan::new(&[heavy]), Err(LinearError::He(_))));
}

#[test]
fn malformed_messages_are_errors() {
    let plan = SlotPlan::new(&[Consumer { conv: conv(2, 2, (4, 4), 3), ring_bits: 30, norm_log2: 6 }]).unwrap();
    let plan = &plan;
    let keys = plan.keys().len();
    // All zeros are a valid key and ciphertext; all ones are invalid.
    let messages: Vec<(Tag, usize)> = std::iter::once((TAG_KEY, PUBLIC_KEY_BYTES))
        .chain(std::iter::repeat_n((TAG_GALOIS, GALOIS_KEY_BYTES), keys))
        .chain([(TAG_UP, FRESH_BYTES)])
        .collect();
    for damaged in 0..messages.len() {
        let (_, server) = run_sessions(
            3,
            |session, _: Ots| {
                for (i, (tag, len)) in messages[..=damaged].iter().enumerate() {
                    session.channel.send(*tag, &vec![if i == damaged { 0xff } else { 0 }; *len]).unwrap();
                }
                session.channel.flush().unwrap();
            },
            |session, mut ots| {
                let keys = ServerKeys::setup(&[plan], session)?;
                keys.run(plan, &[&[1; 36]], session, &mut ots).map(|_| ())
            },
        );
        assert!(matches!(server, Err(BackendError::Protocol(_))), "message {damaged}");
    }
    let answers: usize = plan.uploads.iter().map(|upload| units(plan, upload).len()).sum();
    let (client, _) = run_sessions(
        3,
        |session, mut ots| {
            let keys = ClientKeys::setup(&[plan], session)?;
            keys.run(plan, &[0; 32], session, &mut ots).map(|_| ())
        },
        |session, _: Ots| {
            let _keys = ServerKeys::setup(&[plan], session);
            // A peer that ends before it has read everything would cause another error, a closed
            // connection.
            for _ in 0..plan.uploads.iter().map(|upload| upload.ciphertexts()).sum() {
                session.channel.recv(TAG_UP, FRESH_BYTES).unwrap();
            }
            session.channel.send(TAG_SEED, &[0; 16]).unwrap();
            // The client receives all answers of a batch before it decodes the first; the number of
            // threads sets the batch size.
            for _ in 0..answers {
                session.channel.send(TAG_DOWN, &vec![0xff; ANSWER_BYTES]).unwrap();
            }
            session.channel.flush().unwrap();
        },
    );
    assert!(matches!(client, Err(BackendError::Protocol(_))));
}
