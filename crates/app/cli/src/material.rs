//! `tacit material`: lists or destroys material.
use crate::connect::Connect;
use crate::print;
use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tacit_client::{Connection, StoredMaterial, Usability};
use tacit_ids::MaterialId;
use tacit_store::Store;

/// List or destroy stored material, for all models, also for models that are gone
///
/// At a client the command shows the halves of both parties. With --offline the command reads one
/// folder alone, without a server; the folder may be a server's.
///
/// Examples: tacit material list
///           tacit material discard --orphans
///           tacit material discard --digest 5b1f --older-than 30d
///           tacit material list --offline --material server-material
#[derive(clap::Args)]
#[command(after_help = "Example: tacit material list --server server.example:7878 --keys keys --client alice")]
pub struct Args {
    #[command(flatten)]
    pub connect: Connect,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show material and its state
    ///
    /// Example: tacit material list --digest 5b1f --json
    List {
        #[command(flatten)]
        which: Which,
    },
    /// Destroy material at both parties, or in one folder
    ///
    /// Example: tacit material discard --orphans
    #[command(group(clap::ArgGroup::new("what").required(true).multiple(true)
        .args(["ids", "all", "orphans", "digest", "older_than"])))]
    Discard {
        /// Ids of the material, as `tacit material list` shows them
        #[arg(value_name = "ID", conflicts_with_all = ["all", "orphans"])]
        ids: Vec<MaterialId>,
        /// Destroy all listed material
        #[arg(long, conflicts_with = "orphans", help_heading = "Material")]
        all: bool,
        /// Destroy material that this folder cannot use: the model is gone, or the client's half is
        /// in another folder or lost
        #[arg(long, conflicts_with = "offline", help_heading = "Material")]
        orphans: bool,
        #[command(flatten)]
        which: Which,
    },
}

/// Which material a command is about; all that is there without any of these.
#[derive(clap::Args)]
struct Which {
    /// Select material by the beginning of the digest of its model, plan or client (at least 4
    /// hexadecimal digits)
    #[arg(long, value_name = "HEX", value_parser = digest, help_heading = "Material")]
    digest: Option<String>,
    /// Select material of this age or older: 90s, 30m, 12h, 30d
    #[arg(long, value_name = "AGE", value_parser = age, help_heading = "Material")]
    older_than: Option<Duration>,
    /// Read the folder alone, without the server
    #[arg(long, help_heading = "Material")]
    offline: bool,
}

fn digest(text: &str) -> Result<String, String> {
    let is_one = (4..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if is_one { Ok(text.to_ascii_lowercase()) } else { Err("4 to 64 hexadecimal digits are needed".into()) }
}

fn age(text: &str) -> Result<Duration, String> {
    const WRONG: &str = "a number with a unit is needed: 90s, 30m, 12h, 30d";
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or(WRONG)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(WRONG.into()),
    };
    let number: u64 = number.parse().map_err(|_| WRONG)?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| WRONG.into())
}

struct Line {
    id: MaterialId,
    bytes: u64,
    /// Age of the material, in seconds.
    age: u64,
    /// Whether the material can be used; `None` if the server was not asked.
    state: Option<Usability>,
    /// Digests in hexadecimal: model and plan, and in a folder also client and maker.
    digests: Vec<(&'static str, String)>,
}

impl Which {
    /// Lists the chosen material, from server and folder, or from the folder alone.
    fn lines(&self, place: &mut Place) -> anyhow::Result<Vec<Line>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock shows a time before 1970")?.as_secs();
        let hex = print::hex;
        let mut lines: Vec<Line> = match place {
            Place::Folder(store) => store
                .list(None)?
                .into_iter()
                .map(|e| Line {
                    id: e.id,
                    bytes: e.bytes,
                    age: now.saturating_sub(e.created),
                    state: None,
                    digests: [
                        ("model", hex(&e.binding.model)),
                        ("plan", hex(&e.binding.plan)),
                        ("client", e.binding.client.to_string()),
                    ]
                    .into_iter()
                    .chain(e.maker.map(|maker| ("maker", maker.to_string())))
                    .collect(),
                })
                .collect(),
            Place::Both(connection) => connection
                .material()?
                .into_iter()
                .map(|StoredMaterial { id, model, plan, created, bytes, state }| Line {
                    id,
                    bytes,
                    age: now.saturating_sub(created),
                    state: Some(state),
                    digests: vec![("model", hex(&model)), ("plan", hex(&plan))],
                })
                .collect(),
        };
        lines.retain(|line| {
            let mut digests = line.digests.iter().map(|(_, digest)| digest);
            self.digest.as_ref().is_none_or(|prefix| digests.any(|digest| digest.starts_with(prefix)))
                && self.older_than.is_none_or(|age| line.age >= age.as_secs())
        });
        Ok(lines)
    }
}

enum Place {
    Folder(Box<Store>),
    Both(Box<Connection>),
}

impl Place {
    fn open(connect: &Connect, offline: bool) -> anyhow::Result<Self> {
        match offline {
            true => Ok(Self::Folder(Box::new(Store::open_existing(connect.material(), connect.seal().cloned())?))),
            false => Ok(Self::Both(Box::new(connect.connection(true)?))),
        }
    }

    fn discard(&mut self, ids: &[MaterialId]) -> anyhow::Result<usize> {
        match self {
            Self::Folder(store) => Ok(store.discard(ids, None)?.len()),
            Self::Both(connection) => Ok(connection.discard(ids)?),
        }
    }

    fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Folder(_) => Ok(()),
            Self::Both(connection) => Ok(connection.close()?),
        }
    }
}

pub fn run(args: Args, as_json: bool) -> anyhow::Result<()> {
    match args.command {
        Command::List { which: filter } => {
            let mut place = Place::open(&args.connect, filter.offline)?;
            list(&filter.lines(&mut place)?, as_json)?;
            place.close()
        }
        Command::Discard { ids, orphans, which: filter, .. } => {
            let mut place = Place::open(&args.connect, filter.offline)?;
            let mut lines = filter.lines(&mut place)?;
            lines.retain(|line| !orphans || line.state.is_some_and(Usability::is_orphan));
            lines.retain(|line| ids.is_empty() || ids.contains(&line.id));
            let chosen: Vec<MaterialId> = lines.iter().map(|line| line.id).collect();
            let requested = if ids.is_empty() { chosen.len() } else { ids.len() };
            let destroyed = place.discard(&chosen)?;
            let value = json!({"destroyed": destroyed, "of": requested});
            print::row(as_json, &value, &format!("destroyed {destroyed} of {requested}"))?;
            place.close()
        }
    }
}

const fn word(state: Option<Usability>) -> &'static str {
    match state {
        None => "in this folder",
        Some(Usability::Ready) => "ready",
        Some(Usability::ModelGone) => "model gone",
        Some(Usability::Elsewhere) => "other half not here",
        Some(Usability::OtherServer) => "of another server",
    }
}

fn list(lines: &[Line], as_json: bool) -> anyhow::Result<()> {
    for line in lines {
        let state = word(line.state);
        if as_json {
            let mut object = json!({"id": line.id.to_string(), "state": state, "bytes": line.bytes, "age_s": line.age});
            for (name, digest) in &line.digests {
                object[name] = json!(digest);
            }
            print::line(&object.to_string())?;
            continue;
        }
        let digests: Vec<String> = line.digests.iter().map(|(name, hex)| format!("{name} {}", &hex[..8])).collect();
        let (bytes, age) = (print::bytes(line.bytes), format_age(line.age));
        print::line(&format!("{}  {state:<19} {bytes:>9}  {age:>5} old  {}", line.id, digests.join("  ")))?;
    }
    if lines.is_empty() && !as_json {
        print::line("no such material: make some with `tacit prepare --count N`")?;
    }
    if !as_json && lines.iter().any(|line| line.state.is_some_and(Usability::is_orphan)) {
        print::note("`tacit material discard --orphans` destroys the material that this folder cannot use");
    }
    Ok(())
}

/// Formats an age in its largest unit, in a form that [`age`] reads.
pub fn format_age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_ages_and_digests() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("12h", 43_200), ("30d", 2_592_000), ("0d", 0)] {
            assert_eq!(age(text).unwrap().as_secs(), seconds);
        }
        for seconds in [5, 120, 7200, 5 * 86_400] {
            assert_eq!(age(&format_age(seconds)).unwrap().as_secs(), seconds);
        }
        for text in ["", "d", "3", "-1d", "3w", "3 d", "é", "99999999999999999999d", "999999999999999999d"] {
            assert!(age(text).is_err(), "{text}");
        }
        assert_eq!(digest("5B1f").unwrap(), "5b1f");
        for text in ["", "5b1", "5b1g", &"0".repeat(65)] {
            assert!(digest(text).is_err(), "{text}");
        }
    }
}
