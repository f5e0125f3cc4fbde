//! What the server has logged, and whether a test may have caused it.

use std::fs;
use std::path::PathBuf;

/// Severities that a test has to expect by name.
const NOTABLE: [&str; 4] = ["WARNING:  ", "ERROR:  ", "FATAL:  ", "PANIC:  "];

/// The harness stops servers while sessions are open.
const ALWAYS_ALLOWED: &str = "terminating connection due to administrator command";

const TAIL_LINES: usize = 40;

/// A server's log file, which [`Cluster`](crate::Cluster) scans at its end.
pub(crate) struct ServerLog {
    path: PathBuf,
    scanned: usize,
    allowed: Vec<String>,
}

impl ServerLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, scanned: 0, allowed: vec![ALWAYS_ALLOWED.to_owned()] }
    }

    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Expects entries that contain `part` from now to the next scan.
    pub(crate) fn allow(&mut self, part: &str) {
        self.allowed.push(part.to_owned());
    }

    /// The unexpected entries since the last scan. What was allowed is forgotten.
    pub(crate) fn unexpected(&mut self) -> Vec<String> {
        let bytes = fs::read(&self.path).unwrap_or_default();
        let log = String::from_utf8_lossy(&bytes[self.scanned.min(bytes.len())..]);
        let found = entries(&log)
            .filter(|entry| NOTABLE.iter().any(|severity| entry.contains(severity)))
            .filter(|entry| !self.allowed.iter().any(|part| entry.contains(part)))
            .map(str::to_owned)
            .collect();
        self.scanned = bytes.len();
        self.allowed.truncate(1);
        found
    }
}

/// The last lines of the log at `path`, for a failure's scene.
pub(crate) fn tail(path: &PathBuf) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let log = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Cuts the log before each line that begins with a primary message's prefix; detail, hint,
/// context and statement follow their message with the same prefix and belong to it.
fn entries(log: &str) -> impl Iterator<Item = &str> {
    const PARTS: [&str; 6] =
        ["DETAIL:  ", "HINT:  ", "CONTEXT:  ", "STATEMENT:  ", "QUERY:  ", "LOCATION:  "];
    let mut starts: Vec<usize> = Vec::new();
    let mut offset = 0;
    for line in log.split_inclusive('\n') {
        let begins = !line.starts_with('\t') && !PARTS.iter().any(|part| line.contains(part));
        if begins || starts.is_empty() {
            starts.push(offset);
        }
        offset += line.len();
    }
    starts.push(log.len());
    let ranges: Vec<_> = starts.windows(2).map(|pair| (pair[0], pair[1])).collect();
    ranges.into_iter().map(|(from, to)| log[from..to].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_its_detail_and_statement() {
        let log = "t [1] ERROR:  relation \"x\" does not exist\n\
                   t [1] STATEMENT:  SELECT 1\n\tFROM x\n\
                   t [2] LOG:  fine\n";
        let entries: Vec<_> = entries(log).collect();
        assert_eq!(entries.len(), 2);
        assert!(entries[0].ends_with("FROM x"));
    }

    #[test]
    fn only_what_was_not_allowed_is_unexpected() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), "t ERROR:  one\nt ERROR:  two\nt LOG:  three\n").expect("written");
        let mut log = ServerLog::new(file.path().to_owned());
        log.allow("one");
        assert_eq!(log.unexpected(), ["t ERROR:  two"]);
        assert!(log.unexpected().is_empty());
    }
}
