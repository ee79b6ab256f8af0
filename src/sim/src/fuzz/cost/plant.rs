//! Cost bugs put in on purpose: work that a server must not do, done beside each request of the lab, in its turn, and a
//! limit that is missing.
//!
//! Each is of a kind that reviews and functional tests do not see. The search must find every one.

use std::hint::black_box;
use std::net::IpAddr;

use corral_core::view::View;
use corral_wire::OpCode;

use super::genome::{Call, Tree};
use super::search::Measure;

/// The bug shows long before so many calls of one request.
const CALLS_MAX: u64 = 3000;

/// A cost bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The text of every entry of a znode's ACL is parsed at each check.
    AclParsedAtEachCheck,
    /// Whoever asks for a znode, the names of its children are gathered first, and thrown away.
    ListingThrownAway,
    /// For each change, every ancestor is looked up by its path, made anew, and its levels are counted.
    AncestorsWalked,
    /// Whoever creates the znode of a quota's usage, the subtree is counted, also if the create is refused.
    QuotaCountedAgain,
    /// Nothing limits the names below one parent: no listing could answer them, no snapshot hold them. The lab takes
    /// the limit away.
    NamesUnlimited,
}

impl Plant {
    pub const ALL: [Plant; 5] = [
        Plant::AclParsedAtEachCheck,
        Plant::ListingThrownAway,
        Plant::AncestorsWalked,
        Plant::QuotaCountedAgain,
        Plant::NamesUnlimited,
    ];

    /// The largest tree that it takes to see the bug.
    pub const fn tree(self) -> Tree {
        match self {
            Plant::ListingThrownAway | Plant::QuotaCountedAgain => Tree::Wide,
            Plant::AclParsedAtEachCheck | Plant::AncestorsWalked | Plant::NamesUnlimited => Tree::Small,
        }
    }

    /// Whether the bug shows in this way of costing, for a request of this kind.
    pub fn shows_in(self, measure: Measure, op: Option<OpCode>) -> bool {
        let dear = matches!(measure, Measure::Turn | Measure::Request);
        dear && self.makes_dear(op) || self == Plant::NamesUnlimited && measure == Measure::Names
    }

    fn makes_dear(self, op: Option<OpCode>) -> bool {
        match self {
            Plant::NamesUnlimited => false,
            Plant::AclParsedAtEachCheck => true,
            Plant::ListingThrownAway => matches!(op, Some(OpCode::Exists | OpCode::GetData | OpCode::GetAcl)),
            Plant::QuotaCountedAgain => matches!(op, Some(OpCode::Create | OpCode::Multi)),
            Plant::AncestorsWalked => {
                matches!(op, Some(OpCode::SetData | OpCode::Create | OpCode::Delete | OpCode::SetAcl | OpCode::Multi))
            }
        }
    }

    /// What the bug does for a request of these calls so many times.
    pub(super) fn works(self, view: &View, calls: &[Call], times: u32) {
        for number in 0..u64::from(times).min(CALLS_MAX) {
            for call in calls {
                let path = String::from_utf8(call.path.text(number)).unwrap_or_default();
                self.work(view, call.op(), &path);
            }
        }
    }

    fn work(self, view: &View, op: Option<OpCode>, path: &str) {
        match self {
            Plant::AclParsedAtEachCheck => {
                let Some(node) = view.get(path) else { return };
                for (_, _, id) in node.acl().iter() {
                    let (address, bits) = id.split_once('/').unwrap_or((id, "0"));
                    let bits = bits
                        .bytes()
                        .filter(u8::is_ascii_digit)
                        .fold(0_u32, |sum, digit| sum.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')));
                    black_box((address.parse::<IpAddr>().is_ok(), bits));
                }
            }
            Plant::NamesUnlimited => {}
            Plant::ListingThrownAway => {
                if matches!(op, Some(OpCode::Exists | OpCode::GetData | OpCode::GetAcl)) {
                    let names: Vec<String> = view.children(path).into_iter().flatten().map(str::to_owned).collect();
                    black_box(names);
                }
            }
            Plant::QuotaCountedAgain => {
                let top = path.strip_prefix("/zookeeper/quota").and_then(|rest| rest.strip_suffix("/zookeeper_stats"));
                if let (Some(OpCode::Create), Some(top)) = (op, top) {
                    black_box(counted(view, top));
                }
            }
            Plant::AncestorsWalked => {
                if matches!(op, Some(OpCode::SetData | OpCode::Create | OpCode::Delete | OpCode::SetAcl)) {
                    for (at, _) in path.match_indices('/') {
                        let ancestor = path[..at].to_owned();
                        black_box((view.get(&ancestor).is_some(), ancestor.split('/').count()));
                    }
                }
            }
        }
    }
}

/// Znodes and bytes of a subtree.
fn counted(view: &View, top: &str) -> (usize, usize) {
    let (mut znodes, mut bytes) = (0, 0);
    let mut stack = vec![top.to_owned()];
    while let Some(path) = stack.pop() {
        let path = if path.is_empty() { "/" } else { &path };
        if let Some(node) = view.get(path) {
            znodes += 1;
            bytes += node.data().map_or(0, <[u8]>::len);
            let below = path.trim_end_matches('/');
            stack.extend(view.children(path).into_iter().flatten().map(|name| format!("{below}/{name}")));
        }
    }
    (znodes, bytes)
}
