//! Keys: the secret, the public key, switching keys, and sets of them.

mod file;
mod id;
mod secret;
mod set;
mod switch;

pub use file::KeyFile;
pub use id::{KeyId, KeyKind, merged};
pub use secret::{PublicKey, SecretKey};
pub(super) use secret::{uniform, zero_under};
pub use set::{KeyMaker, KeySet, Origin};
pub(super) use switch::digit_range;
pub use switch::{KeyForm, SwitchKey};
