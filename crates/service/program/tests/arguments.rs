//! Parsing of the arguments that programs share.
use clap::Parser;
use tacit_client::ClientConfig;
use tacit_client::wire::LinkClass;
use tacit_program::args::{DealerArgs, DeviceArgs, ServerArgs, count};
use tacit_store::keys;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    dealer: DealerArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[arg(long, value_parser = count(3), default_value_t = 1)]
    number: usize,
}

#[test]
fn arguments_have_defaults_and_belong_together() {
    let parse = |line: &str| Program::try_parse_from(line.split(' '));
    let program = parse("x --client bob").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((program.server.server.as_str(), program.server.client.as_str()), ("127.0.0.1:7878", "bob"));
    assert!(program.server.identity().is_err());
    assert_eq!(program.number, 1);
    let _ = program.dealer;
    for (line, part) in [
        ("x --dealer there:1", "--dealer-pin"),
        ("x --dealer-keys k", "--dealer"),
        ("x --number 4", "1..=3"),
        ("x --number 0", "1..=3"),
    ] {
        let refusal = parse(line).err().expect("it is refused").to_string();
        assert!(refusal.contains(part), "{line}: {refusal}");
    }
}

#[test]
fn device_arguments_configure_connections() {
    let dir = tempfile::tempdir().unwrap();
    keys::init(dir.path(), &[], &["alice".into()]).unwrap();
    let configure = |line: &str| {
        let program = Program::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{e}"));
        let mut config = ClientConfig::new("there:1", keys::load_client(dir.path(), "alice").unwrap());
        program.device.apply(&mut config);
        (config.link, config.memory, config.connect_timeout.as_secs())
    };
    assert_eq!(configure("x"), (LinkClass::Lan, None, 10));
    assert_eq!(configure("x --link slow --device-memory 512"), (LinkClass::Slow, Some(512 << 20), 150));
}
