//! Command lines with placeholders.
use crate::LabError;
use std::collections::{BTreeMap, BTreeSet};

/// Placeholders that every run fills in; docs/lab.md has their meanings.
pub(super) const PLACEHOLDERS: [&str; 12] = [
    "server",
    "client",
    "port",
    "transport",
    "keys",
    "dealer",
    "dealer_pin",
    "pace",
    "pace_bps",
    "seconds",
    "dir",
    "campaign",
];

/// A command line, split into words like a shell (quotes, backslashes; no other shell syntax), with
/// placeholders such as `{server}`. `{{` stands for a brace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    words: Vec<String>,
}

impl CommandLine {
    /// Parses `text`, the value of key `subject`. `values` are the experiment's own placeholders.
    ///
    /// # Errors
    /// [`LabError::Spec`] for no command, an open quote, an unknown placeholder.
    pub fn parse(subject: &str, text: &str, values: &BTreeMap<String, String>) -> Result<Self, LabError> {
        let words = shlex::split(text)
            .ok_or_else(|| LabError::spec(subject, format!("`{text}` has an open quote or ends in a backslash")))?;
        if words.is_empty() {
            return Err(LabError::spec(subject, "no command; write a program and its arguments"));
        }
        for word in &words {
            for name in names(word) {
                if !PLACEHOLDERS.contains(&name) && !values.contains_key(name) {
                    let names: Vec<&str> = PLACEHOLDERS.into_iter().chain(values.keys().map(String::as_str)).collect();
                    let detail =
                        format!("unknown placeholder {{{name}}}; there are {}, and {{{{ for a brace", names.join(", "));
                    return Err(LabError::spec(subject, detail));
                }
                if name == "pace" && word != "{pace}" {
                    let detail =
                        format!("`{word}`: {{pace}} must be a word of its own, since it becomes `--pace RATE`");
                    return Err(LabError::spec(subject, detail));
                }
            }
        }
        Ok(Self { words })
    }

    /// Names of its placeholders.
    #[must_use]
    pub fn placeholders(&self) -> BTreeSet<&str> {
        self.words.iter().flat_map(|w| names(w)).collect()
    }

    /// The word of the program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.words[0]
    }

    /// The words with placeholders filled in from `values`; `pace` is a rate or empty.
    #[must_use]
    pub fn expand(&self, values: &BTreeMap<String, String>) -> Vec<String> {
        let mut words = vec![];
        for word in &self.words {
            match (word.as_str(), values.get("pace")) {
                ("{pace}", Some(rate)) if !rate.is_empty() => words.extend(["--pace".to_owned(), rate.clone()]),
                ("{pace}", _) => {}
                _ => words.push(fill(word, values)),
            }
        }
        words
    }
}

/// Fills placeholders into one text; unknown ones stay unchanged.
pub(super) fn fill(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut filled = String::with_capacity(text.len());
    for piece in split(text) {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Brace => filled.push('{'),
            Piece::Name(name) => match values.get(name) {
                Some(value) => filled.push_str(value),
                None => filled.extend(["{", name, "}"]),
            },
        }
    }
    filled
}

/// Placeholders in a text, in order.
pub(super) fn names(text: &str) -> Vec<&str> {
    let names = split(text).into_iter().filter_map(|piece| match piece {
        Piece::Name(name) => Some(name),
        Piece::Text(_) | Piece::Brace => None,
    });
    names.collect()
}

enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
    Brace,
}

/// Splits a text at placeholders and double braces. Other braces (JSON, shell) are literal.
fn split(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut start, mut offset) = (vec![], 0, 0);
    while let Some(brace) = text[offset..].find('{').map(|i| i + offset) {
        let inside = &text[brace + 1..];
        let length = inside.bytes().take_while(|b| is_name_byte(*b)).count();
        let (piece, end) = if inside.starts_with('{') {
            (Piece::Brace, brace + 2)
        } else if length > 0 && inside[length..].starts_with('}') {
            (Piece::Name(&inside[..length]), brace + length + 2)
        } else {
            offset = brace + 1;
            continue;
        };
        pieces.extend([Piece::Text(&text[start..brace]), piece]);
        (start, offset) = (end, end);
    }
    pieces.push(Piece::Text(&text[start..]));
    pieces
}

pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn parse(text: &str) -> Result<CommandLine, String> {
        CommandLine::parse("client", text, &values(&[("model", "m.tacit")])).map_err(|e| e.to_string())
    }

    #[test]
    fn words_and_placeholders() {
        let line = parse("run '{dir}/a b' --at {server}:{port} {pace} --json '{\"x\": 1}' {{pace} {model}").unwrap();
        assert_eq!(line.program(), "run");
        let names: Vec<&str> = line.placeholders().into_iter().collect();
        assert_eq!(names, ["dir", "model", "pace", "port", "server"]);
        let mut filled = values(&[("dir", "/tmp/{x y}"), ("server", "10.0.0.1"), ("port", "7"), ("model", "m")]);
        let expected = ["run", "/tmp/{x y}/a b", "--at", "10.0.0.1:7", "--json", "{\"x\": 1}", "{pace}", "m"];
        assert_eq!(line.expand(&filled), expected);
        filled.insert("pace".into(), "20mbit".into());
        assert_eq!(line.expand(&filled)[4..7], ["--pace", "20mbit", "--json"]);
    }

    #[test]
    fn wrong_commands_are_named() {
        for (text, message) in [
            ("", "client: no command"),
            ("  ", "no command"),
            ("run 'open", "open quote"),
            ("run {sever}", "unknown placeholder {sever}; there are server, client"),
            ("run --pace={pace}", "must be a word of its own"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        assert!(parse("run {sever}").unwrap_err().contains("model"));
    }

    #[test]
    fn braces_without_a_name_are_literal() {
        for text in ["{", "}", "{}", "{ }", "{A}", "a{b", "é{ü}"] {
            assert_eq!(fill(text, &BTreeMap::new()), text);
            assert!(names(text).is_empty());
        }
        assert_eq!(fill("{{{{", &BTreeMap::new()), "{{");
    }
}
