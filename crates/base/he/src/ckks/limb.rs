//! Reusable buffers of N words, of which polynomials are made. Fresh memory costs as much as a
//! transform: the operating system clears it page by page.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use tacit_arith::pages::Long;

const MAX_BYTES: usize = 1 << 30;

/// Unused buffers of one length.
pub(super) struct Spares {
    free: Mutex<Vec<Long<u64>>>,
    degree: usize,
}

/// A buffer of N words that returns to its spares on drop.
pub(super) struct Limb {
    words: Long<u64>,
    spares: Arc<Spares>,
}

impl Spares {
    pub(super) fn new(degree: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::default(), degree })
    }

    pub(super) fn clear(&self) {
        self.free.lock().expect(NOT_POISONED).clear();
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.free.lock().expect(NOT_POISONED).len()
    }

    /// N words with arbitrary contents, which the caller must write.
    pub(super) fn scratch(self: &Arc<Self>) -> Limb {
        let mut free = self.free.lock().expect(NOT_POISONED);
        let words = free.pop().unwrap_or_else(|| {
            // The lock is held meanwhile, so that threads share a page.
            *free = Long::fill_page(self.degree);
            free.pop().expect("a page has a buffer")
        });
        drop(free);
        Limb { words, spares: self.clone() }
    }

    pub(super) fn copy(self: &Arc<Self>, words: &[u64]) -> Limb {
        let mut limb = self.scratch();
        limb.copy_from_slice(words);
        limb
    }

    pub(super) fn zero(self: &Arc<Self>) -> Limb {
        let mut limb = self.scratch();
        limb.fill(0);
        limb
    }
}

const NOT_POISONED: &str = "nothing panics while it holds the buffers";

impl Clone for Limb {
    fn clone(&self) -> Self {
        self.spares.copy(self)
    }
}

impl Drop for Limb {
    fn drop(&mut self) {
        let mut free = self.spares.free.lock().expect(NOT_POISONED);
        if free.len() < MAX_BYTES / (8 * self.spares.degree) {
            free.push(std::mem::take(&mut self.words));
        }
    }
}

impl Deref for Limb {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.words
    }
}

impl DerefMut for Limb {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }
}
