//! The SQL functions of the extension, as `sql/` declares them.

use crate::changed_relations::changed_relations;
use crate::fence::call::sql_function;
use crate::fence::{Answer, Call, Failure};
use crate::ledger::{
    begin_backup, begin_ledger, bookmark, drop_consumer, end_backup, invalidated_between,
    invalidated_since, prune, register_consumer, status,
};

sql_function!(changed_relations_wrapper, pg_finfo_changed_relations_wrapper, changed_relations);
sql_function!(begin_backup_wrapper, pg_finfo_begin_backup_wrapper, begin_backup);
sql_function!(bookmark_wrapper, pg_finfo_bookmark_wrapper, bookmark);
sql_function!(drop_consumer_wrapper, pg_finfo_drop_consumer_wrapper, drop_consumer);
sql_function!(end_backup_wrapper, pg_finfo_end_backup_wrapper, end_backup);
sql_function!(
    invalidated_between_wrapper,
    pg_finfo_invalidated_between_wrapper,
    invalidated_between
);
sql_function!(invalidated_since_wrapper, pg_finfo_invalidated_since_wrapper, invalidated_since);
sql_function!(register_consumer_wrapper, pg_finfo_register_consumer_wrapper, register_consumer);
sql_function!(begin_ledger_wrapper, pg_finfo_begin_ledger_wrapper, begin_ledger);
sql_function!(prune_wrapper, pg_finfo_prune_wrapper, prune);
sql_function!(status_wrapper, pg_finfo_status_wrapper, status);
sql_function!(version_wrapper, pg_finfo_version_wrapper, version);

/// The version of the library, which may be another than that of the installed SQL
/// (`pg_extension.extversion`) between the update of the one and of the other.
fn version(_: &Call) -> Result<Answer, Failure> {
    Ok(Answer::text(env!("CARGO_PKG_VERSION")))
}
