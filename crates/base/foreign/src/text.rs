//! Text from peers and files, made safe for a terminal, a log or an own message.
//!
//! A terminal obeys control characters: it moves the cursor, sets its title, or answers as if the
//! user had typed. Line ends forge lines of a log, and direction marks reorder letters ("Trojan
//! Source", Boucher and Anderson 2021). U+FFFD replaces each such character.
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Most characters of a text from peers and files.
pub const MAX: usize = 2000;
/// Replacement of an unsafe character.
pub const HIDDEN: char = char::REPLACEMENT_CHARACTER;
/// Mark at the end of a shortened text.
const CUT: &str = "...";

/// Whether a character only stands for what it looks like: no control character (C0, DEL, C1), no
/// line or paragraph separator, no direction mark, no character of zero width.
#[must_use]
pub fn is_plain(c: char) -> bool {
    let unseen = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !unseen && !c.is_control()
}

/// Makes text plain: one line of at most [`MAX`] characters, without characters that a terminal
/// would obey.
#[must_use]
pub fn plain(text: &str) -> String {
    within(text, MAX)
}

/// As [`plain`], with at most `max_chars` characters before the mark of a shortened text.
#[must_use]
pub fn within(text: &str, max_chars: usize) -> String {
    let mut chars = text.chars();
    let mut result: String = chars.by_ref().take(max_chars).map(replace_unsafe).collect();
    if chars.next().is_some() {
        result.push_str(CUT);
    }
    result
}

fn replace_unsafe(c: char) -> char {
    match c {
        '\n' | '\t' => ' ',
        c if is_plain(c) => c,
        _ => HIDDEN,
    }
}

/// Makes own output safe to print that may contain text of others. Line ends and tabs stay; other
/// characters that are not plain become JSON escapes (`\u001b`), so that JSON keeps its meaning.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    let stays = |c: char| c == '\n' || c == '\t' || is_plain(c);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        match stays(c) {
            true => result.push(c),
            false => result.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
        }
    }
    Cow::Owned(result)
}

/// A value that contains text from peers or files.
pub trait Foreign {
    /// Returns the value with [`plain`] text.
    #[must_use]
    fn into_plain(self) -> Self;
}

impl Foreign for String {
    fn into_plain(self) -> Self {
        // Most text is plain already.
        if self.len() <= MAX && self.chars().all(is_plain) { self } else { plain(&self) }
    }
}

impl<T: Foreign> Foreign for Option<T> {
    fn into_plain(self) -> Self {
        self.map(T::into_plain)
    }
}

impl<T: Foreign> Foreign for Vec<T> {
    fn into_plain(self) -> Self {
        self.into_iter().map(T::into_plain).collect()
    }
}

impl<T: Foreign, const N: usize> Foreign for [T; N] {
    fn into_plain(self) -> Self {
        self.map(T::into_plain)
    }
}

/// Decodes a field of a message or file with its text made plain. For `#[serde(deserialize_with =
/// "tacit_foreign::text::deserialize_plain")]`.
///
/// # Errors
/// Errors of the deserializer.
pub fn deserialize_plain<'de, D: Deserializer<'de>, T: Deserialize<'de> + Foreign>(
    deserializer: D,
) -> Result<T, D::Error> {
    T::deserialize(deserializer).map(T::into_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}]0;title\u{7}b\rc\u{9b}2Jd\u{202e}e\u{2066}f\u{200b}g\u{2028}h\u{7f}i\u{feff}j";

    #[test]
    fn terminal_control_characters_are_replaced() {
        let result = plain(&format!("{HOSTILE}\nWARN forged\tline"));
        assert!(result.chars().all(is_plain), "{result:?}");
        assert!(result.ends_with("j WARN forged line") && result.contains("\u{fffd}]0;title\u{fffd}b"), "{result:?}");
        for control in (0..0x20).chain(0x7f..0xa0).filter_map(char::from_u32) {
            assert!(plain(&control.to_string()).chars().all(is_plain), "{control:?}");
            let is_kept = matches!(control, '\n' | '\t');
            assert_eq!(lines(&control.to_string()).contains(control), is_kept, "{control:?}");
        }
        assert_eq!(plain(&result), result, "what is plain stays");
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        for text in ["", "digits", "Zürich 模型 ネット café", "a  b", "–“”€ 🙂"] {
            assert_eq!((plain(text), lines(text)), (text.into(), text.into()));
        }
    }

    #[test]
    fn output_is_escaped_and_json_keeps_its_meaning() {
        assert_eq!(lines("one\n\ttwo\u{1b}[31m"), "one\n\ttwo\\u001b[31m");
        let message = serde_json::json!({ "name": HOSTILE, "tag": "\u{e0041}" });
        let printed = lines(&message.to_string()).into_owned();
        assert!(printed.chars().all(is_plain), "{printed}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap(), message);
    }

    #[test]
    fn long_text_is_cut() {
        let long = "é".repeat(MAX + 1);
        assert_eq!(plain(&long).chars().count(), MAX + CUT.len());
        assert_eq!(plain(&long[..2 * MAX]), "é".repeat(MAX));
        assert_eq!(within("abcdef", 3), "abc...");
    }

    #[test]
    fn deserialize_plain_escapes_text() {
        #[derive(Deserialize)]
        struct Said {
            #[serde(deserialize_with = "deserialize_plain")]
            reason: String,
            #[serde(deserialize_with = "deserialize_plain")]
            names: Option<[Vec<String>; 1]>,
        }
        let json = serde_json::json!({ "reason": HOSTILE, "names": [["x\u{1b}", "y"]] }).to_string();
        let message: Said = serde_json::from_str(&json).unwrap();
        assert_eq!(message.reason, plain(HOSTILE));
        assert_eq!(message.names.unwrap()[0], ["x\u{fffd}", "y"]);
    }
}
