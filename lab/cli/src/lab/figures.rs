//! `tacit lab papers --run`: compares figures in the documents with the output of their commands.
use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tacit_experiments::figures::{Figures, Standing, Template, figures};
use tacit_experiments::papers::words;
use tempfile::TempDir;

/// The figures to check, and the folders that they need.
pub struct Asked<'a> {
    /// Folder of the shared data.
    pub data: &'a Path,
    /// The clone with the documents.
    pub clone: &'a Path,
    /// Whether to check figures that take long, too.
    pub heavy: bool,
    /// Whether to write the commands' output into the documents.
    pub update: bool,
}

/// The result for a text of a document, or for a command whose texts were not compared.
#[derive(Serialize)]
pub struct Checked {
    pub command: String,
    pub document: String,
    /// The text in the document.
    pub old: Option<String>,
    /// The text by the command.
    pub new: Option<String>,
    /// Why nothing was compared, although nothing is wrong.
    pub skipped: Option<String>,
    /// An error other than a differing text.
    pub problem: Option<String>,
    /// Whether the document's text was replaced.
    pub updated: bool,
}

impl Checked {
    fn of(bound: &Figures) -> Self {
        let (command, document) = (bound.commands.join("; "), bound.document.clone());
        Self { command, document, old: None, new: None, skipped: None, problem: None, updated: false }
    }

    /// Whether the document is wrong.
    pub fn differs(&self) -> bool {
        self.problem.is_some() || (self.old != self.new && !self.updated)
    }

    /// Formats the result in a line or two.
    pub fn told(&self) -> String {
        let Self { command, document, .. } = self;
        let [old, new] = [&self.old, &self.new].map(|text| text.as_deref().unwrap_or_default());
        match self {
            Self { skipped: Some(reason), .. } => format!("  skipped: {document} by `{command}`: {reason}"),
            Self { problem: Some(problem), .. } => format!("  DIFFERS: {document} by `{command}`: {problem}"),
            _ if self.old == self.new => format!("  holds: {document}: {old}"),
            _ => {
                let word = if self.updated { "written anew" } else { "DIFFERS" };
                format!("  {word}: {document} by `{command}`\n    old  {old}\n    new  {new}")
            }
        }
    }
}

/// Runs each command once, in a separate folder.
struct Runner<'a> {
    asked: &'a Asked<'a>,
    folder: TempDir,
    printed: HashMap<String, String>,
}

impl Runner<'_> {
    fn run(&mut self, command: &str) -> anyhow::Result<&str> {
        if !self.printed.contains_key(command) {
            let text = self.start(command)?;
            self.printed.insert(command.into(), text);
        }
        Ok(&self.printed[command])
    }

    fn start(&self, command: &str) -> anyhow::Result<String> {
        let (data, clone) = (absolute(self.asked.data)?, absolute(self.asked.clone)?);
        let words = words(command, &[("{data}", &data), ("{clone}", &clone)])?;
        let program = tacit_cli::program::beside("tacit")?;
        let ran = Command::new(program)
            .args(words)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("starting {command}"))?;
        if !ran.status.success() {
            bail!("{command}: {}: {}", ran.status, String::from_utf8_lossy(&ran.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }

    fn numbers(&mut self, bound: &Figures) -> anyhow::Result<Value> {
        for command in &bound.after {
            self.run(command)?;
        }
        let mut printed = Vec::new();
        for command in &bound.commands {
            printed.push(serde_json::from_str(self.run(command)?).with_context(|| format!("the output of {command}"))?);
        }
        Ok(if printed.len() == 1 { printed.remove(0) } else { Value::Array(printed) })
    }

    fn check(&mut self, bound: &Figures) -> anyhow::Result<Vec<Checked>> {
        let path = self.asked.clone.join(&bound.document);
        let needed = bound.needs.as_ref().map(|file| self.asked.data.join(file));
        let lacks = [Some(path.clone()), needed].into_iter().flatten().find(|file| !file.exists());
        if let Some(file) = lacks {
            let skipped = Some(format!("{} is not there (--clone, --data)", file.display()));
            return Ok(vec![Checked { skipped, ..Checked::of(bound) }]);
        }
        let value = match self.numbers(bound) {
            Ok(value) => value,
            Err(error) => return Ok(vec![Checked { problem: Some(format!("{error:#}")), ..Checked::of(bound) }]),
        };
        let mut document = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let mut found = Vec::new();
        for text in &bound.texts {
            found.push(compared(bound, text, &value, &mut document, self.asked.update));
        }
        if found.iter().any(|one| one.updated) {
            fs::write(&path, document).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(found)
    }
}

/// Returns a path that does not depend on the current folder, as text.
fn absolute(path: &Path) -> std::io::Result<String> {
    std::path::absolute(path).map(|path| path.display().to_string())
}

/// Compares a text of `document` with the command's output; replaces the text if updating is
/// allowed.
fn compared(bound: &Figures, text: &str, value: &Value, document: &mut String, update: bool) -> Checked {
    let one = Checked::of(bound);
    match Template::parse(text).and_then(|template| Ok((template.compare(document, value)?, template.filled(value)?))) {
        Ok((Standing::Holds, new)) => Checked { old: Some(new.clone()), new: Some(new), ..one },
        Ok((Standing::Drifted { at, old, new }, _)) => {
            if update {
                document.replace_range(at, &new);
            }
            Checked { old: Some(old), new: Some(new), updated: update, ..one }
        }
        Ok((Standing::Found(n), new)) => {
            let problem = Some(format!("{n} texts are like `{text}`, where one should be; with its numbers: {new}"));
            Checked { problem, ..one }
        }
        Err(error) => Checked { problem: Some(error.to_string()), ..one },
    }
}

/// Checks all requested figures.
pub fn check(asked: &Asked) -> anyhow::Result<Vec<Checked>> {
    let folder = tempfile::tempdir().context("making a folder for the output of the commands")?;
    let mut runner = Runner { asked, folder, printed: HashMap::new() };
    let mut found = Vec::new();
    for bound in figures().iter().filter(|bound| asked.heavy || !bound.heavy) {
        found.extend(runner.check(bound)?);
    }
    Ok(found)
}
