//! The server's configuration: defaults, then a file, then command-line flags, each value with its source.
//!
//! Start-up only, on the main thread; the rest of the server sees the plain `Config`. It knows the two file formats and
//! the checks across keys. It does not look at the machine, except to read files and resolve host names, and starts
//! nothing.

pub(crate) mod admin;
mod core_rows;
pub(crate) mod cores;
pub(crate) mod digests;
mod ensemble;
pub(crate) mod file;
pub(crate) mod four_letter;
mod jaas;
mod keys;
mod loaded;
pub(crate) mod members;
mod problem;
mod properties;
mod reference;
pub(crate) mod tls;
mod toml_file;
pub(crate) mod users;
pub(crate) mod value;
mod zoo;
mod zoo_auth;
mod zoo_ensemble;
mod zoo_http;
mod zoo_keys;
mod zoo_tls;

use std::path::Path;

pub(crate) use keys::{Config, Logging, Tls as TlsSection};
pub(crate) use loaded::Loaded;
pub(crate) use problem::{Source, nearest};
pub(crate) use reference::{effective, reference, template};
pub(crate) use value::TransportChoice;

use crate::exit::{ExitCode, Fault};
use file::read_text;
use problem::Draft;
use value::{LogLevel, Raw, Rejection};

/// Log segments are made of whole pages of this size.
const PAGE_BYTES: u64 = 4096;

/// Default of `ensemble.hold_ms`, in election timeouts.
const HOLD_ELECTIONS: u32 = 20;
/// How much larger than a request a log segment must be.
const FRAMES_PER_SEGMENT_MIN: u64 = 4;
/// Heartbeats of an idle executor that are missed before the watchdog takes it for frozen, at least (decision 7).
const HEARTBEATS_MISSED: u32 = 5;

/// Settings of the log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogSettings {
    pub(crate) level: LogLevel,
    pub(crate) logging: Logging,
}

impl LogSettings {
    pub(crate) fn of(config: &Config) -> LogSettings {
        LogSettings { level: config.server.log_level, logging: config.logging.clone() }
    }
}

/// A setting of the command line, by key; applied after the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    /// The key, such as `server.data_dir`.
    pub(crate) path: String,
    pub(crate) value: Raw,
    /// The flag's name for messages.
    pub(crate) flag: &'static str,
}

impl Override {
    /// A text value given by a flag of its own.
    pub(crate) fn text(flag: &'static str, path: &str, value: impl Into<String>) -> Override {
        Override { path: path.to_owned(), value: Raw::Text(value.into()), flag }
    }

    /// A number given by a flag of its own.
    pub(crate) fn number(flag: &'static str, path: &str, value: u64) -> Override {
        Override { path: path.to_owned(), value: Raw::Integer(value.into()), flag }
    }

    /// `KEY=VALUE` as `--set` takes it; the value as in TOML, quotes may be left out.
    ///
    /// # Errors
    /// When there is no `=`.
    pub(crate) fn parse(text: &str) -> Result<Override, NoEqualsSign> {
        let (path, value) = text.split_once('=').ok_or(NoEqualsSign)?;
        Ok(Override { path: path.trim().to_owned(), value: toml_file::read_value(value.trim()), flag: "--set" })
    }
}

/// The argument of `--set` has no `=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no =; give KEY=VALUE, for example limits.connections_max=1000")]
pub(crate) struct NoEqualsSign;

/// The format of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Toml,
    ZooCfg,
}

/// Why there is no configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refused {
    pub(crate) fault: Fault,
    /// Host names of this server that do not resolve, if nothing else is wrong: a later try may succeed.
    pub(crate) unresolved: Vec<String>,
    /// As configured.
    pub(crate) logging: Box<LogSettings>,
}

/// As [`load_once`], for callers that do not wait for names.
///
/// # Errors
/// As [`load_once`].
pub(crate) fn load(file: Option<&Path>, overrides: &[Override]) -> Result<Loaded, Fault> {
    load_once(file, overrides).map_err(|refused| refused.fault)
}

/// Puts the configuration together: built-in defaults, then the file if one is named, then the overrides.
///
/// # Errors
/// A `Config` fault that lists every problem, one a line: place, key, reason, what to do.
pub(crate) fn load_once(file: Option<&Path>, overrides: &[Override]) -> Result<Loaded, Refused> {
    let mut draft = Draft::new(file);
    let mut format = Format::Toml;
    if let Some(path) = file {
        let text = read_text(path).map_err(|error| Refused {
            fault: Fault::new(ExitCode::Config, format!("{error}; name a readable file")),
            unresolved: Vec::new(),
            logging: Box::new(LogSettings::of(&draft.config)),
        })?;
        format = detect(path, &text);
        match format {
            Format::Toml => toml_file::read(&text, &mut draft),
            Format::ZooCfg => zoo::read(&text, &mut draft, &read_text),
        }
    }
    for item in overrides {
        draft.assign(&item.path, &item.value, Source::Flag(item.flag), &value::shortened(&item.path));
    }
    if format == Format::ZooCfg {
        require(&mut draft, "server.data_dir", "dataDir", "--data-dir");
    }
    if draft.awaits_names_alone() {
        ensemble::settle(&mut draft, &read_text);
    }
    if format == Format::ZooCfg {
        zoo_tls::Found::secure_alone(&mut draft);
        require(&mut draft, "server.client_addr", "clientPort", "--client-addr");
    }
    if draft.awaits_names_alone() {
        derive(&mut draft, format);
        tls::derive(&mut draft);
        check(&mut draft);
        check_logging(&mut draft);
        tls::check(&mut draft);
        admin::check(&mut draft);
        admin::check_addresses(&mut draft);
        ensemble::check(&mut draft);
    }
    finish(draft)
}

/// Every key with its value in TOML. Secrets are hidden.
pub(crate) fn values(config: &Config) -> Vec<(&'static str, String)> {
    keys::KEYS.iter().map(|key| (key.path, (key.show)(config))).collect()
}

/// The format by the file's extension (`.toml`; `.cfg`, `.properties`), else by its first line with content. TOML of
/// this server always begins with a `[section]`.
fn detect(path: &Path, text: &str) -> Format {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => return Format::Toml,
        Some("cfg" | "properties") => return Format::ZooCfg,
        _ => {}
    }
    let mut lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with(['#', '!']));
    match lines.next() {
        Some(line) if !line.starts_with('[') => Format::ZooCfg,
        _ => Format::Toml,
    }
}

/// A key without which a `zoo.cfg` is not complete, unless a flag gives the value.
fn require(draft: &mut Draft, path: &str, zoo_key: &str, flag: &str) {
    let failed_already = draft.problems.iter().any(|problem| {
        problem.key.starts_with(zoo_key) || problem.key.starts_with("server.") && problem.rejection.unresolved.is_some()
    });
    // The line of this server in the list may have it, and is not known after another problem.
    let may_be_listed = !draft.problems.is_empty() && !draft.config.ensemble.servers.0.is_empty();
    if draft.source(path) == Source::ZooKeeperDefault && !failed_already && !may_be_listed {
        let rejection = Rejection::new("the key is missing", format!("add the line, or give {flag}"));
        draft.problem_at(draft.file_name(), zoo_key, rejection);
    }
}

/// Replaces the values that stand for "derive it" by derived ones.
fn derive(draft: &mut Draft, format: Format) {
    let tick_ms = draft.config.server.tick_time_ms;
    let sessions = &mut draft.config.sessions;
    if sessions.timeout_min_ms == 0 {
        sessions.timeout_min_ms = tick_ms.saturating_mul(2);
        draft.sources.insert("sessions.timeout_min_ms", Source::Derived("2 x server.tick_time_ms"));
    }
    if sessions.timeout_max_ms == 0 {
        sessions.timeout_max_ms = tick_ms.saturating_mul(20);
        draft.sources.insert("sessions.timeout_max_ms", Source::Derived("20 x server.tick_time_ms"));
    }
    let ensemble = &mut draft.config.ensemble;
    if ensemble.hold_ms == 0 {
        ensemble.hold_ms = ensemble.election_ms.saturating_mul(HOLD_ELECTIONS);
        draft.sources.insert("ensemble.hold_ms", Source::Derived("20 x ensemble.election_ms"));
    }
    let frames_bytes = FRAMES_PER_SEGMENT_MIN * u64::from(draft.config.limits.frame_bytes_max);
    let source = draft.source("log.segment_bytes");
    // In a zoo.cfg, preAllocSize bounds nothing: ZooKeeper makes its files longer.
    let may_grow = source == Source::Default || (format == Format::ZooCfg && matches!(source, Source::Line(_)));
    if may_grow && draft.config.log.segment_bytes < frames_bytes {
        draft.config.log.segment_bytes = frames_bytes.next_multiple_of(PAGE_BYTES);
        draft.sources.insert("log.segment_bytes", Source::Derived("4 x limits.frame_bytes_max"));
    }
    draft.config.log.segment_bytes -= draft.config.log.segment_bytes % PAGE_BYTES;
    if draft.config.server.log_dir.as_os_str().is_empty() {
        draft.config.server.log_dir = draft.config.server.data_dir.clone();
        draft.sources.insert("server.log_dir", Source::Derived("server.data_dir"));
    }
}

/// Checks relations between keys; the problem is noted at the key that names the bound.
fn check(draft: &mut Draft) {
    let config = draft.config.clone();
    let (limits, runtime) = (&config.limits, &config.runtime);
    if config.server.data_dir.as_os_str().is_empty() {
        contradiction(draft, "server.data_dir", "the path is empty".to_owned(), "name a directory");
    }
    if config.sessions.timeout_min_ms > config.sessions.timeout_max_ms {
        let reason = format!(
            "{} is above sessions.timeout_max_ms = {}",
            config.sessions.timeout_min_ms, config.sessions.timeout_max_ms
        );
        contradiction(
            draft,
            "sessions.timeout_min_ms",
            reason,
            "lower it, or raise sessions.timeout_max_ms (maxSessionTimeout)",
        );
    }
    if limits.reply_buffer_bytes_soft_max > limits.reply_buffer_bytes_hard_max {
        let reason = format!(
            "{} is above the hard limit {}",
            limits.reply_buffer_bytes_soft_max, limits.reply_buffer_bytes_hard_max
        );
        contradiction(
            draft,
            "limits.reply_buffer_bytes_soft_max",
            reason,
            "lower it, or raise limits.reply_buffer_bytes_hard_max",
        );
    }
    if limits.inflight_bytes_per_shard_max < u64::from(limits.frame_bytes_max) {
        let reason =
            format!("{} is less than one frame of {}", limits.inflight_bytes_per_shard_max, limits.frame_bytes_max);
        contradiction(
            draft,
            "limits.inflight_bytes_per_shard_max",
            reason,
            "raise it, or lower limits.frame_bytes_max",
        );
    }
    if config.log.segment_bytes / FRAMES_PER_SEGMENT_MIN < u64::from(limits.frame_bytes_max) {
        let reason = format!("{} is less than four frames of {}", config.log.segment_bytes, limits.frame_bytes_max);
        let remedy = "raise log.segment_bytes (preAllocSize), or lower limits.frame_bytes_max (jute.maxbuffer)";
        contradiction(draft, "log.segment_bytes", reason, remedy);
    }
    if runtime.heartbeat_idle_ms < runtime.heartbeat_busy_ms {
        let reason =
            format!("{} is below runtime.heartbeat_busy_ms = {}", runtime.heartbeat_idle_ms, runtime.heartbeat_busy_ms);
        contradiction(draft, "runtime.heartbeat_idle_ms", reason, "raise it, or lower the other");
    }
    if runtime.watchdog_frozen_ms < runtime.heartbeat_idle_ms.saturating_mul(HEARTBEATS_MISSED) {
        let reason = format!(
            "{} is less than {HEARTBEATS_MISSED} times runtime.heartbeat_idle_ms = {}",
            runtime.watchdog_frozen_ms, runtime.heartbeat_idle_ms
        );
        contradiction(draft, "runtime.watchdog_frozen_ms", reason, "raise it, or lower the other");
    }
    if runtime.watchdog_exit_ms <= runtime.watchdog_frozen_ms {
        let reason = format!(
            "{} is not above runtime.watchdog_frozen_ms = {}",
            runtime.watchdog_exit_ms, runtime.watchdog_frozen_ms
        );
        contradiction(draft, "runtime.watchdog_exit_ms", reason, "raise it, or lower the other");
    }
}

/// Checks the settings of the log.
fn check_logging(draft: &mut Draft) {
    let config = draft.config.clone();
    let log = &config.logging.file;
    let is_of_server = |path: &Path| !path.as_os_str().is_empty() && log.starts_with(path);
    if [&config.server.data_dir, &config.server.log_dir, &config.audit.file, &config.admin.token_file]
        .iter()
        .any(|path| is_of_server(path))
    {
        let reason = "the file is in the data directory, or is another file of the server".to_owned();
        contradiction(draft, "logging.file", reason, "name a file in another directory");
    }
    if let Some(wrong) = config.logging.modules.0.iter().find(|one| !is_module_level(one)) {
        let reason = format!("{:?} is no level of a module", value::shortened(wrong));
        contradiction(draft, "logging.modules", reason, "give MODULE=LEVEL, such as \"corral::net=debug\"");
    }
}

/// Whether this is `MODULE=LEVEL`, as in `corral::net=debug`.
fn is_module_level(text: &str) -> bool {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":_-".contains(&byte))
    };
    text.split_once('=').is_some_and(|(module, level)| is_name(module) && LEVELS.contains(&level))
}

fn contradiction(draft: &mut Draft, path: &'static str, reason: String, remedy: &str) {
    let source = draft.source(path);
    draft.problem(&source, path, Rejection::new(reason, remedy));
}

fn finish(mut draft: Draft) -> Result<Loaded, Refused> {
    const SHOWN_MAX: usize = 50;
    if draft.problems.is_empty() {
        let Draft { config, sources, warnings, notes, file, .. } = draft;
        return Ok(Loaded { config, sources, file, warnings, notes });
    }
    draft.problems.sort_by_key(|problem| line_of(&problem.place));
    let mut lines: Vec<String> = draft.problems.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    if draft.problems.len() > SHOWN_MAX {
        lines.push(format!("and {} more", draft.problems.len() - SHOWN_MAX));
    }
    let mut unresolved = Vec::new();
    if draft.awaits_names_alone() {
        unresolved.extend(draft.problems.into_iter().filter_map(|problem| problem.rejection.unresolved));
        unresolved.sort();
        unresolved.dedup();
    }
    let fault = Fault::new(ExitCode::Config, lines.join("\n"));
    Err(Refused { fault, unresolved, logging: Box::new(LogSettings::of(&draft.config)) })
}

/// The line of a place such as `corral.toml:12`, for sorting.
fn line_of(place: &str) -> Option<u32> {
    place.rsplit_once(':').and_then(|(_, line)| line.parse().ok())
}

#[cfg(test)]
mod ensemble_tests;
#[cfg(test)]
mod keys_tests;
#[cfg(test)]
mod secured_tests;
#[cfg(test)]
mod tests;
