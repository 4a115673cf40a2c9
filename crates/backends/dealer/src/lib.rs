//! Back ends whose material comes from a third party, the dealer: `dealt`, and `fss`, which finds a
//! party that deviates.
#![forbid(unsafe_code)]

pub mod dealt;
pub mod fss;
mod session;
