//! What servers of an ensemble say to each other, and its encoding.
//!
//! The types hold exactly what each kind of message needs, so most nonsense cannot be expressed. `decode` checks
//! structure and limits; `RaftNode::step` checks the rest against the node's state. Integers are little-endian, the
//! first byte is the version. Framing, checksums and encryption are the transport's.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::PeerError;
use crate::limits;
use crate::types::{Entry, EntryKind, Index, Membership, NodeId, Term};

/// Version of the encoding.
const VERSION: u8 = 1;
/// Bytes of an encoded entry beside its payload: term, index, kind, length.
const ENTRY_HEADER_BYTES: usize = 8 + 8 + 1 + 4;

/// One message from one server to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerMessage {
    /// Sender.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    /// Term of the sender; of the coming election in a pre-vote.
    pub term: Term,
    /// What it says.
    pub body: PeerBody,
}

/// Names one read-index request, uniquely over all servers and restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadContext(pub [u8; 24]);

/// The kinds of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerBody {
    /// Leader to follower: entries after the one at `prev_index`.
    Append {
        /// Index of the entry before the first.
        prev_index: Index,
        /// Its term.
        prev_term: Term,
        /// Leader's commit index.
        commit: Index,
        /// Contiguous; at most `limits::APPEND_ENTRIES_MAX`.
        entries: Vec<Entry>,
    },
    /// Leader to follower: all is committed up to there. Answered only by who has not the entry at `index`.
    Notice {
        /// An entry that the follower has been sent.
        index: Index,
        /// Its term.
        term: Term,
        /// At most `index`.
        commit: Index,
    },
    /// Follower to leader.
    AppendReply(AppendReply),
    /// Candidate to voters.
    Vote {
        /// Only asks whether it could win.
        pre: bool,
        /// Asked by the leader to take over, so that the leader's lease does not count.
        transfer: bool,
        /// Candidate's last entry.
        last_index: Index,
        /// Its term.
        last_term: Term,
        /// Candidate's commit index.
        commit: Index,
        /// Term of that entry.
        commit_term: Term,
    },
    /// Voter to candidate.
    VoteReply {
        /// Answers a pre-vote.
        pre: bool,
        /// Whether the vote is given.
        granted: bool,
        /// Voter's commit index, 0 if granted.
        commit: Index,
        /// Term of that entry, 0 if granted.
        commit_term: Term,
    },
    /// Leader to follower: still here.
    Heartbeat {
        /// Commit index as far as this follower is known to have the entries.
        commit: Index,
        /// The latest read that wants leadership confirmed.
        context: Option<ReadContext>,
    },
    /// Follower to leader.
    HeartbeatReply {
        /// Follower's commit index.
        commit: Index,
        /// As in the heartbeat.
        context: Option<ReadContext>,
    },
    /// Leader to follower: the image at `index` replaces your log. The transport delivers the image first and this
    /// message after.
    Snapshot {
        /// Last index in the image.
        index: Index,
        /// Term of that entry.
        term: Term,
        /// Membership at that index.
        membership: Membership,
    },
    /// Leader to voter: stand for election now.
    TimeoutNow,
    /// Follower to leader: which index must a read wait for.
    ReadIndex {
        /// Names the request.
        context: ReadContext,
    },
    /// Leader to follower.
    ReadIndexReply {
        /// The index to apply first.
        index: Index,
        /// As in the request.
        context: ReadContext,
    },
}

/// Answer to an append or a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendReply {
    /// Everything up to `index` is the leader's and durable here.
    Accepted {
        /// That index.
        index: Index,
        /// Follower's commit index.
        commit: Index,
    },
    /// The entry before the first one did not match.
    Rejected {
        /// The index that did not match.
        index: Index,
        /// Where to try next.
        hint: Index,
        /// Term of the follower's entry there.
        hint_term: Term,
        /// Follower's commit index.
        commit: Index,
    },
    /// The follower's state is not to be trusted, its log is: it wants an image that holds all of that log.
    WantsImage {
        /// Follower's commit index.
        commit: Index,
        /// Its last entry.
        last: Index,
        /// Term of that entry.
        last_term: Term,
        /// The image must end there or later.
        from: Index,
    },
}

impl PeerMessage {
    /// Appends the encoding to `out`. Payloads are copied: they go into a frame.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(VERSION);
        out.put_u8(self.body.tag());
        for value in [self.from.0, self.to.0, self.term.0] {
            out.put_u64_le(value);
        }
        match &self.body {
            PeerBody::Append { prev_index, prev_term, commit, entries } => {
                put(out, &[prev_index.0, prev_term.0, commit.0]);
                put_entries(out, entries);
            }
            PeerBody::Notice { index, term, commit } => put(out, &[index.0, term.0, commit.0]),
            PeerBody::AppendReply(AppendReply::Accepted { index, commit }) => put(out, &[index.0, commit.0]),
            PeerBody::AppendReply(AppendReply::Rejected { index, hint, hint_term, commit }) => {
                put(out, &[index.0, hint.0, hint_term.0, commit.0]);
            }
            PeerBody::AppendReply(AppendReply::WantsImage { commit, last, last_term, from }) => {
                put(out, &[commit.0, last.0, last_term.0, from.0]);
            }
            PeerBody::Vote { pre, transfer, last_index, last_term, commit, commit_term } => {
                out.put_u8(u8::from(*pre) | u8::from(*transfer) << 1);
                put(out, &[last_index.0, last_term.0, commit.0, commit_term.0]);
            }
            PeerBody::VoteReply { pre, granted, commit, commit_term } => {
                out.put_u8(u8::from(*pre) | u8::from(*granted) << 1);
                put(out, &[commit.0, commit_term.0]);
            }
            PeerBody::Heartbeat { commit, context } | PeerBody::HeartbeatReply { commit, context } => {
                put(out, &[commit.0]);
                if let Some(context) = context {
                    out.put_slice(&context.0);
                }
            }
            PeerBody::Snapshot { index, term, membership } => {
                put(out, &[index.0, term.0]);
                put_membership(out, membership);
            }
            PeerBody::TimeoutNow => {}
            PeerBody::ReadIndex { context } => out.put_slice(&context.0),
            PeerBody::ReadIndexReply { index, context } => {
                put(out, &[index.0]);
                out.put_slice(&context.0);
            }
        }
    }

    /// Reads one message that fills `bytes` exactly. Payloads share `bytes`.
    ///
    /// # Errors
    /// `PeerError::Version`, `PeerError::Malformed`, and whatever is wrong with a value by itself.
    pub fn decode(bytes: &Bytes) -> Result<PeerMessage, PeerError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8().map_err(PeerError::Malformed)?;
        if version != VERSION {
            return Err(PeerError::Version(version));
        }
        let message = read_message(&mut reader).map_err(PeerError::Malformed)?;
        message.check()?;
        Ok(message)
    }

    /// Checks what can be checked without knowing the receiver's state.
    pub(crate) fn check(&self) -> Result<(), PeerError> {
        if self.from == NodeId(0) || self.from == self.to {
            return Err(PeerError::Sender(self.from));
        }
        check_term(self.term)?;
        match &self.body {
            PeerBody::Append { prev_index, prev_term, commit, entries } => {
                check_index(*prev_index)?;
                check_index(*commit)?;
                check_entries(self.term, *prev_index, *prev_term, entries)
            }
            PeerBody::Notice { index, term, commit } => {
                check_index(*index)?;
                check_term(*term)?;
                check_order(*term, self.term)?;
                if commit > index || *commit == Index(0) { Err(PeerError::Index(*commit)) } else { Ok(()) }
            }
            PeerBody::AppendReply(AppendReply::Accepted { index, commit }) => {
                check_index(*index)?;
                check_index(*commit)
            }
            PeerBody::AppendReply(AppendReply::Rejected { index, hint, hint_term, commit }) => {
                check_index(*index)?;
                check_index(*commit)?;
                if hint > index {
                    return Err(PeerError::Index(*hint));
                }
                if *hint_term > self.term { Err(PeerError::Term(*hint_term)) } else { Ok(()) }
            }
            PeerBody::AppendReply(AppendReply::WantsImage { commit, last, last_term, from }) => {
                check_index(*last)?;
                if commit > last {
                    return Err(PeerError::Index(*commit));
                }
                if *from == Index(0) || from > last {
                    return Err(PeerError::Index(*from));
                }
                check_order(*last_term, self.term)
            }
            PeerBody::Vote { last_index, last_term, commit, commit_term, .. } => {
                check_index(*last_index)?;
                check_index(*commit)?;
                check_order(*last_term, self.term)?;
                check_order(*commit_term, self.term)
            }
            PeerBody::VoteReply { commit, commit_term, .. } => {
                check_index(*commit)?;
                if commit_term.0 > limits::TERM_MAX { Err(PeerError::Term(*commit_term)) } else { Ok(()) }
            }
            PeerBody::Heartbeat { commit, .. } | PeerBody::HeartbeatReply { commit, .. } => check_index(*commit),
            PeerBody::Snapshot { index, term, membership } => {
                check_index(*index)?;
                if *index == Index(0) {
                    return Err(PeerError::Index(*index));
                }
                check_term(*term)?;
                check_order(*term, self.term)?;
                membership.check().map_err(PeerError::Membership)
            }
            PeerBody::ReadIndexReply { index, .. } => check_index(*index),
            PeerBody::TimeoutNow | PeerBody::ReadIndex { .. } => Ok(()),
        }
    }
}

fn check_term(term: Term) -> Result<(), PeerError> {
    if term == Term(0) || term.0 > limits::TERM_MAX { Err(PeerError::Term(term)) } else { Ok(()) }
}

fn check_order(term: Term, at_most: Term) -> Result<(), PeerError> {
    if term > at_most { Err(PeerError::Term(term)) } else { Ok(()) }
}

fn check_index(index: Index) -> Result<(), PeerError> {
    if index.0 > limits::INDEX_MAX { Err(PeerError::Index(index)) } else { Ok(()) }
}

fn check_entries(leader: Term, prev_index: Index, prev_term: Term, entries: &[Entry]) -> Result<(), PeerError> {
    if entries.len() > limits::APPEND_ENTRIES_MAX {
        return Err(PeerError::Entries("too many"));
    }
    if (prev_index == Index(0)) != (prev_term == Term(0)) {
        return Err(PeerError::Entries("index and term before the first do not fit"));
    }
    check_order(prev_term, leader)?;
    let (mut index, mut term) = (prev_index.0, prev_term);
    for entry in entries {
        if entry.index.0 != index + 1 {
            return Err(PeerError::Entries("gap"));
        }
        if entry.term < term || entry.term == Term(0) || entry.term > leader {
            return Err(PeerError::Entries("term out of order"));
        }
        if entry.payload.len() > limits::ENTRY_BYTES_MAX as usize {
            return Err(PeerError::Entries("too large"));
        }
        (index, term) = (entry.index.0, entry.term);
    }
    check_index(Index(index))
}

impl PeerBody {
    fn tag(&self) -> u8 {
        match self {
            PeerBody::Append { .. } => 1,
            PeerBody::AppendReply(AppendReply::Accepted { .. }) => 2,
            PeerBody::AppendReply(AppendReply::Rejected { .. }) => 3,
            PeerBody::Vote { .. } => 4,
            PeerBody::VoteReply { .. } => 5,
            PeerBody::Heartbeat { context: None, .. } => 6,
            PeerBody::Heartbeat { context: Some(_), .. } => 7,
            PeerBody::HeartbeatReply { context: None, .. } => 8,
            PeerBody::HeartbeatReply { context: Some(_), .. } => 9,
            PeerBody::Snapshot { .. } => 10,
            PeerBody::TimeoutNow => 11,
            PeerBody::ReadIndex { .. } => 12,
            PeerBody::ReadIndexReply { .. } => 13,
            PeerBody::Notice { .. } => 14,
            PeerBody::AppendReply(AppendReply::WantsImage { .. }) => 15,
        }
    }
}

fn put(out: &mut BytesMut, values: &[u64]) {
    for value in values {
        out.put_u64_le(*value);
    }
}

fn put_entries(out: &mut BytesMut, entries: &[Entry]) {
    let bytes: usize = entries.iter().map(|entry| ENTRY_HEADER_BYTES + entry.payload.len()).sum();
    out.reserve(4 + bytes);
    out.put_u32_le(u32::try_from(entries.len()).expect("the library cuts messages by size"));
    for entry in entries {
        put(out, &[entry.term.0, entry.index.0]);
        out.put_u8(match entry.kind {
            EntryKind::Normal => 0,
            EntryKind::ConfChange => 1,
        });
        out.put_u32_le(u32::try_from(entry.payload.len()).expect("payloads are at most ENTRY_BYTES_MAX"));
        out.put_slice(&entry.payload);
    }
}

impl Membership {
    /// For an image, or wherever else it is kept beside the log.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        put_membership(&mut out, self);
        out.freeze()
    }

    /// Reads what [`Membership::encode`] wrote, and gives what follows it; every value is checked.
    ///
    /// # Errors
    /// What is wrong with it, in a few words.
    pub fn decode_first(bytes: &[u8]) -> Result<(Membership, &[u8]), &'static str> {
        let whole = Bytes::copy_from_slice(bytes);
        let mut reader = Reader::new(&whole);
        if reader.u8()? != VERSION {
            return Err("unknown version");
        }
        let membership = read_membership(&mut reader)?;
        membership.check()?;
        Ok((membership, &bytes[bytes.len() - reader.left.len()..]))
    }
}

fn put_membership(out: &mut BytesMut, membership: &Membership) {
    let lists = [&membership.voters, &membership.learners, &membership.voters_outgoing, &membership.learners_next];
    for list in lists {
        out.put_u16_le(u16::try_from(list.len()).expect("lists are at most MEMBERS_MAX"));
        for id in list {
            out.put_u64_le(id.0);
        }
    }
    out.put_u8(u8::from(membership.auto_leave));
}

fn read_message(reader: &mut Reader<'_>) -> Result<PeerMessage, &'static str> {
    let tag = reader.u8()?;
    let (from, to, term) = (NodeId(reader.u64()?), NodeId(reader.u64()?), Term(reader.u64()?));
    let body = match tag {
        1 => PeerBody::Append {
            prev_index: Index(reader.u64()?),
            prev_term: Term(reader.u64()?),
            commit: Index(reader.u64()?),
            entries: read_entries(reader)?,
        },
        2 => PeerBody::AppendReply(AppendReply::Accepted { index: Index(reader.u64()?), commit: Index(reader.u64()?) }),
        3 => PeerBody::AppendReply(AppendReply::Rejected {
            index: Index(reader.u64()?),
            hint: Index(reader.u64()?),
            hint_term: Term(reader.u64()?),
            commit: Index(reader.u64()?),
        }),
        15 => PeerBody::AppendReply(AppendReply::WantsImage {
            commit: Index(reader.u64()?),
            last: Index(reader.u64()?),
            last_term: Term(reader.u64()?),
            from: Index(reader.u64()?),
        }),
        4 => {
            let (pre, transfer) = reader.flags()?;
            PeerBody::Vote {
                pre,
                transfer,
                last_index: Index(reader.u64()?),
                last_term: Term(reader.u64()?),
                commit: Index(reader.u64()?),
                commit_term: Term(reader.u64()?),
            }
        }
        5 => {
            let (pre, granted) = reader.flags()?;
            PeerBody::VoteReply { pre, granted, commit: Index(reader.u64()?), commit_term: Term(reader.u64()?) }
        }
        6 => PeerBody::Heartbeat { commit: Index(reader.u64()?), context: None },
        7 => PeerBody::Heartbeat { commit: Index(reader.u64()?), context: Some(reader.context()?) },
        8 => PeerBody::HeartbeatReply { commit: Index(reader.u64()?), context: None },
        9 => PeerBody::HeartbeatReply { commit: Index(reader.u64()?), context: Some(reader.context()?) },
        10 => PeerBody::Snapshot {
            index: Index(reader.u64()?),
            term: Term(reader.u64()?),
            membership: read_membership(reader)?,
        },
        11 => PeerBody::TimeoutNow,
        12 => PeerBody::ReadIndex { context: reader.context()? },
        13 => PeerBody::ReadIndexReply { index: Index(reader.u64()?), context: reader.context()? },
        14 => PeerBody::Notice { index: Index(reader.u64()?), term: Term(reader.u64()?), commit: Index(reader.u64()?) },
        _ => return Err("unknown kind"),
    };
    if !reader.left.is_empty() {
        return Err("bytes after the end");
    }
    Ok(PeerMessage { from, to, term, body })
}

fn read_entries(reader: &mut Reader<'_>) -> Result<Vec<Entry>, &'static str> {
    let count = reader.u32()? as usize;
    // Room is made for what the message can hold, not for what it claims.
    if count > limits::APPEND_ENTRIES_MAX || count > reader.left.len() / ENTRY_HEADER_BYTES {
        return Err("more entries than bytes");
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let (term, index) = (Term(reader.u64()?), Index(reader.u64()?));
        let kind = match reader.u8()? {
            0 => EntryKind::Normal,
            1 => EntryKind::ConfChange,
            _ => return Err("unknown entry kind"),
        };
        let length = reader.u32()? as usize;
        entries.push(Entry { term, index, kind, payload: reader.share(length)? });
    }
    Ok(entries)
}

fn read_membership(reader: &mut Reader<'_>) -> Result<Membership, &'static str> {
    let mut lists: [Vec<NodeId>; 4] = Default::default();
    for list in &mut lists {
        let count = usize::from(reader.u16()?);
        if count > limits::MEMBERS_MAX {
            return Err("too many members");
        }
        for _ in 0..count {
            list.push(NodeId(reader.u64()?));
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

/// Reads integers off the front of a shared buffer; never past its end.
pub(crate) struct Reader<'a> {
    whole: &'a Bytes,
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(whole: &'a Bytes) -> Reader<'a> {
        Reader { whole, left: whole }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (head, tail) = self.left.split_first_chunk::<N>().ok_or("too short")?;
        self.left = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, &'static str> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, &'static str> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, &'static str> {
        self.take().map(u64::from_le_bytes)
    }

    fn flags(&mut self) -> Result<(bool, bool), &'static str> {
        let flags = self.u8()?;
        if flags > 3 { Err("unknown flag") } else { Ok((flags & 1 != 0, flags & 2 != 0)) }
    }

    fn context(&mut self) -> Result<ReadContext, &'static str> {
        self.take().map(ReadContext)
    }

    fn share(&mut self, length: usize) -> Result<Bytes, &'static str> {
        let (head, tail) = self.left.split_at_checked(length).ok_or("too short")?;
        self.left = tail;
        Ok(self.whole.slice_ref(head))
    }

    pub(crate) fn rest(&mut self) -> Bytes {
        self.whole.slice_ref(std::mem::take(&mut self.left))
    }
}
