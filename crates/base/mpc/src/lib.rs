//! Two-party computation, semi-honest: oblivious transfer and the protocols built on it.
#![forbid(unsafe_code)]

pub mod codec;
pub mod dealt;
mod error;
pub mod fss;
pub mod gate;
mod hash;
pub mod ot;
mod pair;
mod planes;
pub mod session;
pub mod wire;

pub use error::MpcError;
pub use pair::run_pair;
pub use session::{Ots, Session};

use tacit_arith::prg::Prg;
use tacit_net::Sides;
use zeroize::Zeroizing;

/// The role of a party. The client holds the input, the server the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Role {
    /// Holds the input and learns the output.
    Client,
    /// Holds the model and learns nothing.
    Server,
}

impl Role {
    /// The other party.
    pub fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Computes the value of each role, the client's first.
    pub fn each<T>(mut value: impl FnMut(Self) -> T) -> Sides<T> {
        Sides { client: value(Self::Client), server: value(Self::Server) }
    }

    /// Returns the value of this role.
    pub fn value_of<T>(self, sides: &Sides<T>) -> &T {
        match self {
            Self::Client => &sides.client,
            Self::Server => &sides.server,
        }
    }
}

/// `2^width - 1`, also for a width of 0 or 64.
pub(crate) fn low_mask(width: u32) -> u64 {
    if width >= u64::BITS { u64::MAX } else { (1 << width) - 1 }
}

/// Returns the bytes of `n` packed numbers of each of the widths.
pub(crate) fn packed_bytes(n: usize, widths: &[u32]) -> usize {
    widths.iter().map(|&w| (n * w as usize).div_ceil(8)).sum()
}

/// Draws `n` words of `width` bits.
pub(crate) fn draw_words(prg: &mut Prg, n: usize, width: u32) -> Zeroizing<Vec<u64>> {
    let mut words = Zeroizing::new(vec![0; n]);
    prg.fill_u64(&mut words);
    words.iter_mut().for_each(|word| *word &= low_mask(width));
    words
}

#[cfg(test)]
mod tests;
