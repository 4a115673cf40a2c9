//! `tacit cluster`: runs `python -m tacit.cluster`.
use crate::python;
use anyhow::Context;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

/// Run servers on several machines, placed on Ray (in a clone: `pip install '.[ray]'`)
///
/// `up` starts a front, and a server on each node. `place` asks the front which server answers a
/// client. `infer` asks the front, and then that server. `tacit cluster --help` shows the options.
/// docs/scale.md describes clusters and their limits.
///
/// Examples: tacit cluster up cluster.toml --address auto
///           tacit cluster place digits --front front.example:7900 --keys keys --client alice
///           tacit cluster infer digits photo.png --front one:7900 --keys keys --client alice -- --phases
#[derive(clap::Args)]
#[command(verbatim_doc_comment, disable_help_flag = true, disable_version_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    let Args { mut arguments } = args;
    // Arguments after `--` are for another program.
    let own_len = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
    if as_json && !arguments[..own_len].iter().any(|a| a == "--json") {
        arguments.insert(own_len, "--json".into());
    }
    let python = python::find(&["tacit"], ".[ray]")?;
    let error = python::isolated(&python).args(["-m", "tacit.cluster"]).args(arguments).exec();
    Err(error).with_context(|| format!("starting {}", python.display()))
}
