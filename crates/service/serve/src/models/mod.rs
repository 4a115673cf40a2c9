//! The models that are offered.
pub(crate) mod catalog;
pub(crate) mod source;
