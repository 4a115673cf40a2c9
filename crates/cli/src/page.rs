//! What pages have in common: their style, and how they draw and name figures.

/// A page with the common style and tools in place.
pub fn dressed(page: &str) -> String {
    page.replace("{{style}}", include_str!("page/style.css")).replace("{{tools}}", include_str!("page/tools.js"))
}

/// JSON that may stand inside a script of a page, whatever strings are in it: no tag begins in it.
pub fn embedded(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tag_ends_the_script() {
        let value = serde_json::json!({ "model": "</script><b>&amp;" });
        let text = embedded(&value);
        assert!(!text.contains('<') && serde_json::from_str::<serde_json::Value>(&text).unwrap() == value);
        assert!(!dressed("{{style}}{{tools}}").contains("{{"));
    }
}
