//! The one table of operations: number, name, records, kind, `lop` code, first release, differences and a line of
//! documentation each.
//!
//! Dispatch, metrics, the `cons` word and the generated docs/protocol.md all read it here. Constants only.
//! Knows which records travel, not what a server does with them.

/// Which part of the server processes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Served from the local view, changes nothing replicated.
    Read,
    /// Proposed to the quorum.
    Write,
    /// Processed on the connection itself.
    Connection,
    /// Not legal as the type of a client's request header: UNIMPLEMENTED, then close.
    Internal,
    /// One of ClickHouse Keeper's operations, served only where they are switched on: else UNIMPLEMENTED, then close.
    Extension,
}

macro_rules! ops {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal,
        $request:literal => $response:literal, $kind:ident, $lop:literal, $since:literal, $differs:literal;)*) => {
        /// An operation type, as in `RequestHeader.op`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum OpCode {
            $($(#[doc = $doc])+ $variant = $number,)*
        }

        impl OpCode {
            /// Every operation, by number as the protocol's table has them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The operation with this number; `None` for numbers the protocol does not know.
            #[must_use]
            pub const fn from_i32(number: i32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> i32 {
                self as i32
            }

            /// ZooKeeper's name: `getChildren2`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The name of the request record behind the header, `-` if there is none.
            #[must_use]
            pub const fn request(self) -> &'static str {
                match self {
                    $(Self::$variant => $request,)*
                }
            }

            /// The name of the response record behind the header of a successful reply, `-` if there is none.
            #[must_use]
            pub const fn response(self) -> &'static str {
                match self {
                    $(Self::$variant => $response,)*
                }
            }

            /// Which part of the server processes the operation.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self {
                    $(Self::$variant => Kind::$kind,)*
                }
            }

            /// The code after `lop=` in the `cons` word.
            #[must_use]
            pub const fn lop(self) -> &'static str {
                match self {
                    $(Self::$variant => $lop,)*
                }
            }

            /// The ZooKeeper release that brought the operation; `Keeper` for ClickHouse Keeper's own, `-` for none.
            #[must_use]
            pub const fn since(self) -> &'static str {
                match self {
                    $(Self::$variant => $since,)*
                }
            }

            /// Whether this is one of ClickHouse Keeper's operations that write, or check inside a multi.
            #[must_use]
            pub const fn is_keeper_write(self) -> bool {
                matches!(
                    self,
                    Self::CheckNotExists
                        | Self::CreateIfNotExists
                        | Self::RemoveRecursive
                        | Self::CheckStat
                        | Self::TryRemove
                )
            }

            /// How corral's answer differs from ZooKeeper's, in Markdown; empty where it does not.
            #[must_use]
            pub const fn differs(self) -> &'static str {
                match self {
                    $(Self::$variant => $differs,)*
                }
            }

            /// One line about the operation.
            #[must_use]
            pub const fn doc(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+),)*
                }
            }
        }
    };
}

ops! {
    /// Never a request. Its number is unused on the wire.
    Notification = 0, "notification", "-" => "-", Internal, "NA", "-", "";
    /// Creates a znode.
    Create = 1, "create", "CreateRequest" => "CreateResponse", Write, "CREA", "3.0", "";
    /// Deletes a znode without children.
    Delete = 2, "delete", "DeleteRequest" => "-", Write, "DELE", "3.0", "";
    /// The Stat of a znode. The watch is set even if there is none.
    Exists = 3, "exists", "ExistsRequest" => "ExistsResponse", Read, "EXIS", "3.0", "";
    /// Data and Stat of a znode.
    GetData = 4, "getData", "GetDataRequest" => "GetDataResponse", Read, "GETD", "3.0", "";
    /// Replaces a znode's data.
    SetData = 5, "setData", "SetDataRequest" => "SetDataResponse", Write, "SETD", "3.0", "";
    /// A znode's ACL.
    GetAcl = 6, "getACL", "GetACLRequest" => "GetACLResponse", Read, "GETA", "3.0", "";
    /// Replaces a znode's ACL.
    SetAcl = 7, "setACL", "SetACLRequest" => "SetACLResponse", Write, "SETA", "3.0", "";
    /// The names of a znode's children.
    GetChildren = 8, "getChildren", "GetChildrenRequest" => "GetChildrenResponse", Read, "GETC",
        "3.0", "Names are sorted.";
    /// Brings the server's view up to the leader's. Not a transaction.
    Sync = 9, "sync", "SyncRequest" => "SyncResponse", Read, "SYNC",
        "3.0", "A true read barrier. Nothing more of its connection is read until it is answered.";
    /// Keeps the session alive.
    Ping = 11, "ping", "-" => "-", Connection, "PING", "3.0", "";
    /// The names of a znode's children and its Stat.
    GetChildren2 = 12, "getChildren2", "GetChildren2Request" => "GetChildren2Response", Read, "GETC",
        "3.3", "Names are sorted.";
    /// Checks a znode's version. Only inside a multi.
    Check = 13, "check", "CheckVersionRequest" => "-", Internal, "CHEC", "3.4", "";
    /// Several writes and checks, all or nothing.
    Multi = 14, "multi", "MultiRequest" => "MultiResponse", Write, "MULT", "3.4", "";
    /// Creates a znode and gives its Stat.
    Create2 = 15, "create2", "CreateRequest" => "Create2Response", Write, "CREA", "3.5", "";
    /// Changes the ensemble's membership.
    Reconfig = 16, "reconfig", "ReconfigRequest" => "GetDataResponse", Write, "RECO",
        "3.5", "A standalone server refuses it, as ZooKeeper's does.";
    /// Asks whether this connection has such a watch.
    CheckWatches = 17, "checkWatches", "CheckWatchesRequest" => "-", Read, "CHKW", "3.5", "";
    /// Removes watches of this connection.
    RemoveWatches = 18, "removeWatches", "RemoveWatchesRequest" => "-", Read, "REMW", "3.5", "";
    /// Creates a container znode.
    CreateContainer = 19, "createContainer", "CreateRequest" => "Create2Response", Write, "CREA", "3.5", "";
    /// Deletes an empty container or an outlived TTL znode. Meant for the server itself, accepted from clients.
    DeleteContainer = 20, "deleteContainer", "DeleteContainerRequest" => "-", Write, "DELE",
        "3.5", "Refused: ZooKeeper lets any client delete any childless znode with it.";
    /// Creates a znode with a time to live.
    CreateTtl = 21, "createTTL", "CreateTTLRequest" => "Create2Response", Write, "CREA",
        "3.5", "On unless `features.extended_types` is off. A flag that is no TTL mode is always BADARGUMENTS.";
    /// Several reads, each with a result of its own.
    MultiRead = 22, "multiRead", "MultiRequest" => "MultiResponse", Read, "MLTR",
        "3.6", "THROTTLEDOP when the reply outgrows a limit. With a write inside: an error header without a body.";
    /// Adds an identity to the connection.
    Auth = 100, "auth", "AuthPacket" => "-", Connection, "NA",
        "3.0", "At most `limits.identities_per_connection_max` identities.";
    /// Sets a reconnecting client's watches again.
    SetWatches = 101, "setWatches", "SetWatches" => "-", Read, "SETW", "3.0", "";
    /// One step of a SASL exchange.
    Sasl = 102, "sasl", "GetSASLRequest" => "SetSASLResponse", Connection, "NA",
        "3.4", "No mechanism can be configured: the exchange ends with a null token, as ZooKeeper's does then.";
    /// The session's ephemeral znodes below a prefix.
    GetEphemerals = 103, "getEphemerals", "GetEphemeralsRequest" => "GetEphemeralsResponse", Read, "GETE",
        "3.6", "Paths are sorted.";
    /// The number of all descendants of a znode.
    GetAllChildrenNumber = 104, "getAllChildrenNumber",
        "GetAllChildrenNumberRequest" => "GetAllChildrenNumberResponse", Read, "GETACN",
        "3.6", "A large subtree is walked in pieces: znodes created or deleted meanwhile may count or not.";
    /// As setWatches, with persistent watches.
    SetWatches2 = 105, "setWatches2", "SetWatches2" => "-", Read, "STW2", "3.6", "";
    /// Adds a persistent watch.
    AddWatch = 106, "addWatch", "AddWatchRequest" => "ErrorResponse", Read, "ADDW",
        "3.6", "";
    /// The identities of the connection.
    WhoAmI = 107, "whoAmI", "-" => "WhoAmIResponse", Read, "HOMI", "3.7", "";
    /// Made by the server when a client connects.
    CreateSession = -10, "createSession", "-" => "-", Internal, "SESS",
        "3.0", "Refused: ZooKeeper answers a client's with a second connect response.";
    /// Closes the session and deletes its ephemerals. The reply is followed by a close.
    CloseSession = -11, "closeSession", "-" => "-", Write, "CLOS",
        "3.0", "Ephemerals go in the order of their paths.";
    /// The type of an error in a multi's results.
    Error = -1, "error", "-" => "ErrorResponse", Internal, "NA", "3.4", "";
    /// As getChildren2, filtered by persistent or ephemeral.
    FilteredList = 500, "filteredList", "FilteredListRequest" => "GetChildren2Response", Extension, "NA",
        "Keeper", "";
    /// Succeeds if a znode is absent or has another version.
    CheckNotExists = 501, "checkNotExists", "CheckNotExistsRequest" => "-", Extension, "NA",
        "Keeper", "";
    /// As create, succeeds without a write if the znode exists.
    CreateIfNotExists = 502, "createIfNotExists", "CreateRequest" => "CreateResponse", Extension, "NA",
        "Keeper", "";
    /// Deletes a whole subtree up to a number of znodes.
    RemoveRecursive = 503, "removeRecursive", "RemoveRecursiveRequest" => "-", Extension, "NA",
        "Keeper", "At most 1,000 znodes in one transaction, whatever the request allows.";
    /// Compares given fields of a znode's Stat.
    CheckStat = 504, "checkStat", "CheckStatRequest" => "-", Extension, "NA",
        "Keeper", "";
    /// As delete, succeeds without a write where delete finds no such znode, another version or children.
    TryRemove = 505, "tryRemove", "TryRemoveRequest" => "-", Extension, "NA",
        "Keeper", "";
    /// As filteredList, with the children's Stat and data.
    FilteredListWithStatsAndData = 506, "filteredListWithStatsAndData",
        "FilteredListWithStatsAndDataRequest" => "FilteredListWithStatsAndDataResponse", Extension, "NA",
        "Keeper", "";
    /// The paths of all descendants of a znode that may be read, level by level, up to a number.
    ListRecursive = 507, "listRecursive", "ListRecursiveRequest" => "ListRecursiveResponse", Extension, "NA",
        "Keeper", "";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for (at, op) in OpCode::ALL.iter().enumerate() {
            assert_eq!(OpCode::from_i32(op.number()), Some(*op));
            assert!(!op.doc().is_empty());
            assert_eq!(op.kind() == Kind::Extension, (500..=507).contains(&op.number()));
            for other in &OpCode::ALL[at + 1..] {
                assert_ne!(op.name(), other.name());
            }
        }
        for unknown in [10, 23, 99, 108, 499, 508, 997, 998, 999, -2, -9, -12, i32::MIN, i32::MAX] {
            assert_eq!(OpCode::from_i32(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn client_types_that_are_refused() {
        let refused: alloc::vec::Vec<i32> =
            OpCode::ALL.iter().filter(|op| op.kind() == Kind::Internal).map(|op| op.number()).collect();
        assert_eq!(refused, [0, 13, -10, -1]);
    }
}
