//! The program `tacit-server`: errors at the start, the log, signals, and output that nobody reads.
use crate::common::*;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tacit_client::wire::{REPLY, Reply, Request};
use tacit_client::{Client, ClientConfig, ClientError, Connection};
use tacit_net::{Channel, TcpTransport};
use tacit_store::{Party, Store, keys};

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
    dir: PathBuf,
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
        Self { child: command.spawn().unwrap(), address, dir: dir.to_owned() }
    }

    fn wait_until_it_listens(&mut self) {
        while TcpStream::connect(&self.address).is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "it did not start");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the program with a log at this level, and returns a function that reads the log.
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

    fn config(&self) -> ClientConfig {
        ClientConfig::new(&self.address, identity(&self.dir, "alice"))
    }

    fn connect(&self) -> Result<Connection, ClientError> {
        Connection::connect(registry(), self.config())
    }

    fn client(&self) -> Client {
        self.connect().unwrap().open("one", None).unwrap()
    }

    /// A channel on which model `one` is open.
    fn opened(&self) -> Channel {
        let tcp = TcpTransport::connect(&self.address, Duration::from_secs(60)).unwrap();
        let mut channel = greet(self.config().identity.tls.connect(tcp, "127.0.0.1").unwrap());
        open_toy_model(&mut channel, "one");
        channel
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops the program and checks that it succeeds.
    fn stop(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.wait_for_end().code(), Some(0));
    }

    /// Waits for the end of the program, for about a minute at most.
    fn wait_for_end(&mut self) -> ExitStatus {
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
fn names_missing_files() {
    let dir = Folder::new();
    let key_dir = dir.join("keys");
    let error_with = |args: &[&str]| error_of(server().args(args).arg("--keys").arg(&key_dir));
    let error = error_with(&["none.tacit"]);
    assert!(error.starts_with("error: "), "{error}");
    check_contains(&error, &["server.pem", "tacit keys init"]);
    assert_eq!(error.matches("No such file").count(), 1, "{error}");
    keys::init(&key_dir, &[], &[]).unwrap();
    check_contains(&error_with(&["none.tacit", "--backend", "nonsense"]), &["nonsense"]);
    check_contains(&error_with(&["none.tacit", "-O", "key"]), &["key=value"]);
    let without_models = key_dir.to_str().unwrap();
    check_contains(&error_with(&[without_models]), &["keys: there is no .tacit file in this folder"]);
    fs::write(key_dir.join("server.key"), "nonsense").unwrap();
    check_contains(&error_with(&["none.tacit"]), &["server.key"]);
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
fn refuses_numbers_out_of_range() {
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
        check_contains(&error, &[switch, range]);
    }
}

#[test]
fn closed_output_makes_no_panic() {
    let mut child = server().arg("none.tacit").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(1), "101 would be a panic");
}

/// Checks that a server with the output `out` survives strangers and a panicking job, and stops when asked.
fn outlives(case: &str, out: impl Fn() -> Stdio) {
    let dir = Folder::new();
    let mut program = Program::start(&dir, |c| {
        c.stdout(out()).stderr(out()).env("TACIT_LOG", "trace");
    });
    let crowd = strangers(&program.address);
    let mut client = program.client();
    assert!(client.infer(&[tacit_backends::toy::PANIC, 0.0, 0.0, 0.0]).is_err());
    for _ in 0..20 {
        assert_eq!(program.client().infer(&X).unwrap().values, expected(1, &X), "{case}");
    }
    drop(crowd);
    program.stop();
}

#[test]
fn survives_full_log_disk() {
    outlives("/dev/full", || File::options().write(true).open("/dev/full").unwrap().into());
}

#[test]
fn survives_closed_log_pipe() {
    outlives("a pipe without a reader", || io::pipe().unwrap().1.into());
}

#[test]
fn survives_full_log_pipe() {
    let (writer, _reader) = full_pipe();
    outlives("a full pipe", || writer.try_clone().unwrap().into());
}

#[test]
fn logs_clients_and_sums_up_refusals() {
    let dir = Folder::new();
    let (mut program, log) = Program::logging(&dir, "info", &[]);
    drop(strangers(&program.address));
    let client = identity(&dir, "alice").fingerprint.to_string();
    let input = program.client().infer(&X).unwrap().name;
    // The log sums up the refusals before the program stops.
    wait_until("the client is done", || log().contains("client done"));
    program.stop();
    let text = log();
    assert!(!text.contains('\x1b'), "{text}");
    let connected = text.lines().find(|line| line.contains("client connected")).unwrap();
    check_contains(connected, &[&client, "address=127.0.0.1:"]);
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
fn hangup_reloads_access_rules() {
    let dir = Folder::new();
    let access = dir.join("access.toml");
    fs::write(&access, "[default]\nrevokd = true\n").unwrap();
    keys::init(&dir.join("keys"), &[], &["alice".into()]).unwrap();
    fs::write(dir.join("one.tacit"), tacit_graph::file::write(&model(1)).unwrap()).unwrap();
    let switches = ["one.tacit", "--backend", "toy", "--allow-clear", "--access", "access.toml"];
    let error = error_of(server().current_dir(&*dir).args(switches));
    check_contains(&error, &["line 2", "revokd"]);
    fs::write(&access, "").unwrap();
    let (mut program, log) = Program::logging(&dir, "info", &["--access", "access.toml"]);
    let log_has = |text: &str| log().contains(text);
    // A server that answers also handles signals.
    let mut client = program.client();
    fs::write(&access, "[default]\nrevokd = true\n").unwrap();
    program.signal(Signal::HUP);
    wait_until("the error is logged", || log_has("stay as they were") && log_has("unknown field `revokd`"));
    client.infer(&X).unwrap();
    fs::write(&access, "[default]\nrevoked = true\n").unwrap();
    program.signal(Signal::HUP);
    wait_until("the change is logged", || log_has("the rules of access have changed"));
    check_contains(&program.connect().err().unwrap().to_string(), &["access was revoked"]);
    assert!(client.infer(&X).is_err());
    program.stop();
}

#[test]
fn handles_hangup_during_start() {
    let dir = Folder::new();
    drop(Store::open(&dir.join("material"), Party::Server, None).unwrap());
    // The start waits for the ledger, which another connection has locked.
    let ledger = rusqlite::Connection::open(dir.join("material/ledger.sqlite")).unwrap();
    ledger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (mut program, log) = Program::starting(&dir, "info", &["--material", "material"]);
    while !catches_hangups(program.child.id()) {
        assert!(program.child.try_wait().unwrap().is_none(), "no handler of SIGHUP: {}", log());
    }
    program.signal(Signal::HUP);
    assert!(!log().contains("looked at again"), "reloaded before the start: {}", log());
    ledger.execute_batch("ROLLBACK").unwrap();
    program.wait_until_it_listens();
    wait_until("the models are reloaded", || log().contains("the models on offer were looked at again"));
    program.client().infer(&X).unwrap();
    program.stop();
}

#[test]
fn hangup_reloads_models() {
    let dir = Folder::new();
    let folder = dir.join("models");
    fs::create_dir(&folder).unwrap();
    keys::init(&dir.join("keys"), &[], &["alice".into()]).unwrap();
    let put = |name: &str, salt: u8| {
        fs::write(folder.join(name), tacit_graph::file::write(&model(salt)).unwrap()).unwrap();
    };
    put("two.tacit", 2);
    // Serves the file `one.tacit` and the folder `models`.
    let (mut program, log) = Program::logging(&dir, "info", &["models"]);
    // Waits for the n-th line of the log about a reload.
    let reload_line = |n: usize| {
        let lines = || {
            let text = log();
            let is_reload = |line: &&str| line.contains("were looked at again") || line.contains("stay as they were");
            text.lines().filter(is_reload).map(str::to_owned).collect::<Vec<String>>()
        };
        wait_until("the reload is logged", || lines().len() == n);
        lines().pop().unwrap()
    };
    let offered = || {
        let models = program.connect().unwrap().models().unwrap();
        models.into_iter().map(|model| model.name).collect::<Vec<_>>()
    };
    assert_eq!(offered(), ["one", "two"]);
    let mut client = program.client();
    put("three.tacit", 3);
    fs::remove_file(folder.join("two.tacit")).unwrap();
    program.signal(Signal::HUP);
    check_contains(&reload_line(1), &["added=three=toy", "withdrawn=two=toy", "kept=1"]);
    assert_eq!(offered(), ["one", "three"]);
    fs::write(folder.join("four.tacit"), b"half of it").unwrap();
    program.signal(Signal::HUP);
    check_contains(&reload_line(2), &["ERROR", "the models stay as they were", "four.tacit"]);
    assert_eq!(offered(), ["one", "three"]);
    // A rewritten file is another model; a named file that is removed is withdrawn.
    fs::remove_file(folder.join("four.tacit")).unwrap();
    put("three.tacit", 4);
    check_answer(&mut client, 1);
    fs::remove_file(dir.join("one.tacit")).unwrap();
    program.signal(Signal::HUP);
    check_contains(&reload_line(3), &["replaced=three=toy", "withdrawn=one=toy"]);
    assert_eq!(offered(), ["three"]);
    assert!(client.infer(&X).unwrap_err().to_string().contains("connect again"));
    program.stop();
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
    let dir = Folder::new();
    let limits = ["--max-connections", "400", "--connections-per-client", "400", "--max-control", "0"];
    let program = Program::silent(&dir, &limits);
    // Warm up first: the first connections also allocate memory that all clients share.
    let first: Vec<Channel> = (0..10).map(|_| program.opened()).collect();
    let before = resident(&program.child);
    let clients: Vec<Channel> = (0..CLIENTS).map(|_| program.opened()).collect();
    let each = resident(&program.child).saturating_sub(before) / CLIENTS;
    assert!(each <= 48 << 10, "{each} bytes");
    drop((first, clients));
}

#[test]
fn second_signal_ends_grace() {
    let dir = Folder::new();
    let mut program = Program::silent(&dir, &[]);
    // A job that waits for its client.
    let mut channel = program.opened();
    assert_eq!(ask(&mut channel, &Request::Setup), Reply::Go);
    let start = Instant::now();
    program.signal(Signal::TERM);
    // A server that has handled the first signal accepts no connections.
    wait_until("it stops", || program.connect().is_err());
    assert!(program.child.try_wait().unwrap().is_none());
    program.signal(Signal::INT);
    assert_eq!(program.wait_for_end().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(25), "the grace alone is 30 s: {:?}", start.elapsed());
    assert!(channel.recv_max(REPLY, 100).is_err());
}

#[test]
fn recovers_from_too_many_open_files() {
    let dir = Folder::new();
    // Only at `debug` is each refusal logged on its own line.
    let (mut program, log) = Program::logging(&dir, "debug", &[]);
    let mut client = program.client();
    check_answer(&mut client, 1);
    let open = fs::read_dir(format!("/proc/{}/fd", program.child.id())).unwrap().count() as u64;
    let few = Rlimit { current: Some(open + 8), maximum: Some(open + 8) };
    prlimit(Some(Pid::from_child(&program.child)), Resource::Nofile, few).unwrap();
    let crowd = strangers(&program.address);
    wait_until("the lack is logged", || log().contains("Too many open files"));
    check_answer(&mut client, 1);
    drop(crowd);
    wait_until("others get in again", || program.connect().is_ok());
    program.stop();
}

#[test]
fn client_names_killed_server() {
    let dir = Folder::new();
    let mut program = Program::silent(&dir, &[]);
    let mut client = program.client();
    client.infer(&X).unwrap();
    program.signal(Signal::KILL);
    program.wait_for_end();
    let error = client.infer(&X).unwrap_err();
    assert!(matches!(&error, ClientError::Lost { server, .. } if *server == program.address), "{error}");
    let text = error.to_string();
    let lost = format!("lost the server at {}, asked for the inference: ", program.address);
    assert!(text.starts_with(&lost) && text.ends_with("Connect again"), "{text}");
    assert!(!text.contains('`') && !text.contains("expected"), "{text}");
    check_contains(&program.connect().err().unwrap().to_string(), &[&program.address, "does it run"]);
}
