//! Gates between two parties against the plain computation, with bytes and exchanges counted.

use proptest::prelude::*;
use tacit_net::{Phase, Sides};

use super::*;
use crate::session::run_sessions;
use crate::tests::{add, assert_sent, signed, subtract};

/// The online phase of a batch.
struct Run {
    results: Vec<Vec<u64>>,
    sent: Sides<u64>,
    server_rounds: u64,
}

/// The shares of client and server.
fn split(values: &[u64], width: u32, seed: u64) -> (Vec<u64>, Vec<u64>) {
    let mut state = seed;
    let client = values.iter().map(|_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 13) & low_mask(width)
    });
    let client: Vec<u64> = client.collect();
    let server = subtract(values, &client, width);
    (client, server)
}

/// Writes material and reads it back.
fn store<T>(
    size: usize,
    write: impl FnOnce(&mut Writer),
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, MpcError>,
) -> T {
    let mut bytes = Writer::default();
    write(&mut bytes);
    let bytes = bytes.finish();
    assert_eq!(bytes.len(), size);
    let mut reader = Reader::new(&bytes);
    let material = read(&mut reader).expect("material");
    reader.finish().expect("material is read whole");
    material
}

fn run(spec: &GateSpec, width: u32, tested: &[u64], values: &[Vec<u64>], bases: &[Vec<u64>], seed: u64) -> Run {
    let widths = spec.mux.widths.clone();
    let share = |lists: &[Vec<u64>], salt: u64| -> Vec<(Vec<u64>, Vec<u64>)> {
        lists.iter().zip(&widths).enumerate().map(|(i, (v, &w))| split(v, w, seed ^ (salt + i as u64))).collect()
    };
    let (tested_c, tested_s) = split(tested, width, seed);
    let widening = spec.mux.wrap.is_some() || spec.grow.is_some();
    let shared = match spec.mux.constant {
        Some(value) => vec![(vec![0; tested.len()], vec![value; tested.len()])],
        None if widening => vec![(tested_c.clone(), tested_s.clone())],
        None => share(values, 77),
    };
    let (values_c, values_s): (Vec<_>, Vec<_>) = shared.into_iter().unzip();
    let (bases_c, bases_s): (Vec<_>, Vec<_>) = share(bases, 99).into_iter().unzip();
    // A value widened after the gate ends in a wider ring.
    let ends: Vec<u32> = spec.grow.map_or_else(|| widths.clone(), |grow| vec![grow.width + grow.extra]);
    let targets: Vec<Vec<u64>> = ends.iter().map(|&w| split(tested, w, seed ^ 0xabc).0).collect();
    let (client, server) = run_sessions(
        seed,
        |s, mut ots| {
            s.channel.set_phase(Phase::Offline);
            let gate = ClientGate::offline(spec, &tested_c, &slices(&values_c), &slices(&targets), s, &mut ots);
            let gate = gate.expect("client offline");
            let gate = store(spec.cost().client_material, |out| gate.write(out), |from| ClientGate::read(spec, from));
            s.channel.set_phase(Phase::Online);
            let [values, bases, targets] = [&values_c, &bases_c, &targets].map(|lists| slices(lists));
            gate.online(spec, &tested_c, &values, &bases, &targets, s).expect("client online");
            s.channel.flush().expect("flush");
            s.channel.traffic(Phase::Online)
        },
        |s, mut ots| {
            s.channel.set_phase(Phase::Offline);
            let gate = ServerGate::offline(spec, s, &mut ots).expect("server offline");
            let gate = store(spec.cost().server_material, |out| gate.write(out), |from| ServerGate::read(spec, from));
            s.channel.set_phase(Phase::Online);
            let shares = gate.online(spec, &tested_s, &slices(&values_s), &slices(&bases_s), s).expect("server online");
            (shares, s.channel.traffic(Phase::Online))
        },
    );
    let results = server.0.iter().zip(&targets).zip(&ends).map(|((s, c), &w)| add(s, c, w)).collect();
    let sent = Sides { client: client.sent, server: server.1.sent };
    Run { results, sent, server_rounds: server.1.rounds }
}

impl Run {
    fn assert_cost(&self, cost: &GateCost) {
        assert_sent(self.sent.client, cost.online_up, 25);
        assert_sent(self.sent.server, cost.online_down, 25);
    }
}

/// Signed values in a ring of `width` bits.
fn in_ring(values: &[i64], width: u32) -> Vec<u64> {
    values.iter().map(|&v| v as u64 & low_mask(width)).collect()
}

/// What the ReLU makes of `plain`.
fn relu(spec: &GateSpec, width: u32, plain: &[i64], seed: u64) -> Vec<u64> {
    let tested = in_ring(plain, width);
    run(spec, width, &tested, std::slice::from_ref(&tested), &[], seed).results.remove(0)
}

/// 0 to 3 stand for direct leaves of 1 to 4 bits, 4 to 7 for masked ones, and others for digits by weight.
const KINDS: u32 = 10;

fn leaves(kind: u32) -> Leaves {
    match kind {
        0..4 => Leaves::Direct(kind + 1),
        4..8 => Leaves::Masked(kind - 3),
        _ => Leaves::Weighed([2, 6][kind as usize - 8]),
    }
}

fn place(late: bool) -> Widening {
    if late { Widening::Behind } else { Widening::OnTheWay }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn relu_widens_exactly(n in 0usize..150, width in 4u32..30, extra in 0u32..14, kind in 0u32..KINDS, late in any::<bool>(), seed in any::<u64>()) {
        let bound = 1i64 << (width - 2);
        let plain: Vec<i64> = (0..n as i64).map(|i| match i {
            0 => bound - 1,
            1 => 1 - bound,
            2 => 0,
            3 => -1,
            _ => (i.wrapping_mul(seed as i64 | 1) >> 7) % bound,
        }).collect();
        let spec = GateSpec::widening(n, width, 0, leaves(kind), width + extra, place(late));
        let expected: Vec<u64> = plain.iter().map(|&v| v.max(0) as u64).collect();
        prop_assert_eq!(relu(&spec, width, &plain, seed >> 8), expected);
    }

    #[test]
    fn maximum_and_its_position_follow_the_sign(n in 1usize..100, width in 4u32..26, kind in 0u32..KINDS, seed in any::<u64>()) {
        let bound = 1i64 << (width - 2);
        let value = |i: usize, salt: u64| ((i as u64 + 1).wrapping_mul(seed ^ salt) as i64 >> 9) % bound;
        let (a, b): (Vec<i64>, Vec<i64>) = (0..n).map(|i| (value(i, 0), if i % 5 == 0 { value(i, 0) } else { value(i, 7) })).unzip();
        let difference: Vec<u64> = a.iter().zip(&b).map(|(a, b)| (a - b) as u64 & low_mask(width)).collect();
        let spec = GateSpec::new(n, width, 0, leaves(kind), vec![width, 20]);
        let lists = [difference.clone(), (0..n as u64).collect()];
        // The tested value is shared anew, so the multiplied difference need not have the same
        // shares.
        let actual = run(&spec, width, &difference, &lists, &[in_ring(&b, width), vec![3; n]], seed >> 8);
        for i in 0..n {
            prop_assert_eq!(signed(actual.results[0][i], width), a[i].max(b[i]));
            prop_assert_eq!(actual.results[1][i], if a[i] >= b[i] { 3 + i as u64 } else { 3 });
        }
    }

    #[test]
    fn dropped_bits_only_underestimate(width in 12u32..26, drop in 1u32..8, seed in any::<u64>()) {
        let bound = 1i64 << (width - 2);
        let plain: Vec<i64> = (-200i64..200).map(|i| if i % 3 == 0 { i } else { (i.wrapping_mul(seed as i64 | 1) >> 5) % bound }).collect();
        let spec = GateSpec::widening(plain.len(), width, drop, Leaves::Masked(3), width + 5, place(seed % 2 == 0));
        for (&v, &z) in plain.iter().zip(&relu(&spec, width, &plain, seed >> 8)) {
            let may_vanish = v >= 0 && v < 1 << drop;
            prop_assert!(z == v.max(0) as u64 || (may_vanish && z == 0), "{} became {}", v, z);
        }
    }
}

#[test]
fn subtracting_is_exact_for_all_shares_of_small_rings() {
    for kind in 0..KINDS {
        let (width, result_width) = (4, 7);
        let plain: Vec<i64> = (0..4000).map(|i| i % 16 - 8).collect();
        let bases: Vec<u64> = (0..4000).map(|i| i & low_mask(result_width)).collect();
        let spec = GateSpec::subtracting(plain.len(), width, leaves(kind), result_width);
        let actual = run(&spec, width, &in_ring(&plain, width), &[], std::slice::from_ref(&bases), 5);
        let expected =
            plain.iter().zip(&bases).map(|(&y, b)| b.wrapping_sub(u64::from(y >= 0)) & low_mask(result_width));
        assert_eq!(actual.results[0], expected.collect::<Vec<u64>>(), "{:?}", leaves(kind));
        let (cost, relu_cost) = (spec.cost(), GateSpec::new(4000, width, 0, leaves(kind), vec![result_width]).cost());
        assert_eq!((cost.online_up, cost.online_down), (relu_cost.online_up, relu_cost.online_down - 4000 * 7 / 8));
        assert_eq!((cost.client_rots, cost.server_rots), (relu_cost.client_rots, relu_cost.server_rots - 4000));
        actual.assert_cost(&cost);
    }
}

/// All values with all shares of the client, at both stages of widening and with all kinds of
/// leaves.
#[test]
fn relu_is_exact_for_all_shares_of_small_rings() {
    for (width, extra, kind) in (0..KINDS).flat_map(|kind| [(4u32, 1u32, kind), (4, 3, kind), (5, 2, kind)]) {
        let bound = 1i64 << (width - 2);
        let plain: Vec<i64> = (0..4000).map(|i| i % (2 * bound - 1) - (bound - 1)).collect();
        let (shares, _) = split(&in_ring(&plain, width), width, 5);
        let met: std::collections::HashSet<(i64, u64)> = plain.iter().copied().zip(shares).collect();
        assert_eq!(met.len() as i64, (2 * bound - 1) << width);
        let expected: Vec<u64> = plain.iter().map(|&v| v.max(0) as u64).collect();
        for late in [false, true] {
            let spec = GateSpec::widening(plain.len(), width, 0, leaves(kind), width + extra, place(late));
            assert_eq!(relu(&spec, width, &plain, 5), expected, "{width} + {extra} bits, {:?}", leaves(kind));
        }
    }
}

#[test]
fn online_bytes_are_as_stated() {
    let widenings = [None, Some(Widening::OnTheWay), Some(Widening::Behind)];
    for (kind, widening) in (0..KINDS).flat_map(|kind| widenings.map(|widening| (kind, widening))) {
        let (n, width) = (512, 25);
        let spec = match widening {
            Some(place) => GateSpec::widening(n, width, 0, leaves(kind), 37, place),
            None => GateSpec::new(n, width, 0, leaves(kind), vec![width]),
        };
        let tested = vec![5; n];
        let actual = run(&spec, width, &tested, std::slice::from_ref(&tested), &[], 3);
        let cost = spec.cost();
        assert_eq!(actual.server_rounds as usize, cost.exchanges);
        actual.assert_cost(&cost);
    }
}

/// Bits per gate, as the documentation states them: 24 compared bits, 12 digits or 8, and 11 bits by weight.
#[test]
fn bits_per_gate_are_as_documented() {
    let max = GateSpec::new(64, 25, 0, Leaves::Direct(2), vec![25]).cost();
    assert_eq!(max.online_down * 8 / 64, 69 + 27 + 1 + 25);
    assert_eq!(max.online_up * 8 / 64, 27 + 1 + 25);
    assert_eq!(max.offline_up * 8 / 64, 24 + 6 + 25);
    assert_eq!((max.client_rots / 64, max.server_rots / 64), (24 + 11 + 1, 12));
    let relu = GateSpec::widening(64, 25, 0, Leaves::Direct(2), 37, Widening::OnTheWay).cost();
    assert_eq!(relu.online_down * 8 / 64, 64 + 27 + 1 + 37 + 12);
    assert_eq!(relu.online_up * 8 / 64, 27 + 1 + 37);
    assert_eq!(relu.exchanges, 3);
    let behind = GateSpec::widening(64, 25, 0, Leaves::Direct(2), 37, Widening::Behind).cost();
    // 23 compared bits in 12 digits, the highest of one bit, and a ring of 24 bits that grows by 13.
    assert_eq!(behind.online_down * 8 / 64, 64 + 27 + 1 + 24 + 1);
    assert_eq!(behind.online_up * 8 / 64, 27 + 1 + 24 + 13);
    assert_eq!(behind.offline_up * 8 / 64, 23 + 6 + 24 + 13);
    assert_eq!((behind.exchanges, behind.server_rots / 64), (4, 13));
    let masked = GateSpec::new(64, 25, 0, Leaves::Masked(2), vec![25]).cost();
    assert_eq!(masked.online_down * 8 / 64, 24 + 27 + 1 + 25);
    assert_eq!(masked.offline_up * 8 / 64, 59 + 6 + 25);
    assert_eq!((masked.client_rots / 64, masked.server_rots / 64), (11 + 1, 24 + 11 + 1));
    let masked = GateSpec::new(64, 25, 0, Leaves::Masked(3), vec![25]).cost();
    // Digits in groups of 3, 3 and 2, and those in a group of 3.
    assert_eq!(masked.online_down * 8 / 64, 24 + (4 + 5 + 3 + 4) + 1 + 25);
    assert_eq!((masked.offline_up * 8 / 64, masked.offline_down * 8 / 64), (124 + 11 + 25, 11));
    assert_eq!(masked.exchanges, 2);
    assert_eq!((masked.client_rots / 64, masked.server_rots / 64), (7 + 1, 24 + 7 + 1));
    let weighed = GateSpec::new(64, 12, 0, Leaves::Weighed(6), vec![12]).cost();
    assert_eq!((weighed.online_up * 8 / 64, weighed.online_down * 8 / 64), (6 + 1 + 12, 11 + 6 + 1 + 12));
    assert_eq!((weighed.offline_up * 8 / 64, weighed.offline_down * 8 / 64), (49 + 3 + 12, 3));
    assert_eq!((weighed.client_rots / 64, weighed.server_rots / 64), (3 + 1, 11 + 3 + 1));
    let weighed = GateSpec::new(64, 11, 0, Leaves::Weighed(6), vec![11]).cost();
    assert_eq!(weighed.online_down * 8 / 64, 10 + 4 + 1 + 11);
    assert_eq!((weighed.offline_up * 8 / 64, weighed.offline_down * 8 / 64), (64 + 11, 0));
}

#[test]
fn truncated_material_is_an_error() {
    let spec = GateSpec::widening(10, 20, 0, Leaves::Masked(3), 32, Widening::OnTheWay);
    let bytes = vec![0u8; 10_000];
    let mut reader = Reader::new(&bytes);
    assert!(ServerGate::read(&spec, &mut reader).is_ok());
    assert!(reader.finish().is_err());
    for cut in [0, 1, 7, 100] {
        assert!(ServerGate::read(&spec, &mut Reader::new(&bytes[..cut])).is_err());
        assert!(ClientGate::read(&spec, &mut Reader::new(&bytes[..cut])).is_err());
    }
}

#[test]
fn strings_that_one_word_cannot_mask_are_refused() {
    let y = [1, 2, 3];
    for spec in [
        GateSpec::widening(3, 15, 0, Leaves::Masked(3), 40, Widening::OnTheWay),
        GateSpec::new(3, 25, 0, Leaves::Masked(3), vec![25, 40]),
    ] {
        let values = vec![&y[..]; spec.mux.widths.len()];
        let (client, server) = run_sessions(
            5,
            |s, mut ots| ClientGate::offline(&spec, &y, &values, &[], s, &mut ots).err(),
            |s, mut ots| ServerGate::offline(&spec, s, &mut ots).err(),
        );
        for error in [client, server] {
            assert!(matches!(error, Some(MpcError::OutOfRange { got: 65, .. })), "{spec:?}: {error:?}");
        }
    }
}
