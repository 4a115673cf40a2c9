//! Writes output files. An existing file is replaced only if it holds output of the same kind.
use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Most bytes of an existing file that are examined.
const MAX_EXAMINED_BYTES: u64 = 64 << 20;

/// How earlier output of the same kind is recognised.
#[derive(Clone, Copy)]
pub enum Alike<'a> {
    /// A JSON document with mostly the same keys.
    Json(&'a Value),
    /// The same bytes at the beginning.
    Beginning(&'a [u8]),
    /// A text that contains this one.
    Holds(&'a str),
}

/// Writes a file; replaces only an earlier one of the same kind.
pub fn write(path: &Path, bytes: &[u8], alike: Alike<'_>) -> anyhow::Result<()> {
    check(path, alike)?;
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

/// Refuses to write here, unless there is no file, an empty one, one of the same kind, or no
/// regular file (a pipe, a terminal).
pub fn check(path: &Path, alike: Alike<'_>) -> anyhow::Result<()> {
    let meta = match fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        bytes => bytes.with_context(|| reading(path))?,
    };
    if !meta.is_file() || meta.len() == 0 {
        return Ok(());
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_EXAMINED_BYTES).read_to_end(&mut bytes))
        .with_context(|| reading(path))?;
    let is_alike = match alike {
        Alike::Json(value) => serde_json::from_slice(&bytes).is_ok_and(|existing: Value| has_keys_of(&existing, value)),
        Alike::Beginning(beginning) => bytes.starts_with(beginning),
        Alike::Holds(text) => bytes.windows(text.len()).any(|window| window == text.as_bytes()),
    };
    if !is_alike {
        bail!(
            "{} exists and is no output of this command: nothing is overwritten; choose another name, or remove the file first",
            path.display()
        );
    }
    Ok(())
}

fn reading(path: &Path) -> String {
    format!("reading {}", path.display())
}

/// Whether two documents have more keys in common than not; a list counts by its first member.
fn has_keys_of(value: &Value, pattern: &Value) -> bool {
    let (value, pattern) = (keys(value), keys(pattern));
    value.intersection(&pattern).count() * 2 > value.union(&pattern).count()
}

fn keys(value: &Value) -> BTreeSet<String> {
    let object = if let Value::Array(list) = value { list.first().unwrap_or(value) } else { value };
    object.as_object().map_or_else(BTreeSet::new, |object| object.keys().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn replaces_only_output_of_the_same_kind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let plan = json!({"model": "m", "offers": [], "best": 1});
        let alike = Alike::Json(&plan);
        write(&path, plan.to_string().as_bytes(), alike).unwrap();
        let existing = json!({"model": "n", "offers": [1], "best": 2, "cells": []});
        write(&path, existing.to_string().as_bytes(), alike).unwrap();
        for precious in ["notes", r#"{"model": "m", "weights": [], "author": 1}"#, "[]", r#"[{"a": 1}]"#] {
            fs::write(&path, precious).unwrap();
            let error = write(&path, b"{}", alike).unwrap_err().to_string();
            assert!(error.contains("nothing is overwritten"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), precious);
        }
        fs::write(&path, "time,watts\n1,2\n").unwrap();
        check(&path, Alike::Beginning(b"time,watts\n")).unwrap();
        check(&path, Alike::Beginning(b"time,volts\n")).unwrap_err();
        check(&path, Alike::Holds("watts")).unwrap();
        check(&path, Alike::Holds("volts")).unwrap_err();
        fs::write(&path, "").unwrap();
        check(&path, alike).unwrap();
        check(Path::new("/dev/null"), alike).unwrap();
    }
}
