//! Untrusted text on the terminal (of peers and of files), and files of the wrong kind, named by mistake.
use crate::common::{Folder, MODELS, assert_contains, command, good, run_failing, tacit};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tacit_client::wire::{ModelInfo, Offer, REPLY, REQUEST, Reply, Request, send};
use tacit_foreign::text::is_plain;
use tacit_net::{Channel, Hello, ServerTls, TcpTransport, handshake};
use tacit_store::keys;

/// Text with control characters: sets a terminal's title, rings, forges a line, moves the cursor,
/// reverses letters.
const HOSTILE: &str = "gone\u{1b}]0;owned\u{7}\r\nerror: your keys are lost\u{9b}2J\u{202e}";

/// Starts a server with these keys that calls `talk` for every connection; returns its address.
fn start_hostile_server(keys: &Path, talk: impl Fn(&ServerTls, TcpTransport) + Send + 'static) -> String {
    let tls = keys::load_server(keys).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            talk(&tls, TcpTransport::new(stream.unwrap()).unwrap());
        }
    });
    address
}

/// Starts a server that speaks the protocol and sends `answer`: to the greeting, or if it `welcomes`, to
/// the request after it. Returns its address.
fn start_answering_server(keys: &Path, welcomes: bool, answer: Reply) -> String {
    start_hostile_server(keys, move |tls, tcp| {
        let mut channel = Channel::new(Box::new(tls.accept(tcp).unwrap()));
        handshake(&mut channel, &Hello::without_model()).unwrap();
        if welcomes {
            send(&mut channel, REPLY, &Reply::Welcome).unwrap();
            Request::from_bytes(&channel.recv_max(REQUEST, 1 << 16).unwrap()).unwrap();
        }
        send(&mut channel, REPLY, &answer).unwrap();
        // The client has read the answer when it closes the connection.
        let _ = channel.recv_max(REQUEST, 1 << 16);
    })
}

#[track_caller]
fn assert_plain_lines(text: &str) {
    assert!(text.lines().all(|line| line.chars().all(is_plain)), "{text:?}");
}

/// Asserts that a text is one line of printable characters.
#[track_caller]
fn assert_harmless(text: &str) {
    assert_eq!(text.matches('\n').count(), 1, "{text:?}");
    assert!(text.trim_end_matches('\n').chars().all(is_plain), "{text:?}");
}

#[test]
fn text_of_a_server_is_escaped() {
    let dir = &Folder::new();
    good(dir, &["keys", "init", "keys"]);
    let keys = dir.join("keys");
    let digit = format!("{MODELS}/digit.npy");
    let model = |name: &str| {
        let backends = vec![Offer { backend: format!("b{HOSTILE}"), public: [0; 32] }];
        ModelInfo { name: format!("{name}{HOSTILE}"), backends }
    };
    let refused = Reply::Refused { reason: HOSTILE.into(), again_s: None };
    let goodbye = || Reply::Goodbye { reason: HOSTILE.into() };
    for (welcomes, answer) in [
        (false, refused.clone()),
        (false, goodbye()),
        (true, refused),
        (true, goodbye()),
        (true, Reply::Models(vec![model("one"), model("two")])),
        (true, Reply::Models(vec![model("one")])),
        (true, Reply::Noted { notice_ignored: Some(HOSTILE.into()) }),
        (true, Reply::Refused { reason: "x".repeat(500_000), again_s: None }),
    ] {
        let case = format!("{welcomes} {answer:?}");
        let address = start_answering_server(&keys, welcomes, answer);
        let (_, text) = run_failing(dir, &["infer", &digit, "--server", &address, "--keys", "keys"]);
        assert_harmless(&text);
        assert!(text.starts_with("error: "), "{}: {text}", &case[..40.min(case.len())]);
        assert!(text.len() < 5000, "{}: {text}", &case[..40.min(case.len())]);
        let (_, json) = run_failing(dir, &["infer", &digit, "--server", &address, "--keys", "keys", "--json"]);
        assert_harmless(&json);
        serde_json::from_str::<serde_json::Value>(&json).unwrap();
    }
}

/// Answers one request over HTTP.
fn http(tls: &ServerTls, tcp: TcpTransport, head: &str, body: &str) {
    let session = rustls::ServerConnection::new(tls.with_http()).unwrap();
    let mut stream = rustls::StreamOwned::new(session, tcp);
    let mut requests = Vec::new();
    while !requests.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        requests.push(byte[0]);
    }
    let length = body.len();
    let answer = format!("HTTP/1.1 {head}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).unwrap();
    // Waits until the client closes.
    let _ = stream.read(&mut [0]);
}

#[test]
fn hostile_text_over_http_is_escaped() {
    let dir = &Folder::new();
    good(dir, &["keys", "init", "keys"]);
    let keys = dir.join("keys");
    let denying_address = start_hostile_server(&keys, |tls, tcp| {
        http(tls, tcp, "403 Forbidden", &serde_json::json!({ "error": HOSTILE }).to_string());
    });
    for command in [&["status"][..], &["health"], &["top", "--once"], &["notify", "new", "--model", "m"]] {
        let (_, text) = run_failing(dir, &[command, &["--server", &denying_address, "--keys", "keys"]].concat());
        assert_harmless(&text);
        assert_contains(&text, &["refuses (403)", "owned"]);
    }
    let address = start_hostile_server(&keys, |tls, tcp| {
        let status_json =
            serde_json::json!({ "status": HOSTILE, "warnings": [HOSTILE], "version": HOSTILE, "policy": HOSTILE });
        http(tls, tcp, "200 OK", &status_json.to_string());
    });
    let output = tacit(dir, &["health", "--server", &address, "--keys", "keys"]);
    for stream_text in [output.stdout, output.stderr] {
        assert_harmless(&String::from_utf8(stream_text).unwrap());
    }
    let status = good(dir, &["status", "--server", &address, "--keys", "keys"]);
    assert_plain_lines(&status);
    assert_contains(&status, &["owned"]);
    // JSON for scripts contains every character, control characters as escapes.
    let json = good(dir, &["status", "--server", &address, "--keys", "keys", "--json"]);
    assert_plain_lines(&json);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["version"], HOSTILE);
}

/// Writes a network of the zoo in which the bytes `old` are replaced by the equally many bytes `new`.
fn forge_network(dir: &Path, old: &[u8], new: &[u8]) {
    good(dir, &["zoo", "tiny-cnn", "-o", "net.onnx"]);
    let mut bytes = fs::read(dir.join("net.onnx")).unwrap();
    let places: Vec<usize> = (0..bytes.len() - old.len()).filter(|&i| bytes[i..].starts_with(old)).collect();
    assert!(!places.is_empty());
    assert!(old.len() == new.len());
    places.into_iter().for_each(|offset| bytes[offset..offset + new.len()].copy_from_slice(new));
    fs::write(dir.join("net.onnx"), bytes).unwrap();
}

#[test]
fn text_of_a_network_is_escaped() {
    let dir = &Folder::new();
    forge_network(dir, b"Relu", b"\x1b[2J");
    let (_, text) = run_failing(dir, &["model", "import", "net.onnx", "-o", "net.tacit"]);
    assert_harmless(&text);
    assert_contains(&text, &["[2J) is not supported"]);
    // Names of nodes and tensors in a valid network.
    forge_network(dir, b"conv_", b"\x1b[2J\r");
    let imported = good(dir, &["model", "import", "net.onnx", "-o", "net.tacit", "--backend", "none"]);
    for output in [imported, good(dir, &["model", "inspect", "net.tacit"])] {
        assert_plain_lines(&output);
        assert_contains(&output, &["[2J"]);
    }
}

/// Runs a command, which must end within a minute.
fn in_time(dir: &Path, args: &[&str]) -> Output {
    let mut child = command(dir, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("tacit {args:?} hangs");
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn only_regular_files_are_read() {
    let dir = &Folder::new();
    good(dir, &["zoo", "tiny-cnn", "-o", "net.onnx"]);
    good(dir, &["model", "import", "net.onnx", "-o", "net.tacit", "--backend", "none"]);
    mkfifoat(CWD, dir.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    for name in ["pipe.npy", "pipe.tacit", "pipe.lowered", "pipe.onnx"] {
        std::os::unix::fs::symlink("pipe", dir.join(name)).unwrap();
    }
    let _socket = UnixListener::bind(dir.join("socket")).unwrap();
    fs::create_dir(dir.join("folder")).unwrap();
    let import = |file| vec!["model", "import", file, "-o", "x.tacit", "--backend", "none"];
    for (expected, args) in [
        ("a named pipe", import("pipe")),
        ("a device", import("/dev/zero")),
        ("a folder", import("folder")),
        ("a socket", import("socket")),
        ("a named pipe", [import("net.onnx"), vec!["--calibrate", "pipe.npy"]].concat()),
        ("a device", [import("net.onnx"), vec!["--calibrate", "/dev/zero"]].concat()),
        ("a named pipe", vec!["model", "run", "net.tacit", "pipe"]),
        ("a named pipe", vec!["model", "run", "net.tacit", "pipe.npy"]),
        ("a device", vec!["model", "run", "net.tacit", "/dev/zero"]),
        ("a named pipe", vec!["model", "run", "pipe.tacit", "pipe.npy"]),
        ("a named pipe", vec!["model", "inspect", "pipe.tacit"]),
        ("a named pipe", vec!["model", "inspect", "pipe.lowered"]),
        ("a named pipe", vec!["model", "lower", "pipe.tacit"]),
        ("a named pipe", vec!["bench", "--model", "pipe.onnx"]),
        ("a named pipe", vec!["simulate", "replay", "pipe"]),
    ] {
        let output = in_time(dir, &args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn file_size_limit_is_reported() {
    let dir = &Folder::new();
    good(dir, &["zoo", "tiny-cnn", "-o", "net.onnx"]);
    let limited = "ulimit -f 1; exec \"$0\" model import net.onnx -o net.tacit --backend none";
    let output =
        Command::new("sh").current_dir(&**dir).args(["-c", limited, env!("CARGO_BIN_EXE_tacit")]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_contains(&error, &["net.tacit", "File too large"]);
}
