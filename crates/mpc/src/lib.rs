//! Two-party computation, semi-honest: oblivious transfer and the protocols built on it.
#![forbid(unsafe_code)]

mod error;
pub mod ot;
mod pair;

pub use error::MpcError;
pub use pair::run_pair;

/// Which party this is. The client holds the input, the server the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Role {
    /// Holds the input and learns the output.
    Client,
    /// Holds the model and learns nothing.
    Server,
}

impl Role {
    /// The other party.
    pub fn peer(self) -> Role {
        match self {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }
}
