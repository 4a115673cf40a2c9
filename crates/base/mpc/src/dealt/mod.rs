//! Gates with dealt material: one-time truth tables at a public, masked value.
//!
//! The dealer knows the client's share `c` of every tested value (the client draws it from a seed
//! from the dealer) and a mask `rho` that it gave to the server. The server opens
//! `xh = s + rho = y + R` with `R = rho - c`: the client cannot compute `y` without `rho`, the server
//! not without `c`. The `N = n - 1` low bits of `xh` and `R` are cut into digits. For each digit `z`
//! of `R` both parties hold XOR shares of the table `[u < z]`, `u = 0 .. 2^m - 2`, and look it up at
//! the public digit of `xh`:
//! ```text
//! msb(y) = msb(xh) ^ msb(R) ^ [xh_low < R_low]              eq(u) = [u - 1 < z] ^ [u < z]
//! ```
//! * [`Exchanges::One`] (TT1): the parties open the digits' bits under masks from the dealer. They
//!   hold dealt shares of all products of these masks, and of these times `R`, so that sign test and
//!   multiplexer are one linear combination (`terms`).
//! * [`Exchanges::Two`] (TT2): a second opening, of the sign itself, between them: fewer bytes of
//!   material.
//!
//! The client's half is a seed; the server's half is a seed and the differences to the client's.
//! All steps work on blocks of [`BLOCK`] elements, in parallel, each with its own streams.
//!
//! Semi-honest; the dealer works with neither party. Sources: one-time truth tables of [BGI16]-line work and
//! the identities in `docs/protocols.md`; exact for `|y| < 2^(n-1)`. Costs: [`DealtGate::cost`].

mod block;
mod cost;
mod deal;
mod gate;
mod lane;
mod lookup;
mod spec;
mod table;
mod terms;
#[cfg(test)]
mod tests;
mod traffic;
mod widen;

pub use cost::DealtCost;
pub use deal::deal;
pub use gate::{ClientShares, DealtHalf, ServerShares, client_online, server_online};
pub(crate) use lookup::Word;
pub use lookup::{
    Lines, LookUp, MAX_INDEX_BITS, MAX_SPLINE_BITS, ONE_HOT_BITS, client_look_up, deal_look_up, server_look_up,
};
pub use spec::{DealtGate, Exchanges, Value};
pub(crate) use spec::{inputs, opened};
pub use traffic::add_widen_traffic;
pub use widen::{client_widen, deal_widen, server_widen, widen_bytes};

/// Elements of a block: whole words of planes, and tables that fit a second-level cache.
pub const BLOCK: usize = 1024;
