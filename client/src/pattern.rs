//! Name patterns by psql's rules (PostgreSQL documentation, psql, "Patterns"), as `pg_dump`
//! reads them.
//!
//! A pattern becomes regular expressions that the server applies to the catalog. Outside double
//! quotes letters are folded to lower case, `*` is any string, `?` any character, a dot parts
//! schema from name, and everything else that means something in a regular expression keeps
//! its meaning. Inside double quotes every character stands for itself.

/// A pattern that cannot be a name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// More parts than such a name can have.
    #[error("improper qualified name (too many dotted names): \"{0}\"")]
    TooManyParts(String),
    /// The empty string, or an empty part.
    #[error("empty name in pattern \"{0}\"")]
    Empty(String),
}

/// Which relations or schemas one pattern means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The user's own words.
    pub text: String,
    /// A database name that the pattern was qualified with.
    pub database: Option<String>,
    /// Regular expression for the schema; `None`: whatever the search path shows.
    pub schema: Option<String>,
    /// Regular expression for the name.
    pub name: String,
    /// The name itself, if the expression can match no other: the server compares names much
    /// faster than it applies expressions to them.
    pub exact: Option<String>,
}

impl Pattern {
    /// A pattern for relations: `name`, `schema.name` or `database.schema.name`.
    ///
    /// # Errors
    ///
    /// A pattern of more parts, or with an empty one.
    pub fn relation(text: &str) -> Result<Self, Error> {
        let mut parts = split(text)?;
        if parts.len() > 3 {
            return Err(Error::TooManyParts(text.into()));
        }
        let Part { literal, is_exact, regex: name, .. } = parts.pop().unwrap_or_default();
        let exact = is_exact.then_some(literal);
        let schema = parts.pop().map(|part| part.regex);
        let database = parts.pop().map(|part| part.literal);
        Ok(Self { text: text.into(), database, schema, name, exact })
    }

    /// A pattern for schemas: `name` or `database.name`.
    ///
    /// # Errors
    ///
    /// A pattern of more parts, or with an empty one.
    pub fn schema(text: &str) -> Result<Self, Error> {
        let mut parts = split(text)?;
        if parts.len() > 2 {
            return Err(Error::TooManyParts(text.into()));
        }
        let Part { literal, is_exact, regex: name, .. } = parts.pop().unwrap_or_default();
        let exact = is_exact.then_some(literal);
        let database = parts.pop().map(|part| part.literal);
        Ok(Self { text: text.into(), database, schema: None, name, exact })
    }
}

/// The pattern that means exactly this relation and no other.
#[must_use]
pub fn exact(schema: &str, name: &str) -> String {
    format!("\"{}\".\"{}\"", schema.replace('"', "\"\""), name.replace('"', "\"\""))
}

struct Part {
    literal: String,
    /// Whether the expression matches nothing but `literal`.
    is_exact: bool,
    body: String,
    regex: String,
}

impl Default for Part {
    fn default() -> Self {
        Self { literal: String::new(), is_exact: true, body: String::new(), regex: String::new() }
    }
}

impl Part {
    /// Adds a character that may mean something else than itself.
    fn push_special(&mut self, char: char, regex: &str) {
        self.is_exact = false;
        self.push(char, regex);
    }

    fn push(&mut self, literal: char, regex: &str) {
        self.literal.push(literal);
        self.body.push_str(regex);
    }

    fn close(mut self, text: &str) -> Result<Self, Error> {
        if self.body.is_empty() {
            return Err(Error::Empty(text.into()));
        }
        self.regex = format!("^({})$", self.body);
        Ok(self)
    }
}

fn split(text: &str) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    let mut part = Part::default();
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                part.push('"', "\"");
            }
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut part).close(text)?),
            '*' if !quoted => part.push_special(char, ".*"),
            '?' if !quoted => part.push_special(char, "."),
            // A dollar is an ordinary letter of identifiers, and an anchor would match nothing.
            '$' => part.push(char, "\\$"),
            _ if quoted && "|*+?()[]{}.^\\".contains(char) => part.push(char, &format!("\\{char}")),
            // Brackets are left to those who write classes, an empty pair is a type's name.
            '[' if chars.peek() == Some(&']') => part.push(char, "\\["),
            _ if !quoted && "|+()[]{}^\\".contains(char) => {
                part.push_special(char, char.encode_utf8(&mut [0; 4]));
            }
            _ if quoted => part.push(char, char.encode_utf8(&mut [0; 4])),
            // Only these letters, as the server and pg_dump fold names in UTF-8.
            _ => {
                let folded = char.to_ascii_lowercase();
                part.push(folded, folded.encode_utf8(&mut [0; 4]));
            }
        }
    }
    parts.push(part.close(text)?);
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_relation(text: &str, schema: Option<&str>, name: &str) {
        let pattern = Pattern::relation(text).unwrap();
        assert_eq!((pattern.schema.as_deref(), pattern.name.as_str()), (schema, name));
    }

    #[test]
    fn names_are_folded_unless_they_are_quoted() {
        assert_relation("Orders", None, "^(orders)$");
        assert_relation("\"Orders\"", None, "^(Orders)$");
        assert_relation("FOO\"BAR\"BAZ", None, "^(fooBARbaz)$");
        assert_relation("ÄRGER", None, "^(Ärger)$");
        assert_relation("\"a\"\"b\"", None, "^(a\"b)$");
    }

    #[test]
    fn stars_and_question_marks_match_and_quoted_ones_are_letters() {
        assert_relation("sales.ord*_?", Some("^(sales)$"), "^(ord.*_.)$");
        assert_relation("\"sales.*\".\"o?\"", Some("^(sales\\.\\*)$"), "^(o\\?)$");
    }

    #[test]
    fn regular_expressions_pass_and_a_dollar_is_a_letter() {
        assert_relation("t[0-9]+|u", None, "^(t[0-9]+|u)$");
        assert_relation("cost$", None, "^(cost\\$)$");
        assert_relation("\"cost$\"", None, "^(cost\\$)$");
    }

    #[test]
    fn a_third_part_is_the_database_and_a_fourth_is_an_error() {
        let pattern = Pattern::relation("Shop.sales.orders").unwrap();
        assert_eq!(pattern.database.as_deref(), Some("shop"));
        assert_eq!(Pattern::relation("a.b.c.d"), Err(Error::TooManyParts("a.b.c.d".into())));
        assert_eq!(Pattern::schema("a.b").unwrap().database.as_deref(), Some("a"));
        assert_eq!(Pattern::schema("a.b.c"), Err(Error::TooManyParts("a.b.c".into())));
        assert_eq!(Pattern::relation("a."), Err(Error::Empty("a.".into())));
        assert_eq!(Pattern::relation(""), Err(Error::Empty("".into())));
    }

    #[test]
    fn a_name_that_can_mean_no_other_is_known_to_be_one() {
        let exact = |text| Pattern::relation(text).unwrap().exact;
        assert_eq!(exact("Orders").as_deref(), Some("orders"));
        assert_eq!(exact("sales*.\"Or*|ders\"").as_deref(), Some("Or*|ders"));
        assert_eq!(exact("cost$").as_deref(), Some("cost$"));
        for text in ["o*", "o?", "a|b", "o+", "[ab]", "(a)", "a{2}", "^a", "\\d", "\"a\"b*"] {
            assert_eq!(exact(text), None, "{text}");
        }
    }

    #[test]
    fn an_exact_name_survives_its_own_pattern() {
        let text = exact("we\"ird", "a b.*\n");
        assert_relation(&text, Some("^(we\"ird)$"), "^(a b\\.\\*\n)$");
    }
}
