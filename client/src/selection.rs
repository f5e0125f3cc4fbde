//! What the user asked for, and what it means under one snapshot.
//!
//! The words are kept as they were given: they are resolved again at every attempt, since the
//! relations that they mean may be other ones by then.

use std::collections::HashSet;

use stillpoint_check::Oid;

use crate::pattern::{self, Pattern};
use crate::server::{self, Session, Wanted};

/// Filters in the user's own words, with `pg_dump`'s meaning.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Schemas to dump (`-n`).
    pub schemas: Vec<String>,
    /// Schemas to leave out (`-N`).
    pub without_schemas: Vec<String>,
    /// Relations to dump (`-t`).
    pub relations: Vec<String>,
    /// Relations to leave out (`-T`).
    pub without_relations: Vec<String>,
}

/// What can be wrong with what the user asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pattern that cannot be a name.
    #[error(transparent)]
    Pattern(#[from] pattern::Error),
    /// A pattern that nothing in the database matches.
    #[error("no matching {what} found for \"{pattern}\"")]
    NoMatch {
        /// `schema` or `relation`.
        what: &'static str,
        /// The user's own words.
        pattern: String,
    },
    /// A pattern that names another database.
    #[error("cross-database references are not implemented: \"{0}\"")]
    OtherDatabase(String),
    /// The server did not answer.
    #[error(transparent)]
    Server(#[from] server::Error),
}

/// The words in the form that the server matches; made once, before anything is connected.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    schemas: Vec<Pattern>,
    without_schemas: Vec<Pattern>,
    relations: Vec<Pattern>,
    without_relations: Vec<Pattern>,
}

/// What the words mean, and how `pg_dump` is told the same.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    /// What they mean, by OID.
    pub wanted: Wanted,
    /// Sequences and materialized views that a `-t` names: `pg_dump` must find them, too.
    pub named: Vec<Oid>,
    /// `-n`, `-N`, `-t`, `-T` for `pg_dump`.
    pub arguments: Vec<String>,
}

impl Selection {
    /// Reads the patterns.
    ///
    /// # Errors
    ///
    /// A pattern that cannot be a name.
    pub fn patterns(&self) -> Result<Patterns, pattern::Error> {
        Ok(Patterns {
            schemas: read(&self.schemas, Pattern::schema)?,
            without_schemas: read(&self.without_schemas, Pattern::schema)?,
            relations: read(&self.relations, Pattern::relation)?,
            without_relations: read(&self.without_relations, Pattern::relation)?,
        })
    }
}

impl Patterns {
    /// Finds what the patterns mean under the session's snapshot.
    ///
    /// A partitioned table stands for its partitions too, in `-t` as in `-T`: they are named to
    /// `pg_dump` one by one, since no `pg_dump` before 16 can be told so.
    ///
    /// # Errors
    ///
    /// A pattern to include that matches nothing, a pattern of another database, and whatever
    /// the server says.
    pub fn resolve(&self, session: &mut Session, database: &str) -> Result<Selected, Error> {
        self.stay_in(database)?;
        let mut wanted = Wanted::default();
        let mut arguments = Vec::new();

        let found = session.match_schemas(&self.schemas)?;
        require_matches("schema", &self.schemas, found.iter().map(|(pattern, _)| *pattern))?;
        if !self.schemas.is_empty() {
            wanted.schemas = Some(found.into_iter().map(|(_, schema)| schema).collect());
        }
        let found = session.match_schemas(&self.without_schemas)?;
        wanted.without_schemas = found.into_iter().map(|(_, schema)| schema).collect();
        arguments.extend(options("--schema", &self.schemas));
        arguments.extend(options("--exclude-schema", &self.without_schemas));

        let included = relations(session, "--table", &self.relations, &mut arguments)?;
        require_matches("relation", &self.relations, included.patterns.into_iter())?;
        let excluded =
            relations(session, "--exclude-table", &self.without_relations, &mut arguments)?;
        let mut named = included.without_rows_of_their_own;
        named.retain(|relation| !excluded.relations.contains(relation));
        if !self.relations.is_empty() {
            wanted.relations = Some(included.relations);
        }
        wanted.without_relations = excluded.relations;
        if !self.schemas.is_empty() || !self.relations.is_empty() {
            // A pattern can match temporary tables of other sessions, which nobody else can read.
            arguments.push(String::from("--exclude-table=pg_temp_*.*"));
        }

        Ok(Selected { wanted, named, arguments })
    }

    fn stay_in(&self, database: &str) -> Result<(), Error> {
        let all = [&self.schemas, &self.without_schemas, &self.relations, &self.without_relations];
        for pattern in all.into_iter().flatten() {
            if pattern.database.as_deref().is_some_and(|name| name != database) {
                return Err(Error::OtherDatabase(pattern.text.clone()));
            }
        }
        Ok(())
    }
}

type Read = fn(&str) -> Result<Pattern, pattern::Error>;

fn read(words: &[String], pattern: Read) -> Result<Vec<Pattern>, pattern::Error> {
    words.iter().map(|word| pattern(word)).collect()
}

/// What patterns have matched.
struct Matched {
    /// The relations, with all partitions.
    relations: Vec<Oid>,
    /// Those of them that are sequences or materialized views, and belong to no extension.
    without_rows_of_their_own: Vec<Oid>,
    /// The patterns that matched anything, counted from 0.
    patterns: HashSet<usize>,
}

fn relations(
    session: &mut Session,
    option: &str,
    patterns: &[Pattern],
    arguments: &mut Vec<String>,
) -> Result<Matched, Error> {
    let search_path = session.user_search_path().to_vec();
    let found = session.match_relations(patterns, &search_path)?;
    let patterns_matched = found.iter().map(|relation| relation.pattern).collect();
    let without_rows_of_their_own = found
        .iter()
        .filter(|found| matches!(found.kind, 'S' | 'm') && !found.is_member)
        .map(|found| found.relation)
        .collect();
    let partitioned: Vec<Oid> =
        found.iter().filter(|found| found.kind == 'p').map(|found| found.relation).collect();
    let mut oids: Vec<Oid> = found.iter().map(|relation| relation.relation).collect();
    let named: HashSet<Oid> = oids.iter().copied().collect();

    arguments.extend(options(option, patterns));
    for (relation, schema, name) in session.descendants(&partitioned)? {
        if !named.contains(&relation) {
            arguments.push(format!("{option}={}", pattern::exact(&schema, &name)));
            oids.push(relation);
        }
    }
    Ok(Matched { relations: oids, without_rows_of_their_own, patterns: patterns_matched })
}

fn options<'a>(option: &'a str, patterns: &'a [Pattern]) -> impl Iterator<Item = String> + 'a {
    patterns.iter().map(move |pattern| format!("{option}={}", pattern.text))
}

fn require_matches(
    what: &'static str,
    patterns: &[Pattern],
    matched: impl Iterator<Item = usize>,
) -> Result<(), Error> {
    let matched: HashSet<usize> = matched.collect();
    for (index, pattern) in patterns.iter().enumerate() {
        if !matched.contains(&index) {
            return Err(Error::NoMatch { what, pattern: pattern.text.clone() });
        }
    }
    Ok(())
}
