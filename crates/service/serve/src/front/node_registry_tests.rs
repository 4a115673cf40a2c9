use super::*;
use std::collections::BTreeMap as Map;

const LEASE: Duration = Duration::from_secs(5);
const ALICE: ClientId = ClientId([1; 32]);
const BOB: ClientId = ClientId([2; 32]);

struct Clock(Instant);

impl Clock {
    fn after(&self, seconds: f64) -> Instant {
        self.0 + Duration::from_secs_f64(seconds)
    }
}

fn clock() -> Clock {
    Clock(Instant::now())
}

fn registry() -> NodeRegistry {
    NodeRegistry::new(LEASE, None, 2)
}

fn report() -> Report {
    Report { models: Map::from([("net".into(), vec!["cheetah".into()])]), ..Report::default() }
}

fn with_stock(client: ClientId, count: u64) -> Report {
    Report { stock: Map::from([(client, count)]), ..report() }
}

fn answered(client: ClientId, count: u64) -> Report {
    Report { answered: Map::from([(client, count)]), ..report() }
}

fn add_two_nodes(registry: &mut NodeRegistry, a: Report, now: Instant) -> [u64; 2] {
    let runs = ["a", "b"].map(|name| registry.join(name, &format!("{name}:1"), now).unwrap());
    registry.renew("a", runs[0], a, now, 0).unwrap();
    registry.renew("b", runs[1], report(), now, 0).unwrap();
    runs
}

fn node_of(registry: &mut NodeRegistry, client: ClientId, now: Instant) -> String {
    registry.place(client, "net", now, 0).unwrap().node
}

#[test]
fn clients_of_dead_node_move_only_when_its_lease_is_over() {
    let (mut registry, t) = (registry(), clock());
    let runs = add_two_nodes(&mut registry, with_stock(ALICE, 3), t.after(0.0));
    assert_eq!(node_of(&mut registry, ALICE, t.after(0.1)), "a");
    registry.renew("b", runs[1], report(), t.after(4.9), 0).unwrap();
    assert_eq!(node_of(&mut registry, ALICE, t.after(4.9)), "a");
    let ticket = registry.place(ALICE, "net", t.after(5.0), 0).unwrap();
    assert_eq!((&*ticket.node, &*ticket.address), ("b", "b:1"));
    let loss = &registry.losses[0];
    assert_eq!((&*loss.node, loss.clients, loss.stock), ("a", 1, 3));
    let refused = registry.renew("a", runs[0], report(), t.after(5.1), 0).unwrap_err();
    assert!(refused.reason.contains("no lease in this run"));
    assert!(refused.retry_after.is_none());
    assert!(registry.join("a", "a:1", t.after(5.2)).unwrap() > runs[1]);
    assert_eq!(node_of(&mut registry, ALICE, t.after(5.3)), "b");
}

#[test]
fn ended_node_is_gone_at_once_and_leaving_node_keeps_its_clients() {
    let (mut registry, t) = (registry(), clock());
    let runs = add_two_nodes(&mut registry, with_stock(ALICE, 1), t.after(0.0));
    assert_eq!(node_of(&mut registry, ALICE, t.after(0.0)), "a");
    registry.leave("a", runs[0] + 7, t.after(0.1));
    assert!(!registry.nodes["a"].leaving, "another run");
    registry.leave("a", runs[0], t.after(0.1));
    assert_eq!(node_of(&mut registry, ALICE, t.after(0.2)), "a");
    assert!((9..29).all(|n| node_of(&mut registry, ClientId::numbered(n), t.after(0.2)) == "b"));
    let refused = registry.join("a", "a:2", t.after(0.3)).unwrap_err();
    assert!(refused.reason.contains("still holds its lease"));
    assert!(refused.retry_after <= Some(LEASE));
    registry.end("a", runs[0] + 7, t.after(0.3));
    assert!(registry.nodes.contains_key("a"), "another run");
    registry.end("a", runs[0], t.after(0.3));
    assert_eq!(node_of(&mut registry, ALICE, t.after(0.4)), "b");
}

#[test]
fn ticket_is_admitted_once_its_node_applies_the_list() {
    let (mut registry, t) = (registry(), clock());
    let run = registry.join("a", "a:1", t.after(0.0)).unwrap();
    registry.renew("a", run, report(), t.after(0.0), 0).unwrap();
    let ticket = registry.place(ALICE, "net", t.after(0.1), 0).unwrap();
    assert!(!registry.is_admitted(&ticket));
    let granted = registry.renew("a", run, report(), t.after(0.2), 0).unwrap();
    assert_eq!(granted, Granted { clients: Some(vec![ALICE]), version: ticket.version });
    let goes_by_it = Report { admitted: granted.version, ..report() };
    let granted = registry.renew("a", run, goes_by_it, t.after(0.3), 0).unwrap();
    assert_eq!((granted.clients, registry.is_admitted(&ticket)), (None, true), "nothing new, so no list");
    registry.end("a", run, t.after(0.4));
    assert!(!registry.is_admitted(&ticket));
    let refused = registry.place(ALICE, "net", t.after(0.5), 0).unwrap_err();
    assert!(refused.reason.contains("no node serves net"));
    assert!(refused.retry_after == Some(LEASE));
}

#[test]
fn quotas_hold_over_all_nodes() {
    let (mut registry, t) = (NodeRegistry::new(LEASE, Some(10), 2), clock());
    let runs = add_two_nodes(&mut registry, with_stock(ALICE, 1), t.after(0.0));
    registry.place(ALICE, "net", t.after(0.0), 1).unwrap();
    registry.renew("a", runs[0], answered(ALICE, 6), t.after(1.0), 1).unwrap();
    registry.renew("a", runs[0], answered(ALICE, 7), t.after(2.0), 1).unwrap();
    assert_eq!(registry.quotas.remaining(ALICE, 1), Ok(Some(3)));
    assert_eq!(registry.quotas.remaining(BOB, 1), Ok(Some(10)));
    registry.end("a", runs[0], t.after(3.0));
    let second_run = registry.join("a", "a:1", t.after(3.1)).unwrap();
    registry.renew("a", second_run, answered(ALICE, 3), t.after(3.2), 1).unwrap();
    assert!(registry.place(ALICE, "net", t.after(3.3), 1).unwrap_err().reason.contains("used up"));
    assert!(registry.place(ALICE, "net", t.after(3.4), 0).is_err(), "a clock that goes back");
    registry.renew("a", second_run, answered(ALICE, 4), t.after(3.5), 2).unwrap();
    assert_eq!(registry.quotas.remaining(ALICE, 2), Ok(Some(9)), "the next day");
}

#[test]
fn restarted_front_goes_on_counting() {
    let (mut registry, t) = (NodeRegistry::new(LEASE, Some(10), 2), clock());
    let runs = add_two_nodes(&mut registry, report(), t.after(0.0));
    registry.renew("a", runs[0], answered(ALICE, 6), t.after(1.0), 3).unwrap();
    registry.renew("a", runs[0], answered(ALICE, 7), t.after(2.0), 3).unwrap();
    registry.renew("b", runs[1], answered(BOB, 10), t.after(2.0), 3).unwrap();
    let (day, counts) = registry.unkept_counts();
    assert_eq!((day, &*counts), (3, &[(ALICE, 7), (BOB, 10)][..]));
    registry.mark_counts_kept();
    registry.renew("a", runs[0], answered(ALICE, 7), t.after(3.0), 3).unwrap();
    assert_eq!(registry.unkept_counts(), (3, vec![]), "nothing new");
    let stored = StoredCounts { day, used: counts.into_iter().collect() };
    let mut registry = NodeRegistry::new(LEASE, Some(10), 2).with_counts(stored);
    let runs = add_two_nodes(&mut registry, answered(ALICE, 2), t.after(9.0));
    assert_eq!(registry.quotas.remaining(ALICE, 3), Ok(Some(1)), "its nodes have begun anew, too");
    assert!(registry.place(BOB, "net", t.after(9.1), 3).unwrap_err().reason.contains("used up"));
    registry.renew("a", runs[0], answered(ALICE, 4), t.after(9.2), 4).unwrap();
    assert_eq!(registry.unkept_counts(), (4, vec![(ALICE, 2)]), "the next day");
    let mut free = NodeRegistry::new(LEASE, None, 2);
    let runs = add_two_nodes(&mut free, report(), t.after(0.0));
    free.renew("a", runs[0], answered(ALICE, 6), t.after(1.0), 3).unwrap();
    assert!(free.unkept_counts().1.is_empty(), "there is no quota");
}

#[test]
fn clients_with_large_key_sets_stay_at_few_nodes_and_missing_models_are_refused() {
    let (mut registry, t) = (NodeRegistry::new(LEASE, None, 1), clock());
    let keyed = Report { models: Map::from([("net".into(), vec!["ckks".into()])]), ..Report::default() };
    let runs: Vec<u64> = (0..8).map(|n| registry.join(&format!("n{n}"), "x:1", t.after(0.0)).unwrap()).collect();
    for (n, run) in runs.iter().enumerate() {
        registry.renew(&format!("n{n}"), *run, keyed.clone(), t.after(0.0), 0).unwrap();
    }
    let first = node_of(&mut registry, ALICE, t.after(0.1));
    // The client stays with this node, however idle others are.
    let (home, run) =
        runs.iter().enumerate().map(|(n, run)| (format!("n{n}"), *run)).find(|(n, _)| *n == first).unwrap();
    registry.end(&home, run, t.after(0.2));
    let run = registry.join(&home, "x:2", t.after(0.3)).unwrap();
    let busy = Report { waiting_s: 100.0, ..keyed };
    registry.renew(&home, run, busy, t.after(0.3), 0).unwrap();
    assert_eq!(node_of(&mut registry, ALICE, t.after(0.4)), first);
    assert!(registry.place(ALICE, "other", t.after(0.5), 0).unwrap_err().reason.contains("does not serve other"));
}

/// A simulated node: it serves the clients of the last answer until its own count of the lease
/// ends.
struct Running {
    run: u64,
    own_end: f64,
    admits: Vec<ClientId>,
    version: u64,
}

/// A registry and nodes on a network that loses messages, delays them and splits.
struct World {
    random: u64,
    registry: NodeRegistry,
    clock: Clock,
    now: f64,
    running: Map<&'static str, Running>,
    cut: BTreeSet<&'static str>,
}

impl World {
    fn random_below(&mut self, bound: u64) -> u64 {
        // SplitMix64, so that every run has the same histories.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn advance(&mut self, seconds: f64) {
        self.now += seconds;
        let now = self.now;
        // A node's own watch stops its server when its lease ends.
        self.running.retain(|_, run| run.own_end > now);
        let mut served = BTreeSet::new();
        for client in self.running.values().flat_map(|run| &run.admits) {
            assert!(served.insert(*client), "{client} is served at two nodes");
        }
    }

    fn pass_up_to(&mut self, seconds: f64) {
        let share = self.random_below(1000) as f64 / 1000.0;
        self.advance(share * seconds);
    }

    fn start(&mut self, name: &'static str) {
        let own_end = self.now + LEASE.as_secs_f64();
        self.advance(0.01);
        if let Ok(run) = self.registry.join(name, "x:1", self.clock.after(self.now)) {
            self.running.insert(name, Running { run, own_end, admits: Vec::new(), version: 0 });
        }
    }

    /// Request and answer each take time, and either may be lost.
    fn beat(&mut self, name: &'static str) {
        let Running { run, version, .. } = self.running[name];
        let own_end = self.now + LEASE.as_secs_f64();
        self.pass_up_to(0.3);
        if self.cut.contains(name) {
            return;
        }
        let report = Report { admitted: version, ..report() };
        let Ok(granted) = self.registry.renew(name, run, report, self.clock.after(self.now), 0) else {
            self.running.remove(name);
            return;
        };
        let is_lost = self.random_below(5) == 0;
        self.pass_up_to(0.3);
        if let Some(node) = self.running.get_mut(name).filter(|_| !is_lost) {
            let admits = granted.clients.unwrap_or_else(|| std::mem::take(&mut node.admits));
            *node = Running { run, own_end, admits, version: granted.version };
        }
    }

    fn step(&mut self) {
        let name = ["n0", "n1", "n2", "n3"][self.random_below(4) as usize];
        let client = ClientId::numbered(self.random_below(6));
        match self.random_below(100) {
            0..15 if !self.running.contains_key(name) => self.start(name),
            // The node's machine dies without notice.
            15..20 => drop(self.running.remove(name)),
            // The network splits, or heals.
            20..25 if !self.cut.remove(name) => drop(self.cut.insert(name)),
            25..28 => {
                let run = self.running.get(name).map_or(0, |node| node.run);
                self.registry.leave(name, run, self.clock.after(self.now));
            }
            28..60 if self.running.contains_key(name) => self.beat(name),
            60..80 => {
                if let Ok(ticket) = self.registry.place(client, "net", self.clock.after(self.now), 0) {
                    assert_eq!(self.registry.nodes[&ticket.node].run, ticket.run);
                }
            }
            80.. => self.pass_up_to(2.0),
            _ => {}
        }
    }
}

#[test]
fn no_client_is_served_at_two_nodes_under_any_failure() {
    let mut moved = 0;
    for seed in 0..200 {
        let (registry, clock) = (registry(), clock());
        let (running, cut) = (Map::new(), BTreeSet::new());
        let mut world = World { random: seed, registry, clock, now: 0.0, running, cut };
        for _ in 0..600 {
            world.step();
        }
        moved += world.registry.losses.iter().map(|loss| loss.clients).sum::<usize>();
    }
    assert!(moved > 1000, "histories in which clients move: {moved}");
}
