//! Several nodes: one node behaves as the plain simulator, and other nodes answer the unanswered
//! requests of a dead node.

use tacit_sim::{Arrivals, ClusterSpec, Death, Mix, Placement, ProfileFile, Scenario, SimError, Summary, Workload};

const PROFILE: &str = r#"{
  "backend": "test", "link": "loopback", "models": {
    "small": {"pre": {"wall_s": 1.0, "peak_rss_bytes": 1000}, "on": {"wall_s": 0.5, "load_s": 0.5, "peak_rss_bytes": 2000},
              "key_bytes_server": 10, "key_bytes_client": 10},
    "large": {"pre": {"wall_s": 6.0, "peak_rss_bytes": 50000}, "on": {"wall_s": 3.0, "peak_rss_bytes": 90000},
              "key_bytes_server": 1000, "key_bytes_client": 1000}
  }
}"#;

fn spec(nodes: usize, rate: f64, placement: Placement) -> ClusterSpec {
    let mix = Mix { name: "test".into(), counts: vec![("small".into(), 9), ("large".into(), 1)] };
    let workload = Workload { requests: 2000, clients: 60, ..Workload::new(mix, Arrivals::Poisson(rate), 0.0) };
    let profile = ProfileFile::parse(PROFILE).unwrap();
    let scenario = Scenario::new(&profile, "adaptive".parse().unwrap(), 4, workload).unwrap();
    ClusterSpec { scenario, nodes, placement, report_s: 1.0, lease_s: 5.0, deaths: Vec::new() }
}

#[test]
fn a_cluster_of_one_is_a_server() {
    for placement in [Placement::Home, Placement::Name, Placement::Anew] {
        let one_node = spec(1, 1.5, placement);
        let single_summary = Summary::of(&one_node.scenario.run(3).unwrap(), &one_node.scenario);
        let cluster = one_node.run(3).unwrap();
        assert_eq!((cluster.done, cluster.lost, cluster.moved), (2000, 0, 0));
        assert!((cluster.input_delay / single_summary.all.input_delay - 1.0).abs() < 1e-9, "{cluster:?}");
        assert!((cluster.waiting_time / single_summary.all.waiting_time - 1.0).abs() < 1e-9, "{cluster:?}");
        assert!((cluster.p99 - single_summary.all.p99).abs() < 1e-9);
        assert!((cluster.busiest - 1.0).abs() < 1e-9);
    }
}

#[test]
fn whoever_may_move_waits_least_and_a_seed_repeats() {
    let [home, name, anew] =
        [Placement::Home, Placement::Name, Placement::Anew].map(|placement| spec(4, 6.0, placement).run(1).unwrap());
    assert!(anew.waiting_time < home.waiting_time, "{home:?} {name:?} {anew:?}");
    assert!(anew.waiting_time < name.waiting_time, "{home:?} {name:?} {anew:?}");
    assert!(anew.busiest < home.busiest, "clients that stay make some nodes busier");
    assert_eq!(home, spec(4, 6.0, Placement::Home).run(1).unwrap());
    assert_ne!(home, spec(4, 6.0, Placement::Home).run(2).unwrap());
}

#[test]
fn what_a_dead_node_had_not_answered_others_answer() {
    let mut dying = spec(3, 3.0, Placement::Home);
    dying.deaths = vec![Death { node: 1, at_s: 200.0 }, Death { node: 0, at_s: 300.0 }];
    let ended_run = dying.run(5).unwrap();
    assert_eq!((ended_run.done, ended_run.lost), (2000, 0), "{ended_run:?}");
    assert!(ended_run.moved > 0, "jobs ran when the nodes died");
    // Moved clients waited at least for the lease.
    assert!(ended_run.input_delay > spec(3, 3.0, Placement::Home).run(5).unwrap().input_delay);
    // Without live nodes, requests are lost.
    dying.deaths.push(Death { node: 2, at_s: 400.0 });
    let lossy_run = dying.run(5).unwrap();
    assert!(lossy_run.lost > 0, "{lossy_run:?}");
    assert!(lossy_run.done + lossy_run.lost == 2000, "{lossy_run:?}");
}

#[test]
fn a_cluster_has_nodes_and_only_those_die() {
    assert!(matches!(spec(0, 1.0, Placement::Home).run(1), Err(SimError::NoSuchNode { nodes: 0 })));
    let mut invalid = spec(2, 1.0, Placement::Home);
    invalid.deaths = vec![Death { node: 2, at_s: 1.0 }];
    assert!(matches!(invalid.run(1), Err(SimError::NoSuchNode { nodes: 2 })));
}
