//! `tacit serve`, `tacit bench`, `tacit lab` run the programs `tacit-server` and `tacit-dealer` beside the binary.
use std::path::Path;
use std::process::Command;
use std::sync::Once;

/// Builds them where cargo has not done so: they are another package's programs, which
/// `cargo test --workspace` builds and `cargo test -p tacit-cli` does not.
pub fn ensure() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let beside = |name| Path::new(env!("CARGO_BIN_EXE_tacit")).with_file_name(name);
        let are_there = || beside("tacit-server").exists() && beside("tacit-dealer").exists();
        if !are_there() {
            let mut command = Command::new(env!("CARGO"));
            command.args(["build", "--locked", "-p", "tacit-serve", "--bins"]);
            assert!(command.status().expect("cargo runs").success() && are_there(), "cargo has built them");
        }
    });
}
