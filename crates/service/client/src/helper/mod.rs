//! A client's helper: a second machine of its own that runs the offline phase in its place
//! (`docs/notes/helper.md`).
//!
//! The client (the *device*) orders material by ids. Each id has a seed, from which all its masks
//! follow, and a key to seal the material. Both follow from a master key that stays at the device.
//! The helper runs setup and offline phase with the server, which stores its half for the device.
//! The helper then seals the part of its result that does not follow from the seed. The helper has
//! seeds and keys in memory only, from the order until the material is made.
mod line;
mod server;
pub mod wire;

pub use line::HelperLine;
pub use server::{HelperServer, HelperServerConfig};
