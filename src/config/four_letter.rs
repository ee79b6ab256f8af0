//! ZooKeeper's four-letter commands and the whitelist of the answered ones.
//!
//! Plain data, copied to every shard; a lookup is one scan of a short table. It does not know the replies. As in
//! ZooKeeper `srvr` is always on the list, because its own tools depend on it.

/// All words of ZooKeeper 3.9, and `top`, in alphabetic order; the bit of a word in `FourLetterCommands` is its place here.
const WORDS: [&str; 19] = [
    "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srst", "srvr", "stat",
    "stmk", "top", "wchc", "wchp", "wchs",
];

/// A name that is not among `WORDS`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no four-letter command")]
pub(crate) struct UnknownCommand(String);

/// The set of four-letter commands that the server executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FourLetterCommands {
    /// One bit per entry of `WORDS`.
    bits: u32,
}

impl FourLetterCommands {
    /// ZooKeeper's default: `srvr` alone.
    pub(crate) fn zookeeper_default() -> FourLetterCommands {
        FourLetterCommands { bits: bit("srvr").expect("srvr is in the table") }
    }

    /// The set of the named words and `srvr`; `*` stands for all, empty names for nothing.
    ///
    /// # Errors
    /// The first name that ZooKeeper does not know.
    pub(crate) fn from_names<'a>(
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<FourLetterCommands, UnknownCommand> {
        let mut set = FourLetterCommands::zookeeper_default();
        for name in names {
            match name {
                "" => {}
                "*" => set.bits = (1 << WORDS.len()) - 1,
                name => set.bits |= bit(name).ok_or_else(|| UnknownCommand(name.to_owned()))?,
            }
        }
        Ok(set)
    }

    /// The words of the set in alphabetic order.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        WORDS.into_iter().filter(move |word| self.allows(word.as_bytes()))
    }

    /// Whether the word, the first four bytes of a connection, may be executed.
    pub(crate) fn allows(self, word: &[u8]) -> bool {
        WORDS.iter().position(|known| known.as_bytes() == word).is_some_and(|index| self.bits & (1 << index) != 0)
    }
}

fn bit(name: &str) -> Option<u32> {
    WORDS.iter().position(|word| *word == name).map(|index| 1 << index)
}

/// Whether ZooKeeper has the word at all, enabled or not.
pub(crate) fn is_known(word: &str) -> bool {
    bit(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], expect: &[&str]) {
        let set = FourLetterCommands::from_names(names.iter().copied()).expect("all names are known");
        assert_eq!(set.names().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn sets_by_name() {
        check(&[], &["srvr"]);
        check(&["ruok", "", "stat"], &["ruok", "srvr", "stat"]);
        check(&["*"], &WORDS);
        check(&["ruok", "*"], &WORDS);
        assert_eq!(FourLetterCommands::from_names(["ruok", "RUOK"]), Err(UnknownCommand("RUOK".to_owned())));
    }

    #[test]
    fn only_listed_words_are_allowed() {
        let set = FourLetterCommands::from_names(["ruok"]).expect("ruok is known");
        assert!(set.allows(b"ruok") && set.allows(b"srvr"));
        assert!(!set.allows(b"stat") && !set.allows(b"ruo") && !set.allows(b"") && !set.allows(b"\0\0\0\x2d"));
        assert!(is_known("wchp") && !is_known("orst"));
    }
}
