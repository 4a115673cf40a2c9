//! Options of the lowering to a ring, shared by all back ends of this level.

use std::ops::RangeInclusive;

use super::RingOptions;
use super::fixed::MAX_FRAC_BITS;
use super::op::MAX_MAGNITUDE_BITS;
use super::table::MAX_TABLE_BITS;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::Reader;

/// Most bits that the search leaves out of a ReLU's test.
const MAX_DROPPED: u32 = 4;

impl RingOptions {
    /// Reads the options, with [`RingOptions::default`] for missing ones.
    ///
    /// # Errors
    /// [`BackendError::Option`].
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, BackendError> {
        let ring = Self::default();
        Ok(Self {
            frac_bits: reader.in_range("frac_bits", 0..=MAX_FRAC_BITS)?,
            weight_bits: reader.in_range("weight_bits", 0..=MAX_FRAC_BITS)?,
            max_frac_bits: reader.in_range("max_frac_bits", 0..=MAX_FRAC_BITS)?.unwrap_or(ring.max_frac_bits),
            guard_bits: reader.up_to("guard_bits", 38.0)?.unwrap_or(ring.guard_bits),
            error_bound: reader.up_to("error_bound", 1.0)?.unwrap_or(ring.error_bound),
            agreement: reader.up_to("agreement", 1.0)?.unwrap_or(ring.agreement),
            seed: reader.get("seed")?.unwrap_or(ring.seed),
            round_facts: reader.in_range("round_facts", 1..=MAX_MAGNITUDE_BITS)?.unwrap_or(ring.round_facts),
            clamp: reader.get("clamp")?.unwrap_or(ring.clamp),
            table_bits: reader.in_range("table_bits", 4..=MAX_TABLE_BITS)?.unwrap_or(ring.table_bits),
            linear_error: ring.linear_error,
            relu_drop: ring.relu_drop,
        })
    }

    /// Reads how many bits a ReLU leaves out of its test: a given number, or a range for the search.
    ///
    /// # Errors
    /// [`BackendError::Option`].
    pub fn read_relu_drop(
        reader: &mut Reader<'_>,
        allowed: RangeInclusive<u32>,
    ) -> Result<RangeInclusive<u32>, BackendError> {
        Ok(reader.in_range("relu_drop", allowed)?.map_or(0..=MAX_DROPPED, |bits| bits..=bits))
    }
}
