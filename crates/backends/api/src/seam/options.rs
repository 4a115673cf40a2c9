//! A back end's options as text, and their parser.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{BackendError, Result};

/// A back end's options as text. Sorted, so that equal options have equal bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// Sets an option; the last value counts.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) {
        self.0.insert(key.to_owned(), value.to_string());
    }

    /// All keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Starts to read; [`Reader::end`] refuses keys that were not read.
    #[must_use]
    pub fn reader(&self, backend: &'static str) -> Reader<'_> {
        Reader { options: self, backend, known_keys: Vec::new() }
    }
}

impl FromStr for Options {
    type Err = BackendError;

    /// Parses comma-separated `key=value`.
    fn from_str(text: &str) -> Result<Self> {
        let mut options = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| BackendError::Option {
                backend: "any",
                key: pair.to_owned(),
                what: "options are written key=value".to_owned(),
            })?;
            options.set(key.trim(), value.trim());
        }
        Ok(options)
    }
}

/// Reads options and records the known keys.
pub struct Reader<'a> {
    options: &'a Options,
    backend: &'static str,
    known_keys: Vec<&'static str>,
}

impl Reader<'_> {
    /// Reads the value of `key`, if it is given.
    ///
    /// # Errors
    /// [`BackendError::Option`] if the value does not parse.
    pub fn get<T: FromStr>(&mut self, key: &'static str) -> Result<Option<T>>
    where
        T::Err: fmt::Display,
    {
        self.known_keys.push(key);
        let Some(text) = self.options.0.get(key) else { return Ok(None) };
        let parsed = text.parse().map_err(|e| BackendError::Option {
            backend: self.backend,
            key: key.to_owned(),
            what: format!("`{text}`: {e}"),
        });
        parsed.map(Some)
    }

    /// Reads an integer, if it is given.
    ///
    /// # Errors
    /// [`BackendError::Option`] if the value does not parse or is out of range.
    pub fn in_range(&mut self, key: &'static str, allowed: RangeInclusive<u32>) -> Result<Option<u32>> {
        self.get(key)?.map(|value| within(self.backend, key, value, &allowed)).transpose()
    }

    /// Reads a real number from 0 to `max`; `None` if the option is not given.
    ///
    /// # Errors
    /// [`BackendError::Option`] if the value does not parse or is out of range.
    pub fn up_to(&mut self, key: &'static str, max: f64) -> Result<Option<f64>> {
        match self.get::<f64>(key)? {
            Some(value) if !(value >= 0.0 && value <= max) => {
                Err(out_of_range(self.backend, key, format!("{value}: 0 to {max} are allowed")))
            }
            value => Ok(value),
        }
    }

    /// Ends reading.
    ///
    /// # Errors
    /// [`BackendError::Option`] names an unknown key and the known keys.
    pub fn end(self) -> Result<()> {
        match self.options.0.keys().find(|key| !self.known_keys.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(BackendError::Option {
                backend: self.backend,
                key: key.clone(),
                what: format!("there is no such option; there are: {}", self.known_keys.join(", ")),
            }),
        }
    }
}

/// Returns `value` if it is in the range of the option `key`.
///
/// # Errors
/// [`BackendError::Option`] if `value` is out of range.
pub fn within(backend: &'static str, key: &str, value: u32, allowed: &RangeInclusive<u32>) -> Result<u32> {
    match allowed.contains(&value) {
        true => Ok(value),
        false => {
            Err(out_of_range(backend, key, format!("{value}: {} to {} are allowed", allowed.start(), allowed.end())))
        }
    }
}

fn out_of_range(backend: &'static str, key: &str, what: String) -> BackendError {
    BackendError::Option { backend, key: key.into(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_option_error_lists_known_ones() {
        let options: Options = "width=3, depth=x".parse().unwrap();
        let mut reader = options.reader("toy");
        assert_eq!(reader.get::<u32>("width").unwrap(), Some(3));
        let unparsed = reader.get::<u32>("depth").unwrap_err().to_string();
        let mut reader = options.reader("toy");
        reader.get::<u32>("width").unwrap();
        let unknown = reader.end().unwrap_err().to_string();
        for (error, words) in [(unparsed, &["toy", "depth", "`x`"][..]), (unknown, &["depth", "width"][..])] {
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        assert!("nonsense".parse::<Options>().is_err());
        assert_eq!("".parse::<Options>().unwrap(), Options::default());
    }
}
