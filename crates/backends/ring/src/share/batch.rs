//! Gates of all back ends that run as batches.
use tacit_mpc::dealt::DealtGate;
use tacit_mpc::fss::gate::{FssGate, FssWiden};
use tacit_mpc::gate::{GateSpec, WrapSpec};

/// The properties of a batch of gates that the shared code needs.
pub trait Batch {
    /// Number of gates.
    fn n(&self) -> usize;
}

impl Batch for GateSpec {
    fn n(&self) -> usize {
        self.n()
    }
}

/// Types that grow with the number of inputs in a batch.
pub trait Times {
    /// Returns the value for `batch` inputs.
    fn times(&self, batch: usize) -> Self;
}

impl Times for GateSpec {
    fn times(&self, batch: usize) -> Self {
        self.times(batch)
    }
}

impl Times for WrapSpec {
    fn times(&self, batch: usize) -> Self {
        Self { n: batch * self.n, ..*self }
    }
}

impl Batch for DealtGate {
    fn n(&self) -> usize {
        self.n()
    }
}

impl Times for DealtGate {
    fn times(&self, batch: usize) -> Self {
        self.times(batch)
    }
}

impl Batch for FssGate {
    fn n(&self) -> usize {
        self.n()
    }
}

impl Times for FssGate {
    fn times(&self, batch: usize) -> Self {
        self.times(batch)
    }
}

impl Times for FssWiden {
    fn times(&self, batch: usize) -> Self {
        Self { n: batch * self.n, ..*self }
    }
}
