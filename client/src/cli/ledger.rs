//! `stillpoint ledger`: its actions and their options.

use std::ffi::OsString;

use clap::builder::{ArgPredicate, OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use stillpoint_client::commands::ledger::{Action, Base, Given, Options, Since};
use stillpoint_client::error::Error;

use super::{ConnectArgs, ReportFormat};

/// `stillpoint ledger`.
#[derive(Debug, Args)]
// As with dump, the last of several is meant; in the actions, too.
#[command(args_override_self = true)]
pub struct LedgerArgs {
    #[command(subcommand)]
    action: LedgerAction,
}

#[derive(Debug, Subcommand)]
enum LedgerAction {
    /// Tell whether the ledger records, and since when nothing is missing
    Status(CommonArgs),

    /// Take a bookmark and print it
    Bookmark(CommonArgs),

    /// List the files whose bytes are void for a backup that knows a bookmark
    Since(SinceArgs),

    /// List the backup tools that the ledger keeps rows for
    Consumers(CommonArgs),

    /// Make a backup tool known
    Register(ConsumerArgs),

    /// Begin a backup: print the bookmark of the last one and a new one, or run a command
    Begin(BeginArgs),

    /// End a backup: the next one is based on it
    End(EndArgs),

    /// Forget a backup tool
    Drop(ConsumerArgs),

    /// Remove rows that are older than stillpoint.ledger_retention or that nobody needs
    Prune(CommonArgs),
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// How the answer is printed to standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: ReportFormat,

    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, Args)]
struct ConsumerArgs {
    /// Name of the backup tool
    #[arg(value_name = "NAME")]
    consumer: String,

    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct SinceArgs {
    /// Bookmark: its text, @FILE to read it from a file, or - for standard input
    #[arg(
        value_name = "BOOKMARK",
        value_parser = given(),
        required_unless_present = "consumer",
        conflicts_with = "consumer"
    )]
    bookmark: Option<Given>,

    /// Take the bookmark of this backup tool's last backup
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,

    /// Leave out what has become void after this bookmark
    #[arg(long, value_name = "BOOKMARK", value_parser = given())]
    upto: Option<Given>,

    /// List the files that are there too: all segments and forks of each
    #[arg(long)]
    segments: bool,

    /// How the files are printed to standard output
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "text",
        default_value_if("null", ArgPredicate::IsPresent, "paths")
    )]
    format: SinceFormat,

    /// Print paths, each ended by a NUL byte instead of a newline
    #[arg(short = '0', long)]
    null: bool,

    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SinceFormat {
    /// A table for people
    Text,
    /// One JSON object
    Json,
    /// One path a line
    Paths,
}

#[derive(Debug, Args)]
struct BeginArgs {
    /// Name of the backup tool
    #[arg(value_name = "NAME")]
    consumer: String,

    /// Command that makes the backup. The backup is ended if it succeeds; its exit status is ours
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "format")]
    command: Vec<OsString>,

    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct EndArgs {
    /// Name of the backup tool
    #[arg(value_name = "NAME")]
    consumer: String,

    /// Bookmark that it began with: its text, @FILE, or - for standard input
    #[arg(value_name = "BOOKMARK", value_parser = given())]
    bookmark: Given,

    #[command(flatten)]
    common: CommonArgs,
}

fn given() -> impl TypedValueParser<Value = Given> {
    OsStringValueParser::new().try_map(Given::parse)
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// Paths alone.
    Paths {
        /// What stands after each.
        end: char,
    },
}

impl LedgerArgs {
    /// How the answer is to be printed.
    ///
    /// # Errors
    ///
    /// Formats that exclude each other.
    pub fn format(&self) -> Result<LedgerFormat, Error> {
        let common = match &self.action {
            LedgerAction::Since(args) => {
                return match (args.format, args.null) {
                    (SinceFormat::Paths, null) => {
                        Ok(LedgerFormat::Paths { end: if null { '\0' } else { '\n' } })
                    }
                    (_, true) => Err(Error::Usage("--null goes with --format=paths only")),
                    (SinceFormat::Text, false) => Ok(LedgerFormat::Text),
                    (SinceFormat::Json, false) => Ok(LedgerFormat::Json),
                };
            }
            LedgerAction::Status(common)
            | LedgerAction::Bookmark(common)
            | LedgerAction::Consumers(common)
            | LedgerAction::Prune(common)
            | LedgerAction::Register(ConsumerArgs { common, .. })
            | LedgerAction::Drop(ConsumerArgs { common, .. })
            | LedgerAction::Begin(BeginArgs { common, .. })
            | LedgerAction::End(EndArgs { common, .. }) => common,
        };
        Ok(match common.format {
            ReportFormat::Text => LedgerFormat::Text,
            ReportFormat::Json => LedgerFormat::Json,
        })
    }

    /// The options that the library takes.
    ///
    /// # Errors
    ///
    /// Connection settings that cannot be understood, and standard input that is to be read twice.
    pub fn options(&self) -> Result<Options, Error> {
        let (action, connect) = match &self.action {
            LedgerAction::Status(common) => (Action::Status, &common.connect),
            LedgerAction::Bookmark(common) => (Action::Bookmark, &common.connect),
            LedgerAction::Since(args) => (Action::Since(args.since()?), &args.connect),
            LedgerAction::Consumers(common) => (Action::Consumers, &common.connect),
            LedgerAction::Register(ConsumerArgs { consumer, common }) => {
                (Action::Register { consumer: consumer.clone() }, &common.connect)
            }
            LedgerAction::Begin(BeginArgs { consumer, command, common }) => {
                let (consumer, command) = (consumer.clone(), command.clone());
                (Action::Begin { consumer, command }, &common.connect)
            }
            LedgerAction::End(EndArgs { consumer, bookmark, common }) => {
                let (consumer, bookmark) = (consumer.clone(), bookmark.clone());
                (Action::End { consumer, bookmark }, &common.connect)
            }
            LedgerAction::Drop(ConsumerArgs { consumer, common }) => {
                (Action::Drop { consumer: consumer.clone() }, &common.connect)
            }
            LedgerAction::Prune(common) => (Action::Prune, &common.connect),
        };
        Ok(Options { target: connect.target(None)?, action })
    }
}

impl SinceArgs {
    fn since(&self) -> Result<Since, Error> {
        if self.bookmark == Some(Given::StandardInput) && self.upto == Some(Given::StandardInput) {
            return Err(Error::Usage("standard input holds one bookmark only"));
        }
        let base = match (&self.bookmark, &self.consumer) {
            (Some(bookmark), _) => Base::Bookmark(bookmark.clone()),
            (None, Some(consumer)) => Base::Consumer(consumer.clone()),
            (None, None) => return Err(Error::Usage("a bookmark or --consumer is required")),
        };
        Ok(Since { base, upto: self.upto.clone(), segments: self.segments })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(arguments: &[&str]) -> Result<LedgerArgs, clap::Error> {
        let words = ["stillpoint", "ledger"].iter().chain(arguments);
        match Cli::try_parse_from(words)?.command {
            Command::Ledger(args) => Ok(args),
            other => panic!("another command: {other:?}"),
        }
    }

    fn format(arguments: &[&str]) -> Result<LedgerFormat, Error> {
        parse(arguments).expect("arguments").format()
    }

    #[test]
    fn a_null_byte_goes_with_paths_and_means_them() {
        let nulls = LedgerFormat::Paths { end: '\0' };
        assert_eq!(format(&["since", "{}", "-0"]).expect("a format"), nulls);
        let null = ["since", "{}", "--null", "--format", "paths"];
        assert_eq!(format(&null).expect("a format"), nulls);
        let lines = LedgerFormat::Paths { end: '\n' };
        assert_eq!(format(&["since", "{}", "--format=paths"]).expect("a format"), lines);
        assert_eq!(format(&["since", "{}"]).expect("a format"), LedgerFormat::Text);
        assert!(format(&["since", "{}", "-0", "--format=json"]).is_err());
        assert_eq!(format(&["prune", "--format=json"]).expect("a format"), LedgerFormat::Json);
        assert!(parse(&["status", "--format=paths"]).is_err());
    }

    #[test]
    fn a_base_is_a_bookmark_or_a_consumer() {
        let since = |arguments: &[&str]| match parse(arguments).expect("arguments").action {
            LedgerAction::Since(args) => args.since(),
            other => panic!("another action: {other:?}"),
        };
        for nothing in [&["since"][..], &["since", ""], &["since", "{}", "--consumer", "c"]] {
            assert!(parse(nothing).is_err(), "{nothing:?}");
        }
        assert!(since(&["since", "-", "--upto", "-"]).is_err());
        let told = since(&["since", "@a", "--upto", "-", "--segments"]).expect("a base");
        assert!(matches!(told.base, Base::Bookmark(Given::File(_))));
        assert_eq!((told.upto, told.segments), (Some(Given::StandardInput), true));
        let told = since(&["since", "--consumer", "c"]).expect("a base");
        assert!(matches!(told.base, Base::Consumer(name) if name == "c"));
    }

    #[test]
    fn a_command_stands_after_two_dashes_and_has_standard_output_for_itself() {
        let command = |arguments: &[&str]| match parse(arguments).expect("arguments").action {
            LedgerAction::Begin(args) => args.command,
            other => panic!("another action: {other:?}"),
        };
        assert_eq!(command(&["begin", "c", "-d", "db"]), [""; 0]);
        let words = ["begin", "c", "-d", "db", "--", "tar", "-d", "--help"];
        assert_eq!(command(&words), ["tar", "-d", "--help"]);
        assert!(parse(&["begin", "c", "--format=json", "--", "tar"]).is_err());
        assert!(parse(&["begin", "c", "tar"]).is_err());
    }
}
