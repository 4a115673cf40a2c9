//! Experiments: emulated links, secure transports, and campaigns that measure the cost of private
//! inference at the edge.
//!
//! * [`campaign`]: the folder that every experiment writes and that `tacit lab report` and
//!   `compare` read.
//! * [`experiment`]: the description of a campaign and its runner.
//! * [`link`]: two network namespaces joined by a link with a rate, a delay and faults.
//! * [`transport`]: plain TCP, TLS, WireGuard and TLS in WireGuard; [`tunnel`]: the WireGuard
//!   tunnels; [`workload`]: bulk transfer and ping-pong over any of them; [`vpn24`]: their costs.
//!
//! `tacit.lab` in Python evaluates the results, and compares figures of papers and documents
//! (`papers.toml`, `figures.toml`).
//!
//! Sources: [PM24] sections 3 to 5, [VPN24] section III.
#![forbid(unsafe_code)]

pub mod campaign;
mod error;
pub mod experiment;
pub mod link;
#[cfg(test)]
mod tests;
pub mod transport;
pub mod tunnel;
pub mod vpn24;
pub mod workload;

pub use error::LabError;

/// Claims of the papers beside this project's figures, with their commands: TOML.
pub const CLAIMS: &str = include_str!("../papers.toml");
/// Figures of the documents, with their commands: TOML.
pub const FIGURES: &str = include_str!("../figures.toml");
