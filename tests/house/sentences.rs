//! A ratchet on sentences: how many sentences of each crate's comments, of the docs, and of log lines, errors and help are hard to read.
//!
//! A sentence is hard to read if a rule below names it. `sentences.txt` holds the number for each part of the repository. A change may
//! lower a number and never raise it. `CORRAL_WRITE_PAGES=1 cargo test --test house` writes lower numbers into the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::tables::WRITE;
use super::{files, read, root};

const NUMBERS: &str = "tests/house/sentences.txt";
const WORDS_MAX: usize = 25;
/// Words in the place of a thing or a role. A question may have them.
const PERSONS: [&str; 8] = ["who", "whom", "whose", "whoever", "nobody", "somebody", "anybody", "everybody"];
/// First words of a clause in the place of a noun, where it begins a sentence or follows one of `BEFORE`.
const CLAUSES: [&str; 2] = ["what", "whatever"];
const BEFORE: [&str; 14] =
    ["of", "to", "for", "with", "from", "in", "by", "on", "than", "and", "or", "but", "that", "as"];
/// The same of several words, wherever it stands.
const LONG_CLAUSES: [&str; 3] = ["those that", "one that", "ones that"];
/// Phrases that hide a term of the field, besides those that docs/glossary.md refuses.
const PHRASES: [&str; 16] = [
    "see the module",
    "belongs to nothing",
    "needs no hand",
    "bear the loss",
    "is it well",
    "in silence",
    "off the end of the log",
    "fits no log entry",
    "remembers nothing",
    "is no frame",
    "stays as it is",
    "does not deal with",
    "goes over jointly",
    "cannot place it",
    "that are none",
    "said anything",
];

/// The parts of the repository: a name, and the folders of its files without those of other parts.
const PARTS: [(&str, &str); 12] = [
    ("wire", "src/wire"),
    ("core", "src/core"),
    ("consensus", "src/consensus"),
    ("types", "src/types"),
    ("peer", "src/peer"),
    ("engine", "src/engine"),
    ("storage", "src/storage"),
    ("client", "src/client"),
    ("zookeeper", "src/zookeeper"),
    ("sim", "src/sim"),
    ("bench", "bench"),
    ("server", "src"),
];
const DOCS: &str = "docs";
/// Log lines, errors and help: the texts in the sources of the server and of the load generator.
const MESSAGES: &str = "messages";

#[test]
fn hard_sentences_become_fewer() {
    let known: BTreeMap<String, usize> = read(&root().join(NUMBERS))
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(part, rest)| {
            (part.to_owned(), rest.split(' ').next().and_then(|word| word.parse().ok()).expect("a number"))
        })
        .collect();
    let counts = count();
    let mut text = String::from(
        "# Hard sentences by part of the repository, of all its sentences. Written by the house test `sentences`.\n",
    );
    let mut raised = Vec::new();
    for (part, (hard, all, examples)) in &counts {
        writeln!(text, "{part} {hard} of {all}").expect("a string takes it");
        let most = known.get(*part).copied().unwrap_or(usize::MAX);
        if *hard > most {
            raised.push(format!(
                "{part}: {hard} hard sentences, {most} at most; such as\n    {}",
                examples.join("\n    ")
            ));
        }
    }
    assert!(raised.is_empty(), "write plainly (docs/glossary.md, docs/testing.md):\n{}", raised.join("\n"));
    if std::env::var_os(WRITE).is_some() {
        fs::write(root().join(NUMBERS), text).expect("the file of the numbers");
        return;
    }
    for (part, (hard, ..)) in counts {
        let most = known.get(part).copied();
        assert_eq!(most, Some(hard), "{part}: fewer hard sentences; store that: {WRITE}=1 cargo test --test house");
    }
}

/// Hard sentences, all sentences and some hard ones of each part.
fn count() -> BTreeMap<&'static str, (usize, usize, Vec<String>)> {
    let mut counts: BTreeMap<&str, (usize, usize, Vec<String>)> = BTreeMap::new();
    let mut add = |part, path: &Path, found: Vec<String>, in_docs| {
        let (hard, all, examples) = counts.entry(part).or_default();
        for sentence in found {
            *all += 1;
            if let Some(rule) = broken_rule(&sentence, in_docs) {
                *hard += 1;
                // The newest text of a file is often at its end, so the last ones are kept.
                examples.push(format!("{}: {rule}: {sentence}", path.display()));
                if examples.len() > 20 {
                    examples.remove(0);
                }
            }
        }
    };
    for path in files(&["src", "bench"], &["rs"]) {
        let (part, _) = PARTS.iter().find(|(_, folder)| path.starts_with(folder)).expect("a part of the repository");
        let source = read(&root().join(&path));
        add(part, &path, sentences(&comments(&source)), false);
        if *part != "sim" && !path.iter().any(|folder| folder == "tests" || folder == "tests.rs") {
            add(MESSAGES, &path, sentences(&messages(&source)), false);
        }
    }
    let mut pages = files(&["docs"], &["md"]);
    pages.push("README.md".into());
    for path in pages {
        add(DOCS, &path, sentences(&prose(&read(&root().join(&path)))), true);
    }
    counts
}

/// The first rule that a sentence breaks.
fn broken_rule(sentence: &str, in_docs: bool) -> Option<&'static str> {
    let lower = sentence.to_lowercase();
    let words: Vec<&str> =
        lower.split_whitespace().map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric())).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let spaced = format!(" {} ", words.join(" "));
    let is_question = sentence.ends_with('?');
    match () {
        () if words.len() > WORDS_MAX => Some("more than 25 words"),
        () if !is_question && words.iter().any(|word| PERSONS.contains(word)) => {
            Some("a person in the place of a role")
        }
        () if !is_question && words.first().is_some_and(|word| CLAUSES.contains(word)) => Some("a clause as a noun"),
        () if words.windows(2).any(|pair| BEFORE.contains(&pair[0]) && CLAUSES.contains(&pair[1])) => {
            Some("a clause as a noun")
        }
        () if LONG_CLAUSES.iter().any(|clause| spaced.contains(&format!(" {clause} "))) => Some("a clause as a noun"),
        () if PHRASES.iter().any(|phrase| spaced.contains(&format!(" {phrase} "))) => Some("an old phrase"),
        () if in_docs && sentence.contains(';') => Some("a semicolon"),
        () => None,
    }
}

/// The texts of string literals outside of tests, cut at semicolons and colons. Texts of `expect` are for developers.
fn messages(source: &str) -> Vec<String> {
    let source = source.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: String =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect();
    let code = code.replace("'\"'", "' '").replace("'\\\"'", "' '").replace("\\\\", "").replace("\\\"", "`");
    let pieces: Vec<&str> = code.split('"').collect();
    let texts = (1..pieces.len()).step_by(2).map(|at| (pieces[at - 1], pieces[at]));
    let shown = texts.filter(|(before, _)| !before.trim_end().ends_with("expect("));
    shown.flat_map(|(_, text)| plain(text).split([';', ':']).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A literal as it is shown: one line, and each value in braces as one word.
fn plain(text: &str) -> String {
    let text = text.replace("\\\n", " ").replace("\\n", ". ").replace("\n  ", ". ");
    let mut parts = text.split('{');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str("value");
        shown.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    shown
}

/// The text of comments, a paragraph a line. Code in doc comments is left out.
fn comments(source: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in source.lines() {
        let line = line.trim_start();
        match line.strip_prefix("//") {
            Some(text) => lines.push(text.trim_start_matches(['/', '!'])),
            None => lines.push(""),
        }
    }
    prose(&lines.join("\n"))
}

/// The paragraphs, list items and table cells of a text in Markdown, without code blocks.
fn prose(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut in_code = false;
    for line in text.lines() {
        let plain = line.trim();
        in_code ^= plain.starts_with("```");
        if in_code || plain.starts_with("```") || line.starts_with("    ") {
            continue;
        }
        let begins = plain.is_empty()
            || plain.starts_with(['#', '|', '*', '-'])
            || plain
                .split_once(". ")
                .is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
        if begins {
            paragraphs.push(String::new());
        }
        let cells: Vec<&str> = if plain.starts_with('|') { plain.split(" | ").collect() } else { vec![plain] };
        for (number, cell) in cells.iter().enumerate() {
            if number > 0 {
                paragraphs.push(String::new());
            }
            let last = paragraphs.last_mut().expect("there is one");
            last.push(' ');
            last.push_str(cell.trim_matches(['|', '#', '*', ' ']));
        }
        if plain.starts_with('#') {
            paragraphs.push(String::new());
        }
    }
    paragraphs
}

/// Sentences of at least three words. What stands in backticks counts as one word.
fn sentences(paragraphs: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in paragraphs {
        let plain: String = paragraph
            .split('`')
            .enumerate()
            .map(|(number, part)| if number % 2 == 1 { "code".to_owned() } else { part.to_owned() })
            .collect();
        let mut sentence = String::new();
        for word in plain.split_whitespace() {
            if !sentence.is_empty() {
                sentence.push(' ');
            }
            sentence.push_str(word);
            if word.trim_end_matches([')', '"', '*']).ends_with(['.', '!', '?'])
                && !["e.g.", "i.e.", "etc."].contains(&word)
            {
                found.push(std::mem::take(&mut sentence));
            }
        }
        found.push(sentence);
    }
    found.retain(|sentence| sentence.split(' ').count() >= 3);
    found
}

#[test]
fn hard_sentences_are_found() {
    let rules = |text: &str| {
        let found = sentences(&comments(text));
        found.iter().map(|sentence| broken_rule(sentence, false).is_some()).collect::<Vec<_>>()
    };
    assert_eq!(
        rules("/// The leader sends it. Whoever asks gets an answer.\nfn code() {}\n// Nobody\n// answers it."),
        [false, true, true]
    );
    assert_eq!(
        rules("/// What is missing is sent. What is missing?\n/// ```\n/// Nobody reads this.\n/// ```"),
        [true, false]
    );
    let shown = messages(
        "f(\"cannot read {path}: {error}; start\\n it\");\nx.expect(\"of an expect\");\n#[cfg(test)]\nmod tests \"of a test\"",
    );
    assert_eq!(shown, ["cannot read value", " value", " start.  it"]);
    assert_eq!(rules(&format!("// One{}.", " more".repeat(25))), [true]);
    assert_eq!(rules(&format!("// One{} `and code of words`.", " more".repeat(23))), [false]);
    assert_eq!(rules("//! See the module. Those who left are gone. It is one of three."), [true, true, false]);
    let page = sentences(&prose(
        "# A title; of words\n\nOne thing; another.\n\n    code; is not prose\n\n| a cell with words | one; two three |",
    ));
    let hard: Vec<bool> = page.iter().map(|sentence| broken_rule(sentence, true).is_some()).collect();
    assert_eq!(hard, [true, true, false, true]);
}
