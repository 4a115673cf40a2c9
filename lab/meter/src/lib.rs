//! The cost of a computation on a device: energy, processor time, memory and traffic, sampled over
//! time.
//!
//! * [`source`]: power sources behind one trait, with detection and a self-test.
//! * [`sampler`]: a thread that reads all of these at an interval and writes a record; [`wait`] for
//!   its processes, and [`process_tree`] for what they use.
//! * [`record`]: the one record format (JSON Lines) of all measurements; [`record_file`] and
//!   [`csv`] for files of it.
//! * [`marks`]: a listener for the phase marks of measured programs.
//! * [`phase`]: the cost of each phase; [`command`]: one command measured from start to end.
//! * [`machine`]: facts about the machine, for the header of a record.
//! * [`energy`]: idle baseline, net energy with its uncertainty, energy per party.
//!
//! Method: [PM24] sections 3 and 4 (client and server apart, idle power subtracted), [VPN24] section III
//! (energy per megabyte). What programs use to count themselves is the crate `tacit-measure`.
#![forbid(unsafe_code)]

pub mod command;
pub mod csv;
pub mod energy;
mod error;
pub mod machine;
pub mod marks;
pub mod phase;
pub mod process_tree;
pub mod record;
pub mod record_file;
pub mod sampler;
pub mod source;
pub mod wait;

pub use error::MeterError;
pub use sampler::{Sampler, SamplerConfig};
