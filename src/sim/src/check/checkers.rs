//! The facts that the checkers share. A checker is a file of functions of [`Checkers`].

use std::collections::BTreeMap;

use corral_core::ids::{ConnId, ShardId};

use crate::check::facts::Facts;
use crate::check::history::History;
use crate::check::lives::Lives;
use crate::check::proposed::Proposed;
use crate::check::voters::Members;
use crate::model::{LinkId, Model, SUPER, digest_id};
use crate::options::Options;
use crate::reconfig::{Seats, participants};
use crate::request::Request;
use crate::servers::server_id;

/// A server's own name of a connection, with its incarnation.
type ServerName = (u64, ShardId, ConnId);

/// Votes and leaders by term. Servers by their place.
#[derive(Debug, Default)]
pub(super) struct Elections {
    pub(super) votes: BTreeMap<(u64, usize), usize>,
    pub(super) leaders: BTreeMap<u64, usize>,
    /// Servers with emptied disks, and the last term that each had voted in by then.
    pub(super) emptied: BTreeMap<usize, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Checkers {
    pub(crate) model: Model,
    pub(super) history: History,
    /// By connection.
    pub(super) facts: Vec<Facts>,
    pub(super) names: BTreeMap<ServerName, LinkId>,
    pub(super) lives: Lives,
    pub(super) elections: Elections,
    pub(super) members: Members,
    /// The servers of the configuration.
    pub(super) founders: Seats,
    /// The highest header zxid that each session has seen.
    pub(super) seen: BTreeMap<i64, i64>,
    /// The highest zxid that any client has an answer with.
    pub(super) acked: u64,
    /// .. that any client of this start of a server has an answer with.
    pub(super) acked_by: BTreeMap<u64, u64>,
    pub(super) in_ensemble: bool,
    /// Leaders may refuse commands that cost too much.
    pub(super) has_builds: bool,
    pub(crate) too_costly: u64,
    /// Leaders may refuse writes that add data.
    pub(super) has_scarcity: bool,
    pub(crate) growth_refused: u64,
    /// A read shows what was acknowledged by any of them.
    pub(super) linearizable: bool,
}

impl Checkers {
    pub(crate) fn new(options: &Options) -> Checkers {
        let ensemble = options.ensemble.as_ref();
        let in_ensemble = ensemble.is_some();
        let (list, servers) = (ensemble.and_then(|it| it.list), ensemble.map_or(1, |it| it.servers));
        let entries = if in_ensemble { vec![(0, None)] } else { Vec::new() };
        Checkers {
            model: Model::new(options.switches, list.map(|list| list.voters_min)),
            members: Members::of_founders(servers),
            founders: participants((0..servers).map(server_id)),
            in_ensemble,
            has_builds: options.has_builds,
            has_scarcity: options.has_scarcity,
            linearizable: ensemble.is_some_and(|ensemble| ensemble.linearizable),
            history: History { entries, ..History::default() },
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

    /// Whether the last reply of the connection was a write's with this very zxid.
    pub(crate) fn is_behind_a_write(&self, link: LinkId, zxid: i64) -> bool {
        self.facts[link.0].last_reply == (zxid, true)
    }
}
