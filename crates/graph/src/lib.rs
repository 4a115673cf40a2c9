//! tacit-graph: see docs/architecture.md.
#![forbid(unsafe_code)]
