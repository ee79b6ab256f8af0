//! Carries the library's slog records into `tracing`: its errors as errors, all else at debug.
//!
//! A record is formatted only if its level is enabled.

use std::fmt::Write;

use slog::{Drain, KV, Level, Never, OwnedKVList, Record, Serializer};

struct ToTracing;

/// The logger handed to the library.
pub(crate) fn logger() -> slog::Logger {
    slog::Logger::root(ToTracing, slog::o!())
}

impl Drain for ToTracing {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), Never> {
        if matches!(record.level(), Level::Critical | Level::Error) {
            tracing::error!(target: "raft", "{}", line(record, values));
        } else if tracing::enabled!(target: "raft", tracing::Level::DEBUG) {
            tracing::debug!(target: "raft", "{}", line(record, values));
        }
        Ok(())
    }
}

fn line(record: &Record<'_>, values: &OwnedKVList) -> String {
    let mut text = Line(format!("{}", record.msg()));
    // Writing to a string does not fail, and a value that cannot be shown is left out of a log line.
    let _ = record.kv().serialize(record, &mut text);
    let _ = values.serialize(record, &mut text);
    text.0
}

struct Line(String);

impl Serializer for Line {
    fn emit_arguments(&mut self, key: slog::Key, value: &std::fmt::Arguments<'_>) -> slog::Result {
        write!(self.0, " {key}={value}").map_err(slog::Error::from)
    }
}
