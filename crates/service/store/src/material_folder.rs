//! The folder of one party's material: its kind, and the files that version 0.1 made in it.
use crate::entry::Party;
use crate::managed::{FolderKind, ManagedFolder, hex_stem, is_database};
use crate::reserve::Reserve;
use crate::{StoreError, managed};
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::path::Path;

pub(crate) const LEDGER: &str = "ledger.sqlite";
pub(crate) const APPLICATION: i32 = 0x7461_636d;
/// Name and application number ("tacs") of the server's own database beside the ledger.
const STATE_DATABASE: (&str, i32) = ("server.sqlite", 0x7461_6373);
/// Endings of the files that SQLite makes beside a database.
pub(crate) const SQLITE_ENDINGS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Subfolders of a material folder, which have marks of their own.
const FOLDERS: [&str; 3] = ["uploads", "secrets", "fetched"];
pub(crate) const MATERIAL_ENDING: &str = ".material";

const PARTIES: [Party; 2] = [Party::Client, Party::Server];

impl Party {
    /// The kind of this party's material folder.
    #[must_use]
    pub const fn folder(self) -> FolderKind {
        FolderKind::private(self.name(), "material")
    }
}

/// Opens or makes a party's folder of material.
///
/// # Errors
/// As [`ManagedFolder::open_or_mark`]; [`StoreError::OtherParty`].
pub fn material_folder(dir: &Path, party: Party) -> Result<ManagedFolder, StoreError> {
    if let Some(actual) = party_in(dir).filter(|actual| *actual != party) {
        let (holds, wanted) = (actual.name(), party.name());
        return Err(StoreError::OtherParty { path: dir.components().collect(), holds, wanted });
    }
    ManagedFolder::open_or_mark(dir, party.folder(), is_of_material)
}

/// The party of a material folder, by its mark or else its ledger.
pub(crate) fn party_in(dir: &Path) -> Option<Party> {
    let marked = PARTIES.into_iter().find(|party| managed::is_marked(dir, party.folder()).is_ok_and(|is_so| is_so));
    marked.or_else(|| {
        let path = dir.join(LEDGER);
        if !is_database(&path, APPLICATION) {
            return None;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let ledger = Connection::open_with_flags(path, flags).ok()?;
        let name: String = ledger.query_row("SELECT party FROM folder", [], |row| row.get(0)).ok()?;
        PARTIES.into_iter().find(|party| party.name() == name)
    })
}

/// Whether an entry of an unmarked folder was made by version 0.1, by name and content.
fn is_of_material(path: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else { return false };
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    if meta.is_dir() {
        return FOLDERS.contains(&name);
    }
    let databases = [(LEDGER, APPLICATION), STATE_DATABASE];
    let database = databases.into_iter().find(|(base, _)| name.starts_with(base));
    meta.is_file()
        && match (name, database) {
            (_, Some((base, application))) => {
                let ending = &name[base.len()..];
                (ending.is_empty() || SQLITE_ENDINGS.contains(&ending))
                    && is_database(&path.with_file_name(base), application)
            }
            ("lock", None) => meta.len() == 0,
            ("reserve", None) => Reserve::new(path.parent().unwrap_or(Path::new("."))).is_reserve(),
            // A ledger must be there: only files that it knows are ever removed.
            _ if hex_stem(path, MATERIAL_ENDING, 32).is_some() => {
                is_database(&path.with_file_name(LEDGER), APPLICATION)
            }
            _ => hex_stem(path, ".kept", 64).or_else(|| hex_stem(path, ".part", 32)).is_some(),
        }
}
