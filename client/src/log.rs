//! Messages to standard error, for people or as JSON lines.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `stillpoint: warning: ...`, as the PostgreSQL client programs write.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Sends everything from `info` upwards to standard error from now on. A second call changes
/// nothing.
pub fn start(format: Format) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_writer(std::io::stderr)
        // A message that cannot be written would be told to standard error, which cannot be
        // written: a panic, and a dump lost for a full log partition.
        .log_internal_errors(false)
        .with_ansi(false);
    let outcome = match format {
        Format::Text => builder.event_format(Plain).try_init(),
        Format::Json => builder.json().flatten_event(true).with_target(false).try_init(),
    };
    // Somebody who uses the library has a subscriber of their own: that one stays.
    drop(outcome);
}

struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        let mut message = Message { text: String::new(), hint: None };
        event.record(&mut message);
        writeln!(writer, "stillpoint: {level}{}", message.text)?;
        match message.hint {
            Some(hint) => writeln!(writer, "stillpoint: hint: {hint}"),
            None => Ok(()),
        }
    }
}

struct Message {
    text: String,
    hint: Option<String>,
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            "hint" => self.hint = Some(format!("{value:?}")),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.text),
            "hint" => self.hint = Some(value.to_owned()),
            _ => {}
        }
    }
}
