//! tacit-he: see docs/architecture.md.
#![forbid(unsafe_code)]
