//! The meter's records and phase marks.

use tacit_measure::mark::{MAX_LINE, MarkLine};
use tacit_meter::record::{FORMAT, VERSION};
use tacit_meter::record_file::parse_record;
use tacit_meter::{csv, energy, phase};

/// A record, whole or torn, and everything that is computed from it.
pub fn record_line(data: &[u8]) {
    let Ok(record) = parse_record(data, "fuzz") else { return };
    csv::to_csv(&record, std::io::sink()).expect("a sink takes everything");
    for source in &record.header.sources {
        let counted: Vec<bool> = source.rails.iter().map(|r| r.counted).collect();
        let curve = energy::energy_curve(&record.samples, &source.name, &counted);
        assert!(curve.windows(2).all(|w| w[0].0 < w[1].0), "times increase");
        let _ = phase::phase_costs(&record.samples, &record.marks, &curve);
    }
}

/// Records with every kind of line.
pub fn record_line_seeds() -> Vec<Vec<u8>> {
    let header = format!(
        r#"{{"type":"header","format":"{FORMAT}","version":{VERSION},"host":"pi","started_unix_ns":1,"interval_s":1.0,"sources":[{{"name":"s","provenance":"measured","rails":[{{"name":"all","counted":true}}],"min_interval_ms":1}}],"machine":{{}},"labels":{{"rate":"lte"}}}}"#
    );
    let sample = |t: f64, j: f64| {
        format!(
            r#"{{"type":"sample","t":{t},"power":{{"s":[{{"w":3.5,"j":{j}}}]}},"parties":{{"client":{{"user_s":1.0,"system_s":0.5,"rss_bytes":1,"processes":1}}}},"cores":[{{"user_s":1,"system_s":1,"idle_s":1,"mhz":900}}],"memory_bytes":5,"interfaces":{{"eth0":{{"rx_bytes":1,"tx_bytes":2,"rx_packets":3,"tx_packets":4}}}}}}"#
        )
    };
    let mark = |t: f64, edge: &str| {
        format!(
            r#"{{"type":"mark","t":{t},"party":"client","phase":"online","edge":"{edge}","figures":{{"rounds":2.0}}}}"#
        )
    };
    let (note, summary) = (r#"{"type":"note","t":1.5,"text":"x"}"#, r#"{"type":"summary","duration_s":2.0}"#);
    let (first, last) = (sample(0.0, 0.0), sample(2.0, 7.0));
    let (begin, end) = (mark(0.5, "begin"), mark(1.5, "end"));
    let whole = [header.as_str(), &first, &begin, note, &end, &last, summary].join("\n");
    vec![format!("{whole}\n").into_bytes(), whole.as_bytes()[..whole.len() - 30].to_vec(), header.into_bytes()]
}

/// What a measured program says of its phases.
pub fn mark_line(data: &[u8]) {
    let Ok(line) = MarkLine::parse(data) else { return };
    let text = line.to_string();
    // `.5` is written as `0.5`, so that a line of full length may grow.
    if text.len() <= MAX_LINE {
        assert_eq!(MarkLine::parse(text.as_bytes()), Ok(line));
    }
}

/// Every kind of line.
pub fn mark_line_seeds() -> Vec<Vec<u8>> {
    let lines: [&[u8]; 5] = [
        b"party client\n",
        b"begin online 123456789\n",
        b"end online 5 sent_bytes=1.5e6 rounds=7\n",
        b"note x y\n",
        b"ping 3\n",
    ];
    lines.map(<[u8]>::to_vec).into()
}
