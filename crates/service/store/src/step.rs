//! Steps of the store at which a test can stop it.

/// A finished step of the store's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// `put`: the id is reserved; there is no file.
    Reserved,
    /// `put`: the file is written, not synced.
    Written,
    /// `put`: the file and its name are on the disk; the ledger says `generating`.
    Synced,
    /// `put`: the material is ready; the call has not returned.
    Ready,
    /// `claim`, `discard`: the ledger says `claimed`; the file exists.
    Claimed,
    /// `claim`, `discard`: the file is deleted; the ledger says `claimed`.
    Unlinked,
    /// `claim`, `discard`: the ledger says `burnt`; the call has not returned.
    Burnt,
    /// Recovery: files are deleted; the ledger is as the crash left it.
    Swept,
}

/// Calls a test's function, if there is one, at every step.
#[derive(Default)]
pub(crate) struct Steps {
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) hook: Option<Box<dyn Fn(Step) + Send + Sync>>,
}

impl Steps {
    /// Reports a finished step; does nothing outside of tests.
    pub(crate) fn report(&self, step: Step) {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(hook) = &self.hook {
            hook(step);
        }
        #[cfg(not(any(test, feature = "test-util")))]
        let _ = step;
    }
}
