//! The membership in the model (protocol chapters 11.6 and 21): the data of `/zookeeper/config`, and the effects of a
//! client's change.
//!
//! Whether the ensemble goes over to a new list, and when, is the leader's word; what the list is then is said here.

use super::acl::{WRITE, allows};
use super::rules::{
    BAD_ARGUMENTS, BAD_VERSION, MARSHALLING_ERROR, NO_AUTH, SESSION_EXPIRED, UNIMPLEMENTED, need, refused,
};
use super::{Caller, DATA_CHANGED, Expected, Model};
use crate::reconfig::{Change, Seats, lines};
use crate::request::Body;

pub(super) const PLACE: &str = "/zookeeper/config";
const RECONFIG_IN_PROGRESS: i32 = -14;
const RECONFIG_DISABLED: i32 = -123;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) seats: Seats,
    pub(crate) version: u64,
}

impl Model {
    /// The first leader puts the list there. Its version is of its epoch, and so is the znode's mzxid.
    pub(crate) fn configured(&mut self, zxid: u64, time: i64, seats: Seats) {
        self.zxid = zxid;
        if self.list.is_none() {
            self.put(zxid, time, seats, zxid >> 32 << 32);
        }
    }

    /// The ensemble has gone over to this list.
    pub(crate) fn reconfigured(&mut self, zxid: u64, time: i64, seats: Seats) -> Expected {
        self.zxid = zxid;
        self.put(zxid, time, seats, zxid)
    }

    fn put(&mut self, zxid: u64, time: i64, seats: Seats, version: u64) -> Expected {
        let mut node = self.node(PLACE).expect("it cannot be deleted").clone();
        let text = format!("{}version={version:x}", lines(&seats)).into_bytes();
        node.data = Some(text.clone());
        (node.version, node.mzxid, node.mtime) = (-1, version, time);
        let stat = node.stat();
        self.change(zxid, |draft| {
            draft.step(DATA_CHANGED, PLACE, &node, None);
            draft.set(PLACE, node);
            true
        });
        self.list = Some(List { seats, version });
        Expected::Reply { err: 0, body: Body::Data(Some(text), stat) }
    }

    /// A client's change, in ZooKeeper's order of checks. `in_progress`: the leader has another in hand.
    pub(crate) fn reconfig(&mut self, caller: &Caller<'_>, change: &Change, in_progress: bool) -> Expected {
        self.zxid = caller.zxid;
        if let Some(session) = self.sessions.get(&caller.session)
            && Some(session.owner) != caller.link
            && self.switches.reconfig
        {
            return Expected::Moved;
        }
        let (list, next) = match self.next_list(caller, change, in_progress) {
            Ok(lists) => lists,
            Err(err) => return refused(err),
        };
        let roles = |seats: &Seats| seats.iter().map(|(id, seat)| (*id, seat.observer)).collect::<Vec<_>>();
        if roles(&list.seats) == roles(&next) {
            return self.put(caller.zxid, caller.time, next, caller.zxid);
        }
        Expected::Underway { next, version: list.version }
    }

    fn next_list(&self, caller: &Caller<'_>, change: &Change, in_progress: bool) -> Result<(List, Seats), i32> {
        need(self.switches.reconfig, RECONFIG_DISABLED)?;
        need(self.sessions.contains_key(&caller.session), SESSION_EXPIRED)?;
        let list = self.list.clone().ok_or(UNIMPLEMENTED)?;
        need(!in_progress, RECONFIG_IN_PROGRESS)?;
        need(change.from == -1 || change.from == list.version.cast_signed(), BAD_VERSION)?;
        let voters_min = self.voters_min.unwrap_or(0);
        let voters = |seats: &Seats| seats.values().filter(|seat| !seat.observer).count();
        let next = match &change.members {
            Some(members) => {
                let observers = members.len() - voters(members);
                match voters(members) {
                    // ZooKeeper breaks off here.
                    0 if voters_min <= 1 || observers > 0 => return Err(MARSHALLING_ERROR),
                    1 if voters_min > 1 && observers > 0 => return Err(MARSHALLING_ERROR),
                    _ => members.clone(),
                }
            }
            None => {
                let mut next = list.seats.clone();
                next.retain(|id, _| !change.leaving.contains(id));
                next.extend(change.joining.iter().copied());
                next
            }
        };
        need(voters(&next) >= voters_min, BAD_ARGUMENTS)?;
        let node = self.node(PLACE).expect("it cannot be deleted");
        need(allows(&node.acl, WRITE, caller.identities), NO_AUTH)?;
        Ok((list, next))
    }
}
