//! The users of a ZooKeeper's JAAS file: the `user_NAME` options of one section.
//!
//! Pure, start-up only. It reads the format of Java's `ConfigFile`: sections of login modules, each with a flag and options, and
//! comments. The classes of the modules do not matter.

use std::iter::Peekable;
use std::str::Chars;

/// Why the text is not read. `line` counts from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadJaas {
    #[error("line {line}: {expected} is missing")]
    Missing { line: u32, expected: &'static str },
    #[error("line {line}: a quoted text does not end")]
    Unclosed { line: u32 },
    #[error("line {line}: Java would replace ${{...}} by one of its system properties, which are not known here")]
    Property { line: u32 },
    #[error("there is no section {0:?}")]
    NoSection(String),
    #[error("the section {0:?} is there twice")]
    Twice(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(char),
}

struct Tokens<'t> {
    chars: Peekable<Chars<'t>>,
    line: u32,
}

/// Names and passwords, in the order of the file.
///
/// # Errors
/// When the text is not such a file, or the section is not there exactly once.
pub(crate) fn users(text: &str, section: &str) -> Result<Vec<(String, String)>, BadJaas> {
    let mut tokens = Tokens { chars: text.chars().peekable(), line: 1 };
    let mut found = None;
    while let Some(token) = tokens.next()? {
        let Token::Word(name) = token else { return Err(tokens.missing("the name of a section")) };
        tokens.sign('{', "a { behind the name of the section")?;
        let users = module_users(&mut tokens)?;
        tokens.sign(';', "a ; behind the section")?;
        if name == section && found.replace(users).is_some() {
            return Err(BadJaas::Twice(name));
        }
    }
    found.ok_or_else(|| BadJaas::NoSection(section.to_owned()))
}

/// Of all modules of a section, up to its closing brace.
fn module_users(tokens: &mut Tokens<'_>) -> Result<Vec<(String, String)>, BadJaas> {
    let mut users = Vec::new();
    loop {
        match tokens.next()? {
            Some(Token::Sign('}')) => return Ok(users),
            Some(Token::Word(_)) => {}
            _ => return Err(tokens.missing("a login module or }")),
        }
        tokens.word("the flag of a login module, such as required")?;
        loop {
            match tokens.next()? {
                Some(Token::Sign(';')) => break,
                Some(Token::Word(option)) => {
                    tokens.sign('=', "a = behind an option")?;
                    let value = tokens.word("the value of an option")?;
                    if let Some(name) = option.strip_prefix("user_") {
                        if value.contains("${") {
                            return Err(BadJaas::Property { line: tokens.line });
                        }
                        users.push((name.to_owned(), value));
                    }
                }
                _ => return Err(tokens.missing("an option or a ; behind the last one")),
            }
        }
    }
}

impl Tokens<'_> {
    fn missing(&self, expected: &'static str) -> BadJaas {
        BadJaas::Missing { line: self.line, expected }
    }

    fn sign(&mut self, sign: char, expected: &'static str) -> Result<(), BadJaas> {
        if self.next()? == Some(Token::Sign(sign)) { Ok(()) } else { Err(self.missing(expected)) }
    }

    fn word(&mut self, expected: &'static str) -> Result<String, BadJaas> {
        match self.next()? {
            Some(Token::Word(word)) => Ok(word),
            _ => Err(self.missing(expected)),
        }
    }

    fn take(&mut self) -> Option<char> {
        let next = self.chars.next();
        self.line += u32::from(next == Some('\n'));
        next
    }

    fn next(&mut self) -> Result<Option<Token>, BadJaas> {
        loop {
            match self.take() {
                None => return Ok(None),
                Some('#') => self.skip_line(),
                Some('/') if self.chars.peek() == Some(&'/') => self.skip_line(),
                Some('/') if self.chars.peek() == Some(&'*') => self.skip_comment()?,
                Some(sign @ ('{' | '}' | ';' | '=')) => return Ok(Some(Token::Sign(sign))),
                Some('"') => return self.quoted().map(Some),
                Some(c) if c.is_whitespace() => {}
                Some(c) => return Ok(Some(self.plain(c))),
            }
        }
    }

    fn skip_line(&mut self) {
        while self.take().is_some_and(|c| c != '\n') {}
    }

    fn skip_comment(&mut self) -> Result<(), BadJaas> {
        let line = self.line;
        self.take();
        let mut before = ' ';
        while let Some(c) = self.take() {
            if before == '*' && c == '/' {
                return Ok(());
            }
            before = c;
        }
        Err(BadJaas::Unclosed { line })
    }

    fn quoted(&mut self) -> Result<Token, BadJaas> {
        let (line, mut text) = (self.line, String::new());
        loop {
            match self.take() {
                None | Some('\n') => return Err(BadJaas::Unclosed { line }),
                Some('"') => return Ok(Token::Word(text)),
                Some('\\') => text.extend(self.escaped()),
                Some(c) => text.push(c),
            }
        }
    }

    /// The character that follows a backslash, as Java's `StreamTokenizer` takes it.
    fn escaped(&mut self) -> Option<char> {
        let first = self.take()?;
        let Some(mut value) = first.to_digit(8) else {
            return Some(match first {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                other => other,
            });
        };
        let more = if first <= '3' { 2 } else { 1 };
        for _ in 0..more {
            let Some(digit) = self.chars.peek().and_then(|c| c.to_digit(8)) else { break };
            self.take();
            value = value * 8 + digit;
        }
        char::from_u32(value)
    }

    fn plain(&mut self, first: char) -> Token {
        let mut text = String::from(first);
        while let Some(c) = self.chars.peek()
            && !c.is_whitespace()
            && !matches!(c, '{' | '}' | ';' | '=' | '"')
        {
            text.extend(self.take());
        }
        Token::Word(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
// The quorum's own.
QuorumServer { org.apache.zookeeper.server.auth.DigestLoginModule required user_test="no"; };
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_super="adminsecret" # the admin
    user_bob="bob\"s \\ secret"
    user_plain=word; /* a second
    module */
    com.sun.security.auth.module.Krb5LoginModule optional useKeyTab=true user_kate="k";
};
"#;

    #[test]
    fn users_of_one_section() {
        let expect = [("super", "adminsecret"), ("bob", "bob\"s \\ secret"), ("plain", "word"), ("kate", "k")];
        let expect: Vec<(String, String)> = expect.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(users(FILE, "Server"), Ok(expect));
        assert_eq!(users(FILE, "Other"), Err(BadJaas::NoSection("Other".to_owned())));
        assert_eq!(users(&format!("{FILE}{FILE}"), "Server"), Err(BadJaas::Twice("Server".to_owned())));
        assert_eq!(users("S {};", "S"), Ok(Vec::new()));
        let escaped = users(r#"S { a required user_b="a\101\1012\4012\x\t"; };"#, "S").expect("it is well formed");
        assert_eq!(escaped[0].1, "aAA2 12x\t");
    }

    #[test]
    fn what_is_missing_is_named_with_its_line() {
        for end in 0..FILE.len() {
            // Cut off anywhere, it is never a whole file with fewer users of the last section.
            let cut = users(&FILE[..end], "Server");
            assert!(cut.is_err() || end + 1 >= FILE.len(), "{end}: {cut:?}");
        }
        let refused = |text: &str| users(text, "S").expect_err(text).to_string();
        assert_eq!(refused("S {\n a required user_b=\"c\n\";"), "line 2: a quoted text does not end");
        assert_eq!(refused("S {\n a required\n user_b;"), "line 3: a = behind an option is missing");
        assert!(refused("S {\n a required\n user_b=\"${c}\";\n};").starts_with("line 3: Java would replace ${...} by"));
        assert_eq!(refused("= {"), "line 1: the name of a section is missing");
    }
}
