//! Sealed files, read with the right key: what a disk or another user makes of them.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::LazyLock;

use tacit_store::SealKey;
use tacit_store::seal::{Kind, Reader, Writer};

static KEY: LazyLock<SealKey> = LazyLock::new(|| SealKey::from_bytes(b"a key for tests only").expect("long enough"));

/// What the seeds hold; nobody without the key can make a file that opens as anything else.
static CONTENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| vec![vec![], vec![7; 100], vec![0xa5; 150_000]]);

fn model() -> Kind {
    Kind::model(Path::new("net.tacit"))
}

/// Opens the file as a model, in one pass.
pub(crate) fn file(data: &[u8]) {
    let Ok(mut reader) = Reader::new(data, &KEY, model()) else { return };
    let mut content = Vec::new();
    if reader.read_to_end(&mut content).is_ok() {
        assert!(CONTENTS.contains(&content), "{} bytes opened that nobody sealed", content.len());
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let seal = |content: &Vec<u8>| {
        let writer = Writer::new(Vec::new(), &KEY, model(), content.len() as u64);
        let mut writer = writer.expect("the operating system gives randomness");
        writer.write_all(content).expect("memory takes it all");
        writer.finish().expect("all was written")
    };
    CONTENTS.iter().map(seal).collect()
}
