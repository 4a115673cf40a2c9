//! Folders and files that tacit did not make, given to every option that takes a folder or writes a
//! file. The programs refuse each and change nothing in it.
use crate::common::{Folder, MODELS, assert_contains, good, import_digits, run_failing, samples};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns files of a user (name and content), some under names that the programs use.
fn precious() -> Vec<(String, &'static str)> {
    let (id, digest) = ("0123456789abcdef".repeat(2), "0123456789abcdef".repeat(4));
    let names =
        ["taxes.ods", "notes.part", "lock", "reserve", "ledger.sqlite", "server.sqlite", "home.key", "study.json"];
    let names = names.map(str::to_owned).into_iter().chain([
        format!("{id}.material"),
        format!("{id}.sealed"),
        format!("{digest}.kept"),
        format!("uploads/{digest}"),
        format!("secrets/{digest}.secret"),
        "keys/own.pem".to_owned(),
        "material/diary.txt".to_owned(),
        "runs.jsonl".to_owned(),
    ]);
    names.map(|name| (name, "precious, and nobody's but mine\n")).collect()
}

fn make_folder(folder: &Path) {
    for (name, text) in precious() {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns the paths in a folder with their permissions and contents.
fn content(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut contents = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode();
        contents.insert(folder.clone(), (mode(&folder), vec![]));
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(contents.insert(path.clone(), (mode(&path), fs::read(&path).unwrap()))),
            }
        }
    }
    contents
}

/// Runs a command that must fail and must not change the folder; returns its standard error.
#[track_caller]
fn run_refused(dir: &Path, folder: &Path, args: &[&str]) -> String {
    let before = content(folder);
    let (_, error) = run_failing(dir, args);
    assert_eq!(content(folder), before, "tacit {args:?}: {error}");
    error
}

#[test]
fn options_for_folders_refuse_a_folder_of_other_files() {
    let dir = &Folder::new();
    let home = dir.join("home");
    good(dir, &["keys", "init", "keys"]);
    good(dir, &["keys", "add-helper", "keys", "gateway", "--of", "client", "--host", "localhost"]);
    import_digits(dir, &["--backend", "none"]);
    make_folder(&home);
    // No server listens at this address: the command fails before it connects.
    let nowhere = ["--server", "localhost:1"];
    let image = format!("{MODELS}/digit.npy");
    let cases: [&[&str]; 7] = [
        &["helper", "--client", "gateway", "--folder", "home", "--listen", "127.0.0.1:0"],
        &["prepare", "--material", "home"],
        &["infer", &image, "--material", "home"],
        &["keyset", "list", "--material", "home"],
        &["keyset", "delete", "--all", "--material", "home"],
        &["material", "list", "--material", "home"],
        &["material", "discard", "--all", "--material", "home"],
    ];
    for case in cases {
        let error = run_refused(dir, &home, &[case, &nowhere[..]].concat());
        for part in ["home holds `", "nothing in it was touched"] {
            assert!(error.contains(part), "{case:?}: {error}");
        }
    }
    for case in [
        &["keys", "init", "home"][..],
        &["plan", "digits.tacit", "--apply", "home"],
        &["lab", "run", "idle", "-o", "home"],
        &["lab", "run", "ss26-live", "--quick", "-o", "home"],
        &["lab", "run", "pm24-study", "-o", "home"],
        &["material", "list", "--offline", "--material", "home"],
    ] {
        run_refused(dir, &home, case);
    }
}

#[test]
fn outputs_replace_no_other_files() {
    let dir = &Folder::new();
    let files = dir.join("files");
    fs::create_dir(&files).unwrap();
    for name in ["digits.onnx", "digits_samples.npy"] {
        fs::copy(format!("{MODELS}/{name}"), files.join(name)).unwrap();
    }
    for name in ["notes", "notes.json", "notes.html", "paper.tacit"] {
        fs::write(files.join(name), "{\"precious\": 1}").unwrap();
    }
    let (onnx, samples) = ("files/digits.onnx", "files/digits_samples.npy");
    let import = |output| {
        [&["model", "import", onnx, "--calibrate", samples, "-o", output][..], &["--backend", "none"]].concat()
    };
    for output in [onnx, samples, "files/paper.tacit"] {
        assert_contains(&run_refused(dir, &files, &import(output)), &["nothing is overwritten"]);
    }
    let import_again = import("digits.tacit");
    good(dir, &import_again);
    good(dir, &import_again);
    for case in [
        &["zoo", "resnet20", "-o", samples][..],
        &["zoo", "resnet20", "-o", "files/notes"],
        &["plan", "digits.tacit", "-o", "files/notes"],
        &["plan", "digits.tacit", "-o", "digits.tacit"],
        &["calibrate", "--quick", "-o", "files/notes"],
        &["lab", "measure", "-o", "files/notes", "--", "true"],
    ] {
        let model = fs::read(dir.join("digits.tacit")).unwrap();
        run_refused(dir, &files, case);
        assert!(fs::read(dir.join("digits.tacit")).unwrap() == model, "{case:?}");
    }
}

/// The binding to the name prevents that one model is served under the name of another.
#[test]
fn sealed_models_open_under_their_name_only() {
    let dir = &Folder::new();
    fs::write(dir.join("key"), "sixteen bytes or more").unwrap();
    fs::set_permissions(dir.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let (onnx, samples) = (format!("{MODELS}/digits.onnx"), samples());
    let import = |output, extra: &[&str]| {
        let args = ["model", "import", &onnx, "--calibrate", &samples, "-o", output, "--backend", "none"];
        good(dir, &[&args[..], extra].concat());
    };
    let seal = ["--seal", "key"];
    let inspect = |file| [&["model", "inspect", file][..], &seal].concat();
    import("square.tacit", &seal);
    import("plain.tacit", &[]);
    good(dir, &inspect("square.tacit"));
    fs::copy(dir.join("square.tacit"), dir.join("digits.tacit")).unwrap();
    for (file, reason) in [("digits.tacit", "renamed or exchanged"), ("plain.tacit", "not sealed")] {
        assert_contains(&run_refused(dir, dir, &inspect(file)), &[reason, "tacit model seal"]);
    }
    good(dir, &[&["model", "seal", "digits.tacit"][..], &seal].concat());
    good(dir, &inspect("digits.tacit"));
    good(dir, &[&["model", "seal", "plain.tacit", "-o", "sealed.tacit"][..], &seal].concat());
    good(dir, &inspect("sealed.tacit"));
    assert_contains(&run_refused(dir, dir, &["model", "inspect", "sealed.tacit"]), &["give the key"]);
}
