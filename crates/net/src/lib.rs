//! tacit-net: see docs/architecture.md.
#![forbid(unsafe_code)]
