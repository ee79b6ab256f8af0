//! A command line of the shell: its words, and the options among them as ZooKeeper's shell finds them.

use crate::cli::shell::verbs::{Opt, Verb};

/// Splits a line. Words have spaces between them, or quotes of either kind around them.
///
/// Equal to the pattern of `ZooKeeperMain`: a quote that is not closed is left out.
pub(super) fn split(line: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while let Some(first) = rest.chars().next() {
        let (word, after) = if matches!(first, '"' | '\'') {
            let inner = &rest[1..];
            match inner.split_once(first) {
                Some((word, after)) => (Some(word), after),
                None => (None, inner),
            }
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            (Some(word), after)
        };
        words.extend(word.map(str::to_owned));
        rest = after.trim_start();
    }
    words
}

/// The words of a command, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// With their values, in the order given.
    options: Vec<(&'static str, String)>,
    /// All other words behind the verb.
    rest: Vec<String>,
}

impl Words {
    /// Takes the words behind a verb apart, by the rules of the parser that ZooKeeper's shell has (commons-cli, `DefaultParser`).
    ///
    /// # Errors
    /// With the parser's sentence.
    pub(super) fn parse(verb: &'static Verb, words: &[String]) -> Result<Words, String> {
        let mut parser = Parser { verb, found: Words { options: Vec::new(), rest: Vec::new() }, open: None };
        let mut words = words.iter();
        for word in words.by_ref() {
            if word == "--" {
                break;
            }
            parser.word(word)?;
        }
        parser.close()?;
        let mut found = parser.found;
        found.rest.extend(words.cloned());
        let group: Vec<&Opt> = verb.options.iter().filter(|option| option.group).collect();
        if verb.needs_group && !group.iter().any(|option| found.has(option.name)) {
            let all: Vec<String> = group.iter().map(|one| format!("-{} {}", one.name, one.about)).collect();
            return Err(format!("Missing required option: [{}]", all.join(", ")));
        }
        Ok(found)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(own, _)| *own == name)
    }

    /// The first value of an option.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str())
    }

    /// A word that is no option.
    pub(super) fn at(&self, index: usize) -> Option<&str> {
        self.rest.get(index).map(String::as_str)
    }

    /// How many words are no options.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }
}

struct Parser {
    verb: &'static Verb,
    found: Words,
    /// An option that waits for its value.
    open: Option<&'static Opt>,
}

impl Parser {
    fn word(&mut self, word: &str) -> Result<(), String> {
        if let Some(option) = self.open
            && !self.is_option(word)
        {
            self.open = None;
            self.found.options.push((option.name, unquoted(word).to_owned()));
            return Ok(());
        }
        match word.strip_prefix('-') {
            Some("") | None => self.found.rest.push(word.to_owned()),
            Some(name) if name.starts_with('-') => return Err(unknown(word)),
            Some(name) => return self.option(word, name),
        }
        Ok(())
    }

    fn option(&mut self, word: &str, name: &str) -> Result<(), String> {
        if let Some(option) = self.verb.option(name) {
            return self.begin(option);
        }
        if let Some((name, value)) = name.split_once('=') {
            let option = self.verb.option(name).filter(|option| option.takes_value && name.len() == 1);
            let option = option.ok_or_else(|| unknown(word))?;
            self.begin(option)?;
            self.open = None;
            self.found.options.push((option.name, value.to_owned()));
            return Ok(());
        }
        // Several letters in one word. The rest behind an option with a value is its value.
        for (at, letter) in name.char_indices() {
            let end = at + letter.len_utf8();
            let option = self.verb.option(&name[at..end]).ok_or_else(|| unknown(word))?;
            self.begin(option)?;
            if option.takes_value && end < name.len() {
                self.open = None;
                self.found.options.push((option.name, name[end..].to_owned()));
                break;
            }
        }
        Ok(())
    }

    fn begin(&mut self, option: &'static Opt) -> Result<(), String> {
        self.close()?;
        let selected = |(own, _): &&(&'static str, String)| *own != option.name && self.verb.is_in_group(own);
        if option.group
            && let Some((other, _)) = self.found.options.iter().find(selected)
        {
            return Err(format!(
                "The option '{}' was specified but an option from this group has already been selected: '{other}'",
                option.name
            ));
        }
        if option.takes_value {
            self.open = Some(option);
        } else {
            self.found.options.push((option.name, String::new()));
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        self.open.take().map_or(Ok(()), |option| Err(format!("Missing argument for option: {}", option.name)))
    }

    /// Whether a word is an option, and no value. Negative numbers are values.
    fn is_option(&self, word: &str) -> bool {
        let Some(name) = word.strip_prefix('-').filter(|name| !name.is_empty()) else { return false };
        let first = name.chars().next().map_or(0, char::len_utf8);
        let before = name.split('=').next().unwrap_or_default();
        word.parse::<f64>().is_err()
            && (self.verb.option(before).is_some() || self.verb.option(&name[..first]).is_some())
    }
}

fn unknown(word: &str) -> String {
    format!("Unrecognized option: {word}")
}

fn unquoted(word: &str) -> &str {
    word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::shell::verbs::verb;

    #[test]
    fn lines_are_split_as_by_zookeepers_shell() {
        let check = |line: &str, words: &[&str]| assert_eq!(split(line), words, "{line:?}");
        check("  get   /a ", &["get", "/a"]);
        check("set /a \"two words\" 'and \"more\"'", &["set", "/a", "two words", "and \"more\""]);
        check("set /a ''", &["set", "/a", ""]);
        check("set /a \"open", &["set", "/a", "open"]);
        check("set /a b\"c d\"", &["set", "/a", "b\"c", "d\""]);
        check("", &[]);
    }

    #[test]
    fn options_stand_anywhere() {
        let parse = |name: &str, line: &str| Words::parse(verb(name).expect("a verb"), &split(line));
        let words = parse("set", "/a -s text -v 3").expect("valid");
        assert_eq!((words.has("s"), words.value("v"), words.at(1), words.len()), (true, Some("3"), Some("text"), 2));
        let words = parse("create", "-se -t-5 /a").expect("valid");
        assert_eq!((words.has("e"), words.value("t"), words.at(0)), (true, Some("-5"), Some("/a")));
        assert_eq!(parse("create", "-t -5 /a").expect("valid").value("t"), Some("-5"));
        assert_eq!(parse("create", "-- -s").expect("valid").at(0), Some("-s"));
        assert_eq!(parse("create", "-t=5 /a").expect("valid").value("t"), Some("5"));
        for (name, line, error) in [
            ("ls", "-z /a", "Unrecognized option: -z"),
            ("ls", "-sz /a", "Unrecognized option: -sz"),
            ("ls", "--stat /a", "Unrecognized option: --stat"),
            ("reconfig", "-remove=1,2", "Unrecognized option: -remove=1,2"),
            ("set", "/a b -v", "Missing argument for option: v"),
            ("set", "/a -v -s", "Missing argument for option: v"),
            (
                "setquota",
                "-n 1 -b 2 /a",
                "The option 'b' was specified but an option from this group has already been selected: 'n'",
            ),
        ] {
            assert_eq!(parse(name, line), Err(error.to_owned()), "{name} {line}");
        }
        assert!(parse("setquota", "/a").is_err_and(|error| error.starts_with("Missing required option: [-n num soft")));
    }
}
