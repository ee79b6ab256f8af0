//! The request records, one per operation that has one.
//!
//! Plain layouts, any core. Knows nothing of path rules, versions or permissions.

use super::shared::Acl;
use crate::vector::{Strings, Vector};

record! {
    /// Request of create (1), create2 (15), createContainer (19).
    pub struct CreateRequest<'a> {
        /// Path of the znode; a sequential one gets its number appended.
        pub path: Option<&'a str>,
        /// Its data; null stays null.
        pub data: Option<&'a [u8]>,
        /// Its ACL.
        pub acl: Option<Vector<'a, Acl<'a>>>,
        /// See [`CreateMode`](crate::consts::CreateMode).
        pub flags: i32,
    }
}

record! {
    /// Request of createTTL (21).
    pub struct CreateTtlRequest<'a> {
        /// As in [`CreateRequest`].
        pub path: Option<&'a str>,
        /// As in [`CreateRequest`].
        pub data: Option<&'a [u8]>,
        /// As in [`CreateRequest`].
        pub acl: Option<Vector<'a, Acl<'a>>>,
        /// As in [`CreateRequest`].
        pub flags: i32,
        /// Time to live, ms.
        pub ttl: i64,
    }
}

record! {
    /// Request of delete (2).
    pub struct DeleteRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Version it must have, -1 = any.
        pub version: i32,
    }
}

record! {
    /// Request of deleteContainer (20); jute calls the path a buffer, which has the layout of a string.
    pub struct DeleteContainerRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
    }
}

record! {
    /// Request of exists (3).
    pub struct ExistsRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Whether to set a data watch.
        pub watch: bool,
    }
}

record! {
    /// Request of getData (4).
    pub struct GetDataRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Whether to set a data watch.
        pub watch: bool,
    }
}

record! {
    /// Request of setData (5).
    pub struct SetDataRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// The new data.
        pub data: Option<&'a [u8]>,
        /// Version the znode must have, -1 = any.
        pub version: i32,
    }
}

record! {
    /// Request of getACL (6).
    pub struct GetAclRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
    }
}

record! {
    /// Request of setACL (7).
    pub struct SetAclRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// The new ACL.
        pub acl: Option<Vector<'a, Acl<'a>>>,
        /// **aversion** the znode must have, -1 = any.
        pub version: i32,
    }
}

record! {
    /// Request of getChildren (8).
    pub struct GetChildrenRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Whether to set a child watch.
        pub watch: bool,
    }
}

record! {
    /// Request of sync (9).
    pub struct SyncRequest<'a> {
        /// Any text; echoed.
        pub path: Option<&'a str>,
    }
}

record! {
    /// Request of getChildren2 (12).
    pub struct GetChildren2Request<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Whether to set a child watch.
        pub watch: bool,
    }
}

record! {
    /// Request of check (13), only inside a multi.
    pub struct CheckVersionRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
        /// Version it must have, -1 = any.
        pub version: i32,
    }
}

record! {
    /// Request of reconfig (16).
    pub struct ReconfigRequest<'a> {
        /// Servers to add, incremental.
        pub joining_servers: Option<&'a str>,
        /// Ids of servers to remove, incremental.
        pub leaving_servers: Option<&'a str>,
        /// The whole new membership, not incremental.
        pub new_members: Option<&'a str>,
        /// Version the configuration must have, -1 = any.
        pub cur_config_id: i64,
    }
}

record! {
    /// Request of checkWatches (17).
    pub struct CheckWatchesRequest<'a> {
        /// Path the watch was set on.
        pub path: Option<&'a str>,
        /// See [`WatcherType`](crate::consts::WatcherType).
        pub watcher_type: i32,
    }
}

record! {
    /// Request of removeWatches (18).
    pub struct RemoveWatchesRequest<'a> {
        /// Path the watch was set on.
        pub path: Option<&'a str>,
        /// See [`WatcherType`](crate::consts::WatcherType).
        pub watcher_type: i32,
    }
}

record! {
    /// Request of auth (100).
    pub struct AuthPacket<'a> {
        /// 0.
        pub auth_type: i32,
        /// Authentication scheme.
        pub scheme: Option<&'a str>,
        /// The scheme's credential.
        pub auth: Option<&'a [u8]>,
    }
}

record! {
    /// Request of setWatches (101).
    pub struct SetWatches<'a> {
        /// The highest zxid the client has seen; later changes fire at once.
        pub relative_zxid: i64,
        /// Paths with data watches.
        pub data_watches: Option<Strings<'a>>,
        /// Paths with exists watches.
        pub exist_watches: Option<Strings<'a>>,
        /// Paths with child watches.
        pub child_watches: Option<Strings<'a>>,
    }
}

record! {
    /// Request of setWatches2 (105).
    pub struct SetWatches2<'a> {
        /// As in [`SetWatches`].
        pub relative_zxid: i64,
        /// As in [`SetWatches`].
        pub data_watches: Option<Strings<'a>>,
        /// As in [`SetWatches`].
        pub exist_watches: Option<Strings<'a>>,
        /// As in [`SetWatches`].
        pub child_watches: Option<Strings<'a>>,
        /// Paths with persistent watches.
        pub persistent_watches: Option<Strings<'a>>,
        /// Paths with persistent recursive watches.
        pub persistent_recursive_watches: Option<Strings<'a>>,
    }
}

record! {
    /// Request of sasl (102).
    pub struct GetSaslRequest<'a> {
        /// The client's token; may be empty.
        pub token: Option<&'a [u8]>,
    }
}

record! {
    /// Request of getEphemerals (103).
    pub struct GetEphemeralsRequest<'a> {
        /// Plain text prefix; null, blank or `/` = all.
        pub prefix_path: Option<&'a str>,
    }
}

record! {
    /// Request of getAllChildrenNumber (104).
    pub struct GetAllChildrenNumberRequest<'a> {
        /// Path of the znode.
        pub path: Option<&'a str>,
    }
}

record! {
    /// Request of addWatch (106).
    pub struct AddWatchRequest<'a> {
        /// Any path.
        pub path: Option<&'a str>,
        /// See [`AddWatchMode`](crate::consts::AddWatchMode).
        pub mode: i32,
    }
}
