//! The sessions with a connection on this shard, and their ephemerals.

use crate::ids::{ConnId, SessionId};
use crate::limits::DROPPED_PIECE;
use crate::session::Ephemerals;
use crate::shard::conn::Conn;
use crate::tree::change::Change;
use crate::tree::view::View;
use crate::tree::znode::Owner;
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// The sessions with a connection on this shard, and the number of all sessions.
pub(crate) struct Sessions {
    here: HashMap<SessionId, ConnId, Xxh3DefaultBuilder>,
    /// Of the sessions that have any.
    ephemerals: HashMap<SessionId, Ephemerals, Xxh3DefaultBuilder>,
    /// Live sessions of the whole server, here or not.
    alive: u64,
}

impl Sessions {
    /// None here, and so many of the whole server.
    pub(super) fn new(alive: u64) -> Self {
        let (here, ephemerals) = Default::default();
        Self { here, ephemerals, alive }
    }

    /// Live sessions of the whole server.
    pub(crate) const fn alive(&self) -> u64 {
        self.alive
    }

    /// A session of the server was created, here or not.
    pub(super) const fn created(&mut self) {
        self.alive += 1;
    }

    /// A session of the server has ended, here or not.
    pub(super) const fn ended(&mut self) {
        self.alive -= 1;
    }

    /// The connection of a session, if it is here.
    pub(super) fn conn(&self, session: SessionId) -> Option<ConnId> {
        self.here.get(&session).copied()
    }

    /// The session is on this connection from now on.
    pub(super) fn bind(&mut self, session: SessionId, conn: ConnId, ephemerals: Option<&Ephemerals>) {
        self.here.insert(session, conn);
        if let Some(list) = ephemerals.filter(|list| !list.is_empty()) {
            self.ephemerals.insert(session, list.clone());
        }
    }

    /// The connection's session is not here any more, if it was this connection's. Gives a list of ephemerals that takes long to drop.
    pub(super) fn unbind(&mut self, conn: &Conn) -> Option<Ephemerals> {
        if self.conn(conn.session.id()) != Some(conn.id) {
            return None;
        }
        self.here.remove(&conn.session.id());
        self.ephemerals.remove(&conn.session.id()).filter(|list| list.len() > DROPPED_PIECE)
    }

    /// The ephemerals of a session that is here; `None` if it has none.
    #[inline]
    pub(super) fn ephemerals(&self, session: SessionId) -> Option<&Ephemerals> {
        if self.ephemerals.is_empty() { None } else { self.ephemerals.get(&session) }
    }

    /// Keeps the lists of ephemerals. Called before the change reaches the view.
    pub(super) fn note_change(&mut self, view: &View, change: &Change) {
        match change {
            Change::Created { at, node, .. } => {
                if let Owner::Session(session) = Owner::from_bits(node.stat.owner)
                    && self.here.contains_key(&session)
                {
                    self.ephemerals.entry(session).or_default().insert(at.path.clone());
                }
            }
            Change::Deleted { at, .. } if !self.ephemerals.is_empty() => {
                let owner = view.get_hashed(&at.path, at.hash).map(|node| Owner::from_bits(node.stat().owner));
                if let Some(Owner::Session(session)) = owner
                    && let Some(list) = self.ephemerals.get_mut(&session)
                {
                    list.remove(&at.path);
                    if list.is_empty() {
                        self.ephemerals.remove(&session);
                    }
                }
            }
            _ => {}
        }
    }
}
