//! tacit-serve: see docs/architecture.md.
#![forbid(unsafe_code)]
