//! Where a test can stop the store.

/// A step of the store's work that is done, with the next one not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// `put`: the id is taken, no file is there.
    Reserved,
    /// `put`: the file is written, not synced.
    Written,
    /// `put`: the file and its name are on the disk; the ledger says `generating`.
    Synced,
    /// `put`: the material is ready; the caller does not know.
    Ready,
    /// `claim`, `discard`: the ledger says `claimed`; the file is there.
    Claimed,
    /// `claim`, `discard`: the file is gone from the disk; the ledger says `claimed`.
    Unlinked,
    /// `claim`, `discard`: the ledger says `burnt`; the caller does not know.
    Burnt,
    /// Recovery: files are gone; the ledger is as the crash left it.
    Swept,
}

/// Calls a test's function at every step, where there is one.
#[derive(Default)]
pub(crate) struct Steps {
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) hook: Option<Box<dyn Fn(Step) + Send + Sync>>,
}

impl Steps {
    /// Says that a step is done; does nothing outside of tests.
    pub(crate) fn done(&self, step: Step) {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(hook) = &self.hook {
            hook(step);
        }
        #[cfg(not(any(test, feature = "test-util")))]
        let _ = step;
    }
}
