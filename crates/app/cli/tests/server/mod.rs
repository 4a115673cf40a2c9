//! `tacit serve`, `tacit bench`, `tacit lab` run other programs of tacit, in the folder of the binary.
use std::process::Command;
use std::sync::Once;

/// The programs, each with the package that builds it.
const PROGRAMS: [(&str, &str); 4] = [
    ("tacit", "tacit-cli"),
    ("tacit-server", "tacit-serve"),
    ("tacit-dealer", "tacit-serve"),
    ("tacit-lab", "tacit-lab"),
];

/// Builds them where cargo has not done so: most are another package's programs, which
/// `cargo test --workspace` builds and `cargo test -p` does not.
pub fn ensure() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        // This test is `FOLDER/deps/NAME`.
        let test = std::env::current_exe().expect("a program has a path");
        let folder = test.ancestors().nth(2).expect("cargo's folders").to_owned();
        for (program, package) in PROGRAMS {
            if !folder.join(program).exists() {
                let mut command = Command::new(env!("CARGO"));
                command.args(["build", "--locked", "-p", package, "--bin", program]);
                assert!(command.status().expect("cargo runs").success(), "cargo builds {program}");
            }
        }
    });
}
