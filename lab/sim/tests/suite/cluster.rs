//! Several nodes: one node behaves as the plain simulator, and other nodes answer the unanswered
//! requests of a dead node.

use crate::{mix, profile};
use tacit_sim::{Arrivals, ClusterSpec, Death, Placement, Scenario, SimError, Summary, Workload};

fn spec(nodes: usize, rate: f64, placement: Placement) -> ClusterSpec {
    let workload = Workload { requests: 2000, clients: 60, ..Workload::new(mix(9, 1), Arrivals::Poisson(rate), 0.0) };
    let scenario = Scenario::new(&profile(6.0, 3.0), "adaptive".parse().unwrap(), 4, workload).unwrap();
    ClusterSpec { scenario, nodes, placement, report_s: 1.0, lease_s: 5.0, deaths: Vec::new() }
}

#[test]
fn one_node_behaves_as_the_plain_simulator() {
    for placement in [Placement::Home, Placement::Name, Placement::Anew] {
        let one_node = spec(1, 1.5, placement);
        let single_summary = Summary::from_run(&one_node.scenario.run(3).unwrap(), &one_node.scenario);
        let cluster = one_node.run(3).unwrap();
        assert_eq!((cluster.done, cluster.lost, cluster.moved), (2000, 0, 0));
        assert!((cluster.input_delay / single_summary.all.input_delay - 1.0).abs() < 1e-9, "{cluster:?}");
        assert!((cluster.waiting_time / single_summary.all.waiting_time - 1.0).abs() < 1e-9, "{cluster:?}");
        assert!((cluster.p99 - single_summary.all.p99).abs() < 1e-9);
        assert!((cluster.busiest - 1.0).abs() < 1e-9);
    }
}

#[test]
fn placing_anew_waits_least() {
    let [home, name, anew] =
        [Placement::Home, Placement::Name, Placement::Anew].map(|placement| spec(4, 6.0, placement).run(1).unwrap());
    assert!(anew.waiting_time < home.waiting_time, "{home:?} {name:?} {anew:?}");
    assert!(anew.waiting_time < name.waiting_time, "{home:?} {name:?} {anew:?}");
    assert!(anew.busiest < home.busiest);
    assert_eq!(home, spec(4, 6.0, Placement::Home).run(1).unwrap());
    assert_ne!(home, spec(4, 6.0, Placement::Home).run(2).unwrap());
}

#[test]
fn other_nodes_answer_requests_of_a_dead_node() {
    let mut dying = spec(3, 3.0, Placement::Home);
    dying.deaths = vec![Death { node: 1, at_s: 200.0 }, Death { node: 0, at_s: 300.0 }];
    let ended_run = dying.run(5).unwrap();
    assert_eq!((ended_run.done, ended_run.lost), (2000, 0), "{ended_run:?}");
    assert!(ended_run.moved > 0);
    // Moved clients waited at least for the lease.
    assert!(ended_run.input_delay > spec(3, 3.0, Placement::Home).run(5).unwrap().input_delay);
    // Without live nodes, requests are lost.
    dying.deaths.push(Death { node: 2, at_s: 400.0 });
    let lossy_run = dying.run(5).unwrap();
    assert!(lossy_run.lost > 0, "{lossy_run:?}");
    assert!(lossy_run.done + lossy_run.lost == 2000, "{lossy_run:?}");
}

#[test]
fn refuses_clusters_without_nodes_and_deaths_of_unknown_nodes() {
    assert!(matches!(spec(0, 1.0, Placement::Home).run(1), Err(SimError::NoSuchNode { nodes: 0 })));
    let mut invalid = spec(2, 1.0, Placement::Home);
    invalid.deaths = vec![Death { node: 2, at_s: 1.0 }];
    assert!(matches!(invalid.run(1), Err(SimError::NoSuchNode { nodes: 2 })));
}
