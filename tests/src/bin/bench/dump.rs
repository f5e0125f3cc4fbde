//! What a verified dump costs beside `pg_dump`, and what memory it takes.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_tests::figure::{Figure, Goal};
use stillpoint_tests::measure::{Measured, Series, measure};
use stillpoint_tests::{Cluster, ClusterOptions, Stillpoint, pg_dump};
use tempfile::TempDir;

use crate::{Section, Size};

/// The steps of an attempt, as the report names them.
const STEPS: [(&str, &str); 6] = [
    ("resolve", "resolve what is to be dumped"),
    ("ddl", "run `pg_dump` for the DDL"),
    ("lock", "lock"),
    ("check", "check"),
    ("export", "export"),
    ("recheck", "check again before the locks are given back"),
];

/// The runs of one check method.
#[derive(Default)]
struct Runs {
    whole: Series,
    peak_rss: Series,
    steps: [Series; STEPS.len()],
}

/// Measures dumps; gives the page's section and the figures.
pub(super) fn run(size: Size) -> Section {
    let Size { tables, pairs } = size;
    let cluster = ClusterOptions::default()
        .preload()
        .setting("shared_buffers = 512MB")
        .setting("max_locks_per_transaction = 1000")
        .start();

    make_small_tables(&cluster, tables);
    let (extension, plain, pg_dump) = dump_small_tables(&cluster, tables, pairs);
    cluster.drop_database("small");
    let wide_rss = dump_wide_rows(&cluster);

    let figures = vec![
        Figure::new(
            "check_10k_tables_extension_seconds",
            step(&extension, "check").median(),
            Goal::AtMost(0.3),
        ),
        Figure::new(
            "check_10k_tables_plain_seconds",
            step(&plain, "check").median(),
            Goal::AtMost(0.6),
        ),
        Figure::new(
            "dump_10k_tables_vs_pg_dump",
            pg_dump.median() / extension.whole.median(),
            Goal::AtLeast(2.0),
        ),
        Figure::new(
            "dump_10k_tables_plain_vs_pg_dump",
            pg_dump.median() / plain.whole.median(),
            Goal::AtLeast(2.0),
        ),
        Figure::new("rss_10k_tables_mb", extension.peak_rss.median(), Goal::AtMost(100.0)),
        Figure::new("rss_1gb_table_1mb_rows_mb", wide_rss, Goal::AtMost(100.0)),
    ];
    Section { text: section(tables, &extension, &plain, &pg_dump), figures }
}

/// Makes the database `small` of tables with ten rows each.
pub(super) fn make_small_tables(cluster: &Cluster, tables: usize) {
    println!("making {tables} tables ...");
    cluster.create_database("small");
    let mut session = cluster.session("small");
    // A transaction of all of them would need more locks than a server usually has room for.
    session.exec(&format!(
        "DO $$ BEGIN FOR i IN 1..{tables} LOOP \
             EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY, word text)', i); \
             EXECUTE format('INSERT INTO t%s SELECT j, md5(j::text) \
                               FROM generate_series(1, 10) AS j', i); \
             IF i % 500 = 0 THEN COMMIT; END IF; \
         END LOOP; END $$"
    ));
    session.exec("VACUUM ANALYZE");
}

/// Runs of the three in turn, so that what the machine does beside meets all of them.
fn dump_small_tables(cluster: &Cluster, tables: usize, pairs: usize) -> (Runs, Runs, Series) {
    let (mut extension, mut plain, mut pg_dump_runs) =
        (Runs::default(), Runs::default(), Series::default());
    let mut archives = Archives::new();
    let archives = &mut archives;
    for pair in 1..=pairs {
        println!("dumping {tables} tables, round {pair} of {pairs} ...");
        cluster.create_extension("small");
        run_ours(cluster, archives, "extension", tables, &mut extension);
        pg_dump_runs.add(run_pg_dump(cluster, archives, tables));
        cluster.session("small").exec("DROP EXTENSION stillpoint");
        run_ours(cluster, archives, "plain", tables, &mut plain);
    }
    (extension, plain, pg_dump_runs)
}

fn run_ours(
    cluster: &Cluster,
    archives: &mut Archives,
    method: &str,
    tables: usize,
    runs: &mut Runs,
) {
    let run = dump(cluster, archives, tables, |archive| {
        Stillpoint::dump(cluster, "small", archive).args(["-j", "2"]).spawn()
    });
    let report = run.finished.report();
    assert_eq!(report["check_method"], method, "{}", run.finished.scene());
    let timings = &report["attempts"][0]["timings"];
    for ((name, _), series) in STEPS.iter().zip(&mut runs.steps) {
        let seconds = timings[name].as_f64();
        series.add(seconds.unwrap_or_else(|| panic!("no timing of \"{name}\" in {timings}")));
    }
    runs.whole.add(run.seconds);
    runs.peak_rss.add(run.peak_rss);
}

fn run_pg_dump(cluster: &Cluster, archives: &mut Archives, tables: usize) -> f64 {
    dump(cluster, archives, tables, |archive| {
        pg_dump(cluster, "small").args(["-Fd", "-j2", "-f"]).arg(archive).spawn()
    })
    .seconds
}

/// Where all the archives are until the last run has ended.
///
/// ext4 gives no file the inode of one that was deleted within the last five minutes, and
/// searches past all of those for every new file. After ten thousand deletions, creating the
/// next ten thousand files takes several times as long, whoever does it.
struct Archives {
    directory: TempDir,
    number: u32,
}

impl Archives {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        Self { directory, number: 0 }
    }

    fn new_path(&mut self) -> PathBuf {
        self.number += 1;
        self.directory.path().join(self.number.to_string())
    }

    /// Waits until the file system has forgotten what others have deleted.
    fn wait_for_inodes(&mut self) {
        const FILES: u32 = 1000;
        for _ in 0..40 {
            let directory = self.new_path();
            fs::create_dir(&directory).expect("a directory can be made");
            let begin = Instant::now();
            for number in 0..FILES {
                let file = directory.join(number.to_string());
                fs::File::create_new(file).expect("a file can be made");
            }
            let each = begin.elapsed() / FILES;
            if each < Duration::from_micros(40) {
                return;
            }
            println!("to create a file takes {} µs; waiting for better ...", each.as_micros());
            thread::sleep(Duration::from_secs(10));
        }
        println!("going on all the same: the whole dumps will be slow");
    }
}

/// Measures a dump and makes sure that it was one.
fn dump(
    cluster: &Cluster,
    archives: &mut Archives,
    tables: usize,
    start: impl FnOnce(&Path) -> stillpoint_tests::Running,
) -> Measured {
    archives.wait_for_inodes();
    settle(cluster);
    let archive = archives.new_path();
    let run = measure(|| start(&archive));
    run.finished.assert_exit(0);
    // Named by a number, unlike toc.dat.
    let files = fs::read_dir(&archive).expect("there is an archive").flatten();
    let data = files.filter(|file| file.file_name().as_bytes()[0].is_ascii_digit());
    assert_eq!(data.count(), tables, "data files\n{}", run.finished.scene());
    run
}

/// Both tools sync what they wrote; nobody else's writes may be waiting for that.
fn settle(cluster: &Cluster) {
    cluster.session("postgres").exec("CHECKPOINT");
    let status = Command::new("sync").status().expect("sync runs");
    assert!(status.success());
}

/// Peak memory for a table of 1 GB in rows of 1 MB.
fn dump_wide_rows(cluster: &Cluster) -> f64 {
    println!("dumping 1 GB in rows of 1 MB ...");
    cluster.create_database("wide");
    cluster.create_extension("wide");
    let mut session = cluster.session("wide");
    session.exec("CREATE TABLE wide (id int, content text)");
    // Stored as they are: the server's own compression would only cost time here.
    session.exec("ALTER TABLE wide ALTER COLUMN content SET STORAGE EXTERNAL");
    session.exec(
        "INSERT INTO wide \
         SELECT i, md5(i::text) || substr(noise, 1 + i, 1048576 - 32 - 2000) \
           FROM (SELECT string_agg(md5(j::text), '') AS noise \
                   FROM generate_series(1, 32768) AS j) AS noise, \
                generate_series(1, 1024) AS i",
    );
    dump(cluster, &mut Archives::new(), 1, |archive| {
        Stillpoint::dump(cluster, "wide", archive).spawn()
    })
    .peak_rss
}

fn step<'a>(runs: &'a Runs, name: &str) -> &'a Series {
    let position = STEPS.iter().position(|(step, _)| *step == name);
    &runs.steps[position.expect("a step of an attempt")]
}

fn section(tables: usize, extension: &Runs, plain: &Runs, pg_dump: &Series) -> String {
    let mut section = format!(
        "## {tables} tables of 10 rows, two jobs\n\n\
         Seconds. The steps of a dump overlap: what follows `pg_dump` in the list runs beside it.\n\n\
         A run starts when creating a file is quick. For five minutes after many files were\n\
         deleted, ext4 searches past them for every new one; whoever creates ten thousand then\n\
         waits for the file system and for nothing else.\n\n\
         | | median | minimum | maximum |\n|---|---|---|---|\n"
    );
    let mut row = |name: &str, series: &Series| {
        let _ = writeln!(section, "| {name} | {series} |");
    };
    row("`pg_dump -Fd -j2`", pg_dump);
    row("**`stillpoint dump -j 2`, extension**", &extension.whole);
    for ((_, name), series) in STEPS.iter().zip(&extension.steps) {
        row(&format!("— {name}"), series);
    }
    row("**`stillpoint dump -j 2`, plain SQL**", &plain.whole);
    for ((_, name), series) in STEPS.iter().zip(&plain.steps) {
        row(&format!("— {name}"), series);
    }
    row("peak memory of the client, MB", &extension.peak_rss);
    section
}
