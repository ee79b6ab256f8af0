//! How a server comes to remember something: it forms an ensemble with others that are newborn too, or takes another
//! server's image, and how its disk is emptied.
//!
//! Mirrors `actor/transfer.rs`, `actor/peers.rs` and `actor/consensus.rs` of the server. An image comes at once, when it
//! comes: the pieces and their loss are tested there.

use std::collections::VecDeque;
use std::sync::Arc;

use corral_consensus::{FORMED_INDEX, FORMED_TERM, Index, Membership, NodeId, PeerBody, PeerMessage, Term};
use corral_core::image::Image;
use corral_members::Extra;
use corral_storage::{ImageFile, ImageHead, ImageReceiver, SimDisk, list_images};

use super::recovery::{load, members_of, state_of};
use super::{Inner, Opaque, Server, ToLog, ToShard, is_member};
use crate::violation::{Checked, Violation};
use crate::world::{Lane, World};

/// Until an image that does not get through is tried again.
const AGAIN: u64 = 200_000;
const PIECE_BYTES: usize = 64 << 10;
const ARRIVED_MAX: usize = 2;

/// The image that this server takes from another.
#[derive(Default)]
pub(super) struct Taking {
    announced: Option<PeerMessage>,
    /// As in the server, the newest last.
    arrived: VecDeque<(Arc<Image>, ImageHead)>,
    /// The append whose durability makes it this server's state, and where it ends.
    installing: Option<(u64, u64)>,
    installed: u64,
    /// Where the newest image of this server ends.
    newest: u64,
    /// As last noted.
    members: Membership,
}

impl Taking {
    pub(super) fn from(newest: u64) -> Taking {
        Taking { newest, ..Taking::default() }
    }

    /// Whether an image is on its way.
    pub(super) fn is_told(&self) -> bool {
        self.announced.is_some()
    }
}

impl std::fmt::Display for Taking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let announced = self.announced.as_ref().map(place_of);
        let here: Vec<u64> = self.arrived.iter().map(|(_, head)| head.index).collect();
        write!(f, "image {} (announced {announced:?}, here {here:?}, installing {:?})", self.newest, self.installing)
    }
}

fn place_of(message: &PeerMessage) -> u64 {
    match &message.body {
        PeerBody::Snapshot { index, .. } => index.0,
        _ => 0,
    }
}

impl World {
    // ----- another server's image -----

    /// A leader says which image it would give.
    pub(super) fn image_announced(&mut self, message: PeerMessage) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        let index = place_of(&message);
        let replica = &mut server.replica;
        let here = replica.applied().0;
        if index < here || index == here && !replica.is_distrusted() || message.term < replica.raft().term() {
            let _ = replica.step(message);
            return;
        }
        let forms = replica.raft().is_newborn() && replica.machine().sequencer.index() > 0;
        if forms || replica.raft().check_newborn(&message).is_err() {
            return self.refuse_image(message.from);
        }
        if server.taking.arrived.iter().any(|(_, head)| head.index == index) {
            let _ = replica.step(message);
            return;
        }
        let same = server.taking.announced.as_ref().is_some_and(|before| place_of(before) == index);
        server.taking.announced = Some(message);
        if !same {
            let wait = self.schedule.delay(self.options.image_delay);
            self.inside_after(wait, Inner::ImageComes(index));
        }
    }

    pub(super) fn image_comes(&mut self, index: u64) -> Checked {
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        let Some(announced) = server.taking.announced.take_if(|announced| place_of(announced) == index) else {
            return Ok(());
        };
        let giver = usize::try_from(announced.from.0 - 1).expect("few servers");
        if self.nodes[giver].server.is_none() || !self.is_linked_with(giver) {
            self.image_later(announced, index);
            return Ok(());
        }
        let (own, from) = (self.nodes[self.at].disk.clone(), self.nodes[giver].disk.clone());
        let copied = copy(&from, &own, index);
        if from.has_stopped() {
            self.image_later(announced, index);
            return self.dies_giving(giver);
        }
        let (image, head) = match copied {
            Ok(Some(copied)) => copied,
            Ok(None) => {
                self.refuse_image(announced.from);
                return Ok(());
            }
            Err(reason) if self.nodes[self.at].disk_stops => return self.disk_failed(&reason),
            Err(reason) => {
                self.note(format_args!("the image up to {index} cannot be taken: {reason}"));
                // Its giver looks at what it gave.
                let taker = std::mem::replace(&mut self.at, giver);
                self.scrub();
                self.at = taker;
                self.refuse_image(announced.from);
                return Ok(());
            }
        };
        let kept = members_of(&image).map_err(|what| Violation::of("membership", what))?;
        let told = matches!(&announced.body, PeerBody::Snapshot { membership, .. } if *membership == kept);
        if !told {
            return Err(Violation::of("membership", format!("the image keeps {kept:?}, said was {announced:?}")));
        }
        self.note(format_args!("the image up to {index} is here"));
        if let Some(server) = &mut self.nodes[self.at].server {
            server.taking.arrived.push_back((image, head));
            if server.taking.arrived.len() > ARRIVED_MAX {
                server.taking.arrived.pop_front();
            }
            let _ = server.replica.step(announced);
        }
        self.plan_turn();
        Ok(())
    }

    fn image_later(&mut self, announced: PeerMessage, index: u64) {
        if let Some(server) = &mut self.nodes[self.at].server {
            server.taking.announced = Some(announced);
        }
        self.inside_after(AGAIN, Inner::ImageComes(index));
    }

    /// A step of reading the image was the last of the process whose image it is.
    fn dies_giving(&mut self, giver: usize) -> Checked {
        let taker = std::mem::replace(&mut self.at, giver);
        let died = self.disk_failed("the process stops at a step of giving its image");
        self.at = taker;
        died
    }

    /// Raft wants the image in the place of everything.
    pub(super) fn installs(&mut self, number: u64, index: u64) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        server.taking.installing = Some((number, index));
        self.mail(Lane::ConsensusToLog, Inner::ToLog(ToLog::Reset(index + 1)));
    }

    pub(super) fn install_if_durable(&mut self, number: u64) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        let taking = &mut server.taking;
        let Some((_, index)) = taking.installing.take_if(|(wanted, _)| *wanted <= number) else { return };
        let found = taking.arrived.iter().position(|(_, head)| head.index == index);
        let upto = found.expect("an image is announced to Raft when it is here");
        let (image, head) = taking.arrived.drain(..=upto).next_back().expect("it was found");
        (taking.installed, taking.newest) = (index, index);
        let machine = state_of(image);
        let (view, alive) = (machine.view().clone(), machine.sessions().len() as u64);
        server.replica.machine_mut().installed(machine, head.index, head.term);
        server.replica.installed(Index(index));
        server.replica.compact(Index(index), Term(head.term));
        self.counts.installs += 1;
        self.note(format_args!("the image up to {index} is installed"));
        self.tell_shards(&ToShard::Install(Opaque(Box::new(view)), alive));
    }

    // ----- images of its own -----

    /// `None` where there is nothing to be kept.
    pub(super) fn members_to_keep(&self) -> Option<Vec<u8>> {
        if self.options.ensemble.is_none() {
            return Some(Vec::new());
        }
        let server = self.nodes[self.at].server.as_ref()?;
        let restores = server.taking.installing.is_some()
            || server.replica.is_distrusted()
            || server.replica.raft().is_restoring();
        let none = restores || server.replica.machine().sequencer.index() == 0;
        (!none).then(|| Extra::of(&server.replica).encode())
    }

    /// Whether an image that was written is of the present state; if it is that of the founders, the ensemble begins.
    pub(super) fn counts_here(&mut self, index: u64) -> bool {
        let Some(server) = &mut self.nodes[self.at].server else { return false };
        let distrusted = server.replica.is_distrusted();
        let taking = &mut server.taking;
        if distrusted || index < taking.installed || taking.installing.is_some_and(|(_, installs)| index < installs) {
            return false;
        }
        taking.newest = index;
        if server.replica.raft().is_newborn() {
            server.replica.form();
            server.replica.machine_mut().formed();
            self.counts.founders += 1;
            self.note(format_args!("server {} is a founder", self.at + 1));
            self.mail(Lane::ConsensusToLog, Inner::ToLog(ToLog::Reset(FORMED_INDEX.0 + 1)));
        }
        true
    }

    /// The end of a turn: the ensemble may begin, or somebody needs an image.
    pub(super) fn begin_or_offer(&mut self, image_wanted: bool) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        let taking = &server.taking;
        let newest = taking.newest;
        let takes = taking.announced.is_some() || !taking.arrived.is_empty();
        if !takes && server.replica.machine_mut().forms(FORMED_INDEX.0, FORMED_TERM.0) {
            self.snapshot_if(|_| true);
        }
        if image_wanted {
            self.snapshot_if(|sequencer| sequencer.index() > newest);
        }
    }

    // ----- who belongs to the ensemble -----

    pub(super) fn reconcile(&mut self) {
        let Some(wanted) = self.wanted().filter(|_| self.options.ensemble.is_some()) else { return };
        let newest = self.is_newest_leader();
        let Some(server) = &mut self.nodes[self.at].server else { return };
        server.replica.reconcile(&wanted);
        let members = server.replica.raft().membership();
        if server.taking.members != members {
            server.taking.members = members.clone();
            self.note(format_args!("server {}: members are {members:?}", self.at + 1));
        }
        let Some(server) = &self.nodes[self.at].server else { return };
        let Some(emptied) = self.emptied.filter(|_| newest && server.replica.is_leading()) else { return };
        let own = NodeId(emptied as u64 + 1);
        let observes = wanted.learners.contains(&own) && members.learners.contains(&own);
        let belongs = members.voters.contains(&own) || observes;
        let remembers = self.nodes[emptied].server.as_ref().is_some_and(|server| !server.replica.raft().is_newborn());
        let is_out = self.list_rests() && !self.is_listed(emptied);
        if belongs && remembers || is_out {
            self.note(format_args!("server {} is healed", emptied + 1));
            self.check.healed(emptied);
            self.emptied = None;
        }
    }

    /// Whether every server of the list runs and knows that all of them belong to the ensemble, and nobody else.
    pub(crate) fn all_vote(&self) -> bool {
        let Some(all) = self.listed() else { return true };
        let knows = |server: &Server| server.replica.raft().membership() == all;
        let mut listed = (0..self.nodes.len()).filter(|at| is_member(Some(&all), *at));
        listed.all(|at| self.nodes[at].server.as_deref().is_some_and(knows))
    }

    /// Whether some server's log holds a change of the members that is not in force: another may be about to leave.
    fn somebody_may_leave(&self) -> bool {
        let mut servers = self.nodes.iter().filter_map(|node| node.server.as_ref());
        servers.any(|server| server.replica.raft().holds_membership_change())
    }

    /// Whether this server can do without its disk. One at a time, and only of those that belong to the ensemble: more than
    /// that no ensemble of three survives.
    pub(crate) fn may_empty(&self) -> bool {
        let rests = self.all_vote() && !self.somebody_may_leave() && self.list_rests();
        let few = self.listed().is_some_and(|listed| listed.voters.len() < 3);
        self.emptied.is_none() && rests && !(few && self.is_listed(self.at))
    }

    /// The disk of one server is empty after a crash.
    pub(crate) fn empty(&mut self) -> Checked {
        if !self.may_empty() {
            return Ok(());
        }
        self.crash(true)?;
        self.set_empty();
        Ok(())
    }

    /// A server that does not run begins with an empty disk.
    pub(super) fn set_empty(&mut self) {
        let at = self.at;
        self.nodes[at].disk = SimDisk::new();
        self.emptied = self.is_listed(at).then_some(at);
        self.counts.emptied += 1;
        self.check.emptied(at);
        self.note(format_args!("the disk of server {} is empty", at + 1));
    }
}

/// Brings the image that ends there to another disk, and checks it as the real server does.
fn copy(from: &SimDisk, to: &SimDisk, index: u64) -> Result<Option<(Arc<Image>, ImageHead)>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let names = list_images(from).map_err(|error| text(&error))?;
    let files = names.iter().filter_map(|name| ImageFile::open(from, &name.file).ok());
    let Some(file) = files.into_iter().find(|file| file.head().index == index) else { return Ok(None) };
    let bytes = file.bytes();
    let all = bytes.as_slice();
    let mut receiver = ImageReceiver::begin(to, file.head().zxid, all.len() as u64).map_err(|error| text(&error))?;
    for piece in all.chunks(PIECE_BYTES) {
        receiver.take(piece).map_err(|error| text(&error))?;
    }
    let name = receiver.finish().map_err(|error| text(&error))?;
    load(to, &name.file).map(Some)
}
