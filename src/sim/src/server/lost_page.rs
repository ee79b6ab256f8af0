//! A page of the log's files that is lost between the end of a killed process and the next start.
//!
//! Either the log opens all the same, and the run goes on with that disk. Then the checkers find a missing acknowledged
//! write, or a lost vote. Or it is refused. Then a server of an ensemble puts its data aside, if the ensemble can do
//! without them. Otherwise the operator restores the page from a backup.

use corral_engine::OnDamage;
use corral_storage::LogError::{Damaged, MissingSegment, NotASegment, OtherLog};
use corral_storage::log::Log;
use corral_storage::{Disk as _, SimDisk};

use crate::options::Bug;
use crate::server::snapshot_file::newest;
use crate::server::{emptying, recovery};
use crate::violation::{Checked, Violation};
use crate::world::World;

const PAGE_BYTES: usize = 4096;
const DURABLE_NAME: &str = "DURABLE";

/// Called when the process has just been killed. `may_empty`: the ensemble could do without its disk before that.
pub(crate) fn lose_a_page(world: &mut World, may_empty: bool) -> Checked {
    let share = world.options.lost_page_share;
    if share == 0 || !world.pages.per_mille(share) {
        return Ok(());
    }
    let Some((name, whole, page)) = pick_page(world) else { return Ok(()) };
    let disk = &world.nodes[world.at].disk;
    if world.options.bug == Some(Bug::NoDurableFile) && disk.content(DURABLE_NAME).is_some() {
        disk.remove(DURABLE_NAME).map_err(|error| Violation::of("recovery", error.to_string()))?;
    }
    let mut damaged = whole.clone();
    spoil(world, &mut damaged[page..page + PAGE_BYTES]);
    world.counts.lost_pages += 1;
    world.note(format_args!("{name} loses the page at {page}"));
    let disk = &world.nodes[world.at].disk;
    disk.place(&name, damaged);
    let fork = disk.fork();
    // Faults that were ordered for this disk are not for the look at it.
    fork.fail_sync(u64::MAX);
    let snapshot = newest(&fork).map_err(|error| Violation::of("recovery", error))?;
    let config = recovery::log_config(world, snapshot.map_or(0, |loaded| loaded.index));
    match Log::open(fork, config, &mut |_| {}) {
        Ok(_) => Ok(()),
        Err(error) if name == DURABLE_NAME => {
            Err(Violation::of("recovery", format!("a whole log is refused: {error}")))
        }
        Err(error @ (Damaged { .. } | NotASegment { .. } | MissingSegment { .. } | OtherLog { .. })) => {
            world.counts.refused_logs += 1;
            world.note(format_args!("refused: {error}"));
            match recovery::decide_on_damage(world) {
                OnDamage::PutAside if may_empty => emptying::set_empty(world, true),
                // From a backup.
                _ => world.nodes[world.at].disk.place(&name, whole),
            }
            Ok(())
        }
        Err(error) => Err(Violation::of("recovery", format!("damage is not called so: {error}"))),
    }
}

/// A page of a segment or of the file with the durable point; half of the time the last page with records.
fn pick_page(world: &mut World) -> Option<(String, Vec<u8>, usize)> {
    let names = world.nodes[world.at].disk.list().unwrap_or_default();
    let names: Vec<_> = names.into_iter().filter(|name| name.starts_with("log-") || name == DURABLE_NAME).collect();
    let content = |disk: &SimDisk, name: &String| disk.content(name).filter(|content| content.len() >= PAGE_BYTES);
    let disk = &world.nodes[world.at].disk;
    if world.pages.per_mille(500) {
        let mut used = names.iter().rev().filter_map(|name| {
            let whole = content(disk, name)?;
            let last = whole.iter().rposition(|byte| *byte != 0)?;
            // A segment that was only prepared holds nothing but its header.
            (last >= PAGE_BYTES).then(|| (name.clone(), whole, last - last % PAGE_BYTES))
        });
        return used.next();
    }
    let name = names.get(world.pages.index(names.len().max(1)))?;
    let whole = content(disk, name)?;
    let page = world.pages.index(whole.len() / PAGE_BYTES) * PAGE_BYTES;
    Some((name.clone(), whole, page))
}

fn spoil(world: &mut World, page: &mut [u8]) {
    match world.pages.below(4) {
        0 => page.fill(0),
        1 => page.fill(0xFF),
        2 => page.copy_from_slice(&world.pages.bytes::<PAGE_BYTES>()),
        _ => {
            let at = world.pages.index(page.len());
            page[at] ^= 1 << world.pages.below(8);
        }
    }
}
