//! The members of an ensemble: the rules that a membership keeps, and its encoding in messages and snapshots.
//!
//! Integers are little-endian. The list sizes are bounded by [`limits::MEMBERS_MAX`].

use bytes::{BufMut, Bytes, BytesMut};

use crate::limits;
use crate::reader::Reader;
use crate::types::ServerId;

/// Version of the encoding where it stands alone.
const VERSION: u8 = 1;

/// The members of the ensemble, also in the middle of a joint change. Lists are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Voters of the configuration in force or entered.
    pub voters: Vec<ServerId>,
    /// Members without a vote.
    pub learners: Vec<ServerId>,
    /// Voters of the configuration being left; empty outside a joint change.
    pub voters_outgoing: Vec<ServerId>,
    /// Outgoing voters that become learners when the joint change ends.
    pub learners_next: Vec<ServerId>,
    /// Whether the leader ends the joint change by itself.
    pub auto_leave: bool,
}

impl Membership {
    /// A membership outside of joint consensus. Lists may be in any order.
    #[must_use]
    pub fn simple(voters: &[ServerId], learners: &[ServerId]) -> Membership {
        let mut made = Membership { voters: voters.to_vec(), learners: learners.to_vec(), ..Membership::default() };
        made.sort();
        made
    }

    /// Whether the ensemble is in joint consensus.
    #[must_use]
    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    /// Whether `id` is a voter, an outgoing voter or a learner.
    #[must_use]
    pub fn contains(&self, id: ServerId) -> bool {
        [&self.voters, &self.learners, &self.voters_outgoing].iter().any(|list| list.contains(&id))
    }

    pub(crate) fn sort(&mut self) {
        for list in [&mut self.voters, &mut self.learners, &mut self.voters_outgoing, &mut self.learners_next] {
            list.sort_unstable();
        }
    }

    /// Checks the rules on which the library would panic.
    ///
    /// # Errors
    /// The rule that is broken.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let lists = [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next];
        for list in lists {
            if list.len() > limits::MEMBERS_MAX {
                return Err("too many members");
            }
            if list.contains(&ServerId(0)) {
                return Err("a member has id 0");
            }
            let mut sorted = list.clone();
            sorted.sort_unstable();
            if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err("a member is named twice");
            }
        }
        let shares = |a: &[ServerId], b: &[ServerId]| a.iter().any(|id| b.contains(id));
        if self.voters.is_empty() {
            return Err("no voter");
        }
        if shares(&self.learners, &self.voters) {
            return Err("a member is both voter and learner");
        }
        if shares(&self.learners, &self.voters_outgoing) {
            return Err("a member is both outgoing voter and learner");
        }
        if !self.learners_next.iter().all(|id| self.voters_outgoing.contains(id)) {
            return Err("a staged learner is no outgoing voter");
        }
        if shares(&self.learners_next, &self.voters) {
            return Err("a staged learner is still a voter");
        }
        if !self.is_joint() && self.auto_leave {
            return Err("automatic leave outside a joint change");
        }
        Ok(())
    }

    /// Encodes it with a version, for a snapshot.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        self.put(&mut out);
        out.freeze()
    }

    /// Decodes what [`Membership::encode`] wrote, and gives the bytes that follow it. Every value is checked.
    ///
    /// # Errors
    /// The fault of the bytes, in a few words.
    pub fn decode_first(bytes: &[u8]) -> Result<(Membership, &[u8]), &'static str> {
        let whole = Bytes::copy_from_slice(bytes);
        let mut reader = Reader::new(&whole);
        if reader.u8()? != VERSION {
            return Err("unknown version");
        }
        let membership = Membership::read(&mut reader)?;
        membership.check()?;
        Ok((membership, &bytes[bytes.len() - reader.left()..]))
    }

    /// Appends the encoding without a version, as messages hold it.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        let lists = [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next];
        for list in lists {
            out.put_u16_le(u16::try_from(list.len()).expect("lists are at most MEMBERS_MAX"));
            for id in list {
                out.put_u64_le(id.wide());
            }
        }
        out.put_u8(u8::from(self.auto_leave));
    }

    /// Reads what [`Membership::put`] wrote. Only structure and list sizes are checked, see [`Membership::check`].
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Membership, &'static str> {
        let mut lists: [Vec<ServerId>; 4] = Default::default();
        for list in &mut lists {
            let count = usize::from(reader.u16()?);
            if count > limits::MEMBERS_MAX {
                return Err("too many members");
            }
            for _ in 0..count {
                list.push(reader.server()?);
            }
        }
        let auto_leave = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err("unknown flag"),
        };
        let [voters, learners, voters_outgoing, learners_next] = lists;
        Ok(Membership { voters, learners, voters_outgoing, learners_next, auto_leave })
    }
}
