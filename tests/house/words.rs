//! The words that the glossary refuses, see `docs/glossary.md#refused-words`: they are in no identifier, comment, page, log line or
//! error text.
//!
//! A name such as `log_tail` or `LogTail` counts as its words, so a refused phrase is refused in names too. Case does not matter.

use std::path::{Path, PathBuf};

use super::{files, none, read, root};

const GLOSSARY: &str = "docs/glossary.md";
/// Where the table begins; it goes on to the next heading.
const HEADING: &str = "## Refused words";
/// Reports of measurements, which stay as they were written.
const REPORTS: &str = "bench/results";

/// A row of the table.
#[derive(Debug)]
struct Refused {
    /// Each one a word or several, in lower case.
    phrases: Vec<Vec<String>>,
    instead: String,
    /// Texts in which the words are allowed, as they are written.
    allowed: Vec<String>,
}

#[test]
fn refused_words_are_not_used() {
    let glossary = read(&root().join(GLOSSARY));
    let (others, table) = glossary.split_once(HEADING).expect("the glossary has the table");
    let (table, rest) = table.split_once("\n## ").unwrap_or((table, ""));
    let table = rows(table);
    assert!(table.len() > 20, "the table is read");
    let mut broken = Vec::new();
    for path in texts() {
        let text = if path == Path::new(GLOSSARY) { format!("{others}\n{rest}") } else { read(&root().join(&path)) };
        broken
            .extend(found(&text, &table).into_iter().map(|(line, what)| format!("{}:{line}: {what}", path.display())));
    }
    none(&broken, "a word that docs/glossary.md refuses");
}

/// What is read: sources, pages, settings and scripts.
fn texts() -> Vec<PathBuf> {
    let mut texts = files(&["src", "bench", "tests", "docs", "configs"], &["rs", "py", "md", "toml", "sh"]);
    texts.retain(|path| !path.starts_with(REPORTS));
    texts.extend(["README.md", "tests/run", "tests/campaign"].map(PathBuf::from));
    texts
}

/// The rows of `| refused | write | allowed within |`. Words and texts are in backticks.
fn rows(table: &str) -> Vec<Refused> {
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
        let [refused, instead, allowed] = cells[..] else { panic!("not three cells: {line}") };
        let words = |phrase: &String| words(phrase).into_iter().map(|(_, word)| word).collect();
        let phrases: Vec<Vec<String>> = quoted(refused).iter().map(words).collect();
        (!phrases.is_empty()).then(|| Refused { phrases, instead: instead.trim().to_owned(), allowed: quoted(allowed) })
    };
    table.lines().filter_map(row).collect()
}

/// The words of a text in lower case, each with its place. A word ends before a capital letter that follows a small one.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        if letter.is_ascii_alphabetic() {
            let goes_on = before.is_ascii_alphabetic() && !(before.is_ascii_lowercase() && letter.is_ascii_uppercase());
            match words.last_mut() {
                Some((_, word)) if goes_on => word.push(letter.to_ascii_lowercase()),
                _ => words.push((at, letter.to_ascii_lowercase().to_string())),
            }
        }
        before = letter;
    }
    words
}

/// Each refused phrase in a text, with the number of its line and what to write instead.
fn found(text: &str, table: &[Refused]) -> Vec<(usize, String)> {
    let words = words(text);
    let mut found = Vec::new();
    for (number, (at, word)) in words.iter().enumerate() {
        for row in table {
            let fits = |phrase: &&Vec<String>| phrase[0] == *word && follow(text, &words[number..], phrase);
            let Some(phrase) = row.phrases.iter().find(fits) else { continue };
            if !row.allowed.iter().any(|allowed| lies_within(text, *at, allowed)) {
                let line = text[..*at].matches('\n').count() + 1;
                found.push((line, format!("`{}`, write: {}", phrase.join(" "), row.instead)));
            }
        }
    }
    found
}

/// Whether a phrase is at the beginning of these words, with no more between its words than blanks and the signs of a comment.
fn follow(text: &str, words: &[(usize, String)], phrase: &[String]) -> bool {
    let same = words.len() >= phrase.len() && words.iter().zip(phrase).all(|((_, word), other)| word == other);
    let gap = |pair: &[(usize, String)]| {
        text[pair[0].0 + pair[0].1.len()..pair[1].0].chars().all(|sign| sign.is_whitespace() || "_-/!#*".contains(sign))
    };
    same && words[..phrase.len()].windows(2).all(gap)
}

/// Whether the place is within this text.
fn lies_within(text: &str, at: usize, allowed: &str) -> bool {
    let mut from = at.saturating_sub(allowed.len());
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..]
        .match_indices(allowed)
        .take_while(|(begin, _)| from + begin <= at)
        .any(|(begin, _)| at < from + begin + allowed.len())
}

#[test]
fn refused_words_are_found_in_each_form() {
    let table = rows(
        "| refused | write | allowed within |\n|---|---|---|\n| `cabbage`, `red beet` | leek | `Cabbage Road`, `cabbage-` |\n",
    );
    let lines = |text: &str| found(text, &table).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
    assert_eq!(lines("let cabbage = RedBeet;\nCABBAGE_MAX, a_cabbage; cabbages"), [1, 1, 2, 2]);
    assert_eq!(lines("/// A Red\n/// beet; red; beet. Redbeet, red (beet)."), [1]);
    assert_eq!(lines("Cabbage Road 5, cabbage-1.img, `cabbage road`"), [1]);
    assert_eq!(found("cabbage", &table)[0].1, "`cabbage`, write: leek");
}
