//! What several programs take.
use clap::Parser;
use tacit_args::{DealerArgs, ServerArgs, count};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    dealer: DealerArgs,
    #[arg(long, value_parser = count(3), default_value_t = 1)]
    number: usize,
}

#[test]
fn what_is_not_given_has_a_value_and_what_belongs_together_comes_together() {
    let read = |line: &str| Program::try_parse_from(line.split(' '));
    let program = read("x --client bob").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((program.server.server.as_str(), program.server.client.as_str()), ("127.0.0.1:7878", "bob"));
    assert!(program.server.identity().is_err() && program.number == 1, "there is no such folder");
    let _ = program.dealer;
    let why = |line: &str| read(line).err().expect("it is refused").to_string();
    assert!(why("x --dealer there:1").contains("--dealer-pin"));
    assert!(why("x --dealer-keys k").contains("--dealer"));
    assert!(why("x --number 4").contains("1..=3") && why("x --number 0").contains("1..=3"));
}
