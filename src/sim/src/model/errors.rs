//! Error codes of ZooKeeper, and the checks that fail with one.

pub(super) const RUNTIME_INCONSISTENCY: i32 = -2;
pub(crate) const MARSHALLING_ERROR: i32 = -5;
pub(crate) const UNIMPLEMENTED: i32 = -6;
pub(crate) const BAD_ARGUMENTS: i32 = -8;
pub(crate) const NO_AUTH: i32 = -102;
pub(super) const BAD_VERSION: i32 = -103;
pub(super) const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
pub(super) const NODE_EXISTS: i32 = -110;
pub(super) const NOT_EMPTY: i32 = -111;
pub(super) const SESSION_EXPIRED: i32 = -112;
pub(super) const QUOTA_EXCEEDED: i32 = -125;
pub(super) const INVALID_ACL: i32 = -114;
pub(super) const RECONFIG_IN_PROGRESS: i32 = -14;
pub(super) const RECONFIG_DISABLED: i32 = -123;
/// No error code: there is no reply, and the connection is closed.
pub(super) const MOVED: i32 = i32::MIN;

pub(super) fn need(holds: bool, code: i32) -> Result<(), i32> {
    if holds { Ok(()) } else { Err(code) }
}

pub(super) fn expect(actual: i32, wanted: i32) -> Result<(), i32> {
    need(wanted == -1 || wanted == actual, BAD_VERSION)
}
