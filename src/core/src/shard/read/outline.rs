//! The outline of a request by its op code alone, before its record is decoded.

use corral_wire::OpCode;

/// Whether a request sets a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watching {
    /// Never.
    No,
    /// If its record, a path and a flag, asks for it.
    IfAsked,
    /// It may, or it does more than read.
    Maybe,
}

/// Which read may take more than one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// None of these.
    Short,
    /// A list of children. Each child is looked up if `looks_up`.
    List {
        /// Whether more than the names is needed.
        looks_up: bool,
    },
    /// As long as the list of paths in its record.
    Paths,
}

/// The outline of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    /// Whether the record begins with the path of the one znode that is read.
    pub(crate) reads_znode: bool,
    /// Whether it sets a watch.
    pub(crate) watching: Watching,
    /// How long it may take.
    pub(crate) length: Length,
}

impl Outline {
    /// The table. It has no default arm, so that the compiler asks for each new operation.
    pub(crate) const fn of(op: OpCode) -> Self {
        let (reads_znode, watching, length) = match op {
            OpCode::GetData | OpCode::Exists => (true, Watching::IfAsked, Length::Short),
            OpCode::GetChildren | OpCode::GetChildren2 => (true, Watching::IfAsked, Length::List { looks_up: false }),
            OpCode::GetAcl => (true, Watching::No, Length::Short),
            OpCode::GetEphemerals | OpCode::MultiRead | OpCode::WhoAmI | OpCode::Ping => {
                (false, Watching::No, Length::Short)
            }
            OpCode::FilteredList | OpCode::FilteredListWithStatsAndData => {
                (false, Watching::Maybe, Length::List { looks_up: true })
            }
            OpCode::SetWatches | OpCode::SetWatches2 => (false, Watching::Maybe, Length::Paths),
            OpCode::AddWatch
            | OpCode::CheckWatches
            | OpCode::RemoveWatches
            | OpCode::GetAllChildrenNumber
            | OpCode::ListRecursive
            | OpCode::Sync
            | OpCode::Auth
            | OpCode::Sasl
            | OpCode::Notification
            | OpCode::Create
            | OpCode::Delete
            | OpCode::SetData
            | OpCode::SetAcl
            | OpCode::Check
            | OpCode::Multi
            | OpCode::Create2
            | OpCode::Reconfig
            | OpCode::CreateContainer
            | OpCode::DeleteContainer
            | OpCode::CreateTtl
            | OpCode::CreateSession
            | OpCode::CloseSession
            | OpCode::Error
            | OpCode::CheckNotExists
            | OpCode::CreateIfNotExists
            | OpCode::RemoveRecursive
            | OpCode::CheckStat
            | OpCode::TryRemove => (false, Watching::Maybe, Length::Short),
        };
        Self { reads_znode, watching, length }
    }
}
