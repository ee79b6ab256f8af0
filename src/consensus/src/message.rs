//! The Raft messages between servers of an ensemble, and their encoding.
//!
//! The types hold exactly what each kind of message needs, so most invalid messages cannot be expressed. `decode` checks
//! structure and limits; `RaftNode::step` checks the rest against the node's state. Integers are little-endian, the
//! first byte is the version. Framing, checksums and encryption are the transport's.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::PeerError;
use crate::limits;
use crate::membership::Membership;
use crate::reader::Reader;
use crate::types::{Entry, EntryKind, Index, ServerId, Term};

/// Version of the encoding.
const VERSION: u8 = 1;
/// Bytes of an encoded entry beside its payload: term, index, kind, length.
const ENTRY_HEADER_BYTES: usize = 8 + 8 + 1 + 4;

/// One message from one server to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerMessage {
    /// Sender.
    pub from: ServerId,
    /// Receiver.
    pub to: ServerId,
    /// Term of the sender; of the coming election in a pre-vote.
    pub term: Term,
    /// Kind and content.
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
    /// Leader to follower: the commit index. Only a follower without the entry at `index` replies.
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
        /// A pre-vote: asks whether the candidate would win.
        pre: bool,
        /// Requested by the leader that transfers leadership, so that the leader's lease does not count.
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
        /// Replies to a pre-vote.
        pre: bool,
        /// Whether the vote is given.
        granted: bool,
        /// Voter's commit index, 0 if granted.
        commit: Index,
        /// Term of that entry, 0 if granted.
        commit_term: Term,
    },
    /// Leader to follower: the leader is alive.
    Heartbeat {
        /// Commit index as far as this follower is known to have the entries.
        commit: Index,
        /// The latest read that needs leadership to be confirmed.
        context: Option<ReadContext>,
    },
    /// Follower to leader.
    HeartbeatReply {
        /// Follower's commit index.
        commit: Index,
        /// As in the heartbeat.
        context: Option<ReadContext>,
    },
    /// Leader to follower: the snapshot at `index` replaces the log. The transport delivers the snapshot before this
    /// message.
    Snapshot {
        /// Last index in the snapshot.
        index: Index,
        /// Term of that entry.
        term: Term,
        /// Membership at that index.
        membership: Membership,
    },
    /// Follower to leader: the follower's state is corrupt, its log is not. It requests a snapshot for its state.
    WantsState {
        /// Follower's commit index. Servers of versions up to 0.1 pass this message to Raft, which needs the first three.
        commit: Index,
        /// Its last entry.
        last: Index,
        /// Term of that entry.
        last_term: Term,
        /// The snapshot must end there or later.
        least: Index,
    },
    /// Leader to voter: begin an election now, because leadership is transferred.
    TimeoutNow,
    /// Follower to leader: requests the index that a read must wait for.
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
    /// Everything up to `index` equals the leader's log and is durable on the follower.
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
}

impl PeerMessage {
    /// Appends the encoding to `out`. Payloads are copied: they go into a frame.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(VERSION);
        out.put_u8(self.body.tag());
        for value in [self.from.wide(), self.to.wide(), self.term.0] {
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
            PeerBody::WantsState { commit, last, last_term, least } => {
                put(out, &[commit.0, last.0, last_term.0, least.0]);
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
                membership.put(out);
            }
            PeerBody::TimeoutNow => {}
            PeerBody::ReadIndex { context } => out.put_slice(&context.0),
            PeerBody::ReadIndexReply { index, context } => {
                put(out, &[index.0]);
                out.put_slice(&context.0);
            }
        }
    }

    /// Decodes one message that fills `bytes` exactly. Payloads share `bytes`. The receiver's state is not considered, see
    /// [`RaftNode::step`](crate::RaftNode::step).
    ///
    /// # Errors
    /// [`PeerError::Version`], [`PeerError::Malformed`], and invalid values.
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
        if self.from == ServerId(0) || self.from == self.to {
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
            PeerBody::WantsState { commit, last, last_term, least } => {
                check_index(*last)?;
                if commit > last {
                    return Err(PeerError::Index(*commit));
                }
                if *least == Index(0) || least > last {
                    return Err(PeerError::Index(*least));
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
            PeerBody::WantsState { .. } => 15,
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

fn read_message(reader: &mut Reader<'_>) -> Result<PeerMessage, &'static str> {
    let tag = reader.u8()?;
    let (from, to, term) = (reader.server()?, reader.server()?, Term(reader.u64()?));
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
        7 => PeerBody::Heartbeat { commit: Index(reader.u64()?), context: Some(ReadContext(reader.take()?)) },
        8 => PeerBody::HeartbeatReply { commit: Index(reader.u64()?), context: None },
        9 => PeerBody::HeartbeatReply { commit: Index(reader.u64()?), context: Some(ReadContext(reader.take()?)) },
        10 => PeerBody::Snapshot {
            index: Index(reader.u64()?),
            term: Term(reader.u64()?),
            membership: Membership::read(reader)?,
        },
        11 => PeerBody::TimeoutNow,
        12 => PeerBody::ReadIndex { context: ReadContext(reader.take()?) },
        13 => PeerBody::ReadIndexReply { index: Index(reader.u64()?), context: ReadContext(reader.take()?) },
        15 => PeerBody::WantsState {
            commit: Index(reader.u64()?),
            last: Index(reader.u64()?),
            last_term: Term(reader.u64()?),
            least: Index(reader.u64()?),
        },
        14 => PeerBody::Notice { index: Index(reader.u64()?), term: Term(reader.u64()?), commit: Index(reader.u64()?) },
        _ => return Err("unknown kind"),
    };
    if !reader.is_empty() {
        return Err("bytes after the end");
    }
    Ok(PeerMessage { from, to, term, body })
}

fn read_entries(reader: &mut Reader<'_>) -> Result<Vec<Entry>, &'static str> {
    let count = reader.u32()? as usize;
    // Memory is allocated only for a number of entries that the bytes can hold. A larger number is refused.
    if count > limits::APPEND_ENTRIES_MAX || count > reader.left() / ENTRY_HEADER_BYTES {
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
