//! Turns the best choice into commands.
use super::{LinkUse, Plan};
use crate::output::{self, Alike};
use crate::owner::SealArgs;
use anyhow::{Context, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tacit_backends::Trust;
use tacit_plan::{Choice, Offer};
use tacit_store::{FolderKind, ManagedFolder};

/// Quotes a word for the shell.
fn quote(word: &str) -> String {
    if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,".contains(c)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

pub struct Applied<'a> {
    pub offer: &'a Offer,
    pub choice: &'a Choice,
    pub ways: LinkUse,
}

impl Applied<'_> {
    /// The server's commands, as a user types them.
    pub fn server(&self, model: &Path, seal: &SealArgs) -> Vec<String> {
        let owners = model.with_extension("tacit");
        let serve = self.server_at("0.0.0.0:7878", &owners, seal);
        if owners == model {
            return vec![serve];
        }
        vec![format!("tacit model import {} -o {}", path(model), path(&owners)), serve]
    }

    fn server_at(&self, listen: &str, model: &Path, seal: &SealArgs) -> String {
        let (model, backend) = (path(model), &self.offer.backend);
        let mut command = format!("tacit serve {model} --keys keys --listen {listen} --backend {backend}");
        if !self.offer.options.is_empty() {
            command.push_str(&format!(" -O {}", quote(&self.offer.options)));
        }
        for argument in seal.arguments() {
            command.push_str(&format!(" {}", quote(&argument)));
        }
        command.push_str(&format!(" --threads {} --material server-material", self.choice.server_threads));
        command + self.dealer() + &self.pace()
    }

    fn dealer(&self) -> &'static str {
        match self.offer.trust {
            Some(Trust::Dealer) => " --dealer \"$DEALER\" --dealer-pin \"$DEALER_PIN\"",
            _ => "",
        }
    }

    fn pace(&self) -> String {
        self.ways.pace.map_or(String::new(), |rate| format!(" --pace {rate}"))
    }

    fn common(&self) -> String {
        let threads = self.choice.client_threads;
        let common = format!("--server \"$SERVER\" --keys keys --client alice --threads {threads}");
        common + self.dealer() + &self.pace()
    }

    fn prepare(&self) -> Option<String> {
        let count = self.choice.pool;
        (count > 0).then(|| format!("tacit prepare {} --material stock --count {count}", self.common()))
    }

    /// Returns the client's commands: making stock for bursts or for the day, and one answer.
    pub fn client(&self) -> Vec<String> {
        let prepare = self.prepare();
        let daily = self.ways.idle.filter(|_| prepare.is_some());
        let daily = daily.map(|hours| format!("# daily at {:02}:00 ({CRON} has a line for cron)", hours.from));
        let stock = if self.choice.pool > 0 { " --material stock" } else { "" };
        daily.into_iter().chain(prepare).chain([format!("tacit infer \"$INPUT\" {}{stock}", self.common())]).collect()
    }

    /// Returns the sidecar's command; the sidecar refills its stock.
    fn sidecar(&self) -> String {
        let stock = match self.choice.pool {
            0 => String::new(),
            count => format!(" --material sidecar-stock --ready {count}"),
        };
        format!("tacit sidecar {} --token-file token --new-token{stock}", self.common())
    }

    /// Returns a line for cron that makes a day's material when the idle hours begin.
    fn cron(&self) -> Option<String> {
        let (hours, prepare) = (self.ways.idle?, self.prepare()?);
        Some(format!("0 {} * * * cd \"$DEPLOYMENT\" && {prepare}\n", hours.from))
    }
}

/// Quotes a path, so that no program takes it for an option.
fn path(path: &Path) -> String {
    let text = path.display().to_string();
    quote(&if text.starts_with('-') { format!("./{text}") } else { text })
}

const CRON: &str = "prepare.cron";
/// Text at the beginning of every script.
const HEAD: &str = ", as `tacit plan` chose for ";
const FOLDER: FolderKind = FolderKind::public("operator", "deployment");

/// Writes `server.sh`, `client.sh`, `sidecar.sh`, and with idle hours a line for cron.
///
/// # Errors
/// No private choice is within the limits, the model is not imported yet, or a file cannot be
/// written.
pub fn write(folder: &Path, model: &Path, seal: &SealArgs, plan: &Plan) -> anyhow::Result<()> {
    if model.extension().is_none_or(|e| e != "tacit") {
        bail!("--apply needs a .tacit file, which a server can load: run `tacit model import {}` first", path(model));
    }
    let model = &model.canonicalize().with_context(|| format!("finding {}", model.display()))?;
    let Some(choice) = plan.best() else {
        bail!("no private back end is within the limits: change --limit, or leave out --apply")
    };
    let applied = Applied { offer: plan.offer(choice), choice, ways: plan.request.ways };
    let folder = ManagedFolder::open_or_mark(folder, FOLDER, is_ours)?;
    let folder = folder.path();
    let dealer = if applied.dealer().is_empty() { "" } else { "DEALER=host:port, DEALER_PIN=its fingerprint, " };
    // The name comes from the model file: without control characters it stays inside the comment
    // line.
    let name: String = plan.request.model.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let at_client = format!("{dealer}keys/ with ca.pem, alice.pem, alice.key");
    let keys = "[ -d keys ] || tacit keys init keys --host \"$(uname -n)\" --client alice >&2";
    let server = head(&name, "server", &format!("{dealer}keys/ of `tacit keys init`; they are made if there are none"))
        + &format!("{keys}\nexec {}\n", applied.server_at("\"${LISTEN:-0.0.0.0:7878}\"", model, seal));
    let client = head(&name, "client", &format!("SERVER=host:port, INPUT=file, {at_client}"))
        + &applied.client().join("\n")
        + "\n";
    let sidecar = head(
        &name,
        "sidecar, for applications that speak the Open Inference Protocol",
        &format!("SERVER=host:port, {at_client}"),
    ) + &format!("exec {} --listen \"${{LISTEN:-127.0.0.1:8000}}\"\n", applied.sidecar());
    for (name, text) in [("server.sh", server), ("client.sh", client), ("sidecar.sh", sidecar)] {
        let path = folder.join(name);
        put(&path, &text, HEAD)?;
        // The file was written above, or by an earlier run.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    applied.cron().map_or(Ok(()), |line| put(&folder.join(CRON), &line, "$DEPLOYMENT"))
}

fn head(model: &str, party: &str, needs: &str) -> String {
    format!("#!/bin/sh\n# The {party}{HEAD}{model}. Needs: {needs}\nset -eu\n")
}

/// Whether a file in an unmarked folder was written by version 0.1, or made by its scripts.
fn is_ours(path: &Path) -> bool {
    match path.file_name().and_then(|name| name.to_str()) {
        Some("server.sh" | "client.sh" | "sidecar.sh") => holds(path, HEAD),
        Some(CRON) => holds(path, "$DEPLOYMENT"),
        Some("keys" | "material") => path.is_dir(),
        _ => false,
    }
}

fn holds(path: &Path, text: &str) -> bool {
    path.is_file() && output::check(path, Alike::Holds(text)).is_ok()
}

fn put(path: &Path, text: &str, alike: &str) -> anyhow::Result<()> {
    output::write(path, text.as_bytes(), Alike::Holds(alike))
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn quotes_words_for_the_shell() {
        for (word, quoted) in
            [("a/b-c.tacit", "a/b-c.tacit"), ("my net; rm", "'my net; rm'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quote(word), quoted);
        }
    }
}
