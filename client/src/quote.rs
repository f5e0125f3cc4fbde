//! Names and texts as SQL takes them, for statements to a server and for those in an archive.

/// An identifier in double quotes. All are quoted, not only those that need it today: a word
/// that is free on this server can be reserved on the one that restores.
#[must_use]
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A name with its schema, both quoted.
#[must_use]
pub fn quote_qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

/// A string literal. A backslash calls for the form whose meaning does not depend on
/// `standard_conforming_strings`.
#[must_use]
pub fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_keeps_every_character() {
        assert_eq!(quote_identifier("a\"b c"), "\"a\"\"b c\"");
        assert_eq!(quote_qualified("s", "a.b"), "\"s\".\"a.b\"");
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal("back\\slash"), "E'back\\\\slash'");
    }
}
