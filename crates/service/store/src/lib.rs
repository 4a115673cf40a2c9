//! Storage of secrets, and of data that must be used once: material, private keys, sealed files.
//!
//! * [`Store`] holds material in a folder so that it is used at most once, crashes included: a
//!   ledger in SQLite, and files for the bytes.
//! * [`seal`] encrypts files at rest; a [`SealKey`] is read from a file, a variable or a command.
//! * [`keys`] is a private certificate authority, and the identities that it signs.
//!
//! Folders that programs manage are marked ([`managed`]); other folders are refused and not
//! touched. Folders and files with secrets are closed to other users when they are opened.
#![forbid(unsafe_code)]

mod certificate;
pub mod clock;
mod entry;
mod error;
mod file_lock;
pub mod keys;
mod ledger;
mod limits;
pub mod managed;
mod material_folder;
mod private;
mod reserve;
mod role;
pub mod seal;
mod serial;
mod spool;
mod step;
mod store;
mod uploads;
mod x509;

pub use entry::{Binding, Entry, Ordered, Origin, Party};
pub use error::StoreError;
pub use ledger::Counts;
pub use limits::MAX_MATERIAL_BYTES;
pub use managed::{FolderKind, ManagedFolder};
pub use material_folder::material_folder;
pub use private::open_private;
pub use role::{Role, common_name};
pub use seal::SealKey;
pub use serial::{NotASerial, Serial};
pub use spool::{Claimed, MAX_IN_MEMORY_BYTES, Spool};
#[cfg(any(test, feature = "test-util"))]
pub use step::Step;
pub use store::{DEFAULT_EXPIRY, Picked, PickedContent, Placing, Reserved, Store};
pub use uploads::{Ended, Upload};
