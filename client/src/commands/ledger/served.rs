//! `begin NAME -- COMMAND`: the consumer's lock is held while a command of the user's runs.

use std::ffi::OsString;
use std::process::{Command, ExitStatus};

use super::Error;
use super::answer::{Ran, Told};
use crate::interrupt::ServedCommand;
use crate::server::{Begun, Ledger};

/// Begins a backup, runs the command, and ends the backup if the command has succeeded.
pub fn run(ledger: &mut Ledger, consumer: &str, command: &[OsString]) -> Result<Told, Error> {
    let begun = super::begin(ledger, consumer)?;
    let Some((program, arguments)) = command.split_first() else {
        return Ok(Told::Begun { consumer: consumer.to_owned(), begun });
    };
    let not_started =
        |source| Error::Start { program: program.into(), source, consumer: consumer.to_owned() };
    let mut command = Command::new(program);
    command.args(arguments).envs(environment(consumer, &begun));
    let served = ServedCommand::spawn(&mut command).map_err(not_started)?;
    let (status, signal) = served.wait().map_err(not_started)?;
    if is_done(status, signal) {
        super::end(ledger, consumer, &begun.bookmark).map_err(|source| Error::NotEnded {
            source: Box::new(source),
            consumer: consumer.to_owned(),
            bookmark: begun.bookmark,
        })?;
    }
    Ok(Told::Ran(Ran { consumer: consumer.to_owned(), program: program.into(), status, signal }))
}

/// A command that was told to end may still say that all is well: it has not done all it was to.
pub fn is_done(status: ExitStatus, signal: Option<i32>) -> bool {
    status.success() && signal.is_none()
}

/// What the command finds in its environment.
fn environment<'a>(consumer: &'a str, begun: &'a Begun) -> [(&'static str, &'a str); 5] {
    [
        ("STILLPOINT_CONSUMER", consumer),
        ("STILLPOINT_BASE", begun.base.as_deref().unwrap_or_default()),
        ("STILLPOINT_BOOKMARK", &begun.bookmark),
        ("STILLPOINT_COMPLETE", if begun.complete { "true" } else { "false" }),
        ("STILLPOINT_REASON", begun.reason.as_deref().unwrap_or_default()),
    ]
}
