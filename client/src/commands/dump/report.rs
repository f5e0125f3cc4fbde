//! What happened, kept while it happens: the report is there even when the dump is not.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use stillpoint_check::Oid;
use time::OffsetDateTime;

use super::snapshot::Connected;
use super::{Error, Options, Timings, seconds_since};
use crate::exit::ExitStatus;
use crate::manifest::{
    self, Attempt, AttemptOutcome, Change, CheckMethod, FORMAT_VERSION, Gate, LeftOut, Summary,
};
use crate::server::SnapshotId;

/// How the dump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The archive is there and whole.
    Complete,
    /// The archive is there; what is missing is named.
    Incomplete,
    /// There is no archive.
    Failed,
}

/// What `--report` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    command: &'static str,
    outcome: Outcome,
    archive: Option<String>,
    error: Option<String>,
    #[serde(flatten)]
    summary: Summary,
}

/// An attempt that is being made.
pub struct Tried {
    pub snapshot: String,
    pub started_at: OffsetDateTime,
    pub timings: Timings,
    start: Instant,
}

impl Tried {
    pub fn begin() -> Self {
        Self {
            snapshot: String::new(),
            started_at: OffsetDateTime::now_utc(),
            timings: Timings::default(),
            start: Instant::now(),
        }
    }
}

/// Keeps what is known so far.
pub struct Recorder {
    pub summary: Summary,
    directory: PathBuf,
}

impl Recorder {
    pub fn new(options: &Options) -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            directory: options.directory.clone(),
            summary: Summary {
                format_version: FORMAT_VERSION,
                tool: format!("stillpoint {}", env!("CARGO_PKG_VERSION")),
                server_version: String::new(),
                system_identifier: None,
                database: String::new(),
                snapshot: String::new(),
                bookmark: None,
                started_at: now,
                finished_at: now,
                attempts: Vec::new(),
                check_method: CheckMethod::Plain,
                gate: Gate::Never,
                complete: false,
                codec: options.compression.codec(),
                left_out: Vec::new(),
                ddl_changed: Vec::new(),
            },
        }
    }

    pub fn connected(&mut self, connected: &Connected) {
        self.summary.server_version = connected.session.version().to_string();
        self.summary.system_identifier.clone_from(&connected.identity.system_identifier);
        self.summary.database.clone_from(&connected.identity.database);
        self.summary.check_method = connected.check;
    }

    pub fn snapshot(&mut self, snapshot: &SnapshotId) {
        self.summary.snapshot = snapshot.to_string();
    }

    pub fn attempt(&mut self, tried: Tried, outcome: AttemptOutcome, changes: Vec<Change>) {
        let Timings { resolve, ddl, lock, check, export, recheck } = tried.timings;
        self.summary.attempts.push(Attempt {
            snapshot: tried.snapshot,
            started_at: tried.started_at,
            seconds: seconds_since(tried.start),
            changes,
            outcome,
            timings: manifest::Timings {
                resolve: resolve.as_secs_f64(),
                ddl: ddl.as_secs_f64(),
                lock: lock.as_secs_f64(),
                check: check.as_secs_f64(),
                export: export.as_secs_f64(),
                recheck: recheck.as_secs_f64(),
            },
        });
    }

    /// Notes whose data is not in the archive. The set decides, and not what was told of the
    /// changes: a dump that leaves anything out must never say that it is whole.
    pub fn left_out(&mut self, relations: &HashSet<Oid>) {
        let changes = self.summary.attempts.last().map(|attempt| attempt.changes.as_slice());
        self.summary.left_out = changes
            .unwrap_or_default()
            .iter()
            .filter(|change| relations.contains(&change.relation))
            .map(|change| LeftOut {
                schema: change.schema.clone(),
                relation: change.name.clone(),
                reasons: change.reasons.clone(),
                ancestors: change.ancestors.clone(),
            })
            .collect();
        self.summary.complete = relations.is_empty();
    }

    pub fn report(self, result: Result<&ExitStatus, &Error>) -> Report {
        let outcome = match result {
            Ok(ExitStatus::Done) => Outcome::Complete,
            Ok(_) => Outcome::Incomplete,
            Err(_) => Outcome::Failed,
        };
        let mut summary = self.summary;
        if outcome == Outcome::Failed {
            summary.finished_at = OffsetDateTime::now_utc();
            summary.complete = false;
        }
        Report {
            command: "dump",
            outcome,
            // A name that is not UTF-8 is no reason to fail: the archive is there by now.
            archive: (outcome != Outcome::Failed)
                .then(|| self.directory.to_string_lossy().into_owned()),
            error: result.err().map(ToString::to_string),
            summary,
        }
    }
}

/// What follows a relation's reasons in a message if it is a partition or child.
pub fn below(ancestors: &[String]) -> String {
    if ancestors.is_empty() { String::new() } else { format!(", below {}", ancestors.join(", ")) }
}

impl Report {
    /// The report as one JSON object.
    ///
    /// # Errors
    ///
    /// None that is known; the signature is the serializer's.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The report for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let summary = &self.summary;
        let mut text = String::new();
        let outcome = match self.outcome {
            Outcome::Complete => "complete",
            Outcome::Incomplete => "not whole",
            Outcome::Failed => "failed",
        };
        // Writing to a String cannot fail.
        if summary.database.is_empty() {
            // It has failed before anything was connected.
            let _ = writeln!(text, "dump: {outcome}");
        } else {
            let _ = writeln!(text, "dump of database \"{}\": {outcome}", summary.database);
        }
        if let Some(archive) = &self.archive {
            let _ = writeln!(text, "archive:  {archive}");
        }
        let check = match summary.check_method {
            CheckMethod::Extension => "by the extension",
            _ => "by plain SQL over a second connection",
        };
        if !summary.server_version.is_empty() {
            let _ = writeln!(text, "checked:  {check}");
        }
        for (number, attempt) in (1..).zip(&summary.attempts) {
            let outcome = match attempt.outcome {
                AttemptOutcome::Verified => "verified",
                AttemptOutcome::Moved => "relations had moved",
                AttemptOutcome::DdlFailed => "definitions changed while they were read",
                AttemptOutcome::LockTimeout => "locks were not to be had in time",
                AttemptOutcome::LeftOut => "verified, without the relations that had moved",
                AttemptOutcome::Unknown => "unknown",
            };
            let _ = writeln!(
                text,
                "attempt {number}: snapshot {}, {:.1} s: {outcome}",
                attempt.snapshot, attempt.seconds
            );
            for change in &attempt.changes {
                let harmless = if change.harmless { " (harmless)" } else { "" };
                let below = below(&change.ancestors);
                let _ = writeln!(
                    text,
                    "    {}.{}: {}{below}{harmless}",
                    change.schema,
                    change.name,
                    change.reasons.join(", ")
                );
            }
        }
        for left_out in &summary.left_out {
            let _ = writeln!(
                text,
                "left out: the rows of {}.{} ({})",
                left_out.schema,
                left_out.relation,
                left_out.reasons.join(", ")
            );
        }
        if let Some(error) = &self.error {
            let _ = writeln!(text, "error:    {error}");
        }
        text
    }
}
