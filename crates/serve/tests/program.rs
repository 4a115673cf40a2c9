//! The program `tacit-server`: what it says when it cannot start, and that nobody has to listen.
use std::process::{Command, Stdio};
use tacit_store::keys;

fn server() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacit-server"));
    command.stdin(Stdio::null()).env_remove("TACIT_LOG");
    command
}

fn error_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "nothing is announced");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let key_dir = dir.path().join("keys");
    let error = error_of(server().arg("none.tacit").arg("--keys").arg(&key_dir));
    assert!(
        error.starts_with("error: ") && error.contains("server.pem") && error.contains("tacit keys init"),
        "{error}"
    );
    keys::init(&key_dir, &[], &[]).unwrap();
    let error = error_of(server().args(["none.tacit", "--backend", "nonsense"]).arg("--keys").arg(&key_dir));
    assert!(error.contains("nonsense"), "{error}");
    let error = error_of(server().args(["none.tacit", "-O", "key"]).arg("--keys").arg(&key_dir));
    assert!(error.contains("key=value"), "{error}");
}

#[test]
fn help_shows_every_switch() {
    let output = server().arg("--help").output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    for switch in [
        "--keys",
        "--listen",
        "--backend",
        "-O",
        "--allow-clear",
        "--material",
        "--seal",
        "--quota",
        "--expire",
        "--memory",
        "--memory-wait",
        "--pace",
    ] {
        assert!(help.contains(switch), "{switch}: {help}");
    }
}

#[test]
fn a_reader_that_is_gone_makes_no_panic() {
    let mut child = server().arg("none.tacit").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(1), "101 would be a panic");
}
