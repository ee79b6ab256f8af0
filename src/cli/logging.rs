//! Logging: one line per event on standard error, written by a thread of its own so that no core waits for a terminal.
//!
//! Set up once on the main thread. Control characters from clients cannot break a line or colour a terminal: they are
//! escaped. When the reader is slower than the server, lines are dropped and never block.

use std::io::{self, IsTerminal as _, Write};

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

use crate::config::value::LogLevel;

/// Lines that may wait for standard error; more are dropped.
const LINES_MAX: usize = 16_384;

/// Starts logging for the rest of the process. Dropping the guard writes what still waits.
pub(crate) fn start(level: LogLevel) -> WorkerGuard {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .thread_name("log-writer")
        .finish(io::stderr());
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(filter(level))
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_writer(OneLine(writer))
        .finish();
    // Fails only if logging was started already; then that one stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    guard
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Makes writers that keep an event on one line. The subscriber writes each event in one piece.
struct OneLine<W>(W);

impl<'a> MakeWriter<'a> for OneLine<NonBlocking> {
    type Writer = OneLine<NonBlocking>;

    fn make_writer(&'a self) -> OneLine<NonBlocking> {
        OneLine(self.0.clone())
    }
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let body = event.strip_suffix(b"\n").unwrap_or(event);
        if body.iter().any(|&byte| byte == b'\n' || byte == b'\r') {
            let mut line = Vec::with_capacity(event.len() + 8);
            for &byte in body {
                match byte {
                    b'\n' => line.extend_from_slice(b"\\n"),
                    b'\r' => line.extend_from_slice(b"\\r"),
                    byte => line.push(byte),
                }
            }
            line.push(b'\n');
            self.0.write_all(&line)?;
        } else {
            self.0.write_all(event)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let check = |event: &str, expect: &str| {
            let mut writer = OneLine(Vec::new());
            writer.write_all(event.as_bytes()).expect("a Vec takes every write");
            assert_eq!(String::from_utf8_lossy(&writer.0), expect);
        };
        check("INFO ready\n", "INFO ready\n");
        check("INFO a\nINFO forged\r\n", "INFO a\\nINFO forged\\r\n");
        check("no end", "no end");
        check("\n", "\n");
    }
}
