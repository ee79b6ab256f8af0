//! Conversion between the types of this crate and those of the Raft library. Only `log.rs` and the files of `node` name
//! those, too.
//!
//! The payload of a membership change keeps the encoding of this crate inside the library. The library reads only the
//! kind of such an entry, because `node/library.rs` appends it. No protobuf is written or read.

// Field by field is how one fills generated types that also carry hidden fields.
#![allow(clippy::field_reassign_with_default)]

use bytes::Bytes;
use raft::eraftpb;
use raft::eraftpb::MessageType as Kind;

use crate::conf_change::{ConfChange, MemberChange, Transition};
use crate::membership::Membership;
use crate::message::{AppendReply, PeerBody, PeerMessage, ReadContext};
use crate::types::{Entry, EntryKind, HardState, Index, ServerId, Term};

/// An id inside of the library. 0 names no server.
///
/// # Panics
/// If this crate did not give the library that id.
pub(crate) fn id_of(raw: u64) -> ServerId {
    ServerId(u8::try_from(raw).expect("the library has the ids that it was given"))
}

pub(crate) fn hard_state_out(from: &eraftpb::HardState) -> HardState {
    HardState { term: Term(from.term), vote: ServerId::from_wide(from.vote), commit: Index(from.commit) }
}

pub(crate) fn hard_state_in(from: &HardState) -> eraftpb::HardState {
    let mut to = eraftpb::HardState::default();
    to.term = from.term.0;
    to.vote = from.vote.map_or(0, |id| id.wide());
    to.commit = from.commit.0;
    to
}

pub(crate) fn is_conf_change(entry: &eraftpb::Entry) -> bool {
    entry.entry_type != eraftpb::EntryType::EntryNormal
}

pub(crate) fn membership_in(from: &Membership) -> eraftpb::ConfState {
    let raw = |list: &[ServerId]| list.iter().map(|id| id.wide()).collect::<Vec<u64>>();
    let mut to = eraftpb::ConfState::default();
    to.voters = raw(&from.voters);
    to.learners = raw(&from.learners);
    to.voters_outgoing = raw(&from.voters_outgoing);
    to.learners_next = raw(&from.learners_next);
    to.auto_leave = from.auto_leave;
    to
}

pub(crate) fn membership_out(from: &eraftpb::ConfState) -> Membership {
    let ids = |list: &[u64]| list.iter().map(|id| id_of(*id)).collect::<Vec<ServerId>>();
    let mut to = Membership {
        voters: ids(&from.voters),
        learners: ids(&from.learners),
        voters_outgoing: ids(&from.voters_outgoing),
        learners_next: ids(&from.learners_next),
        auto_leave: from.auto_leave,
    };
    to.sort();
    to
}

pub(crate) fn entry_out(from: &eraftpb::Entry) -> Entry {
    let (kind, payload) = match from.entry_type {
        eraftpb::EntryType::EntryNormal => (EntryKind::Normal, from.data.clone()),
        // The library itself appends an empty change to end a joint one.
        _ if from.data.is_empty() => (EntryKind::ConfChange, ConfChange::leave_joint().encode()),
        _ => (EntryKind::ConfChange, from.data.clone()),
    };
    Entry { term: Term(from.term), index: Index(from.index), kind, payload }
}

/// # Errors
/// The fault in the payload of a membership change.
pub(crate) fn entry_in(from: &Entry) -> Result<eraftpb::Entry, &'static str> {
    let mut to = eraftpb::Entry::default();
    to.term = from.term.0;
    to.index = from.index.0;
    to.data = from.payload.clone();
    if from.kind == EntryKind::ConfChange {
        ConfChange::decode(&from.payload)?;
        to.entry_type = eraftpb::EntryType::EntryConfChangeV2;
    }
    Ok(to)
}

/// The entry a leader appends for a membership change.
pub(crate) fn conf_change_entry(change: &ConfChange) -> eraftpb::Entry {
    let mut to = eraftpb::Entry::default();
    to.entry_type = eraftpb::EntryType::EntryConfChangeV2;
    to.data = change.encode();
    to
}

pub(crate) fn conf_change_in(from: &ConfChange) -> eraftpb::ConfChangeV2 {
    let mut to = eraftpb::ConfChangeV2::default();
    to.set_transition(match from.transition {
        Transition::Auto => eraftpb::ConfChangeTransition::Auto,
        Transition::JointImplicit => eraftpb::ConfChangeTransition::Implicit,
        Transition::JointExplicit => eraftpb::ConfChangeTransition::Explicit,
    });
    let single = |change: &MemberChange| {
        let (kind, id) = match change {
            MemberChange::AddVoter(id) => (eraftpb::ConfChangeType::AddNode, id),
            MemberChange::AddLearner(id) => (eraftpb::ConfChangeType::AddLearnerNode, id),
            MemberChange::Remove(id) => (eraftpb::ConfChangeType::RemoveNode, id),
        };
        let mut single = eraftpb::ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = id.wide();
        single
    };
    to.set_changes(from.changes.iter().map(single).collect::<Vec<_>>().into());
    to
}

pub(crate) fn snapshot_in(index: Index, term: Term, membership: &Membership) -> eraftpb::Snapshot {
    let mut meta = eraftpb::SnapshotMetadata::default();
    meta.index = index.0;
    meta.term = term.0;
    meta.set_conf_state(membership_in(membership));
    let mut to = eraftpb::Snapshot::default();
    to.set_metadata(meta);
    to
}

/// # Errors
/// The fault in the payload of a membership change among the entries.
pub(crate) fn message_in(from: &PeerMessage) -> Result<eraftpb::Message, &'static str> {
    let mut to = eraftpb::Message::default();
    to.from = from.from.wide();
    to.to = from.to.wide();
    to.term = from.term.0;
    match &from.body {
        PeerBody::Append { prev_index, prev_term, commit, entries } => {
            to.msg_type = Kind::MsgAppend;
            (to.index, to.log_term, to.commit) = (prev_index.0, prev_term.0, commit.0);
            to.set_entries(entries.iter().map(entry_in).collect::<Result<Vec<_>, _>>()?.into());
        }
        PeerBody::Notice { index, term, commit } => {
            to.msg_type = Kind::MsgAppend;
            (to.index, to.log_term, to.commit) = (index.0, term.0, commit.0);
        }
        PeerBody::AppendReply(AppendReply::Accepted { index, commit }) => {
            to.msg_type = Kind::MsgAppendResponse;
            (to.index, to.commit) = (index.0, commit.0);
        }
        PeerBody::AppendReply(AppendReply::Rejected { index, hint, hint_term, commit }) => {
            to.msg_type = Kind::MsgAppendResponse;
            to.reject = true;
            (to.index, to.reject_hint, to.log_term, to.commit) = (index.0, hint.0, hint_term.0, commit.0);
        }
        PeerBody::Vote { pre, transfer, last_index, last_term, commit, commit_term } => {
            to.msg_type = if *pre { Kind::MsgRequestPreVote } else { Kind::MsgRequestVote };
            (to.index, to.log_term) = (last_index.0, last_term.0);
            (to.commit, to.commit_term) = (commit.0, commit_term.0);
            if *transfer {
                to.context = Bytes::from_static(raft::CAMPAIGN_TRANSFER);
            }
        }
        PeerBody::VoteReply { pre, granted, commit, commit_term } => {
            to.msg_type = if *pre { Kind::MsgRequestPreVoteResponse } else { Kind::MsgRequestVoteResponse };
            to.reject = !granted;
            (to.commit, to.commit_term) = (commit.0, commit_term.0);
        }
        PeerBody::Heartbeat { commit, context } => {
            to.msg_type = Kind::MsgHeartbeat;
            to.commit = commit.0;
            to.context = context_in(*context);
        }
        PeerBody::HeartbeatReply { commit, context } => {
            to.msg_type = Kind::MsgHeartbeatResponse;
            to.commit = commit.0;
            to.context = context_in(*context);
        }
        PeerBody::Snapshot { index, term, membership } => {
            to.msg_type = Kind::MsgSnapshot;
            to.set_snapshot(snapshot_in(*index, *term, membership));
        }
        PeerBody::TimeoutNow => to.msg_type = Kind::MsgTimeoutNow,
        PeerBody::WantsState { .. } => return Err("a request that does not concern the log"),
        PeerBody::ReadIndex { context } => {
            to = read_request(*context);
            to.from = from.from.wide();
            to.to = from.to.wide();
        }
        PeerBody::ReadIndexReply { index, context } => {
            to.msg_type = Kind::MsgReadIndexResp;
            to.index = index.0;
            to.set_entries(context_entries(*context).into());
        }
    }
    Ok(to)
}

/// A read-index request of this node. It carries no term: the library takes that for a local message.
pub(crate) fn read_request(context: ReadContext) -> eraftpb::Message {
    let mut to = eraftpb::Message::default();
    to.msg_type = Kind::MsgReadIndex;
    to.set_entries(context_entries(context).into());
    to
}

fn context_in(context: Option<ReadContext>) -> Bytes {
    context.map_or_else(Bytes::new, |context| Bytes::copy_from_slice(&context.0))
}

fn context_entries(context: ReadContext) -> Vec<eraftpb::Entry> {
    let mut entry = eraftpb::Entry::default();
    entry.data = context_in(Some(context));
    vec![entry]
}

pub(crate) fn context_out(bytes: &[u8]) -> Option<ReadContext> {
    bytes.try_into().ok().map(ReadContext)
}

/// `None` for kinds that never leave a node here: proposals are not forwarded, nor are leadership transfers.
/// `term` is the node's own, for the kinds the library sends without one.
pub(crate) fn message_out(from: &eraftpb::Message, term: u64) -> Option<PeerMessage> {
    let (index, commit) = (Index(from.index), Index(from.commit));
    let pre = matches!(from.msg_type, Kind::MsgRequestPreVote | Kind::MsgRequestPreVoteResponse);
    let body = match from.msg_type {
        Kind::MsgAppend => PeerBody::Append {
            prev_index: index,
            prev_term: Term(from.log_term),
            commit,
            entries: from.entries.iter().map(entry_out).collect(),
        },
        Kind::MsgAppendResponse if from.reject => PeerBody::AppendReply(AppendReply::Rejected {
            index,
            hint: Index(from.reject_hint),
            hint_term: Term(from.log_term),
            commit,
        }),
        Kind::MsgAppendResponse => PeerBody::AppendReply(AppendReply::Accepted { index, commit }),
        Kind::MsgRequestVote | Kind::MsgRequestPreVote => PeerBody::Vote {
            pre,
            transfer: from.context == raft::CAMPAIGN_TRANSFER,
            last_index: index,
            last_term: Term(from.log_term),
            commit,
            commit_term: Term(from.commit_term),
        },
        Kind::MsgRequestVoteResponse | Kind::MsgRequestPreVoteResponse => {
            PeerBody::VoteReply { pre, granted: !from.reject, commit, commit_term: Term(from.commit_term) }
        }
        Kind::MsgHeartbeat => PeerBody::Heartbeat { commit, context: context_out(&from.context) },
        Kind::MsgHeartbeatResponse => PeerBody::HeartbeatReply { commit, context: context_out(&from.context) },
        Kind::MsgSnapshot => {
            let meta = from.get_snapshot().get_metadata();
            let membership = membership_out(meta.get_conf_state());
            PeerBody::Snapshot { index: Index(meta.index), term: Term(meta.term), membership }
        }
        Kind::MsgTimeoutNow => PeerBody::TimeoutNow,
        Kind::MsgReadIndex => PeerBody::ReadIndex { context: context_out(&from.entries.first()?.data)? },
        Kind::MsgReadIndexResp => {
            PeerBody::ReadIndexReply { index, context: context_out(&from.entries.first()?.data)? }
        }
        _ => return None,
    };
    let term = Term(if from.term == 0 { term } else { from.term });
    Some(PeerMessage { from: id_of(from.from), to: id_of(from.to), term, body })
}
