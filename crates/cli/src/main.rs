//! The `tacit` command.
fn main() {}
