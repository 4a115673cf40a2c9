//! Size limits of stored data.

/// Largest material accepted, in bytes.
pub const MAX_MATERIAL_BYTES: u64 = 8 << 30;
