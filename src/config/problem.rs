//! Problems of a configuration, the source of each value, and the collector that both formats and the flags write into.
//!
//! Start-up only, on the main thread. It does not know file formats; it does know that later sources override earlier
//! ones and that every problem is reported, not only the first.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::keys::{self, Config, KEYS};
use crate::config::value::{Raw, Rejection, Role, shortened};
use crate::config::zoo_keys::ZOO_KEYS;

/// Where an effective value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Built into the server.
    Default,
    /// ZooKeeper's own default, taken because the file is a zoo.cfg.
    ZooKeeperDefault,
    /// Computed; the text names the source.
    Derived(&'static str),
    /// A line of the configuration file, counted from 1.
    Line(u32),
    /// Another file; the text names it, with the line if there are several.
    Elsewhere(String),
    /// The command-line flag of this name.
    Flag(&'static str),
}

/// One problem: the place, the key, the reason and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// `file:line`, a flag's name, or the file's name alone.
    pub(crate) place: String,
    /// The key, or empty when no key is concerned.
    pub(crate) key: String,
    pub(crate) rejection: Rejection,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.rejection)
    }
}

/// Problems and warnings gathered at most; a file can hold hundreds of thousands.
const PROBLEMS_MAX: usize = 1000;
const WARNINGS_MAX: usize = 100;

/// A configuration being put together, and everything noticed on the way.
pub(crate) struct Draft {
    pub(crate) config: Config,
    /// The source of every key that is not at its built-in default.
    pub(crate) sources: BTreeMap<&'static str, Source>,
    /// At most `PROBLEMS_MAX`; with so many the rest is not looked for.
    pub(crate) problems: Vec<Problem>,
    /// At most `WARNINGS_MAX`.
    pub(crate) warnings: Vec<String>,
    /// Usual findings that are worth a line all the same.
    pub(crate) notes: Vec<String>,
    pub(crate) file: Option<PathBuf>,
    /// The statements of a zoo.cfg about this server's place in an ensemble, beside the list of servers.
    pub(crate) quorum: Quorum,
    /// A zoo.cfg has revocation checked; the file may be named by a flag.
    pub(crate) needs_crl_file: Option<(Source, Rejection)>,
}

/// See `Draft::quorum`; each with the place it is said at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quorum {
    /// `peerType`.
    pub(crate) role: Option<(Role, String)>,
    /// `quorumListenOnAllIPs=true`.
    pub(crate) listen_on_all: Option<Source>,
    /// The place of each server's line, by id.
    pub(crate) places: BTreeMap<u8, String>,
}

impl Draft {
    /// Built-in defaults only.
    pub(crate) fn new(file: Option<&Path>) -> Draft {
        Draft {
            config: Config::default(),
            sources: BTreeMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
            file: file.map(Path::to_owned),
            quorum: Quorum::default(),
            needs_crl_file: None,
        }
    }

    /// Sets a known key; a refused value becomes a problem at `source`, named `shown_key` as the user wrote it.
    pub(crate) fn assign(&mut self, path: &str, raw: &Raw, source: Source, shown_key: &str) {
        if self.is_full() {
            return;
        }
        let Some(key) = keys::key(path) else {
            self.problem(&source, shown_key, unknown_key(path));
            return;
        };
        match (key.set)(&mut self.config, raw, key.limits) {
            Ok(()) => {
                self.sources.insert(key.path, source);
            }
            Err(rejection) => self.problem(&source, shown_key, rejection),
        }
    }

    /// Whether so many problems were found that the rest is not looked for.
    pub(crate) fn is_full(&self) -> bool {
        self.problems.len() >= PROBLEMS_MAX
    }

    /// Whether there is no problem but host names that do not resolve.
    pub(crate) fn awaits_names_alone(&self) -> bool {
        self.problems.iter().all(|problem| problem.rejection.unresolved.is_some())
    }

    pub(crate) fn problem(&mut self, source: &Source, key: &str, rejection: Rejection) {
        self.problem_at(self.place(source), key, rejection);
    }

    /// As `problem`, for a place that is no line or flag.
    pub(crate) fn problem_at(&mut self, place: String, key: &str, rejection: Rejection) {
        if !self.is_full() {
            self.problems.push(Problem { place, key: key.to_owned(), rejection });
        }
    }

    /// Notes a warning, unless there are too many already.
    pub(crate) fn warn(&mut self, warning: String) {
        match self.warnings.len() {
            count if count < WARNINGS_MAX - 1 => self.warnings.push(warning),
            count if count < WARNINGS_MAX => self.warnings.push("there are more warnings of this kind".to_owned()),
            _ => {}
        }
    }

    /// The file's name, for messages about the file as a whole.
    pub(crate) fn file_name(&self) -> String {
        self.file.as_deref().unwrap_or(Path::new("configuration")).display().to_string()
    }

    /// Where the value of a key came from.
    pub(crate) fn source(&self, path: &str) -> Source {
        self.sources.get(path).cloned().unwrap_or(Source::Default)
    }

    /// The source as a message names it.
    pub(crate) fn place(&self, source: &Source) -> String {
        place(self.file.as_deref(), source)
    }
}

/// The source as a message names it, such as `corral.toml:12` or `--shards`.
pub(crate) fn place(file: Option<&Path>, source: &Source) -> String {
    match source {
        Source::Default => "default".to_owned(),
        Source::ZooKeeperDefault => "ZooKeeper's default".to_owned(),
        Source::Derived(from) => format!("derived: {from}"),
        Source::Line(line) => format!("{}:{line}", file.unwrap_or(Path::new("configuration")).display()),
        Source::Elsewhere(place) => place.clone(),
        Source::Flag(name) => (*name).to_owned(),
    }
}

/// The rejection of a key that does not exist, with the nearest existing key.
pub(crate) fn unknown_key(path: &str) -> Rejection {
    let name = path.rsplit('.').next().unwrap_or(path);
    let of_zookeeper =
        ZOO_KEYS.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).and_then(|(_, rule)| rule.target());
    let remedy = match of_zookeeper.or_else(|| nearest(path, KEYS.iter().map(|key| key.path))) {
        Some(near) => format!("did you mean `{near}`? `corral check-config --reference` lists all keys"),
        None => "`corral check-config --reference` lists all keys".to_owned(),
    };
    Rejection::new(format!("the key `{}` is not known", shortened(path)), remedy)
}

/// The candidate that differs from `word` by at most three edits, and by at most one for each three letters; the
/// closest first. Two letters in the wrong order are one edit, and capitals do not count.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const EDITS_MAX: usize = 3;
    const FOUR_LETTER_BYTES_MAX: usize = 100;
    if word.len() > FOUR_LETTER_BYTES_MAX {
        return None;
    }
    let edits_max = EDITS_MAX.min(word.chars().count() / 3);
    let small = word.to_lowercase();
    let edits = |candidate: &str| strsim::osa_distance(&small, &candidate.to_lowercase());
    let scored = candidates.into_iter().map(|candidate| (edits(candidate), candidate));
    scored.min_by_key(|(edits, _)| *edits).filter(|(edits, _)| *edits <= edits_max).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_key() {
        let check = |word: &str, expect: Option<&str>| {
            assert_eq!(nearest(word, KEYS.iter().map(|key| key.path)), expect, "{word}");
        };
        check("server.datadir", Some("server.data_dir"));
        check("limits.frame_byte_max", Some("limits.frame_bytes_max"));
        check("server.client_address", Some("server.client_addr"));
        check("Server.Data_Dir", Some("server.data_dir"));
        check("server.adta_dri", Some("server.data_dir"));
        check("nonsense", None);
        check("x", None);
        check("", None);
        check(&"x".repeat(100_000), None);
    }

    #[test]
    fn messages_name_place_key_reason_and_remedy() {
        let mut draft = Draft::new(Some(Path::new("a.toml")));
        draft.assign("server.tick_time_ms", &Raw::Integer(5), Source::Line(7), "server.tick_time_ms");
        draft.assign("server.tick", &Raw::Integer(5), Source::Flag("--set"), "server.tick");
        let shown: Vec<String> = draft.problems.iter().map(Problem::to_string).collect();
        assert_eq!(shown[0], "a.toml:7: server.tick_time_ms: 5 is too small; give a whole number from 10 to 600000");
        assert!(shown[1].starts_with("--set: server.tick: the key `server.tick` is not known; "), "{}", shown[1]);
        let of_zookeeper = unknown_key("server.clientport").remedy;
        assert!(of_zookeeper.starts_with("did you mean `server.client_addr`?"), "{of_zookeeper}");
    }
}
