//! Logging: one line per event on standard error, written by a thread of its own so that no core waits for a terminal.
//!
//! Set up once on the main thread. Control characters from clients cannot break a line or colour a terminal: they are
//! escaped. When the reader is slower than the server, lines are dropped and never block.

use std::env;
use std::io::{self, IsTerminal as _, Write};

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::config::value::LogLevel;

/// The environment variable that sets a level for each module.
const LEVELS: &str = "RUST_LOG";

/// Lines that may wait for standard error; more are dropped.
const LINES_MAX: usize = 16_384;

/// Starts logging for the rest of the process. Dropping the guard writes what still waits. `RUST_LOG`, if it is set and understood,
/// takes the place of the level, and each line then names its module.
pub(crate) fn start(level: LogLevel) -> WorkerGuard {
    let levels = env::var(LEVELS).ok().filter(|levels| !levels.is_empty()).map(|levels| targets(&levels));
    let (by_module, error) = levels.map_or((None, None), |levels| (levels.as_ref().ok().cloned(), levels.err()));
    let is_by_module = by_module.is_some();
    let targets = by_module.unwrap_or_else(|| Targets::new().with_default(filter(level)));
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .thread_name("log-writer")
        .finish(io::stderr());
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(io::stderr().is_terminal())
        .with_target(is_by_module)
        .with_writer(OneLine(writer))
        .with_filter(targets);
    // Fails only if logging was started already; then that one stays.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines));
    if let Some(error) = error {
        tracing::warn!("{error}; server.log_level counts");
    }
    guard
}

fn targets(levels: &str) -> Result<Targets, String> {
    levels.parse().map_err(|error: ParseError| {
        let example = "for example RUST_LOG=info,corral_engine=debug";
        format!("{LEVELS}={levels}: {error}; wanted is a level, or MODULE=LEVEL, with commas, {example}")
    })
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
    fn levels_are_those_of_modules() {
        let levels = targets("warn,corral_engine=debug").expect("it is right");
        assert!(levels.would_enable("corral_engine::engine", &tracing::Level::DEBUG));
        assert!(!levels.would_enable("corral::net", &tracing::Level::INFO));
        assert!(levels.would_enable("corral::net", &tracing::Level::WARN));
        let error = targets("corral_engine=loud").expect_err("there is no such level");
        assert!(error.starts_with("RUST_LOG=corral_engine=loud: "), "{error}");
    }

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
