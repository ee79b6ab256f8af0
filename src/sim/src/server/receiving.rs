//! The thread that writes another server's snapshot, piece by piece, and how a server's disk is emptied.

use corral_consensus::ServerId;
use corral_engine::{Event, Incoming, LoadedSnapshot, Receive};
use corral_storage::{Disk as _, SimDisk, SnapshotReceiver, snapshot_name};

use super::snapshot_file::{load, text};
use super::{Inner, Server};
use crate::options::Bug;
use crate::servers::{is_member, server_id};
use crate::violation::Checked;
use crate::world::{Channel, World};

/// The snapshot that is received, by the index of its last entry.
pub(super) type Receiving = (u64, SnapshotReceiver<SimDisk>);

impl World {
    pub(super) fn receive_snapshot(&mut self, receive: Receive) -> Checked {
        let loses = self.options.bug == Some(Bug::LosePiece);
        let node = &mut self.nodes[self.at];
        let Some(server) = &mut node.server else { return Ok(()) };
        let (index, told) = match receive {
            Receive::Forget { index, zxid } => {
                // Fails where its disk has just stopped.
                let _ = node.disk.remove(&snapshot_name(zxid, index));
                return Ok(());
            }
            Receive::Begin { index, zxid, bytes } => {
                drop(server.receiving.take());
                let begun = SnapshotReceiver::begin(&node.disk, zxid, bytes).map_err(text);
                (index, begun.map(|receiver| server.receiving = Some((index, receiver))).map(|()| None))
            }
            Receive::Piece { index, bytes } if loses && self.faults.per_mille(100) => {
                (index, Ok(Some(Incoming::Written { index, upto: bytes.len() as u64 })))
            }
            Receive::Piece { index, bytes } => {
                let Some(one) = server.receiving.take().filter(|one| one.0 == index) else { return Ok(()) };
                let told = take(&node.disk, one, &bytes).map(|(goes_on, told)| {
                    server.receiving = goes_on;
                    Some(told)
                });
                (index, told)
            }
        };
        let told = match told {
            Ok(None) => return Ok(()),
            Ok(Some(told)) => told,
            Err(reason) if self.nodes[self.at].disk_stops => return self.disk_failed(&reason),
            Err(reason) => {
                self.note(format_args!("the snapshot up to {index} cannot be taken: {reason}"));
                Incoming::Failed { index, reason }
            }
        };
        self.mail(Channel::ReceiverToConsensus, Inner::ToConsensus(Event::Incoming(told)));
        Ok(())
    }

    // ----- the membership -----

    /// Checks whether the server with the emptied disk votes again.
    pub(super) fn judge_members(&mut self) {
        let (Some(wanted), newest) = (self.listed(), self.is_newest_leader()) else { return };
        let Some(server) = &mut self.nodes[self.at].server else { return };
        let (members, leads) = (server.engine.raft().membership(), server.engine.replica().is_leading());
        if server.members != members {
            server.members = members.clone();
            self.note(format_args!("server {}: members are {members:?}", self.at + 1));
        }
        let Some(emptied) = self.emptied.filter(|_| newest && leads) else { return };
        let own = ServerId(server_id(emptied));
        let observes = wanted.learners.contains(&own) && members.learners.contains(&own);
        let belongs = members.voters.contains(&own) || observes;
        let server = self.nodes[emptied].server.as_ref();
        let remembers = server.is_some_and(|server| !server.engine.raft().is_uninitialised());
        let is_out = self.list_rests() && !self.is_listed(emptied);
        if belongs && remembers || is_out {
            self.note(format_args!("server {} is healed", emptied + 1));
            self.check.healed(emptied);
            self.emptied = None;
        }
    }

    /// Whether every server of the list runs and knows that exactly those servers are the members.
    pub(crate) fn all_vote(&self) -> bool {
        let Some(all) = self.listed() else { return true };
        let knows = |server: &Server| server.engine.raft().membership() == all;
        let mut listed = (0..self.nodes.len()).filter(|at| is_member(Some(&all), *at));
        listed.all(|at| self.nodes[at].server.as_deref().is_some_and(knows))
    }

    /// Whether this server can do without its disk. One at a time, and only members: more than that no ensemble of
    /// three survives.
    pub(crate) fn may_empty(&self) -> bool {
        // A change of the members that is in some log and not in force: another may be about to leave.
        let changes = |server: &Server| server.engine.raft().holds_membership_change();
        let somebody_leaves = self.nodes.iter().filter_map(|node| node.server.as_deref()).any(changes);
        let rests = self.all_vote() && !somebody_leaves && self.list_rests();
        let few = self.listed().is_some_and(|listed| listed.voters.len() < 3);
        self.emptied.is_none() && rests && !(few && self.is_listed(self.at))
    }

    /// A server that does not run begins with an empty disk. `is_healing`: it put damaged data aside by itself.
    pub(crate) fn set_empty(&mut self, is_healing: bool) {
        let at = self.at;
        self.nodes[at].disk = SimDisk::new();
        self.nodes[at].is_healing = is_healing;
        (self.nodes[at].remembered, self.nodes[at].distrusted) = (None, None);
        self.emptied = self.is_listed(at).then_some(at);
        self.counts.emptied += 1;
        self.check.emptied(at);
        self.note(format_args!("the disk of server {} is empty", at + 1));
    }
}

/// Writes a piece; after the last one the snapshot is durable and checked.
fn take(disk: &SimDisk, (index, mut file): Receiving, bytes: &[u8]) -> Result<(Option<Receiving>, Incoming), String> {
    file.take(bytes).map_err(text)?;
    if !file.is_whole() {
        let upto = file.received();
        return Ok((Some((index, file)), Incoming::Written { index, upto }));
    }
    let name = file.finish().map_err(text)?;
    let loaded: LoadedSnapshot = load(disk, &name.file).inspect_err(|_| drop(disk.remove(&name.file)))?;
    Ok((None, Incoming::Whole { index, snapshot: loaded.into() }))
}
