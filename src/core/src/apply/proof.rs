//! Proof of ownership: which client may do anything for a session.
//!
//! A session's id is public (`ephemeralOwner` of its znodes), so that an id alone gives no right. The password does,
//! which only the client that created the session received. Nothing is done for a session, not even its deadline is
//! moved, before the password has been compared.

use crate::ids::{SessionId, Zxid};
use crate::session::Session;

/// The result of a check of a session id and a password against the committed session table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The session lives, and this is its password.
    Right,
    /// No log entry can make them right: the session has another password, has ended, or never existed.
    Wrong,
    /// The session is not in this server's table, and its creation may be in a log entry that is not applied here.
    Unknown,
}

/// Compares without revealing by its duration where the first difference is.
pub(crate) fn same_secret(a: &[u8; 16], b: &[u8; 16]) -> bool {
    a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

impl Proof {
    /// Compares a password with that of a session. `known` is the session if it is alive, `last` the zxid of the state.
    pub(super) fn of(known: Option<&Session>, last: Zxid, session: SessionId, password: &[u8; 16]) -> Self {
        match known {
            Some(known) if same_secret(&known.password, password) => Self::Right,
            Some(_) => Self::Wrong,
            None if created_by(last, session) => Self::Wrong,
            None => Self::Unknown,
        }
    }
}

/// Whether the session, if it ever existed, was created at this zxid or before: its id holds the zxid of its creation.
fn created_by(zxid: Zxid, session: SessionId) -> bool {
    const EPOCHS: u32 = 1 << 24;
    const LOW: u64 = (1 << 56) - 1;
    // The id holds 24 bits of the epoch. Beyond that it does not tell.
    zxid.epoch() < EPOCHS && session.0.cast_unsigned() & LOW <= zxid.0
}

#[cfg(test)]
mod tests {
    use super::super::owners::session_id;
    use super::*;

    #[test]
    fn an_id_tells_when_its_session_was_created() {
        let id = |zxid| session_id(None, zxid);
        let at = Zxid::of(7, 100);
        for (created, by) in [((7, 100), true), ((7, 1), true), ((6, 900), true), ((7, 101), false), ((8, 1), false)] {
            assert_eq!(created_by(at, id(Zxid::of(created.0, created.1))), by, "{created:?}");
        }
        assert!(created_by(at, SessionId(-1 << 56 | 5)), "the server's id is no part of the zxid");
        assert!(!created_by(Zxid::of(1 << 24, 1), id(Zxid::of(3, 1))), "beyond 24 bits an epoch may come again");
    }

    #[test]
    fn secrets_are_the_same_in_every_byte() {
        assert!(same_secret(&[7; 16], &[7; 16]));
        for at in 0..16 {
            let mut other = [7; 16];
            other[at] ^= 1;
            assert!(!same_secret(&[7; 16], &other), "byte {at}");
        }
    }
}
