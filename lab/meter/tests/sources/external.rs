//! External meters, the PMIC, the model and device profiles.
use crate::{close, message, refusal, total, tree, usage_at};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tacit_measure::device::DeviceProfile;
use tacit_meter::source::csv::{Format, GrowingCsv, parse};
use tacit_meter::source::http::{Field, parse_body};
use tacit_meter::source::trace::Kind;
use tacit_meter::source::{Model, Provenance, Roots, Source, Usage, Value, detect, open, pmic};

#[test]
fn csv_headers_and_rows() {
    let format = Format::parse("\u{feff}Volts, Time_s ,\"watts\"").expect("a header");
    assert_eq!(format.kind(), Kind::Watts);
    assert_eq!(format.row("5.1,2.5,3.25").expect("a row"), Some((2.5, 3.25)));
    assert_eq!((format.row("# hello").expect("a comment"), format.row(" ").expect("nothing")), (None, None));
    for line in ["1,2", "1,2,3,4", "1,x,3", "1,2,nan", "1,2,inf", "1,2,", "1,2,1e7", "1,1e13,3", "1,2,-1e300"] {
        assert!(format.row(line).is_err(), "{line:?}");
    }
    for text in ["", "watts", "time_s", "time_s,watts,joules", "time_s,time_s,watts", "0.0,3.2"] {
        assert!(message(Format::parse(text)).contains("time_s,watts"), "{text:?}");
    }
}

#[test]
fn decimal_commas_are_read_where_clear_and_refused_where_not() {
    let semicolons = Format::parse("time_s;watts").expect("a header");
    assert_eq!(semicolons.row("0,5;3,25").expect("a row"), Some((0.5, 3.25)));
    assert_eq!(semicolons.row("0.5;3.25").expect("a row"), Some((0.5, 3.25)));
    assert!(semicolons.row("0,5;1.234,5").is_err(), "thousands are never guessed");
    assert!(semicolons.row("0,5;1,234,5").is_err());
    let commas = Format::parse("time_s,watts").expect("a header");
    assert!(message(commas.row("0,5,3,25")).contains("decimal commas"));
    assert!(commas.row("0;3").is_err());
}

#[test]
fn csv_traces() {
    let trace = parse("# meter 7\ntime_s,joules\n10,5\n\n11,7.5\n13,8\n").expect("a trace");
    assert!(close(trace.duration_s(), 3.0));
    assert!(close(trace.joules_at(2.0).expect("inside")[0], 2.75));
    assert!(message(parse("time_s,watts\n0,1\nx,2\n")).contains("line 3"));
    assert!(parse("time_s,joules\n0,5\n1,4\n").is_err());
    assert!(parse("").is_err());
}

fn append(path: &std::path::Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).expect("the file");
    file.write_all(text.as_bytes()).expect("written");
}

#[test]
fn a_growing_csv_file_is_followed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("meter.csv");
    assert!(GrowingCsv::open(&path).is_err());
    std::fs::write(&path, "time_s,watts\n").expect("a file");
    let mut roots = tree([]).1;
    roots.external = vec![path.display().to_string()];
    let first = detect(&roots).into_iter().next().expect("the external meter comes first");
    assert_eq!(first.name, format!("external:{}", path.display()));
    let mut source = first.into_source().expect("usable");
    let mut read = || source.read(&usage_at(0.0));
    assert_eq!(read().expect("nothing yet"), [Value::Missing]);
    append(&path, "0,2\n1,4\n2,6");
    assert_eq!(read().expect("two lines"), [Value::Watts(3.0)], "the third has no end yet");
    append(&path, "\n4,6\n");
    assert_eq!(read().expect("two more"), [Value::Watts((5.0 + 12.0) / 3.0)], "weighted by time");
    assert_eq!(read().expect("nothing new"), [Value::Watts(17.0 / 3.0)], "held");
    append(&path, "5,abc\n6,8\n");
    assert!(message(read()).contains("abc"));
    append(&path, "3,1\n");
    assert!(message(read()).contains("goes back"));
    append(&path, "4,3\n");
    assert_eq!(read().expect("it goes on"), [Value::Watts(2.0)]);
    std::fs::write(&path, "time_s;joules\n").expect("written anew");
    append(&path, "0;5\n1;7,5\n");
    assert_eq!(read().expect("another format"), [Value::Joules(2.5)]);
}

#[test]
fn a_long_csv_file_is_read_from_its_end_and_a_line_without_end_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("meter.csv");
    let lines: String = (0..100_000).map(|i| format!("{i},{}\n", i * 2)).collect();
    std::fs::write(&path, format!("time_s,joules\n{lines}")).expect("a file");
    let mut source = GrowingCsv::open(&path).expect("a long file");
    let started = total(&mut source, &usage_at(0.0));
    assert!(started < 3000.0, "only the end was read, not 199998 J");
    append(&path, "100000,200010\n");
    assert!(close(total(&mut source, &usage_at(1.0)) - started, 12.0));
    append(&path, &"7".repeat(1_200_000));
    assert!(message(source.read(&usage_at(2.0))).contains("more than"));
}

#[test]
fn http_bodies() {
    let body = |text: &str| parse_body(text, None);
    assert_eq!(body("{\"watts\": 3.5}").expect("a number"), Value::Watts(3.5));
    assert_eq!(body("{\"watts\": 3, \"joules\": \"12.5\"}").expect("energy first"), Value::Joules(12.5));
    for source in [
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
        assert!(body(source).is_err(), "{source:?}");
    }
    let shelly = Field::parse("watts=/apower").expect("a field");
    assert_eq!(parse_body("{\"id\":0,\"apower\":8.9}", Some(&shelly)).expect("a number"), Value::Watts(8.9));
    let tasmota = Field::parse("kwh=/StatusSNS/ENERGY/Total").expect("a field");
    assert_eq!(
        parse_body("{\"StatusSNS\":{\"ENERGY\":{\"Total\":2}}}", Some(&tasmota)).expect("energy"),
        Value::Joules(7.2e6)
    );
    for source in ["", "watts", "volts=/a", "watts=a"] {
        assert!(Field::parse(source).is_err(), "{source:?}");
    }
}

/// Answers every request with the newest text; an empty text closes the connection without an answer.
/// `FALLING` in it becomes a number that is smaller each time.
fn server(text: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for (stream, number) in listener.incoming().zip(0..) {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let body = text.lock().expect("a text").replace("FALLING", &(900 - number).to_string());
            if !body.is_empty() {
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
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
fn a_meter_over_http_is_polled() {
    let text = Arc::new(Mutex::new("{\"total\": 1000.0}".to_string()));
    let url = format!("external:{}#wh=/total", server(text.clone()));
    let mut source = open(&url, &Roots::system()).expect("an answer");
    assert_eq!(source.info().name, url);
    assert_eq!(source.read(&usage_at(0.0)).expect("the first"), [Value::Joules(0.0)]);
    let set_text = |new: &str| *text.lock().expect("a text") = new.into();
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
fn an_unreachable_meter_is_refused_at_once() {
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
fn the_pmic_of_a_raspberry_pi_5() {
    let rails = pmic::parse(PMIC).expect("rails");
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
fn the_model_is_its_formula() {
    let profile = DeviceProfile::load("raspberry-pi-4b").expect("a profile");
    let mode = profile.mode(None).expect("a mode");
    let mut model = Model::new(&profile, mode);
    assert_eq!(model.info().provenance, Provenance::Modelled);
    let usage = Usage { elapsed: Duration::from_secs(10), cpu_s: 4.0, bytes: 1_000_000_000 };
    assert!(close(total(&mut model, &usage), 2.7 * 10.0 + 0.925 * 4.0 + mode.j_per_byte.value * 1e9));
    let mode = open("model:jetson-nano/5w", &Roots::system()).expect("a mode");
    assert_eq!(mode.info().name, "model:jetson-nano/5w");
    assert!(message(open("model:jetson-nano/6w", &Roots::system())).contains("10w, 5w"));
    assert!(message(open("model:toaster", &Roots::system())).contains("raspberry-pi-5"));
}

#[test]
fn a_profile_of_ones_own_is_a_source() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("mine.toml");
    let text = "name = \"mine\"\ndescription = \"x\"\ndefault_mode = \"default\"\n[[mode]]\nname = \"default\"\nbase_w = { value = 1.0, \
                source = \"assumed\" }\nw_per_core = { value = 2.0, source = \"assumed\" }\nj_per_byte = { value = 0.0, source = \"assumed\" }\n";
    std::fs::write(&path, text).expect("a file");
    let spec = format!("model:{}", path.display());
    assert_eq!(open(&spec, &Roots::system()).expect("an own file").info().name, "model:mine/default");
    assert_eq!(
        open(&format!("{spec}/default"), &Roots::system()).expect("with a mode").info().name,
        "model:mine/default"
    );
}
