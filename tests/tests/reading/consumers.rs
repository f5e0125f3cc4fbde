//! Consumers: one running backup each, and never a step ahead of one that has ended.

use postgres::error::SqlState;
use stillpoint_tests::{ClusterOptions, Session, wait_until};

use crate::{DATABASE, Scene, literal, refusal};

/// What `begin_backup()` has said.
#[derive(Debug)]
struct Begun {
    base: Option<String>,
    bookmark: String,
    complete: bool,
    reason: Option<String>,
}

#[track_caller]
fn begin(session: &mut Session, consumer: &str) -> Begun {
    let sql = format!(
        "SELECT base, bookmark, complete, reason FROM stillpoint.begin_backup('{consumer}')"
    );
    let [row] = &session.rows(&sql)[..] else { panic!("not one row") };
    let [base, Some(bookmark), Some(complete), reason] = &row[..] else { panic!("{row:?}") };
    Begun {
        base: base.clone(),
        bookmark: bookmark.clone(),
        complete: complete == "t" || complete == "true",
        reason: reason.clone(),
    }
}

#[track_caller]
fn end(session: &mut Session, consumer: &str, bookmark: &str) {
    session.exec(&end_sql(consumer, bookmark));
}

fn end_sql(consumer: &str, bookmark: &str) -> String {
    format!("SELECT stillpoint.end_backup('{consumer}', {})", literal(bookmark))
}

fn scene() -> Scene {
    let mut scene = Scene::with(ClusterOptions::default().setting("max_prepared_transactions = 2"));
    scene.session.exec("SELECT stillpoint.register_consumer('tool')");
    scene
}

/// The locks that a session holds as for a backup.
#[track_caller]
fn locks(scene: &mut Scene) -> i64 {
    scene.observer.number(
        "SELECT count(*) FROM pg_locks
          WHERE locktype = 'object' AND classid = 'stillpoint.consumer'::regclass",
    )
}

#[test]
fn a_first_backup_has_no_base_and_the_next_one_is_based_on_it() {
    let mut scene = scene();
    let first = begin(&mut scene.session, "tool");
    assert_eq!((&first.base, first.complete), (&None, false));
    assert!(first.reason.is_some_and(|reason| reason.contains("first backup")));
    end(&mut scene.session, "tool", &first.bookmark);
    scene.session.exec("TRUNCATE a");
    let second = begin(&mut scene.session, "tool");
    assert_eq!(second.base.as_ref(), Some(&first.bookmark));
    assert_eq!((second.complete, &second.reason), (true, &None));
    assert_eq!(scene.void_between(&first.bookmark, &second.bookmark), ["a"]);
    assert_eq!(scene.void_since(&first.bookmark), ["a"]);
}

#[test]
fn a_backup_that_does_not_end_advances_nothing() {
    let mut scene = scene();
    let first = begin(&mut scene.session, "tool");
    end(&mut scene.session, "tool", &first.bookmark);
    for _ in 0..3 {
        let mut session = scene.cluster.session(DATABASE);
        let given_up = begin(&mut session, "tool");
        assert_eq!(given_up.base.as_ref(), Some(&first.bookmark));
        let pid = session.pid();
        drop(session);
        let gone = format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})");
        wait_until(&mut scene.observer, &gone);
    }
    let bookmarks = "SELECT count(*) FROM stillpoint.bookmark";
    assert_eq!(scene.observer.number(bookmarks), 2, "those given up are gone");
}

#[test]
fn a_second_backup_of_one_consumer_is_refused_and_told_whose_the_first_is() {
    let mut scene = scene();
    let mut other = scene.cluster.session(DATABASE);
    let _ = begin(&mut other, "tool");
    let error = scene.refusal("SELECT stillpoint.begin_backup('tool')");
    assert_eq!(error.code(), &SqlState::OBJECT_IN_USE, "{error}");
    let pid = other.pid().to_string();
    assert!(error.detail().is_some_and(|detail| detail.contains(&pid)), "{error:?}");
    let running = "SELECT running_pid FROM stillpoint.consumers WHERE name = 'tool'";
    assert_eq!(scene.observer.text(running), pid);
    let error = scene.refusal("SELECT stillpoint.drop_consumer('tool')");
    assert_eq!(error.code(), &SqlState::OBJECT_IN_USE, "{error}");

    let error = refusal(&scene.cluster, &mut other, "SELECT stillpoint.begin_backup('tool')");
    assert_eq!(error.code(), &SqlState::OBJECT_IN_USE, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("end_backup")), "{error:?}");
}

#[test]
fn an_end_without_a_beginning_is_refused() {
    let mut scene = scene();
    let bookmark = scene.bookmark();
    let error = scene.refusal(&end_sql("tool", &bookmark));
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
    let begun = begin(&mut scene.session, "tool");
    end(&mut scene.session, "tool", &begun.bookmark);
    let error = scene.refusal(&end_sql("tool", &begun.bookmark));
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
    assert_eq!(locks(&mut scene), 0);
}

#[test]
fn a_backup_may_be_ended_from_another_session_unless_it_was_overtaken() {
    let mut scene = scene();
    let first = {
        let mut session = scene.cluster.session(DATABASE);
        let begun = begin(&mut session, "tool");
        let error = scene.refusal(&end_sql("tool", &begun.bookmark));
        assert_eq!(error.code(), &SqlState::OBJECT_IN_USE, "{error}");
        begun.bookmark
    };
    wait_until(&mut scene.observer, "SELECT running_pid IS NULL FROM stillpoint.consumers");
    end(&mut scene.session, "tool", &first);

    let overtaken = begin(&mut scene.session, "tool");
    scene.session.exec("SELECT pg_advisory_unlock_all()");
    let second = begin(&mut scene.session, "tool");
    assert_eq!(second.base.as_ref(), Some(&first));
    let error = scene.refusal(&end_sql("tool", &overtaken.bookmark));
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
    end(&mut scene.session, "tool", &second.bookmark);
}

#[test]
fn a_session_runs_a_thousand_backups_and_keeps_nothing() {
    let mut scene = scene();
    for _ in 0..1000 {
        let begun = begin(&mut scene.session, "tool");
        end(&mut scene.session, "tool", &begun.bookmark);
    }
    assert_eq!(locks(&mut scene), 0);
    assert_eq!(scene.observer.number("SELECT count(*) FROM stillpoint.bookmark"), 1);
    assert_eq!(scene.observer.number("SELECT count(*) FROM stillpoint.consumer"), 1);
}

#[test]
fn transactions_that_are_prepared_or_fail_meanwhile_leave_a_backup_running() {
    let mut scene = scene();
    let begun = begin(&mut scene.session, "tool");
    scene.session.exec("BEGIN; TRUNCATE a; PREPARE TRANSACTION 'p'");
    assert_eq!(scene.refusal("SELECT 1/0").code(), &SqlState::DIVISION_BY_ZERO);
    scene.session.exec("BEGIN; SAVEPOINT s");
    assert_eq!(scene.refusal("SELECT 1/0").code(), &SqlState::DIVISION_BY_ZERO);
    scene.session.exec("ROLLBACK");
    assert_eq!(locks(&mut scene), 1);
    end(&mut scene.session, "tool", &begun.bookmark);
    assert_eq!(locks(&mut scene), 0);
    let again = begin(&mut scene.session, "tool");
    assert!(again.complete);
    scene.session = scene.cluster.session(DATABASE);
    wait_until(&mut scene.observer, "SELECT running_pid IS NULL FROM stillpoint.consumers");
    scene.session.exec("COMMIT PREPARED 'p'");
    assert_eq!(scene.void_since(&begun.bookmark), ["a"]);
    assert!(begin(&mut scene.session, "tool").complete);
}

#[test]
fn a_backup_whose_beginning_fails_is_not_running() {
    let mut scene = scene();
    let error = scene.refusal(
        "SELECT 1 / (length(bookmark) - length(bookmark)) FROM stillpoint.begin_backup('tool')",
    );
    assert_eq!(error.code(), &SqlState::DIVISION_BY_ZERO, "{error}");
    // The error is sent before the transaction is rolled back.
    wait_until(&mut scene.observer, "SELECT running_pid IS NULL FROM stillpoint.consumers");
    assert!(begin(&mut scene.session, "tool").base.is_none());
}

#[test]
fn a_backup_that_begins_and_ends_in_one_statement_that_fails_is_not_running() {
    let mut scene = scene();
    let error = scene.refusal(
        "SELECT stillpoint.end_backup('tool', bookmark), 1 / (random() * 0)::int
           FROM stillpoint.begin_backup('tool')",
    );
    assert_eq!(error.code(), &SqlState::DIVISION_BY_ZERO, "{error}");
    wait_until(&mut scene.observer, "SELECT running_pid IS NULL FROM stillpoint.consumers");
    let begun = begin(&mut scene.session, "tool");
    end(&mut scene.session, "tool", &begun.bookmark);
}

#[test]
fn a_backup_whose_ending_fails_is_still_running() {
    let mut scene = scene();
    let begun = begin(&mut scene.session, "tool");
    let bookmark = literal(&begun.bookmark);
    let error = scene.refusal(&format!(
        "SELECT 1 / count(*) FILTER (WHERE false)
           FROM (SELECT stillpoint.end_backup('tool', {bookmark}) OFFSET 0) AS ended"
    ));
    assert_eq!(error.code(), &SqlState::DIVISION_BY_ZERO, "{error}");
    assert_eq!(locks(&mut scene), 1);
    end(&mut scene.session, "tool", &begun.bookmark);
}

#[test]
fn a_killed_session_or_a_crashed_server_ends_a_backup() {
    let mut scene = scene();
    let first = begin(&mut scene.session, "tool");
    end(&mut scene.session, "tool", &first.bookmark);
    let running = begin(&mut scene.session, "tool");
    scene.cluster.allow_log("terminating connection due to administrator command");
    let kill = format!("SELECT pg_terminate_backend({})", scene.session.pid());
    assert!(scene.observer.yes(&kill));
    wait_until(&mut scene.observer, "SELECT running_pid IS NULL FROM stillpoint.consumers");
    scene.session = scene.cluster.session(DATABASE);
    let running_again = begin(&mut scene.session, "tool");
    assert_eq!(running_again.base, running.base);

    scene.crash();
    let after = begin(&mut scene.session, "tool");
    assert_eq!((after.base.as_ref(), after.complete), (Some(&first.bookmark), true));
}

#[test]
fn consumers_do_not_stand_in_each_others_way() {
    let mut scene = scene();
    scene.session.exec("SELECT stillpoint.register_consumer('other')");
    let tool = begin(&mut scene.session, "tool");
    let other = begin(&mut scene.session, "other");
    end(&mut scene.session, "tool", &tool.bookmark);
    end(&mut scene.session, "other", &other.bookmark);
    assert_eq!(locks(&mut scene), 0);
}

#[test]
fn names_are_taken_once_and_given_back() {
    let mut scene = scene();
    let error = scene.refusal("SELECT stillpoint.register_consumer('tool')");
    assert_eq!(error.code(), &SqlState::DUPLICATE_OBJECT, "{error}");
    for name in ["''", "NULL"] {
        let error = scene.refusal(&format!("SELECT stillpoint.register_consumer({name})"));
        assert_eq!(error.code(), &SqlState::INVALID_PARAMETER_VALUE, "{error}");
    }
    for sql in [
        "SELECT stillpoint.begin_backup('nobody')",
        "SELECT stillpoint.drop_consumer('nobody')",
        "SELECT stillpoint.end_backup('nobody', '{}')",
    ] {
        let error = scene.refusal(sql);
        assert_eq!(error.code(), &SqlState::UNDEFINED_OBJECT, "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("register_consumer")), "{error:?}");
    }
    let begun = begin(&mut scene.session, "tool");
    end(&mut scene.session, "tool", &begun.bookmark);
    scene.session.exec("SELECT stillpoint.drop_consumer('tool')");
    assert_eq!(scene.observer.number("SELECT count(*) FROM stillpoint.bookmark"), 0);
    scene.session.exec("SELECT stillpoint.register_consumer('tool')");
    assert!(begin(&mut scene.session, "tool").base.is_none());
}
