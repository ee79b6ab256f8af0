//! Tables of the pages that follow from the sources: every line of the log in `docs/operate/log-lines.md`, every metric in `docs/metrics.md`.
//!
//! What a row is about follows from the sources. Its last cells are written by hand, in the page and nowhere else. A row without
//! them, a line or metric without a row, and a row without a line or metric fail the test. With `CORRAL_WRITE_PAGES=1` in the
//! environment the tests write the pages: new rows then have empty cells, to be filled in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use corral_core::report::METRICS as METRICS_TABLE;

use super::{none, read, root, rust_files};

const LOG_LINES: &str = "docs/operate/log-lines.md";
const METRICS: &str = "docs/metrics.md";
/// Set to write the pages and numbers that follow from the sources.
pub(crate) const WRITE: &str = "CORRAL_WRITE_PAGES";
/// The levels in the order of the page.
const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// A line of the log, as one place of the sources writes it.
#[derive(Debug, PartialEq, Eq)]
struct LogLine {
    level: &'static str,
    message: String,
    fields: Vec<String>,
}

#[test]
fn every_line_of_the_log_has_its_row() {
    // By level and message: where it is from, and the fields that it has at all of its places.
    let mut lines: BTreeMap<(usize, String), (BTreeSet<String>, Vec<String>)> = BTreeMap::new();
    for path in rust_files().iter().filter(|path| path.starts_with("src") && !path.iter().any(|part| part == "tests")) {
        for line in log_lines(&read(&root().join(path))) {
            let level = LEVELS.iter().position(|level| *level == line.level).expect("a level");
            let (files, fields) = lines.entry((level, line.message)).or_default();
            files.insert(format!("`{}`", path.display()));
            fields.extend(line.fields.into_iter().map(|field| format!("`{field}`")));
        }
    }
    assert!(lines.len() > 90, "the lines are found");
    let mut tables = String::new();
    let page = Page::read(LOG_LINES, 1);
    for (at, level) in LEVELS.iter().enumerate() {
        let rows = lines.iter().filter(|((level, _), _)| *level == at).map(|((_, message), (files, fields))| {
            let mut known = BTreeSet::new();
            let fields: Vec<&str> = fields.iter().map(String::as_str).filter(|field| known.insert(*field)).collect();
            let fields = if fields.is_empty() { "none".to_owned() } else { fields.join(", ") };
            vec![code(message), fields, files.iter().cloned().collect::<Vec<_>>().join(", ")]
        });
        tables += &format!("\n## {}\n\n", level.to_uppercase());
        tables += &page.table(&["line", "fields", "file", "meaning and action"], &format!("{level} "), rows);
    }
    page.is(&tables);
}

#[test]
fn every_metric_has_its_row() {
    let page = Page::read(METRICS, 0);
    let rows = METRICS_TABLE.iter().map(|metric| {
        let names = [metric.mntr_name(), metric.prometheus_name()].map(|name| format!("`{name}`"));
        let [mntr, prometheus] = names;
        vec![mntr, prometheus, metric.kind.word().to_owned(), metric.help.to_owned()]
    });
    page.is(&format!("\n{}", page.table(&["`mntr`", "Prometheus", "type", "meaning"], "", rows)));
}

/// A page whose tables are made anew with the cells that are written by hand.
struct Page {
    path: &'static str,
    /// All before the first table's heading.
    begin: String,
    tables: String,
    /// How many cells of a row are written by hand, the last ones.
    cells: usize,
    /// These cells by section and first cell.
    by_hand: BTreeMap<String, Vec<String>>,
}

impl Page {
    /// Behind the line that begins with `<!--` the page is made by a test.
    fn read(path: &'static str, cells: usize) -> Page {
        let text = read(&root().join(path));
        let at =
            text.find("<!--").and_then(|at| Some(at + text[at..].find('\n')? + 1)).expect("the mark of what is made");
        let (mut section, mut by_hand) = (String::new(), BTreeMap::new());
        for line in text[at..].lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                section = format!("{} ", heading.to_lowercase());
            } else if let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix('|')) {
                let mut row: Vec<String> = row.split(" |").map(|cell| cell.trim().to_owned()).collect();
                let hand = row.split_off(row.len().saturating_sub(cells));
                by_hand.insert(section.clone() + row.first().map_or("", String::as_str), hand);
            }
        }
        by_hand.retain(|key, _| key.contains('`'));
        Page { path, begin: text[..at].to_owned(), tables: text[at..].to_owned(), cells, by_hand }
    }

    /// A table with these rows, each with its cells that are written by hand.
    fn table(&self, heads: &[&str], section: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
        let mut table = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
        for mut row in rows {
            let hand = self.by_hand.get(&format!("{section}{}", row[0])).cloned();
            row.extend(hand.unwrap_or_else(|| vec![String::new(); self.cells]));
            table += &format!("| {} |\n", row.join(" | "));
        }
        table
    }

    /// Compares the page with what it has to be, or writes it.
    fn is(&self, tables: &str) {
        if std::env::var_os(WRITE).is_some() {
            return fs::write(root().join(self.path), format!("{}{tables}", self.begin)).expect("it can be written");
        }
        let rows = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<String>>();
        let (committed, wanted) = (rows(&self.tables), rows(tables));
        let mut broken: Vec<String> = wanted.difference(&committed).map(|row| format!("is missing: {row}")).collect();
        broken.extend(committed.difference(&wanted).map(|row| format!("is of nothing: {row}")));
        broken.extend(wanted.iter().filter(|row| row.contains("|  |")).map(|row| format!("says nothing: {row}")));
        let advice = "tables are stale: run the test with CORRAL_WRITE_PAGES=1, and fill in the empty cells";
        none(&broken, &format!("{}: {advice}", self.path));
        assert!(self.tables == tables, "{}: {advice}", self.path);
    }
}

/// A message as code in a cell; two backticks around one that has backticks.
fn code(message: &str) -> String {
    let message = message.replace('|', "\\|");
    if message.contains('`') { format!("`` {message} ``") } else { format!("`{message}`") }
}

/// The lines that a source file writes to the log, without those of its tests at its end.
fn log_lines(text: &str) -> Vec<LogLine> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    for (at, _) in text.match_indices("tracing::") {
        let rest = &text[at + "tracing::".len()..];
        let Some(level) = LEVELS.into_iter().find(|level| rest.starts_with(&format!("{level}!("))) else { continue };
        let arguments = arguments(&rest[level.len() + 2..]);
        let message = arguments.iter().position(|argument| argument.starts_with('"')).expect("a line has a message");
        let fields = arguments[..message].iter().filter(|argument| !argument.starts_with("target:"));
        let name = |field: &String| {
            field.split('=').next().unwrap_or_default().trim().trim_start_matches(['%', '?']).to_owned()
        };
        found.push(LogLine { level, message: literal(&arguments[message]), fields: fields.map(name).collect() });
    }
    found
}

/// The arguments of a call, up to its closing parenthesis.
fn arguments(text: &str) -> Vec<String> {
    let (mut arguments, mut depth, mut in_text, mut escaped) = (vec![String::new()], 0, false, false);
    for letter in text.chars() {
        match letter {
            _ if in_text => {
                in_text = letter != '"' || escaped;
                escaped = letter == '\\' && !escaped;
            }
            '"' => in_text = true,
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                arguments.push(String::new());
                continue;
            }
            _ => {}
        }
        arguments.last_mut().expect("it has one").push(letter);
    }
    arguments.iter().map(|argument| argument.trim().to_owned()).filter(|argument| !argument.is_empty()).collect()
}

/// What a string literal holds, its lines joined as the compiler joins them.
fn literal(quoted: &str) -> String {
    let mut text = String::new();
    let mut lines = quoted.trim_matches('"').split("\\\n");
    text += lines.next().unwrap_or_default();
    lines.for_each(|line| text += line.trim_start());
    text.replace("\\\"", "\"")
}

#[test]
fn lines_are_found_in_each_form() {
    let source = "fn f() {\n tracing::warn!(\n  peer = peer.0,\n  %address, state = ?of(a, \"b\"),\n  \"a {thing} is \\\n   lost: {}\",\n  why(1, 2)\n );\n \
                  tracing::error!(target: \"raft\", \"{}\", line); }\n#[cfg(test)]\nmod tests { tracing::info!(\"no\") }";
    let line = |level, message: &str, fields: &[&str]| LogLine {
        level,
        message: message.to_owned(),
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
    };
    let expect = [line("warn", "a {thing} is lost: {}", &["peer", "address", "state"]), line("error", "{}", &[])];
    assert_eq!(log_lines(source), expect);
}
