//! Why a request failed.

use std::fmt;

use corral_wire::{DecodeError, ErrorCode};

/// A code of the protocol, and more words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Of the server's answer, or as ZooKeeper's own clients give it.
    pub code: ErrorCode,
    /// Empty, or more words.
    pub reason: String,
}

impl Error {
    /// An error without an answer of the server.
    pub fn new(code: ErrorCode, reason: impl Into<String>) -> Error {
        Error { code, reason: reason.into() }
    }

    pub(crate) fn of_answer(code: i32) -> Error {
        ErrorCode::from_i32(code)
            .map_or_else(|| Error::new(ErrorCode::SystemError, format!("code {code}")), Error::from)
    }
}

impl From<ErrorCode> for Error {
    fn from(code: ErrorCode) -> Error {
        Error::new(code, "")
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Error {
        Error::new(ErrorCode::MarshallingError, format!("the server's answer cannot be read: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.code {
            ErrorCode::ConnectionLoss => "the connection was lost",
            ErrorCode::MarshallingError => "a message cannot be read",
            ErrorCode::Unimplemented => "the server does not know this operation",
            ErrorCode::OperationTimeout => "no answer in time",
            ErrorCode::BadArguments => "the arguments are refused",
            ErrorCode::NewConfigNoQuorum => "too few of the new members follow",
            ErrorCode::ReconfigInProgress => "another change of the members is under way",
            ErrorCode::NoNode => "no such znode",
            ErrorCode::NoAuth => "no permission",
            ErrorCode::BadVersion => "another version",
            ErrorCode::NoChildrenForEphemerals => "an ephemeral znode has no children",
            ErrorCode::NodeExists => "the znode exists",
            ErrorCode::NotEmpty => "the znode has children",
            ErrorCode::SessionExpired => "the session is expired",
            ErrorCode::InvalidAcl => "the ACL is not valid",
            ErrorCode::AuthFailed => "the authentication failed",
            ErrorCode::Closing => "the session is closed",
            ErrorCode::NotReadOnly => "the server is read-only now",
            ErrorCode::NoWatcher => "no such watch",
            ErrorCode::ReconfigDisabled => "reconfig is switched off",
            ErrorCode::SessionClosedRequireSaslAuth => "the server takes only clients that authenticate",
            ErrorCode::QuotaExceeded => "the quota is exceeded",
            ErrorCode::ThrottledOp => "the server refuses more load now",
            other => other.name(),
        };
        f.write_str(words)?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

impl std::error::Error for Error {}
