//! The records of ClickHouse Keeper's operations 500 to 507.
//!
//! Not part of ZooKeeper; a server takes them only where they are switched on. CreateIfNotExists
//! uses the records of create, FilteredList answers with a `GetChildren2Response`. Plain layouts, any core.

use super::shared::Stat;
use crate::vector::{Strings, Vector};

record! {
    /// Request of FilteredList (500).
    pub struct FilteredListRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Whether to set a child watch.
        pub watch: bool,
        /// 0 all, 1 persistent, 2 ephemeral.
        pub list_type: u8,
    }
}

record! {
    /// Request of CheckNotExists (501).
    pub struct CheckNotExistsRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Version that counts as existing, -1 = any.
        pub version: i32,
    }
}

record! {
    /// Request of RemoveRecursive (503).
    pub struct RemoveRecursiveRequest<'a> {
        /// Root of the subtree.
        pub path: Option<&'a str>,
        /// Most znodes to remove; a larger subtree is left alone.
        pub remove_nodes_limit: u32,
    }
}

record! {
    /// Request of CheckStat (504).
    pub struct CheckStatRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Version it must have, -1 = any.
        pub version: i32,
        /// Fields to compare, -1 = any.
        pub stat: Stat,
    }
}

record! {
    /// Request of TryRemove (505).
    pub struct TryRemoveRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Version it must have, -1 = any.
        pub version: i32,
    }
}

record! {
    /// Request of FilteredListWithStatsAndData (506).
    pub struct FilteredListWithStatsAndDataRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Whether to set a child watch.
        pub watch: bool,
        /// 0 all, 1 persistent, 2 ephemeral.
        pub list_type: u8,
        /// Whether to answer with the children's Stat.
        pub with_stat: bool,
        /// Whether to answer with the children's data.
        pub with_data: bool,
    }
}

record! {
    /// Reply of FilteredListWithStatsAndData.
    pub struct FilteredListWithStatsAndDataResponse<'a> {
        /// Names, not paths.
        pub children: Option<Strings<'a>>,
        /// The parent's Stat.
        pub stat: Stat,
        /// The children's Stat in the order of `children`, or empty.
        pub stats: Option<Vector<'a, Stat>>,
        /// The children's data in the order of `children`, or empty.
        pub data: Option<Vector<'a, Option<&'a [u8]>>>,
    }
}

record! {
    /// Request of ListRecursive (507).
    pub struct ListRecursiveRequest<'a> {
        /// Root of the subtree.
        pub path: Option<&'a str>,
        /// Most descendants to list.
        pub children_nodes_limit: u32,
    }
}

record! {
    /// Reply of ListRecursive.
    pub struct ListRecursiveResponse<'a> {
        /// Whole paths of all descendants.
        pub names: Option<Strings<'a>>,
    }
}
