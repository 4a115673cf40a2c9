//! Tests of the crate in one program, which is linked once.
mod alive;
mod channel;
mod common;
mod frames;
mod paced;
mod record;
mod tls;
mod waiting;
