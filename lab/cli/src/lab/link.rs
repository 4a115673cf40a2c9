//! `tacit lab link`: a program over an emulated link.
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tacit_cli::print;
use tacit_experiments::campaign::LinkFigures;
use tacit_experiments::link::accuracy::{RATES, RTTS, Row, misses};
use tacit_experiments::link::{CONGESTION_CONTROL, Link, Side, is_listening};
use tacit_net::Rate;
use tacit_net::link::{LinkSpec, LinkSpecText, PRESETS, format_duration, parse_duration};

/// How long `COMMAND` may take to end after Ctrl-C.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long `--server` has to listen.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);
/// The exit status that the shell reports for a program that Ctrl-C ended: 128 + SIGINT.
const INTERRUPTED_STATUS: i32 = 130;

const HELP: &str = "\
COMMAND runs on the client side and finds the addresses in TACIT_LINK_SERVER and TACIT_LINK_CLIENT; this program ends with its exit status.
Rates are TCP goodput (payload bits per second); without a rate, the link is not limited. The program needs root and iproute2.
Each side has no network but the link, and the program removes the link whenever it ends.
Examples:
  tacit lab link --rate 20mbit --rtt 40ms --server 'iperf3 -s -1' --server-port 5201 -- sh -c 'iperf3 -c $TACIT_LINK_SERVER'
  tacit lab link --preset lte --loss 0.01
  tacit lab link --list";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    link: LinkOptions,
    /// List the named links and their sources
    #[arg(long, conflicts_with_all = ["accuracy", "command"], help_heading = "Output")]
    list: bool,
    /// Measure a table of links against their bounds (about a minute)
    #[arg(long, conflicts_with = "command", help_heading = "Output")]
    accuracy: bool,
    /// Start COMMAND without measuring the link first
    #[arg(long, help_heading = "Limits")]
    no_measure: bool,
    /// Time to measure the link for
    #[arg(long, default_value = "3s", help_heading = "Limits")]
    effort: String,
    /// Shell command to start first, on the server side
    #[arg(long, value_name = "SHELL COMMAND", help_heading = "Server")]
    server: Option<String>,
    /// TCP port on the server side to wait for, until the server listens
    #[arg(long, requires = "server", help_heading = "Server")]
    server_port: Option<u16>,
    /// Print the measurement as a line of JSON on standard output, not as text on standard error;
    /// print lists and tables as JSON
    #[arg(long)]
    json: bool,
    /// Command to run on the client side [default: none, only measure the link]
    #[arg(last = true)]
    command: Vec<String>,
}

// A doc comment would be help.
#[derive(clap::Args)]
struct LinkOptions {
    /// Goodput in each direction: 20mbit, 3.89mbit, 64kbit
    #[arg(long, help_heading = "Link")]
    rate: Option<Rate>,
    /// Goodput from client to server (overrides --rate)
    #[arg(long, help_heading = "Link")]
    up: Option<Rate>,
    /// Goodput from server to client (overrides --rate)
    #[arg(long, help_heading = "Link")]
    down: Option<Rate>,
    /// Round-trip time of the idle link: 40ms
    #[arg(long, help_heading = "Link")]
    rtt: Option<String>,
    /// Variation of the round-trip time, in both directions: 5ms
    #[arg(long, help_heading = "Link")]
    jitter: Option<String>,
    /// Fraction of packets to lose, in each direction
    #[arg(long, help_heading = "Link")]
    loss: Option<f64>,
    /// Fraction of packets with a changed payload byte that no checksum detects, in each direction
    #[arg(long, help_heading = "Link")]
    corrupt: Option<f64>,
    /// Fraction of packets to send again later, in each direction
    #[arg(long, help_heading = "Link")]
    duplicate: Option<f64>,
    /// Named link to start from (see --list); other options override its properties
    #[arg(long, help_heading = "Link")]
    preset: Option<String>,
}

impl LinkOptions {
    fn spec(&self) -> Result<LinkSpec> {
        let Self { rate, up, down, rtt, jitter, loss, corrupt, duplicate, preset } = self;
        let text = LinkSpecText {
            name: None,
            preset: preset.clone(),
            rate: *rate,
            up: *up,
            down: *down,
            rtt: rtt.clone(),
            jitter: jitter.clone(),
            loss: *loss,
            corrupt: *corrupt,
            duplicate: *duplicate,
        };
        Ok(LinkSpec::parse(&text)?)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let effort =
        parse_duration(&args.effort).map_err(|detail| anyhow::anyhow!("effort {:?}: {detail}", args.effort))?;
    if args.list {
        return list(args.json);
    }
    if args.accuracy {
        return accuracy(effort, args.json);
    }
    let spec = args.link.spec()?;
    if args.no_measure && args.command.is_empty() {
        bail!("--no-measure without a COMMAND leaves nothing to do; give a COMMAND after --");
    }
    let link = Link::up(&spec)?;
    if !args.no_measure {
        report(&spec, &link.measure(effort)?, args.json)?;
    }
    let Some((program, arguments)) = args.command.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments);
    let code = serve_and_run(&link, args, command)?;
    // `exit` does not drop the link.
    drop(link);
    if code == 0 { Ok(()) } else { std::process::exit(code) }
}

fn list(as_json: bool) -> Result<()> {
    if as_json {
        let presets = PRESETS.iter().map(
            |preset| json!({ "name": preset.name, "link": LinkSpec::from(preset).describe(), "source": preset.source }),
        );
        return print::json(&presets.collect());
    }
    for preset in PRESETS {
        print::line(&format!(
            "{:<12} {}\n{:<12} {}",
            preset.name,
            LinkSpec::from(preset).describe(),
            "",
            preset.source
        ))?;
    }
    Ok(())
}

fn report(spec: &LinkSpec, figures: &LinkFigures, json: bool) -> Result<()> {
    if json {
        let mut line = serde_json::to_value(figures)?;
        let fields = line.as_object_mut().context("link figures are no JSON object")?;
        fields.insert("link".into(), spec.describe().into());
        fields.insert("congestion_control".into(), CONGESTION_CONTROL.into());
        print::line(&line.to_string())?;
        return Ok(());
    }
    print::note(&format!("link: {} ({}, {CONGESTION_CONTROL})", spec.name(), spec.describe()));
    for (way, target, achieved) in
        [("up", figures.target_up_bps, figures.up_bps), ("down", figures.target_down_bps, figures.down_bps)]
    {
        let deviation =
            target.map_or(String::new(), |target| format!(" ({:+.1} %)", 100.0 * (achieved / target - 1.0)));
        print::note(&format!("  {way:<4} {:>9} Mbit/s{deviation}", megabits(achieved)));
    }
    print::note(&format!(
        "  round trip {:.2} ms idle, {:.2} ms under load",
        1e3 * figures.rtt_s,
        1e3 * figures.loaded_rtt_s
    ));
    Ok(())
}

fn megabits(bps: f64) -> String {
    format!("{:.2}", bps / 1e6)
}

/// Prints the table of the documentation; as JSON, a line for each link.
fn accuracy(effort: Duration, as_json: bool) -> Result<()> {
    let head = [
        "| rate | RTT | up, Mbit/s | down, Mbit/s | idle RTT, ms | loaded RTT, ms | emulator, us/packet (bytes) | bounds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ];
    for line in head.iter().filter(|_| !as_json) {
        print::line(line)?;
    }
    for rate in RATES {
        for rtt in RTTS {
            let row = Row::measure(rate, rtt, effort)?;
            let (figures, emulator) = (&row.figures, &row.emulator);
            let packets = emulator.delivered.max(1);
            let misses = misses(figures);
            if as_json {
                print::line(&json!({ "rate": rate, "rtt": rtt, "measured": figures, "misses": misses }).to_string())?;
                continue;
            }
            print::line(&format!(
                "| {rate} | {rtt} | {} | {} | {:.2} | {:.2} | {:.1} ({}) | {} |",
                megabits(figures.up_bps),
                megabits(figures.down_bps),
                1e3 * figures.rtt_s,
                1e3 * figures.loaded_rtt_s,
                1e6 * emulator.cpu.as_secs_f64() / packets as f64,
                emulator.bytes / packets,
                if misses.is_empty() { "held".to_owned() } else { misses.join(", ") },
            ))?;
        }
    }
    Ok(())
}

enum Event {
    Ended(std::io::Result<ExitStatus>),
    Interrupted,
}

/// Starts the server, if there is one, and `command`; returns the exit status to pass on.
fn serve_and_run(link: &Link, args: &Args, mut command: Command) -> Result<i32> {
    let (tell, events) = channel();
    let interrupt: Sender<Event> = tell.clone();
    // After the run the channel is closed, and the interrupt is ignored.
    ctrlc::set_handler(move || _ = interrupt.send(Event::Interrupted)).context("cannot watch for Ctrl-C")?;
    let mut server = None;
    if let Some(text) = &args.server {
        let mut shell = Command::new("sh");
        shell.args(["-c", text]);
        server = Some(link.spawn(Side::Server, with_addresses(link, &mut shell))?);
    }
    if let (Some(port), Some(server)) = (args.server_port, &mut server)
        && !await_port(link, server, port, &events)?
    {
        return Ok(INTERRUPTED_STATUS);
    }
    let mut child = link.spawn(Side::Client, with_addresses(link, &mut command))?;
    let process = child.id();
    std::thread::spawn(move || tell.send(Event::Ended(child.wait())));
    let code = wait(process, &events);
    if let Some(mut server) = server {
        _ = server.kill();
        _ = server.wait();
    }
    code
}

fn with_addresses<'a>(link: &Link, command: &'a mut Command) -> &'a mut Command {
    let [server, client] = [Side::Server, Side::Client].map(|side| link.address(side).to_string());
    command.env("TACIT_LINK_SERVER", server).env("TACIT_LINK_CLIENT", client)
}

/// Waits for the end of the process; after Ctrl-C at most for `INTERRUPT_TIMEOUT`.
fn wait(process: u32, events: &Receiver<Event>) -> Result<i32> {
    match events.recv()? {
        Event::Ended(status) => Ok(code(status?)),
        Event::Interrupted => {
            // A terminal signals the program as well; this is for a signal to this process alone.
            _ = Command::new("kill").args(["-TERM", &process.to_string()]).status();
            match events.recv_timeout(INTERRUPT_TIMEOUT) {
                Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(INTERRUPTED_STATUS),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// The exit status as the shell reports it: 128 + signal for a killed program.
fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Waits until `port` listens on the server side; returns false after Ctrl-C.
fn await_port(link: &Link, server: &mut Child, port: u16, events: &Receiver<Event>) -> Result<bool> {
    let until = Instant::now() + SERVER_TIMEOUT;
    loop {
        if link.within(Side::Server, move || listening(port))?? {
            return Ok(true);
        }
        if let Some(status) = server.try_wait()? {
            bail!("the server ended ({status}) before it listened on port {port}");
        }
        if Instant::now() > until {
            bail!("the server did not listen on port {port} within {}", format_duration(SERVER_TIMEOUT));
        }
        match events.recv_timeout(Duration::from_millis(20)) {
            Err(RecvTimeoutError::Timeout) => (),
            _ => return Ok(false),
        }
    }
}

/// Whether a TCP port listens in this thread's namespace, according to the kernel's tables (proc(5)).
fn listening(port: u16) -> std::io::Result<bool> {
    for table in ["tcp", "tcp6"] {
        match std::fs::read_to_string(format!("/proc/thread-self/net/{table}")) {
            Ok(text) if is_listening(&text, port) => return Ok(true),
            Ok(_) => {}
            // The kernel has no IPv6.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_is_found_and_a_closed_one_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening(port).unwrap());
        drop(listener);
        // A child that another test has just forked holds the port open for a while.
        let closed = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !listening(port).unwrap()
        });
        assert!(closed);
    }

    #[test]
    fn a_killed_program_has_the_shells_status() {
        let status = |script: &str| Command::new("sh").args(["-c", script]).status().unwrap();
        assert_eq!(code(status("exit 7")), 7);
        assert_eq!(code(status("kill -9 $$")), 137);
    }
}
