//! The parts of the children that a list holds.

use super::context::Failed;
use crate::tree::view::{ChildrenSize, NodeRef};
use crate::tree::znode::Owner;
use corral_wire::records::{FilteredListRequest, FilteredListWithStatsAndDataRequest, Stat};
use corral_wire::{ErrorCode, Wire};

/// Which children are listed, `listType` on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    All,
    Persistent,
    Ephemeral,
}

impl Listed {
    fn from_wire(number: u8) -> Result<Self, Failed> {
        match number {
            0 => Ok(Self::All),
            1 => Ok(Self::Persistent),
            2 => Ok(Self::Ephemeral),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    pub(super) fn admits(self, child: &NodeRef<'_>) -> bool {
        let ephemeral = Owner::from_bits(child.stat().owner).is_ephemeral();
        match self {
            Self::All => true,
            Self::Persistent => !ephemeral,
            Self::Ephemeral => ephemeral,
        }
    }
}

/// The parts of the children that the reply holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListFormat {
    pub(super) listed: Listed,
    /// Whether the parent's Stat follows the names.
    pub(super) parent_stat: bool,
    /// Whether the list holds the children's Stats, and whether their data. `None`: it has no vectors for them.
    pub(super) whole: Option<(bool, bool)>,
}

impl ListFormat {
    pub(super) const NAMES: Self = Self { listed: Listed::All, parent_stat: false, whole: None };

    /// Whether the children must be looked up.
    pub(super) fn needs_nodes(self) -> bool {
        self.listed != Listed::All || self.whole.is_some_and(|(stat, data)| stat || data)
    }

    /// Bytes of the reply without data, at most.
    pub(super) fn bytes_max(self, size: ChildrenSize) -> usize {
        const FIXED: usize = 256;
        let stats = if matches!(self.whole, Some((true, _))) { size.entries * Stat::SIZE_MIN } else { 0 };
        FIXED + size.bytes + size.entries * 4 + stats
    }

    pub(super) fn filtered(request: &FilteredListRequest<'_>) -> Result<Self, Failed> {
        Ok(Self { listed: Listed::from_wire(request.list_type)?, parent_stat: true, whole: None })
    }

    pub(super) fn whole(request: &FilteredListWithStatsAndDataRequest<'_>) -> Result<Self, Failed> {
        let listed = Listed::from_wire(request.list_type)?;
        Ok(Self { listed, parent_stat: true, whole: Some((request.with_stat, request.with_data)) })
    }
}
