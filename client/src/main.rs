//! The command `stillpoint`: runs a command and gives its exit code.

mod cli;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use stillpoint_client::commands::{dump, ledger, restore, verify};
use stillpoint_client::error::Error;
use stillpoint_client::exit::ExitStatus;
use stillpoint_client::interrupt;
use stillpoint_client::log;

use self::cli::{Cli, Command, DumpArgs, LedgerArgs, LedgerFormat, ReportFormat, VerifyArgs};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; where they cannot be printed, nothing can.
            let _ = error.print();
            let usage = error.use_stderr();
            return if usage { ExitStatus::Usage } else { ExitStatus::Done }.into();
        }
    };
    log::start(cli.log_format());
    match run(&cli.command) {
        Ok(status) => status.into(),
        Err(error) => {
            let hint = error.hint();
            tracing::error!(hint, "{error}");
            error.exit_status().into()
        }
    }
}

fn run(command: &Command) -> Result<ExitStatus, Error> {
    interrupt::handle_signals().map_err(Error::Signals)?;
    match command {
        Command::Dump(args) => dump(args),
        Command::Verify(args) => verify(args),
        Command::Restore(args) => Ok(restore::run(&args.options()?)?),
        Command::Ledger(args) => ledger(args),
    }
}

fn dump(args: &DumpArgs) -> Result<ExitStatus, Error> {
    let (report, result) = dump::run(&args.options()?);
    let printed = match args.report {
        None => Ok(()),
        Some(ReportFormat::Text) => print(&report.to_text()),
        Some(ReportFormat::Json) => print_json(report.to_json()),
    };
    // The exit status tells what became of the archive. Status 1 for a report that could not be
    // printed would say that there is none.
    if let Err(error) = printed {
        tracing::warn!("{error}");
    }
    Ok(result?)
}

fn verify(args: &VerifyArgs) -> Result<ExitStatus, Error> {
    let report = verify::run(&args.options())?;
    match args.report {
        ReportFormat::Text => print(&report.to_text())?,
        ReportFormat::Json => print_json(report.to_json())?,
    }
    report.log_summary();
    Ok(report.exit_status())
}

fn ledger(args: &LedgerArgs) -> Result<ExitStatus, Error> {
    let format = args.format()?;
    let answer = ledger::run(&args.options()?)?;
    match format {
        LedgerFormat::Text => print(&answer.to_text())?,
        LedgerFormat::Json => {
            print(&answer.to_json().map_err(|error| Error::Report(error.into()))?)?;
        }
        LedgerFormat::Paths { end } => print(&answer.to_paths(end))?,
    }
    answer.log_summary();
    Ok(answer.exit_status())
}

fn print_json(json: Result<String, serde_json::Error>) -> Result<(), Error> {
    let json = json.map_err(|error| Error::Report(error.into()))?;
    print(&format!("{json}\n"))
}

/// Writes to standard output; a reader that has gone is an error like others, not a panic.
fn print(text: &str) -> Result<(), Error> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Error::Report)
}
