//! What breaks, and when: one fault after another for as long as the run is busy.

use crate::options::Options;
use crate::server::{Inner, ToConsensus};
use crate::violation::Checked;
use crate::world::{Event, Stage, World};

#[derive(Clone, Copy, Debug)]
enum Kind {
    PowerCut,
    Kill,
    StopAtStep,
    FailSync,
    DiskFull,
    SlowDisk,
    ShardPause,
    WallJump,
    Stop,
}

fn weights(options: &Options) -> [(Kind, u64); 9] {
    [
        (Kind::PowerCut, options.weight_power_cut),
        (Kind::Kill, options.weight_kill),
        (Kind::StopAtStep, options.weight_stop_at_step),
        (Kind::FailSync, options.weight_fail_sync),
        (Kind::DiskFull, options.weight_disk_full),
        (Kind::SlowDisk, options.weight_slow_disk),
        (Kind::ShardPause, options.weight_shard_pause),
        (Kind::WallJump, options.weight_wall_jump),
        (Kind::Stop, options.weight_stop),
    ]
}

impl World {
    pub(crate) fn faults_on(&self) -> bool {
        self.stage == Stage::Busy
    }

    pub(crate) fn plan_fault(&mut self) {
        let wait = self.faults.below(self.options.fault_every_ms * 2_000) + 1;
        self.after(wait, Event::Fault);
    }

    pub(crate) fn fault(&mut self) -> Checked {
        if !self.faults_on() {
            return Ok(());
        }
        self.plan_fault();
        let weights = weights(&self.options);
        let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
        if total == 0 || self.server.is_none() {
            return Ok(());
        }
        let mut drawn = self.faults.below(total);
        for (kind, weight) in weights {
            if drawn < weight {
                return self.strike(kind);
            }
            drawn -= weight;
        }
        Ok(())
    }

    fn strike(&mut self, kind: Kind) -> Checked {
        self.note(format_args!("fault: {kind:?}"));
        match kind {
            Kind::PowerCut => return self.crash(true),
            Kind::Kill => return self.crash(false),
            Kind::StopAtStep => {
                let step = self.faults.below(30);
                self.disk.stop_at_step(step);
                self.disk_stops = true;
            }
            Kind::FailSync => {
                let number = self.faults.below(6);
                self.disk.fail_sync(number);
            }
            Kind::DiskFull => {
                self.counts.full_disks += 1;
                self.disk.limit_space(Some(0));
                let wait = self.faults.within(50_000, 3_000_000);
                self.after(wait, Event::Space);
            }
            Kind::SlowDisk => {
                self.disk_slow = true;
                let wait = self.faults.within(100_000, 2_000_000);
                self.after(wait, Event::FastDisk);
            }
            Kind::ShardPause => {
                let shard = self.faults.index(usize::from(self.options.shards));
                let time = self.faults.within(1_000, 3_000_000);
                self.pause_shard(shard, time);
            }
            Kind::WallJump => {
                let ms = i64::try_from(self.faults.below(1_200_000)).expect("a small number");
                self.wall_offset_ms += ms - 600_000;
            }
            Kind::Stop => self.inside_after(0, Inner::ToConsensus(ToConsensus::Stop)),
        }
        Ok(())
    }
}
