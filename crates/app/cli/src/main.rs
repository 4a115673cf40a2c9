//! The program `tacit`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tacit_cli::program::run::<tacit_cli::Cli>()
}
