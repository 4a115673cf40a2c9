//! `tacit serve` and `tacit bench` run the program `tacit-server` beside the binary.
use std::path::Path;
use std::process::Command;
use std::sync::Once;

/// Builds `tacit-server` where cargo has not done so: it is another package's program, which
/// `cargo test --workspace` builds and `cargo test -p tacit-cli` does not.
pub fn ensure() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_tacit")).with_file_name("tacit-server");
        if !beside.exists() {
            let mut command = Command::new(env!("CARGO"));
            command.args(["build", "--locked", "-p", "tacit-serve", "--bin", "tacit-server"]);
            assert!(command.status().expect("cargo runs").success() && beside.exists(), "no {}", beside.display());
        }
    });
}
