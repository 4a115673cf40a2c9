//! Keys: the secret, the public key, switching keys, and sets of them.

mod derive;
mod file;
mod gadget;
mod id;
mod part;
mod secret;
mod set;
mod switch;

pub use derive::{Derivation, derived_deviation};
pub use file::{FileState, KeyFile};
pub(super) use gadget::Gadget;
pub use id::{KeyId, KeyKind, merge_needs};
pub use part::PartFile;
pub use secret::{PublicKey, SecretKey};
pub(super) use secret::{uniform, zero_under};
pub use set::{KeyMaker, KeySet};
pub(super) use switch::raise_digits;
pub use switch::{KeyForm, Origin, SwitchKey};
