//! Switching keys of RNS-CKKS, alone and in files.

use std::path::PathBuf;
use std::sync::LazyLock;

use tacit_arith::prg::{Prg, Seed, SplitPrg};
use tacit_he::ckks::{KeyFile, KeyId, KeyKind, KeyMaker, KeySet, SecretKey, SwitchKey};

use crate::ckks::CONTEXT;

const CLIENT: [u8; 32] = [7; 32];
/// Bytes of the file's header before its list of keys, of an entry of that list, and of a digest.
const FIXED: usize = 76;
const ENTRY: usize = 8;
const DIGEST: usize = 32;

/// One for each process: the parser reads from a file.
static PATH: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("tacit-fuzz-keys-{}", std::process::id())));

/// A key that a client sends, read as each of those that the parameters admit.
pub(crate) fn key(data: &[u8]) {
    for level in [1, 2] {
        let id = KeyId { kind: KeyKind::Relinearise, level, alpha: 1 };
        let Ok(key) = SwitchKey::read(&CONTEXT, id, data) else { continue };
        assert!(key.memory_bytes() <= data.len(), "no more than was sent");
        let mut again = Vec::new();
        key.write(&CONTEXT, &mut again).expect("it was sent");
        assert!(again == data, "one encoding for each key");
        key.expanded(&CONTEXT).expect("its residues have been checked");
    }
}

/// A file of keys: as it is, and with digests that fit what it says, which only its writer could make.
pub(crate) fn file(data: &[u8]) {
    read(data);
    if let Some(sealed) = with_digests(data) {
        read(&sealed);
    }
}

fn read(data: &[u8]) {
    std::fs::write(&*PATH, data).expect("the temporary folder is writable");
    let opened = KeyFile::open(&PATH, &CONTEXT, &CLIENT);
    // It stays readable through the open file.
    std::fs::remove_file(&*PATH).expect("it has just been written");
    let Ok(opened) = opened else { return };
    let ids: Vec<KeyId> = opened.ids().collect();
    assert!(FIXED + ENTRY * ids.len() + DIGEST <= data.len());
    let keys = KeySet::paged(&CONTEXT, opened, 0);
    for id in ids {
        let Ok(key) = keys.get_with(id.kind, id.level, id.alpha) else { continue };
        assert!(key.level() >= id.level && key.memory_bytes() <= data.len());
        let mut again = Vec::new();
        key.write(&CONTEXT, &mut again).expect("it was sent");
        assert!(data.windows(again.len()).any(|part| part == again), "keys are what the file holds");
    }
}

/// The file with the digests that its header and keys ought to have; `None` if it is too short for a header.
fn with_digests(data: &[u8]) -> Option<Vec<u8>> {
    let count = usize::from(u16::from_le_bytes(data.get(FIXED - 2..FIXED)?.try_into().ok()?));
    let header = data.get(..FIXED + ENTRY * count)?;
    let mut body = data.get(header.len() + DIGEST..)?;
    let bound = blake3::derive_key("tacit ckks key file 1", header);
    let mut sealed = [header, &bound].concat();
    for index in 0..count {
        let level =
            usize::from(u16::from_le_bytes([header[FIXED + ENTRY * index + 2], header[FIXED + ENTRY * index + 3]]));
        let alpha = usize::from(header[FIXED + ENTRY * index + 1]);
        if !(1..=2).contains(&level) || alpha != 1 {
            break;
        }
        // Kinds do not count for the length.
        let id = KeyId { kind: KeyKind::Relinearise, level, alpha };
        let Some((key, rest)) = body.split_at_checked(SwitchKey::packed_bytes(&CONTEXT, id)) else { break };
        let mut hasher = blake3::Hasher::new_keyed(&bound);
        hasher.update(&(index as u64).to_le_bytes()).update(key);
        sealed.extend_from_slice(key);
        sealed.extend_from_slice(hasher.finalize().as_bytes());
        body = rest.get(DIGEST..).unwrap_or_default();
    }
    sealed.extend_from_slice(body);
    Some(sealed)
}

/// Keys that differ in all that keys differ in.
fn ids() -> [KeyId; 3] {
    let kinds = [KeyKind::Relinearise, KeyKind::Galois(5), KeyKind::Galois(25)];
    [(kinds[0], 2), (kinds[1], 2), (kinds[2], 1)].map(|(kind, level)| KeyId { kind, level, alpha: 1 })
}

pub(crate) fn key_seeds() -> Vec<Vec<u8>> {
    let mut prg = SplitPrg::new(Prg::from_seed(Seed([9; 16])));
    let secret = SecretKey::generate(&CONTEXT, prg.secret());
    let mut maker = KeyMaker::new(&secret, &mut prg);
    let mut bytes = |id| {
        let mut bytes = Vec::new();
        let made = maker.make(id).and_then(|key| key.write(&CONTEXT, &mut bytes));
        made.expect("the parameters admit it");
        bytes
    };
    ids().map(&mut bytes).into()
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    let mut prg = SplitPrg::new(Prg::from_seed(Seed([10; 16])));
    let secret = SecretKey::generate(&CONTEXT, prg.secret());
    let mut maker = KeyMaker::new(&secret, &mut prg);
    let path = PATH.with_extension("seed");
    let mut written = |ids: &[KeyId]| {
        KeyFile::write(&path, &CONTEXT, &CLIENT, ids, |id| maker.make(id)).expect("the temporary folder is writable");
        let bytes = std::fs::read(&path).expect("it has just been written");
        std::fs::remove_file(&path).expect("it has just been read");
        assert!(with_digests(&bytes).as_ref() == Some(&bytes), "digests are computed as they are written");
        bytes
    };
    vec![written(&[]), written(&ids()[1..]), written(&ids())]
}
