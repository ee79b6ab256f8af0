//! The four-letter commands: text commands sent as the very first four bytes of a connection.
//!
//! As a length word each of them is far above any legal frame, so there is no ambiguity. They are recognised only
//! before the session exists. Runs on the connection's core. It knows the commands, not their replies and not the
//! whitelist.

/// The int a telnet client sends when it leaves; ends the connection silently.
pub const TELNET_CLOSE: [u8; 4] = [0xff, 0xf4, 0xff, 0xfd];

macro_rules! words {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A known four-letter command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FourLetter {
            $($(#[$doc])* $variant,)*
        }

        impl FourLetter {
            /// Every command.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name, lower case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The command with this name, lower case; `None` if there is none.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.name() == name)
            }

            /// The command that a connection begins with; `None` if the bytes are a length word.
            #[must_use]
            pub fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
                let name = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
                Self::ALL.iter().copied().find(|word| word.name().as_bytes() == name)
            }
        }
    };
}

words! {
    /// Configuration.
    Conf = "conf";
    /// Connections, one full line each.
    Cons = "cons";
    /// Resets connection statistics.
    Crst = "crst";
    /// Sizes of the data directories.
    Dirs = "dirs";
    /// Sessions, ephemerals and connections.
    Dump = "dump";
    /// Environment.
    Envi = "envi";
    /// The trace mask.
    Gtmk = "gtmk";
    /// Digest log.
    Hash = "hash";
    /// Read-write, read-only or not serving.
    Isro = "isro";
    /// Metrics.
    Mntr = "mntr";
    /// Whether the server is alive.
    Ruok = "ruok";
    /// Resets server statistics.
    Srst = "srst";
    /// Server block.
    Srvr = "srvr";
    /// Server block with clients.
    Stat = "stat";
    /// Sets the trace mask; eight bytes follow.
    Stmk = "stmk";
    /// Clients and paths of most requests. ZooKeeper does not have it. The line that `echo top` sends has four bytes.
    Top = "top";
    /// Watches by session.
    Wchc = "wchc";
    /// Watches by path.
    Wchp = "wchp";
    /// Watch totals.
    Wchs = "wchs";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FRAME_MAX_DEFAULT, next_frame};

    #[test]
    fn words_are_no_lengths() {
        for word in FourLetter::ALL {
            let line = [word.name().as_bytes(), b"\n"].concat();
            let bytes = *line.first_chunk::<4>().expect("three letters or four");
            assert_eq!(FourLetter::from_bytes(bytes), Some(*word));
            assert_eq!(FourLetter::from_name(word.name()), Some(*word));
            assert!(next_frame(&bytes, FRAME_MAX_DEFAULT).is_err());
        }
        for bytes in [*b"RUOK", *b"orst", *b"ruo\n", *b"top ", *b"\0\0\0\x2d", TELNET_CLOSE] {
            assert_eq!(FourLetter::from_bytes(bytes), None);
        }
        assert_eq!(FourLetter::from_name("srv"), None);
    }
}
