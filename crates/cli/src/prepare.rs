//! `tacit prepare`
use crate::connect::{Connect, Startup};
use crate::print;
use serde_json::json;
use tacit_client::Client;
use tacit_client::bench::printed;

/// Makes material for later inputs: the offline phase, ahead of time. Each material serves one input of one
/// model, or one batch of them. `tacit material` lists and destroys it.
///
/// Examples: tacit prepare --model digits --count 10
///           tacit prepare --model digits --batch 8
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    pub connect: Connect,
    /// Materials to make
    #[arg(long, default_value_t = 1, value_parser = tacit_args::count(1_000_000))]
    count: usize,
    /// Inputs that each material is for: they are answered as one, in the exchanges of one input, and if
    /// fewer come the rest of it is burnt
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = tacit_args::count(32))]
    batch: usize,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    let (mut client, startup) = args.connect.open(true)?;
    make(&mut client, &startup, (args.count, args.batch), as_json)?;
    Ok(client.close()?)
}

fn make(client: &mut Client, startup: &Startup, (count, batch): (usize, usize), as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => print::line(&json!({ "startup": startup }).to_string())?,
        false => print::note(&startup.to_string()),
    }
    let costs = client.model().costs();
    // Of a batch a little less.
    let bytes = costs.setup.bytes() + costs.offline.bytes() * (count * batch) as u64;
    let bar = print::traffic_bar(client.moved(), "preparing", bytes);
    if let Some(setup) = client.setup()? {
        bar.suspend(|| match as_json {
            true => print::line(&json!({"setup": printed(&setup)}).to_string()),
            false => {
                print::note(&print::phase_line("setup", &setup));
                Ok(())
            }
        })?;
    }
    for done in 0..count {
        bar.set_message(format!("preparing {} of {count}", done + 1));
        let made = client.prepare_batch(batch)?;
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
