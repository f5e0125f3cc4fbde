//! What is given as a bookmark and is none.

use postgres::error::SqlState;

use crate::{FORGOTTEN, Scene, TOOL, assert_unusable, between, since, take_bookmark};

/// The bookmark with another value of a key.
fn with(bookmark: &str, key: &str, value: serde_json::Value) -> String {
    let mut object: serde_json::Value = serde_json::from_str(bookmark).expect("JSON");
    object[key] = value;
    object.to_string()
}

/// The questions in which a text stands for a bookmark.
fn questions(text: &str, good: &str) -> [String; 4] {
    [
        since(text),
        between(text, good),
        between(good, text),
        format!("SELECT stillpoint.end_backup('{TOOL}', '{text}')"),
    ]
}

#[test]
fn what_is_no_bookmark_is_refused_and_nothing_is_void_is_never_the_answer() {
    let mut scene = Scene::new();
    let base = scene.base();
    let good = &base.bookmark;
    let array = format!("[{good}]");
    let twice = format!("{good}{good}");
    let without_id = with(good, "id", serde_json::Value::Null);
    let number = with(good, "database", "postgres".into());
    let cut = &good[..good.len() - 1];
    for text in [
        "",
        " ",
        "x",
        "0",
        "null",
        "{}",
        "[]",
        "\"\"",
        "{\"version\":1}",
        "{\"version\":\"1\"}",
        "{\"version\":-1}",
        "{\"version\":1e99}",
        "0/16B3748",
        cut,
        &array,
        &twice,
        &without_id,
        &number,
    ] {
        for question in questions(text, good) {
            let error = scene.refusal(&question);
            assert_eq!(error.code(), &SqlState::INVALID_PARAMETER_VALUE, "{question}: {error:?}");
            assert_eq!(error.message(), "this is not a bookmark of the ledger", "{question}");
            assert!(
                error.hint().is_some_and(|it| it.contains("stillpoint.bookmark()")),
                "{error:?}"
            );
        }
    }
    scene.assert_whole(&base);
}

#[test]
fn null_is_no_bookmark() {
    let mut scene = Scene::new();
    let base = scene.base();
    for question in questions("x", &base.bookmark) {
        let error = scene.refusal(&question.replace("'x'", "NULL"));
        assert_eq!(error.code(), &SqlState::INVALID_PARAMETER_VALUE, "{question}: {error:?}");
    }
    scene.assert_whole(&base);
}

#[test]
fn a_bookmark_of_a_later_format_is_refused_by_its_number() {
    let mut scene = Scene::new();
    let base = scene.base();
    for later in [with(&base.bookmark, "version", 2.into()), "{\"version\":17}".to_owned()] {
        for question in questions(&later, &base.bookmark) {
            let error = scene.refusal(&question);
            assert_eq!(error.code(), &SqlState::FEATURE_NOT_SUPPORTED, "{question}: {error:?}");
            assert_eq!(error.hint(), Some("Update the extension."), "{question}");
            let says_which =
                ["format 2,", "format 17,"].iter().any(|it| error.message().contains(it));
            assert!(says_which, "{question}: {error:?}");
        }
    }
    scene.assert_whole(&base);
}

#[test]
fn what_a_later_version_adds_to_this_format_is_no_reason_to_refuse() {
    let mut scene = Scene::new();
    let base = scene.base();
    let more = with(&base.bookmark, "more", "x".into());
    scene.assert_whole(&crate::Base { bookmark: more, ..base });
}

#[test]
fn a_bookmark_that_somebody_has_made_up_is_not_known() {
    let mut scene = Scene::new();
    let base = scene.base();
    for (key, value, message) in [
        ("id", "0123456789abcdef0123456789abcdef", FORGOTTEN),
        ("id", "", FORGOTTEN),
        ("ledger", "x", "the extension has been created anew since the bookmark was taken"),
        ("system_identifier", "1", "the bookmark was taken in another cluster"),
    ] {
        let forged = with(&base.bookmark, key, value.into());
        let [since, base, upto, end] = questions(&forged, &base.bookmark);
        for question in [since, base, upto] {
            assert_unusable(&scene.refusal(&question), message);
        }
        let error = scene.refusal(&end);
        assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error:?}");
    }
    // Where the WAL was is said for the sake of the message alone.
    let lost = with(&base.bookmark, "id", "x".into());
    for (lsn, message) in [
        ("FFFFFFFF/FFFFFFFF", "the bookmark is from a time that this cluster has not had"),
        ("x", FORGOTTEN),
        ("1/2/3", FORGOTTEN),
        ("", FORGOTTEN),
    ] {
        assert_unusable(&scene.refusal(&since(&with(&lost, "lsn", lsn.into()))), message);
    }
    scene.assert_whole(&base);
}

#[test]
fn a_bookmark_whose_transaction_crashed_is_not_known() {
    let mut scene = Scene::new();
    let base = scene.base();
    // It is told to nobody before it is committed; here somebody looks at a rolled back one.
    scene.session.exec("CREATE TABLE told (bookmark text)");
    let error = scene.refusal("BEGIN; SELECT stillpoint.bookmark()");
    assert_eq!(error.code(), &SqlState::ACTIVE_SQL_TRANSACTION, "{error:?}");
    scene.session.exec("ROLLBACK");
    let later = take_bookmark(&mut scene.session);
    let error = scene.refusal(&between(&later, &base.bookmark));
    assert_eq!(error.code(), &SqlState::INVALID_PARAMETER_VALUE, "{error:?}");
    assert_eq!(error.message(), "the second bookmark is older than the first");
    assert!(error.hint().is_some(), "{error:?}");
    scene.assert_whole(&base);
}
