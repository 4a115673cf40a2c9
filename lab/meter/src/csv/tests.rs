use super::*;
use crate::record::{CoreSample, InterfaceSample, Mark, PartySample, RailSample};
use crate::source::{Rail, SourceInfo};
use std::collections::BTreeMap;

fn record() -> Record {
    let rails = ["pkg", "dram, \"slow\""].map(Rail::counted).into();
    let source = SourceInfo::measured("rapl", rails, 1);
    let header = crate::record::Header {
        format: crate::record::FORMAT.into(),
        version: crate::record::VERSION,
        host: "h".into(),
        started_unix_ns: 0,
        interval_s: 1.0,
        sources: vec![source],
        machine: BTreeMap::new(),
        labels: BTreeMap::new(),
    };
    let rails = vec![RailSample { w: Some(2.5), j: 1.25 }, RailSample { w: None, j: 0.0 }];
    let party = PartySample { user_s: 0.5, system_s: 0.25, rss_bytes: 4096, processes: 2 };
    let full = Sample {
        t: 0.5,
        power: BTreeMap::from([("rapl".to_owned(), rails)]),
        parties: BTreeMap::from([("client".to_owned(), party)]),
        cores: vec![CoreSample { user_s: 1.0, system_s: 2.0, idle_s: 3.0, mhz: Some(1200.0) }],
        memory_bytes: 99,
        interfaces: BTreeMap::from([(
            "eth0".to_owned(),
            InterfaceSample { rx_bytes: 1, tx_bytes: 2, rx_packets: 3, tx_packets: 4 },
        )]),
    };
    let mark =
        |t, phase: &str, edge| Mark { t, party: "client".into(), phase: phase.into(), edge, figures: BTreeMap::new() };
    let sample_at = |t| Sample { t, ..Sample::default() };
    Record {
        header,
        samples: vec![sample_at(0.0), full, sample_at(1.0), sample_at(2.0), sample_at(3.0)],
        // Out of order, as marks of two programs may be.
        marks: vec![
            mark(0.9, "online", Edge::Begin),
            mark(0.4, "run", Edge::Begin),
            mark(1.5, "online", Edge::End),
            mark(2.5, "run", Edge::End),
            mark(2.6, "stray", Edge::End),
        ],
        notes: vec![],
        summary: None,
        incomplete: None,
    }
}

#[test]
fn writes_documented_columns() {
    let mut csv = Vec::new();
    to_csv(&record(), &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(
        rows[0],
        "t_s,power.rapl.pkg.w,power.rapl.pkg.j,\"power.rapl.dram, \"\"slow\"\".w\",\"power.rapl.dram, \"\"slow\"\".j\",\
         party.client.user_s,party.client.system_s,party.client.rss_bytes,party.client.processes,\
         core.0.user_s,core.0.system_s,core.0.idle_s,core.0.mhz,memory_bytes,\
         if.eth0.rx_bytes,if.eth0.tx_bytes,if.eth0.rx_packets,if.eth0.tx_packets,phase.client"
    );
    assert_eq!(rows[1], "0,,,,,,,,,,,,,0,,,,,");
    assert_eq!(rows[2], "0.5,2.5,1.25,,0,0.5,0.25,4096,2,1,2,3,1200,99,1,2,3,4,run");
    assert!(rows[3].ends_with(",online"), "{csv}");
    assert!(rows[4].ends_with(",run"), "{csv}");
    assert!(rows[5].ends_with(','), "{csv}");
    assert_eq!(rows.len(), 6);
}

#[test]
fn reports_failing_writer() {
    let mut full: &mut [u8] = &mut [0; 100];
    assert!(to_csv(&record(), &mut full).is_err());
}
