//! Sizes of batches, and the digests of plans for batches.

use crate::{BackendError, Costs, Result};

/// The error of back ends that run one input at a time.
pub const ONE_BY_ONE: BackendError = BackendError::Misuse("this back end runs one input at a time");

/// Most inputs of a batch, for every back end.
const MAX_INPUTS: usize = 32;
/// Bytes that a party may hold for the phases of a batch.
const BATCH_MEMORY: u64 = 2 << 30;

/// How many inputs to run as one batch, from the costs of one input.
pub fn most_inputs(costs: &Costs) -> usize {
    let parties = [&costs.offline, &costs.online].into_iter().flat_map(|phase| [&phase.client, &phase.server]);
    let peak = parties.map(|party| party.peak_memory_bytes).max().expect("there are two phases");
    MAX_INPUTS.min((BATCH_MEMORY / peak.max(1)) as usize).max(1)
}

/// Returns `batch` if it is 1 to `max_batch`.
///
/// # Errors
/// [`BackendError::Misuse`] otherwise.
pub fn checked_batch(batch: usize, max_batch: usize) -> Result<usize> {
    match (1..=max_batch).contains(&batch) {
        true => Ok(batch),
        false => Err(BackendError::Misuse("the back end does not run so many inputs as one")),
    }
}

/// Digest of the plan for `batch` inputs, from that of the plan for one: material of one size does not fit
/// another.
#[must_use]
pub fn batch_digest(plan: &[u8; 32], batch: usize) -> [u8; 32] {
    match batch {
        1 => *plan,
        _ => super::digest("tacit 2026-11 plan of a batch", &[plan, &(batch as u64).to_le_bytes()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_size_fits_memory() {
        let costs_with = |peak_memory_bytes| {
            let mut costs = Costs::default();
            costs.online.client.peak_memory_bytes = peak_memory_bytes;
            most_inputs(&costs)
        };
        assert_eq!(
            [0, 1, BATCH_MEMORY / 8, BATCH_MEMORY / 2 + 1, u64::MAX].map(costs_with),
            [MAX_INPUTS, MAX_INPUTS, 8, 1, 1]
        );
        assert!(checked_batch(0, 8).is_err());
        assert!(checked_batch(9, 8).is_err());
        assert!(checked_batch(8, 8).is_ok());
    }

    #[test]
    fn batch_digests_are_distinct() {
        let plans = [[1; 32], [2; 32]];
        let digests: std::collections::BTreeSet<_> =
            plans.iter().flat_map(|plan| (1..=MAX_INPUTS).map(|batch| batch_digest(plan, batch))).collect();
        assert_eq!(digests.len(), 2 * MAX_INPUTS);
        assert_eq!(batch_digest(&plans[0], 1), plans[0]);
    }
}
