//! Shared by all pages: the style, and the tools that draw and name figures.

/// Inserts the common style and tools into a page.
pub fn fill_template(page: &str) -> String {
    page.replace("{{style}}", include_str!("page/style.css")).replace("{{tools}}", include_str!("page/tools.js"))
}

/// Returns JSON that is safe inside a script of a page: its strings cannot begin a tag.
pub fn embed_json(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_json_contains_no_tag() {
        let value = serde_json::json!({ "model": "</script><b>&amp;" });
        let text = embed_json(&value);
        assert!(!text.contains('<'));
        assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap() == value);
        assert!(!fill_template("{{style}}{{tools}}").contains("{{"));
    }
}
