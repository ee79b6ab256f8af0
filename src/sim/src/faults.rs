//! The faults and their times: one fault after another for as long as the run is busy.

use std::collections::VecDeque;

use corral_engine as engine;

use crate::options::Fault;
use crate::server::{ELECTION, Inner};
use crate::violation::Checked;
use crate::world::{Event, Stage, World};

impl World {
    pub(crate) fn plan_fault(&mut self) {
        let wait = self.faults.below(self.options.fault_every_ms * 2_000) + 1;
        self.after(wait, Event::Fault);
    }

    pub(crate) fn fault(&mut self) -> Checked {
        if self.stage != Stage::Busy {
            return Ok(());
        }
        self.plan_fault();
        if self.nodes.len() > 1 {
            self.at = self.faults.index(self.nodes.len());
        }
        let total: u64 = self.options.weights.iter().map(|(_, weight)| weight).sum();
        if total == 0 || self.nodes[self.at].server.is_none() {
            return Ok(());
        }
        let mut drawn = self.faults.below(total);
        let struck = self.options.weights.iter().find(|(_, weight)| {
            let hit = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            hit
        });
        struck.copied().map_or(Ok(()), |(kind, _)| self.strike(kind))
    }

    fn strike(&mut self, kind: Fault) -> Checked {
        self.note(format_args!("fault: {kind:?}"));
        let at = self.at;
        let (node, faults) = (&mut self.nodes[at], &mut self.faults);
        match kind {
            Fault::PowerCut => return self.crash(true),
            Fault::Kill => {
                let may_empty = self.may_empty();
                self.crash(false)?;
                return self.lose_a_page(may_empty);
            }
            Fault::StopAtStep => {
                node.disk.stop_at_step(faults.below(30));
                node.disk_stops = true;
            }
            Fault::FailSync => node.disk.fail_sync(faults.below(6)),
            Fault::DiskFull => {
                self.counts.full_disks += 1;
                node.disk.limit_space(Some(0));
                let wait = faults.within(50_000, 3_000_000);
                self.after(wait, Event::Space(at));
            }
            Fault::SlowDisk => {
                node.disk_slow = true;
                let wait = faults.within(100_000, 2_000_000);
                self.after(wait, Event::FastDisk(at));
            }
            Fault::ShardPause => {
                let shard = faults.index(usize::from(self.options.shards));
                let time = faults.within(1_000, 3_000_000);
                self.pause_shard(shard, time);
            }
            Fault::WallJump => {
                let ms = i64::try_from(faults.below(1_200_000)).expect("a small number");
                self.wall_offset_ms += ms - 600_000;
            }
            Fault::Stop => self.inside_after(0, Inner::ToConsensus(engine::Event::Stop)),
            Fault::AllOut => {
                for node in 0..self.nodes.len() {
                    self.at = node;
                    self.crash(true)?;
                }
            }
            Fault::Empty if !self.may_empty() => {}
            Fault::Empty => {
                self.crash(true)?;
                self.set_empty(false);
            }
            Fault::SpoilSnapshot => self.spoil_snapshot(),
            Fault::Damage => {
                self.damage("a fault");
                self.silence_leader();
            }
            Fault::Scarcity => self.make_scarce(),
            Fault::AskForSnapshot => self.inside_after(0, Inner::ToConsensus(engine::Event::SnapshotRequested)),
            _ => self.strike_network(kind),
        }
        Ok(())
    }

    /// Disk space or memory becomes scarce: of this server, or half of the time of all, so that the leader refuses writes.
    fn make_scarce(&mut self) {
        let servers = if self.faults.per_mille(500) { 0..self.nodes.len() } else { self.at..self.at + 1 };
        for at in servers {
            let wait = self.faults.within(100_000, 5_000_000);
            self.set_scarce(at, true);
            self.after(wait, Event::EndScarcity(at));
        }
    }

    /// A server measures its disk space and memory.
    pub(crate) fn set_scarce(&mut self, at: usize, scarce: bool) {
        if std::mem::replace(&mut self.nodes[at].is_scarce, scarce) != scarce {
            let life = self.nodes[at].life;
            let event = Inner::ToConsensus(engine::Event::Scarce(scarce));
            self.after(0, Event::Inside(at, life, event));
        }
    }

    /// Half of the time the leader is silent to this server for an election timeout or more, during the repair of its state.
    fn silence_leader(&mut self) {
        let leads =
            |at: &usize| self.nodes[*at].server.as_ref().is_some_and(|server| server.engine.replica().is_leading());
        let Some(leader) = (0..self.nodes.len()).find(leads).filter(|leader| *leader != self.at) else { return };
        if self.pages.per_mille(500) {
            self.counts.silenced += 1;
            let time = self.pages.within(ELECTION, 3 * ELECTION);
            self.cut_wire(leader, self.at, time);
        }
    }

    /// Between this server and another, or all others.
    fn strike_network(&mut self, kind: Fault) {
        let at = self.at;
        let other = (at + 1 + self.faults.index(self.nodes.len() - 1)) % self.nodes.len();
        match kind {
            Fault::BreakWire => {
                let told = self.faults.per_mille(500);
                self.break_wire(at, other, told);
            }
            Fault::CutWire => {
                let time = self.faults.within(10_000, 4_000_000);
                self.cut_wire(at, other, time);
            }
            Fault::Isolate => {
                let time = self.faults.within(50_000, 5_000_000);
                for other in (0..self.nodes.len()).filter(|other| *other != at) {
                    self.cut_wire(at, other, time);
                    self.cut_wire(other, at, time);
                }
            }
            Fault::Clog => {
                let time = self.faults.within(10_000, 1_000_000);
                self.clog_wire(at, other, time);
            }
            // The whole process is stopped.
            _ if self.nodes[at].frozen.is_none() => {
                self.nodes[at].frozen = Some(VecDeque::new());
                self.review_sureness(at);
                let time = self.faults.within(10_000, 3_000_000);
                self.after(time, Event::Thaw(at));
            }
            _ => {}
        }
    }
}
