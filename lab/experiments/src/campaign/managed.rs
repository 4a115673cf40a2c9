//! Marked folders of measurements; files are removed and replaced only inside these.
use super::{CAMPAIGN, MAX_FILE, open};
use crate::LabError;
use std::io::Read;
use std::path::Path;
use tacit_store::managed::is_marked;
use tacit_store::{FolderKind, ManagedFolder};

const MANAGED: FolderKind = FolderKind::public("lab", "measurements");

/// Opens or creates a folder for measurements and marks it; refuses a folder with other content.
///
/// # Errors
/// [`LabError::Keys`] for a folder with other content, a link, or a folder that cannot be created.
pub fn managed_folder(dir: &Path) -> Result<(), LabError> {
    // A folder of version 0.1 is recognised by its description.
    let is_ours = is_described(dir, CAMPAIGN, "version") || is_described(dir, "study.json", "format");
    ManagedFolder::open_or_mark(dir, MANAGED, |_| is_ours)?;
    Ok(())
}

fn is_described(dir: &Path, name: &str, key: &str) -> bool {
    let text = open(&dir.join(name)).and_then(|file| {
        let mut text = vec![];
        file.take(MAX_FILE).read_to_end(&mut text).map(|_| text)
    });
    let value: Option<serde_json::Value> = text.ok().and_then(|text| serde_json::from_slice(&text).ok());
    value.is_some_and(|value| value.get(key).is_some())
}

/// Creates a marked folder inside one of measurements, or marks one of an earlier version. Refuses a
/// link: a campaign from elsewhere must not lead this program, perhaps run by root, outside.
///
/// # Errors
/// As [`managed_folder`].
pub fn own_folder(path: &Path) -> Result<(), LabError> {
    if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
        let detail = "is a link, and a campaign writes into its own folder only; remove it";
        return Err(LabError::spec(path.display().to_string(), detail));
    }
    let is_inside = path.parent().is_some_and(|parent| is_marked(parent, MANAGED).unwrap_or(false));
    ManagedFolder::open_or_mark(path, MANAGED, |entry| {
        is_inside && entry.symlink_metadata().is_ok_and(|meta| meta.is_file())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{CAMPAIGN, Folder, VERSION, tests::campaign};
    use super::own_folder;
    use crate::tests::assert_refused;
    use std::fs;

    #[test]
    fn only_folders_of_measurements_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        Folder::open(&ours).unwrap().begin(&campaign()).unwrap();
        assert!(ours.join(tacit_store::managed::MARK).exists());
        Folder::open(&ours).unwrap();
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("runs.jsonl"), "my own runs, without a line feed").unwrap();
        assert_refused(Folder::open(&theirs), &["runs.jsonl"]);
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 1);
        // A folder of version 0.1: without a mark.
        fs::write(theirs.join(CAMPAIGN), format!("{{\"version\": {VERSION}}}")).unwrap();
        Folder::open(&theirs).unwrap();
    }

    #[test]
    fn inner_folders_are_marked() {
        let dir = tempfile::tempdir().unwrap();
        let (campaign, loose) = (dir.path().join("campaign"), dir.path().join("loose"));
        Folder::open(&campaign).unwrap();
        for part in ["records", "logs"] {
            assert!(campaign.join(part).join(tacit_store::managed::MARK).exists(), "{part}");
        }
        // A folder of an earlier version, inside a marked folder.
        let inputs = campaign.join("inputs");
        fs::create_dir(&inputs).unwrap();
        fs::write(inputs.join("source.json"), "{}").unwrap();
        own_folder(&inputs).unwrap();
        assert!(inputs.join(tacit_store::managed::MARK).exists());
        fs::create_dir(&loose).unwrap();
        fs::write(loose.join("taxes.ods"), "mine").unwrap();
        assert_refused(own_folder(&loose), &["taxes.ods"]);
        assert_eq!(fs::read_dir(&loose).unwrap().count(), 1);
    }
}
