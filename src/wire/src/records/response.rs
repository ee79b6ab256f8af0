//! The response records, one per operation that answers with more than a header.
//!
//! A server with the list in its tree does not build these for lists: it streams with `ChildrenEncoder` or
//! `VectorEncoder` and appends the `Stat`. Plain layouts, any core. Knows nothing of the requests.

use super::shared::{Acl, ClientInfo, Stat};
use crate::vector::{Strings, Vector};

record! {
    /// Reply of create and of CreateIfNotExists.
    pub struct CreateResponse<'a> {
        /// The path made, with its sequence number.
        pub path: Option<&'a str>,
    }
}

record! {
    /// Reply of create2, createContainer and createTTL.
    pub struct Create2Response<'a> {
        /// The path made, with its sequence number.
        pub path: Option<&'a str>,
        /// Its Stat.
        pub stat: Stat,
    }
}

record! {
    /// Reply of exists.
    pub struct ExistsResponse {
        /// The znode's Stat.
        pub stat: Stat,
    }
}

record! {
    /// Reply of setData.
    pub struct SetDataResponse {
        /// The znode's Stat.
        pub stat: Stat,
    }
}

record! {
    /// Reply of setACL.
    pub struct SetAclResponse {
        /// The znode's Stat.
        pub stat: Stat,
    }
}

record! {
    /// Reply of getData, and of reconfig with the new configuration's text.
    pub struct GetDataResponse<'a> {
        /// The znode's data.
        pub data: Option<&'a [u8]>,
        /// Its Stat.
        pub stat: Stat,
    }
}

record! {
    /// Reply of getChildren.
    pub struct GetChildrenResponse<'a> {
        /// Names, not paths, in no order.
        pub children: Option<Strings<'a>>,
    }
}

record! {
    /// Reply of getChildren2 and of FilteredList.
    pub struct GetChildren2Response<'a> {
        /// Names, not paths, in no order.
        pub children: Option<Strings<'a>>,
        /// The parent's Stat.
        pub stat: Stat,
    }
}

record! {
    /// Reply of getACL.
    pub struct GetAclResponse<'a> {
        /// The znode's ACL.
        pub acl: Option<Vector<'a, Acl<'a>>>,
        /// Its Stat.
        pub stat: Stat,
    }
}

record! {
    /// Reply of sync.
    pub struct SyncResponse<'a> {
        /// The request's path.
        pub path: Option<&'a str>,
    }
}

record! {
    /// Reply of sasl.
    pub struct SetSaslResponse<'a> {
        /// The server's token; may be null.
        pub token: Option<&'a [u8]>,
    }
}

record! {
    /// Reply of getEphemerals.
    pub struct GetEphemeralsResponse<'a> {
        /// Whole paths.
        pub ephemerals: Option<Strings<'a>>,
    }
}

record! {
    /// Reply of getAllChildrenNumber.
    pub struct GetAllChildrenNumberResponse {
        /// Number of all descendants.
        pub total_number: i32,
    }
}

record! {
    /// Reply of whoAmI.
    pub struct WhoAmIResponse<'a> {
        /// The connection's identities.
        pub client_info: Option<Vector<'a, ClientInfo<'a>>>,
    }
}

record! {
    /// Reply of addWatch (always 0), and an error in a multi's results.
    pub struct ErrorResponse {
        /// 0 or the number of an [`ErrorCode`](crate::ErrorCode).
        pub err: i32,
    }
}
