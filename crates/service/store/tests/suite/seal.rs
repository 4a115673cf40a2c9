//! Sealed files and folders: what opens them, and what every other thing is called.
use crate::common::{OWNER, file, put};
use proptest::prelude::*;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tacit_ids::MaterialId;
use tacit_store::seal::{Kind, Reader, SealFault, Writer, is_sealed, open_renamed, read_file, write_file};
use tacit_store::{Party, SealKey, Store, StoreError};

const HEADER: usize = 101;
const CHUNK: usize = 64 << 10;
const TAG: usize = 16;

fn key() -> SealKey {
    SealKey::from_bytes(b"sixteen bytes or").unwrap()
}

fn other_key() -> SealKey {
    SealKey::from_bytes(b"sixteen bytes 0r").unwrap()
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * i % 251) as u8).collect()
}

fn model() -> Kind {
    Kind::model(Path::new("net.tacit"))
}

fn lowered() -> Kind {
    Kind::lowered(Path::new("net.tacit"))
}

fn sealed(kind: Kind, content: &[u8]) -> Vec<u8> {
    sealed_with(&key(), kind, content)
}

fn sealed_with(key: &SealKey, kind: Kind, content: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), key, kind, content.len() as u64).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

/// All content, or the fault.
fn open(bytes: &[u8], key: &SealKey, kind: Kind) -> Result<Vec<u8>, SealFault> {
    let mut content = Vec::new();
    Reader::new(bytes, key, kind)?.read_to_end(&mut content).map_err(|e| e.downcast::<SealFault>().unwrap())?;
    Ok(content)
}

fn opens(bytes: &[u8]) -> Result<Vec<u8>, SealFault> {
    open(bytes, &key(), model())
}

#[test]
fn content_of_any_length_round_trips() {
    for len in [0, 1, 15, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 7] {
        let content = content(len);
        let bytes = sealed(model(), &content);
        assert_eq!(bytes.len(), HEADER + len + len.div_ceil(CHUNK).max(1) * TAG);
        assert!(is_sealed(&bytes));
        assert!(!is_sealed(&content));
        assert_eq!(opens(&bytes).unwrap(), content);
        assert!(len < 64 || !bytes.windows(16).any(|w| w == &content[..16]));
        assert_ne!(bytes, sealed(model(), &content));
    }
}

#[test]
fn opens_only_with_key_and_kind() {
    let bytes = sealed(model(), &content(100));
    assert!(matches!(open(&bytes, &other_key(), model()), Err(SealFault::WrongKey)));
    let fault = open(&bytes, &key(), lowered()).unwrap_err();
    assert!(matches!(fault, SealFault::OtherKind { found: Kind::Model(_), wanted: Kind::Lowered(_) }), "{fault}");
    let (a, b) = (Kind::Material(MaterialId([1; 16])), Kind::Material(MaterialId([2; 16])));
    let bytes = sealed(a, &content(100));
    let fault = open(&bytes, &key(), b).unwrap_err();
    assert!(matches!(fault, SealFault::OtherKind { found, wanted } if found == a && wanted == b), "{fault}");
    // A header that was changed to say otherwise is found by the first chunk.
    let mut renamed = bytes.clone();
    renamed[13..29].fill(2);
    assert!(matches!(open(&renamed, &key(), b), Err(SealFault::Chunk { index: 0 })));
    assert_eq!(open(&bytes, &key(), a).unwrap(), content(100));
}

#[test]
fn rejects_truncated_and_trailing_bytes() {
    let bytes = sealed(model(), &content(2 * CHUNK + 100));
    let chunk = CHUNK + TAG;
    for len in [0, 7, HEADER - 1, HEADER, HEADER + 1, HEADER + chunk, HEADER + 2 * chunk, bytes.len() - 1] {
        let fault = opens(&bytes[..len]).unwrap_err();
        assert!(matches!(fault, SealFault::Truncated { .. }), "{len}: {fault}");
    }
    assert!(matches!(opens(&bytes[..bytes.len() - 40]), Err(SealFault::Truncated { missing: 40 })));
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(opens(&longer), Err(SealFault::Trailing)));
    // Cut at a chunk's end, with a header that says so: its length is not what was sealed.
    let mut shorter = bytes[..HEADER + chunk].to_vec();
    shorter[29..37].copy_from_slice(&(CHUNK as u64).to_le_bytes());
    assert!(matches!(opens(&shorter), Err(SealFault::Chunk { index: 0 })));
}

#[test]
fn rejects_changed_moved_and_foreign_chunks() {
    let content = content(3 * CHUNK);
    let [bytes, other] = [(); 2].map(|()| sealed(model(), &content));
    let chunk = |n: usize| HEADER + n * (CHUNK + TAG)..HEADER + (n + 1) * (CHUNK + TAG);
    // Chunk `to` is replaced by chunk `from` of a file.
    let replaced = |to: usize, file: &[u8], from: usize| {
        [&bytes[..chunk(to).start], &file[chunk(from)], &bytes[chunk(to).end..]].concat()
    };
    let mut swapped = replaced(0, &bytes, 1);
    swapped[chunk(1)].copy_from_slice(&bytes[chunk(0)]);
    for (changed, wanted) in [(swapped, 0), (replaced(1, &bytes, 0), 1), (replaced(2, &other, 2), 2)] {
        assert!(matches!(opens(&changed), Err(SealFault::Chunk { index }) if index == wanted), "{wanted}");
    }
    for at in [chunk(0).start, chunk(1).end - 1, chunk(2).end - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert!(matches!(opens(&flipped), Err(SealFault::Chunk { .. })), "{at}");
    }
}

#[test]
fn rejects_unknown_headers() {
    let bytes = sealed(model(), b"x");
    let with_byte = |at: usize, byte: u8| [&bytes[..at], &[byte], &bytes[at + 1..]].concat();
    assert!(matches!(opens(&with_byte(0, b'X')), Err(SealFault::NotSealed)));
    assert!(matches!(opens(&with_byte(8, 9)), Err(SealFault::Version { found: 9 })));
    assert!(matches!(opens(&with_byte(12, 77)), Err(SealFault::UnknownKind)));
    let result = opens(&with_byte(20, bytes[20] ^ 1));
    assert!(matches!(result, Err(SealFault::OtherName { .. })), "{result:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is done to a sealed file, it opens as what was sealed or not at all.
    #[test]
    fn changed_file_never_opens(len in 0usize..3000, at in any::<prop::sample::Index>(), flip in 1u8..) {
        let bytes = sealed(model(), &content(len));
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= flip;
        prop_assert!(opens(&changed).is_err());
        prop_assert!(opens(&bytes[..at.index(bytes.len())]).is_err());
    }

    /// The pieces in which content is written do not matter.
    #[test]
    fn write_sizes_do_not_matter(pieces in prop::collection::vec(0usize..50_000, 0..6)) {
        let content = content(pieces.iter().sum());
        let mut writer = Writer::new(Vec::new(), &key(), lowered(), content.len() as u64).unwrap();
        let mut at = 0;
        for piece in pieces {
            writer.write_all(&content[at..at + piece]).unwrap();
            at += piece;
        }
        prop_assert_eq!(open(&writer.finish().unwrap(), &key(), lowered()).unwrap(), content);
    }
}

#[test]
fn writer_enforces_announced_length() {
    let writer = || Writer::new(Vec::new(), &key(), model(), 10).unwrap();
    assert_eq!(writer().finish().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(writer().write_all(&[0; 11]).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn model_files_round_trip_sealed_and_plain() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.tacit");
    let read = |key: Option<&SealKey>, limit| read_file(&path, model(), key, limit);
    for content in [content(0), content(100_000)] {
        let limit = content.len() as u64;
        write_file(&path, model(), None, &content).unwrap();
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(*read(None, limit).unwrap(), content);
        let error = read(Some(&key()), limit).unwrap_err();
        assert!(matches!(&error, StoreError::Plain(p) if *p == path), "{error}");
        assert!(error.to_string().contains("tacit model seal"), "{error}");
        write_file(&path, model(), Some(&key()), &content).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(*read(Some(&key()), limit).unwrap(), content);
        assert!(matches!(read(None, limit), Err(StoreError::KeyNeeded(p)) if p == path));
        assert!(matches!(read(Some(&other_key()), limit), Err(StoreError::WrongKey(p)) if p == path));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
    assert!(matches!(read(Some(&key()), 99_999), Err(StoreError::FileTooLarge { bytes: 100_000, .. })));
    write_file(&path, model(), None, &content(100)).unwrap();
    assert!(matches!(read(None, 99), Err(StoreError::FileTooLarge { bytes: 100, .. })));
    let bytes = sealed(lowered(), &content(100));
    fs::write(&path, &bytes).unwrap();
    let replaced = write_file(&path, model(), None, &content(100)).unwrap_err();
    assert!(matches!(&replaced, StoreError::NotReplaced { .. }), "{replaced}");
    assert!(read(Some(&key()), 100).unwrap_err().to_string().contains("a lowered model was sealed here, not a model"));
    // A header that claims more than the file has allocates nothing.
    let mut claims = sealed(model(), &content(100));
    claims[29..37].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(&path, &claims).unwrap();
    let error = read(Some(&key()), u64::MAX).unwrap_err();
    assert!(matches!(error, StoreError::Sealed { fault: SealFault::Truncated { .. }, .. }), "{error}");
}

#[test]
fn refuses_renamed_sealed_files() {
    let dir = tempfile::tempdir().unwrap();
    let [square, digits] = ["square.tacit", "digits.tacit"].map(|name| dir.path().join(name));
    let bytes = content(100);
    write_file(&square, Kind::model(&square), Some(&key()), &bytes).unwrap();
    fs::copy(&square, &digits).unwrap();
    let read = |path: &Path| read_file(path, Kind::of_owner_file(path), Some(&key()), 100);
    assert_eq!(*read(&square).unwrap(), bytes);
    let error = read(&digits).unwrap_err();
    assert!(matches!(&error, StoreError::Sealed { fault: SealFault::OtherName { .. }, .. }), "{error}");
    assert!(error.to_string().contains("renamed or exchanged"));
    assert!(error.to_string().contains("tacit model seal"));
    // Its owner vouches for it.
    let mut content = Vec::new();
    let (mut opened, len) = open_renamed(&digits, Kind::model(&digits), Some(&key())).unwrap();
    opened.read_to_end(&mut content).unwrap();
    assert_eq!((content, len), (bytes.clone(), 100));
    assert!(matches!(open_renamed(&digits, Kind::lowered(&digits), Some(&key())), Err(StoreError::Sealed { .. })));
    write_file(&digits, Kind::model(&digits), Some(&key()), &bytes).unwrap();
    assert_eq!(*read(&digits).unwrap(), bytes);
    // A header that is made to say another name is found by the first chunk.
    let mut forged = fs::read(&square).unwrap();
    forged[12..29].copy_from_slice(&fs::read(&digits).unwrap()[12..29]);
    fs::write(&digits, &forged).unwrap();
    assert!(matches!(read(&digits), Err(StoreError::Sealed { fault: SealFault::Chunk { index: 0 }, .. })));
}

#[test]
fn reads_keys_from_file_variable_and_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    fs::write(&path, "sixteen bytes or\n").unwrap();
    let error = SealKey::from_file(&path).err().unwrap().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let bytes = sealed(model(), b"content");
    let from = |key: Result<SealKey, StoreError>| open(&bytes, &key.unwrap(), model()).unwrap();
    assert_eq!(from(SealKey::from_file(&path)), b"content");
    assert_eq!(from(SealKey::from_command("printf 'sixteen bytes or\r\n'")), b"content");
    // Cargo sets this variable for tests.
    let known = SealKey::from_env("CARGO_MANIFEST_DIR").unwrap();
    let by_bytes = SealKey::from_bytes(env!("CARGO_MANIFEST_DIR").as_bytes()).unwrap();
    let bytes = sealed_with(&by_bytes, model(), b"content");
    assert_eq!(open(&bytes, &known, model()).unwrap(), b"content");
}

#[test]
fn rejects_missing_short_and_long_keys() {
    let dir = tempfile::tempdir().unwrap();
    for (key, why) in [
        (SealKey::from_bytes(b"\n\n"), "empty"),
        (SealKey::from_bytes(b"fifteen bytes..\n"), "15 bytes are too few"),
        (SealKey::from_file(&dir.path().join("none")), "No such file"),
        (SealKey::from_env("TACIT_TEST_NOT_SET"), "not set"),
        (SealKey::from_command("true"), "empty"),
        (SealKey::from_command("echo sixteen bytes or; exit 3"), "exit status: 3"),
        (SealKey::from_command("head -c 5000 /dev/zero | tr '\\0' x"), "this is no key"),
    ] {
        let text = key.err().unwrap().to_string();
        assert!(text.contains(why), "{text}; {why}");
    }
}

#[test]
fn sealed_store_needs_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let open = |key| Store::open(dir.path(), Party::Client, key);
    let store = open(Some(key())).unwrap();
    let secret = b"material that nobody else reads";
    let (a, b, c) = (put(&store, secret), put(&store, secret), put(&store, &content(200_000)));
    let path = |id| file(dir.path(), id);
    for id in [a, b] {
        assert!(!fs::read(path(id)).unwrap().windows(8).any(|w| w == &secret[..8]));
    }
    assert_eq!(store.list(Some(OWNER)).unwrap()[0].bytes, secret.len() as u64);
    drop(store);
    assert!(matches!(open(None), Err(StoreError::KeyNeeded(p)) if p == dir.path()));
    assert!(matches!(open(Some(other_key())), Err(StoreError::WrongKey(p)) if p == dir.path()));
    let store = open(Some(key())).unwrap();
    assert_eq!(store.claim(a, OWNER).unwrap().as_slice(), secret);
    assert_eq!(*store.claim(c, OWNER).unwrap(), content(200_000));
    let damaged = |id, why: &str| {
        let error = store.claim(id, OWNER).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { what, .. } if what.contains(why)), "{error}");
    };
    // Another material's file, of the same length and under the same key.
    let d = put(&store, secret);
    fs::copy(path(d), path(b)).unwrap();
    damaged(b, "files were exchanged");
    let mut bytes = fs::read(path(d)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path(d), &bytes).unwrap();
    damaged(d, "chunk 0");
}

#[test]
fn plain_store_refuses_key() {
    let dir = tempfile::tempdir().unwrap();
    let open = |key| Store::open(dir.path(), Party::Client, key);
    let id = put(&open(None).unwrap(), b"x");
    let error = open(Some(key())).err().unwrap();
    assert!(matches!(&error, StoreError::NotSealed(_)), "{error}");
    assert!(error.to_string().contains("new folder"), "{error}");
    assert_eq!(open(None).unwrap().claim(id, OWNER).unwrap().as_slice(), b"x");
}
