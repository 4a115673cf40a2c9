//! tacit-mpc: see docs/architecture.md.
#![forbid(unsafe_code)]
