//! The program `tacit-server`: errors at the start, the log, and output that nobody reads.
use crate::common::*;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::Backend;
use tacit_client::wire::{REPLY, Reply, Request, public_digest};
use tacit_client::{Client, ClientConfig, ClientError, Connection};
use tacit_net::{Channel, Hello, TcpTransport, handshake};
use tacit_store::{Party, Store, keys};

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

fn server() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacit-server"));
    command.stdin(Stdio::null()).env_remove("TACIT_LOG");
    command
}

fn error_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "nothing is announced");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns an address on which a program can listen. Its port is below those that the system assigns, so
/// that no other test gets it before the program binds it.
fn free_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = process::id() * 64;
    let ports = (0..10_000).map(|_| 12_000 + (start + NEXT.fetch_add(1, Ordering::SeqCst)) % 20_000);
    let mut addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    addresses.find(|address| TcpListener::bind(address).is_ok()).expect("one of so many is free")
}

/// The program, serving the toy model `one`.
struct Program {
    child: Child,
    address: String,
}

impl Program {
    fn start(dir: &Path, tune: impl FnOnce(&mut Command)) -> Self {
        let mut program = Self::spawn(dir, tune);
        program.wait_until_it_listens();
        program
    }

    fn spawn(dir: &Path, tune: impl FnOnce(&mut Command)) -> Self {
        if !dir.join("keys").exists() {
            keys::init(&dir.join("keys"), &[], &["alice".into()]).unwrap();
        }
        fs::write(dir.join("one.tacit"), tacit_graph::file::write(&model(1)).unwrap()).unwrap();
        let address = free_address();
        let mut command = server();
        command.current_dir(dir).args(["one.tacit", "--backend", "toy", "--allow-clear", "--listen", &address]);
        tune(&mut command);
        Self { child: command.spawn().unwrap(), address }
    }

    fn wait_until_it_listens(&mut self) {
        while TcpStream::connect(&self.address).is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "it did not start");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the program with a log at this level; the function reads the log.
    fn logging(dir: &Path, level: &str, args: &[&str]) -> (Self, impl Fn() -> String) {
        let (mut program, log) = Self::starting(dir, level, args);
        program.wait_until_it_listens();
        (program, log)
    }

    /// As [`logging`](Self::logging), but does not wait until the program listens.
    fn starting(dir: &Path, level: &str, args: &[&str]) -> (Self, impl Fn() -> String) {
        let log = dir.join("log");
        let file = File::create(&log).unwrap();
        let program = Self::spawn(dir, |c| {
            c.args(args).stdout(Stdio::null()).stderr(file).env("TACIT_LOG", level);
        });
        (program, move || fs::read_to_string(&log).unwrap())
    }

    /// Starts the program without any output.
    fn silent(dir: &Path, args: &[&str]) -> Self {
        Self::start(dir, |c| {
            c.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        })
    }

    fn config(&self, dir: &Path) -> ClientConfig {
        ClientConfig::new(&self.address, keys::load_client(&dir.join("keys"), "alice").unwrap())
    }

    fn client(&self, dir: &Path) -> Client {
        Connection::connect(registry(), self.config(dir)).unwrap().open("one", None).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Asks the program to end, and checks that it succeeds.
    fn ends_when_asked(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.end().code(), Some(0));
    }

    /// Waits for the end of the program, for about a minute at most.
    fn end(&mut self) -> ExitStatus {
        for _ in 0..6000 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a full pipe; it stays full as long as its reader exists.
fn full_pipe() -> (io::PipeWriter, io::PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    // The thread ends with the reader.
    thread::spawn(
        move || while filler.write_all(&[b'.'; 512]).is_ok() && count.fetch_add(1, Ordering::SeqCst) < 1 << 20 {},
    );
    let mut before = 0;
    loop {
        thread::sleep(Duration::from_millis(200));
        match written.load(Ordering::SeqCst) {
            now if now > 0 && now == before => return (writer, reader),
            now => before = now,
        }
    }
}

fn strangers(address: &str) -> Vec<TcpStream> {
    let connect_one = |i: usize| {
        let mut stream = TcpStream::connect(address).unwrap();
        if i.is_multiple_of(2) {
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        }
        stream
    };
    (0..70).map(connect_one).collect()
}

#[test]
fn what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let key_dir = dir.path().join("keys");
    let error = error_of(server().arg("none.tacit").arg("--keys").arg(&key_dir));
    assert!(
        error.starts_with("error: ") && error.contains("server.pem") && error.contains("tacit keys init"),
        "{error}"
    );
    assert_eq!(error.matches("No such file").count(), 1, "a reason is told once: {error}");
    keys::init(&key_dir, &[], &[]).unwrap();
    let error = error_of(server().args(["none.tacit", "--backend", "nonsense"]).arg("--keys").arg(&key_dir));
    assert!(error.contains("nonsense"), "{error}");
    let error = error_of(server().args(["none.tacit", "-O", "key"]).arg("--keys").arg(&key_dir));
    assert!(error.contains("key=value"), "{error}");
    // A folder without `.tacit` files is reported.
    let error = error_of(server().arg(&key_dir).arg("--keys").arg(&key_dir));
    assert!(error.contains("keys: there is no .tacit file in this folder"), "{error}");
    // An invalid key is reported with its file name.
    fs::write(key_dir.join("server.key"), "nonsense").unwrap();
    let error = error_of(server().arg("none.tacit").arg("--keys").arg(&key_dir));
    assert!(error.contains("server.key"), "{error}");
}

#[test]
fn help_shows_every_switch() {
    let output = server().arg("--help").output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    for switch in [
        "--keys",
        "--dealings",
        "--listen",
        "--backend",
        "-O",
        "--allow-clear",
        "--material",
        "--seal",
        "--quota",
        "--expire",
        "--memory",
        "--memory-wait",
        "--pace",
        "--access",
        "--audit-days",
    ] {
        assert!(help.contains(switch), "{switch}: {help}");
    }
}

#[test]
fn numbers_out_of_range_are_refused_at_once() {
    for (switch, value, range) in [
        ("--threads", "100000", "1..=1024"),
        ("--threads", "0", "1..=1024"),
        ("--quota", "0", "1..=1000000"),
        ("--max-connections", "0", "1..=100000"),
        ("--stall", "0", "1..=86400"),
        ("--idle", "0", "1..=604800"),
        ("--pace", "0", "from 1bit to 1000gbit"),
        ("--pace", "0mbit", "from 1bit to 1000gbit"),
    ] {
        let output = server().args(["none.tacit", switch, value]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(switch) && error.contains(range), "{error}");
    }
}

#[test]
fn a_reader_that_is_gone_makes_no_panic() {
    let mut child = server().arg("none.tacit").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(1), "101 would be a panic");
}

/// Checks that a server with the output `out` survives strangers and a panicking job, and stops when asked.
fn outlives(case: &str, out: impl Fn() -> Stdio) {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::start(dir.path(), |c| {
        c.stdout(out()).stderr(out()).env("TACIT_LOG", "trace");
    });
    let crowd = strangers(&program.address);
    let mut client = program.client(dir.path());
    assert!(client.infer(&[tacit_backends::toy::PANIC, 0.0, 0.0, 0.0]).is_err());
    for _ in 0..20 {
        assert_eq!(program.client(dir.path()).infer(&X).unwrap().values, expected(1, &X), "{case}");
    }
    drop(crowd);
    program.ends_when_asked();
}

#[test]
fn a_full_disk_under_the_log_stops_nobody() {
    outlives("/dev/full", || File::options().write(true).open("/dev/full").unwrap().into());
}

#[test]
fn a_log_that_nobody_reads_any_more_stops_nobody() {
    outlives("a pipe without a reader", || io::pipe().unwrap().1.into());
}

#[test]
fn a_log_that_nobody_empties_stops_nobody() {
    let (writer, _reader) = full_pipe();
    outlives("a full pipe", || writer.try_clone().unwrap().into());
}

#[test]
fn the_log_names_client_and_address_and_sums_up_refusals() {
    let dir = tempfile::tempdir().unwrap();
    let (mut program, log) = Program::logging(dir.path(), "info", &[]);
    drop(strangers(&program.address));
    let client = keys::load_client(&dir.path().join("keys"), "alice").unwrap().fingerprint.to_string();
    let input = program.client(dir.path()).infer(&X).unwrap().name;
    // The refusals of all strangers are counted before the program is asked to stop.
    wait_until("the client is done", || log().contains("client done"));
    program.ends_when_asked();
    let text = log();
    assert!(!text.contains('\x1b'), "{text}");
    let connected = text.lines().find(|line| line.contains("client connected")).unwrap();
    assert!(connected.contains(&client) && connected.contains("address=127.0.0.1:"), "{connected}");
    for phase in ["offline done", "online done"] {
        let of_input = text.lines().find(|line| line.contains(&format!("input={input}")) && line.contains(phase));
        assert!(of_input.unwrap().contains(&client), "{text}");
    }
    let refusals: Vec<&str> = text.lines().filter(|line| line.contains("refused")).collect();
    assert!((1..=3).contains(&refusals.len()), "{refusals:#?}");
    assert!(refusals[0].contains("127.0.0.1:"), "{refusals:#?}");
    assert!(text.contains("TLS handshake") || text.contains("handshake with"), "{text}");
}

#[test]
fn a_hangup_reads_the_rules_again_and_wrong_ones_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let access = dir.path().join("access.toml");
    fs::write(&access, "[default]\nrevokd = true\n").unwrap();
    keys::init(&dir.path().join("keys"), &[], &["alice".into()]).unwrap();
    fs::write(dir.path().join("one.tacit"), tacit_graph::file::write(&model(1)).unwrap()).unwrap();
    let switches = ["one.tacit", "--backend", "toy", "--allow-clear", "--access", "access.toml"];
    let error = error_of(server().current_dir(dir.path()).args(switches));
    assert!(error.contains("line 2") && error.contains("revokd"), "{error}");
    fs::write(&access, "").unwrap();
    let (mut program, log) = Program::logging(dir.path(), "info", &["--access", "access.toml"]);
    let log_has = |text: &str| log().contains(text);
    // A server that answers also handles signals.
    let mut client = program.client(dir.path());
    fs::write(&access, "[default]\nrevokd = true\n").unwrap();
    program.signal(Signal::HUP);
    wait_until("it is told", || log_has("stay as they were") && log_has("unknown field `revokd`"));
    client.infer(&X).unwrap();
    fs::write(&access, "[default]\nrevoked = true\n").unwrap();
    program.signal(Signal::HUP);
    wait_until("it is told", || log_has("the rules of access have changed"));
    let error = Connection::connect(registry(), program.config(dir.path())).err().unwrap().to_string();
    assert!(error.contains("access was revoked"), "{error}");
    assert!(client.infer(&X).is_err());
    program.ends_when_asked();
}

#[test]
fn a_hangup_during_the_start_is_heeded_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--material", "material"];
    drop(Store::open(&dir.path().join("material"), Party::Server, None).unwrap());
    // The start waits for the ledger, which another connection has locked.
    let ledger = rusqlite::Connection::open(dir.path().join("material/ledger.sqlite")).unwrap();
    ledger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (mut program, log) = Program::starting(dir.path(), "info", &args);
    while !catches_hangups(program.child.id()) {
        assert!(program.child.try_wait().unwrap().is_none(), "it catches no hangup while it starts: {}", log());
    }
    program.signal(Signal::HUP);
    assert!(!log().contains("looked at again"), "it starts, and has looked at nothing: {}", log());
    ledger.execute_batch("ROLLBACK").unwrap();
    program.wait_until_it_listens();
    wait_until("it has looked again", || log().contains("the models on offer were looked at again"));
    program.client(dir.path()).infer(&X).unwrap();
    program.ends_when_asked();
}

#[test]
fn a_folder_is_looked_at_again_on_a_hangup() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("models");
    fs::create_dir(&folder).unwrap();
    keys::init(&dir.path().join("keys"), &[], &["alice".into()]).unwrap();
    let put = |name: &str, salt: u8| {
        fs::write(folder.join(name), tacit_graph::file::write(&model(salt)).unwrap()).unwrap();
    };
    put("two.tacit", 2);
    // Serves the file `one.tacit` and the folder `models`.
    let (mut program, log) = Program::logging(dir.path(), "info", &["models"]);
    // Waits for the n-th reload line of the log and returns it.
    let reload_line = |n: usize| {
        let lines = || {
            let text = log();
            let is_told = |line: &&str| line.contains("were looked at again") || line.contains("stay as they were");
            text.lines().filter(is_told).map(str::to_owned).collect::<Vec<String>>()
        };
        wait_until("it has looked", || lines().len() == n);
        lines().pop().unwrap()
    };
    let offered = || {
        let models = Connection::connect(registry(), program.config(dir.path())).unwrap().models().unwrap();
        models.into_iter().map(|model| model.name).collect::<Vec<_>>()
    };
    assert_eq!(offered(), ["one", "two"]);
    let mut client = program.client(dir.path());
    put("three.tacit", 3);
    fs::remove_file(folder.join("two.tacit")).unwrap();
    program.signal(Signal::HUP);
    let line = reload_line(1);
    assert!(
        line.contains("added=three=toy") && line.contains("withdrawn=two=toy") && line.contains("kept=1"),
        "{line}"
    );
    assert_eq!(offered(), ["one", "three"]);
    fs::write(folder.join("four.tacit"), b"half of it").unwrap();
    program.signal(Signal::HUP);
    let line = reload_line(2);
    assert!(
        line.contains("ERROR") && line.contains("the models stay as they were") && line.contains("four.tacit"),
        "{line}"
    );
    assert_eq!(offered(), ["one", "three"]);
    // A rewritten file is another model; a named file that is removed is withdrawn.
    fs::remove_file(folder.join("four.tacit")).unwrap();
    put("three.tacit", 4);
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    fs::remove_file(dir.path().join("one.tacit")).unwrap();
    program.signal(Signal::HUP);
    let line = reload_line(3);
    assert!(line.contains("replaced=three=toy") && line.contains("withdrawn=one=toy"), "{line}");
    assert_eq!(offered(), ["three"]);
    assert!(client.infer(&X).unwrap_err().to_string().contains("connect again"));
    program.ends_when_asked();
}

/// Returns the resident set of a process in bytes.
fn resident(child: &Child) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn an_idle_client_takes_little_memory() {
    const CLIENTS: u64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let limits = ["--max-connections", "400", "--connections-per-client", "400", "--max-control", "0"];
    let program = Program::silent(dir.path(), &limits);
    let identity = keys::load_client(&dir.path().join("keys"), "alice").unwrap();
    let open = |_| {
        let tcp = TcpTransport::connect(&program.address, Duration::from_secs(60)).unwrap();
        let mut channel = Channel::new(Box::new(identity.tls.connect(tcp, "127.0.0.1").unwrap()));
        handshake(&mut channel, &Hello::opening()).unwrap();
        assert_eq!(tacit_client::wire::recv_reply(&mut channel).unwrap(), Reply::Welcome);
        let public = public_part(&mut channel, "one");
        let plan = Toy::default().open(&public).unwrap().digest();
        handshake(&mut channel, &Hello::opened(plan, public_digest(&public))).unwrap();
        channel
    };
    // Warm up first: the first connections also allocate memory that all clients share.
    let first: Vec<Channel> = (0..10).map(open).collect();
    let before = resident(&program.child);
    let clients: Vec<Channel> = (0..CLIENTS).map(open).collect();
    let each = resident(&program.child).saturating_sub(before) / CLIENTS;
    assert!(each <= 48 << 10, "{each} bytes");
    drop((first, clients));
}

#[test]
fn a_second_signal_ends_the_grace() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::silent(dir.path(), &[]);
    // A job that waits for a client that does not answer.
    let identity = keys::load_client(&dir.path().join("keys"), "alice").unwrap();
    let tcp = TcpTransport::connect(&program.address, Duration::from_secs(60)).unwrap();
    let mut channel = Channel::new(Box::new(identity.tls.connect(tcp, "127.0.0.1").unwrap()));
    handshake(&mut channel, &Hello::opening()).unwrap();
    assert_eq!(tacit_client::wire::recv_reply(&mut channel).unwrap(), Reply::Welcome);
    let public = public_part(&mut channel, "one");
    let plan = Toy::default().open(&public).unwrap().digest();
    handshake(&mut channel, &Hello::opened(plan, public_digest(&public))).unwrap();
    assert_eq!(ask(&mut channel, &Request::Setup), Reply::Go);
    let start = Instant::now();
    program.signal(Signal::TERM);
    // The server accepts no connections: it has handled the first signal.
    wait_until("it stops", || Connection::connect(registry(), program.config(dir.path())).is_err());
    assert!(program.child.try_wait().unwrap().is_none(), "the job has its grace");
    program.signal(Signal::INT);
    assert_eq!(program.end().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(25), "the grace alone is 30 s: {:?}", start.elapsed());
    assert!(channel.recv_max(REPLY, 100).is_err());
}

#[test]
fn a_server_without_descriptors_says_so_and_serves_again_when_there_are_some() {
    let dir = tempfile::tempdir().unwrap();
    // Only at `debug` is each refusal logged on its own line.
    let (mut program, log) = Program::logging(dir.path(), "debug", &[]);
    let mut client = program.client(dir.path());
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    let open = fs::read_dir(format!("/proc/{}/fd", program.child.id())).unwrap().count() as u64;
    let few = Rlimit { current: Some(open + 8), maximum: Some(open + 8) };
    prlimit(Some(Pid::from_child(&program.child)), Resource::Nofile, few).unwrap();
    let crowd = strangers(&program.address);
    wait_until("it is told", || log().contains("Too many open files"));
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X), "whoever is in is served");
    drop(crowd);
    wait_until("others get in again", || Connection::connect(registry(), program.config(dir.path())).is_ok());
    program.ends_when_asked();
}

#[test]
fn a_server_that_is_killed_is_named_by_its_client() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::silent(dir.path(), &[]);
    let mut client = program.client(dir.path());
    client.infer(&X).unwrap();
    program.signal(Signal::KILL);
    program.end();
    let error = client.infer(&X).unwrap_err();
    assert!(matches!(&error, ClientError::Lost { server, .. } if *server == program.address), "{error}");
    let text = error.to_string();
    let lost = format!("lost the server at {}, asked for the inference: ", program.address);
    assert!(text.starts_with(&lost) && text.ends_with("Connect again"), "{text}");
    assert!(!text.contains('`') && !text.contains("expected"), "words of the protocol: {text}");
    let error = Connection::connect(registry(), program.config(dir.path())).err().unwrap().to_string();
    assert!(error.contains(&program.address) && error.contains("does it run"), "{error}");
}
