//! The best choice as commands.
use super::Plan;
use crate::owner::SealArgs;
use anyhow::{Context, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tacit_backends::Trust;
use tacit_plan::{Choice, Offer};

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The server's commands, as they are typed.
pub fn server(model: &Path, seal: &SealArgs, offer: &Offer, choice: &Choice) -> Vec<String> {
    let owners = model.with_extension("tacit");
    let serve = server_at("0.0.0.0:7878", &owners, seal, offer, choice);
    if owners == model {
        return vec![serve];
    }
    vec![format!("tacit model import {} -o {}", path(model), path(&owners)), serve]
}

/// A path as a word that is no option.
fn path(path: &Path) -> String {
    let text = path.display().to_string();
    quoted(&if text.starts_with('-') { format!("./{text}") } else { text })
}

fn server_at(listen: &str, model: &Path, seal: &SealArgs, offer: &Offer, choice: &Choice) -> String {
    let (model, backend) = (path(model), &offer.backend);
    let mut command = format!("tacit serve {model} --keys keys --listen {listen} --backend {backend}");
    if !offer.options.is_empty() {
        command.push_str(&format!(" -O {}", quoted(&offer.options)));
    }
    for argument in seal.arguments() {
        command.push_str(&format!(" {}", quoted(&argument)));
    }
    command.push_str(&format!(" --threads {} --material material", choice.server_threads));
    if offer.trust == Some(Trust::Dealer) {
        command.push_str(" --dealer \"$DEALER\" --dealer-pin \"$DEALER_PIN\"");
    }
    command
}

/// The client's commands: stock for bursts, and one answer.
pub fn client(offer: &Offer, choice: &Choice) -> Vec<String> {
    let common = format!("--server \"$SERVER\" --keys keys --client alice --threads {}", choice.client_threads);
    let dealer = match offer.trust {
        Some(Trust::Dealer) => " --dealer \"$DEALER\" --dealer-pin \"$DEALER_PIN\"",
        _ => "",
    };
    let mut commands = Vec::new();
    if choice.pool > 0 {
        commands.push(format!("tacit prepare {common}{dealer} --material stock --count {}", choice.pool));
    }
    let stock = if choice.pool > 0 { " --material stock" } else { "" };
    commands.push(format!("tacit infer \"$INPUT\" {common}{dealer}{stock}"));
    commands
}

/// Writes `server.sh` and `client.sh`.
///
/// # Errors
/// Nothing private is within the limits, the model is not imported yet, or a file cannot be written.
pub fn write(folder: &Path, model: &Path, seal: &SealArgs, plan: &Plan) -> anyhow::Result<()> {
    if model.extension().is_none_or(|e| e != "tacit") {
        bail!("--apply needs a .tacit file, since a server takes no other: `tacit model import {}`", path(model));
    }
    let model = &model.canonicalize().with_context(|| format!("finding {}", model.display()))?;
    let Some(choice) = plan.best() else {
        bail!("no private back end is within the limits, so there is nothing to apply")
    };
    let offer = &plan.offers[choice.offer];
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let dealer = if offer.trust == Some(Trust::Dealer) { "DEALER=host:port, DEALER_PIN=its fingerprint, " } else { "" };
    // A model's name is its file's word: on one line it is a comment.
    let name: String = plan.model.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let head = |who: &str, needs: &str| {
        format!("#!/bin/sh\n# The {who}, as `tacit plan` chose for {}. Needs: {needs}\nset -eu\n", name)
    };
    let server = head("server", &format!("{dealer}keys/ of `tacit keys init`"))
        + &format!("exec {}\n", server_at("\"${LISTEN:-0.0.0.0:7878}\"", model, seal, offer, choice));
    let client =
        head("client", &format!("SERVER=host:port, INPUT=file, {dealer}keys/ with ca.pem, alice.pem, alice.key"))
            + &client(offer, choice).join("\n")
            + "\n";
    for (name, text) in [("server.sh", server), ("client.sh", client)] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_come_back_as_they_are() {
        assert_eq!(quoted("a/b-c.tacit"), "a/b-c.tacit");
        assert_eq!(quoted("my net; rm"), "'my net; rm'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
