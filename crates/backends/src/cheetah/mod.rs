//! The `cheetah` back end.

pub mod linear;
