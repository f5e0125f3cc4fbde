//! The ledger of one database, as a backup tool reads it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::Session;

/// Reads a ledger for a consumer.
pub(super) struct Reader {
    session: Session,
    consumer: String,
    database: u32,
    base: Option<String>,
    bookmark: String,
    /// Whether the ledger tells all that has become void since `base`.
    is_complete: bool,
    /// Why not.
    gap: Option<String>,
    /// The first files of what is void since `base`.
    void: BTreeSet<PathBuf>,
}

impl Reader {
    #[track_caller]
    pub(super) fn new(mut session: Session, consumer: &str) -> Self {
        session.exec(&format!("SELECT stillpoint.register_consumer('{consumer}')"));
        let database = session
            .number("SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()");
        Self {
            session,
            consumer: consumer.to_owned(),
            database: u32::try_from(database).expect("an OID"),
            base: None,
            bookmark: String::new(),
            is_complete: false,
            gap: None,
            void: BTreeSet::new(),
        }
    }

    pub(super) fn database(&self) -> u32 {
        self.database
    }

    /// Whether the ledger tells all that has become void since the last backup.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Why it does not, as far as it has said so.
    pub(super) fn gap(&self) -> Option<&str> {
        self.gap.as_deref().filter(|_| !self.is_complete)
    }

    /// Whether it says that the bytes of the relation with this first file are void.
    pub(super) fn names(&self, first: &Path) -> bool {
        self.void.contains(first)
    }

    /// Takes the bookmark of a new backup.
    #[track_caller]
    pub(super) fn begin(&mut self) {
        let begin = format!(
            "SELECT base, bookmark, complete, reason FROM stillpoint.begin_backup('{}')",
            self.consumer
        );
        let mut rows = self.session.rows(&begin);
        let [base, bookmark, complete, reason] =
            <[_; 4]>::try_from(rows.swap_remove(0)).expect("four columns were asked for");
        self.gap = reason;
        self.is_complete = complete.as_deref() == Some("t");
        self.base = base;
        self.bookmark = bookmark.expect("there always is a new bookmark");
    }

    /// The first files of the relations that are there, but for mapped catalogs, whose files are
    /// not in `pg_class`.
    ///
    /// This is read after the bookmark and before the first file is copied. What was made in the
    /// meantime is committed by then: whatever becomes of it from now on is recorded.
    #[track_caller]
    pub(super) fn list(&mut self) -> Vec<PathBuf> {
        // pg_relation_filepath() reads the catalog as it is now, and not the query's snapshot.
        let paths = self.session.texts(
            "SELECT CASE f.tablespace WHEN 1663 THEN 'base' \
                    ELSE 'pg_tblspc/' || f.tablespace || '/PG_' || \
                         current_setting('server_version_num')::int / 10000 || '_' || \
                         (SELECT s.catalog_version_no FROM pg_catalog.pg_control_system() AS s) \
                    END || '/' || f.database || '/' || f.number \
               FROM (SELECT COALESCE(NULLIF(c.reltablespace, 0), d.dattablespace) AS tablespace, \
                            d.oid AS database, c.relfilenode AS number \
                       FROM pg_catalog.pg_class AS c \
                       JOIN pg_catalog.pg_database AS d ON d.datname = current_database() \
                      WHERE c.relfilenode <> 0 AND c.relpersistence = 'p') AS f",
        );
        paths.into_iter().map(PathBuf::from).collect()
    }

    /// Reads what is void since the last backup.
    #[track_caller]
    pub(super) fn read(&mut self) {
        let Some(base) = &self.base else { return };
        let since = format!("SELECT path FROM stillpoint.invalidated_since('{base}')");
        match self.session.client().simple_query(&since) {
            Ok(messages) => {
                let path = |message| match message {
                    postgres::SimpleQueryMessage::Row(row) => row.get(0).map(PathBuf::from),
                    _ => None,
                };
                self.void = messages.into_iter().filter_map(path).collect();
            }
            // It has a gap now, or had one in the first place.
            Err(error) => {
                let error = error.as_db_error().expect("the server answers");
                assert_eq!(error.hint(), Some("Take a full backup."), "{error}");
                self.is_complete = false;
                self.gap = Some(error.message().to_owned());
            }
        }
    }

    /// The backup is on the disk.
    #[track_caller]
    pub(super) fn end(&mut self) {
        let (consumer, bookmark) = (&self.consumer, &self.bookmark);
        self.session.exec(&format!("SELECT stillpoint.end_backup('{consumer}', '{bookmark}')"));
        self.void.clear();
    }
}
