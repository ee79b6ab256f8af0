//! corral's own configuration format: TOML with a line number for everything.
//!
//! Start-up only, on the main thread. It walks the parsed document and hands each value to the key table; it knows no
//! key by name except the per-core table `[[core]]`.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::core_rows::{CORES_MAX, CoreRow, ROW_KEYS};
use crate::config::keys::{KEYS, SECTIONS};
use crate::config::problem::{Draft, Source, nearest, unknown_key};
use crate::config::value::{Field as _, Raw, Rejection, Secret, shortened};

/// The section name of the per-core table.
const CORE: &str = "core";

/// Reads a whole TOML document into the draft.
pub(crate) fn read(text: &str, draft: &mut Draft) {
    let lines = &Lines::new(text);
    let document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let line = error.span().map_or(1, |span| lines.of(&span));
            return draft.problem(&Source::Line(line), "", not_toml(&error, text, line));
        }
    };
    for (name, value) in document.get_ref() {
        if draft.is_full() {
            return;
        }
        let source = Source::Line(lines.of(&name.span()));
        match (name.get_ref().as_ref(), value.get_ref()) {
            (CORE, DeValue::Array(rows)) => read_cores(rows, lines, draft),
            (CORE, _) => {
                draft.problem(&source, CORE, Rejection::new("`core` is no list", "write each row below [[core]]"));
            }
            (section, DeValue::Table(table)) if SECTIONS.iter().any(|(known, _)| *known == section) => {
                read_section(section, table, lines, draft);
            }
            (section, _) => draft.problem(&source, &shortened(section), unknown_section(section)),
        }
    }
}

/// The rejection of a text that is not TOML. Carets below a copy of the line point to the place, if the line can be shown.
fn not_toml(error: &toml::de::Error, text: &str, line: u32) -> Rejection {
    // The first line names line and column, the next three show the place.
    let picture = error.to_string();
    let mut picture = picture.lines();
    let column = picture.next().and_then(|heading| heading.rsplit_once(", ")).map(|(_, column)| column);
    let column = column.filter(|_| error.span().is_some()).map(|column| format!(" in {column}")).unwrap_or_default();
    let reason = format!("this is not TOML: {}{column}", error.message().replace('\n', " "));
    let number = usize::try_from(line).unwrap_or(usize::MAX);
    let shown = match text.lines().nth(number - 1) {
        Some(line) if !column.is_empty() && is_shown(line, text) => picture.take(3).collect(),
        _ => Vec::new(),
    };
    Rejection::new(reason, [vec!["correct the line"], shown].concat().join("\n"))
}

/// Whether a message may hold a copy of this line of the text. It must be short, carets must stand below the right
/// letters, and no part of a secret may be on it.
fn is_shown(line: &str, text: &str) -> bool {
    const LINE_BYTES_MAX: usize = 200;
    let mut secrets =
        KEYS.iter().filter(|key| key.kind == Secret::KIND).filter_map(|key| key.path.split('.').next_back());
    let is_plain = line.len() <= LINE_BYTES_MAX && line.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    // A value of several lines may be a secret with its key on another line.
    is_plain && !secrets.any(|key| line.contains(key)) && !text.contains("\"\"\"") && !text.contains("'''")
}

/// One value for `--set KEY=VALUE`: a TOML value if it is one, else the text itself.
pub(crate) fn read_value(text: &str) -> Raw {
    let document = format!("value = {text}");
    match DeTable::parse(&document) {
        Ok(table) if table.get_ref().len() == 1 => {
            table.get_ref().values().next().map_or(Raw::Other("table"), |value| raw(value.get_ref()))
        }
        _ => Raw::Text(text.to_owned()),
    }
}

fn read_section(section: &str, table: &DeTable<'_>, lines: &Lines, draft: &mut Draft) {
    for (name, value) in table {
        let path = format!("{section}.{}", name.get_ref());
        let source = Source::Line(lines.of(&name.span()));
        draft.assign(&path, &raw(value.get_ref()), source, &shortened(&path));
    }
}

fn read_cores(rows: &[Spanned<DeValue<'_>>], lines: &Lines, draft: &mut Draft) {
    if rows.len() > CORES_MAX {
        let source = Source::Line(rows.first().map_or(1, |row| lines.of(&row.span())));
        let reason = format!("{} rows are too many", rows.len());
        draft.problem(&source, CORE, Rejection::new(reason, format!("give at most {CORES_MAX} rows")));
        return;
    }
    for row in rows {
        let line = lines.of(&row.span());
        let Some(table) = row.get_ref().as_table() else {
            draft.problem(
                &Source::Line(line),
                CORE,
                Rejection::new("the row is no table", "write rows below [[core]]"),
            );
            continue;
        };
        if let Some(row) = read_core(table, line, lines, draft) {
            draft.config.cores.push(row);
        }
    }
}

/// One row of the per-core table; `None` once a problem was noted.
fn read_core(table: &DeTable<'_>, line: u32, lines: &Lines, draft: &mut Draft) -> Option<CoreRow> {
    let problems_before = draft.problems.len();
    let mut row = CoreRow::at_line(line);
    for (name, value) in table {
        let source = Source::Line(lines.of(&name.span()));
        let shown = shortened(&format!("{CORE}.{}", name.get_ref()));
        match ROW_KEYS.iter().find(|key| key.name == name.get_ref().as_ref()) {
            Some(key) => {
                if let Err(rejection) = (key.set)(&mut row, &raw(value.get_ref()), key.limits) {
                    draft.problem(&source, &shown, rejection);
                }
            }
            None => draft.problem(&source, &shown, unknown_row_key(name.get_ref())),
        }
    }
    if !table.iter().any(|(name, _)| name.get_ref() == "role") {
        draft.problem(&Source::Line(line), CORE, Rejection::new("the row has no role", "add role = \"shard\""));
    }
    (draft.problems.len() == problems_before).then_some(row)
}

fn unknown_section(section: &str) -> Rejection {
    let remedy = match nearest(section, SECTIONS.iter().map(|(name, _)| *name)) {
        Some(near) => format!("did you mean [{near}]? `corral check-config --reference` lists all sections"),
        None => "`corral check-config --reference` lists all sections".to_owned(),
    };
    Rejection::new(format!("the section [{}] is not known", shortened(section)), remedy)
}

fn unknown_row_key(name: &str) -> Rejection {
    let known: Vec<&str> = ROW_KEYS.iter().map(|key| key.name).collect();
    let mut rejection = unknown_key(&format!("{CORE}.{name}"));
    rejection.remedy = format!("a row takes {}", known.join(", "));
    rejection
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Boolean(flag) => Raw::Boolean(*flag),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Raw::Integer(number),
            Err(_) => Raw::Other("number of that many digits"),
        },
        DeValue::Array(list) => {
            let texts: Option<Vec<String>> =
                list.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
            texts.map_or(Raw::Other("list of something other than texts"), Raw::List)
        }
        DeValue::Float(_) => Raw::Other("float"),
        DeValue::Datetime(_) => Raw::Other("date"),
        DeValue::Table(_) => Raw::Other("table"),
    }
}

/// Turns byte positions of a document into line numbers.
struct Lines {
    /// Positions of all line ends, ascending.
    ends: Vec<usize>,
}

impl Lines {
    fn new(text: &str) -> Lines {
        Lines { ends: text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect() }
    }

    /// The line, counted from 1, that a span begins on.
    fn of(&self, span: &Range<usize>) -> u32 {
        let ends_before = self.ends.partition_point(|&end| end < span.start);
        u32::try_from(ends_before + 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn draft(text: &str) -> Draft {
        let mut draft = Draft::new(Some(Path::new("c.toml")));
        read(text, &mut draft);
        draft
    }

    #[track_caller]
    fn check_bad(text: &str, expect: &[&str]) {
        let draft = draft(text);
        let shown: Vec<String> = draft.problems.iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), expect.len(), "{shown:?}");
        for (shown, expect) in shown.iter().zip(expect) {
            assert!(shown.starts_with(expect), "{shown:?} does not begin with {expect:?}");
        }
    }

    #[test]
    fn good_values_and_their_lines() {
        let draft = draft(concat!(
            "# comment\n[server]\ntick_time_ms = 100\ndata_dir = '/x y'\nclient_addr = \"[::1]:2182\"\n\n",
            "[commands]\nfour_letter_whitelist = [\n \"ruok\",\n]\n[limits]\nframe_bytes_max = 0x10_0000\n",
            "[[core]]\ncpu = 1\nrole = \"shard\"\nconnections_max = 9\n[[core]]\nrole = \"consensus\"\n",
        ));
        assert_eq!(draft.problems, []);
        assert_eq!((draft.config.server.tick_time_ms, draft.config.limits.frame_bytes_max), (100, 0x10_0000));
        assert_eq!(draft.config.server.data_dir, Path::new("/x y"));
        assert_eq!(draft.source("server.tick_time_ms"), Source::Line(3));
        assert_eq!(draft.source("commands.four_letter_whitelist"), Source::Line(8));
        assert_eq!(draft.source("server.server_id"), Source::Default);
        let rows: Vec<_> = draft.config.cores.iter().map(|row| (row.cpu, row.connections_max, row.line)).collect();
        assert_eq!(rows, [(Some(1), Some(9), 13), (None, None, 17)]);
    }

    #[test]
    fn bad_lines() {
        check_bad(
            "[server]\ntick_time = 5",
            &["c.toml:2: server.tick_time: the key `server.tick_time` is not known; did you"],
        );
        check_bad("[serve]\n", &["c.toml:1: serve: the section [serve] is not known; did you mean [server]?"]);
        check_bad("tick_time_ms = 5", &["c.toml:1: tick_time_ms: the section [tick_time_ms] is not known"]);
        check_bad("server = 5", &["c.toml:1: server: the section [server] is not known"]);
        check_bad(
            "[server]\n\ntick_time_ms = \"5\"",
            &["c.toml:3: server.tick_time_ms: the text \"5\" has the wrong type;"],
        );
        check_bad("[server]\ntick_time_ms = 5.0", &["c.toml:2: server.tick_time_ms: a float has the wrong type"]);
        check_bad("[server]\ntick_time_ms = [1]", &["c.toml:2: server.tick_time_ms: a list of something"]);
        check_bad(
            "[server]\ntick_time_ms = 1",
            &["c.toml:2: server.tick_time_ms: 1 is too small; give a whole number"],
        );
        check_bad(
            "[server]\ntick_time_ms = 1\nserver_id = 255",
            &["c.toml:3: server.server_id", "c.toml:2: server.tick"],
        );
        check_bad("[server]\ntick_time_ms = 1e", &["c.toml:2: this is not TOML"]);
        check_bad("[server]\nserver_id = 1\nserver_id = 2", &["c.toml:3: this is not TOML: duplicate key"]);
        check_bad("[server]\ndata_dir.x = 1", &["c.toml:2: server.data_dir: a table has the wrong type"]);
        check_bad("tickTime=2000\ndataDir=/x\n", &["c.toml:2: this is not TOML"]);
        check_bad(
            "[server]\nserver_id = 99999999999999999999999999999999999999999999",
            &["c.toml:2: server.server_id: a number"],
        );
    }

    #[test]
    fn what_is_not_toml_is_shown_with_its_column() {
        let shown = |text: &str| draft(text).problems[0].to_string();
        assert_eq!(
            shown("[server]\nserver_id = 1\nserver_id = 2"),
            "c.toml:3: this is not TOML: duplicate key in column 1; correct the line\n  |\n3 | server_id = 2\n  | ^^^^^^^^^"
        );
        // Neither a secret nor what a terminal might obey is copied.
        for text in [
            "[security]\nsuper_digest = \"super:D/In=",
            "[server]\nx = \"\u{1b}[31m",
            "[security]\nsuper_digest = \"\"\"\nsuper:D/In= \\q \"\"\"",
            &format!("[server]\nx = \"{}", "y".repeat(300)),
        ] {
            let shown = shown(text);
            assert!(shown.contains(" in column ") && shown.lines().count() == 1, "{shown}");
        }
    }

    #[test]
    fn bad_core_rows() {
        check_bad("[core]\ncpu = 1", &["c.toml:1: core: `core` is no list"]);
        check_bad("core = [1]", &["c.toml:1: core: the row is no table"]);
        check_bad("[[core]]\ncpu = 1", &["c.toml:1: core: the row has no role"]);
        check_bad("[[core]]\nrole = \"king\"", &["c.toml:2: core.role: \"king\" is not known; give one of"]);
        check_bad(
            "[[core]]\nrole = \"shard\"\nrings = 5",
            &["c.toml:3: core.rings: the key `core.rings` is not known; a row"],
        );
        check_bad("[[core]]\nrole = \"shard\"\nring_depth = 5", &["c.toml:3: core.ring_depth: 5 is too small"]);
        check_bad(&"[[core]]\nrole = \"shard\"\n".repeat(CORES_MAX + 1), &["c.toml:1: core: 1025 rows are too many"]);
    }

    #[test]
    fn values_of_set() {
        assert_eq!(read_value("5"), Raw::Integer(5));
        assert_eq!(read_value("true"), Raw::Boolean(true));
        assert_eq!(read_value("[\"a\"]"), Raw::List(vec!["a".to_owned()]));
        assert_eq!(read_value("./data"), Raw::Text("./data".to_owned()));
        assert_eq!(read_value("1\nother = 2"), Raw::Text("1\nother = 2".to_owned()));
        assert_eq!(read_value(""), Raw::Text(String::new()));
    }
}
