//! What is told, for people, for programs, and as paths alone.

use std::path::PathBuf;
use std::process;

use serde::Serialize;

use super::served::is_done;
use super::table::{columns, pairs, time};
use crate::exit::ExitStatus;
use crate::server::{Begun, Consumer, Ledger, Status, VoidFile};

/// An answer of the ledger.
#[derive(Clone, Debug)]
pub struct Answer {
    database: String,
    told: Told,
}

/// What was done or asked.
#[derive(Clone, Debug)]
pub enum Told {
    /// Whether it records.
    Status(Status),
    /// A new bookmark.
    Bookmark(String),
    /// What is void.
    Void(Void),
    /// The backup tools.
    Consumers(Vec<Consumer>),
    /// One is known.
    Registered {
        /// Its name.
        consumer: String,
    },
    /// Its backup has begun.
    Begun {
        /// Its name.
        consumer: String,
        /// What to do now.
        begun: Begun,
    },
    /// A command has run while its backup lasted.
    Ran(Ran),
    /// Its backup has ended.
    Ended {
        /// Its name.
        consumer: String,
    },
    /// It is forgotten.
    Dropped {
        /// Its name.
        consumer: String,
    },
    /// Rows were removed.
    Pruned {
        /// How many.
        rows: i64,
    },
}

/// Files that are void.
#[derive(Clone, Debug)]
pub struct Void {
    /// Whose last backup the base is.
    pub consumer: Option<String>,
    /// Since when.
    pub base: String,
    /// Until when.
    pub upto: Option<String>,
    /// The files, in the order of their paths.
    pub files: Vec<VoidFile>,
    /// Of each, what is there of it; only if that was asked for.
    pub segments: Option<Vec<Vec<String>>>,
}

/// A command of the user's that has run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// For whom a backup had begun.
    pub consumer: String,
    /// The command.
    pub program: PathBuf,
    /// How it has ended.
    pub status: process::ExitStatus,
    /// The signal by which it was told to.
    pub signal: Option<i32>,
}

/// The answer as JSON. Keys are never taken away, and have a value or `null`.
#[derive(Serialize)]
struct Json<'a> {
    command: &'static str,
    database: &'a str,
    #[serde(flatten)]
    body: Body<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Status(&'a Status),
    Bookmark {
        bookmark: &'a str,
    },
    Void {
        consumer: Option<&'a str>,
        base: &'a str,
        upto: Option<&'a str>,
        files: Vec<File<'a>>,
    },
    Consumers {
        consumers: &'a [Consumer],
    },
    Begun {
        consumer: &'a str,
        #[serde(flatten)]
        begun: &'a Begun,
    },
    Consumer {
        consumer: &'a str,
    },
    Pruned {
        rows_removed: i64,
    },
}

#[derive(Serialize)]
struct File<'a> {
    #[serde(flatten)]
    file: &'a VoidFile,
    segments: Option<&'a [String]>,
}

impl Answer {
    pub(super) fn new(ledger: &Ledger, told: Told) -> Self {
        Self { database: ledger.place().database.clone(), told }
    }

    /// The exit code that goes with it: a command's that has run, or success.
    #[must_use]
    pub fn exit_status(&self) -> ExitStatus {
        match &self.told {
            Told::Ran(Ran { signal: Some(signal), .. }) => {
                ExitStatus::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX))
            }
            Told::Ran(Ran { status, .. }) => ExitStatus::of(*status),
            _ => ExitStatus::Done,
        }
    }

    /// The answer as one JSON object; nothing after a command, to which standard output belongs.
    ///
    /// # Errors
    ///
    /// None that is known; the signature is the serializer's.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let (command, body) = match &self.told {
            Told::Status(status) => ("ledger status", Body::Status(status)),
            Told::Bookmark(bookmark) => ("ledger bookmark", Body::Bookmark { bookmark }),
            Told::Void(void) => ("ledger since", void.body()),
            Told::Consumers(consumers) => ("ledger consumers", Body::Consumers { consumers }),
            Told::Registered { consumer } => ("ledger register", Body::Consumer { consumer }),
            Told::Begun { consumer, begun } => ("ledger begin", Body::Begun { consumer, begun }),
            Told::Ran(_) => return Ok(String::new()),
            Told::Ended { consumer } => ("ledger end", Body::Consumer { consumer }),
            Told::Dropped { consumer } => ("ledger drop", Body::Consumer { consumer }),
            Told::Pruned { rows } => ("ledger prune", Body::Pruned { rows_removed: *rows }),
        };
        let mut text = serde_json::to_string(&Json { command, database: &self.database, body })?;
        text.push('\n');
        Ok(text)
    }

    /// The answer for people. Nothing where the summary tells it all.
    #[must_use]
    pub fn to_text(&self) -> String {
        match &self.told {
            Told::Status(status) => pairs([
                ("preloaded", yes(status.preloaded)),
                ("recording", yes(status.recording)),
                ("complete since", optional(status.complete_since.as_deref().map(time))),
                ("rows", status.rows.to_string()),
                ("bytes", status.bytes.to_string()),
                ("oldest bookmark", optional(status.oldest_bookmark.clone())),
            ]),
            // Alone, for $(...).
            Told::Bookmark(bookmark) => format!("{bookmark}\n"),
            Told::Void(void) => void.to_text(),
            Told::Consumers(consumers) => columns(
                ["NAME", "REGISTERED", "LAST BACKUP", "LOST", "RUNNING PID"],
                &consumers.iter().map(line_of_consumer).collect::<Vec<_>>(),
            ),
            Told::Begun { begun, .. } => pairs([
                ("base", optional(begun.base.clone())),
                ("bookmark", begun.bookmark.clone()),
                ("complete", yes(begun.complete)),
                ("reason", optional(begun.reason.clone())),
            ]),
            Told::Pruned { rows } => pairs([("rows removed", rows.to_string())]),
            Told::Registered { .. } | Told::Ran(_) | Told::Ended { .. } | Told::Dropped { .. } => {
                String::new()
            }
        }
    }

    /// Paths of files that are void, each followed by `end`: those that are there, if that was
    /// asked for. Nothing of another answer.
    #[must_use]
    pub fn to_paths(&self, end: char) -> String {
        let Told::Void(Void { files, segments, .. }) = &self.told else { return String::new() };
        let paths: Vec<&String> = match segments {
            Some(segments) => segments.iter().flatten().collect(),
            None => files.iter().map(|file| &file.path).collect(),
        };
        paths.into_iter().flat_map(|path| path.chars().chain([end])).collect()
    }

    /// Logs the line that ends the run.
    pub fn log_summary(&self) {
        let summary = self.summary();
        match &self.told {
            Told::Ran(ran) if !is_done(ran.status, ran.signal) => tracing::error!("{summary}"),
            _ => tracing::info!("{summary}"),
        }
    }

    fn summary(&self) -> String {
        let database = &self.database;
        match &self.told {
            Told::Status(Status { recording: false, .. }) => {
                format!("the ledger of database \"{database}\" does not record")
            }
            Told::Status(Status { rows, complete_since, .. }) => {
                let since = complete_since.as_ref().map_or_else(
                    || "not complete".to_owned(),
                    |since| format!("complete since {}", time(since)),
                );
                format!("the ledger of database \"{database}\" records: {rows} rows, {since}")
            }
            Told::Bookmark(_) => format!("took a bookmark in database \"{database}\""),
            Told::Void(Void { files, segments, .. }) => {
                let there = segments.as_ref().map(|segments| {
                    let files = segments.iter().flatten().count();
                    format!("; of these, {} there", are(files, "file"))
                });
                let (paths, there) = (are(files.len(), "path"), there.unwrap_or_default());
                format!("{paths} void in database \"{database}\"{there}")
            }
            Told::Consumers(consumers) => {
                let consumers = are(consumers.len(), "consumer");
                format!("{consumers} known in database \"{database}\"")
            }
            Told::Registered { consumer } => {
                format!("registered consumer \"{consumer}\" in database \"{database}\"")
            }
            Told::Begun { consumer, .. } => {
                format!("began a backup of consumer \"{consumer}\" in database \"{database}\"")
            }
            Told::Ran(Ran { consumer, signal: Some(signal), .. }) => {
                format!(
                    "interrupted by signal {signal}; the backup of consumer \"{consumer}\" is not \
                     ended"
                )
            }
            Told::Ran(Ran { consumer, program, status, .. }) if !status.success() => format!(
                "\"{}\" failed: {status}; the backup of consumer \"{consumer}\" is not ended",
                program.display()
            ),
            Told::Ran(Ran { consumer, .. }) | Told::Ended { consumer } => {
                format!("ended the backup of consumer \"{consumer}\" in database \"{database}\"")
            }
            Told::Dropped { consumer } => {
                format!("dropped consumer \"{consumer}\" in database \"{database}\"")
            }
            Told::Pruned { rows } => {
                format!("pruned the ledger of database \"{database}\": {rows} rows removed")
            }
        }
    }
}

impl Void {
    fn body(&self) -> Body<'_> {
        let segments_of = |index| self.segments.as_ref().and_then(|all| all.get(index));
        let files = self.files.iter().enumerate();
        Body::Void {
            consumer: self.consumer.as_deref(),
            base: &self.base,
            upto: self.upto.as_deref(),
            files: files
                .map(|(index, file)| File { file, segments: segments_of(index).map(Vec::as_slice) })
                .collect(),
        }
    }

    fn to_text(&self) -> String {
        let mut lines = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            lines.push([
                file.path.clone(),
                file.relation_name.clone(),
                file.effects.join(", "),
                file.commands.join(", "),
                time(&file.last_at),
            ]);
            let segments = self.segments.as_ref().and_then(|all| all.get(index));
            for path in segments.into_iter().flatten() {
                let mut line: [String; 5] = Default::default();
                line[0] = format!("  {path}");
                lines.push(line);
            }
        }
        columns(["PATH", "RELATION", "EFFECTS", "COMMANDS", "LAST AT"], &lines)
    }
}

fn line_of_consumer(consumer: &Consumer) -> [String; 5] {
    [
        consumer.name.clone(),
        time(&consumer.registered_at),
        optional(consumer.last_backup_at.as_deref().map(time)),
        yes(consumer.lost),
        consumer.running_pid.map(|pid| pid.to_string()).unwrap_or_default(),
    ]
}

fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

fn optional(value: Option<String>) -> String {
    value.unwrap_or_else(|| "none".to_owned())
}

/// `1 path is`, `2 paths are`.
fn are(count: usize, thing: &str) -> String {
    if count == 1 { format!("1 {thing} is") } else { format!("{count} {thing}s are") }
}
