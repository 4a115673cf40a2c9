//! What is deleted in a folder: by its mark, by name and content, and by a clock that can be right.
use crate::common::*;
use std::fs;
use tacit_ids::MaterialId;
use tacit_store::managed::MARK;
use tacit_store::{Party, Store, StoreError};

/// Else a clock that stands ahead for a moment burns a stock that took days to make.
#[test]
fn clock_jump_burns_nothing() {
    const DAY: u64 = 24 * 3600;
    let dir = tempfile::tempdir().unwrap();
    let edited = |sql: &str| {
        let ledger = rusqlite::Connection::open(dir.path().join("ledger.sqlite")).unwrap();
        ledger.execute_batch(sql).unwrap();
    };
    let month = std::time::Duration::from_secs(30 * DAY);
    put(&open(dir.path()), b"x");
    // As if the clock had been 31 days behind when the folder was last used.
    let behind = format!(
        "UPDATE clock SET seen = seen - {0}; UPDATE material SET created = created - {0}, wanted = wanted - {0}, \
         used = used - {0};",
        31 * DAY
    );
    edited(&behind);
    let store = open(dir.path());
    for error in [store.expire(month).unwrap_err(), store.check_clock().unwrap_err()] {
        assert!(matches!(error, StoreError::ClockJump { days: 31, way: "after", .. }), "{error}");
        assert!(error.to_string().contains("--accept-clock"), "{error}");
    }
    assert_eq!(store.list(None).unwrap().len(), 1);
    // Nothing is too old by a year: the clock is no matter then, and is believed.
    assert_eq!(store.expire(month * 12).unwrap(), 0);
    store.check_clock().unwrap();
    assert_eq!(store.expire(month).unwrap(), 1);
    drop(store);
    edited(&format!("UPDATE clock SET seen = seen + {}", 8 * DAY));
    let store = open(dir.path());
    let error = store.check_clock().unwrap_err();
    assert!(matches!(error, StoreError::ClockJump { days: 8, way: "before", .. }), "{error}");
    store.accept_clock().unwrap();
    store.check_clock().unwrap();
    drop(store);
    open(dir.path()).check_clock().unwrap();
    // A folder of an earlier version has noted nothing: its rows say when it was used.
    put(&open(dir.path()), b"y");
    edited("DELETE FROM clock");
    edited(&behind);
    assert!(matches!(open(dir.path()).check_clock(), Err(StoreError::ClockJump { days: 31, .. })));
}

/// Folders of version 0.1 have no mark.
#[test]
fn takes_over_unmarked_folder_and_keeps_strange_files() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    let id = put(&open(&folder), b"x");
    fs::remove_file(folder.join(MARK)).unwrap();
    let strange = folder.join("taxes.ods");
    fs::write(&strange, b"precious").unwrap();
    let error = Store::open(&folder, Party::Client, None).err().unwrap();
    assert!(matches!(&error, StoreError::NotManaged { found, .. } if found == "taxes.ods"), "{error}");
    assert!(Store::open_existing(&folder, None).is_err());
    assert!(!folder.join(MARK).exists());
    fs::remove_file(&strange).unwrap();
    let other = Store::open(&folder, Party::Server, None).err().unwrap();
    assert!(matches!(&other, StoreError::OtherParty { .. }), "{other}");
    assert!(!folder.join(MARK).exists(), "{other}");
    assert_eq!(Store::open_existing(&folder, None).unwrap().list(None).unwrap()[0].id, id);
    assert!(folder.join(MARK).exists());
    // What comes into a marked folder, and is not in the ledger, is not ours.
    let lookalikes = [format!("{}.material", MaterialId([7; 16])), "uploads/notes".into(), "notes.part".into()];
    fs::create_dir(folder.join("uploads")).unwrap();
    for name in &lookalikes {
        fs::write(folder.join(name), b"precious").unwrap();
    }
    drop(open(&folder));
    assert!(lookalikes.iter().all(|name| fs::read(folder.join(name)).unwrap() == b"precious"));
}
