//! Measures how long `append` and `sync` of a group of 512-byte records take, by sync recipe and group size.
//!
//!     cargo run --release -p corral-storage --example sync_recipes -- <directory on the disk to measure>
//!
//! Recipes take turns in short rounds, so that noise from elsewhere hits all of them alike. Segments are prepared and
//! old ones recycled outside of the times taken, as the log thread does when idle.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use corral_storage::{Log, LogConfig, MmapDisk, SyncRecipe};
use corral_types::{EntryKind, Index, Record, StoredEntry, Term};

const RECORD_BYTES: usize = 512;
const ROUNDS: usize = 6;
const GROUPS: [(usize, usize); 3] = [(1, 600), (64, 300), (256, 150)];

struct Measured {
    append: Vec<Duration>,
    whole: Vec<Duration>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("name a directory on the disk to measure")?;
    let recipes = [("msync", SyncRecipe::Msync), ("fdatasync", SyncRecipe::Fdatasync)];
    let mut out = std::io::stdout().lock();
    writeln!(out, "recipe     group   append p50   append+sync p50       p99     p99.9  (us)   samples")?;
    for (group, count) in GROUPS {
        let mut measured = recipes.map(|_| Measured { append: Vec::new(), whole: Vec::new() });
        for round in 0..ROUNDS {
            for ((name, recipe), measured) in recipes.iter().zip(&mut measured) {
                let place = Path::new(&directory).join(format!("sync-recipes-{name}-{group}-{round}"));
                run(&place, *recipe, group, count, measured)?;
                std::fs::remove_dir_all(&place)?;
            }
        }
        for ((name, _), measured) in recipes.iter().zip(&mut measured) {
            measured.append.sort_unstable();
            measured.whole.sort_unstable();
            writeln!(
                out,
                "{name:<10} {group:>5} {:>12.1} {:>17.1} {:>9.1} {:>9.1} {:>16}",
                quantile(&measured.append, 500),
                quantile(&measured.whole, 500),
                quantile(&measured.whole, 990),
                quantile(&measured.whole, 999),
                measured.whole.len(),
            )?;
        }
    }
    Ok(())
}

fn run(
    place: &Path,
    recipe: SyncRecipe,
    group: usize,
    count: usize,
    measured: &mut Measured,
) -> Result<(), Box<dyn std::error::Error>> {
    let disk = MmapDisk::open(place, recipe)?;
    let (mut log, _) = Log::open(disk, LogConfig { segment_bytes: 16 << 20, ..LogConfig::default() }, &mut |_| {})?;
    log.prepare_ahead()?;
    let payload = [0x5A; RECORD_BYTES];
    let mut next = log.first_index();
    for _ in 0..count {
        let records: Vec<_> = (next..)
            .take(group)
            .map(|index| {
                Record::Entry(StoredEntry {
                    term: Term(1),
                    index: Index(index),
                    kind: EntryKind::Normal,
                    first_zxid: index,
                    payload: &payload,
                })
            })
            .collect();
        let begun = Instant::now();
        log.append(&records)?;
        measured.append.push(begun.elapsed());
        log.sync()?;
        measured.whole.push(begun.elapsed());
        next += records.len() as u64;
        if !log.room().1 {
            log.trim_before(next)?;
            log.prepare_ahead()?;
        }
    }
    Ok(())
}

/// A quantile of sorted times, in microseconds.
fn quantile(sorted: &[Duration], per_mille: usize) -> f64 {
    let nth = (sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(nth).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
