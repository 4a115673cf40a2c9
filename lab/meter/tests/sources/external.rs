//! External meters, the PMIC, the model and device profiles.
use crate::{close, message, refusal, total, tree, usage_at};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tacit_measure::device::DeviceProfile;
use tacit_meter::source::csv::{Format, GrowingCsv, parse};
use tacit_meter::source::http::{Field, parse_body};
use tacit_meter::source::trace::Kind;
use tacit_meter::source::{Model, Provenance, Roots, Source, Usage, Value, detect, open, pmic};

#[test]
fn parses_csv_headers_and_rows() {
    let format = Format::parse("\u{feff}Volts, Time_s ,\"watts\"").unwrap();
    assert_eq!(format.kind(), Kind::Watts);
    assert_eq!(format.row("5.1,2.5,3.25").unwrap(), Some((2.5, 3.25)));
    assert_eq!((format.row("# hello").unwrap(), format.row(" ").unwrap()), (None, None));
    for line in ["1,2", "1,2,3,4", "1,x,3", "1,2,nan", "1,2,inf", "1,2,", "1,2,1e7", "1,1e13,3", "1,2,-1e300"] {
        assert!(format.row(line).is_err(), "{line:?}");
    }
    for text in ["", "watts", "time_s", "time_s,watts,joules", "time_s,time_s,watts", "0.0,3.2"] {
        assert!(message(Format::parse(text)).contains("time_s,watts"), "{text:?}");
    }
}

#[test]
fn reads_only_unambiguous_decimal_commas() {
    let semicolons = Format::parse("time_s;watts").unwrap();
    assert_eq!(semicolons.row("0,5;3,25").unwrap(), Some((0.5, 3.25)));
    assert_eq!(semicolons.row("0.5;3.25").unwrap(), Some((0.5, 3.25)));
    assert!(semicolons.row("0,5;1.234,5").is_err());
    assert!(semicolons.row("0,5;1,234,5").is_err());
    let commas = Format::parse("time_s,watts").unwrap();
    assert!(message(commas.row("0,5,3,25")).contains("decimal commas"));
    assert!(commas.row("0;3").is_err());
}

#[test]
fn parses_csv_traces() {
    let trace = parse("# meter 7\ntime_s,joules\n10,5\n\n11,7.5\n13,8\n").unwrap();
    assert!(close(trace.duration_s(), 3.0));
    assert!(close(trace.joules_at(2.0).unwrap()[0], 2.75));
    assert!(message(parse("time_s,watts\n0,1\nx,2\n")).contains("line 3"));
    assert!(parse("time_s,joules\n0,5\n1,4\n").is_err());
    assert!(parse("").is_err());
}

/// A folder with a file for readings, which does not exist yet.
fn meter_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meter.csv");
    (folder, path)
}

fn append(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn follows_growing_csv_file() {
    let (_folder, path) = meter_file();
    assert!(GrowingCsv::open(&path).is_err());
    std::fs::write(&path, "time_s,watts\n").unwrap();
    let mut roots = tree([]).1;
    roots.external = vec![path.display().to_string()];
    let first = detect(&roots).into_iter().next().unwrap();
    assert_eq!(first.name, format!("external:{}", path.display()));
    let mut source = first.into_source().unwrap();
    let mut read = || source.read(&usage_at(0.0));
    assert_eq!(read().unwrap(), [Value::Missing]);
    append(&path, "0,2\n1,4\n2,6");
    // The third line has no end yet.
    assert_eq!(read().unwrap(), [Value::Watts(3.0)]);
    append(&path, "\n4,6\n");
    assert_eq!(read().unwrap(), [Value::Watts((5.0 + 12.0) / 3.0)], "weighted by time");
    assert_eq!(read().unwrap(), [Value::Watts(17.0 / 3.0)], "held");
    append(&path, "5,abc\n6,8\n");
    assert!(message(read()).contains("abc"));
    append(&path, "3,1\n");
    assert!(message(read()).contains("goes back"));
    append(&path, "4,3\n");
    assert_eq!(read().unwrap(), [Value::Watts(2.0)]);
    std::fs::write(&path, "time_s;joules\n").unwrap();
    append(&path, "0;5\n1;7,5\n");
    assert_eq!(read().unwrap(), [Value::Joules(2.5)]);
}

#[test]
fn reads_long_csv_file_from_its_end() {
    let (_folder, path) = meter_file();
    let lines: String = (0..100_000).map(|i| format!("{i},{}\n", i * 2)).collect();
    std::fs::write(&path, format!("time_s,joules\n{lines}")).unwrap();
    let mut source = GrowingCsv::open(&path).unwrap();
    let started = total(&mut source, &usage_at(0.0));
    assert!(started < 3000.0, "only the end was read");
    append(&path, "100000,200010\n");
    assert!(close(total(&mut source, &usage_at(1.0)) - started, 12.0));
    append(&path, &"7".repeat(1_200_000));
    assert!(message(source.read(&usage_at(2.0))).contains("more than"));
}

#[test]
fn parses_http_bodies() {
    let parse = |text: &str, field: &str| {
        let field = (!field.is_empty()).then(|| Field::parse(field).unwrap());
        parse_body(text, field.as_ref())
    };
    for (text, field, wanted) in [
        ("{\"watts\": 3.5}", "", Value::Watts(3.5)),
        // Energy goes first.
        ("{\"watts\": 3, \"joules\": \"12.5\"}", "", Value::Joules(12.5)),
        ("{\"id\":0,\"apower\":8.9}", "watts=/apower", Value::Watts(8.9)),
        ("{\"StatusSNS\":{\"ENERGY\":{\"Total\":2}}}", "kwh=/StatusSNS/ENERGY/Total", Value::Joules(7.2e6)),
    ] {
        assert_eq!(parse(text, field).ok(), Some(wanted), "{text:?} {field:?}");
    }
    for text in [
        "",
        "3",
        "[]",
        "{}",
        "{\"watts\": null}",
        "{\"watts\": \"x\"}",
        "{\"watts\": 1e9}",
        "{\"watts\": \"nan\"}",
        &"[".repeat(9999),
    ] {
        assert!(parse(text, "").is_err(), "{text:?}");
    }
    for field in ["", "watts", "volts=/a", "watts=a"] {
        assert!(Field::parse(field).is_err(), "{field:?}");
    }
}

/// Answers every request with the newest text; an empty text closes the connection without an answer.
/// `FALLING` in it becomes a number that is smaller each time.
fn server(text: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (stream, number) in listener.incoming().zip(0..) {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let body = text.lock().unwrap().replace("FALLING", &(900 - number).to_string());
            if !body.is_empty() {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all((head + &body).as_bytes());
            }
        }
    });
    format!("http://{address}/status")
}

/// Reads until the outcome fits; polling takes about a second.
fn until(source: &mut dyn Source, fits: impl Fn(&Result<Vec<Value>, tacit_meter::MeterError>) -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !fits(&source.read(&usage_at(0.0))) {
        assert!(Instant::now() < patience, "last: {:?}", source.read(&usage_at(0.0)));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn polls_http_meter() {
    let text = Arc::new(Mutex::new("{\"total\": 1000.0}".to_string()));
    let url = format!("external:{}#wh=/total", server(text.clone()));
    let mut source = open(&url, &Roots::system()).unwrap();
    assert_eq!(source.info().name, url);
    assert_eq!(source.read(&usage_at(0.0)).unwrap(), [Value::Joules(0.0)]);
    let set_text = |new: &str| *text.lock().unwrap() = new.into();
    set_text("{\"total\": 1000.5}");
    until(&mut *source, |r| matches!(r.as_deref(), Ok([Value::Joules(j)]) if close(*j, 1800.0)));
    set_text("{\"total\": FALLING}");
    until(&mut *source, |r| r.as_ref().is_err_and(|e| e.to_string().contains("went back")));
    set_text("{\"total\": 4}");
    until(&mut *source, |r| matches!(r.as_deref(), Ok([Value::Joules(j)]) if *j >= 1800.0));
    set_text("");
    until(&mut *source, |r| r.is_err());
}

#[test]
fn refuses_unreachable_meter() {
    for url in ["http://127.0.0.1:1/", "https://127.0.0.1/", "ftp://a/", "http://127.0.0.1:1/#watts"] {
        assert!(open(&format!("external:{url}"), &Roots::system()).is_err(), "{url}");
    }
    let text = Arc::new(Mutex::new("x".repeat(100_000)));
    assert!(message(open(&format!("external:{}", server(text)), &Roots::system())).contains("limit"));
    let mut roots = tree([]).1;
    roots.external = vec!["/nonexistent.csv".into()];
    assert!(refusal(&roots, "external:/nonexistent.csv").0.contains("nonexistent"));
}

/// Lines as the firmware of a Raspberry Pi 5 writes them.
const PMIC: &str = "  3V7_WL_SW_A current(0)=0.08490060A\n   3V3_SYS_A current(1)=0.50000000A\n VDD_CORE_A current(7)=2.00000000A\n  \
     3V7_WL_SW_V volt(8)=3.70000000V\n   3V3_SYS_V volt(9)=3.30000000V\n VDD_CORE_V volt(15)=0.75000000V\n   EXT5V_V volt(24)=5.10000000V\n  \
     BATT_V volt(25)=0.00488400V\n";

#[test]
fn parses_pmic_output() {
    let rails = pmic::parse(PMIC).unwrap();
    assert_eq!(rails.len(), 3, "the input and the battery have no current: {rails:?}");
    let sum: f64 = rails.iter().map(|(_, w)| w).sum();
    assert!(close(sum, 0.0849006 * 3.7 + 0.5 * 3.3 + 2.0 * 0.75));
    for source in
        ["", "error=1 error_msg=\"Command not registered\"", "X_A current(0)=nanA\nX_V volt(0)=1V", "X_A=1A\nX_V=-1V"]
    {
        assert!(pmic::parse(source).is_err(), "{source:?}");
    }
}

#[test]
fn model_follows_formula() {
    let profile = DeviceProfile::load("raspberry-pi-4b").unwrap();
    let mode = profile.mode(None).unwrap();
    let mut model = Model::new(&profile, mode);
    assert_eq!(model.info().provenance, Provenance::Modelled);
    let usage = Usage { elapsed: Duration::from_secs(10), cpu_s: 4.0, bytes: 1_000_000_000 };
    assert!(close(total(&mut model, &usage), 2.7 * 10.0 + 0.925 * 4.0 + mode.j_per_byte.value * 1e9));
    let mode = open("model:jetson-nano/5w", &Roots::system()).unwrap();
    assert_eq!(mode.info().name, "model:jetson-nano/5w");
    assert!(message(open("model:jetson-nano/6w", &Roots::system())).contains("10w, 5w"));
    assert!(message(open("model:toaster", &Roots::system())).contains("raspberry-pi-5"));
}

#[test]
fn opens_profile_from_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let text = "name = \"mine\"\ndescription = \"x\"\ndefault_mode = \"default\"\n[[mode]]\nname = \"default\"\nbase_w = { value = 1.0, \
                source = \"assumed\" }\nw_per_core = { value = 2.0, source = \"assumed\" }\nj_per_byte = { value = 0.0, source = \"assumed\" }\n";
    std::fs::write(&path, text).unwrap();
    for mode in ["", "/default"] {
        let spec = format!("model:{}{mode}", path.display());
        assert_eq!(open(&spec, &Roots::system()).unwrap().info().name, "model:mine/default");
    }
}
