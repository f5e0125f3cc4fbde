//! Materialized views are refreshed by the restore, where and in the order in which they can be.

use stillpoint_tests::Cluster;

use crate::compare::{Data, assert_dumped_as_by_pg_dump};

#[test]
fn materialized_views_over_views_over_others_are_refreshed_in_order() {
    let cluster = Cluster::start();
    cluster.create_database("source");
    // By name as by age, those that read come before those that are read.
    cluster.session("source").exec(
        "CREATE TABLE t AS SELECT generate_series(1, 10) AS id; \
         CREATE MATERIALIZED VIEW z AS SELECT * FROM t; \
         CREATE VIEW over_z AS SELECT id AS number FROM z; \
         CREATE VIEW over_that AS SELECT number FROM over_z WHERE number > 2; \
         CREATE MATERIALIZED VIEW m AS SELECT a.number FROM over_that AS a, z, t \
          WHERE z.id = a.number AND t.id = z.id; \
         CREATE UNIQUE INDEX ON m (number); \
         CREATE MATERIALIZED VIEW a AS SELECT count(*) FROM m, over_z; \
         CREATE MATERIALIZED VIEW empty AS SELECT * FROM m WITH NO DATA",
    );
    assert_dumped_as_by_pg_dump(&cluster, "source", &[&["-j1"]]);
}

#[test]
fn what_reads_a_view_without_rows_is_not_refreshed() {
    let cluster = Cluster::start();
    cluster.create_database("source");
    let mut session = cluster.session("source");
    session.exec(
        "CREATE TABLE t AS SELECT generate_series(1, 10) AS id; \
         CREATE MATERIALIZED VIEW emptied AS SELECT * FROM t; \
         CREATE VIEW between AS SELECT * FROM emptied; \
         CREATE MATERIALIZED VIEW above AS SELECT * FROM between; \
         CREATE MATERIALIZED VIEW top AS SELECT * FROM above; \
         CREATE MATERIALIZED VIEW beside AS SELECT * FROM t; \
         REFRESH MATERIALIZED VIEW emptied WITH NO DATA",
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    let finished = stillpoint_tests::Stillpoint::dump(&cluster, "source", &archive).run();
    finished.assert_exit(0);
    for view in ["above", "top"] {
        finished.assert_stderr(&format!(
            "warning: materialized view public.{view} reads one that holds no rows: it will not \
             be refreshed"
        ));
    }
    stillpoint_tests::restore_into(&cluster, &archive, "restored");
    let restored = Data::read(&mut cluster.session("restored"));
    for (view, expected) in [("emptied", false), ("above", false), ("top", false), ("beside", true)]
    {
        let found = restored.get(&format!("public.{view}"));
        assert_eq!(found != Some("not populated"), expected, "{view}: {found:?}");
    }
}
