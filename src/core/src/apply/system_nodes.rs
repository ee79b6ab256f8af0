//! The znodes by which ClickHouse Keeper's clients find its features, for servers that are told to have them (protocol chapter 38).

use crate::ids::Zxid;
use crate::ops::caller::{KEEPER_SYSTEM, fresh_stat};
use crate::ops::draft::Draft;
use crate::shared::{Data, Text};
use crate::tree::acl::Acl;
use crate::tree::change::Changes;
use crate::tree::view::View;
use crate::tree::znode::{Owner, Znode};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// Version of the additions of later Keepers to the plain protocol: 1 filtered lists, 2 multiRead, 3 checkNotExists.
const API_VERSION: &[u8] = b"1";
/// Served features, by Keeper's numbers: filtered lists, checkNotExists, createIfNotExists, removeRecursive, checkStat,
/// persistent watches, create with Stat, tryRemove, filtered lists with Stat and data. Not so multiRead (1), which
/// Keeper's clients send more than ZooKeeper allows there, nor watches in it (5).
const FEATURES: [usize; 9] = [0, 2, 3, 4, 6, 7, 8, 9, 10];
/// The system nodes that this version wants, for a view that lacks them; `None` when it has them.
pub fn system_nodes(view: &View) -> Option<Vec<(Text, Data)>> {
    let mut flags = vec![0_u8; FEATURES.iter().max().map_or(0, |highest| highest / 8 + 1)];
    for feature in FEATURES {
        flags[feature / 8] |= 0x80 >> (feature % 8);
    }
    let nodes = [(KEEPER_SYSTEM, &[][..]), ("/keeper/api_version", API_VERSION), ("/keeper/feature_flags", &flags)];
    let missing = |(path, data): &(&str, &[u8])| {
        // The node itself may hold anything, its children tell something.
        view.get(path).is_none_or(|node| *path != KEEPER_SYSTEM && node.data() != Some(*data))
    };
    nodes.iter().any(missing).then(|| nodes.iter().map(|(path, data)| (Text::from(*path), Data::from(*data))).collect())
}

/// Creates missing system nodes, and sets the data of nodes with other data.
pub(super) fn system_changes(view: &View, zxid: Zxid, time: i64, nodes: Vec<(Text, Data)>) -> Changes {
    let mut draft = Draft::chained(view, zxid);
    for (path, data) in nodes {
        let at = draft.hashed(path);
        let data = Some(data);
        if let Some(node) = draft.node(&at.path, at.hash).map(|node| node.to_znode()) {
            if &*at.path != KEEPER_SYSTEM && node.data != data {
                let mut next = Znode { data, ..Znode::clone(&node) };
                next.stat.version = next.stat.version.wrapping_add(1);
                (next.stat.mzxid, next.stat.mtime) = (zxid, time);
                draft.set_data(at, Arc::new(next));
            }
            continue;
        }
        if draft.node(at.parent(), at.parent_hash).is_some() {
            let node = Znode { stat: fresh_stat(zxid, time, Owner::Persistent), acl: Acl::Open, data };
            draft.create(at, Arc::new(node));
        }
    }
    draft.into_changes()
}
