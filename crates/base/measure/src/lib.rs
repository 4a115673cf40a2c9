//! Resource use of processes, and phase marks that a program sends to a meter outside.
//!
//! * [`usage`]: processor time, memory and traffic of processes and of the host, from `/proc`; the
//!   limits of a container.
//! * [`mark`]: phase marks, sent to a meter that listens; [`clock`]: the clocks behind them.
//! * [`device`]: coefficients of the energy model for devices without a sensor.
//!
//! Programs of the product use this crate alone. The meter, which samples power sources and writes
//! records, is `lab/meter`.
#![forbid(unsafe_code)]

pub mod clock;
pub mod device;
mod error;
pub mod mark;
pub mod sample;
pub mod usage;

pub use error::MeasureError;
