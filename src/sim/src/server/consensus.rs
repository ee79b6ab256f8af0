//! Drives the consensus actor: what waits in its mailbox, then a turn of the replica and everything it leads to.

use std::rc::Rc;

use corral_consensus::{Effects, Index, Micros, Term};
use corral_core::ids::{ConnId, ShardId, WallMillis};
use corral_core::sequencer::{Sequencer, Ticked};

use super::{Inner, Opaque, Stopping, ToConsensus, ToLog, ToShard, WrittenImage};
use crate::limits::MAILBOX_BATCH;
use crate::options::Bug;
use crate::violation::{Checked, Violation};
use crate::world::{Lane, World};

const TICK: u64 = 100_000;
const RETRY: u64 = 1_000_000;

impl World {
    pub(super) fn consensus_message(&mut self, message: ToConsensus) {
        let Some(server) = &mut self.server else { return };
        server.inbox.push_back(message);
        self.plan_turn();
    }

    fn plan_turn(&mut self) {
        let Some(server) = &mut self.server else { return };
        if !std::mem::replace(&mut server.turn_planned, true) {
            let wait = self.schedule.delay(self.options.mailbox_delay);
            self.inside_after(wait, Inner::Turn);
        }
    }

    pub(super) fn consensus_turn(&mut self) -> Checked {
        let Some(server) = &mut self.server else { return Ok(()) };
        server.turn_planned = false;
        let taken = server.inbox.len().min(MAILBOX_BATCH);
        for message in server.inbox.drain(..taken).collect::<Vec<_>>() {
            self.consensus_receive(message);
        }
        self.consensus_act()?;
        if self.server.as_ref().is_some_and(|server| !server.inbox.is_empty()) {
            self.plan_turn();
        }
        Ok(())
    }

    fn consensus_receive(&mut self, message: ToConsensus) {
        let now = self.clock();
        let Some(server) = &mut self.server else { return };
        match message {
            ToConsensus::Proposed { shard, proposals, syncs } => {
                if !proposals.commands.is_empty() {
                    server.replica.machine_mut().proposed(now, proposals);
                }
                if !syncs.is_empty() {
                    let token = server.next_token;
                    server.next_token += 1;
                    server.syncs.insert(token, (shard, syncs));
                    server.replica.read_index(token);
                }
            }
            ToConsensus::Heard { shard, upto, sessions } => {
                let shard = ShardId(u16::try_from(shard).expect("few shards"));
                server.replica.machine_mut().heard(shard, upto, &sessions);
            }
            ToConsensus::Durable(number) => server.replica.persisted(Micros(self.now), number),
            ToConsensus::ImageWritten(Ok(written)) => self.image_written(written),
            ToConsensus::ImageWritten(Err(reason)) => self.image_failed(&reason),
            ToConsensus::Stop => {
                if server.stopping == Stopping::No {
                    server.stopping = Stopping::Draining(server.shards.len());
                    self.tell_shards(&ToShard::Drain);
                }
            }
            ToConsensus::Drained => {
                if let Stopping::Draining(left) = server.stopping {
                    server.stopping = Stopping::Draining(left - 1);
                }
            }
        }
    }

    pub(super) fn consensus_tick(&mut self) -> Checked {
        let wait = TICK + self.schedule.delay(1_000);
        self.inside_after(wait, Inner::Tick);
        let (now, wall) = (self.clock(), self.wall());
        self.wall_latest = self.wall_latest.max(wall);
        let early = self.options.bug == Some(Bug::ExpireEarly);
        let Some(server) = &mut self.server else { return Ok(()) };
        server.replica.tick();
        let then = if early { now.plus(2_000) } else { now };
        let hour_ms = if self.options.bug == Some(Bug::ReapEarly) { 3_600_000 } else { 0 };
        let Ticked { expired, reaped } = server.replica.machine_mut().tick(then, WallMillis(wall.0 + hour_ms));
        for chosen in reaped {
            self.counts.reaped += 1;
            self.note(format_args!("{} is outlived", &*chosen.path));
            self.check.reaped(&chosen.path, chosen.mzxid.0, self.wall_latest)?;
        }
        for session in expired {
            self.counts.expiries += 1;
            self.note(format_args!("session {session} expires"));
            self.check.expired(session.0, now)?;
        }
        self.snapshot_if(|sequencer| sequencer.wants_snapshot(now));
        self.consensus_act()
    }

    fn consensus_act(&mut self) -> Checked {
        let (now, wall) = (self.clock(), self.wall());
        let Some(server) = &mut self.server else { return Ok(()) };
        server.replica.machine_mut().set_time(now, wall);
        let mut effects = Effects::default();
        // Nothing here is late by itself: what the log is given first makes no difference.
        while server
            .replica
            .turn(Micros(self.now), &mut effects)
            .map_err(|_| Violation::of("recovery", "a committed entry is no batch"))?
        {}
        let authority = server.replica.machine_mut();
        let committed = std::mem::take(&mut authority.committed);
        let applied = authority.take_applied();
        for entry in committed {
            self.check.committed(entry, now)?;
        }
        if let Some(at) = effects.wake_at {
            self.inside_after(at.since(Micros(self.now)).0, Inner::Turn);
        }
        for append in effects.appends {
            self.mail(Lane::ConsensusToLog, Inner::ToLog(ToLog::Append(append)));
        }
        for batch in applied {
            self.trace_batch(&batch);
            self.tell_shards(&ToShard::Batch(Rc::new(batch)));
        }
        for token in effects.reads {
            self.answer_syncs(token, ToShard::Synced);
        }
        for token in effects.reads_refused {
            self.answer_syncs(token, ToShard::SyncRefused);
        }
        self.go_on_stopping();
        Ok(())
    }

    fn trace_batch(&mut self, batch: &corral_core::change::AppliedBatch) {
        for txn in &batch.txns {
            self.note(format_args!("{} {:?}", txn.zxid, txn.outcome));
        }
    }

    fn tell_shards(&mut self, message: &ToShard) {
        for shard in 0..usize::from(self.options.shards) {
            self.mail(Lane::ConsensusToShard(shard), Inner::ToShard(shard, message.clone()));
        }
    }

    fn answer_syncs(&mut self, token: u64, message: impl Fn(Vec<ConnId>) -> ToShard) {
        let waiting = self.server.as_mut().and_then(|server| server.syncs.remove(&token));
        if let Some((shard, list)) = waiting {
            self.mail(Lane::ConsensusToShard(shard), Inner::ToShard(shard, message(list)));
        }
    }

    fn snapshot_if(&mut self, wanted: impl FnOnce(&Sequencer) -> bool) {
        let now = self.clock();
        let Some(server) = &mut self.server else { return };
        let sequencer = &mut server.replica.machine_mut().sequencer;
        if sequencer.snapshot_running() || !wanted(sequencer) {
            return;
        }
        let frozen = sequencer.freeze(now);
        self.note(format_args!("image of {} begins", frozen.zxid));
        self.tell_shards(&ToShard::Adopt(frozen.delta.clone()));
        self.mail(Lane::ConsensusToWriter, Inner::ToWriter(Box::new(frozen)));
    }

    fn image_written(&mut self, written: WrittenImage) {
        let WrittenImage { image, index, term, log_from } = written;
        self.counts.images += 1;
        self.note(format_args!("image up to entry {index} written"));
        self.tell_shards(&ToShard::Swap(Opaque(image.0.clone())));
        let Some(server) = &mut self.server else { return };
        server.replica.machine_mut().sequencer.image_ready(image.0);
        server.replica.compact(Index(index), Term(term));
        self.mail(Lane::ConsensusToLog, Inner::ToLog(ToLog::Trim(log_from)));
    }

    fn image_failed(&mut self, reason: &str) {
        self.note(format_args!("image failed: {reason}"));
        let Some(server) = &mut self.server else { return };
        if server.stopping != Stopping::No {
            server.stopping = Stopping::Done;
            return;
        }
        self.inside_after(RETRY, Inner::Retry);
    }

    pub(super) fn retry_image(&mut self) {
        let Some(server) = &mut self.server else { return };
        let again = server.replica.machine().sequencer.frozen_again();
        self.mail(Lane::ConsensusToWriter, Inner::ToWriter(Box::new(again)));
    }

    fn go_on_stopping(&mut self) {
        let Some(server) = &mut self.server else { return };
        if server.stopping == Stopping::Draining(0) {
            server.stopping = Stopping::LastImage;
            self.snapshot_if(Sequencer::has_changes);
        }
        let Some(server) = &mut self.server else { return };
        if server.stopping == Stopping::LastImage && !server.replica.machine().sequencer.snapshot_running() {
            self.snapshot_if(Sequencer::has_changes);
            let Some(server) = &mut self.server else { return };
            if !server.replica.machine().sequencer.snapshot_running() {
                server.stopping = Stopping::Done;
            }
        }
        if self.server.as_ref().is_some_and(|server| server.stopping == Stopping::Done) {
            self.stopped();
        }
    }
}
