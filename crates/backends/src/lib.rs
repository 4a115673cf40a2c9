//! tacit-backends: see docs/architecture.md.
#![forbid(unsafe_code)]
pub mod cheetah;
