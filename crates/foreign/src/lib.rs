//! What others have written, as this project takes it: text of peers and files before anybody sees it,
//! and files that a user names, before anybody reads them.
//!
//! A peer or a file has a say in what a terminal is told: reasons of a refusal, names of models,
//! operators of a network. Such text is made plain where it is decoded ([`text::decoded`]), so that no
//! place that prints it can forget to. What a program prints and logs goes through [`text::lines`]
//! once more.
//!
//! This crate uses no other crate of the project.
#![forbid(unsafe_code)]

pub mod file;
pub mod text;

pub use text::plain;
