//! Figures of the documents, each bound to the command that computes it and to keys of its JSON
//! output.
//!
//! `figures.toml` holds texts as they stand in a document, with an expression in braces for each
//! number. A text that differs from the command's output is reported with its present and its
//! correct wording.
use crate::LabError;
use serde::Deserialize;
use serde_json::Value;
use std::ops::Range;

const TEXT: &str = include_str!("../figures.toml");

/// Commands, and the texts of one document with their numbers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Path of the document, below the clone.
    pub document: String,
    /// Command that prints the numbers as JSON; several give an array of their outputs. `{data}`
    /// stands for the folder of shared data, `{clone}` for the clone.
    pub commands: Vec<String>,
    /// Commands that create its input files, in an empty folder that all commands share.
    #[serde(default)]
    pub after: Vec<String>,
    /// A required file of the shared data.
    #[serde(default)]
    pub needs: Option<String>,
    /// Whether the command takes more than some seconds.
    #[serde(default)]
    pub heavy: bool,
    /// The texts; see [`Template`].
    pub texts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    figures: Vec<Figures>,
}

/// All figures, in the order of the file.
#[must_use]
pub fn figures() -> Vec<Figures> {
    toml::from_str::<File>(TEXT).expect("the built-in file is read in a test").figures
}

/// A text with `{expression:form}` in place of its numbers.
///
/// An expression is one or more pointers (RFC 6901) joined by ` + `, or two such sums joined by ` over `.
/// A step `key=value` chooses the element of an array in which `key` is that text. A form is a unit (`kB`,
/// `MB`, `GB`, `MiB`, `%`) and `.` with the number of decimals; `,` separates thousands; without one it is
/// whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Number { above: Vec<String>, below: Vec<String>, form: Form },
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Form {
    unit: Unit,
    decimals: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Unit {
    #[default]
    One,
    Thousands,
    Of(f64),
}

/// Result of a comparison of a document's text with its command's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The text is right.
    Holds,
    /// The text differs.
    Drifted {
        /// Position of the text in the document, bytes.
        at: Range<usize>,
        /// The document's wording.
        old: String,
        /// The command's wording.
        new: String,
    },
    /// The document has this number of such texts: none, or more than one.
    Found(usize),
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`LabError::Spec`] for an unmatched brace, an invalid form, or a text that begins with a
    /// number.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let (inside, behind) = behind.split_once('}').ok_or_else(|| refuse(text, "a brace is not closed"))?;
            parts.push(Part::Text(before.into()));
            parts.push(number(inside).ok_or_else(|| refuse(text, &format!("{{{inside}}} is no expression")))?);
            rest = behind;
        }
        parts.push(Part::Text(rest.into()));
        match &parts[..] {
            [Part::Text(first), _, ..] if !first.is_empty() => Ok(Self { parts }),
            _ => Err(refuse(text, "it begins with a number, or has none")),
        }
    }

    /// The text with the numbers of `value`.
    ///
    /// # Errors
    /// [`LabError::Spec`] if `value` lacks a number.
    pub fn filled(&self, value: &Value) -> Result<String, LabError> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out += text,
                Part::Number { above, below, form } => {
                    let over = if below.is_empty() { 1.0 } else { sum(below, value)? };
                    out += &form.write(sum(above, value)? / over);
                }
            }
        }
        Ok(out)
    }

    /// Positions in `document` of the text with any numbers: bytes.
    #[must_use]
    pub fn places(&self, document: &str) -> Vec<Range<usize>> {
        let Part::Text(first) = &self.parts[0] else { return Vec::new() };
        let starts = document.match_indices(first.as_str()).map(|(start, _)| start);
        starts.filter_map(|start| Some(start..start + self.length(&document[start..])?)).collect()
    }

    /// Length of the text at the start of `text`, if present.
    fn length(&self, text: &str) -> Option<usize> {
        let mut rest = text;
        for part in &self.parts {
            rest = match part {
                Part::Text(literal) => rest.strip_prefix(literal.as_str())?,
                Part::Number { .. } => &rest[digits(rest)?..],
            };
        }
        Some(text.len() - rest.len())
    }

    /// Compares the text in `document` with `value`.
    ///
    /// # Errors
    /// [`LabError::Spec`] if `value` lacks a number.
    pub fn compare(&self, document: &str, value: &Value) -> Result<Standing, LabError> {
        let new = self.filled(value)?;
        let places = self.places(document);
        let [at] = &places[..] else { return Ok(Standing::Found(places.len())) };
        let old = &document[at.clone()];
        if old == new {
            return Ok(Standing::Holds);
        }
        Ok(Standing::Drifted { at: at.clone(), old: old.into(), new })
    }
}

fn refuse(text: &str, detail: &str) -> LabError {
    LabError::Spec { what: format!("figures.toml, {text:?}"), detail: detail.into() }
}

/// Parses the expression between braces.
fn number(inside: &str) -> Option<Part> {
    let (expression, form) = inside.rsplit_once(':').unwrap_or((inside, ""));
    let (above, below) = expression.split_once(" over ").map_or((expression, None), |(a, b)| (a, Some(b)));
    let below = below.map_or(Some(Vec::new()), pointers)?;
    Some(Part::Number { above: pointers(above)?, below, form: Form::parse(form)? })
}

/// Parses a sum of pointers.
fn pointers(sum: &str) -> Option<Vec<String>> {
    let all: Vec<String> = sum.split(" + ").map(String::from).collect();
    all.iter().all(|pointer| pointer.starts_with('/')).then_some(all)
}

impl Form {
    fn parse(text: &str) -> Option<Self> {
        let (unit, decimals) = text.split_once('.').map_or((text, Some(0)), |(unit, n)| (unit, n.parse().ok()));
        let unit = match unit {
            "" => Unit::One,
            "," => Unit::Thousands,
            "kB" => Unit::Of(1e3),
            "MB" => Unit::Of(1e6),
            "GB" => Unit::Of(1e9),
            "MiB" => Unit::Of(f64::from(1 << 20)),
            "%" => Unit::Of(0.01),
            _ => return None,
        };
        Some(Self { unit, decimals: decimals? })
    }

    fn write(self, number: f64) -> String {
        let scaled = if let Unit::Of(unit) = self.unit { number / unit } else { number };
        let text = format!("{scaled:.*}", self.decimals);
        if self.unit == Unit::Thousands { grouped(&text) } else { text }
    }
}

/// A number with a comma between thousands.
fn grouped(text: &str) -> String {
    let (whole, fraction) = text.split_once('.').map_or((text, String::new()), |(w, f)| (w, format!(".{f}")));
    let mut out = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out + &fraction
}

/// Length of the number at the start of `text`, with its sign, decimals and commas between thousands.
fn digits(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut end = usize::from(bytes.first() == Some(&b'-'));
    let start = end;
    while is_digit(bytes, end)
        || (end > start && matches!(bytes.get(end), Some(b'.' | b',')) && is_digit(bytes, end + 1))
    {
        end += 1;
    }
    (end > start).then_some(end)
}

/// Returns whether there is a digit at a place.
fn is_digit(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(u8::is_ascii_digit)
}

fn sum(pointers: &[String], value: &Value) -> Result<f64, LabError> {
    pointers.iter().map(|pointer| looked_up(pointer, value)).sum()
}

/// The number at a pointer.
fn looked_up(pointer: &str, value: &Value) -> Result<f64, LabError> {
    let mut at = value;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let chosen = match (at, step.split_once('=')) {
            (Value::Array(all), Some((key, wanted))) => all.iter().find(|one| one[key].as_str() == Some(wanted)),
            (Value::Array(all), None) => step.parse::<usize>().ok().and_then(|i| all.get(i)),
            _ => at.get(&step),
        };
        at = chosen.ok_or_else(|| refuse(pointer, &format!("the command prints no `{step}` there")))?;
    }
    at.as_f64().ok_or_else(|| refuse(pointer, &format!("the command prints {at}, which is no number")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn standing(template: &str, document: &str) -> Standing {
        let value = json!({"sets": [{"name": "a/b", "keys": 12, "bytes": 1_234_567}, {"name": "c", "keys": 1_000}]});
        Template::parse(template).unwrap().compare(document, &value).unwrap()
    }

    #[test]
    fn a_text_is_found_with_what_it_says_and_should_say() {
        let template = "| `a` | {/sets/name=a~1b/keys} keys, {/sets/0/bytes:MB.3} MB |";
        assert_eq!(standing(template, "x\n| `a` | 12 keys, 1.235 MB |\n"), Standing::Holds);
        let drifted = standing(template, "x\n| `a` | 13 keys, 1,004.235 MB |\n");
        let (old, new) = ("| `a` | 13 keys, 1,004.235 MB |".to_string(), "| `a` | 12 keys, 1.235 MB |".to_string());
        assert_eq!(drifted, Standing::Drifted { at: 2..33, old, new });
        assert_eq!(standing(template, "| `a` | twelve keys, 1.235 MB |"), Standing::Found(0));
        assert_eq!(standing("a {/sets/0/keys}", "a 12, a 12."), Standing::Found(2));
    }

    #[test]
    fn sums_ratios_and_forms() {
        assert_eq!(standing("x {/sets/0/keys + /sets/1/keys:,}", "x 1,012."), Standing::Holds);
        assert_eq!(standing("x {/sets/1/keys over /sets/0/keys:.2}x", "x 83.33x"), Standing::Holds);
        assert_eq!(standing("x {/sets/0/bytes:MiB.2}, {/sets/0/bytes:,}", "x 1.18, 1,234,567"), Standing::Holds);
        assert_eq!(standing("x {/sets/0/keys over /sets/1/keys:%.1} %", "x 1.2 %"), Standing::Holds);
    }

    #[test]
    fn mistakes_are_named() {
        for text in ["{/a} b", "a {/a", "a {b}", "a {/a:furlongs.1}", "no number"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        for (pointer, what) in [("/none", "no `none`"), ("/a/x=1", "no `x=1`"), ("/a/0/x", "which is no number")] {
            let template = Template::parse(&format!("a {{{pointer}}}")).unwrap();
            let error = template.filled(&json!({"a": [{"x": "text"}]})).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
