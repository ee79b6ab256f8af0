//! The definition against digests that ZooKeeper computed, and the sum that moves against a walk over the tree.

use super::*;
use crate::tree::view::View;
use alloc::vec::Vec;

/// The sum over a walk, as ZooKeeper computes it when it loads a snapshot.
fn walked(view: &View) -> u64 {
    let mut sum = 0_u64;
    view.walk("/", |path, node| {
        sum = sum.wrapping_add(of_znode(path, node.data(), &node.stat()));
        true
    });
    sum
}

#[test]
fn an_empty_tree_has_the_digest_that_zookeeper_says() {
    let mut view = View::empty(7);
    view.keep_digest();
    assert_eq!(view.tree_digest(), Some(1_371_985_504));
    assert_eq!(walked(&view), 1_371_985_504);
}

#[test]
fn a_crc_is_that_of_path_data_and_stat_whatever_their_lengths() {
    let bytes: Vec<u8> = (0..600).map(|at: u32| at.to_le_bytes()[0] ^ 0x5a).collect();
    let text = "/x".repeat(150);
    let stat =
        NodeStat { czxid: Zxid(0x1234_5678_9abc), mtime: -5, version: 7, owner: i64::MIN, ..NodeStat::default() };
    for path in (1..=text.len()).step_by(13).chain([1, 2, 3]).map(|length| &text[..length]) {
        for data in (0..bytes.len()).map(|length| &bytes[..length]) {
            let named = if path == "/" { "" } else { path };
            let whole = [named.as_bytes(), data, &bytes_of(&stat)].concat();
            assert_eq!(crc_of(path, Some(data), &stat), crc32fast::hash(&whole), "{path} {}", data.len());
        }
    }
}

#[test]
fn a_stat_that_changes_moves_the_crc_as_a_whole_pass_would() {
    let stats = [
        NodeStat::default(),
        NodeStat { pzxid: Zxid(7), cversion: 1, num_children: 1, ..NodeStat::default() },
        NodeStat { czxid: Zxid(u64::MAX), mtime: -1, version: 3, owner: i64::MIN, ..NodeStat::default() },
        NodeStat { owner: 1, ..NodeStat::default() },
    ];
    for (path, data) in [("/", None), ("/a", Some(&b"data"[..])), ("/long", Some(&[7; 5000]))] {
        for (before, after) in stats.iter().flat_map(|before| stats.iter().map(move |after| (before, after))) {
            let moved = crc_restated(crc_of(path, data, before), before, after);
            assert_eq!(moved, crc_of(path, data, after), "{path}: {before:?} to {after:?}");
        }
    }
}
