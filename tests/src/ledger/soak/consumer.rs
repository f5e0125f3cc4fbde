//! A consumer that does in random order what a backup tool may do, and what it may not.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use postgres::Error;
use postgres::error::SqlState;
use postgres::types::Oid;

use super::Outcome;
use super::truth::{Around, File, Files, due, number};
use crate::random::Random;
use crate::session::describe;
use crate::wait::poll;
use crate::{Connector, DEADLINE, Session};

/// A moment that the ledger knows, and what was there then.
#[derive(Clone, Debug)]
struct Bookmark {
    text: String,
    around: Around,
    /// What the consumer was told up to it, from the bookmark before; none if there was none.
    told: Option<BTreeSet<File>>,
    /// Whether it has asked.
    has_read: bool,
}

/// A consumer, and what it must be told.
pub(super) struct Consumer {
    name: &'static str,
    connector: Connector,
    random: Random,
    /// None after the last one is lost.
    session: Option<Session>,
    /// That of the last backup that has ended.
    base: Option<Bookmark>,
    /// That of the backup that was begun last and is not known to have ended.
    begun: Option<Bookmark>,
    /// Whether the backup runs in the session.
    runs_here: bool,
    /// Whether somebody may have ended it.
    may_have_ended: bool,
}

impl Consumer {
    /// A consumer that the database gets to know.
    #[track_caller]
    pub(super) fn new(name: &'static str, connector: Connector, random: Random) -> Self {
        let mut session = connector.connect().expect("the server is up");
        session.exec(&format!("SELECT stillpoint.register_consumer('{name}')"));
        Self {
            name,
            connector,
            random,
            session: Some(session),
            base: None,
            begun: None,
            runs_here: false,
            may_have_ended: false,
        }
    }

    /// Does the next thing, in that life of the server (see [`Around`]). An error may say no more
    /// than that the session is lost.
    pub(super) fn step(&mut self, life: u32, outcome: &mut Outcome) -> Result<(), Error> {
        if self.session.is_none() {
            self.connect(outcome)?;
        }
        let choice = self.random.below(20);
        match &self.begun {
            // Whether it has ended is told by the next that is begun.
            Some(_) if self.may_have_ended => self.begin(life, outcome),
            None => match choice {
                0 | 1 => self.end_again(outcome),
                2 => self.run("SELECT stillpoint.prune()").map(drop),
                3 => {
                    self.leave();
                    Ok(())
                }
                _ => self.begin(life, outcome),
            },
            Some(begun) if !begun.has_read => self.read(outcome),
            Some(_) => match choice {
                0..=3 => self.read(outcome),
                4 | 5 => self.begin_beside(outcome),
                6 => self.run("SELECT stillpoint.prune()").map(drop),
                7 | 8 => self.get_killed(outcome),
                9 => self.end_while_killed(outcome),
                10 if !self.runs_here => self.begin(life, outcome),
                _ => self.end(outcome),
            },
        }
    }

    /// Has lost its session, in whatever it did.
    pub(super) fn leave(&mut self) {
        self.session = None;
        self.runs_here = false;
    }

    /// Connects, and waits until the last session has let go of its backup.
    fn connect(&mut self, outcome: &mut Outcome) -> Result<(), Error> {
        let mut session = self.connector.connect()?;
        let runs = format!(
            "SELECT FROM stillpoint.consumers WHERE name = '{}' AND running_pid IS NOT NULL",
            self.name
        );
        let ended = poll(DEADLINE, || match session.try_rows(&runs) {
            Ok(rows) => rows.is_empty().then_some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        match ended {
            Some(result) => result?,
            None => outcome.find(format!("{} runs on without its session", self.name)),
        }
        self.session = Some(session);
        Ok(())
    }

    fn run(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        self.session.as_mut().expect("a step begins with a session").try_rows(sql)
    }

    fn begin(&mut self, life: u32, outcome: &mut Outcome) -> Result<(), Error> {
        if !self.may_have_ended {
            // If it can be ended or not depends on whether this comes to its end.
            self.begun = None;
        }
        let session = self.session.as_mut().expect("a step begins with a session");
        let before = Files::read(session)?;
        let sql = format!(
            "SELECT base, bookmark, complete, reason FROM stillpoint.begin_backup('{}')",
            self.name
        );
        let row = session.try_rows(&sql)?.remove(0);
        self.runs_here = true;
        let after = Files::read(session)?;
        if self.may_have_ended && self.begun.as_ref().map(|begun| &begun.text) == row[0].as_ref() {
            self.base = self.begun.take();
            outcome.ended += 1;
        }
        self.may_have_ended = false;
        let base = self.base.as_ref();
        if base.map(|base| &base.text) != row[0].as_ref() {
            outcome.find(format!(
                "{} is told that its last backup is {:?}; it is {:?}",
                self.name,
                row[0],
                base.map(|base| &base.text)
            ));
        }
        if base.is_some() && row[2].as_deref() != Some("t") {
            outcome.find(format!("{} is told of a gap: {:?}", self.name, row[3]));
        }
        let text = row[1].clone().expect("there is a new bookmark");
        let around = Around { before, after, life };
        // Before the first backup nothing can be told.
        let has_read = self.base.is_none();
        self.begun = Some(Bookmark { text, around, told: None, has_read });
        outcome.begun += 1;
        Ok(())
    }

    /// Asks what is void, in both ways, and holds the answers against the catalogs.
    fn read(&mut self, outcome: &mut Outcome) -> Result<(), Error> {
        let (Some(base), Some(begun)) = (self.base.clone(), self.begun.clone()) else {
            return Ok(());
        };
        let between = format!("invalidated_between('{}', '{}')", base.text, begun.text);
        let since = format!("invalidated_since('{}')", base.text);
        let due = due(&base.around, &begun.around);
        let mut told = BTreeSet::new();
        for function in [since, between] {
            let rows =
                self.run(&format!("SELECT tablespace, filenode FROM stillpoint.{function}"))?;
            told = rows
                .into_iter()
                .map(|row| (number(row[0].as_deref()), number(row[1].as_deref())))
                .collect();
            // What went when the base was taken has been told then, or is told now.
            let before = base.told.as_ref();
            let late = due.or_before.iter().filter(|file| {
                before.is_some_and(|before| !before.contains(file)) && !told.contains(file)
            });
            let missed: Vec<&File> = due.surely.difference(&told).chain(late).collect();
            outcome.missed += missed.len() as u64;
            for file in missed {
                let found = self.about(*file, &base, &begun)?;
                outcome.find(format!("{}: {function} lacks {file:?}\n{found}", self.name));
            }
        }
        if !begun.has_read {
            outcome.changes += due.surely.len() as u64;
            outcome.told += told.len() as u64;
            outcome.surplus += told.iter().filter(|file| !due.surely.contains(file)).count() as u64;
        }
        self.begun = Some(Bookmark { told: Some(told), has_read: true, ..begun });
        Ok(())
    }

    /// What catalogs and ledger say about the relation with that file.
    fn about(&mut self, file: File, base: &Bookmark, begun: &Bookmark) -> Result<String, Error> {
        let looks = [&base.around, &begun.around].into_iter().flat_map(|around| {
            [&around.before, &around.after].map(|files| files.relation_with(file))
        });
        let looks: Vec<Option<Oid>> = looks.collect();
        let mut text = format!("it was that of {looks:?}");
        if let Some(relation) = looks.iter().flatten().next() {
            for row in self.run(&format!(
                "SELECT * FROM stillpoint.invalidation WHERE relation = {relation} ORDER BY xid"
            ))? {
                let row: Vec<&str> = row.iter().map(|it| it.as_deref().unwrap_or("NULL")).collect();
                let _ = write!(text, "\n  {}", row.join(" | "));
            }
            for row in self.run("SELECT bookmark, xid, seen, run FROM stillpoint.bookmark")? {
                let _ = write!(text, "\n  {row:?}");
            }
        }
        Ok(text)
    }

    fn end_of(&self, bookmark: &Bookmark) -> String {
        format!("SELECT stillpoint.end_backup('{}', '{}')", self.name, bookmark.text)
    }

    /// Ends the backup, in the session in which it was begun or in another one.
    fn end(&mut self, outcome: &mut Outcome) -> Result<(), Error> {
        let Some(begun) = self.begun.clone() else { return Ok(()) };
        self.may_have_ended = true;
        self.run(&self.end_of(&begun))?;
        self.may_have_ended = false;
        self.runs_here = false;
        self.base = self.begun.take();
        outcome.ended += 1;
        Ok(())
    }

    /// Ends the backup while somebody ends its session: it has ended or it has not.
    fn end_while_killed(&mut self, outcome: &mut Outcome) -> Result<(), Error> {
        let (Some(begun), Some(session)) = (self.begun.clone(), self.session.take()) else {
            return Ok(());
        };
        let mut killer = match self.connector.connect() {
            Ok(killer) => killer,
            Err(error) => {
                self.leave();
                return Err(error);
            }
        };
        self.may_have_ended = true;
        self.leave();
        let ending = session.start(&self.end_of(&begun));
        outcome.kills += 1;
        killer.try_rows(&format!("SELECT pg_terminate_backend({})", ending.pid()))?;
        let (session, _) = ending.result();
        drop(session);
        Ok(())
    }

    /// Somebody ends the session; what it has begun may be ended in another one.
    fn get_killed(&mut self, outcome: &mut Outcome) -> Result<(), Error> {
        let pid = self.session.as_ref().map_or(0, Session::pid);
        outcome.kills += 1;
        let killer = self.connector.connect();
        self.leave();
        killer?.try_rows(&format!("SELECT pg_terminate_backend({pid})")).map(drop)
    }

    /// Ends the last backup once more, which must be refused.
    fn end_again(&mut self, outcome: &mut Outcome) -> Result<(), Error> {
        let Some(base) = self.base.clone() else { return Ok(()) };
        let refused = self.run(&self.end_of(&base));
        must_be_refused(refused, &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, outcome)
    }

    /// Begins another backup while this one runs, here or in another session, which must be
    /// refused.
    fn begin_beside(&mut self, outcome: &mut Outcome) -> Result<(), Error> {
        if !self.runs_here {
            return Ok(());
        }
        let begin = format!("SELECT stillpoint.begin_backup('{}')", self.name);
        let refused = if self.random.below(2) == 0 {
            self.run(&begin)
        } else {
            let begun_beside = self.connector.connect()?.try_rows(&begin);
            if begun_beside.is_ok() {
                // As it may if this session is gone; then the backup is given up.
                self.begun = None;
                self.run("SELECT")?;
            }
            begun_beside
        };
        must_be_refused(refused, &SqlState::OBJECT_IN_USE, outcome)
    }
}

fn must_be_refused<T>(
    result: Result<T, Error>,
    state: &SqlState,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    match result {
        Err(error) if error.code() == Some(state) => {
            outcome.refused += 1;
            Ok(())
        }
        Err(error) => Err(error),
        Ok(_) => {
            outcome.find(format!("a backup was begun or ended that had to be refused ({state:?})"));
            Ok(())
        }
    }
}

/// Whether the error says no more than that the session is lost, or cannot be had just now.
pub(super) fn is_lost(error: &Error) -> bool {
    let starting_or_ending = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::CONNECTION_FAILURE,
    ];
    match error.as_db_error() {
        None => true,
        // A session that waits for the checkpointer while it commits (RegisterSyncRequest() in
        // sync.c) ends there when the server's first process was killed, and then finds that it
        // cannot abort what is committed.
        Some(error) if error.severity() == "PANIC" => {
            error.message().starts_with("cannot abort transaction")
        }
        Some(error) => starting_or_ending.contains(error.code()),
    }
}

/// What an error says that is a finding.
pub(super) fn words(error: &Error) -> String {
    describe(error)
}
