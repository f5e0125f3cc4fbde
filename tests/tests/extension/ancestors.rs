//! All ancestors of a changed relation, through every parent.

use crate::Race;

#[test]
fn ancestors_are_named_through_both_parents_and_each_once() {
    let mut race = Race::begin(
        "CREATE TABLE root (id int);
         CREATE TABLE left_parent () INHERITS (root);
         CREATE TABLE right_parent () INHERITS (root);
         CREATE TABLE child () INHERITS (left_parent, right_parent);
         CREATE TABLE stranger (id int)",
    );
    race.commit(&["TRUNCATE ONLY child"]);
    // The ancestors themselves need no lock.
    race.lock("child");
    let changes = race.changes(&["child"]);
    let mut expected: Vec<_> =
        ["root", "left_parent", "right_parent"].iter().map(|name| race.oid(name)).collect();
    expected.sort_unstable();
    assert_eq!(changes[0].reasons, "replaced");
    assert_eq!(changes[0].ancestors, expected);
}

#[test]
fn a_leaf_names_every_level_above_it() {
    let mut race = Race::begin(
        "CREATE TABLE p (a int, b int) PARTITION BY LIST (a);
         CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1) PARTITION BY LIST (b);
         CREATE TABLE p11 PARTITION OF p1 FOR VALUES IN (1)",
    );
    race.commit(&["TRUNCATE p11"]);
    race.lock("p11");
    let changes = race.changes(&["p11"]);
    let mut expected = vec![race.oid("p"), race.oid("p1")];
    expected.sort_unstable();
    assert_eq!(changes[0].ancestors, expected);
}

#[test]
fn a_parent_that_is_new_and_one_that_is_lost_are_both_named() {
    let mut race = Race::begin(
        "CREATE TABLE old_parent (id int);
         CREATE TABLE new_root (id int);
         CREATE TABLE new_parent () INHERITS (new_root);
         CREATE TABLE child () INHERITS (old_parent)",
    );
    race.commit(&["ALTER TABLE child NO INHERIT old_parent, INHERIT new_parent"]);
    race.lock("child");
    let changes = race.changes(&["child"]);
    let mut expected: Vec<_> =
        ["old_parent", "new_parent", "new_root"].iter().map(|name| race.oid(name)).collect();
    expected.sort_unstable();
    assert_eq!(changes[0].reasons, "attached, detached");
    assert_eq!(changes[0].ancestors, expected);
}

#[test]
fn a_dropped_leaf_still_names_the_ancestors_it_had() {
    let mut race = Race::begin(
        "CREATE TABLE p (id int) PARTITION BY LIST (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)",
    );
    race.commit(&["DROP TABLE p1"]);
    let changes = race.changes(&["p1"]);
    assert_eq!(changes[0].ancestors, [race.oid("p")]);
}
