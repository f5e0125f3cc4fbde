//! The server extension: what `changed_relations()` says of every change, and when it refuses.

mod ancestors;
mod installation;
mod privileges;
mod reasons;
mod refusals;
mod transactions;

use postgres::error::DbError;
use postgres::types::Oid;
use stillpoint_tests::{Cluster, Session};

/// A cluster is one test's, so its first database is as good as a new one, and there at once.
const DATABASE: &str = "postgres";

/// A transaction with a snapshot, and another session that changes things meanwhile.
struct Race {
    /// The transaction: REPEATABLE READ, with its snapshot taken.
    dump: Session,
    /// The other session; what it runs is committed at once.
    other: Session,
    /// Ends last, so that the sessions are closed before the server is stopped.
    cluster: Cluster,
}

/// A row of `changed_relations()`.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    relation: Oid,
    name: String,
    reasons: String,
    rows_kept: bool,
    filenode_snapshot: Oid,
    filenode_latest: Option<Oid>,
    ancestors: Vec<Oid>,
}

impl Race {
    /// A new cluster with the extension, then `setup`, then the snapshot.
    #[track_caller]
    fn begin(setup: &str) -> Self {
        let cluster = Cluster::preloaded();
        cluster.create_extension(DATABASE);
        let mut other = cluster.session(DATABASE);
        other.exec(setup);
        let mut dump = cluster.session(DATABASE);
        begin(&mut dump);
        Self { dump, other, cluster }
    }

    /// Ends the transaction and begins anew, with nothing but `setup` in the database.
    #[track_caller]
    fn begin_again(&mut self, setup: &str) {
        self.dump.exec("ROLLBACK");
        self.other.exec("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        self.other.exec(setup);
        begin(&mut self.dump);
    }

    /// Runs statements in the other session, each in a transaction of its own.
    #[track_caller]
    fn commit(&mut self, statements: &[&str]) {
        for statement in statements {
            self.other.exec(statement);
        }
    }

    /// Locks a table as a dump does, by the name it has now.
    #[track_caller]
    fn lock(&mut self, table: &str) {
        self.dump.exec(&format!("LOCK TABLE ONLY {table} IN ACCESS SHARE MODE"));
    }

    /// The OID of a relation under the transaction's snapshot; of one whose name the other
    /// session has already changed, too.
    #[track_caller]
    fn oid(&mut self, relation: &str) -> Oid {
        let (schema, name) = relation.split_once('.').unwrap_or(("public", relation));
        let row = self.dump.client().query_one(
            "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
              WHERE nspname = $1 AND relname = $2",
            &[&schema, &name],
        );
        row.expect("the relation is there under the snapshot").get(0)
    }

    /// What has changed of these relations.
    #[track_caller]
    fn changes(&mut self, relations: &[&str]) -> Vec<Change> {
        let relations: Vec<_> = relations.iter().map(|name| self.oid(name)).collect();
        changes(&mut self.dump, &relations)
    }

    /// The reasons for which the relation has changed; empty if it has not.
    #[track_caller]
    fn reasons(&mut self, relation: &str) -> String {
        let mut changes = self.changes(&[relation]);
        assert!(changes.len() <= 1, "one row for one relation: {changes:?}");
        changes.pop().map(|change| change.reasons).unwrap_or_default()
    }

    /// The error that a statement of the transaction ends with.
    #[track_caller]
    fn refusal(&mut self, sql: &str) -> DbError {
        refusal(&self.cluster, &mut self.dump, sql)
    }
}

#[track_caller]
fn begin(session: &mut Session) {
    session.exec("BEGIN ISOLATION LEVEL REPEATABLE READ");
    session.exec("SELECT 1");
}

#[track_caller]
fn changes(session: &mut Session, relations: &[Oid]) -> Vec<Change> {
    let rows = session.client().query(
        "SELECT relation, schema_name || '.' || relation_name, array_to_string(reasons, ', '),
                rows_kept, filenode_snapshot, filenode_latest, ancestors
           FROM stillpoint.changed_relations($1)",
        &[&relations],
    );
    let rows = rows.unwrap_or_else(|error| panic!("changed_relations(): {error:?}"));
    rows.iter()
        .map(|row| Change {
            relation: row.get(0),
            name: row.get(1),
            reasons: row.get(2),
            rows_kept: row.get(3),
            filenode_snapshot: row.get(4),
            filenode_latest: row.get(5),
            ancestors: row.get(6),
        })
        .collect()
}

/// The error that a statement ends with, which the server's log may hold.
#[track_caller]
fn refusal(cluster: &Cluster, session: &mut Session, sql: &str) -> DbError {
    let error = session.try_exec(sql).expect_err("the statement is refused");
    let error = error.as_db_error().expect("the server says why").clone();
    cluster.allow_log(error.message());
    error
}
