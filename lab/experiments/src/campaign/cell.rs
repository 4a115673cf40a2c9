//! Labels of a cell, and how a line names it.
use std::collections::BTreeMap;

/// Labels of a cell.
pub type Cell = BTreeMap<String, String>;

/// A cell in one line: `lan, tls, bulk`.
#[must_use]
pub fn describe(cell: &Cell) -> String {
    // Links first, since most campaigns vary them.
    let labelled = ["link", "transport", "workload", "pace"];
    let other_keys = cell.iter().filter(|(k, _)| !labelled.contains(&k.as_str())).map(|(k, v)| format!("{k} {v}"));
    let parts: Vec<String> = labelled.iter().filter_map(|k| cell.get(*k).cloned()).chain(other_keys).collect();
    if parts.is_empty() { "all".into() } else { plain(&parts.join(", ")) }
}

/// Replaces control characters in a text from a file, which could send commands to a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_cells_without_control_characters() {
        let cell: Cell =
            [("workload", "bulk"), ("link", "lan"), ("role", "send")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(describe(&cell), "lan, bulk, role send");
        assert_eq!(describe(&Cell::new()), "all");
        let evil: Cell = [("link".to_owned(), "lan\u{1b}]0;title\u{7}\r\n".to_owned())].into();
        assert!(!describe(&evil).contains(char::is_control), "{:?}", describe(&evil));
    }
}
