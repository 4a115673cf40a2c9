//! `tacit prepare`: makes material ahead of time.
use crate::connect::{Connect, Startup};
use crate::print;
use serde_json::json;
use std::thread;
use std::time::Duration;
use tacit_backends::Sides;
use tacit_client::Client;
use tacit_client::bench::phase_figures;
use tacit_measure::clock::process_cpu_s;
use tacit_program::args::count;

/// Make material for later inputs: run the offline phase ahead of time
///
/// One material serves one input of one model, or one batch. `tacit material` lists and destroys
/// material.
///
/// With --helper, a second machine of this client (`tacit helper`) runs the offline phase, and this
/// machine only fetches the material. Helper and server together could learn the inputs.
///
/// Examples: tacit prepare --model digits --count 10
///           tacit prepare --model digits --batch 8
///           tacit prepare --model digits --count 10 --helper gateway.local:7880
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    pub connect: Connect,
    /// Number of materials to make
    #[arg(long, default_value_t = 1, value_parser = count(1_000_000), help_heading = "Material")]
    count: usize,
    /// Inputs that each material serves as one batch, in the exchanges of one input. If fewer
    /// inputs come, the rest of the material is burnt
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(32))]
    #[arg(help_heading = "Material")]
    batch: usize,
    /// Order the material from this client's helper, host:port; wait until the helper has made it,
    /// and fetch it together with earlier orders
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "batch", help_heading = "Material")]
    helper: Option<String>,
    /// Order from the helper, and fetch the material that is ready without a wait for the rest
    #[arg(long, requires = "helper", help_heading = "Material")]
    later: bool,
    /// Fetch the material that the helper has ready, and order none
    #[arg(long, requires = "helper", conflicts_with_all = ["count", "later"], help_heading = "Material")]
    fetch: bool,
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    let (mut client, startup) = args.connect.open(true)?;
    if let Some(helper) = &args.helper {
        have_made(&mut client, &startup, &args, helper, as_json)?;
        // The server may have closed the idle connection while the helper worked.
        let _ = client.close();
        return Ok(());
    }
    make(&mut client, &startup, args.count, args.batch, as_json)?;
    Ok(client.close()?)
}

const POLL_INTERVAL: Duration = Duration::from_secs(2);

fn have_made(client: &mut Client, startup: &Startup, args: &Args, helper: &str, as_json: bool) -> anyhow::Result<()> {
    let mut line = args.connect.helper(helper)?;
    let ordered = if args.fetch { vec![] } else { client.order(&mut line, args.count)? };
    let mut lost = 0;
    let waiting = loop {
        let collected = client.collect(&mut line)?;
        for material in &collected.got {
            let id = material.id.to_string();
            let value = json!({"id": id, "bytes": material.bytes, "sealed_bytes": material.sealed});
            let [here, sealed] = [material.bytes, material.sealed].map(print::bytes);
            print::row(as_json, &value, &format!("{id}  {here} here, {sealed} from the helper"))?;
        }
        for (id, reason) in &collected.lost {
            print::note(&format!("material {id} was not made: {reason}"));
        }
        lost += collected.lost.len();
        match collected.waiting {
            0 => break 0,
            waiting if args.later || args.fetch => break waiting,
            _ => thread::sleep(POLL_INTERVAL),
        }
    };
    let (traffic, cpu_s) = (line.traffic(), process_cpu_s());
    match as_json {
        true => print::line(
            &json!({"startup": startup, "ordered": ordered.len(), "waiting": waiting, "lost": lost, "cpu_s": cpu_s,
                "helper_bytes_up": traffic.sent, "helper_bytes_down": traffic.received})
            .to_string(),
        )?,
        false => {
            print::note(&startup.to_string());
            let [up_text, down_text] = [traffic.sent, traffic.received].map(print::bytes);
            print::line(&format!(
                "{} ordered, {waiting} still to be made, CPU {cpu_s:.3} s in all; to and from the helper {up_text} and {down_text}",
                ordered.len()
            ))?;
        }
    }
    anyhow::ensure!(lost == 0, "{lost} materials were not made: order them anew");
    Ok(())
}

fn make(client: &mut Client, startup: &Startup, count: usize, batch: usize, as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => print::line(&json!({ "startup": startup }).to_string())?,
        false => print::note(&startup.to_string()),
    }
    let costs = client.model().costs();
    // An upper bound: a batch sends a little less.
    let bytes = costs.setup.bytes() + costs.offline.bytes() * (count * batch) as u64;
    let bar = print::traffic_bar(client.moved(), "preparing", bytes);
    if let Some(setup) = client.setup()? {
        bar.suspend(|| match as_json {
            true => print::line(&json!({"setup": phase_figures(&setup)}).to_string()),
            false => {
                print::note(&print::phase_line("setup", &setup));
                Ok(())
            }
        })?;
    }
    for done in 0..count {
        bar.set_message(format!("preparing {} of {count}", done + 1));
        let prepared = client.prepare_batch(batch)?;
        bar.suspend(|| {
            if as_json {
                let offline = phase_figures(&prepared.offline);
                return print::line(
                    &json!({"id": prepared.id.to_string(), "bytes": prepared.bytes, "offline": offline}).to_string(),
                );
            }
            let Sides { client: client_bytes, server: server_bytes } = prepared.bytes.map(print::bytes);
            print::line(&format!("{}  {client_bytes} here, {server_bytes} at the server", prepared.id))?;
            print::line(&print::phase_line("offline", &prepared.offline))
        })?;
    }
    bar.finish_and_clear();
    Ok(())
}
