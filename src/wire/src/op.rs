//! The one table of operations: number, name, records, kind, `lop` code and a line of documentation each.
//!
//! Dispatch, metrics, the `cons` word and the generated documentation all read it here. Constants only.
//! Knows which records travel, not what a server does with them.

/// Who deals with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Served from the local view, changes nothing replicated.
    Read,
    /// Proposed to the quorum.
    Write,
    /// Dealt with on the connection itself.
    Connection,
    /// Not legal as the type of a client's request header: UNIMPLEMENTED, then close.
    Internal,
    /// One of ClickHouse Keeper's operations; known here, not served: UNIMPLEMENTED, then close.
    Extension,
}

macro_rules! ops {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal,
        $request:literal => $response:literal, $kind:ident, $lop:literal;)*) => {
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

            /// Who deals with the operation.
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

            /// One line on what the operation does.
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
    /// Never a request; its number is unused on the wire.
    Notification = 0, "notification", "-" => "-", Internal, "NA";
    /// Creates a znode.
    Create = 1, "create", "CreateRequest" => "CreateResponse", Write, "CREA";
    /// Deletes a znode without children.
    Delete = 2, "delete", "DeleteRequest" => "-", Write, "DELE";
    /// The Stat of a znode; the watch is set even if there is none.
    Exists = 3, "exists", "ExistsRequest" => "ExistsResponse", Read, "EXIS";
    /// Data and Stat of a znode.
    GetData = 4, "getData", "GetDataRequest" => "GetDataResponse", Read, "GETD";
    /// Replaces a znode's data.
    SetData = 5, "setData", "SetDataRequest" => "SetDataResponse", Write, "SETD";
    /// A znode's ACL.
    GetAcl = 6, "getACL", "GetACLRequest" => "GetACLResponse", Read, "GETA";
    /// Replaces a znode's ACL.
    SetAcl = 7, "setACL", "SetACLRequest" => "SetACLResponse", Write, "SETA";
    /// The names of a znode's children.
    GetChildren = 8, "getChildren", "GetChildrenRequest" => "GetChildrenResponse", Read, "GETC";
    /// Brings the server's view up to the leader's; not a transaction.
    Sync = 9, "sync", "SyncRequest" => "SyncResponse", Read, "SYNC";
    /// Keeps the session alive.
    Ping = 11, "ping", "-" => "-", Connection, "PING";
    /// The names of a znode's children and its Stat.
    GetChildren2 = 12, "getChildren2", "GetChildren2Request" => "GetChildren2Response", Read, "GETC";
    /// Checks a znode's version; only inside a multi.
    Check = 13, "check", "CheckVersionRequest" => "-", Internal, "CHEC";
    /// Several writes and checks, all or nothing.
    Multi = 14, "multi", "MultiRequest" => "MultiResponse", Write, "MULT";
    /// Creates a znode and gives its Stat.
    Create2 = 15, "create2", "CreateRequest" => "Create2Response", Write, "CREA";
    /// Changes the ensemble's membership.
    Reconfig = 16, "reconfig", "ReconfigRequest" => "GetDataResponse", Write, "RECO";
    /// Asks whether this connection has such a watch.
    CheckWatches = 17, "checkWatches", "CheckWatchesRequest" => "-", Read, "CHKW";
    /// Removes watches of this connection.
    RemoveWatches = 18, "removeWatches", "RemoveWatchesRequest" => "-", Read, "REMW";
    /// Creates a container znode.
    CreateContainer = 19, "createContainer", "CreateRequest" => "Create2Response", Write, "CREA";
    /// Deletes an empty container or an outlived TTL znode; meant for the server itself, accepted from clients.
    DeleteContainer = 20, "deleteContainer", "DeleteContainerRequest" => "-", Write, "DELE";
    /// Creates a znode with a time to live.
    CreateTtl = 21, "createTTL", "CreateTTLRequest" => "Create2Response", Write, "CREA";
    /// Several reads, each with a result of its own.
    MultiRead = 22, "multiRead", "MultiRequest" => "MultiResponse", Read, "MLTR";
    /// Adds an identity to the connection.
    Auth = 100, "auth", "AuthPacket" => "-", Connection, "NA";
    /// Sets a reconnecting client's watches again.
    SetWatches = 101, "setWatches", "SetWatches" => "-", Read, "SETW";
    /// One step of a SASL exchange.
    Sasl = 102, "sasl", "GetSASLRequest" => "SetSASLResponse", Connection, "NA";
    /// The session's ephemeral znodes below a prefix.
    GetEphemerals = 103, "getEphemerals", "GetEphemeralsRequest" => "GetEphemeralsResponse", Read, "GETE";
    /// The number of all descendants of a znode.
    GetAllChildrenNumber = 104, "getAllChildrenNumber",
        "GetAllChildrenNumberRequest" => "GetAllChildrenNumberResponse", Read, "GETACN";
    /// As setWatches, with persistent watches.
    SetWatches2 = 105, "setWatches2", "SetWatches2" => "-", Read, "STW2";
    /// Adds a persistent watch.
    AddWatch = 106, "addWatch", "AddWatchRequest" => "ErrorResponse", Read, "ADDW";
    /// The identities of the connection.
    WhoAmI = 107, "whoAmI", "-" => "WhoAmIResponse", Read, "HOMI";
    /// Made by the server when a client connects.
    CreateSession = -10, "createSession", "-" => "-", Internal, "SESS";
    /// Closes the session and deletes its ephemerals; the reply is followed by a close.
    CloseSession = -11, "closeSession", "-" => "-", Write, "CLOS";
    /// The type of an error in a multi's results.
    Error = -1, "error", "-" => "ErrorResponse", Internal, "NA";
    /// As getChildren2, filtered by persistent or ephemeral.
    FilteredList = 500, "filteredList", "FilteredListRequest" => "GetChildren2Response", Extension, "NA";
    /// Succeeds if a znode is absent or has another version.
    CheckNotExists = 501, "checkNotExists", "CheckNotExistsRequest" => "-", Extension, "NA";
    /// As create, succeeds without a write if the znode exists.
    CreateIfNotExists = 502, "createIfNotExists", "CreateRequest" => "CreateResponse", Extension, "NA";
    /// Deletes a whole subtree up to a number of znodes.
    RemoveRecursive = 503, "removeRecursive", "RemoveRecursiveRequest" => "-", Extension, "NA";
    /// Compares given fields of a znode's Stat.
    CheckStat = 504, "checkStat", "CheckStatRequest" => "-", Extension, "NA";
    /// As delete, succeeds if the znode is absent.
    TryRemove = 505, "tryRemove", "TryRemoveRequest" => "-", Extension, "NA";
    /// As filteredList, with the children's Stat and data.
    FilteredListWithStatsAndData = 506, "filteredListWithStatsAndData",
        "FilteredListWithStatsAndDataRequest" => "FilteredListWithStatsAndDataResponse", Extension, "NA";
    /// The paths of all descendants of a znode.
    ListRecursive = 507, "listRecursive", "ListRecursiveRequest" => "ListRecursiveResponse", Extension, "NA";
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
