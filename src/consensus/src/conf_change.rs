//! Membership changes and their encoding in an entry's payload.
//!
//! The encoding is our own: a version byte, the transition, the changes, a context. It is what goes to disk and to
//! peers; the library's form exists in memory only.

use bytes::{BufMut, Bytes, BytesMut};

use crate::limits;
use crate::reader::Reader;
use crate::types::ServerId;

/// Version of the payload's encoding.
const VERSION: u8 = 1;

/// One step of a membership change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberChange {
    /// The server becomes a voter.
    AddVoter(ServerId),
    /// The server becomes a member without a vote; a voter is demoted.
    AddLearner(ServerId),
    /// The server is removed.
    Remove(ServerId),
}

/// How the old membership is replaced by the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transition {
    /// In one step if at most one member changes, else jointly and ended by the leader.
    #[default]
    Auto,
    /// Jointly, ended by the leader.
    JointImplicit,
    /// Jointly, ended by a later empty change.
    JointExplicit,
}

/// A membership change. Without changes and with [`Transition::Auto`] it ends joint consensus.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfChange {
    /// Carried out together; at most `limits::MEMBERS_MAX`.
    pub changes: Vec<MemberChange>,
    /// How the old membership is replaced.
    pub transition: Transition,
    /// The application's own, at most `limits::CONF_CONTEXT_BYTES_MAX` bytes.
    pub context: Bytes,
}

impl MemberChange {
    fn parts(self) -> (u8, ServerId) {
        match self {
            MemberChange::AddVoter(id) => (0, id),
            MemberChange::AddLearner(id) => (1, id),
            MemberChange::Remove(id) => (2, id),
        }
    }
}

impl ConfChange {
    /// The change that ends joint consensus.
    #[must_use]
    pub fn leave_joint() -> ConfChange {
        ConfChange::default()
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.changes.len() > limits::MEMBERS_MAX {
            return Err("too many changes");
        }
        if self.changes.iter().any(|change| change.parts().1 == ServerId(0)) {
            return Err("a member has id 0");
        }
        if self.changes.is_empty() && self.transition != Transition::Auto {
            return Err("an empty change cannot begin a joint one");
        }
        if self.context.len() > limits::CONF_CONTEXT_BYTES_MAX {
            return Err("context is too large");
        }
        Ok(())
    }

    /// The payload of an entry of kind [`EntryKind::ConfChange`](crate::EntryKind::ConfChange).
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(8 + self.changes.len() * 9 + self.context.len());
        out.put_u8(VERSION);
        out.put_u8(match self.transition {
            Transition::Auto => 0,
            Transition::JointImplicit => 1,
            Transition::JointExplicit => 2,
        });
        out.put_u16_le(u16::try_from(self.changes.len()).expect("checked against MEMBERS_MAX"));
        for change in &self.changes {
            let (kind, id) = change.parts();
            out.put_u8(kind);
            out.put_u64_le(id.wide());
        }
        out.put_slice(&self.context);
        out.freeze()
    }

    /// Decodes such a payload. Every value is checked; the context is shared, not copied.
    ///
    /// # Errors
    /// The fault of the payload, in a few words.
    pub fn decode(payload: &Bytes) -> Result<ConfChange, &'static str> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != VERSION {
            return Err("unknown version");
        }
        let transition = match reader.u8()? {
            0 => Transition::Auto,
            1 => Transition::JointImplicit,
            2 => Transition::JointExplicit,
            _ => return Err("unknown transition"),
        };
        let count = usize::from(reader.u16()?);
        if count > limits::MEMBERS_MAX {
            return Err("too many changes");
        }
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = reader.u8()?;
            let id = reader.server()?;
            changes.push(match kind {
                0 => MemberChange::AddVoter(id),
                1 => MemberChange::AddLearner(id),
                2 => MemberChange::Remove(id),
                _ => return Err("unknown change"),
            });
        }
        let change = ConfChange { changes, transition, context: reader.rest() };
        change.check()?;
        Ok(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_and_decodes() {
        let all = [
            ConfChange::leave_joint(),
            ConfChange {
                changes: vec![
                    MemberChange::AddVoter(ServerId(4)),
                    MemberChange::AddLearner(ServerId(u8::MAX)),
                    MemberChange::Remove(ServerId(1)),
                ],
                transition: Transition::JointExplicit,
                context: Bytes::from_static(b"where it listens"),
            },
        ];
        for change in all {
            let payload = change.encode();
            assert_eq!(ConfChange::decode(&payload), Ok(change.clone()));
            for cut in 0..4 + change.changes.len() * 9 {
                assert!(ConfChange::decode(&payload.slice(..cut)).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn refuses_invalid_payloads() {
        let check = |bytes: &'static [u8], reason| {
            assert_eq!(ConfChange::decode(&Bytes::from_static(bytes)), Err(reason));
        };
        check(&[2, 0, 0, 0], "unknown version");
        check(&[1, 3, 0, 0], "unknown transition");
        check(&[1, 0, 255, 255], "too many changes");
        check(&[1, 1, 0, 0], "an empty change cannot begin a joint one");
        check(&[1, 0, 1, 0, 9, 1, 0, 0, 0, 0, 0, 0, 0], "unknown change");
        check(&[1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "a member has id 0");
    }
}
