//! Why the extension refuses to answer.

use stillpoint_check::Oid;

use crate::fence::{Encoding, ErrorReport, Failure, SqlState};

/// A refusal of `changed_relations()`.
#[derive(Debug)]
pub enum Refusal {
    /// Each statement of the transaction has a snapshot of its own.
    SnapshotChanges,
    /// The array is NULL.
    NoArray,
    /// An element of the array is NULL.
    NullElement,
    /// The transaction's snapshot sees no such relation.
    Unknown {
        /// The OID asked for.
        relation: Oid,
    },
    /// The transaction holds no lock on the relation, so that the answer could be wrong as
    /// soon as it is given.
    NotLocked {
        /// Its schema's name under the snapshot.
        schema: String,
        /// Its name under the snapshot.
        relation: String,
        /// `pg_class.relkind`.
        kind: char,
        /// How many more there are.
        others: usize,
        /// How the names are to be read.
        encoding: Encoding,
    },
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let report = |state, message: String| ErrorReport::new(state, message, "changed_relations");
        Self::new(match refusal {
            Refusal::SnapshotChanges => report(
                SqlState::ERRCODE_INVALID_TRANSACTION_STATE,
                "changed_relations() needs a transaction of isolation level REPEATABLE READ or \
                 SERIALIZABLE"
                    .to_owned(),
            )
            .set_detail(
                "At lower levels every statement has a snapshot of its own, so that there is none \
                 to compare the present with.",
            )
            .set_hint("Begin the transaction with BEGIN ISOLATION LEVEL REPEATABLE READ."),
            Refusal::NoArray => report(
                SqlState::ERRCODE_NULL_VALUE_NOT_ALLOWED,
                "the array of relations must not be null".to_owned(),
            ),
            Refusal::NullElement => report(
                SqlState::ERRCODE_NULL_VALUE_NOT_ALLOWED,
                "the array of relations must not contain nulls".to_owned(),
            ),
            Refusal::Unknown { relation } => report(
                SqlState::ERRCODE_UNDEFINED_TABLE,
                format!(
                    "relation with OID {relation} does not exist under the transaction's snapshot"
                ),
            )
            .set_hint("Take the OIDs from pg_class in the same transaction."),
            Refusal::NotLocked { schema, relation, kind, others, encoding } => {
                let name = QualifiedName {
                    schema: encoding.for_message(&schema),
                    relation: encoding.for_message(&relation),
                };
                let detail = match others {
                    0 => "Without a lock the relation may change after the answer.".to_owned(),
                    _ => format!(
                        "Without a lock the relation may change after the answer. It is one of \
                         {} that are not locked.",
                        others + 1
                    ),
                };
                report(
                    SqlState::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("relation \"{}\" is not locked by this transaction", name.plain()),
                )
                .set_detail(detail)
                .set_hint(name.lock_hint(kind))
            }
        })
    }
}

/// A relation's name with its schema's, fit for messages.
struct QualifiedName {
    schema: String,
    relation: String,
}

impl QualifiedName {
    fn plain(&self) -> String {
        format!("{}.{}", self.schema, self.relation)
    }

    fn quoted(&self) -> String {
        let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        format!("{}.{}", quote(&self.schema), quote(&self.relation))
    }

    /// How to lock a relation of that kind (`pg_class.relkind`): LOCK TABLE takes tables and
    /// views, what else can be read is locked by reading it.
    fn lock_hint(&self, kind: char) -> String {
        let name = self.quoted();
        match kind {
            'r' | 'p' | 'v' => format!("Run LOCK TABLE {name} IN ACCESS SHARE MODE first."),
            'm' | 'f' | 'S' | 't' => format!(
                "Run SELECT FROM {name} LIMIT 0 first, which locks the relation until the \
                 transaction ends."
            ),
            'i' | 'I' => "Ask for its table instead.".to_owned(),
            _ => "Only relations that a statement can lock or read can be checked.".to_owned(),
        }
    }
}
