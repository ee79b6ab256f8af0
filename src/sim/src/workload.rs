//! Requests of clients: few paths, so that requests collide, and every operation in every flavour.

use corral_wire::OpCode;

use crate::reconfig::{Change, Seat};
use crate::request::{AclItem, Request, WatchKind, Write};
use crate::rng::Stream;

#[derive(Clone, Debug, Default)]
pub(crate) struct Workload {
    values: u64,
    /// Whether the server serves Keeper's operations.
    keeper: bool,
}

const OPS_TO_TRUNCATE: [OpCode; 9] = ops! {
    Create Delete SetData GetData Exists Multi Sync AddWatch GetAllChildrenNumber
};

impl Workload {
    pub(crate) fn new(client: u64, keeper: bool) -> Workload {
        Workload { values: client << 32, keeper }
    }

    /// Any request that neither makes nor ends a session. A few of them add server 2 to the list, with this `peer_port`.
    pub(crate) fn request(&mut self, rng: &mut Stream, read_share: u64, peer_port: u16) -> Request {
        if !rng.per_mille(read_share) {
            return match rng.below(1000) {
                0..150 => Request::Multi((0..rng.below(6)).map(|_| self.write(rng, true)).collect()),
                150..155 => {
                    let joining = vec![(2, Seat { observer: false, port: 3, peer_port })];
                    Request::Reconfig(Change { joining, from: -1, ..Change::default() })
                }
                155..175 => with_quota(rng),
                _ => Request::Write(self.write(rng, false)),
            };
        }
        let (path, watch) = (path(rng), rng.per_mille(300));
        match rng.below(24) {
            20 => Request::AddWatch { path, recursive: rng.per_mille(500) },
            21 => Request::RemoveWatches { path, kind: kind(rng) },
            22 if rng.per_mille(500) => Request::CheckWatches { path, kind: kind(rng) },
            22 => Request::Ephemerals { prefix: if rng.per_mille(300) { "/".to_owned() } else { path } },
            23 => Request::CountDescendants { path },
            0..6 => Request::GetData { path, watch },
            6..10 => Request::Exists { path, watch },
            10..13 => Request::GetChildren { path, watch, with_stat: false },
            13..16 => Request::GetChildren { path, watch, with_stat: true },
            16 => Request::GetAcl { path },
            17 => Request::Sync { path },
            _ => Request::Ping,
        }
    }

    /// A request that the server refuses, politely.
    pub(crate) fn refused(rng: &mut Stream) -> Request {
        if rng.per_mille(200) {
            Request::Unknown(rng.pick(&[444, 999, -1, 508]))
        } else {
            Request::Truncated(rng.pick(&OPS_TO_TRUNCATE))
        }
    }

    fn write(&mut self, rng: &mut Stream, in_multi: bool) -> Write {
        let path = if rng.per_mille(15) { bad_path(rng) } else { path(rng) };
        if self.keeper && rng.per_mille(150) {
            return self.keeper_write(rng, path);
        }
        match rng.below(22) {
            20 => Write::CreateExpiring { path, ttl: None },
            21 => Write::CreateExpiring { path, ttl: Some(rng.pick(&[1, 500, 2_000, 1 << 39, 0, 1 << 40])) },
            0..9 => {
                let odd = !in_multi && rng.per_mille(15);
                let flags = if odd { rng.pick(&[4, 5, 6, 9, -1]) } else { rng.pick(&[0, 0, 0, 1, 1, 2, 3]) };
                let path = if flags == 2 || flags == 3 { sequential_path(rng) } else { path };
                Write::Create { with_stat: rng.per_mille(400), path, data: self.data(rng), acl: acl(rng), flags }
            }
            9..12 => Write::Delete { path, version: version(rng) },
            12..17 => Write::SetData { path, data: self.data(rng), version: version(rng) },
            17 if in_multi => Write::Check { path, version: version(rng) },
            18 if in_multi => Write::Check { path, version: -1 },
            17 => Write::SetAcl { path, acl: acl(rng), version: version(rng) },
            _ => Write::SetData { path, data: self.data(rng), version: -1 },
        }
    }

    fn keeper_write(&mut self, rng: &mut Stream, path: String) -> Write {
        let path = if rng.per_mille(50) { rng.pick(&["/keeper", "/keeper/x"]).to_owned() } else { path };
        match rng.below(5) {
            0 => Write::Ensure { path, data: self.data(rng) },
            1 => Write::CheckNotExists { path, version: version(rng) },
            2 => Write::CheckStat { path, version: version(rng), children: rng.pick(&[-1, 0, 0, 1, 2]) },
            3 => Write::TryRemove { path, version: version(rng) },
            _ => Write::RemoveRecursive { path, limit: rng.pick(&[0, 1, 2, 3, 5, 100]) },
        }
    }

    /// No two writes carry the same data, but for writes without data.
    fn data(&mut self, rng: &mut Stream) -> Option<Vec<u8>> {
        if rng.per_mille(60) {
            return rng.per_mille(500).then(Vec::new);
        }
        self.values += 1;
        let mut data = self.values.to_be_bytes().to_vec();
        let more = if rng.per_mille(50) { rng.index(1500) } else { rng.index(60) };
        data.resize(8 + more, 0xab);
        Some(data)
    }
}

/// Sets a quota on a subtree, changes it or takes it away; now and then only half of it.
fn with_quota(rng: &mut Stream) -> Request {
    let top = rng.below(5);
    let root = if rng.per_mille(300) { format!("/n{top}/c{}", rng.below(3)) } else { format!("/n{top}") };
    let (count, bytes) = (rng.within(1, 6), rng.within(1, 400));
    let limits = match rng.below(4) {
        0 => format!("count={count},bytes={bytes}"),
        1 => format!("count=-1,bytes=-1=;byteHardLimit={bytes};countHardLimit={count}"),
        2 => format!("countHardLimit={count}"),
        _ => "nonsense".to_owned(),
    };
    let place = format!("/zookeeper/quota{root}");
    let create = |path: String, data: &str| Write::Create {
        with_stat: false,
        path,
        data: Some(data.as_bytes().to_vec()),
        acl: vec![AclItem::open()],
        flags: 0,
    };
    let (limits_path, stats_path) = (format!("{place}/zookeeper_limits"), format!("{place}/zookeeper_stats"));
    match rng.below(8) {
        0 => Request::Write(Write::Delete { path: limits_path, version: -1 }),
        1 => Request::Write(Write::Delete { path: stats_path, version: -1 }),
        2 => Request::Write(Write::SetData { path: limits_path, data: Some(limits.into_bytes()), version: -1 }),
        3 => Request::Write(Write::SetData { path: stats_path, data: Some(b"count=1,bytes=7".to_vec()), version: -1 }),
        4 => Request::Write(create(stats_path, "")),
        5 => Request::Write(create(limits_path, &limits)),
        6 => Request::Write(create(place, "")),
        _ => {
            Request::Multi(vec![create(place, ""), create(limits_path, &limits), create(stats_path, "count=0,bytes=0")])
        }
    }
}

fn kind(rng: &mut Stream) -> WatchKind {
    use WatchKind::{Any, Children, Data, Persistent, Recursive};
    rng.pick(&[Children, Data, Any, Persistent, Persistent, Recursive, Recursive])
}

fn path(rng: &mut Stream) -> String {
    let top = rng.below(5);
    match rng.below(20) {
        0 => "/".to_owned(),
        1 if rng.per_mille(500) => format!("/zookeeper/quota/n{top}/zookeeper_stats"),
        1 => rng.pick(&["/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/zookeeper/x"]).to_owned(),
        2..8 => format!("/n{top}"),
        8..17 => format!("/n{top}/c{}", rng.below(3)),
        17 => format!("/n{top}/s{:010}", rng.below(12)),
        _ => format!("/n{top}/c{}/g{}", rng.below(3), rng.below(2)),
    }
}

fn sequential_path(rng: &mut Stream) -> String {
    let top = rng.below(5);
    match rng.below(8) {
        0 => "/s".to_owned(),
        1 => format!("/n{top}/"),
        2..7 => format!("/n{top}/s"),
        _ => format!("/n{top}/c{}/s", rng.below(3)),
    }
}

fn bad_path(rng: &mut Stream) -> String {
    if rng.per_mille(300) {
        // A name longer than one may be. A name that just fits would make replies that a small limit on them refuses.
        let bytes = rng.pick(&[300, (16 << 10) + 1, 20_000]);
        return format!("/n{}/{}", rng.below(5), "l".repeat(bytes));
    }
    rng.pick(&["", "n0", "/n0/", "//", "/n0//c0", "/n0/.", "/n0/../n1", "/n0/\u{1}", "/n0/a\0b", "n0/c0"]).to_owned()
}

fn version(rng: &mut Stream) -> i32 {
    if rng.per_mille(500) { -1 } else { rng.pick(&[0, 0, 1, 1, 2, 3, 7, -2]) }
}

/// About as many entries as there may be, or as many bytes, or an address with more zeros than are taken.
fn long_acl(rng: &mut Stream) -> Vec<AclItem> {
    let mut list = vec![AclItem::open()];
    if rng.per_mille(100) {
        list.push(AclItem::new(1, "ip", &format!("10.0.0.1/{}32", "0".repeat(60))));
    }
    let (count, bytes) = (rng.pick(&[2, 200, 255, 256, 300]), rng.pick(&[8, 100, 121, 122]));
    let user = |number: usize| AclItem::new(1, "digest", &format!("u{number:0>width$}:h", width = bytes - 3));
    list.extend((1..count).map(user));
    list
}

fn acl(rng: &mut Stream) -> Vec<AclItem> {
    if !rng.per_mille(120) {
        return vec![AclItem::open()];
    }
    let ann = "ann:6q+u+bEVJTdGGyG40XXuyaDlxCA=";
    match rng.below(10) {
        0 => Vec::new(),
        1 => vec![AclItem::new(31, "world", "somebody")],
        2 if rng.per_mille(700) => long_acl(rng),
        2 => vec![AclItem::new(31, "digest", "nocolon")],
        3 | 4 => vec![AclItem::new(31, "auth", "")],
        5 => vec![AclItem::new(1, "world", "anyone"), AclItem::new(31, "auth", "")],
        6 => vec![AclItem::new(31, "digest", ann), AclItem::new(31, "digest", ann)],
        7 => vec![AclItem::new(31, "ip", "10.0.0.1"), AclItem::new(1, "world", "anyone")],
        8 => vec![AclItem::new(30, "world", "anyone")],
        _ => vec![AclItem::new(15, "world", "anyone"), AclItem::new(16, "digest", ann)],
    }
}
