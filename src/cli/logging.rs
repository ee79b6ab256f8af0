//! Logging: one line per event, written by a thread of its own so that no core waits for a terminal or a disk.
//!
//! Set up once on the main thread. Control characters from clients cannot break a line or colour a terminal: they are
//! escaped. When the reader is slower than the server, lines are dropped and never block.

use std::env;
use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::LogSettings;
use crate::config::value::{LogFormat, LogLevel};
use crate::exit::{ExitCode, Fault};
use crate::runtime::rolling_file::RollingFile;

/// The environment variable that sets a level for each module.
const LEVELS: &str = "RUST_LOG";

/// Lines that may wait to be written; more are dropped.
const LINES_MAX: usize = 16_384;

/// The log of the process. Dropping it writes the lines that still wait.
pub(super) struct Log {
    _writes: WorkerGuard,
    pub(super) changes: LogChanges,
}

/// Changes the log while it is written.
#[derive(Clone)]
pub(super) struct LogChanges {
    levels: reload::Handle<Targets, Registry>,
    /// Whether `RUST_LOG` gives the levels.
    is_by_variable: bool,
    reopen: Arc<AtomicBool>,
}

impl LogChanges {
    /// The levels of these settings count from now on, unless `RUST_LOG` is set.
    pub(super) fn set_levels(&self, settings: &LogSettings) {
        if self.is_by_variable {
            return tracing::warn!("{LEVELS} is set, and gives the levels of the log until a restart");
        }
        // The subscriber lives as long as the process.
        let _ = self.levels.reload(configured(settings));
    }

    /// The next line goes to the file that has the path then.
    pub(super) fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }
}

/// Starts logging for the rest of the process. `RUST_LOG`, if it is set and understood, takes the place of the levels.
///
/// # Errors
/// A `Config` fault if the file of the log cannot be opened.
pub(super) fn start(settings: &LogSettings) -> Result<Log, Fault> {
    let variable = env::var(LEVELS).ok().filter(|levels| !levels.is_empty()).map(|levels| targets(&levels));
    let (by_variable, wrong) = variable.map_or((None, None), |levels| (levels.as_ref().ok().cloned(), levels.err()));
    let is_by_variable = by_variable.is_some();
    let names_modules = is_by_variable || !settings.logging.modules.0.is_empty();
    let (filter, levels) = reload::Layer::new(by_variable.unwrap_or_else(|| configured(settings)));
    let logging = &settings.logging;
    let reopen = Arc::new(AtomicBool::new(false));
    let is_terminal = logging.file.as_os_str().is_empty() && io::stderr().is_terminal();
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_MAX).thread_name("log-writer");
    let (writer, writes) = if logging.file.as_os_str().is_empty() {
        builder.finish(io::stderr())
    } else {
        let (path, key) = (logging.file.clone(), "logging.file_bytes_max");
        let file = RollingFile::open(path, logging.file_bytes_max, logging.files_retained, key).map_err(|error| {
            let path = logging.file.display();
            Fault::new(ExitCode::Config, format!("logging.file: {path}: {error}; name a file that this user may write"))
        })?;
        builder.finish(LogFile { file, reopen: Arc::clone(&reopen) })
    };
    let lines = tracing_subscriber::fmt::layer().with_target(names_modules).with_writer(OneLine(writer));
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match logging.format {
        LogFormat::Text => lines.with_ansi(is_terminal).with_filter(filter).boxed(),
        LogFormat::Json => {
            let json = lines.with_ansi(false).json().flatten_event(true);
            json.with_current_span(false).with_span_list(false).with_filter(filter).boxed()
        }
    };
    // Fails only if logging was started already; then that one stays.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines));
    if let Some(error) = wrong {
        tracing::warn!("{error}; server.log_level counts");
    }
    Ok(Log { _writes: writes, changes: LogChanges { levels, is_by_variable, reopen } })
}

/// Levels by the configuration, which has checked those of modules.
fn configured(settings: &LogSettings) -> Targets {
    let module = |text: &String| {
        let (module, level) = text.split_once('=')?;
        Some((module.to_owned(), level.parse::<LevelFilter>().ok()?))
    };
    let modules = settings.logging.modules.0.iter().filter_map(module);
    Targets::new().with_default(filter(settings.level)).with_targets(modules)
}

fn targets(levels: &str) -> Result<Targets, String> {
    levels.parse().map_err(|error: ParseError| {
        format!("{LEVELS}={levels}: {error}; wanted is a level, or MODULE=LEVEL, with commas, for example info,corral_engine=debug")
    })
}

/// Writes lines to the file of the log, or to standard error while the file cannot be written.
struct LogFile {
    file: RollingFile,
    reopen: Arc<AtomicBool>,
}

impl Write for LogFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.reopen.swap(false, Ordering::Relaxed) {
            self.file.close();
        }
        let mut left = lines.to_vec();
        if self.file.append(&mut left).is_err() {
            io::stderr().write_all(&left)?;
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
