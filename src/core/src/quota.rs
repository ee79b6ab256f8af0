//! Quotas: the subtrees that have one, their usage, and their limits (protocol chapter 20).
//!
//! A quota on `/a` is two ordinary znodes, `/zookeeper/quota/a/zookeeper_limits` and `zookeeper_stats`. Limits register
//! the subtree. The data of the other znode are kept equal to the usage of the subtree, without a trace in its Stat and
//! without an event. Part of the state machine: everything here follows from the tree alone. Clients may write anything
//! into these znodes: data that cannot be read count as absent, and sums saturate.

pub mod count;
mod subtrees;
pub mod usage;

use self::count::{COUNT_PIECE, COUNTED_AT_ONCE_MAX, Count, Counted, DELETIONS_AT_ONCE_MAX, NAMES_PIECE};
use self::subtrees::Subtrees;
use self::usage::{Numbers, QuotaExceeded, Usage};
use crate::ids::Zxid;
use crate::path;
use crate::shared::{Data, Text};
use crate::tree::change::{Change, Changes};
use crate::tree::view::View;
use crate::tree::znode::Znode;
use crate::{cost, features};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::cell::Cell;
use core::ops::Bound;
use corral_wire::error::ErrorCode;

const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";
/// Longest text of limits or usage that is read; ZooKeeper's own never have a quarter of it.
const TEXT_BYTES_MAX: usize = 256;
/// .. in entries of logs of former versions.
const TEXT_BYTES_FORMERLY: usize = 1024;
/// Bytes of the path of a subtree that is given a quota, and levels of it: every write below looks for its quota.
pub(crate) const QUOTA_PATH_BYTES_MAX: usize = 1024;
pub(crate) const QUOTA_PATH_LEVELS_MAX: usize = 32;
/// Additional cost of a write where there are quotas.
pub(crate) const QUOTA_COST: u64 = 10_000;
/// Additional cost of a deletion there: no limit is checked.
pub(crate) const QUOTA_DELETE_COST: u64 = 2000;
/// Subtrees with a quota. A transaction may change something in each of them, and writes what each uses.
pub(crate) const QUOTAS_MAX: usize = if cfg!(test) { 30 } else { 5000 };
/// Additional cost of the creation of a usage znode.
pub(crate) const COUNT_COST: u64 = COUNTED_AT_ONCE_MAX as u64 * 5 * cost::ZNODE;
/// The same in log entries of former versions.
pub(crate) const COUNT_COST_FORMERLY: u64 = COUNTED_AT_ONCE_MAX as u64 * (cost::ZNODE + cost::NAME);

/// The writes beyond a quota since the last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaReport {
    /// Number of these writes, refused or not.
    pub writes: u64,
    /// The last of these writes.
    pub last: QuotaExceeded,
}

/// The subtrees that have a quota.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    prefixes: Subtrees,
    /// Usage znodes of subtrees too large to be counted at once, which the leader has yet to count. Each is a znode of
    /// the tree and shares its path, so that the bounds of the tree bound the set. No work goes over all of it.
    uncounted: BTreeSet<Text>,
    /// The leader's count under way. No part of the replicated state.
    count: Option<Count>,
    /// The usage znode that was counted last: they take turns.
    counted_last: Option<Text>,
    report: Option<QuotaReport>,
}

impl Quotas {
    /// Finds the quotas of a tree; looks at nothing but `/zookeeper/quota`.
    pub(crate) fn of(view: &View) -> Self {
        let mut quotas = Self::default();
        view.walk(ROOT, |path, node| {
            if let Some(prefix) = prefix_of(path, LIMITS).filter(|prefix| !prefix.is_empty()) {
                quotas.prefixes.insert(prefix);
            }
            if prefix_of(path, STATS).is_some() && Numbers::parse(node.data(), TEXT_BYTES_MAX).is_uncounted() {
                quotas.uncounted.insert(Text::from(path));
            }
            true
        });
        quotas
    }

    /// Whether there is no quota at all: the usual case, which must cost nothing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Whether one more quota would be too many, beside `more` that the same transaction may have created.
    pub(crate) fn are_too_many(&self, more: usize) -> bool {
        self.prefixes.len() + more >= QUOTAS_MAX
    }

    /// Checks that no hard limit forbids more znodes or bytes below `path`, judged by the present usage.
    pub(crate) fn check(
        &self,
        view: &View,
        bounded: bool,
        path: &str,
        (znodes, bytes): (i64, i64),
    ) -> Result<(), QuotaExceeded> {
        let Some(prefix) = self.prefixes.deepest(path) else { return Ok(()) };
        let read = |name| Some(Numbers::parse(data_of(view, prefix, name)?, text_bytes_max(bounded)));
        let (Some(limits), Some(usage)) = (read(LIMITS), read(STATS)) else {
            return Ok(());
        };
        match limits.exceeded(prefix, &usage.plus(znodes, bytes), znodes != 0, bytes != 0) {
            Some(exceeded) if exceeded.hard => Err(QuotaExceeded { refused: true, ..exceeded }),
            _ => Ok(()),
        }
    }

    pub(crate) fn note(&mut self, exceeded: QuotaExceeded) {
        let writes = self.report.as_ref().map_or(0, |report| report.writes);
        self.report = Some(QuotaReport { writes: writes + 1, last: exceeded });
    }

    pub(crate) fn take_report(&mut self) -> Option<QuotaReport> {
        self.report.take()
    }

    /// Whether these changes may concern a quota.
    pub(crate) fn concern(&self, changes: &[Change]) -> bool {
        !self.is_empty() || self.count.is_some() || changes.iter().any(|change| change.at().path.starts_with(ROOT))
    }

    /// Applies one change to the tree and keeps the usage in step.
    pub(crate) fn apply(&mut self, view: &mut View, zxid: Zxid, mut change: Change, books: &mut Books) {
        // A change of limits or usage is not part of the usage accounted before it.
        let (path, of_quota) = (&change.at().path, |name| prefix_of(&change.at().path, name).is_some());
        if path.starts_with(ROOT) && (of_quota(LIMITS) || of_quota(STATS)) {
            books.close(view, zxid);
        }
        books.put_right(view, &mut change);
        let (znodes, bytes) = difference(view, &change);
        view.apply(zxid, &change);
        let path = &change.at().path.clone();
        match &change {
            Change::Created { .. } => {
                if let Some(prefix) = prefix_of(path, LIMITS).filter(|prefix| !prefix.is_empty()) {
                    self.prefixes.insert(prefix);
                } else if let Some(prefix) = prefix_of(path, STATS) {
                    let usage = if books.bounded {
                        count_at_once(view, prefix, path, zxid, &mut books.deletions_left)
                    } else {
                        count(view, prefix)
                    };
                    books.write(view, zxid, path, &usage);
                    self.note_usage(view, path);
                }
            }
            Change::Deleted { .. } => {
                if let Some(prefix) = prefix_of(path, LIMITS) {
                    self.prefixes.remove(prefix);
                }
                self.uncounted.remove(path);
            }
            Change::DataSet { .. } | Change::Quiet { .. } => self.note_usage(view, path),
        }
        books.changes.push(change);
        if let Some(count) = &mut self.count {
            count.note(path, (znodes, bytes));
        }
        if (znodes, bytes) != (0, 0) {
            self.account(view, zxid, path, (znodes, bytes), books);
        }
    }

    fn account(&mut self, view: &mut View, zxid: Zxid, path: &Text, (znodes, bytes): (i64, i64), books: &mut Books) {
        let Some(prefix) = self.prefixes.deepest(path) else { return };
        let bytes_max = text_bytes_max(books.bounded);
        if !books.pages.contains_key(prefix) {
            let usage = data_of(view, prefix, STATS).map(|data| Usage::parse(data, bytes_max));
            books.pages.insert(prefix.clone(), Page { usage, limits: None });
        }
        let Some(Page { usage: Some(usage), limits }) = books.pages.get_mut(prefix) else { return };
        usage.numbers = usage.numbers.plus(znodes, bytes);
        let mut exceeded = None;
        if znodes > 0 || bytes > 0 {
            let read = || data_of(view, prefix, LIMITS).map(|data| Numbers::parse(data, bytes_max));
            let limits = limits.get_or_insert_with(read).as_ref();
            exceeded = limits.and_then(|limits| limits.exceeded(prefix, &usage.numbers, znodes > 0, bytes > 0));
        }
        // Usage with a text too long to be read counts as absent for the next change.
        if usage.text_bytes() > bytes_max
            && let Some(Page { usage: Some(usage), .. }) = books.pages.remove(prefix)
        {
            books.write(view, zxid, &Text::from(znode_of(prefix, STATS)), &usage);
        }
        if let Some(exceeded) = exceeded {
            self.note(exceeded);
        }
    }

    /// A usage znode was written: whether its subtree is yet to be counted.
    fn note_usage(&mut self, view: &View, path: &Text) {
        if prefix_of(path, STATS).is_none() {
            return;
        }
        let usage = view.get(path).map(|node| Numbers::parse(node.data(), TEXT_BYTES_MAX));
        if usage.is_some_and(|usage| usage.is_uncounted()) {
            self.uncounted.insert(path.clone());
        } else {
            self.uncounted.remove(path);
        }
    }

    /// Goes on counting, if a subtree is yet to be counted. Gives the result when the walk over it has ended.
    pub(crate) fn count_on(&mut self, view: &View) -> Option<Counted> {
        if self.count.is_none() {
            let behind = self.counted_last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.uncounted.range::<str, _>((behind, Bound::Unbounded)).next();
            let stats = next.or_else(|| self.uncounted.first())?.clone();
            self.counted_last = Some(stats.clone());
            let mzxid = view.get(&stats)?.stat().mzxid;
            self.count = Some(Count::begin(view, prefix_of(&stats, STATS)?, &stats, mzxid, u64::MAX));
        }
        let count = self.count.as_mut().filter(|count| !count.over)?;
        count.over = count.piece(view, COUNT_PIECE, NAMES_PIECE);
        if !count.over {
            return None;
        }
        let usage = view.get(&count.stats).map(|node| Numbers::parse(node.data(), TEXT_BYTES_MAX)).unwrap_or_default();
        let (path, mzxid) = (count.stats.clone(), count.mzxid.0);
        Some(Counted {
            path,
            mzxid,
            znodes: count.znodes.saturating_sub(usage.znodes),
            bytes: count.bytes.saturating_sub(usage.bytes),
        })
    }

    /// Another server leads, and counts.
    pub(crate) fn stop_counting(&mut self) {
        self.count = None;
    }

    /// Returns the change that a count leads to. There is none if the usage znode was written since the count began.
    pub(crate) fn counted(&mut self, view: &View, counted: &Counted) -> Changes {
        self.count = None;
        let mut changes = Changes::new();
        let at = view.hashed(counted.path.clone());
        let node = view.get_hashed(&at.path, at.hash).filter(|node| node.stat().mzxid.0 == counted.mzxid);
        let Some(node) = node.filter(|_| prefix_of(&at.path, STATS).is_some()) else { return changes };
        let mut usage = Usage::parse(node.data(), TEXT_BYTES_MAX);
        if usage.numbers.is_uncounted() {
            usage.numbers = usage.numbers.plus(counted.znodes, counted.bytes);
            usage.is_counted();
            let data = Some(Data::from(&*usage.text()));
            let node = Arc::new(Znode { stat: node.stat(), acl: node.to_acl(), data });
            changes.push(Change::Quiet { at, node });
        }
        changes
    }
}

const fn text_bytes_max(bounded: bool) -> usize {
    if bounded { TEXT_BYTES_MAX } else { TEXT_BYTES_FORMERLY }
}

/// Whether a path is that of a subtree's limits.
pub(crate) fn is_limits(path: &str) -> bool {
    prefix_of(path, LIMITS).is_some()
}

/// Whether a path may be that of a subtree's limits.
pub(crate) fn may_have_quota(path: &str) -> bool {
    prefix_of(path, LIMITS).is_none_or(|prefix| {
        let levels = prefix.bytes().filter(|byte| *byte == b'/').count();
        prefix.len() <= QUOTA_PATH_BYTES_MAX && levels <= QUOTA_PATH_LEVELS_MAX
    })
}

/// Whether a znode that is created there may give a subtree a quota.
pub(crate) fn may_set_quota(path: &str) -> bool {
    path.starts_with(ROOT)
}

/// Whether a znode that is created there makes a subtree be counted.
pub(crate) fn counts(path: &str) -> bool {
    prefix_of(path, STATS).is_some()
}

/// The changes of one transaction, with those of usage.
#[derive(Default)]
pub(crate) struct Books {
    /// Whether the entry was ordered with bounds.
    bounded: bool,
    /// Children deleted below the znodes that counts at once may yet visit.
    deletions_left: u64,
    changes: Changes,
    /// Znodes of usage written in this transaction. Its own changes were made before and do not know of it.
    written: BTreeSet<Text>,
    /// The znodes of `written` with a last state that is not among the changes yet: one change may sum up many.
    unsaid: BTreeSet<Text>,
    /// The subtrees that changes were in: each is written once for all.
    pages: BTreeMap<Text, Page>,
}

/// A subtree with a quota while changes in it are accounted.
struct Page {
    /// None when no usage is kept.
    usage: Option<Usage>,
    /// Read when something is added.
    limits: Option<Option<Numbers>>,
}

impl Books {
    /// For an entry that was ordered with these [`features`].
    pub(crate) fn new(features: u32) -> Self {
        let has = |feature| features & feature != 0;
        let deletions_left = if has(features::DELETIONS_BOUNDED) { DELETIONS_AT_ONCE_MAX } else { u64::MAX };
        Self { bounded: has(features::BOUNDED), deletions_left, ..Self::default() }
    }

    /// Writes what was accounted.
    fn close(&mut self, view: &mut View, zxid: Zxid) {
        for (prefix, page) in core::mem::take(&mut self.pages) {
            if let Some(usage) = page.usage {
                self.write(view, zxid, &Text::from(znode_of(&prefix, STATS)), &usage);
            }
        }
    }

    /// Puts the usage into its znode: a new length of the data, and nothing else of the Stat.
    fn write(&mut self, view: &mut View, zxid: Zxid, path: &Text, usage: &Usage) {
        let Some(change) = written(view, path, usage) else { return };
        view.apply(zxid, &change);
        self.written.insert(path.clone());
        self.unsaid.insert(path.clone());
    }

    /// Gives a change that carries the state of a written znode the data that was written.
    fn put_right(&mut self, view: &View, change: &mut Change) {
        if self.written.is_empty() {
            return;
        }
        let at = change.at();
        if matches!(change, Change::Created { .. } | Change::Deleted { .. } | Change::DataSet { .. }) {
            self.written.remove(&at.path);
            self.unsaid.remove(&at.path);
        }
        let Some(stale) = self.written.get(&at.path).cloned() else { return };
        let data = view.get(&stale).and_then(|node| node.to_znode().data.clone());
        if self.unsaid.remove(&stale) {
            self.say(view, stale);
        }
        if let Change::Quiet { node, .. } = change {
            Arc::make_mut(node).data = data;
        }
    }

    fn say(&mut self, view: &View, path: Text) {
        let at = view.hashed(path);
        if let Some(node) = view.get_hashed(&at.path, at.hash) {
            let node = node.to_znode();
            self.changes.push(Change::Quiet { at, node });
        }
    }

    /// All changes, for the shards.
    pub(crate) fn finish(mut self, view: &mut View, zxid: Zxid) -> Changes {
        for (prefix, page) in core::mem::take(&mut self.pages) {
            let path = Text::from(znode_of(&prefix, STATS));
            if let Some(change) = page.usage.and_then(|usage| written(view, &path, &usage)) {
                view.apply(zxid, &change);
                self.unsaid.remove(&path);
                self.changes.push(change);
            }
        }
        for path in core::mem::take(&mut self.unsaid) {
            self.say(view, path);
        }
        self.changes
    }
}

/// Znodes that the counts of one log entry of a former version may visit, the first count aside.
const COUNTED_MAX: u64 = 100_000;

/// Whether a znode may be created although that may count a subtree, in a log entry of a former version. `countable` is what the
/// entry's counts may still visit, `None` before the first, which may be of any size.
///
/// # Errors
/// `ThrottledOp` when the entry has counted enough.
pub(crate) fn allow_count(view: &View, path: &str, countable: &Cell<Option<u64>>) -> Result<(), ErrorCode> {
    let Some(prefix) = prefix_of(path, STATS) else { return Ok(()) };
    let Some(left) = countable.get() else {
        countable.set(Some(COUNTED_MAX));
        return Ok(());
    };
    let mut visited = 0;
    view.walk(path::or_root(prefix), |_, node| {
        visited += 1;
        // A znode with too many children ends the walk: the sum is beyond the limit, without a visit of them.
        visited += if visited + u64::from(node.stat().num_children) > left { left } else { 0 };
        visited <= left
    });
    countable.set(Some(left.checked_sub(visited).ok_or(ErrorCode::ThrottledOp)?));
    Ok(())
}

/// `/a` of `/zookeeper/quota/a/<name>`; empty for `/zookeeper/quota/<name>`.
fn prefix_of<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let prefix = path.strip_prefix(ROOT)?.strip_suffix(name)?.strip_suffix('/')?;
    (prefix.is_empty() || prefix.starts_with('/')).then_some(prefix)
}

/// The data of a quota's znode; `None` when there is no such znode.
fn data_of<'v>(view: &'v View, prefix: &str, name: &str) -> Option<Option<&'v [u8]>> {
    Some(view.get(&znode_of(prefix, name))?.data())
}

fn znode_of(prefix: &str, name: &str) -> String {
    format!("{ROOT}{prefix}/{name}")
}

/// Znodes and bytes that a change adds to its subtree. To be asked before it is applied.
fn difference(view: &View, change: &Change) -> (i64, i64) {
    let length = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    let at = change.at();
    let before = || view.get_hashed(&at.path, at.hash).map_or(0, |old| length(old.data().map_or(0, <[u8]>::len)));
    match change {
        Change::Created { node, .. } => (1, length(node.data_len())),
        Change::Deleted { .. } => (-1, -before()),
        Change::DataSet { node, .. } => (0, length(node.data_len()) - before()),
        Change::Quiet { .. } => (0, 0),
    }
}

/// Returns the usage of a subtree, if it is small. Otherwise no usage as yet, with a mark: later changes are added to
/// it, and the leader counts the znodes that were there before.
fn count_at_once(view: &View, prefix: &str, stats: &Text, zxid: Zxid, deletions_left: &mut u64) -> Usage {
    let mut count = Count::begin(view, prefix, stats, zxid, *deletions_left);
    // Marks of deleted znodes must not decide, because they differ from server to server. Deletions bound their number.
    let all = count.piece(view, COUNTED_AT_ONCE_MAX, u32::MAX);
    *deletions_left = count.deletions_left.unwrap_or(0);
    if all { Usage::of(count.znodes, count.bytes) } else { Usage::uncounted() }
}

/// Returns the usage of a subtree by a visit of all its znodes, as entries of former versions require.
fn count(view: &View, prefix: &str) -> Usage {
    let (mut znodes, mut bytes) = (0_i64, 0_i64);
    view.walk(path::or_root(prefix), |_, node| {
        znodes += 1;
        bytes = bytes.saturating_add(i64::try_from(node.data().map_or(0, <[u8]>::len)).unwrap_or(i64::MAX));
        true
    });
    Usage::of(znodes, bytes)
}

/// The change that makes a usage the data of its znode, if that is there.
fn written(view: &View, path: &Text, usage: &Usage) -> Option<Change> {
    let at = view.hashed(path.clone());
    let node = view.get_hashed(&at.path, at.hash)?;
    let data = Some(Data::from(&*usage.text()));
    let node = Arc::new(Znode { stat: node.stat(), acl: node.to_acl(), data });
    Some(Change::Quiet { at, node })
}
