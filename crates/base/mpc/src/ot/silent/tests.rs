use super::*;
use crate::ot::output::Raw;
use crate::ot::params::{HUGE, LARGE, MEDIUM, SMALL};
use crate::ot::tests::{check_planes_of, check_words_of, conformance};
use crate::run_pair;
use crate::tests::prg;
use tacit_net::{Phase, mem_pair};

type Side = Ot<RotSender, RotReceiver>;

/// Both parties, with a bound on the COTs of one `delta`.
fn bounded_parties(bound: u64) -> (Side, Side) {
    run_pair(
        |ch| setup_bounded(Role::Client, ch, &mut prg(1), bound).unwrap(),
        |ch| setup_bounded(Role::Server, ch, &mut prg(2), bound).unwrap(),
    )
}

fn parties() -> (Side, Side) {
    bounded_parties(COTS_PER_DELTA)
}

/// Draws and checks OTs with the server as receiver.
fn draw_planes(client: &mut Side, server: &mut Side, n: usize, k: usize) {
    let (s, r) = run_pair(|ch| client.sender.planes(ch, n, k).unwrap(), |ch| server.receiver.planes(ch, n, k).unwrap());
    check_planes_of(&s, &r, n, k);
}

fn draw_cots<P: Party>(stock: &mut Stock<P>, ch: &mut Channel, groups: usize) -> Vec<Block> {
    let mut out = Vec::new();
    stock.draw(ch, groups, &Raw, |b| out.extend_from_slice(b)).unwrap();
    out
}

#[test]
fn both_directions_conform() {
    let (mut client, mut server) = parties();
    let (mut a, mut b) = mem_pair();
    conformance(&mut client.sender, &mut server.receiver, &mut a, &mut b);
    conformance(&mut server.sender, &mut client.receiver, &mut b, &mut a);
    assert_eq!((client.sender.params(), server.receiver.params()), (SMALL, SMALL));
}

#[test]
fn raw_cots_are_correlated_and_choices_look_uniform() {
    let (mut client, mut server) = parties();
    let groups = 40_000 / GROUP;
    let (k, m) =
        run_pair(|ch| draw_cots(&mut client.sender.0, ch, groups), |ch| draw_cots(&mut server.receiver.0, ch, groups));
    let delta = client.sender.0.party.delta;
    assert_eq!(delta.lsb(), 1);
    let mut ones = [0u32; 128];
    for (k, m) in k.iter().zip(&m) {
        assert!(k.lsb() == 0 && *m == *k ^ (delta & Block::mask(m.lsb())));
        (0..128).for_each(|i| ones[i] += (m.0 >> i & 1) as u32);
    }
    // Every bit of the receiver's blocks is balanced (5 sigma), the choice included, and neighbours
    // are independent.
    let n = m.len() as f64;
    assert!(ones.iter().all(|&o| (o as f64 - n / 2.0).abs() < 2.5 * n.sqrt()));
    let equal = m.windows(2).filter(|w| w[0].lsb() == w[1].lsb()).count() as f64;
    assert!((equal - n / 2.0).abs() < 2.5 * n.sqrt());
}

#[test]
fn large_demand_upgrades_the_set_and_starts_a_second_extension() {
    let (mut client, mut server) = parties();
    let n = LARGE.outputs() + 100;
    client.sender.reserve(n);
    server.receiver.reserve(n);
    let (s, r) = run_pair(
        |ch| {
            let s = client.sender.planes(ch, n, 1).unwrap();
            assert_eq!(ch.traffic(Phase::Setup).received, 0);
            (s, ch.traffic(Phase::Setup).sent)
        },
        |ch| {
            let r = server.receiver.planes(ch, n, 1).unwrap();
            let traffic = ch.traffic(Phase::Setup);
            assert_eq!((traffic.sent, traffic.rounds), (0, 0));
            r
        },
    );
    check_planes_of(&s.0, &r, n, 1);
    assert_eq!((client.sender.params(), server.receiver.params()), (LARGE, LARGE));
    // Corrections: the bootstrap to the large set, one large extension, and the first trees of the next.
    let per_tree = |p: crate::ot::params::LpnParams| 16 * p.corrections();
    let up = MEDIUM.base().div_ceil(SMALL.leaves()) * per_tree(SMALL)
        + LARGE.base().div_ceil(MEDIUM.leaves()) * per_tree(MEDIUM);
    let expected = (up + (LARGE.trees + LARGE.base().div_ceil(LARGE.leaves()) + 1) * per_tree(LARGE)) as u64;
    assert!(s.1 >= expected && s.1 < expected + 4000, "{} bytes, expected {expected}", s.1);
}

#[test]
fn largest_demand_upgrades_to_the_largest_set() {
    let (mut client, mut server) = parties();
    client.sender.reserve(LARGE.upgrade_at);
    server.receiver.reserve(LARGE.upgrade_at);
    draw_planes(&mut client, &mut server, 3 * HUGE.leaves() + 5, 1);
    assert_eq!((client.sender.params(), server.receiver.params()), (HUGE, HUGE));
}

#[test]
fn middle_set_serves_hundreds_of_thousands_and_repeats() {
    let (mut client, mut server) = parties();
    for _ in 0..3 {
        draw_planes(&mut client, &mut server, 500_000, 2);
        assert_eq!(client.sender.params(), MEDIUM);
    }
}

#[test]
fn setup_sends_the_documented_bytes_in_three_rounds() {
    let party = |role: Role| {
        move |ch: &mut Channel| {
            setup(role, ch, &mut prg(role as u8 + 1)).unwrap();
            ch.total_traffic()
        }
    };
    let (client, server) = run_pair(party(Role::Client), party(Role::Server));
    let payload = SETUP_BYTES as u64;
    // Key, choices, public seed, columns. The hash keys follow from the seed of the code.
    assert_eq!(payload, 434_896);
    for t in [client, server] {
        assert!(t.sent >= payload && t.sent < payload + 200, "{} of {payload}", t.sent);
        assert_eq!(t.rounds, 3);
    }
}

/// After two small extensions each direction bootstraps on its own, in the middle of a draw.
#[test]
fn delta_is_renewed_when_its_cots_are_used_up() {
    let bound = 2 * SMALL.outputs() as u64;
    let (mut client, mut server) = bounded_parties(bound);
    let first = client.sender.0.party.delta;
    let (n, draws) = (100_000, 5);
    let (mut deltas, mut sent, mut received) = (vec![first], Vec::new(), Vec::new());
    for _ in 0..draws {
        let ((s, up), (r, down)) = run_pair(
            |ch| (client.sender.planes(ch, n, 2).unwrap(), ch.total_traffic()),
            |ch| (server.receiver.planes(ch, n, 2).unwrap(), ch.total_traffic()),
        );
        check_planes_of(&s, &r, n, 2);
        deltas.push(client.sender.0.party.delta);
        sent.push(up);
        received.push(down);
    }
    // 1.87 extensions serve 338,944 OTs: only the fourth draw needs a new delta.
    let renewed: Vec<bool> = deltas.windows(2).map(|w| w[0] != w[1]).collect();
    assert_eq!(renewed, [false, false, false, true, false]);
    // From the OT receiver: key and columns. From the OT sender: choices and seed, beside its corrections.
    let columns = iknp::BASE_OTS * BOOTSTRAP.next_multiple_of(64) / 8;
    for (i, (up, down)) in sent.iter().zip(&received).enumerate() {
        let (payload, rounds) = if renewed[i] { ((32 + columns) as u64, 2) } else { (0, 0) };
        assert!(down.sent >= payload && down.sent < payload + 100, "draw {i}: {} of {payload}", down.sent);
        assert_eq!((up.rounds, down.rounds), (rounds, rounds), "draw {i}");
    }
    // The other direction has its own bound.
    let (s, r) = run_pair(|ch| server.sender.words(ch, n).unwrap(), |ch| client.receiver.words(ch, n).unwrap());
    check_words_of(&s, &r, n);
}

/// Both directions may renew their `delta` anywhere in a gate's offline phase.
#[test]
fn gates_work_across_a_renewed_delta() {
    use crate::gate::{ClientGate, GateSpec, Leaves, ServerGate, Widening};
    use crate::{Ots, Session};
    let bound = SMALL.outputs() as u64;
    let (n, width) = (4000, 25);
    let spec = GateSpec::widening(n, width, 0, Leaves::Masked(3), 37, Widening::Behind);
    let values: Vec<u64> = (0..n as u64).collect();
    let party = |role: Role| {
        let (spec, values) = (&spec, values.clone());
        move |ch: &mut Channel| {
            let mut prg = prg(role as u8 + 1);
            let mut ots = Ots::new(setup_bounded(role, ch, &mut prg, bound).unwrap());
            let mut session = Session { role, channel: ch, prg: &mut prg };
            let (tested, zeros) = ([&values[..]], vec![0; n]);
            let other = [&zeros[..]];
            for _ in 0..5 {
                let (s, y) = (&mut session, tested[0]);
                match role {
                    Role::Client => {
                        let gate = ClientGate::offline(spec, y, &tested, &other, s, &mut ots).unwrap();
                        gate.online(spec, y, &tested, &[], &other, s).unwrap();
                    }
                    Role::Server => {
                        let gate = ServerGate::offline(spec, s, &mut ots).unwrap();
                        let share = gate.online(spec, &zeros, &other, &[], s).unwrap();
                        assert_eq!(share, tested);
                    }
                }
            }
            session.channel.flush().unwrap();
        }
    };
    run_pair(party(Role::Client), party(Role::Server));
}

#[test]
fn threads_give_the_same_outputs() {
    let draw = |threads: usize| {
        let (mut client, mut server) = parties();
        let pool = || rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let n = 300_001;
        run_pair(
            |ch| pool().install(|| client.sender.planes(ch, n, 3).unwrap()),
            |ch| pool().install(|| server.receiver.planes(ch, n, 3).unwrap()),
        )
    };
    assert!(draw(1) == draw(2));
}

#[test]
fn wrong_lengths_are_errors() {
    let (_, mut server) = parties();
    // The peer hangs up at the wrong length, so sending may fail, too.
    for length in [0, 15, 17, 16 * 6 * 10_000] {
        let (result, ()) =
            run_pair(|ch| server.receiver.planes(ch, 100, 1), |ch| drop(ch.send(CORRECTIONS, &vec![0; length])));
        assert!(matches!(result, Err(MpcError::Net(_))));
    }
    let (result, ()) = run_pair(|ch| server.receiver.words(ch, 100), |_| ());
    assert!(matches!(result, Err(MpcError::Net(_))));
}
