//! `tacit prepare`
use crate::connect::Connect;
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
#[command(args_conflicts_with_subcommands = false)]
pub struct Args {
    #[command(flatten)]
    connect: Connect,
    /// Materials to make
    #[arg(long, default_value_t = 1, value_parser = print::count(1_000_000))]
    count: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Show material that is ready at both parties
    List,
    /// Destroy material at both parties
    Discard {
        /// Ids, as listed
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<MaterialId>,
        /// All of this model, also what only one party has
        #[arg(long)]
        all: bool,
    },
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let mut client = args.connect.open(true)?;
    match args.command {
        None => make(&mut client, args.count, args.json)?,
        Some(Command::List) => list(&mut client, args.json)?,
        Some(Command::Discard { mut ids, all }) => {
            if all {
                ids = client.known_ids()?;
            }
            print::line(&format!("destroyed {} of {}", client.discard(&ids)?, ids.len()))?;
        }
    }
    Ok(client.close()?)
}

fn make(client: &mut Client, count: usize, as_json: bool) -> anyhow::Result<()> {
    let bar = print::bar(count, "preparing");
    if let Some(setup) = client.setup()? {
        bar.suspend(|| match as_json {
            true => print::line(&json!({"setup": printed(&setup)}).to_string()),
            false => {
                print::note(&print::phase_line("setup", &setup));
                Ok(())
            }
        })?;
    }
    for _ in 0..count {
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
        bar.inc(1);
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
