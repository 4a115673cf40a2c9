//! `tacit prepare`
use crate::connect::{Connect, Startup};
use crate::print;
use clap::Subcommand;
use serde_json::json;
use tacit_client::Client;
use tacit_client::bench::printed;
use tacit_ids::MaterialId;

/// Makes material for later inputs: the offline phase, ahead of time. Each material serves one input of one model.
///
/// Examples: tacit prepare --model digits --count 10
///           tacit prepare --model digits list
///           tacit prepare --model digits discard --all
#[derive(clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = false)]
pub struct Args {
    #[command(flatten)]
    pub connect: Connect,
    /// Materials to make
    #[arg(long, default_value_t = 1)]
    count: usize,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Show material that is ready at both parties
    ///
    /// Example: tacit prepare list --model digits
    List,
    /// Destroy material at both parties
    ///
    /// Examples: tacit prepare discard --model digits --all
    ///           tacit prepare discard --model digits 6ab0c1d2e3f405162738495a6b7c8d9e
    #[command(verbatim_doc_comment)]
    Discard {
        /// Ids, as listed
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<MaterialId>,
        /// All of this model, also what only one party has
        #[arg(long)]
        all: bool,
    },
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    let (mut client, startup) = args.connect.open(true)?;
    match args.command {
        None => make(&mut client, &startup, args.count, as_json)?,
        Some(Command::List) => list(&mut client, as_json)?,
        Some(Command::Discard { mut ids, all }) => {
            if all {
                ids = client.known_ids()?;
            }
            let (destroyed, of) = (client.discard(&ids)?, ids.len());
            print::line(&match as_json {
                true => json!({"destroyed": destroyed, "of": of}).to_string(),
                false => format!("destroyed {destroyed} of {of}"),
            })?;
        }
    }
    Ok(client.close()?)
}

fn make(client: &mut Client, startup: &Startup, count: usize, as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => print::line(&json!({ "startup": startup }).to_string())?,
        false => eprintln!("{startup}"),
    }
    let costs = client.model().costs();
    let bytes = costs.setup.bytes() + costs.offline.bytes() * count as u64;
    let bar = print::traffic_bar(client.moved(), "preparing", bytes);
    if let Some(setup) = client.setup()? {
        bar.suspend(|| match as_json {
            true => print::line(&json!({"setup": printed(&setup)}).to_string()),
            false => {
                eprintln!("{}", print::phase_line("setup", &setup));
                Ok(())
            }
        })?;
    }
    for done in 0..count {
        bar.set_message(format!("preparing {} of {count}", done + 1));
        let made = client.prepare()?;
        bar.suspend(|| {
            if as_json {
                let offline = printed(&made.offline);
                return print::line(
                    &json!({"id": made.id.to_string(), "bytes": made.bytes, "offline": offline}).to_string(),
                );
            }
            let [ours, theirs] = made.bytes.map(print::bytes);
            print::line(&format!("{}  {ours} here, {theirs} at the server", made.id))?;
            print::line(&print::phase_line("offline", &made.offline))
        })?;
    }
    bar.finish_and_clear();
    Ok(())
}

fn list(client: &mut Client, as_json: bool) -> anyhow::Result<()> {
    let entries = client.stored()?;
    for e in &entries {
        print::line(&match as_json {
            true => json!({"id": e.id.to_string(), "bytes": e.bytes, "created": e.created}).to_string(),
            false => format!("{}  {}  made {} (seconds since 1970)", e.id, print::bytes(e.bytes), e.created),
        })?;
    }
    if entries.is_empty() && !as_json {
        print::line("no material is ready for this model: make some with `tacit prepare --count N`")?;
    }
    Ok(())
}
