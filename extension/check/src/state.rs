//! A relation's description under one snapshot, and the comparison of two.

use crate::{Oid, Reason, Reasons};

/// One row of [`RELATION_STATE`](crate::RELATION_STATE): what a relation is under a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationState {
    /// `pg_class.oid`.
    pub relation: Oid,
    /// `pg_namespace.nspname`.
    pub schema_name: String,
    /// `pg_class.relname`.
    pub relation_name: String,
    /// `pg_class.relkind`.
    pub kind: char,
    /// `pg_class.relam`; 0 for relations that have none.
    pub access_method: Oid,
    /// `pg_class.reltablespace`; 0 for the database's default.
    pub tablespace: Oid,
    /// `pg_class.relfilenode`; 0 for relations without storage.
    pub filenode: Oid,
    /// The columns in an opaque form that is equal only for equal columns.
    pub columns: String,
    /// The parents in `pg_inherits`, ascending.
    pub parents: Vec<Oid>,
}

impl RelationState {
    /// Whether `other` has the same name in a schema of the same name.
    #[must_use]
    pub fn is_named_like(&self, other: &Self) -> bool {
        self.relation_name == other.relation_name && self.schema_name == other.schema_name
    }

    fn is_stored_like(&self, other: &Self) -> bool {
        (self.filenode, self.tablespace, self.access_method, self.kind)
            == (other.filenode, other.tablespace, other.access_method, other.kind)
    }
}

/// What has happened to a relation between a snapshot and the latest one.
///
/// `latest` is `None` if the latest snapshot does not see the relation. `name_now_means` is
/// the relation that bears its old name under the latest snapshot; it matters only for a
/// relation that was dropped or renamed, and may be `None` for every other.
#[must_use]
pub fn compare(
    snapshot: &RelationState,
    latest: Option<&RelationState>,
    name_now_means: Option<Oid>,
) -> Reasons {
    let mut reasons = Reasons::default();
    if name_now_means.is_some_and(|relation| relation != snapshot.relation) {
        reasons.insert(Reason::Recreated);
    }
    let Some(latest) = latest else {
        reasons.insert(Reason::Dropped);
        return reasons;
    };
    if !snapshot.is_named_like(latest) {
        reasons.insert(Reason::Renamed);
    }
    if !snapshot.is_stored_like(latest) {
        reasons.insert(Reason::Replaced);
    }
    if snapshot.columns != latest.columns {
        reasons.insert(Reason::Redefined);
    }
    if latest.parents.iter().any(|parent| !snapshot.parents.contains(parent)) {
        reasons.insert(Reason::Attached);
    }
    if snapshot.parents.iter().any(|parent| !latest.parents.contains(parent)) {
        reasons.insert(Reason::Detached);
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> RelationState {
        RelationState {
            relation: 16384,
            schema_name: "public".into(),
            relation_name: "t".into(),
            kind: 'r',
            access_method: 2,
            tablespace: 0,
            filenode: 16384,
            columns: "1 23 -1 f '' 'id'".into(),
            parents: vec![16000],
        }
    }

    #[track_caller]
    fn assert_reasons(change: impl FnOnce(&mut RelationState), expected: &[Reason]) {
        let snapshot = table();
        let mut latest = table();
        change(&mut latest);
        let reasons = compare(&snapshot, Some(&latest), None);
        assert_eq!(reasons.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_equal_state_has_no_reason() {
        assert_reasons(|_| {}, &[]);
    }

    #[test]
    fn storage_is_replaced_by_filenode_tablespace_access_method_or_kind() {
        assert_reasons(|t| t.filenode += 1, &[Reason::Replaced]);
        assert_reasons(|t| t.tablespace = 1663, &[Reason::Replaced]);
        assert_reasons(|t| t.access_method = 3, &[Reason::Replaced]);
        assert_reasons(|t| t.kind = 'v', &[Reason::Replaced]);
    }

    #[test]
    fn a_name_or_a_schema_name_that_differs_is_a_rename() {
        assert_reasons(|t| t.relation_name = "t_old".into(), &[Reason::Renamed]);
        assert_reasons(|t| t.schema_name = "archive".into(), &[Reason::Renamed]);
    }

    #[test]
    fn columns_that_differ_are_a_redefinition() {
        assert_reasons(|t| t.columns.push_str(", 2 25 -1 f '' 'x'"), &[Reason::Redefined]);
    }

    #[test]
    fn another_parent_is_attached_and_a_lost_one_detached() {
        assert_reasons(|t| t.parents.push(16001), &[Reason::Attached]);
        assert_reasons(|t| t.parents.clear(), &[Reason::Detached]);
        assert_reasons(|t| t.parents = vec![1], &[Reason::Attached, Reason::Detached]);
    }

    #[test]
    fn a_relation_that_is_gone_is_dropped_and_its_name_may_mean_another() {
        let gone = compare(&table(), None, None);
        assert_eq!(gone.iter().collect::<Vec<_>>(), [Reason::Dropped]);
        let recreated = compare(&table(), None, Some(17000));
        assert_eq!(recreated.to_string(), "dropped, recreated");
    }

    #[test]
    fn a_rename_swap_is_renamed_and_recreated() {
        let mut latest = table();
        latest.relation_name = "t_old".into();
        let swapped = compare(&table(), Some(&latest), Some(17000));
        assert_eq!(swapped.to_string(), "renamed, recreated");
    }
}
