//! The protocol's small number sets: special xids, watch event types, keeper states, create modes, watch kinds.
//!
//! Records carry these as plain integers, so that decoding is lossless; the enums here give them names and refuse
//! numbers that do not exist. Constants only. Knows nothing of when a server uses which.

/// xid of a watch notification, server to client.
pub const XID_NOTIFICATION: i32 = -1;
/// xid of a ping and of its reply.
pub const XID_PING: i32 = -2;
/// xid of an auth packet and of its reply.
pub const XID_AUTH: i32 = -4;
/// xid of setWatches and setWatches2 on reconnect, and of their replies.
pub const XID_SET_WATCHES: i32 = -8;

/// zxid in the reply to an operation that was refused before it got a number (unknown operation type).
pub const ZXID_UNNUMBERED: i64 = -1;

/// Matches every version in delete, setData, setACL and check.
pub const VERSION_ANY: i32 = -1;

macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum $name {
            $($(#[$vdoc])* $variant = $number,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> i32 {
                self as i32
            }

            /// The value with this number.
            #[must_use]
            pub const fn from_i32(number: i32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    /// `WatcherEvent.event_type`.
    EventType {
        /// No znode event: the connection's state changed (made by clients).
        None = -1,
        /// The znode was created.
        NodeCreated = 1,
        /// The znode was deleted.
        NodeDeleted = 2,
        /// The znode's data was set.
        NodeDataChanged = 3,
        /// A child was created or deleted.
        NodeChildrenChanged = 4,
        /// Made by the client library only.
        DataWatchRemoved = 5,
        /// Made by the client library only.
        ChildWatchRemoved = 6,
        /// Made by the client library only.
        PersistentWatchRemoved = 7,
    }
}

numbers! {
    /// `WatcherEvent.state`; a server always sends `SyncConnected`.
    KeeperState {
        /// Obsolete.
        Unknown = -1,
        /// No connection (made by clients).
        Disconnected = 0,
        /// Obsolete.
        NoSyncConnected = 1,
        /// Connected to a serving server.
        SyncConnected = 3,
        /// Authentication failed (made by clients).
        AuthFailed = 4,
        /// Connected to a read-only server (made by clients).
        ConnectedReadOnly = 5,
        /// SASL is complete (made by clients).
        SaslAuthenticated = 6,
        /// The client was closed (made by clients).
        Closed = 7,
        /// The session expired (made by clients).
        Expired = -112,
    }
}

numbers! {
    /// `AddWatchRequest.mode`.
    AddWatchMode {
        /// Every event of one znode, not used up by firing.
        Persistent = 0,
        /// Every event of a znode and all its descendants, except children changes.
        PersistentRecursive = 1,
    }
}

numbers! {
    /// `CheckWatchesRequest.watcher_type` and `RemoveWatchesRequest.watcher_type`.
    WatcherType {
        /// Standard child watches.
        Children = 1,
        /// Standard data watches, exists watches among them.
        Data = 2,
        /// Watches of every mode.
        Any = 3,
        /// Persistent watches.
        Persistent = 4,
        /// Persistent recursive watches.
        PersistentRecursive = 5,
    }
}

numbers! {
    /// `CreateRequest.flags`: a list of modes, not a bit mask.
    CreateMode {
        /// Stays until deleted.
        Persistent = 0,
        /// Goes with its session.
        Ephemeral = 1,
        /// Persistent, named with the parent's counter.
        PersistentSequential = 2,
        /// Ephemeral, named with the parent's counter.
        EphemeralSequential = 3,
        /// Removed by the server some time after its last child.
        Container = 4,
        /// Removed by the server when it had neither change nor child for its TTL.
        PersistentWithTtl = 5,
        /// The same, named with the parent's counter.
        PersistentSequentialWithTtl = 6,
    }
}

impl CreateMode {
    /// The mode of a `flags` field; `None` if there is none with that number.
    #[must_use]
    pub const fn from_flag(flag: i32) -> Option<Self> {
        Self::from_i32(flag)
    }

    /// The number for a `flags` field.
    #[must_use]
    pub const fn flag(self) -> i32 {
        self.number()
    }

    /// Java's name of the constant, in lower case, as ZooKeeper's audit log shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Persistent => "persistent",
            Self::Ephemeral => "ephemeral",
            Self::PersistentSequential => "persistent_sequential",
            Self::EphemeralSequential => "ephemeral_sequential",
            Self::Container => "container",
            Self::PersistentWithTtl => "persistent_with_ttl",
            Self::PersistentSequentialWithTtl => "persistent_sequential_with_ttl",
        }
    }

    /// Whether the znode goes with its session.
    #[must_use]
    pub const fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    /// Whether the parent's counter is appended to the path.
    #[must_use]
    pub const fn is_sequential(self) -> bool {
        matches!(self, Self::PersistentSequential | Self::EphemeralSequential | Self::PersistentSequentialWithTtl)
    }

    /// Whether the znode is a container.
    #[must_use]
    pub const fn is_container(self) -> bool {
        matches!(self, Self::Container)
    }

    /// Whether the znode has a TTL.
    #[must_use]
    pub const fn is_ttl(self) -> bool {
        matches!(self, Self::PersistentWithTtl | Self::PersistentSequentialWithTtl)
    }
}

/// ACL permission bits, `Acl.perms`.
pub mod perms {
    /// getData, exists, getChildren and watches.
    pub const READ: i32 = 1;
    /// setData.
    pub const WRITE: i32 = 2;
    /// Create children.
    pub const CREATE: i32 = 4;
    /// Delete children.
    pub const DELETE: i32 = 8;
    /// setACL.
    pub const ADMIN: i32 = 16;
    /// All five.
    pub const ALL: i32 = 31;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create_modes() {
        // flag, ephemeral, sequential, container, TTL
        let table = [
            (0, false, false, false, false),
            (1, true, false, false, false),
            (2, false, true, false, false),
            (3, true, true, false, false),
            (4, false, false, true, false),
            (5, false, false, false, true),
            (6, false, true, false, true),
        ];
        for (flag, ephemeral, sequential, container, ttl) in table {
            let mode = CreateMode::from_flag(flag).expect("a mode");
            assert_eq!(mode.flag(), flag);
            assert_eq!(
                (mode.is_ephemeral(), mode.is_sequential(), mode.is_container(), mode.is_ttl()),
                (ephemeral, sequential, container, ttl),
                "{mode:?}"
            );
        }
        for flag in [-1, 7, 8, i32::MIN, i32::MAX] {
            assert_eq!(CreateMode::from_flag(flag), None);
        }
    }

    #[test]
    fn numbers_round_trip() {
        for event in EventType::ALL {
            assert_eq!(EventType::from_i32(event.number()), Some(*event));
        }
        for state in KeeperState::ALL {
            assert_eq!(KeeperState::from_i32(state.number()), Some(*state));
        }
        assert_eq!(EventType::from_i32(0), None);
        assert_eq!(KeeperState::from_i32(2), None);
        assert_eq!(WatcherType::from_i32(6), None);
        assert_eq!(AddWatchMode::from_i32(2), None);
    }
}
