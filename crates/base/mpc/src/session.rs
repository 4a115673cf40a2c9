//! One party's end of a two-party computation: the resources of a phase, and state that outlives
//! the phases.

use tacit_arith::prg::Prg;
use tacit_net::Channel;

use crate::ot::{Ot, RandomOtReceiver, RandomOtSender};
use crate::{MpcError, Role};

/// Resources of a party in one phase; the caller owns the channel and the randomness.
pub struct Session<'a> {
    /// The party's role.
    pub role: Role,
    /// The connection.
    pub channel: &'a mut Channel,
    /// Private randomness, seeded from the operating system.
    pub prg: &'a mut Prg,
}

/// A party's random OTs in both directions, for all offline phases of a connection.
pub struct Ots {
    /// Random OTs as sender.
    pub sender: Box<dyn RandomOtSender + Send>,
    /// Random OTs as receiver.
    pub receiver: Box<dyn RandomOtReceiver + Send>,
}

impl Ots {
    /// Runs the base OTs and sets up the OT extension in both directions; see [`crate::ot::setup`].
    ///
    /// # Errors
    /// Channel errors; a peer that deviates from the base OT.
    pub fn setup(session: &mut Session<'_>) -> Result<Self, MpcError> {
        Ok(Self::new(crate::ot::setup(session.role, session.channel, session.prg)?))
    }

    /// Wraps given OTs.
    pub fn new<S, R>(ot: Ot<S, R>) -> Self
    where
        S: RandomOtSender + Send + 'static,
        R: RandomOtReceiver + Send + 'static,
    {
        Self { sender: Box::new(ot.sender), receiver: Box::new(ot.receiver) }
    }

    /// Announces the random OTs of both extensions, for the choice of their parameters. Both parties must
    /// give the same numbers.
    pub fn reserve(&mut self, role: Role, client_receives: usize, server_receives: usize) {
        let (sending, receiving) = match role {
            Role::Client => (server_receives, client_receives),
            Role::Server => (client_receives, server_receives),
        };
        self.sender.reserve(sending);
        self.receiver.reserve(receiving);
    }
}

/// Runs both parties in one process over an in-memory channel with ideal OTs, for tests of the
/// protocols.
///
/// # Panics
/// Passes on a panic of either party.
#[cfg(any(test, feature = "test-util"))]
pub fn run_sessions<C, S: Send>(
    seed: u64,
    client: impl FnOnce(&mut Session<'_>, Ots) -> C,
    server: impl FnOnce(&mut Session<'_>, Ots) -> S + Send,
) -> (C, S) {
    let ots = crate::ot::ideal::ots(seed);
    crate::run_pair(
        |channel| client(&mut Session { role: Role::Client, channel, prg: &mut prg(1) }, Ots::new(ots.client)),
        |channel| server(&mut Session { role: Role::Server, channel, prg: &mut prg(2) }, Ots::new(ots.server)),
    )
}

#[cfg(any(test, feature = "test-util"))]
fn prg(party: u8) -> Prg {
    Prg::from_seed(tacit_arith::prg::Seed([party; 16]))
}
