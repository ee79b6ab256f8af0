//! The operations that write, or check inside a multi. Each has a file with its decoding, its cost, its evaluation and its
//! encoding in the log.
//!
//! `operations!` is the table of them, and the trait `Operation` their contract.

pub(crate) mod caller;
mod check;
mod check_not_exists;
pub(crate) mod check_stat;
mod create;
pub(crate) mod decode;
mod delete;
pub(crate) mod draft;
mod operation;
pub(crate) mod remove_recursive;
mod result;
mod set_acl;
mod set_data;
mod try_remove;

pub use check::Check;
pub use check_not_exists::CheckNotExists;
pub use check_stat::{CheckStat, STAT_FIELDS};
pub use create::{Create, CreateOp};
pub use delete::Delete;
pub(crate) use operation::{Affected, Costs};
pub use remove_recursive::RemoveRecursive;
pub use result::OpResult;
pub use set_acl::SetAcl;
pub use set_data::SetData;
pub use try_remove::TryRemove;

use crate::encoding::{Take, put_bytes};
use crate::shared::{Data, Text};
use crate::tree::acl::AclSpec;
use alloc::vec::Vec;
use caller::Caller;
use corral_wire::multi::MultiOp;
use corral_wire::{ErrorCode, OpCode, Reader};
use decode::Refused;
use draft::Draft;
use operation::Operation;

/// A row: the operation, its number in the log, and the op codes that ask for it.
macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, [$($code:ident),*];)*) => {
        /// One operation that may change the tree.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum WriteOp {
            $($(#[doc = $doc])+ $name($name),)*
        }

        $(impl From<$name> for WriteOp {
            fn from(operation: $name) -> Self {
                Self::$name(operation)
            }
        })*

        impl WriteOp {
            /// Decodes the record of a request outside a multi.
            ///
            /// # Errors
            /// When the record cannot be decoded, and for op codes that no operation here serves.
            pub(crate) fn decode(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused> {
                match op {
                    $($(OpCode::$code)|* => $name::decode(op, reader).map(Self::$name),)*
                    _ => Err(Refused::NotServed),
                }
            }

            /// The path that it is for, as sent.
            pub fn path(&self) -> &Text {
                match self {
                    $(Self::$name(operation) => &operation.path,)*
                }
            }

            /// The data that it brings.
            pub(crate) fn data(&self) -> Option<&Data> {
                match self {
                    $(Self::$name(operation) => operation.data(),)*
                }
            }

            /// The ACL that it brings, as sent.
            pub(crate) fn acl(&self) -> Option<&AclSpec> {
                match self {
                    $(Self::$name(operation) => operation.acl(),)*
                }
            }

            /// The same, to change it.
            pub(crate) fn acl_mut(&mut self) -> Option<&mut AclSpec> {
                match self {
                    $(Self::$name(operation) => operation.acl_mut(),)*
                }
            }

            /// The znodes that it changes, if it succeeds.
            #[inline]
            pub(crate) const fn affected(&self) -> Affected {
                match self {
                    $(Self::$name(_) => <$name as Operation>::AFFECTED,)*
                }
            }

            /// The most that its evaluation costs, but for the znodes that it changes.
            pub(crate) fn cost_at_most(&self, costs: &Costs) -> u64 {
                match self {
                    $(Self::$name(operation) => operation.cost_at_most(costs),)*
                }
            }

            /// Checks and carries out the operation.
            ///
            /// # Errors
            /// The code that the client is answered with. Then the draft has no change of it.
            #[inline]
            pub(crate) fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode> {
                match self {
                    $(Self::$name(operation) => operation.evaluate(caller, draft),)*
                }
            }

            /// Appends it as it stands in the log: its number, its path, the rest of its fields.
            pub(crate) fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name(operation) => {
                        out.push($number);
                        put_bytes(out, operation.path.as_bytes());
                        operation.put(out);
                    })*
                }
            }

            /// Reads what [`WriteOp::put`] wrote.
            pub(crate) fn take(take: &mut Take<'_>) -> Option<Self> {
                let number = take.left.u8()?;
                let path = take.text()?;
                match number {
                    $($number => $name::take(path, take).map(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

operations! {
    /// create, create2, createContainer, createTTL and createIfNotExists.
    Create = 0, [Create, Create2, CreateContainer, CreateTtl, CreateIfNotExists];
    /// delete.
    Delete = 1, [Delete];
    /// setData.
    SetData = 2, [SetData];
    /// setACL.
    SetAcl = 3, [SetAcl];
    /// check, inside a multi alone.
    Check = 4, [Check];
    /// ClickHouse Keeper's checkNotExists.
    CheckNotExists = 5, [CheckNotExists];
    /// ClickHouse Keeper's checkStat.
    CheckStat = 6, [CheckStat];
    /// ClickHouse Keeper's tryRemove.
    TryRemove = 7, [TryRemove];
    /// ClickHouse Keeper's removeRecursive.
    RemoveRecursive = 8, [RemoveRecursive];
}

impl WriteOp {
    /// An operation of a multi.
    ///
    /// # Errors
    /// For an operation that only reads, or that a command cannot hold.
    pub(crate) fn of_multi(op: MultiOp<'_>) -> Result<Self, Refused> {
        Ok(match op {
            MultiOp::Create { request, ttl, .. } => Create::of(op.effective_op(), &request, ttl)?.into(),
            MultiOp::Delete(request) => Delete::of(request).into(),
            MultiOp::SetData(request) => SetData::of(request).into(),
            MultiOp::Check(request) => Check::of(request).into(),
            MultiOp::CheckNotExists(request) => CheckNotExists::of(request)?.into(),
            MultiOp::CheckStat(request) => CheckStat::of(request)?.into(),
            MultiOp::TryRemove(request) => TryRemove::of(request)?.into(),
            MultiOp::RemoveRecursive(request) => RemoveRecursive::of(request)?.into(),
            MultiOp::GetData(_)
            | MultiOp::GetChildren(_)
            | MultiOp::FilteredList(_)
            | MultiOp::FilteredListWithStatsAndData(_) => return Err(Refused::Undecodable),
        })
    }

    /// Whether it may add data to the tree.
    pub(crate) fn adds_data(&self) -> bool {
        self.affected() == Affected::Own || matches!(self, Self::Create(_))
    }

    /// Bytes of the path and the data.
    pub(crate) fn bytes(&self) -> usize {
        self.path().len() + self.data().map_or(0, |data| data.len())
    }
}
