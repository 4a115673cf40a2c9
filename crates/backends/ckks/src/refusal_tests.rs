//! Answers that a client refuses, without the server learning which ones.

use tacit_graph::Model;
use tacit_he::ckks::Complex;
use tacit_mpc::run_pair;
use tacit_net::Channel;

use super::networks_for_tests::{activated, relu};
use super::public::Public;
use super::tests::{assert_near, assert_words, both, serve, set_up};
use tacit_backend_api::{BackendError, ConnectionResources, Material};

/// Options that lower a network on its samples' ranges, whatever range the model accepts.
const AS_CALIBRATED: &str = "domain=calibrated,agreement=0";

/// A ReLU between two dense layers, calibrated on a fortieth of the range that it accepts.
fn narrow() -> Model {
    activated([0.1, 4.0], relu)
}

/// A refused answer is an error at the client alone: the connection stays usable, and no byte
/// reveals the refusal.
#[test]
fn client_refuses_out_of_range_answers_silently() {
    let (server, client) = both(&narrow(), AS_CALIBRATED);
    let [wild, tame] = [vec![4.0; 8], vec![0.05; 8]];
    let inputs = [&tame, &wild, &wild, &tame];
    let resources = ConnectionResources::default();
    let ask = |channel: &mut Channel| {
        let mut side = set_up(&client, &resources, channel)?;
        let query = |x: &&Vec<f32>| {
            let sent_before = channel.total_traffic().sent;
            let answer = side.online(channel, Material::nothing(), x);
            (answer, channel.total_traffic().sent - sent_before)
        };
        Ok::<_, BackendError>(inputs.iter().map(query).collect::<Vec<_>>())
    };
    let (client_result, served) = run_pair(ask, |channel| serve(&server, &resources, channel, inputs.len()));
    served.expect("the server sees four inputs like any others");
    let answers = client_result.unwrap();
    assert!(answers.iter().all(|(_, bytes)| *bytes == answers[0].1));
    for (k, (answer, _)) in answers.iter().enumerate() {
        match answer {
            Ok(outputs) if k % 3 == 0 => assert_near(&server, &tame, outputs),
            Err(BackendError::Answer { what }) if k % 3 > 0 => {
                assert_words(what, &["recalibrate", "-O margin", "cheetah"]);
            }
            answer => panic!("input {k}: {answer:?}"),
        }
    }
    // The model in the clear agrees.
    let refused = |x: &[f32]| server.check_answer(&server.simulate(x).unwrap()).is_err();
    assert!(refused(&wild));
    assert!(!refused(&tame));
}

#[test]
fn refuses_invalid_answer_slots() {
    let public = Public::read(both(&narrow(), AS_CALIBRATED).0.public_bytes()).unwrap();
    let unit = public.output.unit;
    for (value, is_taken) in [
        (0.0, true),
        (unit, true),
        (-unit - public.error, true),
        (1.5 * unit, false),
        (f64::NAN, false),
        (f64::NEG_INFINITY, false),
    ] {
        assert_eq!(public.check_answer(&[0.0, value, 0.0]).is_ok(), is_taken, "{value}");
    }
    // Slots that no valid result has: a value between its elements, a copy that differs, an
    // imaginary part.
    let (period, n) = (public.output.period, 4 * public.output.period);
    let slots: Vec<Complex> = (0..n).map(|i| Complex::from([0.5, -0.25, 1.0, 0.0][i % period])).collect();
    assert_eq!(period, 4);
    let answer = public.answer(&slots).unwrap();
    assert!(answer.iter().zip([0.5, -0.25, 1.0]).all(|(a, w)| (a - w * unit).abs() <= public.error));
    for (slot, value) in [
        (3, Complex::from(0.5)),
        (4, Complex::from(-0.5)),
        (9, Complex { re: -0.25, im: 0.5 }),
        (7, Complex::from(f64::NAN)),
    ] {
        let mut damaged = slots.clone();
        damaged[slot] = value;
        assert!(matches!(public.answer(&damaged), Err(BackendError::Answer { .. })), "slot {slot}");
    }
}
