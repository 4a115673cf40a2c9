//! The binding, material and files of the tests.
use std::path::{Path, PathBuf};
use tacit_ids::{ClientId, FolderId, MaterialId};
use tacit_store::{Binding, Origin, Party, SealKey, Store, StoreError};

pub const OWNER: Binding = Binding { client: ClientId([1; 32]), model: [2; 32], plan: [3; 32] };
pub const TOY: Origin<'_> = Origin { backend: "toy", peer: FolderId([4; 16]), maker: None };

/// A client's folder.
pub fn open(dir: &Path) -> Store {
    Store::open(dir, Party::Client, None).unwrap()
}

/// An empty client's folder.
pub fn new_store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    (dir, store)
}

pub fn sealing_key() -> SealKey {
    SealKey::from_bytes(b"a key for tests only").unwrap()
}

/// Stores material under a new id.
pub fn put(store: &Store, material: &[u8]) -> MaterialId {
    let id = MaterialId::random().unwrap();
    store.put(id, OWNER, TOY, material).unwrap();
    id
}

pub fn file(dir: &Path, id: MaterialId) -> PathBuf {
    dir.join(format!("{id}.material"))
}

/// Whether material is refused as used.
pub fn is_burnt<T>(result: Result<T, StoreError>, id: MaterialId) -> bool {
    matches!(result, Err(StoreError::Burnt(burnt)) if burnt == id)
}
