//! Where the files are that the ledger names.

use stillpoint_tests::Cluster;

#[test]
fn the_file_of_a_relation_that_has_moved_is_told_where_it_was_although_it_has_gone_since() {
    let cluster = Cluster::preloaded();
    cluster.create_extension("postgres");
    cluster.create_tablespace("elsewhere");
    let mut session = cluster.session("postgres");
    session.exec("CREATE TABLE t (id int); CREATE TABLE u (id int)");
    let mut path = |table: &str| session.text(&format!("SELECT pg_relation_filepath('{table}')"));
    let first = [path("t"), path("u")];
    let base = session.text("SELECT stillpoint.bookmark()");
    session.exec("ALTER TABLE t SET TABLESPACE elsewhere");
    session.exec("ALTER TABLE u SET TABLESPACE elsewhere");
    let mut path = |table: &str| session.text(&format!("SELECT pg_relation_filepath('{table}')"));
    let second = [path("t"), path("u")];
    let upto = session.text("SELECT stillpoint.bookmark()");
    session.exec("TRUNCATE t; DROP TABLE u");
    let third = session.text("SELECT pg_relation_filepath('t')");

    let mut between = [first.clone(), second.clone()].concat();
    between.sort();
    let mut since = [between.clone(), vec![third]].concat();
    since.sort();
    let mut told = |function: String| {
        let mut paths = session.texts(&format!("SELECT path FROM stillpoint.{function}"));
        paths.sort();
        paths
    };
    assert_eq!(told(format!("invalidated_between('{base}', '{upto}')")), between);
    assert_eq!(told(format!("invalidated_since('{base}')")), since);
}

#[test]
fn the_file_of_an_index_that_has_moved_is_told_although_another_index_has_taken_it_over() {
    let cluster = Cluster::preloaded();
    cluster.create_extension("postgres");
    cluster.create_tablespace("elsewhere");
    let mut session = cluster.session("postgres");
    session.exec("CREATE TABLE t (word varchar(10)); CREATE INDEX t_word ON t (word)");
    const INDEX: &str = "SELECT 't_word'::regclass::oid";
    const PATH: &str = "SELECT pg_relation_filepath('t_word')";
    let first = session.number(INDEX);
    let base = session.text("SELECT stillpoint.bookmark()");
    session.exec("ALTER INDEX t_word SET TABLESPACE elsewhere");
    let path = session.text(PATH);
    session.exec("ALTER TABLE t ALTER word TYPE varchar(20)");
    assert!(session.text(PATH) == path && session.number(INDEX) != first, "not taken over");
    let upto = session.text("SELECT stillpoint.bookmark()");
    for function in [format!("since('{base}')"), format!("between('{base}', '{upto}')")] {
        let told = session.texts(&format!("SELECT path FROM stillpoint.invalidated_{function}"));
        assert!(told.contains(&path), "{function}: {told:?} without {path}");
    }
}
