//! One party's end of a two-party computation.

use tacit_arith::prg::Prg;
use tacit_net::Channel;

use crate::ot::{Ot, RandomOtReceiver, RandomOtSender};
use crate::{MpcError, Role};

/// A party's role, its channel to the other party, its randomness and its random OTs in both directions.
pub struct Session {
    /// Which party this is.
    pub role: Role,
    /// The connection.
    pub channel: Channel,
    /// Private randomness, seeded from the operating system.
    pub prg: Prg,
    /// Random OTs as sender.
    pub sender: Box<dyn RandomOtSender + Send>,
    /// Random OTs as receiver.
    pub receiver: Box<dyn RandomOtReceiver + Send>,
}

impl Session {
    /// Starts a session: randomness from the operating system, base OTs and the state of the OT extension in both directions.
    ///
    /// # Errors
    /// No OS randomness, channel errors, a peer that does not follow the base OT.
    pub fn start(role: Role, mut channel: Channel) -> Result<Self, MpcError> {
        let mut prg = Prg::from_os()?;
        let ot = crate::ot::setup(role, &mut channel, &mut prg)?;
        Ok(Self::new(role, channel, prg, ot))
    }

    /// Tells both OT extensions how many random OTs are coming, so that they choose fitting parameters. Both parties must give the
    /// same numbers.
    pub fn reserve(&mut self, client_receives: usize, server_receives: usize) {
        let (sending, receiving) = match self.role {
            Role::Client => (server_receives, client_receives),
            Role::Server => (client_receives, server_receives),
        };
        self.sender.reserve(sending);
        self.receiver.reserve(receiving);
    }

    /// A session over given OTs.
    pub fn new<S, R>(role: Role, channel: Channel, prg: Prg, ot: Ot<S, R>) -> Self
    where
        S: RandomOtSender + Send + 'static,
        R: RandomOtReceiver + Send + 'static,
    {
        Self { role, channel, prg, sender: Box::new(ot.sender), receiver: Box::new(ot.receiver) }
    }
}

/// Runs both parties in one process over an in-memory channel with ideal OTs: the test bench of the protocols.
///
/// # Panics
/// With the panic of either party.
#[cfg(any(test, feature = "test-util"))]
pub fn run_sessions<C, S: Send>(
    seed: u64,
    client: impl FnOnce(&mut Session) -> C,
    server: impl FnOnce(&mut Session) -> S + Send,
) -> (C, S) {
    let (client_ot, server_ot) = crate::ot::ideal::ots(seed);
    let prg = |party: u8| Prg::from_seed(tacit_arith::prg::Seed([party; 16]));
    let (client_channel, server_channel) = tacit_net::mem_pair();
    let mut client_session = Session::new(Role::Client, client_channel, prg(1), client_ot);
    std::thread::scope(|scope| {
        let server = scope.spawn(move || server(&mut Session::new(Role::Server, server_channel, prg(2), server_ot)));
        let result = client(&mut client_session);
        drop(client_session);
        match server.join() {
            Ok(other) => (result, other),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
