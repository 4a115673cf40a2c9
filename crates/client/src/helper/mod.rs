//! A client's helper: a second machine of its own that does the offline phase in its place
//! (`docs/notes/helper.md`).
//!
//! The client (the *device*) orders material by ids, each with a seed that all masks of it follow from and a
//! key to seal it with; both follow from a master key that stays at the device. The helper runs setup and
//! offline phase with the server, which stores its half for the device, and seals what comes of them beside
//! the seed. Seeds and keys are at the helper in memory only, from the order until the material is made.
mod line;
mod server;
pub mod wire;

pub use line::HelperLine;
pub use server::{HelperServer, HelperServerConfig};
