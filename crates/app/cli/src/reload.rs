//! `tacit reload`: reloads a server's models, certificates and rules of access.
use crate::operator::Operator;
use crate::print;
use serde::Deserialize;

/// Make a running server read its models, certificates and rules of access again
///
/// A file with an error leaves the earlier state in place, and the command prints the error. The
/// server lowers model files that have no lowering beside them, and the command waits until the
/// server is done.
///
/// Example: tacit reload --server server.example:7878 --keys keys --client ops
#[derive(clap::Args)]
#[command(mut_arg("timeout", |arg| arg.default_value("600")))]
pub struct Args {
    #[command(flatten)]
    operator: Operator,
}

/// The server's report on a reload; fields that the server omits are empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reloaded {
    access: bool,
    certificates: bool,
    models: Changes,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Changes {
    added: Vec<String>,
    replaced: Vec<String>,
    withdrawn: Vec<String>,
    kept: Vec<String>,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    let answer = args.operator.interface()?.post("/v1/reload", &serde_json::json!({}))?;
    if as_json {
        return print::json(&answer);
    }
    print::line(&format_report(&serde_json::from_value(answer)?))
}

fn format_report(reloaded: &Reloaded) -> String {
    let Changes { added, replaced, withdrawn, kept } = &reloaded.models;
    let mut parts: Vec<String> = Vec::new();
    parts.extend(reloaded.access.then(|| "rules of access read".to_owned()));
    parts.extend(reloaded.certificates.then(|| "certificates read".to_owned()));
    for (label, models) in [("added", added), ("replaced", replaced), ("withdrawn", withdrawn), ("as before", kept)] {
        if !models.is_empty() {
            parts.push(format!("{label}: {}", models.join(" ")));
        }
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_all_changes_in_one_line() {
        let text = r#"{"certificates": true, "models": {"added": ["a=x"], "kept": ["b=x", "c=x"]}}"#;
        assert_eq!(
            format_report(&serde_json::from_str(text).unwrap()),
            "certificates read; added: a=x; as before: b=x c=x"
        );
    }
}
