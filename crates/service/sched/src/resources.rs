//! Resources of the machine and of jobs.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An amount of each of the resources that the scheduler shares out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Threads that may run at once.
    pub cores: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk for material, held from the start of T_pre until the material is consumed or
    /// burnt.
    pub disk: u64,
    /// Concurrent dealings: T_pre whose material a third party makes. A dealing waits for that
    /// party and its link, and takes no cores.
    #[serde(default)]
    pub dealings: u32,
}

impl Resources {
    /// True when `self` fits into `room` in every resource.
    pub fn fits(&self, room: &Self) -> bool {
        self.cores <= room.cores
            && self.memory <= room.memory
            && self.disk <= room.disk
            && self.dealings <= room.dealings
    }

    /// The rest of `self` after taking `used`; zero where `used` exceeds `self` (after capacity
    /// shrank).
    pub fn minus(&self, used: &Self) -> Self {
        Self {
            cores: self.cores.saturating_sub(used.cores),
            memory: self.memory.saturating_sub(used.memory),
            disk: self.disk.saturating_sub(used.disk),
            dealings: self.dealings.saturating_sub(used.dealings),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.cores += other.cores;
        self.memory += other.memory;
        self.disk += other.disk;
        self.dealings += other.dealings;
    }

    /// Returns `other`, which must have been added before.
    pub(crate) fn sub(&mut self, other: &Self) {
        debug_assert!(other.fits(self), "more given back than was held");
        *self = self.minus(other);
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores, {} bytes of memory, {} bytes of disk", self.cores, self.memory, self.disk)?;
        match self.dealings {
            0 => Ok(()),
            dealings => write!(f, ", {dealings} dealings"),
        }
    }
}
