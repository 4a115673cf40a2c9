//! What the programs share: the command-line arguments that several of them take, and their output.
#![forbid(unsafe_code)]

pub mod args;
pub mod log;
