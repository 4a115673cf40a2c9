//! Gates of all back ends that run as batches.
use tacit_mpc::dealt::DealtGate;
use tacit_mpc::fss::gate::{FssGate, FssWiden};
use tacit_mpc::gate::{GateSpec, WrapSpec};

/// The properties of a batch of gates that the shared code needs.
pub trait Batch {
    /// Number of gates.
    fn n(&self) -> usize;
}

/// Types that grow with the number of inputs in a batch.
pub trait Times {
    /// The value for `batch` inputs.
    fn times(&self, batch: usize) -> Self;
}

macro_rules! gates {
    ($($gate:ty),*) => {$(
        impl Batch for $gate {
            fn n(&self) -> usize {
                self.n()
            }
        }

        impl Times for $gate {
            fn times(&self, batch: usize) -> Self {
                self.times(batch)
            }
        }
    )*};
}

macro_rules! widenings {
    ($($widening:ty),*) => {$(
        impl Times for $widening {
            fn times(&self, batch: usize) -> Self {
                Self { n: batch * self.n, ..*self }
            }
        }
    )*};
}

gates!(GateSpec, DealtGate, FssGate);
widenings!(WrapSpec, FssWiden);
