//! Errors: `DecodeError` (the peer sent bytes that are not a record) and `ErrorCode` (the outcome in a reply).
//!
//! The two never mix. A `DecodeError` in a request becomes MARSHALLINGERROR or a closed connection, as the server
//! decides. An `ErrorCode` is an ordinary value in a `ReplyHeader`. Plain `Copy` values, usable on every core. Knows no
//! text of log messages and no policy.

use core::fmt;

/// Why a record could not be decoded. The sender of the bytes is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the record does.
    Truncated,
    /// A string, buffer or vector length below -1 (-1 itself means null).
    NegativeLength(i32),
    /// A vector announces more elements than the remaining bytes could hold.
    TooLong {
        /// The announced number of elements.
        claimed: u32,
        /// The most elements the remaining bytes can hold.
        possible: u32,
    },
    /// A string is not valid UTF-8.
    ///
    /// ZooKeeper's Java server replaces the bad bytes by U+FFFD and continues. No path may hold U+FFFD, so it answers
    /// BADARGUMENTS to such a create and NONODE to such a read, where this crate refuses the record. It accepts three
    /// records that this crate refuses: sync (an echo), watches on a path that can never exist, and some ACL ids or
    /// credentials. Those have characters beyond U+FFFF from a Java client, which sends them as two surrogates.
    BadUtf8,
    /// A create, create2 or createContainer inside a multi carries a flag that is no create mode or needs a TTL.
    BadFlag(i32),
    /// A create, create2 or createContainer inside a multi carries a null ACL.
    ///
    /// ZooKeeper's decoder fails on it after it has checked that the flag exists, and before it checks that the flag needs no
    /// TTL. Outside of a multi, and in a createTTL, a null ACL is decoded like any other.
    NullAcl,
    /// An operation type that is not allowed at this place of a multi.
    BadOp(i32),
    /// A multi or multiRead has more operations than [`MULTI_OPS_MAX`](crate::limits::MULTI_OPS_MAX).
    TooManyOps,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated => f.write_str("the record is cut short"),
            Self::NegativeLength(length) => write!(f, "unreasonable length = {length}"),
            Self::TooLong { claimed, possible } => {
                write!(f, "a vector of {claimed} elements cannot fit, at most {possible} can")
            }
            Self::BadUtf8 => f.write_str("a string is not valid UTF-8"),
            Self::NullAcl => f.write_str("a create in a multi without an ACL"),
            Self::BadFlag(flag) => write!(f, "create mode flag {flag} is not allowed in this multi"),
            Self::BadOp(op) => write!(f, "operation type {op} is not allowed in this multi"),
            Self::TooManyOps => write!(f, "a multi has more than {} operations", crate::limits::MULTI_OPS_MAX),
        }
    }
}

impl core::error::Error for DecodeError {}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// The outcome of an operation, in `ReplyHeader.err` and in multi results. The discriminant is the number on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum ErrorCode {
            $($(#[$doc])* $variant = $code,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the protocol's table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> i32 {
                self as i32
            }

            /// ZooKeeper's name of the code, without the `Z` of the C client: `NONODE`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The code with this number, or `None` if the protocol knows none.
            #[must_use]
            pub const fn from_i32(code: i32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    /// Success.
    Ok = 0, "OK";
    /// Marks the range of system errors; never sent.
    SystemError = -1, "SYSTEMERROR";
    /// In a failed multi: the operations after the failing one.
    RuntimeInconsistency = -2, "RUNTIMEINCONSISTENCY";
    /// Never sent by a server.
    DataInconsistency = -3, "DATAINCONSISTENCY";
    /// Made by clients when the connection breaks.
    ConnectionLoss = -4, "CONNECTIONLOSS";
    /// The request's record could not be decoded, or its path is null.
    MarshallingError = -5, "MARSHALLINGERROR";
    /// Unknown or forbidden operation (then close), TTL while extended types are off, reconfig on a standalone server.
    Unimplemented = -6, "UNIMPLEMENTED";
    /// Made by clients.
    OperationTimeout = -7, "OPERATIONTIMEOUT";
    /// Bad path of a write, NUL in an exists path, unknown create flag, bad TTL, bad reconfig text, special znode.
    BadArguments = -8, "BADARGUMENTS";
    /// C client only.
    InvalidState = -9, "ZINVALIDSTATE";
    /// The server does not know the session.
    UnknownSession = -12, "UNKNOWNSESSION";
    /// Reconfig: no quorum of the new configuration is connected and in sync.
    NewConfigNoQuorum = -13, "NEWCONFIGNOQUORUM";
    /// Reconfig while another is uncommitted.
    ReconfigInProgress = -14, "RECONFIGINPROGRESS";
    /// C client only.
    SslConnectionError = -15, "ZSSLCONNECTIONERROR";
    /// Marks the range of API errors; never sent.
    ApiError = -100, "APIERROR";
    /// The znode does not exist.
    NoNode = -101, "NONODE";
    /// The ACL does not grant the operation.
    NoAuth = -102, "NOAUTH";
    /// Version, aversion or reconfig config id mismatch.
    BadVersion = -103, "BADVERSION";
    /// Create below an ephemeral znode.
    NoChildrenForEphemerals = -108, "NOCHILDRENFOREPHEMERALS";
    /// The znode exists.
    NodeExists = -110, "NODEEXISTS";
    /// Delete of a znode with children.
    NotEmpty = -111, "NOTEMPTY";
    /// The session is closing or unknown.
    SessionExpired = -112, "SESSIONEXPIRED";
    /// Made by clients.
    InvalidCallback = -113, "INVALIDCALLBACK";
    /// Empty or null ACL, unknown scheme, malformed id, `auth:` without any authenticated identity.
    InvalidAcl = -114, "INVALIDACL";
    /// Authentication refused (then close).
    AuthFailed = -115, "AUTHFAILED";
    /// C client only.
    Closing = -116, "ZCLOSING";
    /// C client only.
    Nothing = -117, "ZNOTHING";
    /// Never in a reply: the server closes the connection instead.
    SessionMoved = -118, "SESSIONMOVED";
    /// Write or sync on a read-only server.
    NotReadOnly = -119, "NOTREADONLY";
    /// Ephemeral create on a local session that cannot be upgraded.
    EphemeralOnLocalSession = -120, "EPHEMERALONLOCALSESSION";
    /// checkWatches or removeWatches found nothing.
    NoWatcher = -121, "NOWATCHER";
    /// Made by clients.
    RequestTimeout = -122, "REQUESTTIMEOUT";
    /// Reconfig is switched off.
    ReconfigDisabled = -123, "RECONFIGDISABLED";
    /// Enforced authentication is missing (then close).
    SessionClosedRequireSaslAuth = -124, "SESSIONCLOSEDREQUIRESASLAUTH";
    /// A hard quota would be exceeded.
    QuotaExceeded = -125, "QUOTAEXCEEDED";
    /// The operation waited too long and was not executed.
    ThrottledOp = -127, "THROTTLEDOP";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for ErrorCode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_i32(code.code()), Some(*code));
        }
        assert_eq!(ErrorCode::ALL.len(), 36);
        for unknown in [1, -10, -11, -16, -104, -109, -126, -128, i32::MIN, i32::MAX] {
            assert_eq!(ErrorCode::from_i32(unknown), None, "{unknown}");
        }
    }
}
