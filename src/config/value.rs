//! The types a configuration value may have, and how each is read and shown.
//!
//! Pure data, used at start-up on the main thread only. It does not know which keys exist, nor which file format a
//! value came from: both formats and the command line hand in a `Raw`. Every refusal has a reason and a remedy.

use std::fmt::Write as _;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use corral_peer::ClusterName;

use crate::config::four_letter::FourLetterCommands;

/// A value as a file or flag spells it, before it has a meaning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raw {
    Integer(i128),
    Boolean(bool),
    Text(String),
    List(Vec<String>),
    /// Anything no key takes (a float, a date, a table, a list of lists), with its name for the message.
    Other(&'static str),
}

impl Raw {
    /// The shape and value as a message should name it.
    fn described(&self) -> String {
        match self {
            Raw::Integer(number) => format!("the number {number}"),
            Raw::Boolean(flag) => format!("the truth value {flag}"),
            Raw::Text(text) => format!("the text {text:?}"),
            Raw::List(_) => "a list".to_owned(),
            Raw::Other(name) => format!("a {name}"),
        }
    }
}

/// Why a value is refused, and the remedy; the two halves of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {remedy}")]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) remedy: String,
    /// The host name that does not resolve, if that is the reason and it may resolve later.
    pub(crate) unresolved: Option<String>,
}

impl Rejection {
    pub(crate) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Rejection {
        Rejection { reason: reason.into(), remedy: remedy.into(), unresolved: None }
    }

    fn wrong_type(raw: &Raw, remedy: impl Into<String>) -> Rejection {
        Rejection::new(format!("{} has the wrong type", raw.described()), remedy)
    }
}

/// Inclusive bounds of a number, in the unit of its key. `Limits::NONE` if the value is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Limits {
    pub(crate) const NONE: Limits = Limits { min: 0, max: 0 };

    pub(crate) const fn range(min: u64, max: u64) -> Limits {
        assert!(min < max, "a range holds more than one value");
        Limits { min, max }
    }
}

/// A type that a configuration key may have.
pub(crate) trait Field: Sized {
    /// The type's name in the reference.
    const KIND: &'static str;

    /// Reads a raw value; refuses the wrong type and values outside `limits`.
    fn parse(raw: &Raw, limits: Limits) -> Result<Self, Rejection>;

    /// The value as TOML spells it, one line.
    fn show(&self) -> String;
}

macro_rules! whole_number {
    ($($ty:ty),+) => {$(
        impl Field for $ty {
            const KIND: &'static str = "whole number";

            fn parse(raw: &Raw, limits: Limits) -> Result<Self, Rejection> {
                let remedy = format!("give a whole number from {} to {}", limits.min, limits.max);
                let Raw::Integer(number) = raw else {
                    return Err(Rejection::wrong_type(raw, remedy));
                };
                if *number < i128::from(limits.min) {
                    return Err(Rejection::new(format!("{number} is too small"), remedy));
                }
                if *number > i128::from(limits.max) {
                    return Err(Rejection::new(format!("{number} is too large"), remedy));
                }
                <$ty>::try_from(*number).map_err(|_| Rejection::new(format!("{number} is too large"), remedy))
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

whole_number!(u8, u16, u32, u64);

impl Field for bool {
    const KIND: &'static str = "true or false";

    fn parse(raw: &Raw, _limits: Limits) -> Result<Self, Rejection> {
        match raw {
            Raw::Boolean(flag) => Ok(*flag),
            _ => Err(Rejection::wrong_type(raw, "give true or false, without quotes")),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Longest text or path a key takes, bytes: the kernel's PATH_MAX.
const TEXT_BYTES_MAX: usize = 4096;

fn text<'a>(raw: &'a Raw, remedy: &str) -> Result<&'a str, Rejection> {
    let Raw::Text(text) = raw else {
        return Err(Rejection::wrong_type(raw, remedy));
    };
    if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
        return Err(Rejection::new(format!("the text holds a zero byte or more than {TEXT_BYTES_MAX} bytes"), remedy));
    }
    Ok(text)
}

/// The text in double quotes as a TOML basic string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => write!(out, "\\u{:04X}", u32::from(c)).expect("a String takes every write"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Field for PathBuf {
    const KIND: &'static str = "path";

    fn parse(raw: &Raw, _limits: Limits) -> Result<Self, Rejection> {
        text(raw, "give a path in double quotes").map(PathBuf::from)
    }

    fn show(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

impl Field for SocketAddr {
    const KIND: &'static str = "address:port";

    fn parse(raw: &Raw, _limits: Limits) -> Result<Self, Rejection> {
        let remedy = "give \"address:port\", for example \"127.0.0.1:2181\" or \"[::]:2181\"";
        let text = text(raw, remedy)?;
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        match text.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
            Some((host, Ok(port))) if !host.is_empty() => resolve(host, port),
            _ => Err(Rejection::new(format!("{text:?} is not an address with a port"), remedy)),
        }
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

impl Field for Option<SocketAddr> {
    const KIND: &'static str = "address:port, or empty";

    fn parse(raw: &Raw, limits: Limits) -> Result<Self, Rejection> {
        match raw {
            Raw::Text(text) if text.is_empty() => Ok(None),
            _ => SocketAddr::parse(raw, limits).map(Some),
        }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| quoted(""), Field::show)
    }
}

impl Field for ClusterName {
    const KIND: &'static str = "name";

    fn parse(raw: &Raw, _limits: Limits) -> Result<Self, Rejection> {
        let remedy = "give a name of 1 to 62 letters, digits, -, _ or .";
        let name = text(raw, remedy)?;
        ClusterName::new(name).ok_or_else(|| Rejection::new(format!("{:?} is no name", shortened(name)), remedy))
    }

    fn show(&self) -> String {
        quoted(self.as_str())
    }
}

/// The first address a host name stands for, IPv4 before IPv6. Asks the system's resolver, so only names need the
/// network.
pub(crate) fn resolve(host: &str, port: u16) -> Result<SocketAddr, Rejection> {
    let remedy = "give an IP address of this host, or a name that resolves to one";
    let unresolved = |reason: String| Rejection {
        unresolved: is_host_name(host).then(|| host.to_owned()),
        ..Rejection::new(reason, remedy)
    };
    let found: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| unresolved(format!("the host {host:?} does not resolve: {error}")))?
        .collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| unresolved(format!("the host {host:?} resolves to nothing")))
}

/// Whether the text has the form of a host name. Other texts never resolve.
fn is_host_name(text: &str) -> bool {
    const LABEL_BYTES_MAX: usize = 63;
    const NAME_BYTES_MAX: usize = 253;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_label = |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.chars().all(legal);
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label) && !is_number
}

/// Every address of this host, IPv4 and IPv6, at this port.
pub(crate) fn every_address(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)
}

/// The text in place of a secret that is set, as TOML.
pub(crate) const HIDDEN: &str = "\"(hidden)\"";

/// A text that is never shown, such as a password digest. Empty = not set.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "Secret(unset)" } else { "Secret(hidden)" })
    }
}

impl Field for Secret {
    const KIND: &'static str = "text, never shown";

    fn parse(raw: &Raw, _limits: Limits) -> Result<Self, Rejection> {
        match raw {
            Raw::Text(text) if text.len() <= TEXT_BYTES_MAX => Ok(Secret(text.clone())),
            _ => Err(Rejection::new("the value is not a text of at most 4096 bytes", "give a text in double quotes")),
        }
    }

    fn show(&self) -> String {
        if self.0.is_empty() { "\"\"".to_owned() } else { HIDDEN.to_owned() }
    }
}

/// Declares an enum with words as its values, and reads and shows it as a `Field`.
macro_rules! word_choice {
    ($(#[doc = $doc:literal])+ $name:ident { $( $(#[doc = $vdoc:literal])+ $variant:ident = $word:literal, )+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $( $(#[doc = $vdoc])+ $variant, )+ }

        impl $name {
            /// The word that stands for the value.
            pub(crate) fn word(self) -> &'static str {
                match self { $( $name::$variant => $word, )+ }
            }
        }

        impl Field for $name {
            const KIND: &'static str = concat!("one of", $( " `", $word, "`", )+);

            fn parse(raw: &Raw, _limits: Limits) -> Result<Self, Rejection> {
                const REMEDY: &str = concat!("give one of", $( " \"", $word, "\"", )+);
                match text(raw, REMEDY)? {
                    $( $word => Ok($name::$variant), )+
                    other => Err(Rejection::new(format!("{other:?} is not known"), REMEDY)),
                }
            }

            fn show(&self) -> String {
                quoted(self.word())
            }
        }
    };
}

word_choice! {
    /// How much the server logs.
    LogLevel {
        /// Only what ends or harms the service.
        Error = "error",
        /// Also what an operator should look at.
        Warn = "warn",
        /// Also start, stop, snapshots and other rare events.
        Info = "info",
        /// Also each connection and session.
        Debug = "debug",
        /// Everything; for developers.
        Trace = "trace",
    }
}

word_choice! {
    /// Where the consensus actor runs.
    ConsensusPlacement {
        /// With a shard on hosts of up to four CPUs, else on its own.
        Auto = "auto",
        /// An executor of its own.
        OwnCore = "own-core",
        /// In one executor with shard 0.
        WithShard = "with-shard",
    }
}

word_choice! {
    /// The role of a server of an ensemble, besides serving clients.
    Role {
        /// It votes.
        Participant = "participant",
        /// It follows, and its vote is not asked for.
        Observer = "observer",
    }
}

/// Text without a further meaning here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl Field for Text {
    const KIND: &'static str = "text";

    fn parse(raw: &Raw, _limits: Limits) -> Result<Self, Rejection> {
        text(raw, "give a text in double quotes").map(|text| Text(text.to_owned()))
    }

    fn show(&self) -> String {
        quoted(&self.0)
    }
}

/// Names in the order in which they count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Vec<String>);

impl Field for Names {
    const KIND: &'static str = "list of names";

    fn parse(raw: &Raw, _limits: Limits) -> Result<Self, Rejection> {
        const NAMES_MAX: usize = 100;
        let remedy = "give a list of names in double quotes, such as [\"A\", \"B\"]";
        match raw {
            Raw::List(list) if list.len() <= NAMES_MAX => Ok(Names(list.clone())),
            Raw::List(_) => Err(Rejection::new(format!("the list has more than {NAMES_MAX} names"), remedy)),
            _ => Err(Rejection::wrong_type(raw, remedy)),
        }
    }

    fn show(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|name| quoted(name)).collect();
        format!("[{}]", names.join(", "))
    }
}

word_choice! {
    /// Protocols of the ordinary port for clients.
    OnClientAddr {
        /// Plaintext.
        None = "none",
        /// TLS and plaintext.
        Also = "also",
        /// TLS.
        Only = "only",
    }
}

word_choice! {
    /// Whether clients of TLS are asked for certificates.
    ClientAuth {
        /// They are not asked.
        None = "none",
        /// They are asked, and may have none.
        Want = "want",
        /// They must have one.
        Need = "need",
    }
}

word_choice! {
    /// Hashes of digests, by Java's names.
    DigestAlgorithm {
        /// ZooKeeper's default.
        Sha1 = "SHA1",
        /// SHA-2 of 256 bits.
        Sha256 = "SHA-256",
        /// SHA-2 of 384 bits.
        Sha384 = "SHA-384",
        /// SHA-2 of 512 bits.
        Sha512 = "SHA-512",
        /// SHA-3 of 256 bits.
        Sha3_256 = "SHA3-256",
        /// SHA-3 of 512 bits.
        Sha3_512 = "SHA3-512",
    }
}

word_choice! {
    /// The lines of the audit log.
    AuditFormat {
        /// As ZooKeeper writes them.
        ZooKeeper = "zookeeper",
        /// A JSON object each.
        Json = "json",
    }
}

word_choice! {
    /// The lines of the log.
    LogFormat {
        /// Time, level, text and fields.
        Text = "text",
        /// A JSON object each.
        Json = "json",
    }
}

word_choice! {
    /// Policy for an audit log that is not written fast enough.
    WhenFull {
        /// Writes of clients wait.
        Hold = "hold",
        /// Records are dropped.
        Drop = "drop",
    }
}

word_choice! {
    /// How clients' sockets are served.
    TransportChoice {
        /// By a ring where the kernel can, else by the runtime's sockets.
        Auto = "auto",
        /// By an io_uring of each shard's own.
        Ring = "ring",
        /// By the runtime's sockets.
        Stream = "stream",
    }
}

word_choice! {
    /// The actors that a row of the per-core table runs.
    CoreRole {
        /// A shard: connections, sessions, reads.
        Shard = "shard",
        /// The consensus actor alone.
        Consensus = "consensus",
        /// A shard and the consensus actor in one executor.
        ShardAndConsensus = "shard+consensus",
        /// The log sync thread is pinned here.
        Log = "log",
        /// The control thread is pinned here.
        Control = "control",
    }
}

impl Field for FourLetterCommands {
    const KIND: &'static str = "list of four-letter commands";

    fn parse(raw: &Raw, _limits: Limits) -> Result<Self, Rejection> {
        let remedy = "give a list of ZooKeeper's four-letter commands such as [\"srvr\", \"ruok\"], or [\"*\"] for all";
        let Raw::List(list) = raw else {
            return Err(Rejection::wrong_type(raw, remedy));
        };
        FourLetterCommands::from_names(list.iter().map(String::as_str))
            .map_err(|unknown| Rejection::new(unknown.to_string(), remedy))
    }

    fn show(&self) -> String {
        let words: Vec<String> = self.names().map(quoted).collect();
        format!("[{}]", words.join(", "))
    }
}

/// A user's text cut to the length that fits a message.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let mut short: String = text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<F: Field>(raw: Raw, limits: Limits, expect: Result<&str, &str>) {
        match (F::parse(&raw, limits), expect) {
            (Ok(value), Ok(shown)) => assert_eq!(value.show(), shown),
            (Err(rejection), Err(part)) => {
                assert!(rejection.reason.contains(part), "{:?} lacks {part:?}", rejection.reason);
                assert!(!rejection.remedy.is_empty());
            }
            (Ok(value), Err(part)) => panic!("{raw:?} gave {} instead of {part:?}", value.show()),
            (Err(rejection), Ok(shown)) => panic!("{raw:?} gave {rejection:?} instead of {shown}"),
        }
    }

    fn words(text: &str) -> Raw {
        Raw::Text(text.to_owned())
    }

    #[test]
    fn numbers() {
        let limits = Limits::range(10, 300);
        check::<u16>(Raw::Integer(10), limits, Ok("10"));
        check::<u16>(Raw::Integer(300), limits, Ok("300"));
        check::<u16>(Raw::Integer(9), limits, Err("too small"));
        check::<u16>(Raw::Integer(-1), limits, Err("too small"));
        check::<u16>(Raw::Integer(301), limits, Err("too large"));
        check::<u8>(Raw::Integer(300), limits, Err("too large"));
        check::<u64>(Raw::Integer(i128::MAX), limits, Err("too large"));
        check::<u32>(words("10"), limits, Err("the text \"10\" has the wrong type"));
        check::<u32>(Raw::Other("float"), limits, Err("a float has the wrong type"));
    }

    #[test]
    fn addresses() {
        check::<SocketAddr>(words("127.0.0.1:2181"), Limits::NONE, Ok("\"127.0.0.1:2181\""));
        check::<SocketAddr>(words("[::1]:0"), Limits::NONE, Ok("\"[::1]:0\""));
        check::<SocketAddr>(words("localhost:2181"), Limits::NONE, Ok("\"127.0.0.1:2181\""));
        check::<SocketAddr>(words("127.0.0.1"), Limits::NONE, Err("is not an address with a port"));
        check::<SocketAddr>(words("127.0.0.1:70000"), Limits::NONE, Err("is not an address with a port"));
        check::<SocketAddr>(words(":2181"), Limits::NONE, Err("is not an address with a port"));
        check::<SocketAddr>(words("no such host:1"), Limits::NONE, Err("does not resolve"));
        check::<SocketAddr>(Raw::Integer(2181), Limits::NONE, Err("wrong type"));
    }

    #[test]
    fn words_and_lists() {
        check::<LogLevel>(words("debug"), Limits::NONE, Ok("\"debug\""));
        check::<LogLevel>(words("DEBUG"), Limits::NONE, Err("is not known"));
        check::<ConsensusPlacement>(words("own-core"), Limits::NONE, Ok("\"own-core\""));
        check::<CoreRole>(words("shard+consensus"), Limits::NONE, Ok("\"shard+consensus\""));
        check::<bool>(Raw::Boolean(true), Limits::NONE, Ok("true"));
        check::<bool>(words("true"), Limits::NONE, Err("wrong type"));
        let list = |names: &[&str]| Raw::List(names.iter().map(|&name| name.to_owned()).collect());
        check::<FourLetterCommands>(list(&["ruok", "stat"]), Limits::NONE, Ok("[\"ruok\", \"srvr\", \"stat\"]"));
        check::<FourLetterCommands>(list(&["ruin"]), Limits::NONE, Err("\"ruin\" is no four-letter command"));
        check::<FourLetterCommands>(words("ruok"), Limits::NONE, Err("wrong type"));
    }

    #[test]
    fn texts() {
        check::<PathBuf>(words("/a \"b\"\\c"), Limits::NONE, Ok(r#""/a \"b\"\\c""#));
        check::<PathBuf>(words(&"x".repeat(5000)), Limits::NONE, Err("more than 4096 bytes"));
        check::<PathBuf>(words("a\0b"), Limits::NONE, Err("zero byte"));
        check::<Secret>(words("super:x"), Limits::NONE, Ok("\"(hidden)\""));
        check::<Secret>(words(""), Limits::NONE, Ok("\"\""));
        check::<Secret>(Raw::Integer(1), Limits::NONE, Err("not a text"));
    }
}
