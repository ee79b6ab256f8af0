//! A page of the log's files that is lost between the end of a killed process and the next start.
//!
//! Either the log opens all the same, and the run goes on with that disk. Then the checkers find a missing acknowledged
//! write, or a lost vote. Or it is refused. Then a server of an ensemble puts its data aside, if the ensemble can do
//! without them. Otherwise the operator restores the page from a backup.

use corral_storage::LogError::{Damaged, MissingSegment, NotASegment, OtherLog};
use corral_storage::log::Log;
use corral_storage::{Disk as _, SimDisk};

use corral_engine::OnDamage;

use super::snapshot_file::newest;
use crate::options::Bug;
use crate::violation::{Checked, Violation};
use crate::world::World;

const PAGE_BYTES: usize = 4096;
const DURABLE_NAME: &str = "DURABLE";

impl World {
    /// Called when the process has just been killed. `may_empty`: the ensemble could do without its disk before that.
    pub(crate) fn lose_a_page(&mut self, may_empty: bool) -> Checked {
        let share = self.options.lost_page_share;
        if share == 0 || !self.pages.per_mille(share) {
            return Ok(());
        }
        let Some((name, whole, page)) = self.pick_page() else { return Ok(()) };
        let disk = &self.nodes[self.at].disk;
        if self.options.bug == Some(Bug::NoDurableFile) && disk.content(DURABLE_NAME).is_some() {
            disk.remove(DURABLE_NAME).map_err(|error| Violation::of("recovery", error.to_string()))?;
        }
        let mut damaged = whole.clone();
        self.spoil(&mut damaged[page..page + PAGE_BYTES]);
        self.counts.lost_pages += 1;
        self.note(format_args!("{name} loses the page at {page}"));
        let disk = &self.nodes[self.at].disk;
        disk.place(&name, damaged);
        let fork = disk.fork();
        // Faults that were ordered for this disk are not for the look at it.
        fork.fail_sync(u64::MAX);
        let snapshot = newest(&fork).map_err(|error| Violation::of("recovery", error))?;
        let config = self.log_config(snapshot.map_or(0, |loaded| loaded.index));
        match Log::open(fork, config, &mut |_| {}) {
            Ok(_) => Ok(()),
            Err(error) if name == DURABLE_NAME => {
                Err(Violation::of("recovery", format!("a whole log is refused: {error}")))
            }
            Err(error @ (Damaged { .. } | NotASegment { .. } | MissingSegment { .. } | OtherLog { .. })) => {
                self.counts.refused_logs += 1;
                self.note(format_args!("refused: {error}"));
                match self.decide_on_damage() {
                    OnDamage::PutAside if may_empty => self.set_empty(true),
                    // From a backup.
                    _ => self.nodes[self.at].disk.place(&name, whole),
                }
                Ok(())
            }
            Err(error) => Err(Violation::of("recovery", format!("damage is not called so: {error}"))),
        }
    }

    /// A page of a segment or of the file with the durable point; half of the time the last page with records.
    fn pick_page(&mut self) -> Option<(String, Vec<u8>, usize)> {
        let names = self.nodes[self.at].disk.list().unwrap_or_default();
        let names: Vec<_> = names.into_iter().filter(|name| name.starts_with("log-") || name == DURABLE_NAME).collect();
        let content = |disk: &SimDisk, name: &String| disk.content(name).filter(|content| content.len() >= PAGE_BYTES);
        let disk = &self.nodes[self.at].disk;
        if self.pages.per_mille(500) {
            let mut used = names.iter().rev().filter_map(|name| {
                let whole = content(disk, name)?;
                let last = whole.iter().rposition(|byte| *byte != 0)?;
                // A segment that was only prepared holds nothing but its header.
                (last >= PAGE_BYTES).then(|| (name.clone(), whole, last - last % PAGE_BYTES))
            });
            return used.next();
        }
        let name = names.get(self.pages.index(names.len().max(1)))?;
        let whole = content(disk, name)?;
        let page = self.pages.index(whole.len() / PAGE_BYTES) * PAGE_BYTES;
        Some((name.clone(), whole, page))
    }

    fn spoil(&mut self, page: &mut [u8]) {
        match self.pages.below(4) {
            0 => page.fill(0),
            1 => page.fill(0xFF),
            2 => page.copy_from_slice(&self.pages.bytes::<PAGE_BYTES>()),
            _ => {
                let at = self.pages.index(page.len());
                page[at] ^= 1 << self.pages.below(8);
            }
        }
    }
}
