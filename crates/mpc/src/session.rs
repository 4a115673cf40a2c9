//! One party's end of a two-party computation: what a phase is given, and what outlives the phases.

use tacit_arith::prg::Prg;
use tacit_net::Channel;

use crate::ot::{Ot, RandomOtReceiver, RandomOtSender};
use crate::{MpcError, Role};

/// What a party works with in one phase. Made for the phase: the channel and the randomness belong to the
/// caller.
pub struct Session<'a> {
    /// Which party this is.
    pub role: Role,
    /// The connection.
    pub channel: &'a mut Channel,
    /// Private randomness, seeded from the operating system.
    pub prg: &'a mut Prg,
}

/// A party's random OTs in both directions. They live as long as the connection; only offline phases take
/// them, since nothing online needs an OT.
pub struct Ots {
    /// Random OTs as sender.
    pub sender: Box<dyn RandomOtSender + Send>,
    /// Random OTs as receiver.
    pub receiver: Box<dyn RandomOtReceiver + Send>,
}

impl Ots {
    /// Base OTs and the state of the OT extension in both directions; see [`crate::ot::setup`].
    ///
    /// # Errors
    /// Channel errors, a peer that does not follow the base OT.
    pub fn setup(session: &mut Session<'_>) -> Result<Self, MpcError> {
        Ok(Self::new(crate::ot::setup(session.role, session.channel, session.prg)?))
    }

    /// Over given OTs.
    pub fn new<S, R>(ot: Ot<S, R>) -> Self
    where
        S: RandomOtSender + Send + 'static,
        R: RandomOtReceiver + Send + 'static,
    {
        Self { sender: Box::new(ot.sender), receiver: Box::new(ot.receiver) }
    }

    /// Tells both OT extensions how many random OTs are coming, so that they choose fitting parameters. Both
    /// parties must give the same numbers.
    pub fn reserve(&mut self, role: Role, client_receives: usize, server_receives: usize) {
        let (sending, receiving) = match role {
            Role::Client => (server_receives, client_receives),
            Role::Server => (client_receives, server_receives),
        };
        self.sender.reserve(sending);
        self.receiver.reserve(receiving);
    }
}

/// Runs both parties in one process over an in-memory channel with ideal OTs: the test bench of the
/// protocols.
///
/// # Panics
/// With the panic of either party.
#[cfg(any(test, feature = "test-util"))]
pub fn run_sessions<C, S: Send>(
    seed: u64,
    client: impl FnOnce(&mut Session<'_>, Ots) -> C,
    server: impl FnOnce(&mut Session<'_>, Ots) -> S + Send,
) -> (C, S) {
    let (client_ot, server_ot) = crate::ot::ideal::ots(seed);
    let prg = |party: u8| Prg::from_seed(tacit_arith::prg::Seed([party; 16]));
    crate::run_pair(
        |channel| client(&mut Session { role: Role::Client, channel, prg: &mut prg(1) }, Ots::new(client_ot)),
        |channel| server(&mut Session { role: Role::Server, channel, prg: &mut prg(2) }, Ots::new(server_ot)),
    )
}
