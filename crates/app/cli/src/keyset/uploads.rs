//! `tacit keyset list` and `delete`: a client's keys that a server keeps.
use crate::connect::Connect;
use crate::material::format_age;
use crate::print;
use anyhow::Context;
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};
use tacit_client::wire::Upload;

/// Show the keys of this client that a server keeps
///
/// A client sends keys once for each model, before its first inference with the back end `ckks`.
/// The server keeps the keys until the client deletes them or stays away for 30 days (`tacit serve
/// --expire`). The secret of the keys stays here, in `secrets` of the material folder.
///
/// Example: tacit keyset list --server server.example:7878 --keys keys --client alice
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct ListArgs {
    #[command(flatten)]
    connect: Connect,
}

/// Delete keys of this client that a server keeps, and their secret here
///
/// The next inference draws another secret and sends keys again.
///
/// Example: tacit keyset delete --all --keys keys --client alice
#[derive(clap::Args)]
#[command(verbatim_doc_comment, group(clap::ArgGroup::new("which").required(true).args(["names", "all"])))]
pub struct DeleteArgs {
    /// Beginnings of the names of key sets, as `tacit keyset list` shows them
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Delete all secrets here, and then all listed key sets; the secrets go even if the server
    /// does not answer
    #[arg(long, help_heading = "Material")]
    all: bool,
    #[command(flatten)]
    connect: Connect,
}

pub fn list(args: &ListArgs, as_json: bool) -> anyhow::Result<()> {
    let mut connection = args.connect.connection(false)?;
    let uploads = connection.uploads()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for Upload { name, bytes, is_whole, created, used, offered, .. } in &uploads {
        let (name, state) = (print::hex(name), if *is_whole { "whole" } else { "partial" });
        let [age, idle] = [created, used].map(|time| now.saturating_sub(*time));
        if as_json {
            let model = offered.as_ref().map(|offered| &offered.model);
            let row =
                json!({"name": name, "state": state, "bytes": bytes, "age_s": age, "idle_s": idle, "model": model});
            print::line(&row.to_string())?;
            continue;
        }
        let model = offered.as_ref().map_or("no longer on offer", |offered| &offered.model);
        let (bytes, age, idle) = (print::bytes(*bytes), format_age(age), format_age(idle));
        print::line(&format!("{}  {state:<7} {bytes:>9}  {age:>4} old, used {idle} ago  {model}", &name[..16]))?;
    }
    if uploads.is_empty() && !as_json {
        print::line("the server keeps no keys of this client")?;
    }
    Ok(connection.close()?)
}

pub fn delete(args: &DeleteArgs, as_json: bool) -> anyhow::Result<()> {
    // Delete the local secrets first: a server may be unreachable, or deny having keys.
    let secrets = if args.all { args.connect.secrets().forget_all()? } else { 0 };
    let connected = args.connect.connection(false).and_then(|mut connection| Ok((connection.uploads()?, connection)));
    let (mut uploads, mut connection) = match args.all {
        true => connected.with_context(|| format!("secrets deleted here: {secrets}; no keys deleted at the server"))?,
        false => connected?,
    };
    for prefix in &args.names {
        let count = uploads.iter().filter(|upload| print::hex(&upload.name).starts_with(prefix.as_str())).count();
        anyhow::ensure!(
            count == 1,
            "{count} key sets have a name that begins with `{prefix}`: see `tacit keyset list`"
        );
    }
    uploads.retain(|upload| args.all || args.names.iter().any(|name| print::hex(&upload.name).starts_with(name)));
    let deleted = connection.delete_uploads(&uploads)?;
    print::row(as_json, &json!({ "deleted": deleted, "secrets": secrets }), &format!("deleted {deleted}"))?;
    Ok(connection.close()?)
}
