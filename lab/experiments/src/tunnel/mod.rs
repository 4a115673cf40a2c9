//! WireGuard tunnels between the two sides of a link, with keys made for one run.
//!
//! Uses the kernel's WireGuard if possible, otherwise this crate's user-space end around
//! `boringtun`, one process per side, so that its CPU time counts to that side.
//!
//! Every packet is encrypted and authenticated, and duplicates are refused. Only its tunnel key
//! identifies the peer, and any program on that host may use the tunnel: see `docs/threat-model.md`.
mod core;
mod kernel;
mod process;
mod user;

pub use self::core::{BORINGTUN, Core, EndConfig, Incoming, OVERHEAD, SecretKey, Stats};
pub use process::run_process;

use crate::LabError;
use crate::link::{Link, Side};
use process::Handle;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Largest packet in the tunnel, bytes: fits a link of 1500 even over IPv6, as in `wg-quick`.
pub const MTU: u16 = 1420;
/// Port of the ends on the link.
const PORT: u16 = 51820;
/// Name of the interfaces, each in its side's namespace. The meter does not count the traffic of `wg`,
/// `tun` and `tap` interfaces twice.
const INTERFACE: &str = "wg-tacit";

/// The requested implementation of WireGuard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The kernel's if it works, otherwise user space.
    Auto,
    /// Only the kernel's.
    Kernel,
    /// Only user space.
    UserSpace,
}

/// How user-space ends run.
#[derive(Clone, Debug)]
pub enum Host {
    /// As processes: a program and its first arguments, which must call [`run_process`].
    Processes(OsString, Vec<OsString>),
    /// On threads of this process: for tests; their CPU time cannot be separated.
    Threads,
}

/// Options of a tunnel.
#[derive(Clone, Debug)]
pub struct Options {
    /// The requested implementation of WireGuard.
    pub choice: Choice,
    /// How user-space ends run.
    pub host: Host,
    /// Time limit of the first handshake, including lost and repeated messages.
    pub patience: Duration,
}

impl Options {
    /// Any WireGuard, in user space as processes of `program` (`tacit`), with a limit of 30 s.
    #[must_use]
    pub fn for_program(program: &Path) -> Self {
        let host = Host::Processes(program.into(), vec!["lab".into(), "tunnel-process".into()]);
        Self { choice: Choice::Auto, host, patience: Duration::from_secs(30) }
    }
}

/// The settings of both ends of a tunnel.
pub struct TunnelEnds {
    /// The client's end.
    pub client: EndConfig,
    /// The server's end.
    pub server: EndConfig,
}

/// A running tunnel with a session. Drop it before its link.
pub struct Tunnel {
    inner: [Ipv4Addr; 2],
    ends: Option<[UserEnd; 2]>,
    facts: BTreeMap<String, String>,
}

struct UserEnd {
    // Dropped first, which ends the process.
    handle: Handle,
    child: Option<Child>,
}

impl Drop for UserEnd {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // An end stops by itself at the end of its input, unless it is stuck in sending.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn index(side: Side) -> usize {
    match side {
        Side::Client => 0,
        Side::Server => 1,
    }
}

impl Tunnel {
    /// Sets up a tunnel over `link` with fresh keys and waits for a session.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] if the kernel's WireGuard was requested and is missing, or rights
    /// are missing; [`LabError::Failed`] with the failed step, such as the handshake.
    pub fn up(link: &Link, options: &Options) -> Result<Self, LabError> {
        Self::with_ends(link, options, Self::ends(link)?)
    }

    /// Fresh keys and all settings for the two ends.
    ///
    /// # Errors
    /// [`LabError::Failed`] if the operating system has no random numbers.
    pub fn ends(link: &Link) -> Result<TunnelEnds, LabError> {
        let secrets = [random_key()?, random_key()?];
        let public = [secrets[0].public(), secrets[1].public()];
        // In the private range 10.0.0.0/8; the link's addresses are in 198.18.0.0/15.
        let inner = [Ipv4Addr::new(10, 213, 77, 1), Ipv4Addr::new(10, 213, 77, 2)];
        let outer = [Side::Client, Side::Server].map(|side| SocketAddr::new(link.address(side).into(), PORT));
        let [client, server] = secrets;
        let end = |secret, own_index: usize, peer_index: usize| EndConfig {
            secret,
            peer: public[peer_index],
            local: outer[own_index],
            remote: outer[peer_index],
            inner: inner[own_index],
            peer_inner: inner[peer_index],
            mtu: MTU,
            interface: INTERFACE.into(),
        };
        Ok(TunnelEnds { client: end(client, 0, 1), server: end(server, 1, 0) })
    }

    /// As [`up`](Self::up), with the caller's keys.
    ///
    /// # Errors
    /// As [`up`](Self::up).
    pub fn with_ends(link: &Link, options: &Options, ends: TunnelEnds) -> Result<Self, LabError> {
        let probed =
            if options.choice == Choice::UserSpace { Err("it was asked for".to_owned()) } else { kernel::probe(link)? };
        match probed {
            Ok(version) => Self::in_kernel(link, options, ends, &version),
            Err(reason) if options.choice == Choice::Kernel => {
                let remedy = "load the module `wireguard` and install wireguard-tools, or use the one in user space";
                Err(LabError::unavailable("the kernel's WireGuard", reason, remedy))
            }
            Err(reason) => Self::in_user_space(link, options, ends, &reason),
        }
    }

    fn in_kernel(link: &Link, options: &Options, ends: TunnelEnds, version: &str) -> Result<Self, LabError> {
        let TunnelEnds { client, server } = ends;
        let inner = [client.inner, server.inner];
        kernel::up(link, Side::Server, server)?;
        kernel::up(link, Side::Client, client)?;
        wait_for_session(options.patience, || {
            let up = [Side::Client, Side::Server].map(|side| kernel::connected(link, side, INTERFACE.into()));
            let [client, server] = up;
            Ok((client? && server?, String::new()))
        })?;
        let facts = facts(&format!("kernel, {version}"), "the kernel has it; its CPU time belongs to no process");
        Ok(Self { inner, ends: None, facts })
    }

    fn in_user_space(link: &Link, options: &Options, ends: TunnelEnds, reason: &str) -> Result<Self, LabError> {
        let TunnelEnds { client, server } = ends;
        let inner = [client.inner, server.inner];
        let server = start_end(link, Side::Server, options, server)?;
        let mut client = start_end(link, Side::Client, options, client)?;
        client.handle.ask("handshake")?;
        let mut ends = [client, server];
        // The first may be lost, for example because a new link is not quite ready; the protocol
        // itself waits 5 s. An answer to the second to last still counts, and needs enough time.
        let retry_after = Duration::from_secs(1) + 2 * link.spec().rtt();
        let mut asked_at = Instant::now();
        wait_for_session(options.patience, || {
            if asked_at.elapsed() >= retry_after {
                ends[0].handle.ask("handshake")?;
                asked_at = Instant::now();
            }
            let (client, server) = (ends[0].handle.ask("stats")?, ends[1].handle.ask("stats")?);
            let refused = client.forged + server.forged;
            let detail = format!("; {} handshakes were sent, {refused} datagrams refused as forged", client.handshakes);
            Ok((client.session_age_s.is_some() && server.session_age_s.is_some(), detail))
        })?;
        let facts = facts(&format!("user space, boringtun {BORINGTUN}"), reason);
        Ok(Self { inner, ends: Some(ends), facts })
    }

    /// The address of `side` in the tunnel.
    #[must_use]
    pub fn address(&self, side: Side) -> Ipv4Addr {
        self.inner[index(side)]
    }

    /// Ids of the processes of `side`'s end: none for the kernel's WireGuard and for threads.
    #[must_use]
    pub fn processes(&self, side: Side) -> Vec<u32> {
        let end = self.ends.as_ref().map(|ends| &ends[index(side)]);
        end.and_then(|end| end.child.as_ref()).map(Child::id).into_iter().collect()
    }

    /// Counters of `side`; `None` for the kernel's WireGuard, which has none.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the reason if the end has failed.
    pub fn stats(&mut self, side: Side) -> Result<Option<Stats>, LabError> {
        self.ends.as_mut().map(|ends| ends[index(side)].handle.ask("stats")).transpose()
    }

    /// For the record: the WireGuard in use (`wireguard`), and the reason (`wireguard_choice`).
    #[must_use]
    pub fn facts(&self) -> &BTreeMap<String, String> {
        &self.facts
    }
}

fn random_key() -> Result<SecretKey, LabError> {
    SecretKey::random().map_err(LabError::failed("making the tunnel's keys"))
}

fn facts(implementation: &str, reason: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("wireguard".to_owned(), implementation.to_owned()),
        ("wireguard_choice".to_owned(), reason.to_owned()),
    ])
}

fn start_end(link: &Link, side: Side, options: &Options, config: EndConfig) -> Result<UserEnd, LabError> {
    match &options.host {
        Host::Threads => {
            let for_io = config.clone();
            let io = link.within(side, move || user::Io::open(&for_io))??;
            Ok(UserEnd { handle: Handle::thread(config, io)?, child: None })
        }
        Host::Processes(program, arguments) => {
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = link.spawn(side, &mut command)?;
            let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(LabError::failed("starting the tunnel")("it has no pipes"));
            };
            Ok(UserEnd { handle: Handle::process(stdin, stdout, &config)?, child: Some(child) })
        }
    }
}

/// Calls `connected` until it returns true; a timeout reports its last remark.
fn wait_for_session(
    patience: Duration,
    mut connected: impl FnMut() -> Result<(bool, String), LabError>,
) -> Result<(), LabError> {
    let end = Instant::now() + patience;
    loop {
        let (up, detail) = connected()?;
        if up {
            return Ok(());
        }
        if Instant::now() >= end {
            let detail =
                format!("no session within {} s{detail}: a wrong key, or nothing gets through", patience.as_secs());
            return Err(LabError::failed("WireGuard handshake")(detail));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
