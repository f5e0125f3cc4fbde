//! Who may call, and what a caller cannot bend.

use postgres::error::SqlState;
use stillpoint_tests::Session;

use crate::{DATABASE, Race, begin, changes, refusal};

const SETUP: &str = "CREATE ROLE reader LOGIN;
                     CREATE TABLE t (); CREATE TABLE u ();
                     GRANT SELECT ON t, u TO reader";

#[track_caller]
fn begin_as_reader(race: &Race) -> Session {
    let mut reader = race.cluster.session_as(DATABASE, "reader");
    begin(&mut reader);
    reader.exec("LOCK TABLE t, u IN ACCESS SHARE MODE");
    reader
}

#[test]
fn usage_of_the_schema_is_all_that_a_caller_needs() {
    let mut race = Race::begin(SETUP);
    let tables = [race.oid("t"), race.oid("u")];
    let mut reader = begin_as_reader(&race);
    let call = "SELECT stillpoint.changed_relations('{}')";
    let error = refusal(&race.cluster, &mut reader, call);
    assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE);
    reader.exec("ROLLBACK");

    race.commit(&["GRANT USAGE ON SCHEMA stillpoint TO reader"]);
    let mut reader = race.cluster.session_as(DATABASE, "reader");
    begin(&mut reader);
    race.commit(&["TRUNCATE t"]);
    reader.exec("LOCK TABLE t, u IN ACCESS SHARE MODE");
    let changes = changes(&mut reader, &tables);
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].name.as_str(), changes[0].reasons.as_str()), ("public.t", "replaced"));
    assert_eq!(reader.text("SELECT stillpoint.version()"), "0.3.0");
}

#[test]
fn a_callers_search_path_leads_to_nothing_that_changes_the_answer() {
    let setup = format!(
        "{SETUP};
         GRANT USAGE ON SCHEMA stillpoint TO reader;
         CREATE SCHEMA AUTHORIZATION reader"
    );
    let mut race = Race::begin(&setup);
    let tables = [race.oid("t"), race.oid("u")];
    let mut reader = race.cluster.session_as(DATABASE, "reader");
    // With these in front, a catalog query that relied on the path would find no relation, one
    // that is another, or no differences.
    reader.exec(
        "CREATE FUNCTION reader.no(oid, oid) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT false';
         CREATE FUNCTION reader.no(name, name) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT false';
         CREATE OPERATOR reader.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = reader.no);
         CREATE OPERATOR reader.= (LEFTARG = name, RIGHTARG = name, FUNCTION = reader.no);
         CREATE TABLE reader.pg_class (LIKE pg_catalog.pg_class);
         CREATE TABLE reader.pg_namespace (LIKE pg_catalog.pg_namespace);
         CREATE TABLE reader.pg_attribute (attrelid oid, attnum int, attname text);
         CREATE TABLE reader.pg_inherits (LIKE pg_catalog.pg_inherits);
         CREATE FUNCTION reader.unnest(text[]) RETURNS SETOF text LANGUAGE sql AS 'SELECT ''x''';
         CREATE TEMPORARY TABLE pg_class (LIKE pg_catalog.pg_class);
         SET search_path = reader, pg_temp, pg_catalog",
    );
    begin(&mut reader);
    race.commit(&["TRUNCATE t", "DROP TABLE u; CREATE TABLE u (id int)"]);
    reader.exec("LOCK TABLE public.t IN ACCESS SHARE MODE");
    let rows = reader.rows(&format!(
        "SELECT relation_name, pg_catalog.array_to_string(reasons, ', ')
           FROM stillpoint.changed_relations('{{{}, {}}}')",
        tables[0], tables[1]
    ));
    let told: Vec<Vec<_>> = rows
        .iter()
        .map(|row| row.iter().map(|text| text.as_deref().unwrap_or("")).collect())
        .collect();
    assert_eq!(told, [["t", "replaced"], ["u", "dropped, recreated"]]);
    assert_eq!(reader.text("SHOW search_path"), "reader, pg_temp, pg_catalog");
}
