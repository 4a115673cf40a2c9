//! Foreign input: makes text of peers and files safe to show, and opens files that a user names
//! safely.
//!
//! Peers and files supply text that reaches a terminal: reasons of a refusal, names of models,
//! operators of a network. Such text is made plain where it is decoded ([`text::deserialize_plain`]), so that
//! no place that prints it can forget to. Program output and logs also pass through
//! [`text::lines`].
//!
//! This crate uses no other crate of the project.
#![forbid(unsafe_code)]

pub mod file;
pub mod text;

pub use text::plain;
