//! Logical replication: what a subscriber truncates is recorded there, and what the ledger holds
//! is never published.

use postgres::error::SqlState;
use stillpoint_tests::{Cluster, ClusterOptions, Session, wait_until};

use crate::{DATABASE, Scene, T, whole};

/// A recording cluster that can publish.
fn publisher(setup: &str) -> Scene {
    Scene::with(ClusterOptions::default().setting("wal_level = logical"), setup)
}

/// Waits until the subscriber has done everything that the publisher has committed until now.
#[track_caller]
fn catch_up(publisher: &mut Scene) {
    let now = publisher.observer.text("SELECT pg_current_wal_insert_lsn()");
    wait_until(
        &mut publisher.observer,
        &format!(
            "SELECT count(*) > 0 AND bool_and(replay_lsn >= '{now}') FROM pg_stat_replication
              WHERE application_name = 'sub'"
        ),
    );
}

/// Subscribes to the publication `everything` of the publisher.
#[track_caller]
fn subscribe(publisher: &Scene, subscriber: &Cluster) {
    let source = publisher.cluster.connection_string(DATABASE);
    subscriber.allow_log("terminating logical replication worker due to administrator command");
    let mut session = subscriber.session(DATABASE);
    session.exec(&format!("CREATE SUBSCRIPTION sub CONNECTION '{source}' PUBLICATION everything"));
    wait_until(
        &mut session,
        "SELECT bool_and(srsubstate = 'r') AND count(*) > 0 FROM pg_subscription_rel",
    );
}

#[test]
fn a_truncation_that_a_subscriber_applies_is_recorded_there() {
    let mut publisher = publisher(T);
    publisher.session.exec("CREATE PUBLICATION everything FOR TABLE t");
    let mut subscriber = Scene::new("CREATE TABLE t (id int PRIMARY KEY, word text)");
    subscribe(&publisher, &subscriber.cluster);
    assert_eq!(subscriber.observer.number("SELECT count(*) FROM t"), 100);
    let watch = subscriber.watch();
    publisher.session.exec("TRUNCATE t");
    catch_up(&mut publisher);
    assert_eq!(subscriber.observer.number("SELECT count(*) FROM t"), 0);
    assert_eq!(watch.told(&mut subscriber.observer), whole("replaced", "t", "nothing"));
    subscriber.session.exec("DROP SUBSCRIPTION sub");
}

#[test]
fn a_publication_of_all_tables_never_holds_the_ledger() {
    let mut publisher = publisher(T);
    publisher.session.exec("CREATE TABLE a (id int PRIMARY KEY)");
    publisher.session.exec("CREATE PUBLICATION everything FOR ALL TABLES");
    // This one does not have the extension: a row of the ledger would stop its worker.
    let subscriber = Cluster::start();
    let mut session = subscriber.session(DATABASE);
    session.exec(
        "CREATE TABLE t (id int PRIMARY KEY, word text); CREATE TABLE a (id int PRIMARY KEY)",
    );
    // The publication lists the ledger; a subscriber that copies tables must have them all.
    session.exec(
        "CREATE SCHEMA stillpoint;
         CREATE TABLE stillpoint.invalidation (
             xid xid8, finished_xid xid8, lsn pg_lsn, recorded_at timestamptz, database oid,
             tablespace oid, filenode oid, replaced_by oid, relation oid, relation_name text,
             relation_kind \"char\", command text, effect text, rows_kept bool);
         CREATE TABLE stillpoint.recording (
             since timestamptz, ledger text, database oid, run text);
         CREATE TABLE stillpoint.bookmark (
             id text, bookmark text, database oid, taken_at timestamptz, xid xid8, seen text,
             run text, consumer text);
         CREATE TABLE stillpoint.consumer (
             number oid, name text, registered_at timestamptz, base text,
             backed_up_at timestamptz, begun text, lost bool)",
    );
    subscribe(&publisher, &subscriber);
    let copied = session.number("SELECT count(*) FROM stillpoint.invalidation");

    // Rows are written, completed and deleted; orphans are closed.
    for statement in [
        "TRUNCATE t",
        "BEGIN; TRUNCATE t; SAVEPOINT s; CLUSTER t USING t_pkey; ROLLBACK TO s; COMMIT",
        "VACUUM t",
        "VACUUM FULL t",
        "REINDEX TABLE CONCURRENTLY t",
        "ALTER TABLE t ALTER word TYPE varchar",
        "CLUSTER t USING t_pkey",
        "SELECT stillpoint.register_consumer('tool')",
        "SELECT stillpoint.bookmark()",
        "SELECT stillpoint.end_backup('tool', bookmark) FROM stillpoint.begin_backup('tool')",
        "SELECT stillpoint.prune()",
        "SELECT stillpoint.drop_consumer('tool')",
    ] {
        publisher.session.exec(statement);
    }
    publisher.session.exec("INSERT INTO t VALUES (1, 'after'); INSERT INTO a VALUES (7)");
    catch_up(&mut publisher);
    assert_eq!(session.text("SELECT word FROM t WHERE id = 1"), "after");
    assert_eq!(session.number("SELECT id FROM a"), 7);
    assert_eq!(session.number("SELECT count(*) FROM stillpoint.invalidation"), copied);
    session.exec("DROP SUBSCRIPTION sub");
}

#[test]
fn no_row_of_the_ledger_is_decoded() {
    let mut scene = publisher(T);
    let slot = "SELECT pg_create_logical_replication_slot('slot', 'test_decoding')";
    let _ = scene.observer.rows(slot);
    // Decoded is what has been flushed.
    scene.session.exec("SET synchronous_commit = on");
    for statement in ["TRUNCATE t", "VACUUM t", "VACUUM FULL t", "INSERT INTO t VALUES (1, 'x')"] {
        scene.session.exec(statement);
    }
    let changes =
        scene.observer.texts("SELECT data FROM pg_logical_slot_get_changes('slot', NULL, NULL)");
    assert!(changes.iter().any(|change| change.contains("public.t: INSERT")), "{changes:?}");
    // A deletion is seen, and not of what: pgoutput sends none without a key.
    let of_the_ledger = |change: &&String| change.contains("stillpoint");
    for change in changes.iter().filter(of_the_ledger) {
        assert!(change.ends_with("DELETE: (no-tuple-data)"), "{change}");
    }
    let _ = scene.observer.rows("SELECT pg_drop_replication_slot('slot')");
}

/// A publication of all tables, and a slot that a subscriber of it would have.
#[track_caller]
fn publish_everything(session: &mut Session) {
    session.exec("CREATE PUBLICATION everything FOR ALL TABLES");
    let _ = session.rows("SELECT pg_create_logical_replication_slot('slot', 'pgoutput')");
}

/// What a subscriber of the publication would be sent by now, but for the frames of transactions:
/// each message with its letter first.
#[track_caller]
fn sent(session: &mut Session) -> Vec<String> {
    session.texts(
        "SELECT chr(get_byte(data, 0)) || ' ' || encode(data, 'escape')
           FROM pg_logical_slot_get_binary_changes(
                    'slot', NULL, NULL, 'proto_version', '1', 'publication_names', 'everything')
          WHERE chr(get_byte(data, 0)) NOT IN ('B', 'C')",
    )
}

/// The subscriber hears of `t`, and has heard of nothing else.
#[track_caller]
fn assert_sent_nothing(session: &mut Session) {
    session.exec("INSERT INTO t VALUES (-1, 'heard')");
    let messages = sent(session);
    assert!(messages.iter().any(|message| message.contains("heard")), "{messages:?}");
    // The relation that is described, and the row.
    let kinds: Vec<_> = messages.iter().map(|message| &message[..1]).collect();
    assert_eq!(kinds, ["R", "I"], "{messages:?}");
    session.exec("DELETE FROM t WHERE id = -1");
    let _ = sent(session);
}

#[test]
fn installing_and_updating_send_nothing_to_a_subscriber_of_all_tables() {
    let options = ClusterOptions::default()
        .preload()
        .setting("wal_level = logical")
        .setting("synchronous_commit = on");
    let cluster = options.start();
    let mut session = cluster.session(DATABASE);
    session.exec(T);
    publish_everything(&mut session);
    for statement in [
        "CREATE EXTENSION stillpoint",
        "DROP EXTENSION stillpoint; CREATE EXTENSION stillpoint VERSION '0.1.0'",
        "ALTER EXTENSION stillpoint UPDATE",
        "DROP EXTENSION stillpoint",
    ] {
        session.exec(statement);
        assert_sent_nothing(&mut session);
    }
    let _ = session.rows("SELECT pg_drop_replication_slot('slot')");
}

#[test]
fn pruning_sends_nothing_to_a_subscriber_of_all_tables() {
    let mut scene = publisher(T);
    scene.session.exec("SET synchronous_commit = on; TRUNCATE t");
    scene.session.exec("VACUUM t");
    scene
        .session
        .exec("UPDATE stillpoint.invalidation SET recorded_at = recorded_at - interval '1 year'");
    publish_everything(&mut scene.session);
    // The other way is refused there.
    let error = scene.refusal("DELETE FROM stillpoint.invalidation");
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
    assert_eq!(scene.session.number("SELECT stillpoint.prune()"), 8);
    assert_sent_nothing(&mut scene.session);
    assert_eq!(scene.observer.number("SELECT count(*) FROM stillpoint.invalidation"), 0);
    let _ = scene.session.rows("SELECT pg_drop_replication_slot('slot')");
}
