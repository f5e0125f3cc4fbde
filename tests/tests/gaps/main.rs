//! Gaps of the ledger: whatever goes unrecorded, nobody who asks is told that nothing is void. And
//! where nothing has gone unrecorded, the answer is exact.

mod another_ledger;
mod copies;
mod no_bookmarks;
mod off;
mod past_and_future;
mod prepared;
mod single_user;
mod standby;
mod unwritable;
mod whole;
mod without_library;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;

use postgres::error::{DbError, SqlState};
use stillpoint_tests::{Cluster, ClusterOptions, Session, wait_until};

const DATABASE: &str = "postgres";

/// Tables with an index and a TOAST table each, and rows in them.
const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, word text);
                      INSERT INTO t SELECT i, i FROM generate_series(1, 100) AS i;
                      CREATE TABLE u (id int PRIMARY KEY, word text);
                      INSERT INTO u SELECT i, i FROM generate_series(1, 100) AS i";

/// Lines of the configuration.
const UNARMED: &str = "shared_preload_libraries = ''";
const ARMED: &str = "shared_preload_libraries = 'stillpoint'";

/// The same as options of a server program.
const UNARMED_OPTION: &str = "shared_preload_libraries=";
const ARMED_OPTION: &str = "shared_preload_libraries=stillpoint";

/// The hint of all that nothing else helps against.
const FULL: &str = "Take a full backup.";

/// What is said where something may have gone unrecorded.
const INTERRUPTED: &str = "the ledger has a gap since the bookmark was taken";
/// What is said of a bookmark that is not in the ledger.
const FORGOTTEN: &str = "the bookmark is not known";

/// The backup tool of the tests.
const TOOL: &str = "tool";

/// A cluster that records, and a session of it.
struct Scene {
    session: Session,
    /// Ends last, so that the session is closed before the server is stopped.
    cluster: Cluster,
}

impl Scene {
    #[track_caller]
    fn new() -> Self {
        Self::with(ClusterOptions::default())
    }

    /// With settings besides the library's preloading.
    #[track_caller]
    fn with(options: ClusterOptions) -> Self {
        // What a statement has done is to be found after a crash.
        let cluster = options.preload().setting("synchronous_commit = local").start();
        cluster.create_extension(DATABASE);
        let mut session = cluster.session(DATABASE);
        session.exec(TABLES);
        session.exec(&format!("SELECT stillpoint.register_consumer('{TOOL}')"));
        Self { session, cluster }
    }

    /// Lets the server stop or crash, does something while it is down, and starts it.
    #[track_caller]
    fn meanwhile(&mut self, end: fn(&mut Cluster), work: impl FnOnce(&mut Cluster)) {
        end(&mut self.cluster);
        work(&mut self.cluster);
        self.start();
    }

    /// Starts the server.
    #[track_caller]
    fn start(&mut self) {
        self.cluster.start_server();
        self.session = self.cluster.session(DATABASE);
    }

    /// Stops the server and starts it with another setting.
    #[track_caller]
    fn restart_with(&mut self, setting: &str) {
        self.cluster.restart_with(setting);
        self.session = self.cluster.session(DATABASE);
    }

    #[track_caller]
    fn base(&mut self) -> Base {
        Base::take(&mut self.session)
    }

    #[track_caller]
    fn refusal(&mut self, sql: &str) -> DbError {
        refusal(&self.cluster, &mut self.session, sql)
    }

    #[track_caller]
    fn assert_gap(&mut self, base: &Base, message: &str) {
        assert_gap(&self.cluster, &mut self.session, base, message, message);
    }

    #[track_caller]
    fn assert_whole(&mut self, base: &Base) {
        assert_whole(&mut self.session, base);
    }

    /// Waits until the server has noted its start, by which it knows after a crash that no other
    /// was there. That is done beside the first sessions.
    #[track_caller]
    fn wait_until_start_is_noted(&mut self) {
        let started = self.cluster.data_directory().join("postmaster.opts");
        let started = started.metadata().expect("every start writes it");
        let noted = format!(
            "SELECT w #>> '{{ended}}' IS NULL
                AND (w #>> '{{started,changed,0}}')::bigint = {}
                AND (w #>> '{{started,changed,1}}')::bigint = {}
               FROM (SELECT pg_read_file('stillpoint.witness')::json) AS f (w)",
            started.ctime(),
            started.ctime_nsec()
        );
        wait_until(&mut self.session, &noted);
    }
}

/// The file of each relation that users have made, by its OID.
type Files = BTreeMap<String, String>;

#[track_caller]
fn files(session: &mut Session) -> Files {
    let rows = session.rows(
        "SELECT oid, pg_relation_filepath(oid) FROM pg_class
          WHERE oid >= 16384 AND relpersistence <> 't' AND pg_relation_filenode(oid) IS NOT NULL",
    );
    let pair = |row: Vec<Option<String>>| {
        let mut values = row.into_iter().flatten();
        (values.next().expect("an OID"), values.next().expect("a path"))
    };
    rows.into_iter().map(pair).collect()
}

/// What is void by the catalogs: the old and the new file of each relation that has another one
/// now, or is gone.
fn replaced(before: &Files, after: &Files) -> BTreeSet<String> {
    let changed = before.iter().filter(|(oid, path)| after.get(*oid) != Some(path));
    changed.flat_map(|(oid, path)| [Some(path), after.get(oid)]).flatten().cloned().collect()
}

/// What of an answer is about files of then or of now: those that have come and gone in between
/// were in no backup.
#[track_caller]
fn told(session: &mut Session, sql: &str, before: &Files) -> BTreeSet<String> {
    let after = files(session);
    let mut paths: BTreeSet<String> = session.texts(sql).into_iter().collect();
    paths.retain(|path| before.values().chain(after.values()).any(|known| known == path));
    paths
}

/// What a backup tool knows of a moment.
struct Base {
    /// From `bookmark()`.
    bookmark: String,
    /// From `begin_backup()`: that backup has ended, and the next one is based on it.
    backup: String,
    files: Files,
}

impl Base {
    #[track_caller]
    fn take(session: &mut Session) -> Self {
        let backup = back_up(session).bookmark;
        Self { bookmark: take_bookmark(session), backup, files: files(session) }
    }
}

#[track_caller]
fn take_bookmark(session: &mut Session) -> String {
    session.text("SELECT stillpoint.bookmark()")
}

/// What `begin_backup()` gives.
#[derive(Debug)]
struct Backup {
    base: Option<String>,
    bookmark: String,
    complete: bool,
    /// Without the words that say what to do.
    reason: Option<String>,
}

#[track_caller]
fn begin_backup(session: &mut Session) -> Backup {
    let rows = session.rows(&format!("SELECT * FROM stillpoint.begin_backup('{TOOL}')"));
    let [base, bookmark, complete, reason] =
        rows.into_iter().next().and_then(|row| row.try_into().ok()).expect("one row of four");
    let bookmark = bookmark.expect("every backup has a bookmark");
    let reason = reason.map(|reason| {
        let cause = reason.strip_suffix("; take a full backup");
        cause.unwrap_or_else(|| panic!("what is to be done? {reason}")).to_owned()
    });
    Backup { base, bookmark, complete: complete.as_deref() == Some("t"), reason }
}

#[track_caller]
fn end_backup(session: &mut Session, backup: &Backup) {
    session.exec(&format!("SELECT stillpoint.end_backup('{TOOL}', '{}')", backup.bookmark));
}

/// A backup that begins, copies nothing, and ends.
#[track_caller]
fn back_up(session: &mut Session) -> Backup {
    let backup = begin_backup(session);
    end_backup(session, &backup);
    backup
}

fn since(bookmark: &str) -> String {
    format!("SELECT path FROM stillpoint.invalidated_since('{bookmark}')")
}

fn between(base: &str, upto: &str) -> String {
    format!("SELECT path FROM stillpoint.invalidated_between('{base}', '{upto}')")
}

/// The error that a statement ends with, which the server's log may hold.
#[track_caller]
fn refusal(cluster: &Cluster, session: &mut Session, sql: &str) -> DbError {
    let Err(error) = session.try_exec(sql) else { panic!("that was not refused: {sql}") };
    let error = error.as_db_error().expect("the server says why").clone();
    cluster.allow_log(error.message());
    error
}

/// Nobody can know what is void since the bookmark.
#[track_caller]
fn assert_unusable(error: &DbError, message: &str) {
    assert_eq!(error.message(), message, "{error:?}");
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error:?}");
    assert_eq!(error.hint(), Some(FULL), "{error:?}");
}

/// Every question that the base is part of is refused with that message, the next backup is told
/// that reason, and the one after that builds on that one.
#[track_caller]
fn assert_gap(cluster: &Cluster, session: &mut Session, base: &Base, message: &str, reason: &str) {
    assert_unusable(&refusal(cluster, session, &since(&base.bookmark)), message);
    assert_unusable(&refusal(cluster, session, &since(&base.backup)), message);
    let upto = take_bookmark(session);
    assert_unusable(&refusal(cluster, session, &between(&base.bookmark, &upto)), message);
    let backup = back_up(session);
    assert!(!backup.complete, "{backup:?}");
    assert_eq!(backup.reason.as_deref(), Some(reason), "{backup:?}");
    let (bookmark, files) = (take_bookmark(session), files(session));
    assert_whole(session, &Base { bookmark, backup: backup.bookmark, files });
}

/// Every question about the base is answered, by exactly what the catalogs say, and the next
/// backup can build on it.
#[track_caller]
fn assert_whole(session: &mut Session, base: &Base) {
    session.exec("TRUNCATE u");
    let expected = replaced(&base.files, &files(session));
    assert!(!expected.is_empty());
    assert_eq!(told(session, &since(&base.bookmark), &base.files), expected);
    assert_eq!(told(session, &since(&base.backup), &base.files), expected);
    let upto = take_bookmark(session);
    assert_eq!(told(session, &between(&base.bookmark, &upto), &base.files), expected);
    let backup = begin_backup(session);
    assert_eq!(backup.base.as_ref(), Some(&base.backup), "{backup:?}");
    assert!(backup.complete && backup.reason.is_none(), "{backup:?}");
    assert_eq!(told(session, &between(&base.backup, &backup.bookmark), &base.files), expected);
    end_backup(session, &backup);
}

/// The condition that a backend waits for a lock that `holder` has.
fn waits_behind(waiter: i32, holder: i32) -> String {
    format!("SELECT {holder} = ANY (pg_blocking_pids({waiter}))")
}
