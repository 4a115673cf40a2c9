//! Tests of the program in one test program, which is linked once.
#[path = "../common/mod.rs"]
mod common;
#[path = "../server/mod.rs"]
mod server;

mod commands;
mod folders;
mod foreign;
mod helper;
