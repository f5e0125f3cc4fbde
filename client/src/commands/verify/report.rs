//! What a verification tells.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::Checked;
use super::finding::Finding;
use crate::exit::ExitStatus;
use crate::manifest::{LeftOut, Summary};

/// What an archive turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is as it was written.
    Intact,
    /// It is not.
    Damaged,
}

/// All that was found, and what was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    command: &'static str,
    outcome: Outcome,
    #[serde(serialize_with = "as_text")]
    archive: PathBuf,
    /// What the manifest says about the dump; `null` if it is too damaged to tell. An archive
    /// that is not whole is not damaged: it is what was written.
    complete: Option<bool>,
    files: u64,
    tables: u64,
    rows: u64,
    stored_bytes: u64,
    findings: Vec<Finding>,
    left_out: Vec<LeftOut>,
}

/// A name that is not UTF-8 is shown as well as it can be, as in the report of a dump.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut finding = serializer.serialize_struct("Finding", 3)?;
        finding.serialize_field("file", &self.file)?;
        finding.serialize_field("kind", self.damage.kind())?;
        finding.serialize_field("message", &self.damage.to_string())?;
        finding.end()
    }
}

impl Report {
    pub(super) fn new(archive: PathBuf, summary: Option<&Summary>) -> Self {
        Self {
            command: "verify",
            outcome: Outcome::Intact,
            archive,
            complete: summary.map(|summary| summary.complete),
            files: 0,
            tables: 0,
            rows: 0,
            stored_bytes: 0,
            findings: Vec::new(),
            left_out: summary.map(|summary| summary.left_out.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn add(&mut self, file: &Checked) {
        self.files += 1;
        self.tables += u64::from(file.rows.is_some());
        self.rows += file.rows.unwrap_or(0);
        self.stored_bytes += file.stored_bytes;
    }

    pub(super) fn conclude(&mut self, mut findings: Vec<Finding>) {
        // Several threads found them; and what is wrong with one file belongs together.
        findings.sort_by(|a, b| a.file.cmp(&b.file));
        self.outcome = if findings.is_empty() { Outcome::Intact } else { Outcome::Damaged };
        self.findings = findings;
    }

    /// What the archive turned out to be.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The exit code that goes with it.
    #[must_use]
    pub const fn exit_status(&self) -> ExitStatus {
        match self.outcome {
            Outcome::Intact => ExitStatus::Done,
            Outcome::Damaged => ExitStatus::Failed,
        }
    }

    /// What is wrong, ordered by file.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether the dump was whole, if the manifest can still tell.
    #[must_use]
    pub const fn complete(&self) -> Option<bool> {
        self.complete
    }

    /// Whose rows the dump has left out.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The tables, and their rows, that were read.
    #[must_use]
    pub const fn contents(&self) -> (u64, u64) {
        (self.tables, self.rows)
    }

    /// The report as one JSON object.
    ///
    /// # Errors
    ///
    /// None that is known; the signature is the serializer's.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The report for people: a line for each finding.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{finding}");
        }
        if self.complete == Some(false) {
            let _ = writeln!(text, "note: the dump was not whole when it was written");
        }
        for left_out in &self.left_out {
            let _ = writeln!(
                text,
                "note: the rows of {}.{} were left out ({})",
                left_out.schema,
                left_out.relation,
                left_out.reasons.join(", ")
            );
        }
        text
    }

    /// Logs the line that ends the run.
    pub fn log_summary(&self) {
        let summary = self.summary();
        match self.outcome {
            Outcome::Intact => tracing::info!("{summary}"),
            Outcome::Damaged => tracing::error!("{summary}"),
        }
    }

    pub(super) fn summary(&self) -> String {
        let looked_at = format!(
            "{} files, {} tables, {} rows, {:.1} MB",
            self.files,
            self.tables,
            self.rows,
            self.stored_bytes as f64 / 1e6
        );
        let archive = self.archive.display();
        match self.findings.len() {
            0 if self.complete == Some(false) => {
                format!("archive \"{archive}\" is intact, but not whole: {looked_at}")
            }
            0 => format!("archive \"{archive}\" is intact: {looked_at}"),
            1 => format!("archive \"{archive}\" is damaged: 1 finding in {looked_at}"),
            count => format!("archive \"{archive}\" is damaged: {count} findings in {looked_at}"),
        }
    }
}
