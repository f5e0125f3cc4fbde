//! The command line. It knows words and defaults; what they do is the library's business.

mod ledger;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use stillpoint_client::codec::Compression;
use stillpoint_client::commands::{dump, restore, verify};
use stillpoint_client::connect::{self, ConnectOptions, Target};
use stillpoint_client::log;
use stillpoint_client::selection::Selection;

pub use self::ledger::{LedgerArgs, LedgerFormat};

/// PostgreSQL dumps that stay right while the schema moves.
#[derive(Debug, Parser)]
#[command(name = "stillpoint", version, about, max_term_width = 100, disable_help_flag = true)]
pub struct Cli {
    /// How messages on standard error are written
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,

    /// Print help
    // -h is the host, as with every PostgreSQL program.
    #[arg(long, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The log's format.
    pub fn log_format(&self) -> log::Format {
        match self.log_format {
            LogFormat::Text => log::Format::Text,
            LogFormat::Json => log::Format::Json,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// A JSON object a line
    Json,
}

/// How a report is printed to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Lines for people
    Text,
    /// One JSON object
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Dump a database into an archive that stock pg_restore reads
    Dump(DumpArgs),

    /// Compare every file of an archive with its manifest
    Verify(VerifyArgs),

    /// Verify an archive and load it with pg_restore
    Restore(RestoreArgs),

    /// Tell which files an incremental backup may not keep; keep account of backups
    #[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
    Ledger(LedgerArgs),
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection options")]
struct ConnectArgs {
    /// Database to connect to, or a connection string
    #[arg(short, long, value_name = "DBNAME")]
    dbname: Option<String>,

    /// Host name or socket directory of the server
    #[arg(short, long, value_name = "HOSTNAME")]
    host: Option<String>,

    /// Port of the server
    #[arg(short, long)]
    port: Option<String>,

    /// Role to connect as
    #[arg(short = 'U', long, value_name = "NAME")]
    username: Option<String>,
}

impl ConnectArgs {
    fn target(&self, positional: Option<&String>) -> Result<Target, connect::Error> {
        let options = ConnectOptions {
            dbname: self.dbname.as_ref().or(positional).cloned(),
            host: self.host.clone(),
            port: self.port.clone(),
            username: self.username.clone(),
        };
        Target::resolve(&options, |name| std::env::var(name).ok())
    }
}

/// `stillpoint dump`.
#[derive(Debug, Args)]
// As with pg_dump the last of several is meant: scripts append to options that others set.
#[command(args_override_self = true)]
pub struct DumpArgs {
    /// Database to dump, or a connection string
    #[arg(value_name = "DBNAME", conflicts_with = "dbname")]
    positional_dbname: Option<String>,

    /// Directory of the new archive; it must not exist
    #[arg(short, long, value_name = "DIRECTORY")]
    file: PathBuf,

    /// Sessions that lock, check and export in parallel
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: u32,

    /// Compression of data files: none, gzip[:LEVEL], lz4 or zstd[:LEVEL]
    #[arg(short = 'Z', long, value_name = "METHOD", default_value = "gzip")]
    compress: Compression,

    /// Dump only schemas that match the pattern
    #[arg(short = 'n', long = "schema", value_name = "PATTERN", help_heading = "What to dump")]
    schemas: Vec<String>,

    /// Leave out schemas that match the pattern
    #[arg(
        short = 'N',
        long = "exclude-schema",
        value_name = "PATTERN",
        help_heading = "What to dump"
    )]
    without_schemas: Vec<String>,

    /// Dump only relations that match the pattern; of partitioned tables, the partitions too
    #[arg(short = 't', long = "table", value_name = "PATTERN", help_heading = "What to dump")]
    relations: Vec<String>,

    /// Leave out relations that match the pattern; of partitioned tables, the partitions too
    #[arg(
        short = 'T',
        long = "exclude-table",
        value_name = "PATTERN",
        help_heading = "What to dump"
    )]
    without_relations: Vec<String>,

    /// How many snapshots to try before relations that moved are left out
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        env = "STILLPOINT_SNAPSHOT_ATTEMPTS",
        value_parser = attempts,
        help_heading = "Concurrent DDL"
    )]
    attempts: u32,

    /// How long pg_dump, and each session of ours, may wait for a lock; then the attempt is over
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = timeout, help_heading = "Concurrent DDL")]
    lock_timeout: Duration,

    /// How long to wait before the second attempt; doubles with each further one
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, help_heading = "Concurrent DDL")]
    backoff: Duration,

    /// Fail instead of leaving out the rows of relations that moved in every attempt
    #[arg(long, help_heading = "Concurrent DDL")]
    strict: bool,

    /// Print a report to standard output
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub report: Option<ReportFormat>,

    /// Directory of pg_dump, if it is not the one in PATH
    #[arg(long, value_name = "DIRECTORY")]
    bindir: Option<PathBuf>,

    #[command(flatten)]
    connect: ConnectArgs,
}

impl DumpArgs {
    /// The options that the library takes.
    ///
    /// # Errors
    ///
    /// Connection settings that cannot be understood.
    pub fn options(&self) -> Result<dump::Options, connect::Error> {
        Ok(dump::Options {
            target: self.connect.target(self.positional_dbname.as_ref())?,
            selection: Selection {
                schemas: self.schemas.clone(),
                without_schemas: self.without_schemas.clone(),
                relations: self.relations.clone(),
                without_relations: self.without_relations.clone(),
            },
            directory: self.file.clone(),
            jobs: usize::try_from(self.jobs).unwrap_or(1),
            attempts: self.attempts,
            lock_timeout: self.lock_timeout,
            backoff: self.backoff,
            strict: self.strict,
            compression: self.compress,
            bindir: self.bindir.clone(),
        })
    }
}

/// `stillpoint verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Directory of the archive
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,

    /// Files that are read in parallel
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: u32,

    /// How findings are printed to standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub report: ReportFormat,
}

impl VerifyArgs {
    /// The options that the library takes.
    pub fn options(&self) -> verify::Options {
        verify::Options {
            directory: self.archive.clone(),
            jobs: usize::try_from(self.jobs).unwrap_or(1),
        }
    }
}

/// `stillpoint restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Directory of the archive
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,

    /// Database to restore into, or a connection string
    #[arg(value_name = "DBNAME", conflicts_with = "dbname")]
    positional_dbname: Option<String>,

    /// Files that are verified, and sessions that load, in parallel
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: u32,

    /// Restore an archive that is not whole, too; exit with status 2 then
    #[arg(long)]
    allow_incomplete: bool,

    /// Directory of pg_restore, if it is not the one in PATH
    #[arg(long, value_name = "DIRECTORY")]
    bindir: Option<PathBuf>,

    #[command(flatten)]
    connect: ConnectArgs,

    /// Options for pg_restore, such as --clean or --no-owner
    #[arg(last = true, value_name = "PG_RESTORE_OPTIONS")]
    pg_restore_options: Vec<OsString>,
}

impl RestoreArgs {
    /// The options that the library takes.
    ///
    /// # Errors
    ///
    /// Connection settings that cannot be understood.
    pub fn options(&self) -> Result<restore::Options, connect::Error> {
        let target = self.connect.target(self.positional_dbname.as_ref())?;
        if !target.names_database() {
            // As pg_restore, which never loads into a database that nobody has named.
            return Err(connect::Error::NoDatabase);
        }
        Ok(restore::Options {
            directory: self.archive.clone(),
            target,
            jobs: usize::try_from(self.jobs).unwrap_or(1),
            allow_incomplete: self.allow_incomplete,
            bindir: self.bindir.clone(),
            pg_restore_options: self.pg_restore_options.clone(),
        })
    }
}

/// A number of attempts. The message names the variable too, for clap does not tell where a value
/// came from.
fn attempts(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=1000).contains(number));
    number.ok_or_else(|| {
        String::from("it must be a number from 1 to 1000 (here or in STILLPOINT_SNAPSHOT_ATTEMPTS)")
    })
}

/// A number of seconds, with a fraction if wanted.
fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| String::from("it must be a number of seconds"))
}

/// A timeout in seconds. Zero, which means "for ever" to the server, would mean "at once" here,
/// so it is neither.
fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = seconds(text)?;
    if timeout < Duration::from_millis(1) {
        return Err(String::from("it must be at least 0.001 seconds"));
    }
    Ok(timeout)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn seconds_may_have_a_fraction_and_no_sign() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert!(seconds("-1").is_err());
        assert!(seconds("soon").is_err());
        assert!(seconds("inf").is_err());
        assert!(seconds("0").is_ok() && timeout("0").is_err());
    }
}
