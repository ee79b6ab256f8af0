//! The load that a shard's clients cause: addresses, sessions and beginnings of paths with most requests, in constant memory.
//!
//! Counted in windows of two seconds, of which the last whole one is shown. A busy shard counts a random sample of its requests.
//! A table has few entries: the algorithm is Space-Saving (Metwally, Agrawal and El Abbadi, 2005). A new key takes the place of the
//! smallest one and inherits its number as a possible error. The error is never shown.

use crate::ids::{Millis, SessionId};
use crate::limits::{LOAD_ENTRIES, LOAD_PREFIX_BYTES};
use crate::shared::Text;
use alloc::vec::Vec;
use core::mem;
use core::net::IpAddr;
use corral_wire::OpCode;
use corral_wire::op::Kind;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const WINDOW_MS: u64 = 2000;
/// Requests of a window that are all counted. If the window before had more, a sample is.
const EXACT_MAX: u64 = 20_000;
/// Levels of a path that make its beginning.
const LEVELS: usize = 2;

/// Requests and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of requests, an estimate where a sample was counted.
    pub requests: u64,
    /// Of requests, and of replies that were given at once.
    pub bytes: u64,
    /// Work of the shard in units of [`crate::limits::TURN_COST_MAX`], about nanoseconds.
    pub cost: u64,
}

impl Load {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.cost += other.cost;
    }

    /// Of so many such requests.
    const fn times(self, count: u64) -> Self {
        Self { requests: self.requests * count, bytes: self.bytes * count, cost: self.cost * count }
    }
}

/// A window: the keys of most requests, in no order.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// Length of the window, milliseconds: 2000 or more. 0 before the first window has ended.
    pub took_ms: u64,
    /// Of all requests.
    pub total: Load,
    /// Load of client addresses, at most [`LOAD_ENTRIES`] of each shard.
    pub addresses: Vec<(IpAddr, Load)>,
    /// Load of sessions, each with the address of its client.
    pub sessions: Vec<((SessionId, IpAddr), Load)>,
    /// Paths of at most two levels.
    pub prefixes: Vec<(Text, Load)>,
}

impl Loads {
    /// Adds those of another shard.
    pub(crate) fn merge(&mut self, other: Self) {
        self.took_ms = self.took_ms.max(other.took_ms);
        self.total.add(&other.total);
        merge(&mut self.addresses, other.addresses, Load::add);
        merge(&mut self.sessions, other.sessions, Load::add);
        merge(&mut self.prefixes, other.prefixes, Load::add);
    }
}

/// Adds the values of equal keys.
pub(crate) fn merge<K: PartialEq, V>(list: &mut Vec<(K, V)>, others: Vec<(K, V)>, add: fn(&mut V, &V)) {
    for (key, value) in others {
        match list.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => add(known, &value),
            None => list.push((key, value)),
        }
    }
}

/// A request of a connection.
pub(crate) struct Request<'r> {
    pub(crate) address: IpAddr,
    pub(crate) session: SessionId,
    /// Its frame, header and record.
    pub(crate) frame: &'r [u8],
    /// Of it and of its reply.
    pub(crate) bytes: usize,
    pub(crate) cost: usize,
}

/// Counts the load of a shard.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    /// Requests that are passed over before the next that is counted.
    skipped: u32,
    /// One in so many is counted.
    every: u32,
    random: u64,
    seed: u64,
    since: Millis,
    addresses: Sketch<IpAddr>,
    sessions: Sketch<(SessionId, IpAddr)>,
    prefixes: Sketch<Text>,
    total: Load,
    last: Loads,
}

impl LoadMeter {
    /// `seed` is not known to clients.
    pub(crate) fn new(now: Millis, seed: u64) -> Self {
        Self {
            skipped: 0,
            every: 1,
            random: seed,
            seed,
            since: now,
            addresses: Sketch::default(),
            sessions: Sketch::default(),
            prefixes: Sketch::default(),
            total: Load::default(),
            last: Loads::default(),
        }
    }

    /// Whether the next request is counted.
    #[inline]
    pub(crate) const fn is_next(&mut self) -> bool {
        if self.skipped > 0 {
            self.skipped -= 1;
            return false;
        }
        true
    }

    /// Counts a request of which [`LoadMeter::is_next`] was true.
    pub(crate) fn count(&mut self, request: &Request<'_>) {
        let Request { address, session, frame, bytes, cost } = *request;
        let load = Load { requests: 1, bytes: bytes as u64, cost: cost as u64 }.times(self.every.into());
        self.total.add(&load);
        let address_hash = match address {
            IpAddr::V4(address) => xxh3_64_with_seed(&address.octets(), self.seed),
            IpAddr::V6(address) => xxh3_64_with_seed(&address.octets(), self.seed),
        };
        self.addresses.count(address_hash, &load, || Some(address));
        if session != SessionId(0) {
            let hash = session.0.cast_unsigned() ^ address_hash;
            self.sessions.count(hash, &load, || Some((session, address)));
        }
        if let Some(prefix) = prefix(frame) {
            self.prefixes.count(xxh3_64_with_seed(prefix, self.seed), &load, || shown(prefix).map(Text::from));
        }
        // A fixed distance could always meet the same client of several that take turns.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let spread = u64::from(2 * self.every - 1);
        self.skipped = u32::try_from((self.random >> 32) % spread).unwrap_or(0);
    }

    /// Time passes: after a window another one begins.
    pub(crate) fn tick(&mut self, now: Millis) {
        let took_ms = now.since(self.since);
        if took_ms < WINDOW_MS {
            return;
        }
        self.since = now;
        let (addresses, sessions, prefixes) = (self.addresses.take(), self.sessions.take(), self.prefixes.take());
        let total = mem::take(&mut self.total);
        self.last = Loads { took_ms, total, addresses, sessions, prefixes };
        self.every = u32::try_from(1 + total.requests / EXACT_MAX).unwrap_or(u32::MAX / 2);
        self.skipped = self.skipped.min(self.every);
    }

    /// The last whole window.
    pub(crate) const fn last(&self) -> &Loads {
        &self.last
    }
}

/// The first levels of a request's path.
fn prefix(frame: &[u8]) -> Option<&[u8]> {
    let path = path_bytes(frame).filter(|path| path.first() == Some(&b'/'))?;
    let head = &path[..path.len().min(LOAD_PREFIX_BYTES)];
    let mut levels = 0;
    let end = head.iter().position(|byte| {
        levels += usize::from(*byte == b'/');
        levels > LEVELS
    });
    Some(&head[..end.unwrap_or(head.len())])
}

/// The text of a prefix, without a part of a character at its end; `None` if it is no text.
fn shown(prefix: &[u8]) -> Option<&str> {
    let text = match core::str::from_utf8(prefix) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => core::str::from_utf8(&prefix[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    Some(text).filter(|text| !text.chars().any(char::is_control))
}

/// The path with which a request's record begins, of a multi that of its first operation.
pub(crate) fn path(frame: &[u8]) -> Option<&str> {
    core::str::from_utf8(path_bytes(frame)?).ok()
}

fn path_bytes(frame: &[u8]) -> Option<&[u8]> {
    const OP_BYTES: usize = 9;
    let (header, mut record) = frame.split_first_chunk::<8>()?;
    let op = OpCode::from_i32(i32::from_be_bytes([header[4], header[5], header[6], header[7]]))?;
    if matches!(op, OpCode::Multi | OpCode::MultiRead) {
        record = record.get(OP_BYTES..)?;
    } else if !matches!(op.kind(), Kind::Write | Kind::Read | Kind::Extension) && op != OpCode::Sync {
        return None;
    }
    let (length, path) = record.split_first_chunk::<4>()?;
    path.get(..usize::try_from(i32::from_be_bytes(*length)).ok()?)
}

/// Keys of most requests.
#[derive(Debug)]
struct Sketch<K> {
    entries: Vec<Entry<K>>,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    hash: u64,
    load: Load,
    /// Requests of keys that had this place before.
    error: u64,
}

impl<K> Default for Sketch<K> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K> Sketch<K> {
    /// A key that is `None` is not counted.
    fn count(&mut self, hash: u64, load: &Load, key: impl FnOnce() -> Option<K>) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.hash == hash) {
            return entry.load.add(load);
        }
        let Some(key) = key() else { return };
        if self.entries.len() < LOAD_ENTRIES {
            return self.entries.push(Entry { key, hash, load: *load, error: 0 });
        }
        let smallest = self.entries.iter_mut().min_by_key(|entry| entry.load.requests + entry.error);
        if let Some(entry) = smallest {
            let error = entry.load.requests + entry.error;
            *entry = Entry { key, hash, load: *load, error };
        }
    }

    fn take(&mut self) -> Vec<(K, Load)> {
        mem::take(&mut self.entries).into_iter().map(|entry| (entry.key, entry.load)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn frame(op: OpCode, path: &str) -> Vec<u8> {
        let length = i32::try_from(path.len()).expect("it is short");
        let lead: &[u8] = if matches!(op, OpCode::Multi) { &[0; 9] } else { &[] };
        [&1_i32.to_be_bytes()[..], &(op as i32).to_be_bytes(), lead, &length.to_be_bytes(), path.as_bytes()].concat()
    }

    #[test]
    fn beginnings_of_paths() {
        for (op, path, expect) in [
            (OpCode::GetData, "/a/b/c/d", Some("/a/b")),
            (OpCode::Create, "/a/b", Some("/a/b")),
            (OpCode::Multi, "/a/b/c", Some("/a/b")),
            (OpCode::Sync, "/a", Some("/a")),
            (OpCode::GetData, "/", Some("/")),
            (OpCode::GetData, "a/b", None),
            (OpCode::GetData, "/a\n/b", None),
            (OpCode::Ping, "/a", None),
            (OpCode::Auth, "/a", None),
        ] {
            assert_eq!(prefix(&frame(op, path)).and_then(shown), expect, "{op:?} {path}");
        }
        let long = alloc::format!("/{}", "\u{e4}".repeat(LOAD_PREFIX_BYTES));
        assert_eq!(prefix(&frame(OpCode::GetData, &long)).and_then(shown).map(str::len), Some(LOAD_PREFIX_BYTES - 1));
        let whole = frame(OpCode::GetData, "/a");
        assert!((0..whole.len()).all(|end| prefix(&whole[..end]).is_none()));
    }

    /// Requests of the first address, then one of each of many.
    fn load(meter: &mut LoadMeter, first: u32, others: u32) {
        let hammer = core::iter::repeat_n(0, first as usize);
        let frame = frame(OpCode::GetData, "/a/b/c");
        for number in hammer.chain(1..=others) {
            if meter.is_next() {
                let address = IpAddr::from(Ipv4Addr::from_bits(number));
                let session = SessionId(i64::from(number) + 1);
                meter.count(&Request { address, session, frame: &frame, bytes: 10, cost: 500 });
            }
        }
    }

    #[test]
    fn the_one_of_most_requests_is_named_and_never_with_too_many() {
        let mut meter = LoadMeter::new(Millis(0), 7);
        load(&mut meter, 1000, 5000);
        meter.tick(Millis(1999));
        assert!(meter.last().addresses.is_empty(), "no window is over");
        meter.tick(Millis(2000));
        let last = meter.last().clone();
        assert_eq!((last.took_ms, last.addresses.len(), last.sessions.len()), (2000, LOAD_ENTRIES, LOAD_ENTRIES));
        let most = last.addresses.iter().max_by_key(|(_, load)| load.requests).expect("there are some");
        let expect = Load { requests: 1000, bytes: 10_000, cost: 500_000 };
        assert_eq!(*most, (IpAddr::from(Ipv4Addr::from_bits(0)), expect));
        assert!(last.addresses.iter().all(|(address, load)| address == &most.0 || load.requests == 1));
        assert_eq!(last.prefixes, [(Text::from("/a/b"), Load { requests: 6000, bytes: 60_000, cost: 3_000_000 })]);
        meter.tick(Millis(4000));
        assert!(meter.last().addresses.is_empty());
    }

    #[test]
    fn of_many_requests_a_sample_is_counted() {
        let mut meter = LoadMeter::new(Millis(0), 7);
        load(&mut meter, 400_000, 0);
        meter.tick(Millis(2000));
        assert_eq!(meter.every, 21);
        load(&mut meter, 400_000, 0);
        meter.tick(Millis(4000));
        let counted = meter.last().addresses[0].1.requests;
        assert!((380_000..=420_000).contains(&counted), "{counted}");
    }

    #[test]
    fn shards_are_summed() {
        let of = |requests| (Text::from("/a"), Load { requests, bytes: 1, cost: 2 });
        let mut loads = Loads { prefixes: Vec::from([of(3)]), took_ms: 1, ..Loads::default() };
        let other = (Text::from("/b"), Load::default());
        loads.merge(Loads { prefixes: Vec::from([of(4), other.clone()]), took_ms: 2, ..Loads::default() });
        let sum = (Text::from("/a"), Load { requests: 7, bytes: 2, cost: 4 });
        assert_eq!((loads.took_ms, loads.prefixes), (2, Vec::from([sum, other])));
    }
}
