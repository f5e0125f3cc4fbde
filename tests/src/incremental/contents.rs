//! What a cluster holds, to see whether another holds the same.

use std::collections::BTreeMap;

use postgres::SimpleQueryMessage;

use crate::digest::digest_query;
use crate::{Cluster, Session, pg_amcheck, workload};

/// What is asked, of which database, and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents(BTreeMap<String, String>);

/// Tables, materialized views and sequences whose content a backup has, catalogs included; not the
/// extension's own tables, which change when a backup ends.
const RELATIONS: &str = "\
    SELECT c.oid::pg_catalog.regclass, c.relkind FROM pg_catalog.pg_class AS c \
     WHERE c.relkind IN ('r', 'm', 'S') AND c.relpersistence = 'p' AND c.relispopulated \
       AND c.relnamespace <> COALESCE((SELECT n.oid FROM pg_catalog.pg_namespace AS n \
                                        WHERE n.nspname = 'stillpoint'), 0)";

impl Contents {
    /// Reads all databases.
    #[track_caller]
    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        let names = "SELECT datname FROM pg_catalog.pg_database WHERE datallowconn";
        let databases = cluster.session("postgres").texts(names);
        let mut contents = BTreeMap::new();
        for database in databases {
            let mut session = cluster.session(&database);
            for query in queries(&mut session) {
                let answer = answer(&mut session, &query);
                contents.insert(format!("{database}: {query}"), answer);
            }
        }
        Self(contents)
    }

    /// What a restored cluster answers otherwise, and what `pg_amcheck` finds in it.
    #[track_caller]
    #[must_use]
    pub fn differences(&self, restored: &Cluster) -> Vec<String> {
        let found = Self::of(restored);
        let mut differences: Vec<String> = self
            .0
            .keys()
            .chain(found.0.keys().filter(|query| !self.0.contains_key(*query)))
            .filter(|query| self.0.get(*query) != found.0.get(*query))
            .map(|query| {
                format!("{query}\n  {:?}, restored {:?}", self.0.get(query), found.0.get(query))
            })
            .collect();
        differences.extend(damage(restored));
        differences
    }
}

fn queries(session: &mut Session) -> Vec<String> {
    // Names without a schema would leave open which is meant.
    session.exec("SET search_path = ''");
    let mut queries: Vec<String> = session
        .rows(RELATIONS)
        .into_iter()
        .map(|row| {
            let [relation, kind] = [&row[0], &row[1]].map(|value| value.as_deref().unwrap_or(""));
            if kind == "S" {
                // The WAL is some numbers ahead of what was given out.
                format!("SELECT last_value + log_cnt, is_called FROM {relation}")
            } else {
                digest_query(relation)
            }
        })
        .collect();
    let schemas = session.texts(
        "SELECT n.nspname FROM pg_catalog.pg_class AS c \
           JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
          WHERE c.relname = 'large' AND c.relkind = 'r' AND c.relpersistence = 'p'",
    );
    queries.extend(schemas.iter().flat_map(|schema| workload::probes(schema)));
    // Plans without their cheapest way look as if they were worth compiling.
    session.exec("SET enable_seqscan = off; SET jit = off");
    queries
}

/// The first row of the answer, or the error.
fn answer(session: &mut Session, query: &str) -> String {
    let messages = match session.client().simple_query(query) {
        Ok(messages) => messages,
        Err(error) => return crate::session::describe(&error),
    };
    let row = messages.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    row.map_or_else(String::new, |row| {
        (0..row.len()).map(|i| row.get(i).unwrap_or("NULL")).collect::<Vec<_>>().join(" ")
    })
}

/// What the server's own check finds.
fn damage(cluster: &Cluster) -> Vec<String> {
    if cluster.major_version() < 14 {
        return damaged_indexes(cluster);
    }
    let finished = pg_amcheck(cluster).run();
    match finished.code() {
        Some(0) => Vec::new(),
        // It has found something.
        Some(2) => vec![finished.stdout],
        _ => panic!("pg_amcheck failed\n{}", finished.scene()),
    }
}

/// Before PostgreSQL 14 indexes alone can be checked, and by SQL.
fn damaged_indexes(cluster: &Cluster) -> Vec<String> {
    const CHECK: &str = "\
        SELECT pg_catalog.count(public.bt_index_check(i.indexrelid::pg_catalog.regclass, true)) \
          FROM pg_catalog.pg_index AS i \
          JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
          JOIN pg_catalog.pg_am AS a ON a.oid = c.relam \
         WHERE a.amname = 'btree' AND c.relpersistence = 'p' AND i.indisvalid AND i.indisready";
    let names = "SELECT datname FROM pg_catalog.pg_database WHERE datallowconn";
    let databases = cluster.session("postgres").texts(names);
    let damage = |database: String| {
        let mut session = cluster.session(&database);
        session.exec("CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA public");
        let error = session.try_exec(CHECK).err()?;
        Some(format!("{database}: {}", crate::session::describe(&error)))
    };
    databases.into_iter().filter_map(damage).collect()
}
