//! Requirements of every pair of OT parties, tested on the ideal and on the real functionality.

use super::*;
use crate::run_pair;

pub(super) fn check_planes_of(s: &SenderPlanes, r: &ReceiverPlanes, n: usize, k: usize) {
    assert_eq!((s.m0.len(), s.m1.len(), r.m.len(), r.choice.len()), (k, k, k, n));
    for j in 0..k {
        assert_eq!((s.m0[j].len(), s.m1[j].len(), r.m[j].len()), (n, n, n));
        let expected = s.m0[j].xor(&s.m0[j].xor(&s.m1[j]).and(&r.choice));
        assert!(expected == r.m[j], "plane {j} of {k}, {n} OTs");
        if n >= 1000 {
            let apart = s.m0[j].xor(&s.m1[j]).count_ones() as f64 / n as f64;
            assert!((apart - 0.5).abs() < 4.0 / (n as f64).sqrt(), "strings differ in {apart}");
        }
    }
    if n >= 1000 {
        let ones = r.choice.count_ones() as f64 / n as f64;
        assert!((ones - 0.5).abs() < 4.0 / (n as f64).sqrt(), "choices are 1 in {ones}");
    }
}

pub(super) fn check_words_of(s: &SenderWords, r: &ReceiverWords, n: usize) {
    assert_eq!((s.m0.len(), s.m1.len(), r.choice.len(), r.m.len()), (n, n, n, n));
    for i in 0..n {
        let (chosen, unchosen) = if r.choice.get(i) { (s.m1[i], s.m0[i]) } else { (s.m0[i], s.m1[i]) };
        assert!(chosen == r.m[i] && unchosen != r.m[i], "OT {i} of {n}");
    }
}

/// Odd sizes, all kinds of output, interleaved.
pub(super) fn conformance<S, R>(sender: &mut S, receiver: &mut R, ch_s: &mut Channel, ch_r: &mut Channel)
where
    S: RandomOtSender + Send,
    R: RandomOtReceiver,
{
    for (n, k) in [(0, 3), (1, 1), (63, 2), (64, 8), (65, 9), (1000, 16), (70_001, 3), (5, 32), (40, 0)] {
        let (s, r) = std::thread::scope(|t| {
            let s = t.spawn(|| (sender.planes(ch_s, n, k), sender.words(ch_s, n)));
            let r = (receiver.planes(ch_r, n, k), receiver.words(ch_r, n));
            (s.join().unwrap(), r)
        });
        check_planes_of(&s.0.unwrap(), &r.0.unwrap(), n, k);
        check_words_of(&s.1.unwrap(), &r.1.unwrap(), n);
    }
    assert!(matches!(sender.planes(ch_s, 1, 33), Err(MpcError::OutOfRange { got: 33, .. })));
    assert!(matches!(receiver.planes(ch_r, 1, 33), Err(MpcError::OutOfRange { got: 33, .. })));
}

#[test]
fn ideal_functionality_conforms() {
    let (mut s, mut r) = ideal::pair(1);
    let (mut a, mut b) = tacit_net::mem_pair();
    conformance(&mut s, &mut r, &mut a, &mut b);
    let tacit_net::Sides { mut client, mut server } = ideal::ots(7);
    let (c, s) = run_pair(
        |ch| (client.sender.words(ch, 9).unwrap(), client.receiver.words(ch, 5).unwrap()),
        |ch| (server.receiver.words(ch, 9).unwrap(), server.sender.words(ch, 5).unwrap()),
    );
    check_words_of(&c.0, &s.0, 9);
    check_words_of(&s.1, &c.1, 5);
}
