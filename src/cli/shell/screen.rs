//! The output of the shell: results as text, as one JSON document, or as JSON lines, and events of watches.

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use corral_client::{Event, EventType, KeeperState, Stat};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::cli::output::{Output, plain};
use crate::exit::Fault;

/// Bytes of a line of a hexdump.
const HEX_COLUMNS: usize = 16;
const RED: &str = "31";
const CYAN: &str = "36";

/// How results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// As zkCli.sh shows them
    Text,
    /// One document a command
    Json,
    /// One line a result
    Jsonl,
}

/// Shows text beside the line that is typed, or gives it back.
pub(super) type Aside = Box<dyn FnMut(String) -> Result<(), String>>;

/// Standard output and standard error.
pub(super) struct Screen {
    format: Format,
    is_terminal: bool,
    colors: bool,
    /// Locked from the first byte to the next flush only: on a terminal the line editor writes too.
    out: RefCell<Option<Output>>,
    /// Results of a list so far.
    listed: Cell<Option<usize>>,
    events: RefCell<Option<Aside>>,
    fault: RefCell<Option<Fault>>,
}

impl Screen {
    pub(super) fn new(format: Format) -> Screen {
        let is_terminal = io::stdout().is_terminal();
        let colors = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Screen {
            format,
            is_terminal,
            colors,
            out: RefCell::new(None),
            listed: Cell::new(None),
            events: RefCell::new(None),
            fault: RefCell::new(None),
        }
    }

    pub(super) fn is_text(&self) -> bool {
        self.format == Format::Text
    }

    /// A line on standard error that is no error.
    pub(super) fn aside(&self, text: &str) {
        self.flush();
        // Without a standard error the exit code remains.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// From now on events go there.
    pub(super) fn set_events(&self, aside: Option<Aside>) {
        self.events.replace(aside);
    }

    /// A line that is not part of the result. JSON has no place for it.
    pub(super) fn note(&self, text: &str) {
        if self.format == Format::Text {
            self.put(&format!("{text}\n"));
        }
    }

    /// A result, or the next one of a list. Text has its own line ends.
    pub(super) fn show(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) {
        let text = match self.format {
            Format::Text => text(),
            Format::Jsonl => format!("{}\n", json()),
            Format::Json => {
                let (before, after) = match self.listed.get() {
                    Some(0) => ("\n", ""),
                    Some(_) => (",\n", ""),
                    None => ("", "\n"),
                };
                self.listed.set(self.listed.get().map(|count| count + 1));
                format!("{before}{:#}{after}", json())
            }
        };
        self.put(&text);
    }

    /// The results until [`Screen::end_list`] are one list.
    pub(super) fn begin_list(&self) {
        if self.format == Format::Json {
            self.listed.set(Some(0));
            self.put("[");
        }
    }

    pub(super) fn end_list(&self) {
        if let Some(count) = self.listed.take() {
            self.put(if count == 0 { "]\n" } else { "\n]\n" });
        }
    }

    /// A line on standard error.
    pub(super) fn error(&self, text: &str) {
        let paints = self.colors && io::stderr().is_terminal();
        self.aside(&if paints { painted(RED, text) } else { text.to_owned() });
    }

    /// An event of a watch, or a change of the session's state.
    pub(super) fn event(&self, event: &Event) {
        let path = if event.path.is_empty() { "null" } else { &event.path };
        let (state, kind) = (state_name(event.state), kind_name(event.kind));
        let text = match self.format {
            Format::Text => {
                let line = format!("WatchedEvent state:{state} type:{kind} path:{path} zxid: {}", event.zxid);
                let line = if self.colors { painted(CYAN, &line) } else { line };
                format!("\nWATCHER::\n\n{line}\n")
            }
            _ => format!("{}\n", json!({"event": kind, "state": state, "path": event.path, "zxid": event.zxid})),
        };
        self.flush();
        let shown = match &mut *self.events.borrow_mut() {
            Some(aside) => aside(text),
            None => Err(text),
        };
        if let Err(text) = shown {
            self.put(&text);
            self.flush();
        }
    }

    pub(super) fn put(&self, text: &str) {
        let written = self.out.borrow_mut().get_or_insert_with(Output::new).write(text);
        self.judge(written);
    }

    pub(super) fn flush(&self) {
        let out = self.out.take();
        self.judge(out.map_or(Ok(()), |mut out| out.finish()));
    }

    fn judge(&self, done: Result<(), Fault>) {
        if let Err(fault) = done {
            self.fault.borrow_mut().get_or_insert(fault);
        }
    }

    /// Why standard output could not be written, if that happened.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.take()
    }

    /// A path. In a pipe it is not changed: a command may take it.
    pub(super) fn name(&self, path: &str) -> String {
        if self.is_terminal { plain(path) } else { path.to_owned() }
    }

    /// Data as text. A terminal gets no control characters.
    pub(super) fn data(&self, data: &[u8]) -> String {
        let text = String::from_utf8_lossy(data);
        if !self.is_terminal {
            return text.into_owned();
        }
        text.chars().map(|one| if one.is_control() && !matches!(one, '\n' | '\t') { '?' } else { one }).collect()
    }
}

fn painted(color: &str, text: &str) -> String {
    format!("\x1b[{color}m{text}\x1b[0m")
}

fn state_name(state: KeeperState) -> String {
    format!("{state:?}")
}

fn kind_name(kind: EventType) -> String {
    format!("{kind:?}")
}

/// The Stat as zkCli prints it, in the zone of this host.
pub(super) fn stat_text(stat: &Stat) -> String {
    format!(
        "cZxid = {:#x}\nctime = {}\nmZxid = {:#x}\nmtime = {}\npZxid = {:#x}\ncversion = {}\ndataVersion = {}\n\
         aclVersion = {}\nephemeralOwner = {:#x}\ndataLength = {}\nnumChildren = {}\n",
        stat.czxid,
        date(stat.ctime),
        stat.mzxid,
        date(stat.mtime),
        stat.pzxid,
        stat.cversion,
        stat.version,
        stat.aversion,
        stat.ephemeral_owner,
        stat.data_length,
        stat.num_children
    )
}

/// Zxids and sessions hexadecimal, times in milliseconds since 1970.
pub(super) fn stat_json(stat: &Stat) -> Value {
    json!({
        "czxid": format!("{:#x}", stat.czxid),
        "mzxid": format!("{:#x}", stat.mzxid),
        "pzxid": format!("{:#x}", stat.pzxid),
        "ctime": stat.ctime,
        "mtime": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeral_owner": format!("{:#x}", stat.ephemeral_owner),
        "data_length": stat.data_length,
        "num_children": stat.num_children,
    })
}

/// A time as `java.util.Date` prints it.
pub(super) fn date(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(at) => at.to_zoned(TimeZone::system()).strftime("%a %b %d %H:%M:%S %Z %Y").to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// Data for JSON: `data` if they are text, else `base64`. Null is null.
pub(super) fn data_json(data: Option<&[u8]>) -> Value {
    match data.map(|data| (data, std::str::from_utf8(data))) {
        None => json!({"data": null}),
        Some((_, Ok(text))) => json!({"data": text}),
        Some((data, Err(_))) => json!({"base64": STANDARD.encode(data)}),
    }
}

/// As netty's `prettyHexDump`.
pub(super) fn hexdump(data: &[u8]) -> String {
    if data.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "         +-------------------------------------------------+\n         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |\n\
         +--------+-------------------------------------------------+----------------+\n",
    );
    for (row, bytes) in data.chunks(HEX_COLUMNS).enumerate() {
        let hex: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
        let shown: String =
            bytes.iter().map(|byte| if matches!(byte, 0x20..0x7f) { char::from(*byte) } else { '.' }).collect();
        text += &format!("|{:08x}|{hex:<48} |{shown:<16}|\n", row * HEX_COLUMNS);
    }
    text + "+--------+-------------------------------------------------+----------------+"
}
