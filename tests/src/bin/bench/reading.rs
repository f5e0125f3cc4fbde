//! What it takes to read a large ledger, to begin and end a backup by it, and to prune it.

use std::fmt::Write as _;
use std::time::Instant;

use stillpoint_tests::figure::{Figure, Goal};
use stillpoint_tests::measure::Series;
use stillpoint_tests::{ClusterOptions, Session};

use crate::{Section, Size};

const DATABASE: &str = "postgres";

/// Rows of the ledger, for each small table of the other measurements.
const ROWS_PER_TABLE: usize = 100;

/// Truncations since the bookmark, each of one file.
const NEW: usize = 1000;

/// Measures the reading of the ledger; gives the page's section and the figures.
pub(super) fn run(size: Size) -> Section {
    let rows = size.tables * ROWS_PER_TABLE;
    println!("writing a ledger of {rows} rows ...");
    // On a disk that commits wait for: a backup's bookmarks are durable.
    let cluster = ClusterOptions::default().durable().preload().start();
    cluster.create_extension(DATABASE);
    let mut session = cluster.session(DATABASE);
    session.exec(&format!(
        "INSERT INTO stillpoint.invalidation
             SELECT (3 + i % 500)::text::xid8, (3 + i % 500)::text::xid8, '0/1',
                    now() - interval '40 days', d.oid, 1663, i, i + 1, i, 'table' || i, 'r',
                    'TRUNCATE TABLE', 'replaced', false
               FROM generate_series(1, {rows}) AS i, pg_database AS d
              WHERE d.datname = current_database()"
    ));
    session.exec("VACUUM (FREEZE, ANALYZE) stillpoint.invalidation");
    session.exec("CREATE TABLE truncated (id int)");
    session.exec("SELECT stillpoint.register_consumer('bench')");
    // Another one, so that nothing is pruned before it is to be.
    session.exec("SELECT stillpoint.register_consumer('other')");
    let bookmark = session.text("SELECT stillpoint.bookmark()");
    for _ in 0..NEW {
        session.exec("TRUNCATE truncated");
    }

    let (mut since, mut begin, mut end) = (Series::default(), Series::default(), Series::default());
    let query = format!("SELECT count(*) FROM stillpoint.invalidated_since('{bookmark}')");
    for _ in 0..size.pairs * 4 {
        let mut found = 0;
        since.add(milliseconds(|| found = session.number(&query)));
        assert_eq!(found, NEW as i64 + 1, "each old file, and the last new one");
        let mut bookmark = String::new();
        begin.add(milliseconds(|| bookmark = begin_backup(&mut session)));
        let sql = format!("SELECT stillpoint.end_backup('bench', '{bookmark}')");
        end.add(milliseconds(|| session.exec(&sql)));
    }
    let mut pruned = 0;
    let prune = milliseconds(|| pruned = session.number("SELECT stillpoint.prune()")) / 1000.0;
    assert!(pruned >= rows as i64, "all the old rows");

    let figures = vec![
        Figure::new("invalidated_since_1m_rows_ms", since.median(), Goal::AtMost(50.0)),
        Figure::new("begin_backup_1m_rows_ms", begin.median(), Goal::AtMost(10.0)),
        Figure::new("end_backup_1m_rows_ms", end.median(), Goal::AtMost(10.0)),
        Figure::new("prune_1m_rows_seconds", prune, Goal::AtMost(10.0)),
    ];
    let mut text = format!(
        "## Reading the ledger\n\n\
         A ledger of {rows} rows, {NEW} of them since the bookmark; milliseconds.\n\n\
         | | median | minimum | maximum |\n|---|---|---|---|\n"
    );
    let works = [("invalidated_since()", since), ("begin_backup()", begin), ("end_backup()", end)];
    for (name, series) in works {
        let _ = writeln!(text, "| `{name}` | {series} |");
    }
    let _ = writeln!(text, "\n`prune()` of {pruned} rows: {prune:.1} s, once.");
    Section { text, figures }
}

fn begin_backup(session: &mut Session) -> String {
    session.text("SELECT bookmark FROM stillpoint.begin_backup('bench')")
}

fn milliseconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64() * 1000.0
}
