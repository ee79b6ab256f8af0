//! The checkers: they see what clients send and receive and which log entries commit, and compare that with the model.
//!
//! One property a file: `writes`, `reads`, `watches`, `sessions`, `trees`, `elections`, `members`. This file
//! holds what they share: the facts about each connection and the order in which a reply passes them.

mod elections;
mod entry;
mod members;
mod reads;
mod sessions;
mod trees;
mod watches;
mod writes;

use std::collections::BTreeMap;

use corral_consensus::HardState;
use corral_core::ids::{ConnId, Millis, ShardId};

use crate::link::Sent;
use crate::model::{Expected, Identity, LinkId, Model, SUPER, UNIMPLEMENTED, digest_id};
use crate::options::Options;
use crate::reconfig::{Seats, participants};
use crate::request::{Body, Request};
use crate::servers::server_id;
use crate::violation::{Checked, require};
use watches::Watches;

pub(crate) use entry::CommittedEntry;

/// A command that a client put into the world; the server may propose it or not, but nothing else.
#[derive(Clone, Debug)]
enum Proposed {
    Connect { session: i64, timeout_ms: i32, password: [u8; 16] },
    Request(Request),
}

#[derive(Debug, Default)]
struct Facts {
    session: i64,
    identities: Vec<Identity>,
    proposed: Vec<Proposed>,
    /// The model's verdict on each proposed command that was committed, in order, with its zxid.
    verdicts: Vec<(u64, Expected)>,
    watches: Watches,
    last_reply: (i64, bool),
    /// The start of the server that accepted it.
    incarnation: u64,
}

/// A server's own name of a connection, with its incarnation.
type ServerName = (u64, ShardId, ConnId);

#[derive(Debug, Default)]
pub(crate) struct Checkers {
    pub(crate) model: Model,
    history: writes::History,
    /// By connection.
    facts: Vec<Facts>,
    names: BTreeMap<ServerName, LinkId>,
    lives: sessions::Lives,
    elections: elections::Elections,
    members: members::Members,
    /// The servers of the configuration.
    founders: Seats,
    /// The highest header zxid that each session has seen.
    seen: BTreeMap<i64, i64>,
    /// The highest zxid that any client has an answer with.
    acked: u64,
    /// .. that any client of this start of a server has an answer with.
    acked_by: BTreeMap<u64, u64>,
    in_ensemble: bool,
    /// Leaders may refuse commands that cost too much.
    has_builds: bool,
    pub(crate) too_costly: u64,
    /// Leaders may refuse writes that add data.
    has_scarcity: bool,
    pub(crate) growth_refused: u64,
    /// A read shows what was acknowledged by any of them.
    linearizable: bool,
}

impl Checkers {
    pub(crate) fn new(options: &Options) -> Checkers {
        let ensemble = options.ensemble.as_ref();
        let in_ensemble = ensemble.is_some();
        let (list, servers) = (ensemble.and_then(|it| it.list), ensemble.map_or(1, |it| it.servers));
        let entries = if in_ensemble { vec![(0, None)] } else { Vec::new() };
        Checkers {
            model: Model::new(options.switches, list.map(|list| list.voters_min)),
            members: members::Members::of_founders(servers),
            founders: participants((0..servers).map(server_id)),
            in_ensemble,
            has_builds: options.has_builds,
            has_scarcity: options.has_scarcity,
            linearizable: ensemble.is_some_and(|ensemble| ensemble.linearizable),
            history: writes::History { entries, ..writes::History::default() },
            ..Checkers::default()
        }
    }

    pub(crate) fn opened(&mut self, link: LinkId, address: &str) {
        let identities = vec![("ip".to_owned(), address.to_owned())];
        assert_eq!(link.0, self.facts.len(), "connections are opened in order");
        self.facts.push(Facts { identities, ..Facts::default() });
    }

    pub(crate) fn accepted(&mut self, link: LinkId, shard: ShardId, id: ConnId, incarnation: u64) {
        self.names.insert((incarnation, shard, id), link);
        self.facts[link.0].incarnation = incarnation;
    }

    pub(crate) fn connecting(&mut self, link: LinkId, session: i64, timeout_ms: i32, password: [u8; 16]) {
        self.facts[link.0].proposed.push(Proposed::Connect { session, timeout_ms, password });
    }

    /// A client sends a request. Gives its number among the connection's commands, and the acknowledged zxid by now.
    /// That is of any client, or for a plain read of one server among several, of that server.
    pub(crate) fn asked(&mut self, link: LinkId, request: &Request) -> (Option<usize>, u64) {
        let incarnation = self.facts[link.0].incarnation;
        let anywhere = match request {
            // It reads nothing.
            Request::Ping => !self.in_ensemble,
            Request::Sync { .. } => true,
            _ => !self.in_ensemble || self.linearizable || request.is_write(),
        };
        let acked = if anywhere { self.acked } else { self.acked_by.get(&incarnation).copied().unwrap_or_default() };
        let facts = &mut self.facts[link.0];
        if let Request::Auth { credentials } = request {
            if *credentials == SUPER {
                facts.identities.push(("super".to_owned(), String::new()));
            }
            facts.identities.push(("digest".to_owned(), digest_id(credentials).to_owned()));
        }
        let command = request.is_write().then(|| {
            facts.proposed.push(Proposed::Request(request.clone()));
            facts.proposed.len() - 1
        });
        (command, acked)
    }

    /// A reply reached its client. The client has checked that it answers the oldest request and ends with its record.
    pub(crate) fn replied(&mut self, link: LinkId, sent: &Sent, zxid: i64, err: i32, body: &Body) -> Checked {
        if matches!(sent.request, Request::Unknown(_)) {
            let refused = zxid == -1 && err == UNIMPLEMENTED;
            return require(refused, "replies", || format!("unknown operation: zxid {zxid:#x}, err {err}"));
        }
        self.goes_on(link, zxid)?;
        let is_logged = sent.command.is_some() && !self.is_refused_by_shard(link, sent, zxid, err);
        if is_logged {
            self.write_answered(link, sent, zxid, err, body)?;
        } else if sent.command.is_none() {
            self.read_answered(link, sent, zxid, err, body)?;
        }
        self.events_before_reply(link, &sent.request, zxid)?;
        self.watches_held(link, &sent.request, err)?;
        self.watch_set(link, &sent.request, zxid, err);
        self.facts[link.0].last_reply = (zxid, is_logged);
        self.acked = self.acked.max(zxid.cast_unsigned());
        let incarnation = self.facts[link.0].incarnation;
        let acked_by = self.acked_by.entry(incarnation).or_default();
        *acked_by = (*acked_by).max(zxid.cast_unsigned());
        Ok(())
    }

    /// Whether the last reply of the connection was a write's with this very zxid.
    pub(crate) fn is_behind_a_write(&self, link: LinkId, zxid: i64) -> bool {
        self.facts[link.0].last_reply == (zxid, true)
    }

    /// A session's view never goes back, and never shows an uncommitted state.
    fn goes_on(&mut self, link: LinkId, zxid: i64) -> Checked {
        let newest = self.model.zxid;
        let known = u64::try_from(zxid).is_ok_and(|zxid| zxid <= newest);
        require(known, "reads", || format!("header zxid {zxid:#x}, the last committed is {newest:#x}"))?;
        let session = self.facts[link.0].session;
        let seen = self.seen.entry(session).or_default();
        require(zxid >= *seen, "reads", || format!("session {session:#x} goes back from {seen:#x} to {zxid:#x}"))?;
        *seen = zxid;
        Ok(())
    }

    pub(crate) fn leads(&mut self, term: u64, now: Millis) {
        self.lives.led_by(term, now, &self.model);
    }

    /// A server runs again from its snapshot. A server that is alone has applied its whole log too.
    pub(crate) fn restarted(&mut self, server: usize, snapshot: u64, upto: u64, state: &HardState) -> Checked {
        self.remembers(server, state)?;
        self.history.comes_back(snapshot, (!self.in_ensemble).then_some(upto))
    }

    /// Sessions have their full timeout again when the server that is alone has started.
    pub(crate) fn started_alone(&mut self, now: Millis) {
        self.lives.all_start(now, &self.model);
    }
}
