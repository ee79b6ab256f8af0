//! Which four-letter commands shards contribute to, and which have long answers.

use corral_wire::fourletter::FourLetter;

/// Whether a command's answer, or the work for it, grows with the number of connections, watches or sessions.
pub const fn is_long(command: FourLetter) -> bool {
    use FourLetter::{Cons, Dump, Stat, Wchc, Wchp, Wchs};
    matches!(command, Stat | Cons | Dump | Wchc | Wchp | Wchs)
}

/// Whether the shards contribute to its answer, or carry it out.
pub const fn asks_shards(command: FourLetter) -> bool {
    use FourLetter::{Crst, Mntr, Srst, Srvr, Top};
    is_long(command) || matches!(command, Srvr | Mntr | Crst | Srst | Top)
}
