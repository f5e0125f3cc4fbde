//! The tables beside the ledger itself: bookmarks, consumers, and since when there is a ledger.

use std::ffi::CStr;

use super::bookmark::Token;
use super::consumer::Consumer;
use super::error::Hindrance;
use crate::fence::catalog::{database, member_table};
use crate::fence::control::unique_name;
use crate::fence::transaction::{now, see_own_changes};
use crate::fence::{Failure, Hold, Lifetime, Marker, Place, Row, Snapshot, Table, Value};

/// An open table of the extension.
#[derive(Debug)]
struct OwnTable {
    oid: u32,
    table: Table,
    /// See `Ledger`.
    _snapshot: Snapshot,
}

impl OwnTable {
    fn open_for_writing(name: &'static CStr, shape: &[Value<'_>]) -> Result<Self, Failure> {
        Self::open(name, shape, Table::open_for_writing)
    }

    fn open_for_reading(name: &'static CStr, shape: &[Value<'_>]) -> Result<Self, Failure> {
        Self::open(name, shape, Table::open_for_reading)
    }

    fn open(
        name: &'static CStr,
        shape: &[Value<'_>],
        open: impl Fn(u32) -> Option<Table>,
    ) -> Result<Self, Failure> {
        let found = member_table(c"stillpoint", name, 0);
        let Some((oid, table)) = found.and_then(|oid| Some((oid, open(oid)?))) else {
            return Err(Hindrance::NoTable { name }.into());
        };
        if !table.is_permanent_heap() || !table.takes(shape) {
            return Err(Hindrance::OtherTable { name }.into());
        }
        Ok(Self { oid, table, _snapshot: Snapshot::latest() })
    }

    fn put(&self, row: &[Value<'_>]) {
        self.table.insert().row(row);
    }

    fn rows<T>(&self, read: impl Fn(&Row<'_>) -> T) -> Vec<(Place, T)> {
        let mut rows = Vec::new();
        // One function may write and read, and one statement call several functions.
        see_own_changes();
        self.table.each(&Snapshot::latest(), |place, row| rows.push((place, read(row))));
        rows
    }
}

/// The bookmarks that are valid.
#[derive(Debug)]
pub struct Bookmarks(OwnTable);

impl Bookmarks {
    const NAME: &CStr = c"bookmark";

    /// Opens the table for writing, when nobody else has anything to do with bookmarks: what is
    /// read then is the present until this transaction ends.
    pub fn in_line() -> Result<Self, Failure> {
        let table = OwnTable::open_for_writing(Self::NAME, &Token::SHAPE)?;
        let line = Marker { table: table.oid, number: 0, lifetime: Lifetime::Statement };
        line.wait_for_transaction(Hold::Alone);
        Ok(Self(table))
    }

    /// Opens the table for reading.
    pub fn open_for_reading() -> Result<Self, Failure> {
        OwnTable::open_for_reading(Self::NAME, &Token::SHAPE).map(Self)
    }

    /// Writes a bookmark.
    pub fn put(&self, token: &Token) {
        token.put(|row| self.0.put(row));
    }

    /// All that there are, those included that the database has got from its template.
    pub fn all(&self) -> Vec<(Place, Token)> {
        self.0.rows(Token::read)
    }

    /// The one with that name.
    pub fn find(&self, id: &str) -> Option<Token> {
        self.all().into_iter().map(|(_, token)| token).find(|token| token.id == id)
    }

    /// Takes one out; it is valid no more.
    pub fn delete(&self, place: Place, token: &Token) {
        self.0.table.delete(place, |row| Token::read(row).id == token.id);
    }
}

/// The backup tools.
#[derive(Debug)]
pub struct Consumers(OwnTable);

impl Consumers {
    const NAME: &CStr = c"consumer";

    /// Opens the table for writing. The caller is in line for bookmarks, which are never changed
    /// but together.
    pub fn open_for_writing(_: &Bookmarks) -> Result<Self, Failure> {
        OwnTable::open_for_writing(Self::NAME, &Consumer::SHAPE).map(Self)
    }

    /// The table's OID, under which locks mark running backups.
    pub const fn oid(&self) -> u32 {
        self.0.oid
    }

    /// All that there are.
    pub fn all(&self) -> Vec<(Place, Consumer)> {
        self.0.rows(Consumer::read)
    }

    /// The one of that name.
    pub fn find(&self, name: &str) -> Option<(Place, Consumer)> {
        self.all().into_iter().find(|(_, consumer)| consumer.name == name)
    }

    /// Writes a new one.
    pub fn put(&self, consumer: &Consumer) {
        self.0.put(&consumer.values());
    }

    /// Writes one anew.
    pub fn replace(&self, place: Place, consumer: &Consumer) {
        self.delete(place, consumer);
        self.put(consumer);
    }

    /// Takes one out.
    pub fn delete(&self, place: Place, consumer: &Consumer) {
        self.0.table.delete(place, |row| Consumer::read(row).number == consumer.number);
    }
}

/// Since when there is a ledger.
#[derive(Debug)]
pub struct Recordings(OwnTable);

/// A row of `stillpoint.recording`, in the order of its columns.
#[derive(Clone, Debug)]
pub struct Recording {
    /// In microseconds since 2000-01-01.
    since: i64,
    /// The ledger's name, under which no other is known, this database's later ones included.
    pub ledger: String,
    database: u32,
    /// The run in which the last bookmark was taken: a standby knows it by this.
    pub run: Option<String>,
}

impl Recording {
    const SHAPE: [Value<'static>; 4] = [
        Value::Timestamp(0),
        Value::OptionalText(None),
        Value::Oid(None),
        Value::OptionalText(None),
    ];

    fn read(row: &Row<'_>) -> Self {
        Self {
            since: row.timestamp(0),
            ledger: row.text(1),
            database: row.oid(2),
            run: (!row.is_null(3)).then(|| row.text(3)),
        }
    }

    fn values(&self) -> [Value<'_>; 4] {
        [
            Value::Timestamp(self.since),
            Value::Text(&self.ledger),
            Value::Oid(Some(self.database)),
            Value::OptionalText(self.run.as_deref()),
        ]
    }

    /// One that begins now.
    fn new() -> Self {
        Self { since: now(), ledger: unique_name(), database: database(), run: None }
    }
}

impl Recordings {
    const NAME: &CStr = c"recording";

    /// Opens the table for writing.
    pub fn open_for_writing() -> Result<Self, Failure> {
        OwnTable::open_for_writing(Self::NAME, &Recording::SHAPE).map(Self)
    }

    /// Notes that a ledger begins, for the installation script of this version or an older one.
    pub fn install() -> Result<(), Failure> {
        /// In 0.2.0 a ledger had no name.
        const OLD_SHAPE: [Value<'static>; 1] = [Value::Timestamp(0)];
        match OwnTable::open_for_writing(Self::NAME, &OLD_SHAPE) {
            Ok(table) => table.put(&[Value::Timestamp(now())]),
            Err(_) => Self::open_for_writing()?.0.put(&Recording::new().values()),
        }
        Ok(())
    }

    /// That of this database; none if all that is there has come with a template.
    pub fn present() -> Result<Option<Recording>, Failure> {
        let table = OwnTable::open_for_reading(Self::NAME, &Recording::SHAPE)?;
        Ok(Self(table).of_this_database().map(|(_, recording)| recording))
    }

    /// That of this database, in which a bookmark of that run is going to be taken. If all that is
    /// there has come with a template, it begins now. The caller is in line for bookmarks.
    pub fn present_or_new(&self, run: &str) -> Recording {
        let found = self.of_this_database();
        if let Some((_, recording)) = &found
            && recording.run.as_deref() == Some(run)
        {
            return recording.clone();
        }
        let mut recording = found.as_ref().map_or_else(Recording::new, |(_, it)| it.clone());
        recording.run = Some(run.to_owned());
        if let Some((place, old)) = found {
            self.0.table.delete(place, |row| Recording::read(row).ledger == old.ledger);
        }
        self.0.put(&recording.values());
        recording
    }

    fn of_this_database(&self) -> Option<(Place, Recording)> {
        let rows = self.0.rows(Recording::read);
        rows.into_iter().rfind(|(_, recording)| recording.database == database())
    }
}
